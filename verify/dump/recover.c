#include "verify/dump/recover.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "verify/dump/h5.h"
#include "verify/dump/reader.h"
#include "verify/dump/series.h"

typedef struct {
    const char *part;
    dsf_dump_file *from; /* what was committed, read through its log */
    hid_t file;          /* the same, being changed */
    dsf_h5_out out;
    int made; /* label lists */
    dsf_dump_recovery *r;
} recovery;

/* The first of the labels of a list that has more than the tap has rows: an own list, or one that
 * was made for another tap. */
static dsf_status cut_labels(recovery *w, hid_t set, const dsf_dump_entry *e, int64_t rows)
{
    char path[128];
    int32_t *label = NULL;
    int64_t n = 0;
    dsf_status st = DSF_OK;
    (void)snprintf(path, sizeof path, "%.90s_first_%lld", e->rows, (long long)rows);
    if (H5Lexists(w->file, path, H5P_DEFAULT) <= 0) {
        DSF_TRY_OUT(dsf_dump_read_axis(w->from, e->rows, &label, &n));
        if (n < rows)
            DSF_TRY_OUT(DSF_FAIL(DSF_ECORRUPT, "%s: /%s: %lld labels of %lld rows", w->part,
                                 e->path, (long long)n, (long long)rows));
        DSF_TRY_OUT(
            dsf_series_axis(w->file, w->part, path, (dsf_axis_rows){label, 0, rows, false}));
    }
    DSF_TRY_OUT(dsf_h5_put_str(set, w->part, "rows", path));
out:
    dsf_mem_free(label);
    return st;
}

/* The entry axis was made for all tokens that might come. */
static dsf_status narrow(const recovery *w, hid_t set, const dsf_dump_entry *e)
{
    const dsf_dump_info *info = dsf_dump_info_of(w->from);
    dsf_tap tap;
    int64_t row[3];
    if (!dsf_tap_parse(&tap, e->path, info->geometry.n_layers) || e->rank != 2 ||
        (tap.id != DSF_TAP_ATTN_INDEX_SCORES && tap.id != DSF_TAP_ATTN_POOL &&
         tap.id != DSF_TAP_ATTN_TOPK))
        return DSF_OK;
    if (dsf_dump_geometry_row(&info->geometry, tap, info->n_tokens, row) < 1 || row[0] >= e->dim[1])
        return DSF_OK;
    hsize_t dim[2] = {(hsize_t)e->dim[0], (hsize_t)row[0]};
    return H5Dset_extent(set, dim) >= 0 ? DSF_OK : dsf_h5_fail(DSF_EIO, w->part, e->path);
}

static dsf_status mend(recovery *w, const dsf_dump_entry *e)
{
    int32_t *label = NULL;
    int64_t n = 0, rows = e->dim[0];
    DSF_TRY(dsf_dump_read_axis(w->from, e->rows, &label, &n));
    dsf_mem_free(label);
    /* records of whole blocks; the rows behind them are not in the file */
    if (e->stats && e->row_block > 0 && rows <= n / e->row_block) rows *= e->row_block;
    if (e->stats && rows == e->dim[0]) rows = n;
    w->r->taps++;
    w->r->rows += rows < n ? rows : n;
    w->r->short_taps += rows < n;
    hid_t set = H5Dopen2(w->file, e->path, H5P_DEFAULT);
    if (set < 0) return dsf_h5_fail(DSF_ECORRUPT, w->part, e->path);
    dsf_status st = rows < n ? cut_labels(w, set, e, rows) : DSF_OK;
    if (st == DSF_OK && !e->stats) st = narrow(w, set, e);
    (void)H5Dclose(set);
    return st;
}

static dsf_status note(const recovery *w)
{
    const dsf_dump_info *info = dsf_dump_info_of(w->from);
    static const char words[] = "recovered from a run that did not finish";
    dsf_buf b = {.max = 0};
    if (strstr(info->notes, words)) return DSF_OK;
    dsf_buf_fmt(&b, "%s%s%s", info->notes, *info->notes ? "; " : "", words);
    dsf_status st = dsf_buf_status(&b);
    if (st == DSF_OK) st = dsf_h5_put_str(w->file, w->part, "notes", b.data);
    dsf_buf_free(&b);
    return st;
}

static dsf_status mend_all(recovery *w)
{
    for (int64_t i = 0; i < dsf_dump_count(w->from); i++) DSF_TRY(mend(w, dsf_dump_at(w->from, i)));
    return note(w);
}

