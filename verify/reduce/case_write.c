/* Builds the bytes of a case. */
#include <inttypes.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "ckpt/digest.h"
#include "config.h"
#include "verify/reduce/case.h"
#include "verify/reduce/pack.h"

enum { MOST_DEFLATE = 16 }; /* what is more than so many times the limit is not even tried */

typedef struct {
    const dsf_case_options *o;
    dsf_case_report *r;
    dsf_loaded load;
    dsf_golden golden;
    dsf_scope scope;
    dsf_pack pack;
} builder;

/* ---- taps ---- */

static dsf_status put_labels(builder *b, const char *path, const int32_t *label, int64_t n)
{
    const dsf_pack_array a = {DSF_DUMP_I32, 1, {n}, label};
    return dsf_pack_has(&b->pack, path) ? DSF_OK : dsf_pack_put(&b->pack, path, &a);
}

/* Rows of the array that belong to the case, moved to the front. */
static void keep_rows(dsf_dump_array *a, const dsf_scope *s)
{
    int64_t kept = 0, at = 0;
    for (int64_t i = 0; i < a->n; i++) {
        while (at < s->n && s->label[at] < a->label[i]) at++;
        if (at == s->n || s->label[at] != a->label[i]) continue;
        a->label[kept] = a->label[i];
        size_t w = (size_t)a->width;
        if (a->f) memmove(a->f + (size_t)kept * w, a->f + (size_t)i * w, w * sizeof *a->f);
        if (a->i) memmove(a->i + (size_t)kept * w, a->i + (size_t)i * w, w * sizeof *a->i);
        kept++;
    }
    a->n = a->dim[0] = kept;
}

/* Integers in the type that the schema stores. */
static dsf_status narrow(const dsf_dump_array *a, dsf_dump_kind kind, void **out)
{
    int64_t n = a->n * a->width;
    DSF_TRY(dsf_mem_new(out, (size_t)n + 1, (size_t)dsf_dump_kind_bytes(kind)));
    for (int64_t k = 0; k < n; k++) {
        if (kind == DSF_DUMP_I32) ((int32_t *)*out)[k] = (int32_t)a->i[k];
        if (kind == DSF_DUMP_I64) ((int64_t *)*out)[k] = a->i[k];
        if (kind == DSF_DUMP_U8) ((uint8_t *)*out)[k] = (uint8_t)a->i[k];
    }
    return DSF_OK;
}

static dsf_status put_array(builder *b, const dsf_dump_entry *e, const dsf_dump_array *a,
                            const char *rows)
{
    void *ints = NULL;
    dsf_pack_array p = {e->kind, a->rank, {0}, a->f};
    memcpy(p.dim, a->dim, sizeof p.dim);
    if (!a->f) DSF_TRY(narrow(a, e->kind, &ints));
    if (ints) p.data = ints;
    dsf_status st = put_labels(b, rows, a->label, a->n);
    if (st == DSF_OK) st = dsf_pack_put(&b->pack, e->path, &p);
    if (st == DSF_OK) st = dsf_pack_put_str(&b->pack, e->path, "rows", rows);
    if (st == DSF_OK && e->has_source)
        st = dsf_pack_put_str(&b->pack, e->path, "source_dtype", dsf_dump_source_name(e->source));
    dsf_mem_free(ints);
    return st;
}

/* One dataset of the golden file, with the rows of the case. */
static dsf_status put_dataset(builder *b, const dsf_dump_entry *e, bool whole)
{
    dsf_dump_array a;
    if (dsf_pack_has(&b->pack, e->path)) return DSF_OK;
    DSF_TRY(dsf_dump_read(b->golden.file, e->path, &a));
    bool cut = !whole && !b->scope.all_rows;
    if (cut) keep_rows(&a, &b->scope);
    dsf_status st = put_array(b, e, &a, cut ? "/rows_case" : e->rows);
    dsf_dump_array_free(&a);
    b->r->taps++;
    return st;
}

