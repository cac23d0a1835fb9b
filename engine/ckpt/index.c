#include "ckpt/index.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "ckpt/digest.h"
#include "ckpt/faults.h"

enum { SHARDS_MAX = 4096, COPIES_MAX = 256 << 20 };

/* One line of the index's weight_map. */
typedef struct {
    const char *name, *file;
} claim;

struct dsf_ckpt {
    char folder[4096];
    dsf_shard *shard;
    int n_shards;
    dsf_ckpt_entry *entry;
    int64_t n, bytes, total_size;
    uint8_t *copies; /* of misaligned tensors */
};

static int claim_by_file(const void *a, const void *b)
{
    const claim *x = a, *y = b;
    int d = strcmp(x->file, y->file);
    return d ? d : strcmp(x->name, y->name);
}

static int claim_by_name(const void *a, const void *b)
{
    return strcmp(((const claim *)a)->name, ((const claim *)b)->name);
}

static int entry_by_name(const void *a, const void *b)
{
    return strcmp(((const dsf_ckpt_entry *)a)->name, ((const dsf_ckpt_entry *)b)->name);
}

/* A shard's name must stay inside the folder. */
static bool is_plain_name(const char *s)
{
    return *s && *s != '.' && !strchr(s, '/') && strlen(s) < 256;
}

static dsf_status read_claims(const dsf_json *map, const char *path, claim **out, size_t *n)
{
    if (!map || dsf_json_kind_of(map) != DSF_JSON_OBJECT)
        return DSF_FAIL(DSF_ECORRUPT, "%s: weight_map is missing or not an object", path);
    *n = 0;
    for (const dsf_json *v = dsf_json_first(map); v; v = dsf_json_next(v)) ++*n;
    DSF_TRY(dsf_mem_new(out, *n, sizeof **out));
    claim *c = *out;
    for (const dsf_json *v = dsf_json_first(map); v; v = dsf_json_next(v), c++) {
        *c = (claim){.name = dsf_json_key(v), .file = dsf_json_text(v, NULL)};
        if (dsf_json_kind_of(v) != DSF_JSON_STRING || !is_plain_name(c->file))
            return DSF_FAIL(DSF_ECORRUPT, "%s: weight_map: %.128s: \"%.64s\" is not a file name",
                            path, c->name, c->file);
    }
    if (*n) qsort(*out, *n, sizeof **out, claim_by_name);
    for (size_t i = 1; i < *n; i++)
        if (strcmp((*out)[i - 1].name, (*out)[i].name) == 0)
            return DSF_FAIL(DSF_ECORRUPT, "%s: weight_map: %.128s occurs twice", path,
                            (*out)[i].name);
    return DSF_OK;
}

static dsf_status read_total(dsf_ckpt *c, const dsf_json *root, const char *path)
{
    const dsf_json *v = dsf_json_get(dsf_json_get(root, "metadata"), "total_size");
    c->total_size = -1;
    if (!v) return DSF_OK;
    if (dsf_json_int(v, &c->total_size) != DSF_OK || c->total_size < 0)
        return DSF_FAIL(DSF_ECORRUPT, "%s: metadata.total_size is %.32s, not a size", path,
                        dsf_json_text(v, NULL));
    return DSF_OK;
}

/* The claims of one shard are consecutive, in name order, as its entries are: one merge. */
static void match_shard(const dsf_shard *s, const claim *c, size_t n, dsf_faults *f)
{
    const char *file = c[0].file;
    size_t i = 0;
    int64_t j = 0;
    while (i < n || j < s->n) {
        int d = i == n ? 1 : j == s->n ? -1 : strcmp(c[i].name, s->entry[j].name);
        if (d < 0)
            dsf_faults_add(f, "the index puts %.128s into %s, which lacks it", c[i].name, file);
        if (d > 0)
            dsf_faults_add(f, "%s holds %.128s, which the index does not put there", file,
                           s->entry[j].name);
        i += d <= 0;
        j += d >= 0;
    }
}

static dsf_status open_shard(dsf_ckpt *c, const char *file)
{
    char path[4096];
    DSF_TRY(dsf_file_join(path, c->folder, file));
    DSF_TRY(dsf_safetensors_open(&c->shard[c->n_shards], path));
    c->n_shards++;
    return DSF_OK;
}

