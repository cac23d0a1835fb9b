/* A dump file is refused with words, or what it says about itself holds: rows, labels and widths of
 * every array agree with its listing, and a second reading gives the same bytes. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "verify/dump/reader.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_array(const dsf_dump_entry *e, const dsf_dump_array *a)
{
    int64_t width = 1;
    if (a->n != e->dim[0] || a->rank != e->rank || (a->n && !a->label)) abort();
    for (int i = 1; i < e->rank; i++) width *= e->dim[i];
    if (a->width != width || (a->f && a->i)) abort();
    if (a->n && width && !a->f == !a->i) abort();
}

static void read_twice(dsf_dump_file *f, const dsf_dump_entry *e)
{
    dsf_dump_array a, b;
    if (dsf_dump_find(f, e->path) == NULL) abort();
    if (dsf_dump_read(f, e->path, &a) != DSF_OK) return;
    check_array(e, &a);
    if (dsf_dump_read(f, e->path, &b) != DSF_OK) abort();
    size_t n = (size_t)(a.n * a.width);
    if (a.f && memcmp(a.f, b.f, n * sizeof *a.f) != 0) abort();
    if (a.i && memcmp(a.i, b.i, n * sizeof *a.i) != 0) abort();
    int64_t *pair = NULL, pairs;
    if (dsf_dump_join(&a, &b, &pair, &pairs) != DSF_OK || pairs > a.n) abort();
    dsf_mem_free(pair);
    dsf_dump_array_free(&a);
    dsf_dump_array_free(&b);
}

static void read_stats(dsf_dump_file *f, const dsf_dump_entry *e)
{
    dsf_dump_stat_row *row = NULL;
    int64_t n;
    if (dsf_dump_read_stats(f, e->path, &row, &n) == DSF_OK && n != e->dim[0]) abort();
    dsf_mem_free(row);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    dsf_dump_file *f;
    if (dsf_dump_open_bytes(&f, "fuzz.h5", data, size) != DSF_OK) {
        if (!*dsf_error_message()) abort();
        return 0;
    }
    for (int64_t i = 0; i < dsf_dump_count(f); i++) {
        const dsf_dump_entry *e = dsf_dump_at(f, i);
        if (e->stats)
            read_stats(f, e);
        else
            read_twice(f, e);
    }
    dsf_dump_close(f);
    return 0;
}
