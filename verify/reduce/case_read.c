/* Unpacks a case into a folder that the engine opens like any checkpoint. Everything in the file is
 * doubted: names are no paths, sizes have bounds, each tensor has its digest. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "ckpt/digest.h"
#include "verify/dump/probe.h"
#include "verify/reduce/case.h"
#include "verify/reduce/cut.h"
#include "verify/reduce/pack.h"

enum { MOST_TENSORS = 100000 };
static const int64_t most_bytes = INT64_C(1) << 30; /* of one dataset */

typedef struct {
    dsf_pack pack;
    dsf_cut cut; /* fd -1: nothing is written, the file is only read through */
    bool dry;
    dsf_case_files *f;
    dsf_case_report *r;
} reader;

/* A text attribute into a field of the report or a name; ECORRUPT when it is longer. */
static dsf_status get_text(const reader *x, const char *path, const char *name, char *out,
                           size_t most)
{
    dsf_buf b = {.max = 1 << 17};
    dsf_status st = dsf_pack_get_str(&x->pack, path, name, &b);
    if (st == DSF_OK && b.len >= most)
        st = DSF_FAIL(DSF_ECORRUPT, "%s: %s: attribute %s: %zu bytes, at most %zu", x->pack.name,
                      path, name, b.len, most - 1);
    if (st == DSF_OK) (void)snprintf(out, most, "%s", b.data ? b.data : "");
    dsf_buf_free(&b);
    return st;
}

/* A name that becomes a file of the folder. */
static dsf_status check_name(const reader *x, const char *what, const char *name)
{
    if (*name && *name != '.' && !strchr(name, '/')) return DSF_OK;
    return DSF_FAIL(DSF_ECORRUPT, "%s: %s \"%.80s\": not the name of a file", x->pack.name, what,
                    name);
}

static dsf_status read_words(reader *x)
{
    dsf_case_report *r = x->r;
    int64_t layer = 0;
    char schema[32];
    if (!dsf_pack_has(&x->pack, "case"))
        return DSF_FAIL(DSF_ECORRUPT, "%s: no case: it has no group /case", x->pack.name);
    DSF_TRY(get_text(x, "/case", "schema", schema, sizeof schema));
    if (strcmp(schema, DSF_CASE_SCHEMA) != 0)
        return DSF_FAIL(DSF_ENOTSUP, "%s: schema \"%s\", this program reads %s", x->pack.name,
                        schema, DSF_CASE_SCHEMA);
    DSF_TRY(get_text(x, "/case", "verdict", r->recorded, sizeof r->recorded));
    DSF_TRY(get_text(x, "/case", "sentence", r->recorded_sentence, sizeof r->recorded_sentence));
    DSF_TRY(get_text(x, "/case", "op", r->op, sizeof r->op));
    DSF_TRY(get_text(x, "/case", "rows", r->rows, sizeof r->rows));
    DSF_TRY(get_text(x, "/case", "command", r->command, sizeof r->command));
    DSF_TRY(dsf_pack_get_int(&x->pack, "/case", "layer", &layer));
    DSF_TRY(dsf_pack_get_str(&x->pack, "/case", "outputs", &x->f->outputs));
    r->layer = layer < -1 || layer > DSF_MAX_LAYERS ? DSF_MAX_LAYERS : (int)layer;
    return DSF_OK;
}

/* ---- what the case says that it holds ---- */

typedef dsf_status path_check(const reader *x, const char *path);

static dsf_status each_path(const reader *x, const char *lines, path_check *check)
{
    for (const char *at = lines; at && *at;) {
        char path[128];
        size_t n = strcspn(at, "\n");
        if (n >= sizeof path)
            return DSF_FAIL(DSF_ECORRUPT, "%s: /case: a path of %zu bytes", x->pack.name, n);
        memcpy(path, at, n);
        path[n] = 0;
        DSF_TRY(check(x, path));
        at += at[n] ? n + 1 : n;
    }
    return DSF_OK;
}

static dsf_status check_there(const reader *x, const char *path)
{
    if (*path && *path != '/' && dsf_pack_has(&x->pack, path)) return DSF_OK;
    return DSF_FAIL(DSF_ECORRUPT, "%s: broken case: it names %s and does not hold it", x->pack.name,
                    *path ? path : "nothing");
}

