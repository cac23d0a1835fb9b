#include "verify/dump/blocks.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/num.h"

/* Values of another producer may be finer than the type they stand for. */
static void round_values(float *x, int64_t n, dsf_tap_source source)
{
    if (source != DSF_SRC_BF16 && source != DSF_SRC_E4M3 && source != DSF_SRC_E2M1) return;
    for (int64_t i = 0; i < n; i++) /* a value that is bf16 stays, NaNs with all their bits */
        if (dsf_f32_bits(x[i]) & 0xffff) x[i] = dsf_bf16_to_f32(dsf_f32_to_bf16(x[i]));
}

static dsf_status read_labels(dsf_dump_file *f, const dsf_dump_entry *e, dsf_dump_blocks *out)
{
    DSF_TRY(dsf_dump_read_axis(f, e->rows, &out->label, &out->rows));
    int64_t need = e->stats ? (out->rows + out->block - 1) / out->block : out->rows;
    const dsf_dump_info *info = dsf_dump_info_of(f);
    if (info->partial ? need >= e->dim[0] : need == e->dim[0]) {
        int64_t held = e->stats ? e->dim[0] * out->block : e->dim[0];
        return dsf_dump_check_labels(f, e, out->label, held < out->rows ? held : out->rows);
    }
    return DSF_FAIL(DSF_ECORRUPT, "%s: /%s: %lld %s, its labels %s want %lld", info->path, e->path,
                    (long long)e->dim[0], e->stats ? "records" : "rows", e->rows, (long long)need);
}

static dsf_status read_records(dsf_dump_file *f, const dsf_dump_entry *e, dsf_dump_blocks *out)
{
    out->block = e->row_block;
    out->width = e->width;
    if (out->block <= 0 || out->block > INT32_MAX)
        return DSF_FAIL(DSF_ECORRUPT, "%s: /%s: row_block is %lld, allowed are 1 to %d",
                        dsf_dump_info_of(f)->path, e->path, (long long)out->block, INT32_MAX);
    DSF_TRY(read_labels(f, e, out));
    return dsf_dump_read_stats(f, e->path, &out->stat, &out->n);
}

static dsf_status count_block(dsf_dump_file *f, const dsf_dump_entry *e, dsf_dump_blocks *out,
                              dsf_dump_block *b)
{
    int64_t from = out->n * out->block, n = e->dim[0] - from;
    void *data = NULL;
    if (n > out->block) n = out->block;
    DSF_TRY(dsf_dump_read_stored(f, e->path, from, n, &data));
    if (data && e->kind == DSF_DUMP_F32) round_values(data, n * out->width, out->source);
    const uint8_t *row = data;
    int64_t bytes = out->width * dsf_dump_kind_bytes(e->kind);
    for (int64_t i = 0; i < n && data; i++) dsf_stats_add(b, e->kind, row + i * bytes, out->width);
    out->stat[out->n++] = dsf_stats_take(b);
    dsf_mem_free(data);
    return DSF_OK;
}

static dsf_status count_rows(dsf_dump_file *f, const dsf_dump_entry *e, dsf_dump_blocks *out)
{
    dsf_dump_block *b = NULL;
    dsf_status st = DSF_OK;
    out->block = DSF_DUMP_STATS_ROWS;
    out->computed = true;
    out->width = 1;
    for (int i = 1; i < e->rank; i++) out->width *= e->dim[i];
    DSF_TRY(read_labels(f, e, out));
    out->rows = e->dim[0];
    int64_t n = (e->dim[0] + out->block - 1) / out->block;
    DSF_TRY(dsf_mem_new(&out->stat, (size_t)n, sizeof *out->stat));
    DSF_TRY(dsf_stats_open(&b));
    while (out->n < n && st == DSF_OK) st = count_block(f, e, out, b);
    dsf_stats_close(b);
    return st;
}

dsf_status dsf_dump_blocks_read(dsf_dump_file *f, const char *path, dsf_dump_blocks *out,
                                bool *found)
{
    char stats[112];
    if (*path == '/') path++;
    (void)snprintf(stats, sizeof stats, "stats/%.96s", path);
    const dsf_dump_entry *e = dsf_dump_find(f, stats), *rows = dsf_dump_find(f, path);
    if (!e || !e->stats) e = rows;
    *out = (dsf_dump_blocks){.n = 0};
    *found = e != NULL;
    if (!e) return DSF_OK;
    out->source = e->has_source ? e->source : e->kind == DSF_DUMP_F32 ? DSF_SRC_F32 : DSF_SRC_INT;
    dsf_status st = e->stats ? read_records(f, e, out) : count_rows(f, e, out);
    if (st != DSF_OK) dsf_dump_blocks_free(out);
    return st;
}

void dsf_dump_blocks_free(dsf_dump_blocks *b)
{
    dsf_mem_free(b->stat);
    dsf_mem_free(b->label);
    *b = (dsf_dump_blocks){.n = 0};
}
