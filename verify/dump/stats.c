/* Statistics of row blocks: what `dump --stats` keeps of a tap (dump-schema.md 8). */
#include <math.h>
#include <xxhash.h>

#include "base/mem.h"
#include "verify/dump/series.h"
#include "verify/dump/writer.h"

struct dsf_dump_block {
    XXH3_state_t *hash;
    int64_t rows;
    uint64_t count, nan, inf;
    double min, max, sum, squares;
};

static double element(const void *row, dsf_dump_kind kind, int64_t i)
{
    switch (kind) {
    case DSF_DUMP_F32:
        return (double)((const float *)row)[i];
    case DSF_DUMP_I32:
        return (double)((const int32_t *)row)[i];
    case DSF_DUMP_I64:
        return (double)((const int64_t *)row)[i];
    default:
        return (double)((const uint8_t *)row)[i];
    }
}

static dsf_status start(dsf_series *s)
{
    if (!s->block) {
        DSF_TRY(dsf_mem_new(&s->block, 1, sizeof *s->block));
        s->block->hash = XXH3_createState();
        if (!s->block->hash) return DSF_FAIL(DSF_ENOMEM, "%s: hash state", s->path);
    }
    if (s->block->rows > 0) return DSF_OK;
    XXH3_state_t *hash = s->block->hash;
    *s->block = (struct dsf_dump_block){.hash = hash, .min = INFINITY, .max = -INFINITY};
    (void)XXH3_64bits_reset(hash);
    return DSF_OK;
}

dsf_status dsf_series_count(dsf_series *s, const void *row)
{
    DSF_TRY(start(s));
    struct dsf_dump_block *b = s->block;
    (void)XXH3_64bits_update(b->hash, row, (size_t)dsf_series_row_bytes(s));
    for (int64_t i = 0; i < s->plan.width; i++) {
        double v = element(row, s->plan.kind, i);
        b->count++;
        if (isnan(v)) {
            b->nan++;
        } else if (isinf(v)) {
            b->inf++;
        } else {
            b->min = v < b->min ? v : b->min;
            b->max = v > b->max ? v : b->max;
            b->sum += v;
            b->squares += v * v;
        }
    }
    if (++b->rows == DSF_DUMP_STATS_ROWS) return dsf_series_count_end(s);
    return DSF_OK;
}

dsf_status dsf_series_count_end(dsf_series *s)
{
    struct dsf_dump_block *b = s->block;
    if (!b || b->rows == 0) return DSF_OK;
    if (s->n_stats == s->stats_cap) {
        int64_t cap = s->stats_cap ? 2 * s->stats_cap : 16;
        DSF_TRY(dsf_mem_grow(&s->stat, (size_t)cap, sizeof *s->stat));
        s->stats_cap = cap;
    }
    uint64_t finite = b->count - b->nan - b->inf;
    s->stat[s->n_stats++] = (dsf_dump_stat){
        .count = b->count,
        .nan = b->nan,
        .inf = b->inf,
        .min = finite ? b->min : 0.0,
        .max = finite ? b->max : 0.0,
        .mean = finite ? b->sum / (double)finite : 0.0,
        .rms = finite ? sqrt(b->squares / (double)finite) : 0.0,
        .hash = XXH3_64bits_digest(b->hash),
    };
    b->rows = 0;
    return DSF_OK;
}

void dsf_series_free(dsf_series *s)
{
    if (s->block) (void)XXH3_freeState(s->block->hash);
    dsf_mem_free(s->block);
    dsf_mem_free(s->stat);
    dsf_mem_free(s->pending);
    dsf_mem_free(s->scratch);
}
