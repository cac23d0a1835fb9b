/* File: u64 little-endian header length, that many bytes of JSON (an object: name -> dtype, shape,
 * data_offsets relative to the end of the header; plus __metadata__), then the data. */
#include "ckpt/safetensors.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"

enum {
    HEADER_MAX = 100000000, /* the format's own limit */
    NAME_MAX_BYTES = 512
};

static const struct {
    const char *text;
    dsf_dtype dtype;
} dtypes[] = {{"BF16", DSF_BF16},
              {"F32", DSF_F32},
              {"F8_E4M3", DSF_E4M3},
              {"F8_E8M0", DSF_E8M0},
              {"I8", DSF_E2M1X2}};

enum { N_DTYPES = sizeof dtypes / sizeof dtypes[0] };

const char *dsf_safetensors_dtype(dsf_dtype t)
{
    for (int i = 0; i < N_DTYPES; i++)
        if (dtypes[i].dtype == t) return dtypes[i].text;
    return dsf_dtype_name(t);
}

/* What the parse of one header needs at hand. */
typedef struct {
    dsf_shard *s;
    const char *path;
    uint64_t data_at, data_bytes;
    size_t names_used;
} header;

static dsf_status parse_dtype(const header *h, const char *name, const dsf_json *v,
                              dsf_shard_entry *e)
{
    const char *text = v ? dsf_json_text(v, NULL) : "";
    for (int i = 0; i < N_DTYPES; i++) {
        if (strcmp(text, dtypes[i].text) != 0) continue;
        e->dtype = dtypes[i].dtype;
        return DSF_OK;
    }
    return DSF_FAIL(DSF_ECORRUPT,
                    "%s: %s: dtype \"%.32s\"; this format has BF16, F32, F8_E4M3, F8_E8M0 and I8",
                    h->path, name, text);
}

/* Shape, and its size in bytes in *bytes. */
static dsf_status parse_shape(const header *h, const char *name, const dsf_json *v,
                              dsf_shard_entry *e, uint64_t *bytes)
{
    if (!v || dsf_json_kind_of(v) != DSF_JSON_ARRAY)
        return DSF_FAIL(DSF_ECORRUPT, "%s: %s: shape is not an array", h->path, name);
    uint64_t count = (uint64_t)dsf_dtype_bytes(e->dtype, 1);
    for (const dsf_json *d = dsf_json_first(v); d; d = dsf_json_next(d)) {
        if (e->rank == DSF_MAX_RANK)
            return DSF_FAIL(DSF_ECORRUPT, "%s: %s: shape has %zu dimensions, at most %d", h->path,
                            name, dsf_json_count(v), DSF_MAX_RANK);
        int64_t n;
        if (dsf_json_int(d, &n) != DSF_OK || n < 0)
            return DSF_FAIL(DSF_ECORRUPT, "%s: %s: shape[%d] is %.32s, not a size", h->path, name,
                            e->rank, dsf_json_text(d, NULL));
        e->dim[e->rank++] = n;
        if (__builtin_mul_overflow(count, (uint64_t)n, &count))
            return DSF_FAIL(DSF_ECORRUPT, "%s: %s: shape has more than 2^64 bytes", h->path, name);
    }
    *bytes = count;
    return DSF_OK;
}

static dsf_status parse_offsets(const header *h, const char *name, const dsf_json *v,
                                dsf_shard_entry *e)
{
    const dsf_json *a = v && dsf_json_kind_of(v) == DSF_JSON_ARRAY && dsf_json_count(v) == 2
                            ? dsf_json_first(v)
                            : NULL;
    int64_t from, to;
    if (!a || dsf_json_int(a, &from) != DSF_OK || dsf_json_int(dsf_json_next(a), &to) != DSF_OK)
        return DSF_FAIL(DSF_ECORRUPT, "%s: %s: data_offsets is not a pair of integers", h->path,
                        name);
    if (from < 0 || to < from || (uint64_t)to > h->data_bytes)
        return DSF_FAIL(DSF_ECORRUPT,
                        "%s: %s: data_offsets [%lld, %lld] outside the data of %llu bytes", h->path,
                        name, (long long)from, (long long)to, (unsigned long long)h->data_bytes);
    e->offset = h->data_at + (uint64_t)from;
    e->bytes = (uint64_t)(to - from);
    return DSF_OK;
}

