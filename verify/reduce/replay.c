/* Finds, writes and runs cases: the verdict is always that of a run from the file's own bytes. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "verify/diff/diff.h"
#include "verify/graft/graft.h"
#include "verify/reduce/case.h"
#include "verify/reduce/cut.h"
#include "verify/reduce/pack.h"
#include "verify/reduce/seal.h"

enum { MOST_OUTPUTS = 64 };

/* Paths that are compared; none: all. */
typedef struct {
    const char *item[MOST_OUTPUTS];
    int n;
} outputs;

/* The lines of `text`, cut in place. */
static outputs split(char *text)
{
    outputs o = {.n = 0};
    for (char *at = text; at && *at && o.n < MOST_OUTPUTS;) {
        char *end = strchr(at, '\n');
        o.item[o.n++] = at;
        if (end) *end = 0;
        at = end ? end + 1 : NULL;
    }
    return o;
}

/* Runs `model` on the golden inputs, operation by operation, into `out`. */
static dsf_status graft(const dsf_case_options *o, const char *model, const char *golden,
                        const char *out, const outputs *only)
{
    const dsf_graft_options g = {.model = model,
                                 .golden = golden,
                                 .out = out,
                                 .variants = o->variants,
                                 .backend = o->backend ? o->backend : "cpu",
                                 .threads = o->threads,
                                 .by_op = true,
                                 .by_layer_range = only->n == 0 && o->choice.layer >= 0,
                                 .layer_from = o->choice.layer,
                                 .layer_to = o->choice.layer,
                                 .only = only->item,
                                 .n_only = only->n,
                                 .progress = o->progress};
    dsf_graft_report r;
    dsf_status st = dsf_graft_run(&g, &r);
    dsf_graft_report_free(&r);
    return st;
}

static dsf_status judge(const dsf_case_files *f, const char *ours, const outputs *only,
                        dsf_case_report *r)
{
    const dsf_diff_options d = {.reference = f->golden,
                                .ours = ours,
                                .floor = f->floor[0] ? f->floor : NULL,
                                .only = only->item,
                                .n_only = only->n};
    dsf_diff_report report;
    dsf_status st = dsf_diff_run(&d, &report);
    if (st == DSF_OK) {
        r->fails = !report.good;
        r->taps = report.n_taps;
        (void)snprintf(r->sentence, sizeof r->sentence, "%s", report.verdict);
    }
    dsf_diff_report_free(&report);
    return st;
}

/* What the words of the case do not explain, its digest tells. */
static dsf_status check_case(const dsf_case_options *o, const char *name, const dsf_file *whole,
                             const dsf_case_report *r)
{
    int64_t from = 0, to = 0;
    DSF_TRY(dsf_seal_check(name, whole->data, whole->size));
    if (!o->choice.by_row) return DSF_OK;
    bool known = sscanf(r->rows, "%" SCNd64 "-%" SCNd64, &from, &to) == 2;
    if (known && o->choice.row_from == from && o->choice.row_to == to) return DSF_OK;
    return DSF_FAIL(DSF_EINVAL, "--rows %lld-%lld: a case is run whole, and %s has rows %s",
                    (long long)o->choice.row_from, (long long)o->choice.row_to, name, r->rows);
}

/* whole: the file, where it is one and not a case in the making. */
static dsf_status run_bytes(const dsf_case_options *o, const char *name, const void *data, size_t n,
                            const dsf_file *whole, dsf_case_report *r)
{
    dsf_case_files f;
    char ours[4096];
    dsf_status st = dsf_case_unpack(name, data, n, &f, r);
    if (st == DSF_OK) st = dsf_file_join(ours, f.folder, "ours.h5");
    const outputs only = split(st == DSF_OK ? f.outputs.data : NULL);
    if (st == DSF_OK && only.n == 0)
        st = DSF_FAIL(DSF_ECORRUPT, "%s: /case: attribute outputs names nothing", name);
    if (st == DSF_OK && whole) st = check_case(o, name, whole, r);
    if (st == DSF_OK) {
        st = graft(o, f.model, f.golden, ours, &only);
        if (st == DSF_OK) st = judge(&f, ours, &only, r);
    }
    dsf_case_clean(&f);
    return st;
}

dsf_status dsf_case_replay(const dsf_case_options *o, const char *path, dsf_case_report *r)
{
    dsf_file f;
    *r = (dsf_case_report){.layer = -1};
    DSF_TRY(dsf_file_open(&f, path));
    dsf_status st = run_bytes(o, path, f.data, f.size, &f, r);
    r->bytes = (int64_t)f.size;
    dsf_file_close(&f);
    return st;
}

/* ---- writing ---- */

/* The last change of all: the digest is of the bytes as they are then. */
static dsf_status seal(void **data, size_t *n)
{
    dsf_pack p = {.file = -1};
    void *image = NULL;
    dsf_status st = dsf_pack_open(&p, "case", *data, *n, true);
    if (st == DSF_OK) st = dsf_pack_put_str(&p, "/case", "digest", dsf_seal_blank);
    if (st == DSF_OK) st = dsf_pack_image(&p, &image, n);
    dsf_pack_close(&p);
    DSF_TRY(st);
    dsf_mem_free(*data);
    *data = image;
    return dsf_seal_put(image, *n);
}

static dsf_status put_verdict(void **data, size_t *n, const char *verdict, const char *sentence)
{
    dsf_pack p = {.file = -1};
    void *image = NULL;
    dsf_status st = dsf_pack_open(&p, "case", *data, *n, true);
    if (st == DSF_OK) st = dsf_pack_put_str(&p, "/case", "verdict", verdict);
    if (st == DSF_OK) st = dsf_pack_put_str(&p, "/case", "sentence", sentence);
    if (st == DSF_OK) st = dsf_pack_image(&p, &image, n);
    dsf_pack_close(&p);
    DSF_TRY(st);
    dsf_mem_free(*data);
    *data = image;
    return DSF_OK;
}

