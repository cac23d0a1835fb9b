/* What fits: the planning itself, asked for other sizes. */
#include "serve/engine.h"

dsf_status dsf_memory_at(const dsf_engine *e, int64_t context, int64_t chunk, dsf_budget *b)
{
    dsf_engine at = *e; /* borrows model and weights, whose bytes are the same at every size */
    at.opt.context = context;
    at.opt.chunk = chunk;
    at.plan = at.draft_plan = NULL;
    dsf_status st = dsf_engine_plans(&at);
    if (st == DSF_OK) st = dsf_memory_plan(&at, b);
    dsf_plan_close(at.plan);
    dsf_plan_close(at.draft_plan);
    return st;
}

typedef struct {
    const dsf_engine *e;
    int64_t limit, most; /* bytes; the largest size that is allowed at all */
    bool chunk;          /* which of the two is searched */
} search;

static dsf_status fits(const search *s, int64_t size, bool *yes)
{
    const dsf_options *o = &s->e->opt;
    dsf_budget b;
    int64_t context = s->chunk ? o->context : size, chunk = s->chunk ? size : o->chunk;
    if (chunk > context * o->slots) chunk = context * o->slots;
    DSF_TRY(dsf_memory_at(s->e, context, chunk, &b));
    *yes = dsf_memory_total(s->e, &b) <= s->limit;
    return DSF_OK;
}

/* More rows or positions never take less. */
static dsf_status largest(const search *s, int64_t *out)
{
    bool yes = false;
    int64_t low = 0, high = s->most + 1; /* low fits (or is none), high does not (or is too many) */
    DSF_TRY(fits(s, s->most, &yes));
    if (yes) low = s->most;
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        DSF_TRY(fits(s, middle, &yes));
        if (yes)
            low = middle;
        else
            high = middle;
    }
    *out = low;
    return DSF_OK;
}

dsf_status dsf_memory_most_context(const dsf_engine *e, int64_t limit, int64_t *out)
{
    return largest(&(search){e, limit, e->load.config.max_seq_len, false}, out);
}

int64_t dsf_memory_chunk_cap(const dsf_engine *e)
{
    int64_t rows = e->opt.context * e->opt.slots;
    return rows < 1 << 20 ? rows : 1 << 20;
}

dsf_status dsf_memory_most_chunk(const dsf_engine *e, int64_t limit, int64_t *out)
{
    return largest(&(search){e, limit, dsf_memory_chunk_cap(e), true}, out);
}