/* Opens every shard that the claims (sorted by file) name; absent files are listed together. */
static dsf_status open_shards(dsf_ckpt *c, const claim *claims, size_t n, dsf_faults *f)
{
    size_t files = 0;
    for (size_t i = 0; i < n; i++)
        files += i == 0 || strcmp(claims[i].file, claims[i - 1].file) != 0;
    if (files == 0 || files > SHARDS_MAX)
        return DSF_FAIL(DSF_ECORRUPT, "%s: index names %zu shards, allowed are 1 to %d", c->folder,
                        files, SHARDS_MAX);
    DSF_TRY(dsf_mem_new(&c->shard, files, sizeof *c->shard));
    for (size_t from = 0, to; from < n; from = to) {
        char path[4096];
        for (to = from + 1; to < n && strcmp(claims[to].file, claims[from].file) == 0;) to++;
        DSF_TRY(dsf_file_join(path, c->folder, claims[from].file));
        if (!dsf_file_exists(path)) {
            dsf_faults_add(f, "shard %s is not there (the index puts %zu tensors into it)",
                           claims[from].file, to - from);
            continue;
        }
        DSF_TRY(open_shard(c, claims[from].file));
        match_shard(&c->shard[c->n_shards - 1], claims + from, to - from, f);
    }
    return DSF_OK;
}

static dsf_status open_indexed(dsf_ckpt *c, const dsf_file *f)
{
    dsf_json_doc *doc = NULL;
    claim *claims = NULL;
    dsf_faults faults = {.n = 0};
    size_t n = 0;
    dsf_status st;
    DSF_TRY(dsf_json_parse(&doc, f->path, (const char *)f->data, f->size));
    const dsf_json *root = dsf_json_root(doc);
    DSF_TRY_OUT(read_total(c, root, f->path));
    DSF_TRY_OUT(read_claims(dsf_json_get(root, "weight_map"), f->path, &claims, &n));
    if (n) qsort(claims, n, sizeof *claims, claim_by_file);
    DSF_TRY_OUT(open_shards(c, claims, n, &faults));
    DSF_TRY_OUT(dsf_faults_status(&faults, DSF_ECORRUPT, f->path));
out:
    dsf_faults_free(&faults);
    dsf_mem_free(claims);
    dsf_json_free(doc);
    return st;
}

static bool is_aligned(const dsf_shard_entry *e)
{
    unsigned size = e->dtype == DSF_F32 ? 4 : e->dtype == DSF_BF16 ? 2 : 1;
    return e->offset % size == 0; /* the map begins on a page */
}

/* Copies are 64-byte slots of one block. */
static dsf_status make_copies(dsf_ckpt *c)
{
    uint64_t bytes = 0;
    for (int s = 0; s < c->n_shards; s++)
        for (int64_t i = 0; i < c->shard[s].n; i++) {
            const dsf_shard_entry *e = &c->shard[s].entry[i];
            if (is_aligned(e)) continue;
            bytes += (e->bytes + 63) / 64 * 64;
            if (bytes > COPIES_MAX)
                return DSF_FAIL(DSF_ENOTSUP,
                                "%s: %s at offset %" PRIu64 " is not aligned to its elements, and "
                                "such tensors take %" PRIu64 " bytes, at most %d",
                                c->shard[s].file.path, e->name, e->offset, bytes, COPIES_MAX);
        }
    return dsf_mem_new(&c->copies, bytes, 1);
}

static void add_entries(dsf_ckpt *c)
{
    uint64_t copied = 0;
    for (int s = 0; s < c->n_shards; s++) {
        const dsf_shard *sh = &c->shard[s];
        for (int64_t i = 0; i < sh->n; i++) {
            const dsf_shard_entry *e = &sh->entry[i];
            const uint8_t *data = sh->file.data + e->offset;
            if (!is_aligned(e)) {
                data = memcpy(c->copies + copied, data, e->bytes);
                copied += (e->bytes + 63) / 64 * 64;
            }
            dsf_ckpt_entry *out = &c->entry[c->n++];
            *out = (dsf_ckpt_entry){
                .name = e->name,
                .view = {.data = (void *)(uintptr_t)data, .dtype = e->dtype, .rank = e->rank},
                .shard = s,
                .offset = e->offset,
                .bytes = e->bytes};
            memcpy(out->view.dim, e->dim, sizeof e->dim);
            c->bytes += (int64_t)e->bytes;
        }
    }
}

static dsf_status build_table(dsf_ckpt *c)
{
    size_t n = 0;
    for (int s = 0; s < c->n_shards; s++) n += (size_t)c->shard[s].n;
    DSF_TRY(dsf_mem_new(&c->entry, n, sizeof *c->entry));
    DSF_TRY(make_copies(c));
    add_entries(c);
    if (n) qsort(c->entry, n, sizeof *c->entry, entry_by_name);
    return DSF_OK;
}

