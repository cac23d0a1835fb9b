#include "verify/dump/listing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

/* A dump of the released model has about 1,600 datasets in groups four deep. */
enum { MAX_OBJECTS = 100000, MAX_DEPTH = 8 };

typedef struct {
    dsf_listing *list;
    hid_t file;
    const char *name;
    bool partial;
    int64_t seen;
    int depth;
    char path[96];
    dsf_status st;
} walk;

static bool unusable(dsf_dump_entry *e, const char *why)
{
    e->readable = false;
    (void)snprintf(e->why, sizeof e->why, "%s", why);
    return false;
}

static bool check_type(hid_t set, dsf_dump_entry *e)
{
    hid_t type = H5Dget_type(set);
    H5T_class_t class = type >= 0 ? H5Tget_class(type) : H5T_NO_CLASS;
    size_t size = type >= 0 ? H5Tget_size(type) : 0;
    bool is_signed = class == H5T_INTEGER && H5Tget_sign(type) == H5T_SGN_2;
    bool exact = type >= 0 && H5Tget_precision(type) == 8 * size;
    if (type >= 0) (void)H5Tclose(type);
    if (class == H5T_FLOAT && size == 4 && exact)
        e->kind = DSF_DUMP_F32;
    else if (class == H5T_INTEGER && size == 4 && is_signed && exact)
        e->kind = DSF_DUMP_I32;
    else if (class == H5T_INTEGER && size == 8 && is_signed && exact)
        e->kind = DSF_DUMP_I64;
    else if (class == H5T_INTEGER && size == 1 && exact)
        e->kind = DSF_DUMP_U8;
    else
        return unusable(e, "type is none of float32, int32, int64, uint8");
    return true;
}

static bool check_shape(hid_t set, dsf_dump_entry *e)
{
    hid_t space = H5Dget_space(set);
    int rank = space >= 0 && H5Sget_simple_extent_type(space) == H5S_SIMPLE
                   ? H5Sget_simple_extent_ndims(space)
                   : -1;
    hsize_t dim[H5S_MAX_RANK] = {0};
    if (rank >= 1 && rank <= 4) (void)H5Sget_simple_extent_dims(space, dim, NULL);
    if (space >= 0) (void)H5Sclose(space);
    if (rank < 1 || rank > 4) return unusable(e, "rank outside 1..4");
    e->rank = rank;
    double elements = 1.0;
    for (int i = 0; i < rank; i++) {
        /* every dimension and their product below 2^53: later products are exact and fit int64 */
        elements *= (double)(dim[i] ? dim[i] : 1);
        if (dim[i] >= (hsize_t)1 << 50 || elements > 9e15)
            return unusable(e, "more than 2^53 elements");
        e->dim[i] = (int64_t)dim[i];
    }
    return e->dim[0] <= INT32_MAX || unusable(e, "more than 2^31 rows");
}

/* Storage that reads other files or needs code from elsewhere is refused. */
static bool check_storage(hid_t set, dsf_dump_entry *e)
{
    hid_t dcpl = H5Dget_create_plist(set);
    if (dcpl < 0) return unusable(e, "no creation properties");
    H5D_layout_t layout = H5Pget_layout(dcpl);
    bool good = layout == H5D_CONTIGUOUS || layout == H5D_CHUNKED || layout == H5D_COMPACT;
    if (!good || H5Pget_external_count(dcpl) > 0) {
        (void)H5Pclose(dcpl);
        return unusable(e, "stored outside this file");
    }
    int n = layout == H5D_CHUNKED ? H5Pget_nfilters(dcpl) : 0;
    for (int i = 0; i < n && good; i++) {
        unsigned flags, config;
        size_t values = 0;
        H5Z_filter_t id =
            H5Pget_filter2(dcpl, (unsigned)i, &flags, &values, NULL, 0, NULL, &config);
        good = id == H5Z_FILTER_DEFLATE || id == H5Z_FILTER_SHUFFLE || id == H5Z_FILTER_FLETCHER32;
    }
    hsize_t chunk[H5S_MAX_RANK] = {0};
    double bytes = (double)dsf_dump_kind_bytes(e->kind);
    if (layout == H5D_CHUNKED && H5Pget_chunk(dcpl, H5S_MAX_RANK, chunk) == e->rank)
        for (int i = 0; i < e->rank; i++) bytes *= (double)chunk[i];
    (void)H5Pclose(dcpl);
    if (!good) return unusable(e, "a filter other than shuffle, deflate, fletcher32");
    return bytes <= (double)(1 << 30) || unusable(e, "chunks over 1 GiB");
}

static dsf_status get_text(hid_t set, const char *file, const char *name, char out[96], bool *found)
{
    dsf_buf b = {.max = 4096};
    dsf_status st = dsf_h5_get_str(set, file, name, 95, &b, found);
    if (st == DSF_OK) (void)snprintf(out, 96, "%s", b.data ? b.data : "");
    dsf_buf_free(&b);
    return st;
}

static dsf_status describe(hid_t set, const char *file, const char *path, dsf_dump_entry *e)
{
    *e = (dsf_dump_entry){.readable = true, .order = -1};
    (void)snprintf(e->path, sizeof e->path, "%s", path);
    if (check_type(set, e) && check_shape(set, e)) (void)check_storage(set, e);
    e->stats = strncmp(e->path, "stats/", 6) == 0;
    if (e->stats && check_shape(set, e) && e->rank == 1 && check_storage(set, e))
        (void)unusable(e, "statistics of row blocks, not rows");
    char source[96] = "";
    bool labelled, sourced;
    int64_t equal = 0;
    DSF_TRY(get_text(set, file, "rows", e->rows, &labelled));
    DSF_TRY(get_text(set, file, "source_dtype", source, &sourced));
    DSF_TRY(dsf_h5_get_int(set, file, "order", &e->order));
    DSF_TRY(dsf_h5_get_int(set, file, "oneshot_bit_equal", &equal));
    DSF_TRY(dsf_h5_get_int(set, file, "row_block", &e->row_block));
    DSF_TRY(dsf_h5_get_int(set, file, "width", &e->width));
    e->oneshot_bit_equal = equal != 0;
    e->has_source = dsf_dump_source_parse(&e->source, source);
    return DSF_OK;
}