dsf_status dsf_case_write(const dsf_case_options *o, const char *out, dsf_case_report *r)
{
    void *data = NULL;
    size_t n = 0;
    dsf_status st = DSF_OK;
    *r = (dsf_case_report){.layer = -1};
    if (dsf_file_same(o->golden, out))
        return DSF_FAIL(DSF_EINVAL, "%s: golden and case are one file", out);
    DSF_TRY(dsf_file_may_replace(out));
    DSF_TRY(dsf_case_build(o, &data, &n, r));
    const dsf_case_report built = *r;
    DSF_TRY_OUT(put_verdict(&data, &n, "unknown", ""));
    DSF_TRY_OUT(run_bytes(o, out, data, n, NULL, r));
    r->tensors = built.tensors;
    DSF_TRY_OUT(put_verdict(&data, &n, r->fails ? "fails" : "good", r->sentence));
    DSF_TRY_OUT(seal(&data, &n));
    (void)snprintf(r->recorded, sizeof r->recorded, "%s", r->fails ? "fails" : "good");
    st = dsf_cut_file(out, data, n);
    r->bytes = (int64_t)n;
out:
    dsf_mem_free(data);
    return st;
}

/* ---- finding ---- */

static void choose(const dsf_diff_report *d, dsf_scope_choice *choice, char path[64])
{
    const dsf_diff_tap *t = &d->tap[d->first];
    (void)snprintf(path, 64, "%.63s", t->path);
    choice->layer = t->layer;
    choice->op = path;
    int32_t row = t->row_max_label;
    if (t->discrete || t->row_max <= 0.0) row = t->at_row;
    if (row < 0) return;
    choice->by_row = true;
    choice->row_from = choice->row_to = row;
}

dsf_status dsf_case_locate(const dsf_case_options *o, dsf_scope_choice *choice, char path[64],
                           bool *found)
{
    char folder[DSF_TEMP_BYTES], ours[DSF_TEMP_BYTES + 16];
    const outputs all = {.n = 0};
    dsf_diff_report d = {.first = -1};
    DSF_TRY(dsf_temp_open(folder, "dsf-locate"));
    (void)snprintf(ours, sizeof ours, "%s/ours.h5", folder);
    const dsf_diff_options options = {.reference = o->golden,
                                      .ours = ours,
                                      .floor = o->floor,
                                      .by_layer = o->choice.layer >= 0,
                                      .layer_from = o->choice.layer,
                                      .layer_to = o->choice.layer};
    dsf_status st = graft(o, o->model, o->golden, ours, &all);
    if (st == DSF_OK) st = dsf_diff_run(&options, &d);
    if (st == DSF_OK) {
        *found = d.first >= 0;
        if (*found) choose(&d, choice, path);
        dsf_diff_report_free(&d);
    }
    dsf_temp_close(folder);
    return st;
}

/* Narrowed to the worst row where that row fails alone; the rows asked for are kept. */
dsf_status dsf_case_write_first(const dsf_case_options *o, const char *out, dsf_case_report *r,
                                bool *found)
{
    dsf_case_options c = *o;
    char path[64];
    DSF_TRY(dsf_case_locate(o, &c.choice, path, found));
    if (!*found) return DSF_OK;
    if (o->choice.by_row) {
        c.choice.row_from = o->choice.row_from;
        c.choice.row_to = o->choice.row_to;
        return dsf_case_write(&c, out, r);
    }
    dsf_status st = dsf_case_write(&c, out, r);
    if (!c.choice.by_row || (st == DSF_OK && r->fails)) return st;
    c.choice.by_row = false;
    return dsf_case_write(&c, out, r);
}

void dsf_case_print(const dsf_case_report *r, const char *path, dsf_buf *b)
{
    dsf_buf_fmt(b, "%s here: %s\n", r->fails ? "fails" : "good", r->sentence);
    if (r->recorded_sentence[0])
        dsf_buf_fmt(b, "on record: %s: %s\n", r->recorded, r->recorded_sentence);
    dsf_buf_fmt(b, "%s: ", path);
    if (r->layer >= 0) dsf_buf_fmt(b, "layer %d", r->layer);
    if (r->op[0]) dsf_buf_fmt(b, "%s%s", r->layer >= 0 ? ", " : "", r->op);
    dsf_buf_fmt(b, ", rows %s, %lld taps compared, %lld tensors, %lld bytes\n", r->rows,
                (long long)r->taps, (long long)r->tensors, (long long)r->bytes);
    if (r->command[0]) dsf_buf_fmt(b, "found by: %s\n", r->command);
}

void dsf_case_json(const dsf_case_report *r, const char *key, const char *path, dsf_buf *b)
{
    dsf_json_begin(b, key, '{');
    dsf_json_add_cstr(b, "schema", "dsf-case-report-1");
    dsf_json_add_cstr(b, "case", path);
    dsf_json_add_cstr(b, "verdict", r->fails ? "fails" : "good");
    dsf_json_add_cstr(b, "sentence", r->sentence);
    dsf_json_add_cstr(b, "recorded", r->recorded);
    dsf_json_add_cstr(b, "recorded_sentence", r->recorded_sentence);
    dsf_json_add_int(b, "layer", r->layer);
    dsf_json_add_cstr(b, "op", r->op);
    dsf_json_add_cstr(b, "rows", r->rows);
    dsf_json_add_int(b, "bytes", r->bytes);
    dsf_json_add_int(b, "tensors", r->tensors);
    dsf_json_add_int(b, "taps", r->taps);
    dsf_json_end(b, '}');
}
