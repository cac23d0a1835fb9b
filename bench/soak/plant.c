/* Faults put in on request, to show on this very machine that they are found by name. */
#include <string.h>

#include "base/mem.h"
#include "bench/soak/state.h"

enum { LEAK = 64 << 10 };

static bool planted(const dsf_soak *s, const char *fault)
{
    return s->o->plant && strcmp(s->o->plant, fault) == 0;
}

bool dsf_soak_plant_known(const char *word)
{
    return strcmp(word, "temporary") == 0 || strcmp(word, "leak") == 0 || strcmp(word, "plan") == 0;
}

/* A byte for each row of the pass and each position: what a mask or a score matrix would be. */
dsf_status dsf_soak_plant_pass(dsf_soak *s, void **block)
{
    *block = NULL;
    size_t bytes = (size_t)(s->chunk * s->length);
    if (!planted(s, "temporary")) return DSF_OK;
    DSF_TRY(dsf_mem_new(block, bytes, 1));
    memset(*block, 1, bytes);
    return DSF_OK;
}

/* Kept reachable, and given back when the run is judged. */
dsf_status dsf_soak_plant_cycle(dsf_soak *s)
{
    if (!planted(s, "leak") || s->n_planted == DSF_SOAK_CYCLES) return DSF_OK;
    DSF_TRY(dsf_mem_new(&s->planted[s->n_planted], LEAK, 1));
    memset(s->planted[s->n_planted++], 1, LEAK);
    return DSF_OK;
}

/* The plan says less than is taken. */
void dsf_soak_plant_plan(const dsf_soak *s, dsf_engine *e)
{
    for (int i = 0; planted(s, "plan") && i < e->budget.n; i++)
        if (strcmp(e->budget.line[i].name, "cache: index keys") == 0)
            e->budget.line[i].bytes -= e->budget.line[i].bytes / 10;
}
