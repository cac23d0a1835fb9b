#include "verify/dump/writer.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "verify/dump/rows.h"
#include "verify/dump/series.h"

/* COMMIT_BYTES: what a killed run may lose of taps that go on, and what waits in memory. Compressed
 * chunks wait until they are whole, or for WAITING_BYTES. A value of WRITE_BYTES is written at
 * once, from a buffer that all taps share. All are rules on the data, not on the clock, so that the
 * same run gives the same bytes. */
enum { COMMIT_BYTES = 8 << 20, WAITING_BYTES = 64 << 20, WRITE_BYTES = 64 << 10 };

struct dsf_dump {
    char path[4096], part[4096];
    hid_t file;
    dsf_h5_out out;
    dsf_dump_geometry geometry;
    dsf_dump_filter filter;
    dsf_labels labels;
    dsf_rows rows;
    dsf_series *series;
    int n_series, series_cap;
    int64_t n_tokens, tokens_max, tokens_written;
    int64_t prompt_last;           /* the last position of the prompt that the filter wants */
    int32_t *ids;                  /* [n_tokens] */
    int64_t waiting, fresh, bytes; /* in memory; since the last commit; taken in all */
    int32_t *order, *label;        /* row order and labels of one value, scratch */
    int64_t order_cap;
    uint8_t *spare; /* a buffer of rows that no tap uses now */
    size_t spare_cap;
    bool stats, compress, oneshot;
    dsf_status broken;
    char why[512];
};

/* Keeps the first failure: HDF5's state behind it is not to be relied on. */
static dsf_status fail(dsf_dump *d, dsf_status st)
{
    if (d->broken == DSF_OK) {
        d->broken = st;
        (void)snprintf(d->why, sizeof d->why, "%s", dsf_error_message());
    }
    return st;
}

static dsf_status refuse(const dsf_dump *d) { return DSF_FAIL(d->broken, "%s", d->why); }

static dsf_status check_disk(const dsf_dump *d)
{
    if (!d->out.error) return DSF_OK;
    return DSF_FAIL(DSF_EIO,
                    "%s: %s after %lld bytes of tensors; the taps finished before are kept "
                    "(dsf dump --recover)",
                    d->part, strerror(d->out.error), (long long)d->bytes);
}

static dsf_status write_lists(dsf_dump *d)
{
    for (int i = 0; i < d->labels.n; i++) {
        dsf_label_list *l = &d->labels.list[i];
        if (l->n == l->written) continue;
        DSF_TRY(dsf_series_axis(
            d->file, d->part, l->path,
            (dsf_axis_rows){l->label + l->written, l->written, l->n - l->written, false}));
        l->written = l->n;
    }
    if (d->n_tokens > d->tokens_written)
        DSF_TRY(dsf_series_axis(d->file, d->part, "/token_ids",
                                (dsf_axis_rows){d->ids + d->tokens_written, d->tokens_written,
                                                d->n_tokens - d->tokens_written, false}));
    d->tokens_written = d->n_tokens;
    return DSF_OK;
}

/* The buffer of a tap of which nothing waits serves the others. */
static void give_back(dsf_dump *d, dsf_series *s)
{
    if (s->rows > s->written || s->pending_cap < WRITE_BYTES) return;
    if (s->pending_cap > d->spare_cap) {
        dsf_mem_free(d->spare);
        d->spare = s->pending;
        d->spare_cap = s->pending_cap;
    } else {
        dsf_mem_free(s->pending);
    }
    s->pending = NULL;
    s->pending_cap = 0;
}

static int64_t waiting_bytes(const dsf_series *s)
{
    return (s->rows - s->written) * dsf_series_row_bytes(s);
}

/* whole: only the chunks that are complete. */
static dsf_status write_series(dsf_dump *d, dsf_series *s, bool whole)
{
    d->waiting -= waiting_bytes(s);
    DSF_TRY(dsf_series_write(s, d->file, d->part, &d->labels, whole));
    d->waiting += waiting_bytes(s);
    give_back(d, s);
    return DSF_OK;
}