/* The tap, and the margin that judges a choice. */
static dsf_status put_tap(builder *b, dsf_tap tap)
{
    const dsf_dump_entry *e = dsf_golden_find(&b->golden, tap);
    char margin[128];
    if (!e) return DSF_FAIL(DSF_EINVAL, "%s: a tap went missing", b->o->golden);
    DSF_TRY(put_dataset(b, e, dsf_scope_whole(tap)));
    (void)snprintf(margin, sizeof margin, "%s_margin", e->path);
    char *ids = strstr(margin, "expert_ids_margin");
    if (ids) memcpy(ids, "expert_margin", sizeof "expert_margin");
    e = dsf_dump_find(b->golden.file, margin);
    return e && e->readable ? put_dataset(b, e, false) : DSF_OK;
}

/* A position outside the case, or 0 where it has all of them: their pass is run first. */
static int32_t outside(const dsf_scope *s)
{
    int32_t free = 0;
    for (int64_t i = 0; i < s->n && s->label[i] == free; i++) free++;
    return s->all_rows ? 0 : free;
}

/* A dataset of one row that is of no use, so that what depends on it is not run. */
static dsf_status put_stop(builder *b, dsf_tap tap)
{
    const dsf_config *c = &b->load.config;
    const int32_t label = outside(&b->scope);
    dsf_pack_array a = {DSF_DUMP_F32, 2, {1, c->dim}, NULL};
    char path[64];
    float *zero = NULL;
    dsf_tap_path(path, tap, c->n_layers);
    if (dsf_pack_has(&b->pack, path)) return DSF_OK;
    if (tap.id == DSF_TAP_IN) {
        a.rank = 3;
        a.dim[1] = DSF_HC;
        a.dim[2] = c->dim;
    }
    DSF_TRY(dsf_mem_new(&zero, (size_t)(DSF_HC * c->dim), sizeof *zero));
    a.data = zero;
    dsf_status st = put_labels(b, "/rows_outside", &label, 1);
    if (st == DSF_OK) st = dsf_pack_put(&b->pack, path, &a);
    if (st == DSF_OK) st = dsf_pack_put_str(&b->pack, path, "rows", "/rows_outside");
    if (st == DSF_OK) st = dsf_pack_put_str(&b->pack, path, "source_dtype", "bf16");
    dsf_mem_free(zero);
    return st;
}

static dsf_status put_stops(builder *b)
{
    const dsf_config *c = &b->load.config;
    DSF_TRY(put_stop(b, (dsf_tap){DSF_TAP_EMBED, -1}));
    for (int l = 1; l < c->n_layers; l++) {
        char path[64]; /* the stream of a layer may be the stored `out` of the one before */
        dsf_tap_path(path, (dsf_tap){DSF_TAP_OUT, l - 1}, c->n_layers);
        bool own = false;
        for (int i = 0; i < b->scope.n_inputs; i++)
            own |= b->scope.input[i].id == DSF_TAP_IN && b->scope.input[i].layer == l;
        if (!own && dsf_pack_has(&b->pack, path)) DSF_TRY(put_stop(b, (dsf_tap){DSF_TAP_IN, l}));
    }
    return put_stop(b, (dsf_tap){DSF_TAP_FINAL_H, -1});
}

static dsf_status put_axis(builder *b, const char *name)
{
    int32_t *data = NULL;
    int64_t n = 0;
    DSF_TRY(dsf_dump_read_axis(b->golden.file, name, &data, &n));
    dsf_status st = data ? put_labels(b, name, data, n) : DSF_OK;
    dsf_mem_free(data);
    return st;
}

/* uint8 in the schema. */
static dsf_status put_mask(builder *b)
{
    const int32_t *mask = b->golden.mask;
    uint8_t *byte = NULL;
    if (!mask) return DSF_OK;
    DSF_TRY(dsf_mem_new(&byte, (size_t)b->golden.n, 1));
    for (int64_t i = 0; i < b->golden.n; i++) byte[i] = mask[i] != 0;
    const dsf_pack_array a = {DSF_DUMP_U8, 1, {b->golden.n}, byte};
    dsf_status st = dsf_pack_put(&b->pack, "/image_mask", &a);
    dsf_mem_free(byte);
    return st;
}

