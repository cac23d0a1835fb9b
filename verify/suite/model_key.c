/* What a model is, read in a process of its own: a file that shrinks under the map or a plan that
 * cannot be made ends that process and not the run. Weights are hashed by all threads. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/pool.h"
#include "ckpt/digest.h"
#include "ckpt/index.h"
#include "serve/engine.h"
#include "verify/suite/unit.h"

enum { POLL_MS = 200 };
static const int64_t portion = (int64_t)1 << 30; /* bytes between two looks at the clock */

/* ---- in the process of its own ---- */

typedef struct {
    const dsf_ckpt *ckpt;
    int64_t from;
    char (*hex)[33]; /* one a tensor */
} hashing;

static void hash_one(void *arg, int64_t item, int worker)
{
    const hashing *h = arg;
    const dsf_ckpt_entry *e = dsf_ckpt_at(h->ckpt, h->from + item);
    (void)worker;
    dsf_digest_bytes(e->bytes ? e->view.data : "", e->bytes, h->hex[h->from + item]);
}

static void hash_all(const dsf_verify_options *o, hashing *h, dsf_pool *pool)
{
    int64_t n = dsf_ckpt_count(h->ckpt), all = dsf_ckpt_bytes(h->ckpt), done = 0;
    while (h->from < n) {
        int64_t to = h->from, bytes = 0;
        while (to < n && bytes < portion) bytes += (int64_t)dsf_ckpt_at(h->ckpt, to++)->bytes;
        dsf_pool_run(pool, to - h->from, hash_one, h);
        h->from = to;
        done += bytes;
        if (o->progress && all > portion) o->progress("weights", done, all);
    }
}

/* Of names, layout and every byte; the number of threads and the shards do not matter. */
static dsf_status hash_weights(const dsf_verify_options *o, const dsf_ckpt *c, dsf_suite_model *m)
{
    hashing h = {.ckpt = c};
    dsf_pool *pool = NULL;
    dsf_digest *d = NULL;
    dsf_status st;
    DSF_TRY_OUT(dsf_mem_new(&h.hex, (size_t)dsf_ckpt_count(c) + 1, sizeof *h.hex));
    DSF_TRY_OUT(dsf_pool_open(&pool, o->threads > 0 ? o->threads : dsf_pool_processors()));
    DSF_TRY_OUT(dsf_digest_open(&d));
    hash_all(o, &h, pool);
    dsf_digest_add(d, m->layout, sizeof m->layout);
    for (int64_t i = 0; i < dsf_ckpt_count(c); i++) dsf_digest_add(d, h.hex[i], sizeof h.hex[i]);
    dsf_digest_hex(d, m->weights);
out:
    dsf_digest_close(d);
    dsf_pool_close(pool);
    dsf_mem_free(h.hex);
    return st;
}

static void add_variants(const dsf_verify_options *o, const char *folder, dsf_suite_model *m)
{
    const dsf_options open = {.model = folder, .variants = o->variants, .threads = 1};
    dsf_engine *e = NULL;
    dsf_buf text = {.max = sizeof m->variants};
    if (dsf_engine_open(&e, &open) == DSF_OK) dsf_plan_variants(e->plan, &text);
    if (text.data) (void)snprintf(m->variants, sizeof m->variants, "%s", text.data);
    dsf_engine_close(e);
    dsf_buf_free(&text);
}

static void describe(const dsf_verify_options *o, const char *folder, bool weights,
                     dsf_suite_model *m)
{
    dsf_ckpt *c = NULL;
    if (dsf_ckpt_open(&c, folder) == DSF_OK && dsf_ckpt_digest(c, m->layout) == DSF_OK && weights) {
        if (hash_weights(o, c, m) != DSF_OK) (void)snprintf(m->weights, sizeof m->weights, "?");
        add_variants(o, folder, m);
    }
    dsf_ckpt_close(c);
}

static void be_child(const dsf_verify_options *o, const char *folder, bool weights, int fd)
{
    dsf_suite_model m = {.layout = ""};
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)signal(SIGINT, SIG_IGN); /* the parent ends it */
    (void)signal(SIGTERM, SIG_DFL);
    describe(o, folder, weights, &m);
    exit(write(fd, &m, sizeof m) == (ssize_t)sizeof m ? 0 : 1); /* below PIPE_BUF: all or nothing */
}

/* ---- the parent ---- */

static dsf_status wait_for(const dsf_verify_options *o, int fd, dsf_suite_model *m)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    for (;;) {
        int n = poll(&p, 1, POLL_MS);
        if (n < 0 && errno != EINTR) return DSF_FAIL(DSF_EIO, "a worker: %s", strerror(errno));
        if (o->stop && o->stop()) return DSF_FAIL(DSF_ECANCELED, "stopped on request");
        if (n > 0) break;
    }
    dsf_suite_model got;
    if (read(fd, &got, sizeof got) == (ssize_t)sizeof got) *m = got;
    return DSF_OK;
}

dsf_status dsf_suite_model_key(const dsf_verify_options *o, const char *folder, bool weights,
                               dsf_suite_model *m)
{
    int fd[2];
    _Static_assert(sizeof *m <= 4096, "one write to a pipe");
    *m = (dsf_suite_model){.layout = ""};
    if (pipe(fd) != 0) return DSF_FAIL(DSF_EIO, "a pipe to a worker: %s", strerror(errno));
    (void)fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        (void)close(fd[0]);
        be_child(o, folder, weights, fd[1]);
    }
    (void)close(fd[1]);
    dsf_status st = pid < 0 ? DSF_FAIL(DSF_EIO, "a worker process: %s", strerror(errno))
                            : wait_for(o, fd[0], m);
    (void)close(fd[0]);
    if (pid > 0 && st != DSF_OK) (void)kill(pid, SIGKILL);
    while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR) continue;
    (void)snprintf(m->name, sizeof m->name, "%.255s", dsf_suite_base(folder));
    return st;
}