static dsf_status write_rows(dsf_dump *d, bool whole)
{
    DSF_TRY(write_lists(d));
    for (int i = 0; i < d->n_series; i++) DSF_TRY(write_series(d, &d->series[i], whole));
    d->fresh = 0;
    if (H5Fflush(d->file, H5F_SCOPE_GLOBAL) < 0) return dsf_h5_fail(DSF_EIO, d->part, "flush");
    return DSF_OK;
}

/* What HDF5 made of a failed write comes second to the cause. */
static dsf_status settle_status(dsf_dump *d, dsf_status st)
{
    if (d->out.error) st = check_disk(d);
    return st == DSF_OK ? st : fail(d, st);
}

static dsf_status flush(dsf_dump *d, bool whole)
{
    if (d->broken != DSF_OK) return refuse(d);
    return settle_status(d, write_rows(d, whole));
}

dsf_status dsf_dump_flush(dsf_dump *d) { return flush(d, false); }

static dsf_label_class class_of(const dsf_dump *d, dsf_tap tap, bool oneshot, int *ratio)
{
    *ratio = 0;
    switch (dsf_taps[tap.id].rows) {
    case DSF_ROWS_ENTRY:
        *ratio =
            tap.layer >= 0 && tap.layer < DSF_DUMP_MAX_LAYERS ? d->geometry.ratio[tap.layer] : 0;
        return *ratio == 1 ? DSF_LABEL_ENTRY_R1 : DSF_LABEL_ENTRY_R2;
    case DSF_ROWS_DRAFT:
        return DSF_LABEL_DRAFT;
    case DSF_ROWS_LOGITS:
        return tap.id == DSF_TAP_LOGITS && !oneshot ? DSF_LABEL_LOGIT : DSF_LABEL_POSITION;
    default: /* stages are layers whose rows are the draft block's */
        return tap.layer >= d->geometry.n_layers && dsf_taps[tap.id].scope == DSF_SCOPE_LAYER
                   ? DSF_LABEL_DRAFT
                   : DSF_LABEL_POSITION;
    }
}

/* The row's shape: the schema's where the geometry tells it and the sizes agree, else the tensor's.
 */
static dsf_status shape_row(const dsf_dump *d, dsf_series *s, const dsf_tensor *t)
{
    bool pool = s->tap.id == DSF_TAP_ATTN_POOL, topk = s->tap.id == DSF_TAP_ATTN_TOPK;
    bool entries = pool || topk || s->tap.id == DSF_TAP_ATTN_INDEX_SCORES;
    int n = dsf_dump_geometry_row(&d->geometry, s->tap, d->tokens_max, s->dim);
    int64_t width = 1;
    for (int i = 0; i < n; i++) width *= s->dim[i];
    if (entries && n < 0)
        return DSF_FAIL(DSF_EINVAL, "%s: the config has no compress ratio for this layer", s->path);
    if (!entries && (n < 0 || width != dsf_widen_width(t))) {
        n = t->rank - 1;
        width = dsf_widen_width(t);
        for (int i = 0; i < n; i++) s->dim[i] = t->dim[1 + i];
    }
    s->row_rank = n;
    s->plan =
        (dsf_widen_plan){.kind = dsf_dump_kind_of(s->tap.id), .width = width, .trim = entries};
    if (pool) s->plan.block = d->geometry.pool_block;
    if (pool && s->plan.block <= 0)
        return DSF_FAIL(DSF_EINVAL, "%s: the config has no candidate_block_size", s->path);
    s->plan.fill = topk ? -1.0 : -INFINITY;
    s->compress = d->compress;
    s->chunk_rows = dsf_series_chunk_rows(s, d->tokens_max);
    return DSF_OK;
}

static dsf_status add_series(dsf_dump *d, const dsf_tap_value *v, bool oneshot)
{
    if (d->n_series == d->series_cap) {
        int cap = d->series_cap ? 2 * d->series_cap : 256;
        DSF_TRY(dsf_mem_grow(&d->series, (size_t)cap, sizeof *d->series));
        d->series_cap = cap;
    }
    dsf_series *s = &d->series[d->n_series];
    *s = (dsf_series){.tap = v->tap,
                      .oneshot = oneshot,
                      .source = dsf_taps[v->tap.id].source,
                      .last = -1,
                      .list = -1,
                      .list_written = -1};
    char path[64];
    dsf_tap_path(path, v->tap, d->geometry.n_layers);
    (void)snprintf(s->path, sizeof s->path, "%s%s%s", d->stats ? "/stats/" : "/", path,
                   oneshot ? "_oneshot" : "");
    s->labels = class_of(d, v->tap, oneshot, &s->ratio);
    DSF_TRY(shape_row(d, s, v->value));
    d->n_series++;
    return DSF_OK;
}

