#include "verify/reduce/pack.h"

#include "base/mem.h"

enum { CHUNK_BYTES = 1 << 20, LEVEL = 6, LONGEST_TEXT = 60000 };

/* What HDF5 takes the image's name for must not be a file: it would look at that. */
static const char nowhere[] = "/dsf/case/image";

static hid_t memory_list(const void *data, size_t n)
{
    hid_t fapl = H5Pcreate(H5P_FILE_ACCESS);
    if (fapl < 0) return fapl;
    bool good = H5Pset_fapl_core(fapl, CHUNK_BYTES, 0) >= 0;
    /* the image is copied by HDF5, not changed */
    if (good && n) good = H5Pset_file_image(fapl, (void *)(uintptr_t)data, n) >= 0;
    if (good) return fapl;
    (void)H5Pclose(fapl);
    return -1;
}

dsf_status dsf_pack_create(dsf_pack *p, const char *name)
{
    dsf_h5_quiet();
    *p = (dsf_pack){.file = -1, .name = name};
    hid_t fapl = memory_list(NULL, 0), fcpl = H5Pcreate(H5P_FILE_CREATE);
    if (fapl >= 0 && fcpl >= 0 && H5Pset_obj_track_times(fcpl, 0) >= 0)
        p->file = H5Fcreate(nowhere, H5F_ACC_TRUNC, fcpl, fapl);
    if (fcpl >= 0) (void)H5Pclose(fcpl);
    if (fapl >= 0) (void)H5Pclose(fapl);
    return p->file >= 0 ? DSF_OK : dsf_h5_fail(DSF_EIO, name, "in memory");
}

dsf_status dsf_pack_open(dsf_pack *p, const char *name, const void *data, size_t n, bool write)
{
    dsf_h5_quiet();
    *p = (dsf_pack){.file = -1, .name = name};
    if (n == 0) return DSF_FAIL(DSF_ECORRUPT, "%s: 0 bytes", name);
    hid_t fapl = memory_list(data, n);
    if (fapl >= 0) p->file = H5Fopen(nowhere, write ? H5F_ACC_RDWR : H5F_ACC_RDONLY, fapl);
    if (fapl >= 0) (void)H5Pclose(fapl);
    return p->file >= 0 ? DSF_OK : dsf_h5_fail(DSF_ECORRUPT, name, "not a readable HDF5 file");
}

void dsf_pack_close(dsf_pack *p)
{
    if (p->file >= 0) (void)H5Fclose(p->file);
    p->file = -1;
}

/* Chunks of whole rows, about CHUNK_BYTES. */
static bool set_storage(hid_t dcpl, const dsf_pack_array *a)
{
    hsize_t chunk[4] = {1, 1, 1, 1};
    int64_t row = dsf_dump_kind_bytes(a->kind);
    if (H5Pset_obj_track_times(dcpl, 0) < 0) return false;
    for (int i = 0; i < a->rank; i++)
        if (a->dim[i] == 0) return true; /* nothing to store: contiguous */
    for (int i = 1; i < a->rank; i++) {
        chunk[i] = (hsize_t)a->dim[i];
        row *= a->dim[i];
    }
    int64_t rows = row < CHUNK_BYTES ? CHUNK_BYTES / row : 1;
    chunk[0] = (hsize_t)(rows < a->dim[0] ? rows : a->dim[0]);
    return H5Pset_chunk(dcpl, a->rank, chunk) >= 0 && H5Pset_shuffle(dcpl) >= 0 &&
           H5Pset_deflate(dcpl, LEVEL) >= 0 && H5Pset_fletcher32(dcpl) >= 0;
}

dsf_status dsf_pack_put(dsf_pack *p, const char *path, const dsf_pack_array *a)
{
    hsize_t dim[4];
    for (int i = 0; i < a->rank; i++) dim[i] = (hsize_t)a->dim[i];
    hid_t space = H5Screate_simple(a->rank, dim, NULL), set = -1;
    hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE), lcpl = H5Pcreate(H5P_LINK_CREATE);
    hid_t type = dsf_h5_stored_type(a->kind);
    bool good = space >= 0 && dcpl >= 0 && lcpl >= 0 && set_storage(dcpl, a) &&
                H5Pset_create_intermediate_group(lcpl, 1) >= 0;
    if (good) set = H5Dcreate2(p->file, path, type, space, lcpl, dcpl, H5P_DEFAULT);
    good = set >= 0 && (H5Sget_simple_extent_npoints(space) == 0 ||
                        H5Dwrite(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, a->data) >= 0);
    dsf_status st = good ? DSF_OK : dsf_h5_fail(DSF_EIO, p->name, path);
    if (set >= 0) (void)H5Dclose(set);
    if (lcpl >= 0) (void)H5Pclose(lcpl);
    if (dcpl >= 0) (void)H5Pclose(dcpl);
    if (space >= 0) (void)H5Sclose(space);
    return st;
}

