#include "verify/reduce/command.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "verify/reduce/cut.h"

enum { N_MOST_ARGS = 4096, LONGEST_NAP_MS = 10 };

typedef struct {
    const char *name;
    unsigned axis;
} placeholder;

static const placeholder placeholders[] = {
#define X(name, axis, help) {"{" name "}", axis},
    DSF_PLACEHOLDER_MAP(X)
#undef X
};
enum { N_PLACEHOLDERS = sizeof placeholders / sizeof *placeholders };

/* The placeholder that the text begins with, or -1. */
static int placeholder_at(const char *text)
{
    for (int k = 0; k < N_PLACEHOLDERS; k++)
        if (strncmp(text, placeholders[k].name, strlen(placeholders[k].name)) == 0) return k;
    return -1;
}

unsigned dsf_command_axes(char *const *argv, int n)
{
    unsigned axes = 0;
    for (int i = 0; i < n; i++)
        for (const char *at = strchr(argv[i], '{'); at; at = strchr(at + 1, '{')) {
            int k = placeholder_at(at);
            if (k >= 0) axes |= placeholders[k].axis;
        }
    return axes;
}

static void fill_one(const dsf_command *c, const char *name, const dsf_candidate *at, dsf_buf *b)
{
    unsigned axes = dsf_command_axes(c->argv, c->n);
    int64_t length = dsf_candidate_length(at, axes);
    if (strcmp(name, "{ids}") == 0 && c->ids_name)
        dsf_buf_str(b, c->ids_name);
    else if (strcmp(name, "{ids}") == 0)
        dsf_buf_fmt(b, "%s/ids", c->work);
    else if (strcmp(name, "{id_list}") == 0)
        for (int64_t i = 0; i < at->n_ids; i++) dsf_buf_fmt(b, "%s%d", i ? "," : "", at->ids[i]);
    else if (strcmp(name, "{length}") == 0)
        dsf_buf_fmt(b, "%lld", (long long)length);
    else if (strcmp(name, "{layers}") == 0)
        dsf_buf_fmt(b, "%lld-%lld", (long long)at->layers[0], (long long)at->layers[1]);
    else if (strcmp(name, "{rows}") == 0)
        dsf_buf_fmt(b, "%lld-%lld", (long long)at->rows[0], (long long)at->rows[1]);
    else if (strcmp(name, "{chunk}") == 0)
        dsf_buf_fmt(b, "%lld", (long long)(at->chunk == DSF_CHUNK_WHOLE ? length : at->chunk));
    else if (strcmp(name, "{batch}") == 0)
        dsf_buf_fmt(b, "%lld", (long long)at->batch);
    else if (strcmp(name, "{variants}") == 0)
        dsf_variant_mask(at->fast, b);
    else if (strcmp(name, "{dump}") == 0)
        dsf_buf_fmt(b, "%s/dump.h5", c->work);
    else
        dsf_buf_fmt(b, "%s/model", c->work);
}

dsf_status dsf_command_fill(const dsf_command *c, int i, const dsf_candidate *at, dsf_buf *out)
{
    for (const char *text = c->argv[i]; *text;) {
        int k = placeholder_at(text);
        if (k < 0) {
            dsf_buf_char(out, *text++);
            continue;
        }
        fill_one(c, placeholders[k].name, at, out);
        text += strlen(placeholders[k].name);
    }
    return dsf_buf_status(out);
}

/* ---- the files that placeholders name ---- */

static dsf_status write_ids(const dsf_command *c, const dsf_candidate *at)
{
    char path[4096];
    dsf_buf b = {.max = 0};
    for (int64_t i = 0; i < at->n_ids; i++)
        dsf_buf_fmt(&b, "%d%c", at->ids[i], i % 16 == 15 || i == at->n_ids - 1 ? '\n' : ' ');
    dsf_status st = dsf_buf_status(&b);
    if (st == DSF_OK) st = dsf_file_join(path, c->work, "ids");
    if (st == DSF_OK) st = dsf_cut_file(path, b.data, b.len);
    dsf_buf_free(&b);
    return st;
}

