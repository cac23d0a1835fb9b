#include "verify/dump/series.h"

#include <stddef.h>
#include <string.h>

#include "base/mem.h"

/* Chunks of rows: of a MiB, written as they are; or small enough to wait in memory until one is
 * whole, and then compressed. Records and labels have chunks of their own size. */
enum {
    CHUNK_BYTES = 1 << 20,
    CHUNK_ROWS = 512,
    PACKED_BYTES = 256 << 10,
    PACKED_ROWS = 64,
    RECORD_ROWS = 64,
    LABEL_ROWS = 4096,
    DEFLATE = 1
};

int64_t dsf_series_row_bytes(const dsf_series *s)
{
    return s->plan.width * dsf_dump_kind_bytes(s->plan.kind);
}

static hid_t memory_type(dsf_dump_kind k)
{
    switch (k) {
    case DSF_DUMP_F32:
        return H5T_NATIVE_FLOAT;
    case DSF_DUMP_I32:
        return H5T_NATIVE_INT32;
    case DSF_DUMP_I64:
        return H5T_NATIVE_INT64;
    default:
        return H5T_NATIVE_UINT8;
    }
}

/* The compound of /stats, in memory (packed = false: the struct's own offsets) or in the file. */
static hid_t stat_type(bool packed)
{
    static const struct {
        const char *name;
        size_t offset;
        bool real;
    } field[] = {
        {"count", offsetof(dsf_dump_stat, count), false},
        {"nan", offsetof(dsf_dump_stat, nan), false},
        {"inf", offsetof(dsf_dump_stat, inf), false},
        {"min", offsetof(dsf_dump_stat, min), true},
        {"max", offsetof(dsf_dump_stat, max), true},
        {"mean", offsetof(dsf_dump_stat, mean), true},
        {"rms", offsetof(dsf_dump_stat, rms), true},
        {"hash", offsetof(dsf_dump_stat, hash), false},
    };
    hid_t t = H5Tcreate(H5T_COMPOUND, sizeof(dsf_dump_stat));
    for (unsigned i = 0; t >= 0 && i < sizeof field / sizeof *field; i++) {
        hid_t stored = field[i].real ? H5T_IEEE_F64LE : H5T_STD_U64LE;
        hid_t native = field[i].real ? H5T_NATIVE_DOUBLE : H5T_NATIVE_UINT64;
        (void)H5Tinsert(t, field[i].name, field[i].offset, packed ? stored : native);
    }
    return t;
}

typedef struct {
    hid_t file;
    const char *name; /* of the file, for messages */
    const char *path;
    hid_t stored, memory;
    int rank;
    hsize_t dim[4], chunk[4]; /* dim[0] is replaced by the row count */
    bool wide;                /* the second axis is cut when the file is finished */
    bool compress;
} target;

static bool set_filters(hid_t dcpl)
{
    return H5Pset_shuffle(dcpl) >= 0 && H5Pset_deflate(dcpl, DEFLATE) >= 0 &&
           H5Pset_fletcher32(dcpl) >= 0;
}

/* Chunks that are not compressed go from the caller's rows to the file, past HDF5's cache. */
static hid_t access_list(const target *t)
{
    hid_t dapl = H5Pcreate(H5P_DATASET_ACCESS);
    if (dapl >= 0 && !t->compress)
        (void)H5Pset_chunk_cache(dapl, H5D_CHUNK_CACHE_NSLOTS_DEFAULT, 0, 1.0);
    return dapl;
}

/* A dataset of zero rows that grows along its first axis. */
static hid_t make(const target *t)
{
    hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE), lcpl = H5Pcreate(H5P_LINK_CREATE);
    hid_t dapl = access_list(t), space = -1, set = -1;
    hsize_t dim[4], max[4];
    for (int i = 0; i < t->rank; i++) {
        dim[i] = max[i] = t->dim[i];
        if (i == 0 || t->wide) max[i] = H5S_UNLIMITED;
    }
    dim[0] = 0;
    bool good =
        dcpl >= 0 && lcpl >= 0 && dapl >= 0 && H5Pset_create_intermediate_group(lcpl, 1) >= 0 &&
        H5Pset_obj_track_times(dcpl, 0) >= 0 && H5Pset_chunk(dcpl, t->rank, t->chunk) >= 0 &&
        (t->compress || H5Pset_fill_time(dcpl, H5D_FILL_TIME_NEVER) >= 0);
    if (good && (!t->compress || set_filters(dcpl))) space = H5Screate_simple(t->rank, dim, max);
    if (space >= 0) set = H5Dcreate2(t->file, t->path, t->stored, space, lcpl, dcpl, dapl);
    if (space >= 0) (void)H5Sclose(space);
    if (dapl >= 0) (void)H5Pclose(dapl);
    if (lcpl >= 0) (void)H5Pclose(lcpl);
    if (dcpl >= 0) (void)H5Pclose(dcpl);
    return set;
}