static dsf_status find_series(dsf_dump *d, const dsf_tap_value *v, dsf_series **out)
{
    bool oneshot = v->tap.id == DSF_TAP_LOGITS && d->oneshot;
    *out = NULL;
    for (int i = 0; i < d->n_series && !*out; i++) {
        dsf_series *s = &d->series[i];
        if (s->tap.id == v->tap.id && s->tap.layer == v->tap.layer && s->oneshot == oneshot)
            *out = s;
    }
    if (!*out) {
        DSF_TRY(add_series(d, v, oneshot));
        *out = &d->series[d->n_series - 1];
    }
    dsf_series *s = *out;
    int64_t width = dsf_widen_width(v->value);
    if (!s->plan.trim && width != s->plan.width)
        return DSF_FAIL(DSF_EINVAL, "%s: a row of %lld elements after rows of %lld", s->path,
                        (long long)width, (long long)s->plan.width);
    return DSF_OK;
}

/* Rows to keep, as indices in label order; their number in *n. Insertion sort: rows come sorted. */
static dsf_status pick_rows(dsf_dump *d, const dsf_series *s, const dsf_tap_value *v, int64_t *n)
{
    if (v->n > d->order_cap) {
        DSF_TRY(dsf_mem_grow(&d->order, (size_t)v->n, sizeof *d->order));
        DSF_TRY(dsf_mem_grow(&d->label, (size_t)v->n, sizeof *d->label));
        d->order_cap = v->n;
    }
    bool draft = s->labels == DSF_LABEL_DRAFT;
    *n = 0;
    for (int64_t i = 0; i < v->n; i++) {
        if (v->slot && v->slot[i] != d->filter.slot) continue;
        if (!draft && !dsf_dump_filter_row(&d->filter, v->label[i], s->ratio)) continue;
        int64_t at = (*n)++;
        while (!draft && at > 0 && v->label[d->order[at - 1]] > v->label[i]) {
            d->order[at] = d->order[at - 1];
            at--;
        }
        d->order[at] = (int32_t)i;
    }
    return DSF_OK;
}

static dsf_status check_label(const dsf_dump *d, const dsf_series *s, int32_t label)
{
    if (label < 0) return DSF_FAIL(DSF_EINVAL, "%s: label %d", s->path, (int)label);
    if (s->labels == DSF_LABEL_DRAFT) return DSF_OK;
    if (label <= s->last)
        return DSF_FAIL(DSF_EINVAL, "%s: row %d after row %lld: rows come in ascending order",
                        s->path, (int)label, (long long)s->last);
    int64_t last = s->ratio ? (int64_t)label * s->ratio + s->ratio - 1 : label;
    if (last >= d->tokens_max)
        return DSF_FAIL(DSF_EINVAL, "%s: row %d lies beyond the %lld tokens this dump was made for",
                        s->path, (int)label, (long long)d->tokens_max);
    return DSF_OK;
}

/* Room for rows behind those that wait. */
static dsf_status make_room(dsf_dump *d, dsf_series *s, size_t used, size_t more)
{
    if (used + more <= s->pending_cap) return DSF_OK;
    if (!s->pending && used + more <= d->spare_cap) {
        s->pending = d->spare;
        s->pending_cap = d->spare_cap;
        d->spare = NULL;
        d->spare_cap = 0;
        return DSF_OK;
    }
    size_t cap = s->pending_cap ? s->pending_cap : more;
    while (cap < used + more) cap *= 2;
    DSF_TRY(dsf_mem_grow(&s->pending, cap, 1));
    s->pending_cap = cap;
    return DSF_OK;
}

static dsf_status keep_rows(dsf_dump *d, dsf_series *s, dsf_rows_of rows)
{
    size_t bytes = (size_t)(rows.n * dsf_series_row_bytes(s)), used = (size_t)waiting_bytes(s);
    DSF_TRY(make_room(d, s, used, bytes));
    DSF_TRY(dsf_rows_widen(&d->rows, &s->plan, rows, s->pending + used));
    s->rows += rows.n;
    d->waiting += (int64_t)bytes;
    d->fresh += (int64_t)bytes;
    return DSF_OK;
}