/* Given is not computed: comparing it says nothing. */
static dsf_status check_computed(const reader *x, const char *path)
{
    dsf_buf inputs = {.max = 1 << 17};
    size_t n = strlen(path);
    DSF_TRY(check_there(x, path));
    dsf_status st = dsf_pack_get_str(&x->pack, "/case", "inputs", &inputs);
    for (const char *at = inputs.data; st == DSF_OK && at && *at;) {
        size_t line = strcspn(at, "\n");
        if (line == n && memcmp(at, path, n) == 0)
            st = DSF_FAIL(DSF_ECORRUPT, "%s: broken case: %s is given to it, not computed",
                          x->pack.name, path);
        at += at[line] ? line + 1 : line;
    }
    dsf_buf_free(&inputs);
    return st;
}

static dsf_status check_contents(const reader *x, const dsf_config *c)
{
    dsf_buf inputs = {.max = 1 << 17};
    int layers = c->n_layers + c->n_mtp_layers;
    if (x->r->layer >= layers)
        return DSF_FAIL(DSF_ECORRUPT, "%s: broken case: it is of layer %d, its model has 0-%d",
                        x->pack.name, x->r->layer, layers - 1);
    DSF_TRY(each_path(x, x->f->outputs.data, check_computed));
    dsf_status st = dsf_pack_get_str(&x->pack, "/case", "inputs", &inputs);
    if (st == DSF_OK) st = each_path(x, inputs.data, check_there);
    dsf_buf_free(&inputs);
    return st;
}

/* ---- weights ---- */

static dsf_status put_rows(reader *x, const char *name, const uint8_t *data, int64_t n,
                           const char *rows)
{
    void *list = NULL;
    int64_t k = 0;
    DSF_TRY(dsf_pack_get(&x->pack, rows, DSF_DUMP_I64, most_bytes, &list, &k));
    const int64_t *row = list;
    int64_t bytes = k ? n / k : 0;
    dsf_status st = DSF_OK;
    if (k == 0 || bytes * k != n)
        st = DSF_FAIL(DSF_ECORRUPT, "%s: %s: %lld bytes in %lld rows", x->pack.name, name,
                      (long long)n, (long long)k);
    for (int64_t i = 0; i < k && st == DSF_OK; i++) {
        if (row[i] < 0 || row[i] > INT64_MAX / bytes - 1)
            st = DSF_FAIL(DSF_ECORRUPT, "%s: %s: row %lld", x->pack.name, name, (long long)row[i]);
        else if (!x->dry)
            st = dsf_cut_put(&x->cut, name, row[i] * bytes, data + i * bytes, bytes);
    }
    dsf_mem_free(list);
    return st;
}

static dsf_status read_tensor(reader *x, const char *path)
{
    char name[128], want[33], have[33], rows[80];
    void *data = NULL;
    int64_t n = 0;
    DSF_TRY(get_text(x, path, "name", name, sizeof name));
    DSF_TRY(get_text(x, path, "digest", want, sizeof want));
    DSF_TRY(dsf_pack_get(&x->pack, path, DSF_DUMP_U8, most_bytes, &data, &n));
    dsf_digest_bytes(data, (size_t)n, have);
    dsf_status st = DSF_OK;
    (void)snprintf(rows, sizeof rows, "%s_rows", path);
    if (strcmp(want, have) != 0)
        st = DSF_FAIL(DSF_ECORRUPT, "%s: %s: digest %s, its bytes have %s", x->pack.name, name,
                      want, have);
    else if (dsf_pack_has(&x->pack, rows))
        st = put_rows(x, name, data, n, rows);
    else if (!x->dry)
        st = dsf_cut_put(&x->cut, name, 0, data, n);
    dsf_mem_free(data);
    return st;
}

static dsf_status read_weights(reader *x)
{
    int64_t n = 0;
    DSF_TRY(dsf_pack_get_int(&x->pack, "/case", "tensors", &n));
    if (n < 0 || n > MOST_TENSORS)
        return DSF_FAIL(DSF_ECORRUPT, "%s: broken case: %lld tensors, at most %d", x->pack.name,
                        (long long)n, MOST_TENSORS);
    for (int64_t i = 0; i < n; i++) { /* an operation may have none */
        char path[64];
        (void)snprintf(path, sizeof path, "/case/weights/%04" PRId64, i);
        if (!dsf_pack_has(&x->pack, "case/weights") || !dsf_pack_has(&x->pack, path))
            return DSF_FAIL(DSF_ECORRUPT, "%s: broken case: %lld tensors, and no %s", x->pack.name,
                            (long long)n, path);
        DSF_TRY(read_tensor(x, path));
        x->r->tensors++;
    }
    return DSF_OK;
}

