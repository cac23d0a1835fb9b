#include "verify/dump/reader.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "verify/dump/h5.h"
#include "verify/dump/listing.h"
#include "verify/dump/probe.h"

/* READ_BYTES: one answer; EXPANSION: no deflate stream grows more than 1032 times, so a file cannot
 * hold more than this many times its size. SLACK covers what a small file may leave to fill values.
 */
enum { ATTRIBUTE_BYTES = 1 << 20, EXPANSION = 1032 };
static const int64_t read_bytes = INT64_C(8) << 30, slack = INT64_C(1) << 24;

struct dsf_dump_file {
    hid_t file;
    dsf_buf text[11]; /* root attributes, in the order of root_names */
    dsf_dump_info info;
    dsf_listing list;
    int64_t bytes; /* of the file */
};

static const char *const root_names[] = {
    "schema",   "producer",          "model",       "notes",       "mode",   "backend",
    "variants", "checkpoint_digest", "plan_digest", "config_json", "stopped"};

static const char *text_of(const dsf_dump_file *f, int i)
{
    return f->text[i].data ? f->text[i].data : "";
}

static dsf_status check_schema(const dsf_dump_file *f)
{
    const char *s = text_of(f, 0), *p = f->info.path;
    if (!*s) return DSF_FAIL(DSF_ECORRUPT, "%s: no attribute schema: not a dump", p);
    if (strcmp(s, DSF_DUMP_SCHEMA) == 0) return DSF_OK;
    size_t stem = strlen(DSF_DUMP_SCHEMA) - 1; /* up to the major number */
    if (strncmp(s, DSF_DUMP_SCHEMA, stem) != 0)
        return DSF_FAIL(DSF_ECORRUPT, "%s: schema %.40s: not a dump, which says %s", p, s,
                        DSF_DUMP_SCHEMA);
    /* dsv41-dump-1.x only adds; another major number means other things by the same names */
    if (s[stem] == '1' && s[stem + 1] == '.') return DSF_OK;
    return DSF_FAIL(DSF_ENOTSUP, "%s: schema %.40s, this reader knows %s", p, s, DSF_DUMP_SCHEMA);
}

static dsf_status read_root(dsf_dump_file *f)
{
    for (int i = 0; i < 11; i++) {
        bool found;
        DSF_TRY(dsf_h5_get_str(f->file, f->info.path, root_names[i], ATTRIBUTE_BYTES, &f->text[i],
                               &found));
    }
    dsf_dump_info *in = &f->info;
    in->schema = text_of(f, 0);
    in->producer = text_of(f, 1);
    in->model = text_of(f, 2);
    in->notes = text_of(f, 3);
    in->mode = text_of(f, 4);
    in->backend = text_of(f, 5);
    in->variants = text_of(f, 6);
    in->checkpoint_digest = text_of(f, 7);
    in->plan_digest = text_of(f, 8);
    in->config_json = text_of(f, 9);
    in->stopped = text_of(f, 10);
    DSF_TRY(check_schema(f));
    in->geometry.pool_layer = -1;
    if (f->text[9].len) {
        char name[4200];
        (void)snprintf(name, sizeof name, "%s: config_json", in->path);
        DSF_TRY(dsf_dump_geometry_parse(&in->geometry, name, in->config_json, f->text[9].len));
        in->has_geometry = in->geometry.n_layers > 0;
    }
    return DSF_OK;
}

/* Without a config the backbone is what layers/ shows. */
static void guess_layers(dsf_dump_file *f)
{
    if (f->info.has_geometry) return;
    for (int64_t i = 0; i < f->list.n; i++) {
        int layer = -1;
        if (sscanf(f->list.entry[i].path, "layers/%3d/", &layer) == 1 &&
            layer >= f->info.geometry.n_layers && layer < DSF_DUMP_MAX_LAYERS)
            f->info.geometry.n_layers = layer + 1;
    }
}