static dsf_status count_rows(dsf_dump *d, dsf_series *s, dsf_rows_of rows)
{
    d->fresh += (rows.n / DSF_DUMP_STATS_ROWS + 1) * (int64_t)sizeof(dsf_dump_stat);
    return dsf_rows_count(&d->rows, s, rows);
}

static dsf_status take_rows(dsf_dump *d, dsf_series *s, const dsf_tap_value *v, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        d->label[i] = v->label[d->order[i]];
        DSF_TRY(check_label(d, s, d->label[i]));
        s->last = d->label[i];
    }
    DSF_TRY(dsf_labels_append(&d->labels, s->labels, &s->list, s->rows, d->label, n));
    d->bytes += n * dsf_series_row_bytes(s);
    const dsf_rows_of rows = {v->value, d->order, n};
    return d->stats ? count_rows(d, s, rows) : keep_rows(d, s, rows);
}

/* Whether these rows are the last of the prompt: what decoding adds comes in small pieces. */
static bool completes(const dsf_dump *d, const dsf_series *s, int64_t before)
{
    int64_t last = d->prompt_last;
    if (s->ratio) last = (last + 1) / s->ratio - 1;
    return before < last && s->last >= last;
}

static dsf_status take_value(dsf_dump *d, const dsf_tap_value *v)
{
    const dsf_tensor *t = v->value;
    if (t->rank < 1 || t->rank > DSF_MAX_RANK || t->dim[0] != v->n || v->n > INT32_MAX)
        return DSF_FAIL(DSF_EINVAL, "tap %s: tensor of rank %d with %lld rows, %lld labels",
                        dsf_taps[v->tap.id].path, t->rank, (long long)t->dim[0], (long long)v->n);
    dsf_series *s;
    int64_t n = 0;
    DSF_TRY(find_series(d, v, &s));
    assert(s);
    DSF_TRY(pick_rows(d, s, v, &n));
    if (n == 0) return DSF_OK;
    int64_t before = s->last;
    DSF_TRY(take_rows(d, s, v, n));
    bool complete = completes(d, s, before);
    if (complete && d->stats && d->tokens_max == d->n_tokens) /* else its last block goes on */
        DSF_TRY(dsf_series_count_end(s));
    if (complete || d->waiting >= WAITING_BYTES) return flush(d, false);
    if (d->fresh >= COMMIT_BYTES) return flush(d, d->compress);
    if (d->stats || waiting_bytes(s) < WRITE_BYTES) return DSF_OK;
    DSF_TRY(write_lists(d));
    return settle_status(d, write_series(d, s, d->compress));
}

static bool sink_wants(void *ud, dsf_tap tap)
{
    const dsf_dump *d = ud;
    return dsf_dump_filter_wants(&d->filter, tap, d->geometry.n_layers);
}

static dsf_status sink_value(void *ud, const dsf_tap_value *v)
{
    dsf_dump *d = ud;
    if (d->broken != DSF_OK) return refuse(d);
    if (!sink_wants(ud, v->tap) || v->n == 0) return DSF_OK;
    dsf_status st = take_value(d, v);
    return st == DSF_OK ? st : fail(d, st);
}

dsf_tap_sink dsf_dump_sink(dsf_dump *d) { return (dsf_tap_sink){sink_value, d, sink_wants}; }

void dsf_dump_logits_oneshot(dsf_dump *d, bool oneshot) { d->oneshot = oneshot; }
int64_t dsf_dump_bytes(const dsf_dump *d) { return d->bytes; }

static dsf_status take_tokens(dsf_dump *d, const int32_t *ids, int64_t n)
{
    if (n < 0 || n > d->tokens_max - d->n_tokens)
        return DSF_FAIL(DSF_EINVAL, "%s: %lld tokens more than the %lld it was made for", d->path,
                        (long long)n, (long long)d->tokens_max);
    int list = -1;
    for (int64_t i = 0; i < n; i++) {
        int32_t position = (int32_t)(d->n_tokens + i);
        if (d->labels.n > 0) list = 0; /* /positions is the first list */
        DSF_TRY(dsf_labels_append(&d->labels, DSF_LABEL_POSITION, &list, position, &position, 1));
    }
    memcpy(d->ids + d->n_tokens, ids, (size_t)n * sizeof *ids);
    d->n_tokens += n;
    return DSF_OK;
}

