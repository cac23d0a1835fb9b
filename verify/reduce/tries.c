#include "verify/reduce/tries.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "ckpt/digest.h"

typedef struct {
    char key[33];
    dsf_try what;
} entry;

struct dsf_tries {
    char path[4096];
    int fd; /* -1: in memory */
    unsigned axes;
    entry *entry;
    int64_t n, cap;
    double seconds;
};

static void key_of(const dsf_tries *t, const dsf_candidate *c, char key[33])
{
    dsf_buf b = {.max = 0};
    dsf_candidate_json(c, t->axes, &b);
    dsf_digest_bytes(b.data, b.len, key);
    dsf_buf_free(&b);
}

static dsf_status put_entry(dsf_tries *t, const char key[33], const dsf_try *what)
{
    if (t->n == t->cap) {
        int64_t cap = t->cap ? 2 * t->cap : 256;
        DSF_TRY(dsf_mem_grow(&t->entry, (size_t)cap, sizeof *t->entry));
        t->cap = cap;
    }
    entry *e = &t->entry[t->n++];
    memcpy(e->key, key, sizeof e->key);
    e->what = *what;
    t->seconds += what->seconds;
    return DSF_OK;
}

static dsf_status put_line(const dsf_tries *t, dsf_buf *b)
{
    dsf_buf_char(b, '\n');
    DSF_TRY(dsf_buf_status(b));
    for (size_t at = 0; t->fd >= 0 && at < b->len;) {
        ssize_t k = write(t->fd, b->data + at, b->len - at);
        if (k < 0 && errno != EINTR) return DSF_FAIL(DSF_EIO, "%s: %s", t->path, strerror(errno));
        if (k > 0) at += (size_t)k;
    }
    return DSF_OK;
}

/* ---- the first line: which search ---- */

static void head_line(const dsf_tries_bind *bind, dsf_buf *b)
{
    char key[33];
    dsf_buf start = {.max = 0};
    dsf_candidate_json(bind->start, bind->axes, &start);
    dsf_digest_bytes(start.data, start.len, key);
    dsf_buf_free(&start);
    dsf_json_begin(b, NULL, '{');
    dsf_json_add_cstr(b, "schema", "dsf-reduce-1");
    dsf_json_begin(b, "command", '[');
    for (int i = 0; i < bind->n_command; i++) dsf_json_add_cstr(b, NULL, bind->command[i]);
    dsf_json_end(b, ']');
    dsf_json_add_cstr(b, "start", key);
    dsf_json_add_int(b, "filler", bind->filler);
    dsf_json_add_int(b, "repeat", bind->repeat);
    dsf_json_end(b, '}');
}

static dsf_status check_head(const dsf_tries *t, const char *line, size_t n,
                             const dsf_tries_bind *bind)
{
    dsf_buf want = {.max = 0};
    head_line(bind, &want);
    dsf_status st = dsf_buf_status(&want);
    if (st == DSF_OK && (n != want.len || memcmp(line, want.data, n) != 0))
        st = DSF_FAIL(DSF_EINVAL, "%s: of another search: it begins %.*s, this one %.300s", t->path,
                      (int)(n < 300 ? n : 300), line, want.data);
    dsf_buf_free(&want);
    return st;
}

/* ---- the other lines ---- */

static bool parse_outcome(const char *text, dsf_reduce_outcome *out)
{
    for (int k = DSF_REDUCE_GOOD; k <= DSF_REDUCE_COULD_NOT; k++)
        if (strcmp(text, dsf_reduce_outcome_name((dsf_reduce_outcome)k)) == 0) {
            *out = (dsf_reduce_outcome)k;
            return true;
        }
    return false;
}

static dsf_status read_try(dsf_tries *t, const dsf_json *v, int64_t line)
{
    dsf_try what = {.runs = 0};
    int64_t code = 0, runs = 1;
    const dsf_json *number[] = {dsf_json_get(v, "exit"), dsf_json_get(v, "runs"),
                                dsf_json_get(v, "seconds")};
    const dsf_json *key = dsf_json_get(v, "key"), *outcome = dsf_json_get(v, "outcome");
    bool good = key && strlen(dsf_json_text(key, NULL)) == 32 && outcome &&
                parse_outcome(dsf_json_text(outcome, NULL), &what.outcome) && number[0] &&
                number[1] && number[2] && dsf_json_int(number[0], &code) == DSF_OK &&
                dsf_json_int(number[1], &runs) == DSF_OK &&
                dsf_json_double(number[2], &what.seconds) == DSF_OK;
    if (!good)
        return DSF_FAIL(DSF_ECORRUPT,
                        "%s: line %lld: no try: key (32 digits), outcome (good, fails, could not), "
                        "exit, runs and seconds are needed",
                        t->path, (long long)line);
    what.exit = (int)code;
    what.runs = (int)runs;
    what.again = dsf_json_true(dsf_json_get(v, "again"));
    return put_entry(t, dsf_json_text(key, NULL), &what);
}