static dsf_status read_contents(dsf_dump_file *f)
{
    DSF_TRY(read_root(f));
    f->info.prompt_length = -1;
    DSF_TRY(dsf_h5_get_int(f->file, f->info.path, "prompt_length", &f->info.prompt_length));
    DSF_TRY(dsf_listing_make(&f->list, f->file, f->info.path, f->info.partial));
    f->info.n_unreadable = f->list.n_broken;
    guess_layers(f);
    int32_t *ids = NULL;
    DSF_TRY(dsf_dump_read_axis(f, "token_ids", &ids, &f->info.n_tokens));
    dsf_mem_free(ids);
    if (f->info.prompt_length < 0) f->info.prompt_length = f->info.n_tokens;
    return DSF_OK;
}

static bool is_part(const char *path)
{
    size_t n = strlen(path);
    return n > 5 && strcmp(path + n - 5, ".part") == 0;
}

static dsf_status open_here(dsf_dump_file **out, const char *name, hid_t fapl, int64_t bytes)
{
    dsf_dump_file *f = NULL;
    DSF_TRY(dsf_mem_new(&f, 1, sizeof *f));
    dsf_status st = DSF_OK;
    size_t n = strlen(name);
    char *copy = NULL;
    f->bytes = bytes;
    f->file = -1;
    DSF_TRY_OUT(dsf_mem_new(&copy, n + 1, 1));
    memcpy(copy, name, n + 1);
    f->info.path = copy;
    f->info.partial = is_part(name);
    f->file = H5Fopen(name, H5F_ACC_RDONLY, fapl);
    if (f->file < 0) DSF_TRY_OUT(dsf_h5_fail(DSF_ECORRUPT, name, "not a readable HDF5 file"));
    DSF_TRY_OUT(read_contents(f));
    *out = f;
    return DSF_OK;
out:
    dsf_dump_close(f);
    return st;
}

typedef struct {
    const char *name;
    hid_t fapl;
    int64_t bytes;
} opening;

/* Everything that a caller may ask for, in pieces: of a file larger than this, its beginning. */
static void read_through(void *ud)
{
    const opening *o = ud;
    const int64_t most = INT64_C(1) << 30;
    dsf_dump_file *f = NULL;
    int64_t sum = 0;
    if (open_here(&f, o->name, o->fapl, o->bytes) != DSF_OK || !f) return;
    for (int64_t i = 0; i < f->list.n && sum < most; i++) {
        const dsf_dump_entry *e = &f->list.entry[i];
        dsf_dump_array a = {0};
        dsf_dump_stat_row *row = NULL;
        int64_t n = 0, bytes = 8;
        for (int k = 1; k < e->rank && e->readable; k++) bytes *= e->dim[k] ? e->dim[k] : 1;
        int64_t rows = most / (bytes < most ? bytes : most);
        if (rows > e->dim[0]) rows = e->dim[0];
        dsf_status st = e->stats ? dsf_dump_read_stats(f, e->path, &row, &n)
                                 : dsf_dump_read_range(f, e->path, 0, rows, &a);
        if (st == DSF_OK) sum += rows * bytes;
        dsf_dump_array_free(&a);
        dsf_mem_free(row);
    }
    dsf_dump_close(f);
}

static dsf_status open_with(dsf_dump_file **out, const char *name, hid_t fapl, int64_t bytes)
{
    opening o = {name, fapl, bytes};
    DSF_TRY(dsf_probe(name, read_through, &o));
    return open_here(out, name, fapl, bytes);
}

/* No locks: golden folders are read-only, and a .part may still be written. No filters from
 * outside: a file must not load code. */
static hid_t access_list(void)
{
    dsf_h5_quiet();
    (void)H5PLset_loading_state(0);
    hid_t fapl = H5Pcreate(H5P_FILE_ACCESS);
    if (fapl >= 0) (void)H5Pset_fclose_degree(fapl, H5F_CLOSE_STRONG);
#if H5_VERSION_GE(1, 10, 7)
    if (fapl >= 0) (void)H5Pset_file_locking(fapl, 0, 1);
#endif
    return fapl;
}

/* What a killed run committed lies in the file and its log. */
static dsf_status use_log(const char *path, hid_t fapl, int64_t *bytes)
{
    char log[4200];
    struct stat s;
    (void)snprintf(log, sizeof log, "%s.log", path);
    if (stat(log, &s) == 0) *bytes += (int64_t)s.st_size;
    return dsf_h5_use_driver(fapl, NULL);
}