static dsf_status check_members(const header *h, const char *name, const dsf_json *v)
{
    if (dsf_json_kind_of(v) != DSF_JSON_OBJECT)
        return DSF_FAIL(DSF_ECORRUPT, "%s: %s: entry is %s, not an object", h->path, name,
                        dsf_json_kind_name(dsf_json_kind_of(v)));
    for (const dsf_json *m = dsf_json_first(v); m; m = dsf_json_next(m)) {
        const char *key = dsf_json_key(m);
        if (strcmp(key, "dtype") != 0 && strcmp(key, "shape") != 0 &&
            strcmp(key, "data_offsets") != 0)
            return DSF_FAIL(DSF_ECORRUPT, "%s: %s: unknown member \"%.64s\"", h->path, name, key);
        if (dsf_json_get(v, key) != m)
            return DSF_FAIL(DSF_ECORRUPT, "%s: %s: member \"%s\" occurs twice", h->path, name, key);
    }
    return DSF_OK;
}

static dsf_status check_name(const header *h, const char *name)
{
    size_t n = strlen(name);
    if (n == 0 || n > NAME_MAX_BYTES)
        return DSF_FAIL(DSF_ECORRUPT, "%s: tensor name of %zu bytes, allowed are 1 to %d", h->path,
                        n, NAME_MAX_BYTES);
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)name[i] <= 0x20 || (unsigned char)name[i] >= 0x7F)
            return DSF_FAIL(DSF_ECORRUPT,
                            "%s: tensor name with byte 0x%02x at %zu; names are printable ASCII",
                            h->path, (unsigned char)name[i], i);
    return DSF_OK;
}

static dsf_status parse_entry(header *h, const dsf_json *v, dsf_shard_entry *e)
{
    const char *name = dsf_json_key(v);
    uint64_t bytes = 0;
    DSF_TRY(check_name(h, name));
    DSF_TRY(check_members(h, name, v));
    DSF_TRY(parse_dtype(h, name, dsf_json_get(v, "dtype"), e));
    DSF_TRY(parse_shape(h, name, dsf_json_get(v, "shape"), e, &bytes));
    DSF_TRY(parse_offsets(h, name, dsf_json_get(v, "data_offsets"), e));
    if (bytes != e->bytes)
        return DSF_FAIL(DSF_ECORRUPT, "%s: %s: shape and dtype have %llu bytes, data_offsets %llu",
                        h->path, name, (unsigned long long)bytes, (unsigned long long)e->bytes);
    size_t n = strlen(name) + 1;
    e->name = memcpy(h->s->names + h->names_used, name, n);
    h->names_used += n;
    return DSF_OK;
}

static dsf_status check_metadata(const header *h, const dsf_json *v)
{
    if (dsf_json_kind_of(v) != DSF_JSON_OBJECT)
        return DSF_FAIL(DSF_ECORRUPT, "%s: __metadata__ is not an object", h->path);
    for (const dsf_json *m = dsf_json_first(v); m; m = dsf_json_next(m))
        if (dsf_json_kind_of(m) != DSF_JSON_STRING)
            return DSF_FAIL(DSF_ECORRUPT, "%s: __metadata__: \"%.64s\" is %s, not a string",
                            h->path, dsf_json_key(m), dsf_json_kind_name(dsf_json_kind_of(m)));
    return DSF_OK;
}

static int by_offset(const void *a, const void *b)
{
    const dsf_shard_entry *x = a, *y = b;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes); /* empty tensors first */
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const dsf_shard_entry *)a)->name, ((const dsf_shard_entry *)b)->name);
}

/* The format's rule: the data cover the file after the header exactly once. */
static dsf_status check_cover(const header *h)
{
    const dsf_shard *s = h->s;
    uint64_t at = h->data_at;
    if (s->n) qsort(s->entry, (size_t)s->n, sizeof *s->entry, by_offset);
    for (int64_t i = 0; i < s->n; i++) {
        const dsf_shard_entry *e = &s->entry[i];
        if (e->offset < at)
            return DSF_FAIL(DSF_ECORRUPT,
                            "%s: %s overlaps %s: it begins at %llu, that ends at %llu", h->path,
                            e->name, s->entry[i - 1].name, (unsigned long long)e->offset,
                            (unsigned long long)at);
        if (e->offset > at)
            return DSF_FAIL(DSF_ECORRUPT, "%s: %llu unclaimed bytes at %llu, before %s", h->path,
                            (unsigned long long)(e->offset - at), (unsigned long long)at, e->name);
        at += e->bytes;
    }
    if (at != s->file.size)
        return DSF_FAIL(DSF_ECORRUPT,
                        "%s: %llu unclaimed bytes after the last tensor: data end at "
                        "%llu, the file at %zu",
                        h->path, (unsigned long long)(s->file.size - at), (unsigned long long)at,
                        s->file.size);
    return DSF_OK;
}