dsf_status dsf_listing_describe(hid_t file, const char *name, const char *path, dsf_dump_entry *e,
                                bool *found)
{
    char part[96];
    *found = false;
    /* H5Lexists wants every step of the way to exist. */
    for (const char *slash = path; slash; slash = strchr(slash + 1, '/')) {
        if (slash == path && *path != '/') continue;
        (void)snprintf(part, sizeof part, "%.*s", (int)(slash - path), path);
        if (*part && H5Lexists(file, part, H5P_DEFAULT) <= 0) return DSF_OK;
    }
    H5L_info_t link;
    if (H5Lexists(file, path, H5P_DEFAULT) <= 0) return DSF_OK;
    if (H5Lget_info(file, path, &link, H5P_DEFAULT) < 0 || link.type != H5L_TYPE_HARD)
        return DSF_OK;
    hid_t set = H5Dopen2(file, path, H5P_DEFAULT);
    if (set < 0) return dsf_h5_fail(DSF_ECORRUPT, name, path);
    dsf_status st = describe(set, name, path, e);
    (void)H5Dclose(set);
    *found = st == DSF_OK;
    return st;
}

static dsf_status keep(walk *w, const dsf_dump_entry *e)
{
    dsf_listing *l = w->list;
    if (!e->rows[0]) return DSF_OK;
    if (l->n == l->cap) {
        int64_t cap = l->cap ? 2 * l->cap : 256;
        DSF_TRY(dsf_mem_grow(&l->entry, (size_t)cap, sizeof *l->entry));
        l->cap = cap;
    }
    l->entry[l->n++] = *e;
    return DSF_OK;
}

static dsf_status visit_dataset(walk *w, hid_t set)
{
    dsf_dump_entry e;
    dsf_status st = describe(set, w->name, w->path, &e);
    if (st == DSF_OK) return keep(w, &e);
    if (!w->partial) return st;
    w->list->n_broken++;
    return DSF_OK;
}

static herr_t visit(hid_t group, const char *name, const H5L_info_t *link, void *ud);

static dsf_status visit_group(walk *w, hid_t group)
{
    hsize_t at = 0;
    if (++w->depth > MAX_DEPTH)
        return DSF_FAIL(DSF_ECORRUPT, "%s: /%s: groups more than %d deep", w->name, w->path,
                        MAX_DEPTH);
    herr_t r = H5Literate(group, H5_INDEX_NAME, H5_ITER_INC, &at, visit, w);
    w->depth--;
    if (w->st != DSF_OK) return w->st;
    if (r >= 0) return DSF_OK;
    w->list->n_broken++;
    return w->partial ? DSF_OK : dsf_h5_fail(DSF_ECORRUPT, w->name, w->path);
}

static dsf_status visit_object(walk *w, hid_t group, const char *name)
{
    hid_t object = H5Oopen(group, name, H5P_DEFAULT);
    if (object < 0) {
        w->list->n_broken++;
        return w->partial ? DSF_OK : dsf_h5_fail(DSF_ECORRUPT, w->name, w->path);
    }
    dsf_status st = DSF_OK;
    H5I_type_t type = H5Iget_type(object);
    if (type == H5I_GROUP) st = visit_group(w, object);
    if (type == H5I_DATASET) st = visit_dataset(w, object);
    (void)H5Oclose(object);
    return st;
}

static herr_t visit(hid_t group, const char *name, const H5L_info_t *link, void *ud)
{
    walk *w = ud;
    size_t used = strlen(w->path), n = strlen(name);
    if (++w->seen > MAX_OBJECTS) {
        w->st = DSF_FAIL(DSF_ECORRUPT, "%s: more than %d objects", w->name, MAX_OBJECTS);
        return -1;
    }
    /* Soft and external links lead elsewhere; names this long are none of the schema's. */
    if (link->type != H5L_TYPE_HARD || used + n + 2 > sizeof w->path) return 0;
    (void)snprintf(w->path + used, sizeof w->path - used, "%s%s", used ? "/" : "", name);
    w->st = visit_object(w, group, name);
    w->path[used] = 0;
    return w->st == DSF_OK ? 0 : -1;
}

static int compare(const void *a, const void *b)
{
    return strcmp(((const dsf_dump_entry *)a)->path, ((const dsf_dump_entry *)b)->path);
}

dsf_status dsf_listing_make(dsf_listing *list, hid_t file, const char *name, bool partial)
{
    *list = (dsf_listing){0};
    walk w = {.list = list, .file = file, .name = name, .partial = partial};
    hid_t root = H5Gopen2(file, "/", H5P_DEFAULT);
    if (root < 0) return dsf_h5_fail(DSF_ECORRUPT, name, "root group");
    dsf_status st = visit_group(&w, root);
    (void)H5Gclose(root);
    if (list->n) qsort(list->entry, (size_t)list->n, sizeof *list->entry, compare);
    return st;
}

void dsf_listing_free(dsf_listing *list)
{
    dsf_mem_free(list->entry);
    *list = (dsf_listing){0};
}