static dsf_status put_root(builder *b)
{
    const dsf_dump_info *i = dsf_dump_info_of(b->golden.file);
    const struct {
        const char *name, *text;
    } attr[] = {{"schema", i->schema},
                {"producer", i->producer},
                {"model", i->model},
                {"config_json", i->config_json},
                {"notes", i->notes},
                {"mode", i->mode},
                {"backend", i->backend},
                {"variants", i->variants},
                {"checkpoint_digest", i->checkpoint_digest},
                {"plan_digest", i->plan_digest}};
    for (size_t k = 0; k < sizeof attr / sizeof *attr; k++)
        if (*attr[k].text) DSF_TRY(dsf_pack_put_str(&b->pack, "/", attr[k].name, attr[k].text));
    DSF_TRY(put_axis(b, "/token_ids"));
    DSF_TRY(put_axis(b, "/positions"));
    return put_mask(b);
}

static dsf_status put_taps(builder *b)
{
    for (int i = 0; i < b->scope.n_inputs; i++) DSF_TRY(put_tap(b, b->scope.input[i]));
    for (int i = 0; i < b->scope.n_outputs; i++) DSF_TRY(put_tap(b, b->scope.output[i]));
    return put_stops(b);
}

/* ---- weights ---- */

static int64_t row_bytes(const dsf_tensor *t)
{
    int64_t row = 1;
    for (int d = 1; d < t->rank; d++) row *= t->dim[d];
    return dsf_dtype_bytes(t->dtype, row);
}

static int64_t tensor_bytes(const dsf_scope_tensor *t)
{
    return t->by_row ? t->n_rows * row_bytes(&t->entry->view) : (int64_t)t->entry->bytes;
}

static dsf_status describe_tensor(builder *b, const char *path, const dsf_scope_tensor *t,
                                  const char *digest)
{
    const dsf_tensor *v = &t->entry->view;
    char shape[96] = "";
    for (int d = 0, n = 0; d < v->rank; d++)
        n += snprintf(shape + n, sizeof shape - (size_t)n, "%s%" PRId64, d ? "," : "", v->dim[d]);
    DSF_TRY(dsf_pack_put_str(&b->pack, path, "name", t->entry->name));
    DSF_TRY(dsf_pack_put_str(&b->pack, path, "dtype", dsf_dtype_name(v->dtype)));
    DSF_TRY(dsf_pack_put_str(&b->pack, path, "shape", shape));
    return dsf_pack_put_str(&b->pack, path, "digest", digest);
}

static dsf_status put_tensor(builder *b, int64_t index, const dsf_scope_tensor *t)
{
    char path[64], rows[80], digest[33];
    int64_t row = row_bytes(&t->entry->view), n = tensor_bytes(t);
    const uint8_t *data = t->entry->view.data;
    uint8_t *some = NULL;
    (void)snprintf(path, sizeof path, "/case/weights/%04" PRId64, index);
    (void)snprintf(rows, sizeof rows, "%s_rows", path);
    if (t->by_row) {
        const dsf_pack_array list = {DSF_DUMP_I64, 1, {t->n_rows}, t->row};
        DSF_TRY(dsf_pack_put(&b->pack, rows, &list));
        DSF_TRY(dsf_mem_new(&some, (size_t)n + 1, 1));
        for (int64_t k = 0; k < t->n_rows; k++)
            memcpy(some + k * row, data + t->row[k] * row, (size_t)row);
        data = some;
    }
    const dsf_pack_array a = {DSF_DUMP_U8, 1, {n}, data};
    dsf_digest_bytes(data, (size_t)n, digest);
    dsf_status st = dsf_pack_put(&b->pack, path, &a);
    if (st == DSF_OK) st = describe_tensor(b, path, t, digest);
    dsf_mem_free(some);
    return st;
}