static dsf_status open_folder(dsf_ckpt *c)
{
    char path[4096];
    dsf_file f;
    DSF_TRY(dsf_file_join(path, c->folder, "model.safetensors.index.json"));
    if (dsf_file_exists(path)) {
        DSF_TRY(dsf_file_open(&f, path));
        dsf_status st = open_indexed(c, &f);
        dsf_file_close(&f);
        return st;
    }
    DSF_TRY(dsf_file_join(path, c->folder, "model.safetensors"));
    if (!dsf_file_exists(path))
        return DSF_FAIL(DSF_EIO,
                        "%s: neither model.safetensors.index.json nor model.safetensors is there",
                        c->folder);
    c->total_size = -1;
    DSF_TRY(dsf_mem_new(&c->shard, 1, sizeof *c->shard));
    return open_shard(c, "model.safetensors");
}

dsf_status dsf_ckpt_open(dsf_ckpt **out, const char *folder)
{
    dsf_ckpt *c = NULL;
    dsf_status st;
    *out = NULL;
    if (!dsf_file_is_folder(folder)) return DSF_FAIL(DSF_EIO, "%s: not a folder", folder);
    DSF_TRY(dsf_mem_new(&c, 1, sizeof *c));
    if (snprintf(c->folder, sizeof c->folder, "%s", folder) >= (int)sizeof c->folder) {
        st = DSF_FAIL(DSF_EINVAL, "path of %zu bytes is too long", strlen(folder));
        goto out;
    }
    DSF_TRY_OUT(open_folder(c));
    DSF_TRY_OUT(build_table(c));
    *out = c;
    return DSF_OK;
out:
    dsf_ckpt_close(c);
    return st;
}

void dsf_ckpt_close(dsf_ckpt *c)
{
    if (!c) return;
    for (int i = 0; i < c->n_shards; i++) dsf_safetensors_close(&c->shard[i]);
    dsf_mem_free(c->shard);
    dsf_mem_free(c->entry);
    dsf_mem_free(c->copies);
    dsf_mem_free(c);
}

const char *dsf_ckpt_folder(const dsf_ckpt *c) { return c->folder; }
int64_t dsf_ckpt_count(const dsf_ckpt *c) { return c->n; }
const dsf_ckpt_entry *dsf_ckpt_at(const dsf_ckpt *c, int64_t i) { return &c->entry[i]; }
int dsf_ckpt_shards(const dsf_ckpt *c) { return c->n_shards; }
const char *dsf_ckpt_shard_path(const dsf_ckpt *c, int shard) { return c->shard[shard].file.path; }
int64_t dsf_ckpt_bytes(const dsf_ckpt *c) { return c->bytes; }
int64_t dsf_ckpt_total_size(const dsf_ckpt *c) { return c->total_size; }

const dsf_ckpt_entry *dsf_ckpt_find(const dsf_ckpt *c, const char *name)
{
    dsf_ckpt_entry key = {.name = name};
    return c->n ? bsearch(&key, c->entry, (size_t)c->n, sizeof key, entry_by_name) : NULL;
}

dsf_status dsf_ckpt_get(const dsf_ckpt *c, const char *name, dsf_tensor *out)
{
    const dsf_ckpt_entry *e = dsf_ckpt_find(c, name);
    if (!e) return DSF_FAIL(DSF_ECORRUPT, "%s: no tensor %s", c->folder, name);
    *out = e->view;
    return DSF_OK;
}

static dsf_status digest(const dsf_ckpt *c, bool content, char out[33])
{
    dsf_digest *d;
    DSF_TRY(dsf_digest_open(&d));
    for (int64_t i = 0; i < c->n; i++) {
        const dsf_ckpt_entry *e = &c->entry[i];
        char line[128];
        const int64_t *dim = e->view.dim; /* dimensions past the rank are 0 */
        int n = snprintf(line, sizeof line,
                         " %s %d %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %" PRIu64 "\n",
                         dsf_safetensors_dtype(e->view.dtype), e->view.rank, dim[0], dim[1], dim[2],
                         dim[3], e->bytes);
        dsf_digest_add(d, e->name, strlen(e->name));
        dsf_digest_add(d, line, (size_t)n);
        if (content) dsf_digest_add(d, e->view.data, e->bytes);
    }
    dsf_digest_hex(d, out);
    dsf_digest_close(d);
    return DSF_OK;
}

dsf_status dsf_ckpt_digest(const dsf_ckpt *c, char out[33]) { return digest(c, false, out); }
dsf_status dsf_ckpt_digest_content(const dsf_ckpt *c, char out[33]) { return digest(c, true, out); }
