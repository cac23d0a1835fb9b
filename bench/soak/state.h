/* What the parts of a soak share: one run, its findings, its samples. */
#ifndef DSF_BENCH_SOAK_STATE_H
#define DSF_BENCH_SOAK_STATE_H

#include "base/proc.h"
#include "bench/arenas.h"
#include "bench/model.h"
#include "bench/nvml.h"
#include "bench/soak/ladder.h"
#include "bench/soak/ledger.h"
#include "bench/soak/soak.h"
#include "bench/soak/trend.h"

enum {
    DSF_SOAK_DECODED = 4, /* tokens after a prompt of the ladder */
    DSF_SOAK_RUNGS = DSF_LADDER_RUNGS * DSF_SOAK_CHUNKS,
    DSF_SOAK_CURVE = 64,
    DSF_SOAK_NAMED = 5, /* largest values */

    DSF_SOAK_MARGIN_PERCENT = 3,
    DSF_SOAK_RESIDUAL_PERCENT = 1,
    DSF_SOAK_SLOPE_BYTES = 1 << 20 /* a cycle */
};

/* --- sample.c --- */

/* What the machine, the process and the device hold. -1: not known here. */
typedef struct {
    dsf_proc_memory own;
    dsf_proc_machine_memory machine;
    int64_t live, pinned, device_free, device_total, device_used, files;
} dsf_soak_sample;

/* --- lines.c --- */

/* A line of the memory plan beside what was really taken for it. */
typedef struct {
    const dsf_budget_line *plan;
    int64_t planned, measured; /* measured -1: it has no block of its own */
} dsf_soak_line;

/* A value of the plan: its share of the pass. */
typedef struct {
    char name[32];
    int64_t bytes;
    char formula[96];
    bool product; /* grows with chunk times length */
} dsf_soak_value;

/* --- one length and chunk --- */

typedef struct {
    int64_t depth, tokens;
    double seconds;
} dsf_soak_point;

typedef struct {
    int64_t length, chunk;
    int64_t planned, measured, high;
    int64_t scratch;                /* planned for kernels: the most that one of them asks for */
    int64_t beside;                 /* held before the first token, for no line of the plan */
    int64_t available, device_free; /* the least that was left */
    int64_t resident;               /* anonymous, most, the idle process taken off */
    double seconds;
    uint64_t hash;
    bool same, done;
} dsf_soak_rung;

/* What is wrong first, in words; empty: nothing. */
typedef struct {
    char words[512];
    char name[160];
    double measured, limit;
    int n; /* places where it was seen */
} dsf_soak_finding;

typedef struct {
    int64_t live[DSF_SOAK_CYCLES], anon[DSF_SOAK_CYCLES], files[DSF_SOAK_CYCLES],
        device[DSF_SOAK_CYCLES], pinned[DSF_SOAK_CYCLES];
    uint64_t hash;
    int n, same; /* cycles after the warm ones; of these with the first one's output */
} dsf_soak_cycles;

typedef struct {
    dsf_bench *b;
    const dsf_soak_options *o;
    dsf_ledger *ledger;
    dsf_nvml *nvml;
    struct dsf_synthetic synthetic;
    dsf_options options; /* of every engine, but for its size */
    dsf_ladder ladder;
    int64_t device_total; /* bytes; -1: none, or not known */
    int64_t limit;        /* positions that the model allows */
    int32_t *prompt;      /* [to or at] */
    float *work;          /* [vocab] */

    /* Of the engine that is open. */
    dsf_engine *engine;
    dsf_arena_use arena[DSF_ARENAS];
    size_t *cache_high;   /* [n_values of its plan] */
    int64_t live_before;  /* bytes that the ledger knew of before */
    uint64_t serial_open; /* of the first block after */
    const char *stage, *phase;
    int64_t length, chunk, cycle;
    dsf_soak_sample start, idle,
        least;    /* start: of the run; least: the lowest available and free, most anonymous */
    int64_t high; /* most live bytes since it was opened, less those before */
    dsf_soak_point curve[DSF_SOAK_CURVE];
    int n_curve;
    int64_t curve_span; /* tokens that a point may gather */

    dsf_soak_value product[DSF_SOAK_NAMED];
    int n_products;
    dsf_soak_rung *rung; /* [DSF_SOAK_RUNGS] */
    int n_rungs;
    dsf_soak_cycles cycles;
    dsf_soak_finding plan, arenas, temporary, resident, leak, outputs, chunks;
    char stopped[640];          /* why the run ended before its end */
    bool guarded;               /* it was the guard */
    int64_t done, total, began; /* tokens; ns */
    void *planted[DSF_SOAK_CYCLES];
    int n_planted;
} dsf_soak;

