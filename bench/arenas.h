/* Arenas of an engine against their plan: how far into each a kernel was handed memory. */
#ifndef DSF_BENCH_ARENAS_H
#define DSF_BENCH_ARENAS_H

#include "serve/engine.h"

/* high: one past the last byte that a kernel was handed. */
typedef struct {
    const char *name;
    const uint8_t *base; /* NULL: the engine has none; on a device its address there */
    size_t planned, high;
    bool filled; /* by every run: planned must be met. Inputs hold the worst split into groups. */
} dsf_arena_use;

enum { DSF_ARENAS = 4 };

/* Values, inputs, caches and draft of an engine. */
void dsf_arenas_of(dsf_arena_use arena[DSF_ARENAS], const dsf_engine *e);
/* Takes what the steps of e's last pass were handed; before another pass. cache_high (may be NULL):
 * bytes handed of each cache value, [n_values] of e's plan. */
void dsf_arenas_raise(dsf_arena_use arena[DSF_ARENAS], const dsf_exec *e, size_t *cache_high);
/* Within the plan, and met where it must be: by the 64 bytes that offsets are multiples of, or,
 * where `percent` allows more, by that. */
bool dsf_arena_met(const dsf_arena_use *a, double percent);

#endif