dsf_status dsf_dump_add_tokens(dsf_dump *d, const int32_t *ids, int64_t n)
{
    if (d->broken != DSF_OK) return refuse(d);
    dsf_status st = take_tokens(d, ids, n);
    return st == DSF_OK ? st : fail(d, st);
}

dsf_status dsf_dump_note_stop(dsf_dump *d, const char *words)
{
    if (d->broken != DSF_OK) return refuse(d);
    dsf_status st = dsf_h5_put_str(d->file, d->part, "stopped", words);
    return st == DSF_OK ? st : fail(d, st);
}

static dsf_status put_attributes(dsf_dump *d, const dsf_dump_meta *m)
{
    const struct {
        const char *name, *text;
    } attribute[] = {
        {"schema", DSF_DUMP_SCHEMA},
        {"producer", m->producer},
        {"model", m->model},
        {"config_json", m->config_json},
        {"notes", m->notes},
        {"mode", m->mode},
        {"backend", m->backend},
        {"variants", m->variants},
        {"checkpoint_digest", m->checkpoint_digest},
        {"plan_digest", m->plan_digest},
    };
    for (unsigned i = 0; i < sizeof attribute / sizeof *attribute; i++)
        if (attribute[i].text)
            DSF_TRY(dsf_h5_put_str(d->file, d->part, attribute[i].name, attribute[i].text));
    return dsf_h5_put_int(d->file, d->part, "prompt_length",
                          m->prompt_length ? m->prompt_length : m->n_tokens);
}

static dsf_status check_meta(const dsf_dump_meta *m)
{
    static const char *const modes[] = {"exact", "cone", "replay", "injected"};
    bool known = false;
    for (int i = 0; i < 4 && m->mode; i++) known = known || strcmp(m->mode, modes[i]) == 0;
    if (!known)
        return DSF_FAIL(DSF_EINVAL, "mode %s: allowed are exact, cone, replay, injected",
                        m->mode ? m->mode : "(none)");
    if (!m->config_json) return DSF_FAIL(DSF_EINVAL, "a dump needs the model's config.json");
    if (m->n_tokens < 1 || m->n_decode < 0 || m->n_tokens > INT32_MAX - m->n_decode)
        return DSF_FAIL(DSF_EINVAL, "%lld prompt tokens and %lld to decode: 1..%d together",
                        (long long)m->n_tokens, (long long)m->n_decode, INT32_MAX);
    if (m->prompt_length < 0 || m->prompt_length > m->n_tokens)
        return DSF_FAIL(DSF_EINVAL, "a prompt of %lld of %lld tokens", (long long)m->prompt_length,
                        (long long)m->n_tokens);
    return DSF_OK;
}

static dsf_status start(dsf_dump *d, const dsf_dump_meta *m)
{
    d->tokens_max = m->n_tokens + m->n_decode;
    d->filter = m->filter;
    d->stats = m->stats;
    d->out.sync_bytes = m->sync_bytes;
    d->compress = m->compress && !m->stats;
    d->prompt_last = m->n_tokens - 1;
    if (m->filter.by_position && m->filter.position_to < d->prompt_last)
        d->prompt_last = m->filter.position_to;
    DSF_TRY(dsf_dump_geometry_parse(&d->geometry, "config_json", m->config_json,
                                    strlen(m->config_json)));
    DSF_TRY(dsf_rows_open(&d->rows, m->pool));
    DSF_TRY(dsf_mem_new(&d->ids, (size_t)d->tokens_max, sizeof *d->ids));
    DSF_TRY(dsf_h5_create(&d->file, d->part, &d->out));
    DSF_TRY(put_attributes(d, m));
    DSF_TRY(take_tokens(d, m->token_ids, m->n_tokens));
    if (m->image_mask)
        DSF_TRY(dsf_series_axis(d->file, d->part, "/image_mask",
                                (dsf_axis_rows){m->image_mask, 0, m->n_tokens, true}));
    return dsf_dump_flush(d);
}