dsf_status dsf_dump_open(dsf_dump_file **out, const char *path)
{
    *out = NULL;
    struct stat s;
    if (stat(path, &s) != 0) {
        char part[4200];
        (void)snprintf(part, sizeof part, "%s.part", path);
        return stat(part, &s) == 0
                   ? DSF_FAIL(DSF_EIO,
                              "%s: not there, but %s is: a run that was killed; dsf dump --recover "
                              "makes a file of it",
                              path, part)
                   : DSF_FAIL(DSF_EIO, "%s: no such file", path);
    }
    if (!S_ISREG(s.st_mode)) return DSF_FAIL(DSF_EIO, "%s: not a regular file", path);
    hid_t fapl = access_list();
    int64_t bytes = (int64_t)s.st_size;
    dsf_status st = is_part(path) ? use_log(path, fapl, &bytes) : DSF_OK;
    if (st == DSF_OK) st = open_with(out, path, fapl, bytes);
    if (fapl >= 0) (void)H5Pclose(fapl);
    return st;
}

dsf_status dsf_dump_open_bytes(dsf_dump_file **out, const char *name, const void *data, size_t n)
{
    *out = NULL;
    if (n == 0) return DSF_FAIL(DSF_ECORRUPT, "%s: 0 bytes", name);
    hid_t fapl = access_list();
    void *copy = NULL;
    dsf_status st = dsf_mem_new(&copy, n, 1);
    if (st == DSF_OK) {
        memcpy(copy, data, n);
        if (H5Pset_fapl_core(fapl, 1 << 16, 0) < 0 || H5Pset_file_image(fapl, copy, n) < 0)
            st = dsf_h5_fail(DSF_EIO, name, "image");
    }
    if (st == DSF_OK) st = open_with(out, name, fapl, (int64_t)n);
    dsf_mem_free(copy);
    if (fapl >= 0) (void)H5Pclose(fapl);
    return st;
}

void dsf_dump_close(dsf_dump_file *f)
{
    if (!f) return;
    if (f->file >= 0) (void)H5Fclose(f->file);
    for (int i = 0; i < 11; i++) dsf_buf_free(&f->text[i]);
    dsf_listing_free(&f->list);
    dsf_mem_free((void *)(uintptr_t)f->info.path);
    dsf_mem_free(f);
}

const dsf_dump_info *dsf_dump_info_of(const dsf_dump_file *f) { return &f->info; }
int64_t dsf_dump_count(const dsf_dump_file *f) { return f->list.n; }
const dsf_dump_entry *dsf_dump_at(const dsf_dump_file *f, int64_t i) { return &f->list.entry[i]; }

static int by_path(const void *key, const void *entry)
{
    return strcmp(key, ((const dsf_dump_entry *)entry)->path);
}

const dsf_dump_entry *dsf_dump_find(const dsf_dump_file *f, const char *path)
{
    if (*path == '/') path++;
    return f->list.n
               ? bsearch(path, f->list.entry, (size_t)f->list.n, sizeof *f->list.entry, by_path)
               : NULL;
}

/* n elements of `size` bytes: at most what the file can hold, and what one answer may take. */
static dsf_status check_bytes(const dsf_dump_file *f, const char *path, double n, double size)
{
    double bytes = n * size;
    if (bytes > (double)read_bytes)
        return DSF_FAIL(DSF_ENOMEM, "%s: /%s: %.0f bytes at once, at most %lld", f->info.path, path,
                        bytes, (long long)read_bytes);
    if (bytes > (double)slack + (double)EXPANSION * (double)f->bytes)
        return DSF_FAIL(DSF_ECORRUPT, "%s: /%s: %.0f bytes in a file of %lld", f->info.path, path,
                        bytes, (long long)f->bytes);
    return DSF_OK;
}

typedef struct {
    hid_t memory;
    size_t size;
    int64_t from, n;
} range;