static int by_size(const void *a, const void *b)
{
    int64_t x = tensor_bytes(a), y = tensor_bytes(b);
    return (x < y) - (x > y);
}

/* ENOMEM with the numbers; `bytes`: of the file, or of the tensors where it was not tried. */
static dsf_status refuse(builder *b, int64_t bytes, const char *what)
{
    dsf_buf list = {.max = 1 << 12};
    qsort(b->scope.tensor, (size_t)b->scope.n_tensors, sizeof *b->scope.tensor, by_size);
    for (int64_t i = 0; i < b->scope.n_tensors && i < 6; i++)
        dsf_buf_fmt(&list, "%s%s %lld", i ? ", " : "", b->scope.tensor[i].entry->name,
                    (long long)tensor_bytes(&b->scope.tensor[i]));
    dsf_status st =
        DSF_FAIL(DSF_ENOMEM,
                 "the case has %lld bytes%s, at most %lld (--max-bytes); %lld tensors, "
                 "the largest: %s; fewer rows (--rows) or one operation (--op) need less",
                 (long long)bytes, what, (long long)b->o->max_bytes, (long long)b->scope.n_tensors,
                 list.data ? list.data : "none");
    dsf_buf_free(&list);
    return st;
}

static dsf_status put_weights(builder *b)
{
    int64_t bytes = 0;
    for (int64_t i = 0; i < b->scope.n_tensors; i++) bytes += tensor_bytes(&b->scope.tensor[i]);
    if (bytes / MOST_DEFLATE > b->o->max_bytes) return refuse(b, bytes, " of weights alone");
    for (int64_t i = 0; i < b->scope.n_tensors; i++) {
        DSF_TRY(put_tensor(b, i, &b->scope.tensor[i]));
        if (b->o->progress) b->o->progress("weights", i + 1, b->scope.n_tensors);
    }
    b->r->tensors = b->scope.n_tensors;
    return DSF_OK;
}

/* ---- the rest ---- */

static dsf_status put_file(builder *b, const char *path, const char *name, bool optional)
{
    dsf_file f;
    if (optional && !dsf_file_exists(name)) return DSF_OK;
    DSF_TRY(dsf_file_open(&f, name));
    const dsf_pack_array a = {DSF_DUMP_U8, 1, {(int64_t)f.size}, f.data};
    dsf_status st = dsf_pack_put(&b->pack, path, &a);
    dsf_file_close(&f);
    return st;
}

static dsf_status put_tokenizer(builder *b)
{
    char path[4096];
    if (b->load.config.n_engram == 0) return DSF_OK;
    DSF_TRY(dsf_file_join(path, b->o->model, "tokenizer.json"));
    DSF_TRY(put_file(b, "/case/tokenizer", path, false));
    DSF_TRY(dsf_file_join(path, b->o->model, "tokenizer_config.json"));
    return put_file(b, "/case/tokenizer_config", path, true);
}

static bool is_output(const dsf_scope *s, dsf_tap tap)
{
    for (int i = 0; i < s->n_outputs; i++)
        if (s->output[i].id == tap.id && s->output[i].layer == tap.layer) return true;
    return false;
}

/* Paths of datasets, one a line, the last first. What is compared may be given on to the next
 * operation as well: `inputs` are those that are only given. */
static dsf_status put_paths(builder *b, const char *name, const dsf_tap *tap, int n)
{
    dsf_buf lines = {.max = 1 << 16};
    bool outputs = tap == b->scope.output;
    for (int i = n - 1; i >= 0; i--) {
        const dsf_dump_entry *e = dsf_golden_find(&b->golden, tap[i]);
        if (e && outputs == is_output(&b->scope, tap[i])) dsf_buf_fmt(&lines, "%s\n", e->path);
    }
    dsf_status st = dsf_buf_status(&lines);
    if (st == DSF_OK) st = dsf_pack_put_str(&b->pack, "/case", name, lines.data ? lines.data : "");
    dsf_buf_free(&lines);
    return st;
}