dsf_status dsf_dump_create(dsf_dump **out, const char *path, const dsf_dump_meta *meta)
{
    DSF_TRY(check_meta(meta));
    dsf_dump *d = NULL;
    DSF_TRY(dsf_mem_new(&d, 1, sizeof *d));
    d->file = -1;
    dsf_status st = DSF_OK;
    int n = snprintf(d->path, sizeof d->path, "%s", path);
    if (n < 0 || n + 6 > (int)sizeof d->path)
        st = DSF_FAIL(DSF_EINVAL, "path of %d bytes, at most %zu", n, sizeof d->path - 6);
    (void)snprintf(d->part, sizeof d->part, "%.4090s.part", path);
    if (st == DSF_OK) st = start(d, meta);
    if (st == DSF_OK) {
        *out = d;
        return st;
    }
    char why[sizeof d->why]; /* closing may raise again */
    (void)snprintf(why, sizeof why, "%s", dsf_error_message());
    dsf_dump_abandon(d);
    return DSF_FAIL(st, "%s", why);
}

static void release(dsf_dump *d)
{
    for (int i = 0; i < d->n_series; i++) dsf_series_free(&d->series[i]);
    dsf_mem_free(d->series);
    dsf_labels_free(&d->labels);
    dsf_rows_close(&d->rows);
    dsf_mem_free(d->ids);
    dsf_mem_free(d->order);
    dsf_mem_free(d->label);
    dsf_mem_free(d->spare);
    dsf_mem_free(d);
}

static dsf_status close_file(dsf_dump *d)
{
    if (d->file < 0) return DSF_OK;
    herr_t closed = H5Fclose(d->file);
    d->file = -1;
    if (d->out.error) return check_disk(d);
    return closed < 0 ? dsf_h5_fail(DSF_EIO, d->part, "close") : DSF_OK;
}

static void remove_part(const char *part)
{
    char log[4200];
    (void)snprintf(log, sizeof log, "%s.log", part);
    (void)unlink(part);
    (void)unlink(log);
}

void dsf_dump_abandon(dsf_dump *d)
{
    if (!d) return;
    bool made = d->file >= 0;
    (void)close_file(d);
    if (made && (!d->out.error || d->bytes == 0)) remove_part(d->part);
    release(d);
}

/* Labels of exactly the rows there are, and the entry axis cut to the tokens there are. */
static dsf_status settle(dsf_dump *d)
{
    for (int i = 0; i < d->n_series; i++) {
        dsf_series *s = &d->series[i];
        if (d->stats) DSF_TRY(dsf_series_count_end(s));
        if (s->list >= 0) DSF_TRY(dsf_labels_trim(&d->labels, &s->list, s->rows));
    }
    DSF_TRY(dsf_dump_flush(d));
    for (int i = 0; i < d->n_series; i++) {
        dsf_series *s = &d->series[i];
        if (!s->plan.trim) continue;
        int64_t dim[3];
        (void)dsf_dump_geometry_row(&d->geometry, s->tap, d->n_tokens, dim);
        DSF_TRY(dsf_series_narrow(s, d->file, d->part, dim[0]));
    }
    return DSF_OK;
}

dsf_status dsf_dump_finish(dsf_dump *d)
{
    dsf_status st = d->broken == DSF_OK ? settle(d) : refuse(d);
    char why[sizeof d->why];
    (void)snprintf(why, sizeof why, "%s", dsf_error_message());
    dsf_status end = close_file(d); /* in any case; the first failure is the one that counts */
    if (st == DSF_OK && end != DSF_OK) {
        st = end;
        (void)snprintf(why, sizeof why, "%s", dsf_error_message());
    }
    if (st == DSF_OK && rename(d->part, d->path) != 0) {
        st = DSF_EIO;
        (void)DSF_FAIL(st, "%s: cannot be named %s: %s", d->part, d->path, strerror(errno));
        (void)snprintf(why, sizeof why, "%s", dsf_error_message());
    }
    if (st != DSF_OK && (st != DSF_EIO || d->bytes == 0)) remove_part(d->part);
    release(d);
    return st == DSF_OK ? st : DSF_FAIL(st, "%s", why);
}