static dsf_status cut_model(dsf_command *c, int layers)
{
    char path[4096];
    if (layers == c->cut_layers) return DSF_OK;
    DSF_TRY(dsf_file_join(path, c->work, "model"));
    c->cut_layers = 0;
    dsf_cut_remove(path);
    DSF_TRY(dsf_cut_model(c->model, layers, path));
    c->cut_layers = layers;
    return DSF_OK;
}

static dsf_status put_files(dsf_command *c, const dsf_candidate *at)
{
    unsigned axes = dsf_command_axes(c->argv, c->n);
    char path[4096];
    if (axes & DSF_AXIS_IDS) DSF_TRY(write_ids(c, at));
    if (axes & DSF_AXIS_MODEL) DSF_TRY(cut_model(c, (int)at->layers[1] + 1));
    DSF_TRY(dsf_file_join(path, c->work, "dump.h5"));
    (void)unlink(path);
    return DSF_OK;
}

/* Everything: a command may write beside {dump} too. */
void dsf_command_clean(dsf_command *c)
{
    char path[4096];
    if (dsf_file_join(path, c->work, "model") == DSF_OK) dsf_cut_remove(path);
    c->cut_layers = 0;
    DIR *d = opendir(c->work);
    for (struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d))
        if (dsf_file_join(path, c->work, e->d_name) == DSF_OK) (void)unlink(path);
    if (d) (void)closedir(d);
}

/* ---- the process ---- */

/* In the child: its own group, so that a time limit ends all that it started and Ctrl-C reaches the
 * search alone. Tells the errno of a start that failed. */