/* ---- files ---- */

static dsf_status read_file(const reader *x, const char *path, const char *folder, const char *name)
{
    char to[4096];
    void *data = NULL;
    int64_t n = 0;
    if (!dsf_pack_has(&x->pack, path)) return DSF_OK;
    DSF_TRY(dsf_pack_get(&x->pack, path, DSF_DUMP_U8, most_bytes, &data, &n));
    dsf_status st = x->dry ? DSF_OK : dsf_file_join(to, folder, name);
    if (st == DSF_OK && !x->dry) st = dsf_cut_file(to, data, (size_t)n);
    dsf_mem_free(data);
    return st;
}

/* The checkpoint with holes. */
static dsf_status read_model(reader *x)
{
    dsf_buf json = {.max = 1 << 20};
    dsf_config c;
    dsf_status st = dsf_pack_get_str(&x->pack, "/", "config_json", &json);
    if (st == DSF_OK)
        st = dsf_config_parse(&c, "config_json of the case", json.data, json.len, NULL);
    if (st == DSF_OK) st = check_contents(x, &c);
    if (st == DSF_OK && !x->dry) st = dsf_cut_open(&x->cut, x->f->model, &c, json.data, json.len);
    dsf_buf_free(&json);
    DSF_TRY(st);
    return read_weights(x);
}

static dsf_status name_files(const reader *x)
{
    char model[64], golden[128];
    dsf_case_files *f = x->f;
    DSF_TRY(get_text(x, "/", "model", model, sizeof model));
    DSF_TRY(get_text(x, "/case", "golden", golden, sizeof golden));
    DSF_TRY(check_name(x, "model", model));
    DSF_TRY(check_name(x, "golden", golden));
    (void)snprintf(f->model, sizeof f->model, "%s/%s", f->folder, model);
    (void)snprintf(f->golden, sizeof f->golden, "%s/%s", f->model, golden);
    if (dsf_pack_has(&x->pack, "case/floor"))
        (void)snprintf(f->floor, sizeof f->floor, "%s/floor.json", f->folder);
    return DSF_OK;
}

static dsf_status read_all(reader *x)
{
    DSF_TRY(read_words(x));
    DSF_TRY(name_files(x));
    DSF_TRY(read_model(x));
    DSF_TRY(read_file(x, "/case/tokenizer", x->f->model, "tokenizer.json"));
    DSF_TRY(read_file(x, "/case/tokenizer_config", x->f->model, "tokenizer_config.json"));
    return read_file(x, "/case/floor", x->f->folder, "floor.json");
}

typedef struct {
    const char *name;
    const void *data;
    size_t n;
} image;

/* In a process of its own: what crashes HDF5 crashes it there. */
static void read_through(void *ud)
{
    const image *m = ud;
    dsf_case_files f = {.outputs = {.max = 1 << 17}};
    dsf_case_report r = {.layer = 0};
    reader x = {.pack = {.file = -1}, .cut = {.fd = -1}, .dry = true, .f = &f, .r = &r};
    if (dsf_pack_open(&x.pack, m->name, m->data, m->n, false) == DSF_OK) (void)read_all(&x);
}

dsf_status dsf_case_unpack(const char *name, const void *data, size_t n, dsf_case_files *f,
                           dsf_case_report *r)
{
    image m = {name, data, n};
    *f = (dsf_case_files){.outputs = {.max = 1 << 17}};
    DSF_TRY(dsf_probe(name, read_through, &m));
    DSF_TRY(dsf_temp_open(f->folder, "dsf-case"));
    reader x = {.pack = {.file = -1}, .cut = {.fd = -1}, .f = f, .r = r};
    dsf_status st = dsf_pack_open(&x.pack, name, data, n, false);
    if (st == DSF_OK) st = read_all(&x);
    dsf_cut_close(&x.cut);
    dsf_pack_close(&x.pack);
    return st == DSF_OK ? dsf_cut_file(f->golden, data, n) : st;
}

void dsf_case_clean(dsf_case_files *f)
{
    dsf_buf_free(&f->outputs);
    if (!f->folder[0]) return;
    dsf_temp_close(f->folder);
}