/* Rows from..from+n of an open dataset. */
static bool put_rows(const target *t, hid_t set, const void *data, int64_t from, int64_t n)
{
    hsize_t dim[4], at[4] = {(hsize_t)from}, count[4];
    for (int i = 0; i < t->rank; i++) dim[i] = count[i] = t->dim[i];
    dim[0] = (hsize_t)from + (hsize_t)n;
    count[0] = (hsize_t)n;
    if (H5Dset_extent(set, dim) < 0) return false;
    hsize_t elements = 1;
    for (int i = 0; i < t->rank; i++) elements *= count[i];
    if (elements == 0) return true;
    hid_t space = H5Dget_space(set), mem = H5Screate_simple(t->rank, count, NULL);
    bool good = space >= 0 && mem >= 0 &&
                H5Sselect_hyperslab(space, H5S_SELECT_SET, at, NULL, count, NULL) >= 0 &&
                H5Dwrite(set, t->memory, mem, space, H5P_DEFAULT, data) >= 0;
    if (mem >= 0) (void)H5Sclose(mem);
    if (space >= 0) (void)H5Sclose(space);
    return good;
}

/* Opens or makes the dataset and appends; leaves it open in *set. */
static dsf_status append(const target *t, const void *data, int64_t from, int64_t n, hid_t *set)
{
    if (from == 0) {
        *set = make(t);
    } else {
        hid_t dapl = access_list(t);
        *set = H5Dopen2(t->file, t->path, dapl);
        if (dapl >= 0) (void)H5Pclose(dapl);
    }
    if (*set < 0) return dsf_h5_fail(DSF_EIO, t->name, t->path);
    if (put_rows(t, *set, data, from, n)) return DSF_OK;
    dsf_status st = dsf_h5_fail(DSF_EIO, t->name, t->path);
    (void)H5Dclose(*set);
    *set = -1;
    return st;
}