static dsf_status close_file(recovery *w, dsf_status st)
{
    char why[512];
    (void)snprintf(why, sizeof why, "%s", dsf_error_message());
    herr_t closed = H5Fclose(w->file);
    if (w->out.error) return DSF_FAIL(DSF_EIO, "%s: %s", w->part, strerror(w->out.error));
    if (st != DSF_OK) return DSF_FAIL(st, "%s", why);
    return closed < 0 ? dsf_h5_fail(DSF_EIO, w->part, "close") : DSF_OK;
}

/* Mends PATH.part where it lies, and gives it its name. */
static dsf_status finish(const char *part, const char *out, dsf_dump_recovery *r)
{
    recovery w = {.part = part, .file = -1, .r = r};
    DSF_TRY(dsf_dump_open(&w.from, part)); /* in a process of its own first: it may be damaged */
    dsf_status st = dsf_h5_resume(&w.file, part, &w.out);
    if (st == DSF_OK) st = close_file(&w, mend_all(&w));
    dsf_dump_close(w.from);
    if (st != DSF_OK) return st;
    if (rename(part, out) != 0)
        return DSF_FAIL(DSF_EIO, "%s: cannot be named %s: %s", part, out, strerror(errno));
    return DSF_OK;
}

/* ---- to another disk: nothing is written to the one that the run filled ---- */

/* The file system of the folder that `out` lies in. */
static dsf_status disk_of(const char *out, dev_t *disk)
{
    char folder[4096];
    struct stat s;
    if (snprintf(folder, sizeof folder, "%s", out) >= (int)sizeof folder)
        return DSF_FAIL(DSF_EINVAL, "path of %zu bytes is too long", strlen(out));
    if (stat(dirname(folder), &s) != 0) return DSF_FAIL(DSF_EIO, "%s: %s", out, strerror(errno));
    *disk = s.st_dev;
    return DSF_OK;
}

/* A new file; what stands there already may be what another run left. */
static dsf_status copy_file(const char *from, const char *to)
{
    dsf_file f;
    DSF_TRY(dsf_file_open(&f, from));
    int fd = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    dsf_status st = fd >= 0 ? DSF_OK : DSF_FAIL(DSF_EIO, "%s: %s", to, strerror(errno));
    for (size_t at = 0; st == DSF_OK && at < f.size;) {
        ssize_t k = write(fd, f.data + at, f.size - at);
        if (k < 0 && errno != EINTR) st = DSF_FAIL(DSF_EIO, "%s: %s", to, strerror(errno));
        if (k > 0) at += (size_t)k;
    }
    if (fd >= 0 && close(fd) != 0 && st == DSF_OK)
        st = DSF_FAIL(DSF_EIO, "%s: %s", to, strerror(errno));
    if (fd >= 0 && st != DSF_OK) (void)unlink(to);
    dsf_file_close(&f);
    return st;
}

static dsf_status finish_elsewhere(const char *part, const char *out, dsf_dump_recovery *r)
{
    char copy[4200], log[4210], from[4210], why[512];
    (void)snprintf(copy, sizeof copy, "%.4096s.part", out);
    (void)snprintf(log, sizeof log, "%s.log", copy);
    if (snprintf(from, sizeof from, "%s.log", part) >= (int)sizeof from)
        return DSF_FAIL(DSF_EINVAL, "path of %zu bytes is too long", strlen(part));
    bool logged = dsf_file_exists(from);
    if (dsf_file_exists(log) || dsf_file_exists(copy))
        return DSF_FAIL(DSF_EIO, "%s: what another run left is there", copy);
    if (logged) DSF_TRY(copy_file(from, log));
    dsf_status st = copy_file(part, copy);
    if (st != DSF_OK) {
        if (logged) (void)unlink(log);
        return st;
    }
    st = finish(copy, out, r);
    if (st == DSF_OK) return DSF_OK;
    (void)snprintf(why, sizeof why, "%s", dsf_error_message()); /* the original is as it was */
    (void)unlink(copy);
    (void)unlink(log);
    return DSF_FAIL(st, "%s", why);
}

dsf_status dsf_dump_recover(const char *part, const char *out, dsf_dump_recovery *r)
{
    size_t n = strlen(part);
    struct stat s;
    dev_t disk = 0;
    *r = (dsf_dump_recovery){.taps = 0};
    if (n < 6 || strcmp(part + n - 5, ".part") != 0)
        return DSF_FAIL(DSF_EINVAL, "%s: what a killed run leaves is called OUT.h5.part", part);
    DSF_TRY(dsf_file_may_replace(out));
    DSF_TRY(disk_of(out, &disk));
    if (stat(part, &s) != 0) return DSF_FAIL(DSF_EIO, "%s: %s", part, strerror(errno));
    r->copied = s.st_dev != disk;
    return r->copied ? finish_elsewhere(part, out, r) : finish(part, out, r);
}