static dsf_status read_rows(const dsf_dump_file *f, const dsf_dump_entry *e, range r, void **out)
{
    double elements = (double)r.n;
    hsize_t at[4] = {(hsize_t)r.from}, count[4] = {(hsize_t)r.n};
    for (int i = 1; i < e->rank; i++) {
        elements *= (double)e->dim[i];
        count[i] = (hsize_t)e->dim[i];
    }
    *out = NULL;
    if (elements == 0.0) return DSF_OK;
    DSF_TRY(check_bytes(f, e->path, elements, (double)r.size));
    DSF_TRY(dsf_mem_new(out, (size_t)elements, r.size));
    hid_t set = H5Dopen2(f->file, e->path, H5P_DEFAULT), space = -1, mem = -1;
    if (set >= 0) space = H5Dget_space(set);
    if (set >= 0) mem = H5Screate_simple(e->rank, count, NULL);
    bool good = space >= 0 && mem >= 0 &&
                H5Sselect_hyperslab(space, H5S_SELECT_SET, at, NULL, count, NULL) >= 0 &&
                H5Dread(set, r.memory, mem, space, H5P_DEFAULT, *out) >= 0;
    dsf_status st = good ? DSF_OK : dsf_h5_fail(DSF_ECORRUPT, f->info.path, e->path);
    if (mem >= 0) (void)H5Sclose(mem);
    if (space >= 0) (void)H5Sclose(space);
    if (set >= 0) (void)H5Dclose(set);
    if (good) return st;
    dsf_mem_free(*out);
    *out = NULL;
    return st;
}

dsf_status dsf_dump_read_axis(dsf_dump_file *f, const char *path, int32_t **data, int64_t *n)
{
    if (*path == '/') path++;
    *data = NULL;
    *n = 0;
    dsf_dump_entry e;
    bool found;
    DSF_TRY(dsf_listing_describe(f->file, f->info.path, path, &e, &found));
    if (!found) return DSF_OK;
    if (!e.readable || e.rank != 1 || e.kind == DSF_DUMP_F32)
        return DSF_FAIL(DSF_ECORRUPT, "%s: /%s: integers of one dimension wanted; it is %s",
                        f->info.path, path, e.readable ? "of another type or rank" : e.why);
    void *got;
    DSF_TRY(read_rows(f, &e, (range){H5T_NATIVE_INT32, 4, 0, e.dim[0]}, &got));
    *data = got;
    *n = e.dim[0];
    return DSF_OK;
}

static dsf_status read_labels(dsf_dump_file *f, const dsf_dump_entry *e, range r,
                              dsf_dump_array *out)
{
    int32_t *all = NULL;
    int64_t n;
    DSF_TRY(dsf_dump_read_axis(f, e->rows, &all, &n));
    /* A killed run may have labels whose rows did not arrive any more. */
    bool fits = f->info.partial ? n >= e->dim[0] : n == e->dim[0];
    dsf_status st = DSF_OK;
    if (!fits)
        st = DSF_FAIL(DSF_ECORRUPT, "%s: /%s has %lld rows, its labels %s have %lld", f->info.path,
                      e->path, (long long)e->dim[0], e->rows, (long long)n);
    if (st == DSF_OK) st = dsf_dump_check_labels(f, e, all, e->dim[0]);
    if (st == DSF_OK) st = dsf_mem_new(&out->label, (size_t)r.n, sizeof *out->label);
    if (st == DSF_OK && r.n) memcpy(out->label, all + r.from, (size_t)r.n * sizeof *all);
    dsf_mem_free(all);
    return st;
}

static dsf_status find_rows(const dsf_dump_file *f, const char *path, int64_t from, int64_t n,
                            const dsf_dump_entry **out)
{
    const dsf_dump_entry *e = dsf_dump_find(f, path);
    if (!e) return DSF_FAIL(DSF_EINVAL, "%s: no /%s", f->info.path, path);
    if (!e->readable) return DSF_FAIL(DSF_ECORRUPT, "%s: /%s: %s", f->info.path, path, e->why);
    if (from < 0 || n < 0 || from > e->dim[0] - n)
        return DSF_FAIL(DSF_EINVAL, "%s: /%s: rows %lld + %lld of %lld", f->info.path, path,
                        (long long)from, (long long)n, (long long)e->dim[0]);
    *out = e;
    return DSF_OK;
}