dsf_status dsf_series_axis(hid_t file, const char *name, const char *path, dsf_axis_rows rows)
{
    target t = {.file = file,
                .name = name,
                .path = path,
                .stored = rows.bytes ? H5T_STD_U8LE : H5T_STD_I32LE,
                .memory = rows.bytes ? H5T_NATIVE_UINT8 : H5T_NATIVE_INT32,
                .rank = 1,
                .chunk = {LABEL_ROWS}};
    hid_t set;
    DSF_TRY(append(&t, rows.data, rows.from, rows.n, &set));
    return H5Dclose(set) >= 0 ? DSF_OK : dsf_h5_fail(DSF_EIO, name, path);
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

int64_t dsf_series_chunk_rows(const dsf_series *s, int64_t n)
{
    int64_t bytes = dsf_series_row_bytes(s), rows = 1;
    int64_t fit = (s->compress ? PACKED_BYTES : CHUNK_BYTES) / (bytes ? bytes : 1);
    int64_t most = least(fit, s->compress ? PACKED_ROWS : CHUNK_ROWS);
    while (2 * rows <= most) rows *= 2; /* prompts are computed in powers of two, too */
    return n > 0 && n < rows ? n : rows;
}

static void shape(target *t, const dsf_series *s)
{
    t->rank = 1 + s->row_rank;
    t->chunk[0] = (hsize_t)s->chunk_rows;
    t->compress = s->compress;
    for (int i = 0; i < s->row_rank; i++) {
        t->dim[1 + i] = (hsize_t)s->dim[i];
        t->chunk[1 + i] = (hsize_t)(s->dim[i] ? s->dim[i] : 1);
    }
    t->wide = s->plan.trim;
    t->stored = dsf_h5_stored_type(s->plan.kind);
    t->memory = memory_type(s->plan.kind);
}

static dsf_status describe(dsf_series *s, hid_t set, const char *name, const dsf_labels *labels,
                           bool first)
{
    if (first && s->block) {
        DSF_TRY(dsf_h5_put_int(set, name, "row_block", DSF_DUMP_STATS_ROWS));
        DSF_TRY(dsf_h5_put_int(set, name, "width", s->plan.width));
    }
    if (first) DSF_TRY(dsf_h5_put_str(set, name, "source_dtype", dsf_dump_source_name(s->source)));
    if (s->list < 0 || s->list == s->list_written) return DSF_OK;
    DSF_TRY(dsf_h5_put_str(set, name, "rows", labels->list[s->list].path));
    s->list_written = s->list;
    return DSF_OK;
}

/* The first n of the waiting rows are in the file. */
static void forget(dsf_series *s, int64_t n)
{
    size_t bytes = (size_t)dsf_series_row_bytes(s), left = (size_t)(s->rows - s->written - n);
    if (n > 0 && left > 0) memmove(s->pending, s->pending + (size_t)n * bytes, left * bytes);
    s->written += n;
}

dsf_status dsf_series_write(dsf_series *s, hid_t file, const char *name, const dsf_labels *labels,
                            bool whole)
{
    target t = {.file = file, .name = name, .path = s->path};
    int64_t from = s->block ? s->stats_written : s->written;
    int64_t n = s->block ? s->n_stats : s->rows - from;
    int64_t begun = s->rows % s->chunk_rows; /* rows of a chunk that is not whole */
    if (whole && !s->block) n = n > begun ? n - begun : 0;
    if (n == 0 && (from == 0 || s->list == s->list_written)) return DSF_OK;
    const void *data = s->pending;
    if (s->block) {
        data = s->stat;
        t.rank = 1;
        t.chunk[0] = RECORD_ROWS;
        t.stored = stat_type(true);
        t.memory = stat_type(false);
    } else {
        shape(&t, s);
    }
    hid_t set = -1;
    dsf_status st = DSF_OK;
    if (n > 0) {
        st = append(&t, data, from, n, &set);
    } else if (from > 0 && s->list != s->list_written) {
        set = H5Dopen2(file, s->path, H5P_DEFAULT);
        if (set < 0) st = dsf_h5_fail(DSF_EIO, name, s->path);
    }
    if (st == DSF_OK && set >= 0) st = describe(s, set, name, labels, from == 0);
    if (set >= 0 && H5Dclose(set) < 0 && st == DSF_OK) st = dsf_h5_fail(DSF_EIO, name, s->path);
    if (s->block && t.stored >= 0) (void)H5Tclose(t.stored);
    if (s->block && t.memory >= 0) (void)H5Tclose(t.memory);
    if (st != DSF_OK) return st;
    if (s->block) {
        s->written = s->rows;
        s->stats_written += s->n_stats;
        s->n_stats = 0;
    } else {
        forget(s, n);
    }
    return DSF_OK;
}

dsf_status dsf_series_narrow(dsf_series *s, hid_t file, const char *name, int64_t width)
{
    if (s->block || s->written == 0 || width >= s->dim[0]) return DSF_OK;
    hid_t set = H5Dopen2(file, s->path, H5P_DEFAULT);
    hsize_t dim[2] = {(hsize_t)s->written, (hsize_t)width};
    bool good = set >= 0 && H5Dset_extent(set, dim) >= 0;
    if (set >= 0 && H5Dclose(set) < 0) good = false;
    return good ? DSF_OK : dsf_h5_fail(DSF_EIO, name, s->path);
}

dsf_status dsf_series_records(dsf_series *s, int64_t n, dsf_dump_stat **stat)
{
    if (s->n_stats + n > s->stats_cap) {
        int64_t cap = s->stats_cap ? s->stats_cap : 16;
        while (cap < s->n_stats + n) cap *= 2;
        DSF_TRY(dsf_mem_grow(&s->stat, (size_t)cap, sizeof *s->stat));
        s->stats_cap = cap;
    }
    *stat = s->stat + s->n_stats;
    if (n == 0) return DSF_OK; /* the rows of a block that is not whole stay uncounted */
    s->n_stats += n;
    s->rows += n * DSF_DUMP_STATS_ROWS;
    s->counted = s->rows;
    return DSF_OK;
}

dsf_status dsf_series_count_end(dsf_series *s)
{
    int64_t rows = s->rows;
    dsf_dump_stat *stat = NULL;
    if (s->counted == rows) return DSF_OK;
    DSF_TRY(dsf_series_records(s, 1, &stat));
    *stat = dsf_stats_take(s->block);
    s->rows = s->counted = rows; /* the last block may have fewer rows */
    return DSF_OK;
}

void dsf_series_free(dsf_series *s)
{
    dsf_stats_close(s->block);
    dsf_mem_free(s->stat);
    dsf_mem_free(s->pending);
}