static dsf_status put_words(builder *b)
{
    const dsf_scope *s = &b->scope;
    char path[4096];
    DSF_TRY(put_paths(b, "outputs", s->output, s->n_outputs));
    DSF_TRY(put_paths(b, "inputs", s->input, s->n_inputs));
    DSF_TRY(dsf_pack_put_int(&b->pack, "/case", "tensors", s->n_tensors));
    (void)snprintf(path, sizeof path, "%s", b->o->golden);
    int first = (int)s->label[0], last = (int)s->label[s->n - 1];
    int k = snprintf(b->r->rows, sizeof b->r->rows, "%d-%d", first, last);
    if (s->n != last - first + 1)
        (void)snprintf(b->r->rows + k, sizeof b->r->rows - (size_t)k, ", %lld of them",
                       (long long)s->n);
    b->r->layer = b->o->choice.layer;
    (void)snprintf(b->r->op, sizeof b->r->op, "%s", b->o->choice.op ? b->o->choice.op : "");
    DSF_TRY(dsf_pack_put_str(&b->pack, "/case", "schema", DSF_CASE_SCHEMA));
    DSF_TRY(dsf_pack_put_str(&b->pack, "/case", "golden", basename(path)));
    DSF_TRY(dsf_pack_put_str(&b->pack, "/case", "rows", b->r->rows));
    DSF_TRY(dsf_pack_put_int(&b->pack, "/case", "layer", b->r->layer));
    DSF_TRY(dsf_pack_put_str(&b->pack, "/case", "op", b->r->op));
    DSF_TRY(dsf_pack_put_str(&b->pack, "/case", "program", "dsf " DSF_VERSION));
    char command[sizeof b->r->command]; /* a long one loses its end */
    (void)snprintf(command, sizeof command, "%s", b->o->command ? b->o->command : "");
    return dsf_pack_put_str(&b->pack, "/case", "command", command);
}

static dsf_status build(builder *b, void **data, size_t *n)
{
    DSF_TRY(dsf_load_open(&b->load, b->o->model, NULL));
    b->load.model.unfused = true;
    DSF_TRY(dsf_golden_open(&b->golden, &b->load.config, b->o->golden));
    DSF_TRY(dsf_scope_open(&b->scope, &b->load, &b->golden, &b->o->choice));
    DSF_TRY(dsf_pack_create(&b->pack, "case"));
    DSF_TRY(put_root(b));
    DSF_TRY(put_taps(b));
    DSF_TRY(put_weights(b));
    DSF_TRY(put_tokenizer(b));
    if (b->o->floor) DSF_TRY(put_file(b, "/case/floor", b->o->floor, false));
    if (b->scope.n_tensors == 0 && b->load.config.n_engram == 0 && !b->o->floor) {
        const dsf_pack_array none = {DSF_DUMP_U8, 1, {0}, NULL}; /* the group must be there */
        DSF_TRY(dsf_pack_put(&b->pack, "/case/weights/none", &none));
    }
    DSF_TRY(put_words(b));
    DSF_TRY(dsf_pack_image(&b->pack, data, n));
    if ((int64_t)*n <= b->o->max_bytes) return DSF_OK;
    dsf_mem_free(*data);
    *data = NULL;
    return refuse(b, (int64_t)*n, "");
}

dsf_status dsf_case_build(const dsf_case_options *o, void **data, size_t *n, dsf_case_report *r)
{
    builder b = {.o = o, .r = r, .pack = {.file = -1}};
    *data = NULL;
    dsf_status st = build(&b, data, n);
    dsf_pack_close(&b.pack);
    dsf_scope_close(&b.scope);
    dsf_golden_close(&b.golden);
    dsf_load_close(&b.load);
    r->bytes = st == DSF_OK ? (int64_t)*n : 0;
    return st;
}