/* sample.c */
void dsf_soak_look(dsf_soak *s, dsf_soak_sample *out);
/* Ends a phase: a line of what is held, and the least that was left. */
DSF_MUST dsf_status dsf_soak_take(dsf_soak *s, const char *phase);

/* lines.c */
int64_t dsf_soak_planned(const dsf_engine *e); /* where the plan lives: host, or device */
/* Fills out[DSF_BUDGET_LINES] for the open engine with these sessions; returns how many. */
int dsf_soak_lines(const dsf_soak *s, dsf_session *const *session, int n, dsf_soak_line *out);
/* The largest values of a plan, of equals one. Returns how many of out[DSF_SOAK_NAMED]. */
int dsf_soak_largest(const dsf_soak *s, const dsf_plan *p, dsf_soak_value *out);
/* Names the values that grow with chunk times length, by planning at half of each. */
DSF_MUST dsf_status dsf_soak_products(dsf_soak *s, int64_t length, int64_t chunk);

/* pass.c */
/* Opens an engine for this size after asking the guard; *opened false: it was not let. */
DSF_MUST dsf_status dsf_soak_open(dsf_soak *s, int64_t context, int64_t chunk, int64_t slots,
                                  bool *opened);
void dsf_soak_close(dsf_soak *s);
bool dsf_soak_over(dsf_soak *s); /* stopped by the guard, or on request */
/* One pass, under the ledger's eye. cancel: it is given up before its logits are taken. */
DSF_MUST dsf_status dsf_soak_pass(dsf_soak *s, dsf_session *const *batch, int n, bool cancel);
/* Continues the hash with the session's logits. */
DSF_MUST dsf_status dsf_soak_hash(const dsf_session *s, uint64_t *hash);
/* The next token by draw, fed. */
DSF_MUST dsf_status dsf_soak_next(dsf_soak *s, dsf_session *session, uint64_t *hash);
/* A draft where the model has the stages for it. */
DSF_MUST dsf_status dsf_soak_draft(dsf_soak *s, dsf_session *session);

/* rung.c, cycle.c */
DSF_MUST dsf_status dsf_soak_climb(dsf_soak *s, int64_t length, int64_t chunk);
DSF_MUST dsf_status dsf_soak_cycle_all(dsf_soak *s);
/* What lines, arenas and output of the open engine show. */
void dsf_soak_judge_engine(dsf_soak *s, const dsf_soak_line *line, int n);

/* guard.c */
/* Words for the report when the guard is passed, else "". A plan that is still to be taken:
 * planned > 0, of which `line` is the largest. own: what this process has grown by since it was
 * idle; lost: what the machine has since then less to give. */
typedef struct {
    int64_t guard, available, planned, own, lost;
    const char *line, *formula; /* largest line of the plan, or of what was taken */
    int64_t line_bytes;
    const char *beside; /* what is held beside the plan, where that is more; NULL: nothing */
    int64_t beside_bytes;
} dsf_soak_guard;
void dsf_soak_guard_words(const dsf_soak_guard *g, char *out, size_t room);

/* plant.c */
DSF_MUST dsf_status dsf_soak_plant_pass(dsf_soak *s, void **block);
DSF_MUST dsf_status dsf_soak_plant_cycle(dsf_soak *s);
void dsf_soak_plant_plan(const dsf_soak *s, dsf_engine *e);
bool dsf_soak_plant_known(const char *word);

/* tell.c */
DSF_MUST dsf_status dsf_soak_emit(dsf_soak *s, dsf_buf *json, dsf_buf *text);
void dsf_soak_begin(dsf_buf *json, const char *kind);
DSF_MUST dsf_status dsf_soak_tell_start(dsf_soak *s, const dsf_engine *largest);
/* What was left of the machine, or of the device, at its highest point. */
void dsf_soak_left(const dsf_soak *s, const dsf_soak_rung *r, int64_t *bytes, double *percent);
DSF_MUST dsf_status dsf_soak_tell_rung(dsf_soak *s, const dsf_soak_rung *r, const dsf_soak_value *v,
                                       int n);
void dsf_soak_find(dsf_soak_finding *f, const char *name, double measured, double limit,
                   const char *fmt, ...) DSF_PRINTF(5, 6);

/* verdict.c */
DSF_MUST dsf_status dsf_soak_judge(dsf_soak *s, dsf_soak_answer *answer);

#endif
