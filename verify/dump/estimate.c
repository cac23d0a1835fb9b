/* How large a dump would be: the same shapes that the writer uses, times the rows it would take. */
#include <string.h>

#include "verify/dump/writer.h"

static int64_t positions_kept(const dsf_dump_filter *f, int64_t n)
{
    if (!f->by_position) return n;
    int64_t from = f->position_from < 0 ? 0 : f->position_from;
    int64_t to = f->position_to < n - 1 ? f->position_to : n - 1;
    return to >= from ? to - from + 1 : 0;
}

static int64_t rows_of(const dsf_dump_geometry *g, const dsf_dump_meta *m, dsf_tap tap)
{
    int64_t n = m->n_tokens + m->n_decode, kept = positions_kept(&m->filter, n);
    switch (dsf_taps[tap.id].rows) {
    case DSF_ROWS_ENTRY:
        return g->ratio[tap.layer] ? kept / g->ratio[tap.layer] + 1 : 0;
    case DSF_ROWS_DRAFT:
        return g->draft_rows;
    default:
        return tap.layer >= g->n_layers && dsf_taps[tap.id].scope == DSF_SCOPE_LAYER ? g->draft_rows
                                                                                     : kept;
    }
}

/* double: no product of shapes and rows overflows it, and the bound needs no last digit. */
static double bytes_of(const dsf_dump_geometry *g, const dsf_dump_meta *m, dsf_tap tap)
{
    if (!dsf_dump_geometry_has(g, tap) || !dsf_dump_filter_wants(&m->filter, tap, g->n_layers))
        return 0.0;
    int64_t dim[3];
    int n = dsf_dump_geometry_row(g, tap, m->n_tokens + m->n_decode, dim);
    double width = n < 0 ? 0.0 : 1.0, rows = (double)rows_of(g, m, tap);
    for (int i = 0; i < n; i++) width *= (double)dim[i];
    if (m->stats) return (rows / DSF_DUMP_STATS_ROWS + 1.0) * 64.0;
    return rows * width * (double)dsf_dump_kind_bytes(dsf_dump_kind_of(tap.id));
}

dsf_status dsf_dump_estimate(const dsf_dump_meta *m, int64_t *bytes)
{
    dsf_dump_geometry g;
    DSF_TRY(dsf_dump_geometry_parse(&g, "config_json", m->config_json, strlen(m->config_json)));
    double sum = 8.0 * (double)(m->n_tokens + m->n_decode); /* ids and positions */
    for (int id = 0; id < DSF_N_TAPS; id++) {
        dsf_tap tap = {(dsf_tap_id)id, -1};
        int from = 0, to = 0;
        if (dsf_taps[id].scope == DSF_SCOPE_LAYER) to = g.n_layers + g.n_stages;
        if (dsf_taps[id].scope == DSF_SCOPE_DRAFT) {
            from = g.n_layers;
            to = g.n_layers + g.n_stages;
        }
        if (dsf_taps[id].scope == DSF_SCOPE_GLOBAL) sum += bytes_of(&g, m, tap);
        for (tap.layer = from; tap.layer < to; tap.layer++) sum += bytes_of(&g, m, tap);
    }
    if (sum > 9e18)
        return DSF_FAIL(DSF_EINVAL, "%lld tokens: the dump would exceed 2^63 bytes",
                        (long long)(m->n_tokens + m->n_decode));
    *bytes = (int64_t)sum;
    return DSF_OK;
}
