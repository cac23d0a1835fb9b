#include "verify/reduce/cut.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "ckpt/index.h"
#include "model/synth.h"

enum { MOST_TENSORS = 500000 }; /* the release has 96,085 */

static int by_name(const void *a, const void *b)
{
    return strcmp(((const dsf_name *)a)->name, ((const dsf_name *)b)->name);
}

static dsf_status list_names(dsf_cut *o, const dsf_config *c)
{
    dsf_names it = dsf_names_begin(c);
    dsf_name name;
    size_t n = 0;
    while (n <= MOST_TENSORS && dsf_names_next(&it, &name)) n++;
    if (n > MOST_TENSORS)
        return DSF_FAIL(DSF_ECORRUPT, "%s: a configuration of more than %d tensors", o->path,
                        MOST_TENSORS);
    DSF_TRY(dsf_mem_new(&o->name, n + 1, sizeof *o->name));
    DSF_TRY(dsf_mem_new(&o->at, n + 1, sizeof *o->at));
    it = dsf_names_begin(c);
    while (dsf_names_next(&it, &name)) o->name[o->n++] = name;
    qsort(o->name, n, sizeof *o->name, by_name);
    return DSF_OK;
}

/* Wide elements first, so that all are aligned: the header's length is a multiple of 8. */
static uint64_t lay_out(dsf_cut *o, dsf_buf *header)
{
    uint64_t at = 0;
    dsf_buf_add(header, "\0\0\0\0\0\0\0", 8);
    dsf_buf_str(header, "{\"__metadata__\":{\"format\":\"pt\"}");
    for (int64_t width = 8; width >= 1; width /= 2)
        for (int64_t i = 0; i < o->n; i++) {
            const dsf_name *t = &o->name[i];
            if (dsf_dtype_bytes(t->dtype, 1) != width) continue;
            dsf_buf_fmt(header, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[", t->name,
                        dsf_safetensors_dtype(t->dtype));
            for (int d = 0; d < t->rank; d++)
                dsf_buf_fmt(header, "%s%" PRId64, d ? "," : "", t->dim[d]);
            dsf_buf_fmt(header, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", at,
                        at + (uint64_t)t->bytes);
            o->at[i] = at;
            at += (uint64_t)t->bytes;
        }
    dsf_buf_char(header, '}');
    while (header->len % 8) dsf_buf_char(header, ' ');
    return at;
}

static dsf_status write_at(const dsf_cut *o, const void *data, size_t n, uint64_t at)
{
    const char *from = data;
    while (n > 0) {
        ssize_t k = pwrite(o->fd, from, n, (off_t)at);
        if (k < 0 && errno == EINTR) continue;
        if (k < 0) return DSF_FAIL(DSF_EIO, "%s: %s", o->path, strerror(errno));
        from += k;
        at += (uint64_t)k;
        n -= (size_t)k;
    }
    return DSF_OK;
}

static dsf_status write_shard(dsf_cut *o, dsf_buf *header)
{
    uint64_t bytes = lay_out(o, header);
    DSF_TRY(dsf_buf_status(header));
    uint64_t json = header->len - 8;
    for (int i = 0; i < 8; i++) header->data[i] = (char)(json >> 8 * i);
    for (int64_t i = 0; i < o->n; i++) o->at[i] += header->len;
    o->fd = open(o->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (o->fd < 0 || ftruncate(o->fd, (off_t)(header->len + bytes)) != 0)
        return DSF_FAIL(DSF_EIO, "%s: %s", o->path, strerror(errno));
    return write_at(o, header->data, header->len, 0);
}

dsf_status dsf_cut_file(const char *path, const void *data, size_t n)
{
    dsf_file_out o;
    DSF_TRY(dsf_file_create(&o, path));
    dsf_status st = dsf_file_write(&o, data, n);
    if (st == DSF_OK) st = dsf_file_finish(&o);
    if (st != DSF_OK) dsf_file_abandon(&o);
    return st;
}

dsf_status dsf_cut_open(dsf_cut *o, const char *folder, const dsf_config *c, const char *json,
                        size_t n_json)
{
    *o = (dsf_cut){.fd = -1};
    dsf_buf header = {.max = (size_t)1 << 28};
    DSF_TRY(dsf_file_make_folder(folder));
    DSF_TRY(dsf_file_join(o->path, folder, "config.json"));
    DSF_TRY(dsf_cut_file(o->path, json, n_json));
    DSF_TRY(dsf_file_join(o->path, folder, "model.safetensors"));
    DSF_TRY(list_names(o, c));
    dsf_status st = write_shard(o, &header);
    dsf_buf_free(&header);
    return st;
}

dsf_status dsf_cut_put(dsf_cut *o, const char *name, int64_t from, const void *data, int64_t n)
{
    dsf_name key;
    (void)snprintf(key.name, sizeof key.name, "%s", name);
    const dsf_name *t =
        o->n ? bsearch(&key, o->name, (size_t)o->n, sizeof *o->name, by_name) : NULL;
    if (!t) return DSF_FAIL(DSF_EINVAL, "%.120s: no tensor of this configuration", name);
    if (from < 0 || n < 0 || from > t->bytes || n > t->bytes - from)
        return DSF_FAIL(DSF_EINVAL, "%.120s: bytes %lld to %lld, it has %lld", name,
                        (long long)from, (long long)from + n, (long long)t->bytes);
    return write_at(o, data, (size_t)n, o->at[t - o->name] + (uint64_t)from);
}

void dsf_cut_close(dsf_cut *o)
{
    if (o->fd >= 0) (void)close(o->fd);
    dsf_mem_free(o->name);
    dsf_mem_free(o->at);
    *o = (dsf_cut){.fd = -1};
}

/* ---- a model cut after a layer ---- */

dsf_status dsf_cut_copy(const char *from, const char *to, bool optional)
{
    dsf_file f;
    if (optional && !dsf_file_exists(from)) return DSF_OK;
    DSF_TRY(dsf_file_open(&f, from));
    dsf_status st = dsf_cut_file(to, f.data, f.size);
    dsf_file_close(&f);
    return st;
}

static dsf_status copy_tensors(dsf_cut *o, const dsf_ckpt *k)
{
    for (int64_t i = 0; i < o->n; i++) {
        const dsf_ckpt_entry *e = dsf_ckpt_find(k, o->name[i].name);
        if (!e || (int64_t)e->bytes != o->name[i].bytes)
            return DSF_FAIL(DSF_ECORRUPT, "%s: %s: %s", dsf_ckpt_folder(k), o->name[i].name,
                            e ? "has another size than the cut model needs" : "is missing");
        DSF_TRY(dsf_cut_put(o, o->name[i].name, 0, e->view.data, (int64_t)e->bytes));
    }
    return DSF_OK;
}

static dsf_status copy_cut(const dsf_config *c, const dsf_buf *json, const char *from,
                           const char *to)
{
    dsf_ckpt *k = NULL;
    dsf_cut o = {.fd = -1};
    dsf_status st = dsf_ckpt_open(&k, from);
    if (st == DSF_OK) st = dsf_cut_open(&o, to, c, json->data, json->len);
    if (st == DSF_OK) st = copy_tensors(&o, k);
    dsf_cut_close(&o);
    dsf_ckpt_close(k);
    return st;
}

static dsf_status copy_beside(const char *from, const char *to)
{
    static const char *const name[] = {"tokenizer.json", "tokenizer_config.json"};
    for (int i = 0; i < 2; i++) {
        char a[4096], b[4096];
        DSF_TRY(dsf_file_join(a, from, name[i]));
        DSF_TRY(dsf_file_join(b, to, name[i]));
        DSF_TRY(dsf_cut_copy(a, b, true));
    }
    return DSF_OK;
}

/* All layers: the folder under another name. */
static dsf_status link_model(const char *from, const char *to)
{
    char whole[4096];
    if (!realpath(from, whole) || symlink(whole, to) != 0)
        return DSF_FAIL(DSF_EIO, "%s to %s: %s", from, to, strerror(errno));
    return DSF_OK;
}

dsf_status dsf_cut_model(const char *from, int layers, const char *to)
{
    char path[4096];
    dsf_config c;
    dsf_buf json = {.max = (size_t)1 << 24};
    DSF_TRY(dsf_file_join(path, from, "config.json"));
    DSF_TRY(dsf_config_load(&c, path, NULL));
    if (layers == c.n_layers) return link_model(from, to);
    DSF_TRY(dsf_synth_trim(&c, layers, 0));
    dsf_status st = dsf_synth_finish(&c, &json);
    if (st == DSF_OK) st = copy_cut(&c, &json, from, to);
    if (st == DSF_OK) st = copy_beside(from, to);
    dsf_buf_free(&json);
    return st;
}

void dsf_cut_remove(const char *folder)
{
    static const char *const name[] = {
        "config.json",        "tokenizer.json",         "tokenizer_config.json",
        "model.safetensors",  "model.safetensors.part", "config.json.part",
        "tokenizer.json.part"};
    if (unlink(folder) == 0) return; /* a link to a whole model */
    for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
        char path[4096];
        if (dsf_file_join(path, folder, name[i]) == DSF_OK) (void)unlink(path);
    }
    (void)rmdir(folder);
}