static dsf_status read_line(dsf_tries *t, const char *text, size_t n, int64_t line)
{
    dsf_json_doc *doc = NULL;
    char name[4200];
    (void)snprintf(name, sizeof name, "%s: line %lld", t->path, (long long)line);
    DSF_TRY(dsf_json_parse(&doc, name, text, n));
    dsf_status st = read_try(t, dsf_json_root(doc), line);
    dsf_json_free(doc);
    return st;
}

/* *whole: bytes up to the end of the last complete line. */
static dsf_status read_all(dsf_tries *t, const dsf_tries_bind *bind, size_t *whole)
{
    dsf_file f;
    dsf_status st = DSF_OK;
    DSF_TRY(dsf_file_open(&f, t->path));
    const char *text = (const char *)f.data;
    size_t at = 0;
    for (int64_t line = 1; at < f.size; line++) {
        const char *end = memchr(text + at, '\n', f.size - at);
        if (!end) break;
        size_t n = (size_t)(end - text) - at;
        DSF_TRY_OUT(line == 1 ? check_head(t, text + at, n, bind)
                              : read_line(t, text + at, n, line));
        at += n + 1;
    }
    *whole = at;
out:
    dsf_file_close(&f);
    return st;
}

static dsf_status open_file(dsf_tries *t, bool resume, const dsf_tries_bind *bind)
{
    size_t whole = 0;
    if (resume) DSF_TRY(read_all(t, bind, &whole));
    t->fd = open(t->path, O_WRONLY | O_CREAT | O_CLOEXEC | (resume ? 0 : O_EXCL), 0666);
    if (t->fd < 0 && errno == EEXIST)
        return DSF_FAIL(DSF_EINVAL, "%s: is there: go on from it with --resume, or remove it",
                        t->path);
    if (t->fd < 0 || ftruncate(t->fd, (off_t)whole) != 0 || lseek(t->fd, 0, SEEK_END) < 0)
        return DSF_FAIL(DSF_EIO, "%s: %s", t->path, strerror(errno));
    if (whole) return DSF_OK;
    dsf_buf b = {.max = 0};
    head_line(bind, &b);
    dsf_status st = put_line(t, &b);
    dsf_buf_free(&b);
    return st;
}

dsf_status dsf_tries_open(dsf_tries **out, const char *path, bool resume,
                          const dsf_tries_bind *bind)
{
    dsf_tries *t;
    DSF_TRY(dsf_mem_new(&t, 1, sizeof *t));
    t->fd = -1;
    t->axes = bind->axes;
    dsf_status st = DSF_OK;
    if (path) {
        (void)snprintf(t->path, sizeof t->path, "%s", path);
        st = open_file(t, resume, bind);
    }
    if (st == DSF_OK)
        *out = t;
    else
        dsf_tries_close(t);
    return st;
}

bool dsf_tries_find(const dsf_tries *t, const dsf_candidate *c, bool again, dsf_try *out)
{
    char key[33];
    key_of(t, c, key);
    for (int64_t i = t->n - 1; i >= 0; i--)
        if (t->entry[i].what.again == again && memcmp(t->entry[i].key, key, 33) == 0) {
            *out = t->entry[i].what;
            return true;
        }
    return false;
}

dsf_status dsf_tries_add(dsf_tries *t, const dsf_candidate *c, const dsf_try *what)
{
    char key[33];
    dsf_buf b = {.max = 0};
    key_of(t, c, key);
    DSF_TRY(put_entry(t, key, what));
    dsf_json_begin(&b, NULL, '{');
    dsf_json_add_int(&b, "try", t->n);
    dsf_json_add_cstr(&b, "outcome", dsf_reduce_outcome_name(what->outcome));
    dsf_json_add_int(&b, "exit", what->exit);
    dsf_json_add_num(&b, "seconds", what->seconds);
    dsf_json_add_int(&b, "runs", what->runs);
    if (what->again) dsf_json_add_bool(&b, "again", true);
    dsf_json_begin(&b, "candidate", '{');
    dsf_candidate_json(c, t->axes, &b);
    dsf_json_end(&b, '}');
    dsf_json_add_cstr(&b, "key", key);
    dsf_json_end(&b, '}');
    dsf_status st = put_line(t, &b);
    dsf_buf_free(&b);
    return st;
}

int64_t dsf_tries_count(const dsf_tries *t) { return t->n; }
double dsf_tries_seconds(const dsf_tries *t) { return t->seconds; }

void dsf_tries_close(dsf_tries *t)
{
    if (!t) return;
    if (t->fd >= 0) (void)close(t->fd);
    dsf_mem_free(t->entry);
    dsf_mem_free(t);
}