dsf_status dsf_dump_read_stored(dsf_dump_file *f, const char *path, int64_t from, int64_t n,
                                void **data)
{
    const dsf_dump_entry *e = NULL;
    DSF_TRY(find_rows(f, path, from, n, &e));
    const hid_t native[] = {[DSF_DUMP_F32] = H5T_NATIVE_FLOAT,
                            [DSF_DUMP_I32] = H5T_NATIVE_INT32,
                            [DSF_DUMP_I64] = H5T_NATIVE_INT64,
                            [DSF_DUMP_U8] = H5T_NATIVE_UINT8};
    const range r = {native[e->kind], (size_t)dsf_dump_kind_bytes(e->kind), from, n};
    return read_rows(f, e, r, data);
}

dsf_status dsf_dump_read_range(dsf_dump_file *f, const char *path, int64_t from, int64_t n,
                               dsf_dump_array *out)
{
    *out = (dsf_dump_array){0};
    const dsf_dump_entry *e = NULL;
    DSF_TRY(find_rows(f, path, from, n, &e));
    dsf_dump_array a = {.n = n, .width = 1, .rank = e->rank, .source = e->source};
    bool real = e->kind == DSF_DUMP_F32;
    if (!e->has_source) a.source = real ? DSF_SRC_F32 : DSF_SRC_INT;
    memcpy(a.dim, e->dim, sizeof a.dim);
    a.dim[0] = n;
    for (int i = 1; i < e->rank; i++) a.width *= e->dim[i];
    range r = {real ? H5T_NATIVE_FLOAT : H5T_NATIVE_INT64, real ? 4 : 8, from, n};
    void *data = NULL;
    dsf_status st = DSF_OK;
    DSF_TRY_OUT(read_labels(f, e, r, &a));
    DSF_TRY_OUT(read_rows(f, e, r, &data));
    if (real)
        a.f = data;
    else
        a.i = data;
    *out = a;
    return DSF_OK;
out:
    dsf_dump_array_free(&a);
    return st;
}

dsf_status dsf_dump_read(dsf_dump_file *f, const char *path, dsf_dump_array *out)
{
    const dsf_dump_entry *e = dsf_dump_find(f, path);
    return dsf_dump_read_range(f, path, 0, e ? e->dim[0] : 0, out);
}

void dsf_dump_array_free(dsf_dump_array *a)
{
    dsf_mem_free(a->f);
    dsf_mem_free(a->i);
    dsf_mem_free(a->label);
    *a = (dsf_dump_array){0};
}

static hid_t stat_type(void)
{
    static const struct {
        const char *name;
        size_t offset;
        bool real;
    } field[] = {
        {"count", offsetof(dsf_dump_stat_row, count), false},
        {"nan", offsetof(dsf_dump_stat_row, nan), false},
        {"inf", offsetof(dsf_dump_stat_row, inf), false},
        {"min", offsetof(dsf_dump_stat_row, min), true},
        {"max", offsetof(dsf_dump_stat_row, max), true},
        {"mean", offsetof(dsf_dump_stat_row, mean), true},
        {"rms", offsetof(dsf_dump_stat_row, rms), true},
        {"hash", offsetof(dsf_dump_stat_row, hash), false},
    };
    hid_t t = H5Tcreate(H5T_COMPOUND, sizeof(dsf_dump_stat_row));
    for (unsigned i = 0; t >= 0 && i < sizeof field / sizeof *field; i++)
        (void)H5Tinsert(t, field[i].name, field[i].offset,
                        field[i].real ? H5T_NATIVE_DOUBLE : H5T_NATIVE_UINT64);
    return t;
}

dsf_status dsf_dump_read_stats(dsf_dump_file *f, const char *path, dsf_dump_stat_row **out,
                               int64_t *n)
{
    const dsf_dump_entry *e = dsf_dump_find(f, path);
    if (!e || !e->stats || e->rank != 1)
        return DSF_FAIL(DSF_EINVAL, "%s: no statistics at /%s", f->info.path, path);
    hid_t type = stat_type();
    void *data = NULL;
    dsf_status st = read_rows(f, e, (range){type, sizeof **out, 0, e->dim[0]}, &data);
    if (type >= 0) (void)H5Tclose(type);
    if (st != DSF_OK) return st;
    *out = data;
    *n = e->dim[0];
    return DSF_OK;
}