static void become(char *const *argv, const char *output, int tell)
{
    (void)setpgid(0, 0);
    int in = open("/dev/null", O_RDONLY), out = open(output, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (in >= 0) (void)dup2(in, STDIN_FILENO);
    if (out >= 0) {
        (void)dup2(out, STDOUT_FILENO);
        (void)dup2(out, STDERR_FILENO);
    }
    (void)execvp(argv[0], argv);
    int e = errno;
    (void)!write(tell, &e, sizeof e);
    _exit(127);
}

static void end_group(pid_t child, int *status)
{
    (void)kill(-child, SIGKILL);
    (void)kill(child, SIGKILL);
    while (waitpid(child, status, 0) < 0 && errno == EINTR) {
    }
}

/* Waits; *code as in dsf_try. */
static dsf_status wait_for(const dsf_command *c, pid_t child, int *code)
{
    int status = 0;
    int64_t from = dsf_clock_ns(), nap = 1;
    for (;;) {
        pid_t done = waitpid(child, &status, WNOHANG);
        if (done == child) break;
        if (done < 0 && errno != EINTR)
            return DSF_FAIL(DSF_EIO, "%s: waiting for it: %s", c->argv[0], strerror(errno));
        bool late = (double)(dsf_clock_ns() - from) * 1e-9 > c->limit;
        if (late || (c->stop && c->stop())) {
            end_group(child, &status);
            *code = -1;
            return late ? DSF_OK : DSF_FAIL(DSF_ECANCELED, "stopped");
        }
        const struct timespec t = {0, nap * 1000000};
        (void)nanosleep(&t, NULL);
        if (nap < LONGEST_NAP_MS) nap++;
    }
    (void)kill(-child, SIGKILL); /* what it left running */
    *code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return DSF_OK;
}

static dsf_status spawn(const dsf_command *c, char *const *argv, const char *output, int *code)
{
    int tell[2], start_error = 0;
    if (pipe2(tell, O_CLOEXEC) != 0) return DSF_FAIL(DSF_EIO, "pipe: %s", strerror(errno));
    pid_t child = fork();
    if (child == 0) become(argv, output, tell[1]);
    (void)close(tell[1]);
    bool failed =
        child > 0 && read(tell[0], &start_error, sizeof start_error) == (ssize_t)sizeof start_error;
    (void)close(tell[0]);
    if (child < 0) return DSF_FAIL(DSF_EIO, "fork: %s", strerror(errno));
    (void)setpgid(child, child);
    DSF_TRY(wait_for(c, child, code));
    if (failed) return DSF_FAIL(DSF_EIO, "%s: %s", argv[0], strerror(start_error));
    return DSF_OK;
}

/* The last line that is not empty. */
static void last_line(const char *path, char out[256])
{
    dsf_file f;
    out[0] = 0;
    if (dsf_file_open(&f, path) != DSF_OK) return;
    size_t end = f.size;
    while (end > 0 && strchr(" \t\r\n", f.data[end - 1])) end--;
    size_t from = end;
    while (from > 0 && f.data[from - 1] != '\n' && end - from < 255) from--;
    if (end > from) (void)snprintf(out, 256, "%.*s", (int)(end - from), f.data + from);
    dsf_file_close(&f);
}

static dsf_status fill_all(const dsf_command *c, const dsf_candidate *at, dsf_buf *text,
                           char **argv)
{
    size_t start[N_MOST_ARGS];
    for (int i = 0; i < c->n; i++) {
        start[i] = text->len;
        DSF_TRY(dsf_command_fill(c, i, at, text));
        dsf_buf_char(text, 0);
    }
    DSF_TRY(dsf_buf_status(text));
    for (int i = 0; i < c->n; i++) argv[i] = text->data + start[i];
    argv[c->n] = NULL;
    return DSF_OK;
}

dsf_status dsf_command_fails(const char *const *word, int n, int code[16], int *n_codes)
{
    for (int i = 0; i < n; i++) {
        int k = 0;
        bool number = i < 16 && sscanf(word[i], "%d%n", &code[i], &k) == 1 && !word[i][k];
        if (i < 16 && !number) code[i] = strcmp(word[i], "timeout") == 0 ? -1 : 0;
        if (i == 16 || code[i] == 0 || code[i] < (number ? 1 : -1) || code[i] > 255)
            return DSF_FAIL(DSF_EINVAL,
                            "--fails %s: exit codes from 1 to 255 (128 + the number of a signal), "
                            "or timeout; at most 16",
                            word[i]);
        *n_codes = i + 1;
    }
    return DSF_OK;
}

static dsf_reduce_outcome outcome_of(const dsf_command *c, int code)
{
    for (int i = 0; i < c->n_fails; i++)
        if (c->fails[i] == code) return DSF_REDUCE_FAILS;
    return code == 0 ? DSF_REDUCE_GOOD : DSF_REDUCE_COULD_NOT;
}

dsf_status dsf_command_run(dsf_command *c, const dsf_candidate *at, dsf_try *out)
{
    dsf_buf text = {.max = 0};
    char **argv = NULL, output[4096];
    dsf_status st = DSF_OK;
    int64_t from = dsf_clock_ns();
    if (c->n < 1 || c->n >= N_MOST_ARGS)
        DSF_TRY(DSF_FAIL(DSF_EINVAL, "%d words in the command, allowed are 1 to %d", c->n,
                         N_MOST_ARGS - 1));
    DSF_TRY(put_files(c, at));
    DSF_TRY(dsf_file_join(output, c->work, "output"));
    DSF_TRY(dsf_mem_new(&argv, (size_t)c->n + 1, sizeof *argv));
    DSF_TRY_OUT(fill_all(c, at, &text, argv));
    *out = (dsf_try){.runs = 1};
    DSF_TRY_OUT(spawn(c, argv, output, &out->exit));
    out->outcome = outcome_of(c, out->exit);
    out->seconds = (double)(dsf_clock_ns() - from) * 1e-9;
    last_line(output, c->says);
out:
    dsf_mem_free(argv);
    dsf_buf_free(&text);
    return st;
}