static dsf_status sort_names(const header *h)
{
    const dsf_shard *s = h->s;
    if (s->n) qsort(s->entry, (size_t)s->n, sizeof *s->entry, by_name);
    for (int64_t i = 1; i < s->n; i++)
        if (strcmp(s->entry[i - 1].name, s->entry[i].name) == 0)
            return DSF_FAIL(DSF_ECORRUPT, "%s: tensor %s occurs twice", h->path, s->entry[i].name);
    return DSF_OK;
}

static dsf_status parse_entries(header *h, const dsf_json *root)
{
    dsf_shard *s = h->s;
    size_t n = 0, bytes = 0;
    if (dsf_json_kind_of(root) != DSF_JSON_OBJECT)
        return DSF_FAIL(DSF_ECORRUPT, "%s: header is %s, not an object", h->path,
                        dsf_json_kind_name(dsf_json_kind_of(root)));
    for (const dsf_json *v = dsf_json_first(root); v; v = dsf_json_next(v), n++)
        bytes += strlen(dsf_json_key(v)) + 1;
    DSF_TRY(dsf_mem_new(&s->entry, n, sizeof *s->entry));
    DSF_TRY(dsf_mem_new(&s->names, bytes, 1));
    bool metadata = false;
    for (const dsf_json *v = dsf_json_first(root); v; v = dsf_json_next(v)) {
        if (strcmp(dsf_json_key(v), "__metadata__") != 0) {
            DSF_TRY(parse_entry(h, v, &s->entry[s->n]));
            s->n++;
            continue;
        }
        if (metadata) return DSF_FAIL(DSF_ECORRUPT, "%s: __metadata__ occurs twice", h->path);
        metadata = true;
        DSF_TRY(check_metadata(h, v));
    }
    DSF_TRY(sort_names(h));
    DSF_TRY(check_cover(h));
    return sort_names(h);
}

static uint64_t get_u64(const uint8_t *p)
{
    uint64_t v = 0;
    for (int i = 7; i >= 0; i--) v = v << 8 | p[i];
    return v;
}

static dsf_status parse_header(dsf_shard *s)
{
    header h = {.s = s, .path = s->file.path};
    const uint8_t *p;
    if (s->file.size < 8)
        return DSF_FAIL(DSF_ECORRUPT, "%s: %zu bytes, a header length needs 8", h.path,
                        s->file.size);
    DSF_TRY(dsf_file_at(&s->file, 0, 8, &p));
    uint64_t n = get_u64(p);
    if (n < 2 || n > HEADER_MAX || n > s->file.size - 8)
        return DSF_FAIL(DSF_ECORRUPT,
                        "%s: header length %llu; allowed are 2 to %d, and %zu bytes follow", h.path,
                        (unsigned long long)n, HEADER_MAX, s->file.size - 8);
    h.data_at = 8 + n;
    h.data_bytes = s->file.size - h.data_at;
    DSF_TRY(dsf_file_at(&s->file, 8, n, &p));
    if (*p != '{')
        return DSF_FAIL(DSF_ECORRUPT, "%s: header begins with byte 0x%02x, not {", h.path, *p);
    dsf_json_doc *doc = NULL;
    DSF_TRY(dsf_json_parse(&doc, h.path, (const char *)p, n));
    dsf_status st = parse_entries(&h, dsf_json_root(doc));
    dsf_json_free(doc);
    return st;
}

dsf_status dsf_safetensors_parse(dsf_shard *s, dsf_file *file)
{
    *s = (dsf_shard){.file = *file};
    file->data = NULL;
    file->size = 0;
    dsf_status st = parse_header(s);
    if (st != DSF_OK) dsf_safetensors_close(s);
    return st;
}

dsf_status dsf_safetensors_open(dsf_shard *s, const char *path)
{
    dsf_file f;
    *s = (dsf_shard){.n = 0};
    DSF_TRY(dsf_file_open(&f, path));
    return dsf_safetensors_parse(s, &f);
}

void dsf_safetensors_close(dsf_shard *s)
{
    dsf_mem_free(s->entry);
    dsf_mem_free(s->names);
    dsf_file_close(&s->file);
    s->entry = NULL;
    s->names = NULL;
    s->n = 0;
}

const dsf_shard_entry *dsf_safetensors_find(const dsf_shard *s, const char *name)
{
    dsf_shard_entry key = {.name = name};
    return s->n ? bsearch(&key, s->entry, (size_t)s->n, sizeof key, by_name) : NULL;
}