static dsf_status open_object(const dsf_pack *p, const char *path, hid_t *out)
{
    *out = H5Oopen(p->file, path, H5P_DEFAULT);
    return *out >= 0 ? DSF_OK : DSF_FAIL(DSF_ECORRUPT, "%s: %s is not there", p->name, path);
}

dsf_status dsf_pack_put_str(dsf_pack *p, const char *path, const char *name, const char *text)
{
    hid_t at;
    DSF_TRY(open_object(p, path, &at));
    dsf_status st = dsf_h5_put_str(at, p->name, name, text);
    (void)H5Oclose(at);
    return st;
}

dsf_status dsf_pack_put_int(dsf_pack *p, const char *path, const char *name, int64_t v)
{
    hid_t at;
    DSF_TRY(open_object(p, path, &at));
    dsf_status st = dsf_h5_put_int(at, p->name, name, v);
    (void)H5Oclose(at);
    return st;
}

dsf_status dsf_pack_image(dsf_pack *p, void **data, size_t *n)
{
    *data = NULL;
    if (H5Fflush(p->file, H5F_SCOPE_GLOBAL) < 0) return dsf_h5_fail(DSF_EIO, p->name, "flush");
    ssize_t bytes = H5Fget_file_image(p->file, NULL, 0);
    if (bytes <= 0) return dsf_h5_fail(DSF_EIO, p->name, "image");
    DSF_TRY(dsf_mem_new(data, (size_t)bytes, 1));
    if (H5Fget_file_image(p->file, *data, (size_t)bytes) != bytes) {
        dsf_mem_free(*data);
        *data = NULL;
        return dsf_h5_fail(DSF_EIO, p->name, "image");
    }
    *n = (size_t)bytes;
    return DSF_OK;
}

/* ---- reading ---- */

bool dsf_pack_has(const dsf_pack *p, const char *path)
{
    return H5Lexists(p->file, path, H5P_DEFAULT) > 0;
}

static bool right_type(hid_t set, dsf_dump_kind kind)
{
    hid_t type = H5Dget_type(set);
    bool good = type >= 0 && H5Tequal(type, dsf_h5_stored_type(kind)) > 0;
    if (type >= 0) (void)H5Tclose(type);
    return good;
}

static dsf_status read_set(const dsf_pack *p, const char *path, hid_t set, dsf_dump_kind kind,
                           int64_t most, void **data, int64_t *n)
{
    hid_t space = H5Dget_space(set);
    int64_t count = space >= 0 ? H5Sget_simple_extent_npoints(space) : -1;
    int64_t size = dsf_dump_kind_bytes(kind);
    if (space >= 0) (void)H5Sclose(space);
    if (count < 0 || !right_type(set, kind))
        return DSF_FAIL(DSF_ECORRUPT, "%s: %s: not of the type that a case has there", p->name,
                        path);
    if (count > most / size)
        return DSF_FAIL(DSF_ECORRUPT, "%s: %s: %lld elements of %lld bytes, at most %lld bytes",
                        p->name, path, (long long)count, (long long)size, (long long)most);
    DSF_TRY(dsf_mem_new(data, (size_t)count + 1, (size_t)size));
    *n = count;
    if (count == 0 ||
        H5Dread(set, dsf_h5_stored_type(kind), H5S_ALL, H5S_ALL, H5P_DEFAULT, *data) >= 0)
        return DSF_OK;
    dsf_mem_free(*data);
    *data = NULL;
    return dsf_h5_fail(DSF_ECORRUPT, p->name, path);
}

dsf_status dsf_pack_get(const dsf_pack *p, const char *path, dsf_dump_kind kind, int64_t most,
                        void **data, int64_t *n)
{
    *data = NULL;
    hid_t set = dsf_pack_has(p, path) ? H5Dopen2(p->file, path, H5P_DEFAULT) : -1;
    if (set < 0) return DSF_FAIL(DSF_ECORRUPT, "%s: %s is not there", p->name, path);
    dsf_status st = read_set(p, path, set, kind, most, data, n);
    (void)H5Dclose(set);
    return st;
}

dsf_status dsf_pack_get_str(const dsf_pack *p, const char *path, const char *name, dsf_buf *out)
{
    hid_t at;
    bool found = false;
    DSF_TRY(open_object(p, path, &at));
    dsf_status st = dsf_h5_get_str(at, p->name, name, LONGEST_TEXT, out, &found);
    (void)H5Oclose(at);
    DSF_TRY(st);
    if (!found)
        return DSF_FAIL(DSF_ECORRUPT, "%s: %s: attribute %s is not there", p->name, path, name);
    return dsf_buf_status(out);
}

dsf_status dsf_pack_get_int(const dsf_pack *p, const char *path, const char *name, int64_t *v)
{
    hid_t at;
    int64_t x = INT64_MIN;
    DSF_TRY(open_object(p, path, &at));
    dsf_status st = dsf_h5_get_int(at, p->name, name, &x);
    (void)H5Oclose(at);
    DSF_TRY(st);
    if (x == INT64_MIN)
        return DSF_FAIL(DSF_ECORRUPT, "%s: %s: attribute %s is not there", p->name, path, name);
    *v = x;
    return DSF_OK;
}
