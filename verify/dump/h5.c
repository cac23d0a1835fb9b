#include "verify/dump/h5.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

void dsf_h5_quiet(void) { (void)H5Eset_auto2(H5E_DEFAULT, NULL, NULL); }

static herr_t innermost(unsigned n, const H5E_error2_t *e, void *ud)
{
    if (n == 0) (void)snprintf(ud, 256, "%s", e->desc ? e->desc : "");
    return 0;
}

dsf_status dsf_h5_fail(dsf_status st, const char *file, const char *what)
{
    char words[256] = "no detail";
    (void)H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, innermost, words);
    return DSF_FAIL(st, "%s: %s: %s", file, what, words);
}

static dsf_status put(hid_t at, const char *file, const char *name, hid_t type, const void *value)
{
    hid_t space = H5Screate(H5S_SCALAR), attr = -1;
    if (H5Aexists(at, name) > 0) (void)H5Adelete(at, name);
    if (space >= 0) attr = H5Acreate2(at, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    bool good = attr >= 0 && H5Awrite(attr, type, value) >= 0;
    dsf_status st = good ? DSF_OK : dsf_h5_fail(DSF_EIO, file, name);
    if (attr >= 0) (void)H5Aclose(attr);
    if (space >= 0) (void)H5Sclose(space);
    return st;
}

dsf_status dsf_h5_put_str(hid_t at, const char *file, const char *name, const char *text)
{
    size_t n = strlen(text);
    /* An attribute lives in the object header, which takes 64 KiB. */
    if (n > 60000)
        return DSF_FAIL(DSF_EINVAL, "%s: attribute %s: %zu bytes, at most 60000", file, name, n);
    hid_t type = H5Tcopy(H5T_C_S1);
    if (type < 0 || H5Tset_size(type, n ? n : 1) < 0 || H5Tset_strpad(type, H5T_STR_NULLPAD) < 0) {
        if (type >= 0) (void)H5Tclose(type);
        return dsf_h5_fail(DSF_EIO, file, name);
    }
    dsf_status st = put(at, file, name, type, text);
    (void)H5Tclose(type);
    return st;
}

dsf_status dsf_h5_put_int(hid_t at, const char *file, const char *name, int64_t value)
{
    int32_t v = (int32_t)value;
    return put(at, file, name, H5T_STD_I32LE, &v);
}

static dsf_status get_fixed(hid_t attr, hid_t type, size_t max, dsf_buf *out, bool *good)
{
    size_t n = H5Tget_size(type), from = out->len;
    *good = false;
    if (n == 0 || n > max) return DSF_OK;
    for (size_t i = 0; i < n; i++) dsf_buf_char(out, 0);
    DSF_TRY(dsf_buf_status(out));
    *good = H5Aread(attr, type, out->data + from) >= 0;
    size_t len = strnlen(out->data + from, n);
    while (len && H5Tget_strpad(type) == H5T_STR_SPACEPAD && out->data[from + len - 1] == ' ')
        len--;
    out->len = from + len;
    out->data[out->len] = 0;
    return DSF_OK;
}

static dsf_status get_variable(hid_t attr, size_t max, dsf_buf *out, bool *good)
{
    char *text = NULL;
    hid_t mem = H5Tcopy(H5T_C_S1);
    *good = mem >= 0 && H5Tset_size(mem, H5T_VARIABLE) >= 0;
    if (*good) (void)H5Tset_cset(mem, H5Tget_cset(mem));
    hid_t stored = H5Aget_type(attr);
    if (*good && stored >= 0) (void)H5Tset_cset(mem, H5Tget_cset(stored));
    *good = *good && H5Aread(attr, mem, &text) >= 0 && text && strlen(text) <= max;
    if (*good) dsf_buf_str(out, text);
    if (text) (void)H5free_memory(text);
    if (stored >= 0) (void)H5Tclose(stored);
    if (mem >= 0) (void)H5Tclose(mem);
    return dsf_buf_status(out);
}

dsf_status dsf_h5_get_str(hid_t at, const char *file, const char *name, size_t max, dsf_buf *out,
                          bool *found)
{
    *found = H5Aexists(at, name) > 0;
    if (!*found) return DSF_OK;
    dsf_status st = DSF_OK;
    hid_t attr = H5Aopen(at, name, H5P_DEFAULT), space = -1, type = -1;
    bool good = false;
    if (attr >= 0) space = H5Aget_space(attr);
    if (attr >= 0) type = H5Aget_type(attr);
    if (space >= 0 && type >= 0 && H5Tget_class(type) == H5T_STRING &&
        H5Sget_simple_extent_npoints(space) == 1) {
        st = H5Tis_variable_str(type) > 0 ? get_variable(attr, max, out, &good)
                                          : get_fixed(attr, type, max, out, &good);
    }
    if (type >= 0) (void)H5Tclose(type);
    if (space >= 0) (void)H5Sclose(space);
    if (attr >= 0) (void)H5Aclose(attr);
    if (st != DSF_OK) return st;
    return good ? DSF_OK
                : DSF_FAIL(DSF_ECORRUPT, "%s: attribute %s: not one string of at most %zu bytes",
                           file, name, max);
}

dsf_status dsf_h5_get_int(hid_t at, const char *file, const char *name, int64_t *out)
{
    if (H5Aexists(at, name) <= 0) return DSF_OK;
    hid_t attr = H5Aopen(at, name, H5P_DEFAULT), space = -1, type = -1;
    int64_t v = 0;
    if (attr >= 0) space = H5Aget_space(attr);
    if (attr >= 0) type = H5Aget_type(attr);
    bool good = space >= 0 && type >= 0 && H5Tget_class(type) == H5T_INTEGER &&
                H5Sget_simple_extent_npoints(space) == 1 &&
                H5Aread(attr, H5T_NATIVE_INT64, &v) >= 0;
    if (type >= 0) (void)H5Tclose(type);
    if (space >= 0) (void)H5Sclose(space);
    if (attr >= 0) (void)H5Aclose(attr);
    if (!good) return DSF_FAIL(DSF_ECORRUPT, "%s: attribute %s: not one integer", file, name);
    *out = v;
    return DSF_OK;
}

hid_t dsf_h5_stored_type(dsf_dump_kind k)
{
    switch (k) {
    case DSF_DUMP_F32:
        return H5T_IEEE_F32LE;
    case DSF_DUMP_I32:
        return H5T_STD_I32LE;
    case DSF_DUMP_I64:
        return H5T_STD_I64LE;
    default:
        return H5T_STD_U8LE;
    }
}
