/* Every unit runs in a forked process, so that a crash is one failed check and not a lost run, and
 * counters of allocations and resident memory are the unit's own. The parent opens no engine and
 * has no threads; it shares the threads that were asked for among the processes. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/pool.h"
#include "ckpt/index.h"
#include "verify/suite/unit.h"

enum { MOST_WORKERS = 16, POLL_MS = 200 };
/* Of a larger checkpoint several engines at a time would not fit: one, with all threads. */
static const int64_t large_checkpoint = (int64_t)1 << 30;

typedef struct {
    dsf_suite_unit *unit;
    pid_t pid;
    int fd;      /* -1: free */
    dsf_buf got; /* what it sent */
    int64_t t0;
} worker;

typedef struct {
    const dsf_verify_options *o;
    dsf_suite_plan *p;
    dsf_results *r;
    worker w[MOST_WORKERS];
    int n_workers, threads, running, finished;
    char folder[DSF_TEMP_BYTES];
} work;

/* ---- the child ---- */

static bool send_all(int fd, const void *data, size_t n)
{
    const char *at = data;
    while (n) {
        ssize_t k = write(fd, at, n);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) return false;
        at += k;
        n -= (size_t)k;
    }
    return true;
}

/* Checks as they lie in memory (both sides are one program), each followed by its table. */
static bool send_checks(int fd, const dsf_suite_check *c, int n)
{
    for (int i = 0; i < n; i++)
        if (!send_all(fd, &c[i], sizeof c[i]) ||
            (c[i].detail.len && !send_all(fd, c[i].detail.data, c[i].detail.len)))
            return false;
    return true;
}

static void be_child(const dsf_suite_unit *u, const dsf_results *r, int fd)
{
    dsf_suite_check check[DSF_SUITE_MOST_CHECKS];
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)signal(SIGINT, SIG_IGN); /* the parent ends it, and keeps what is finished */
    (void)signal(SIGTERM, SIG_DFL);
    int64_t t0 = dsf_clock_ns();
    for (int i = 0; i < u->n; i++)
        dsf_suite_begin(&check[i], r->check[u->first + i].suite, r->check[u->first + i].name);
    u->run(u, check);
    (void)unlink(u->temp);
    double seconds = (double)(dsf_clock_ns() - t0) * 1e-9;
    for (int i = 0; i < u->n; i++) check[i].seconds = seconds;
    bool sent = send_checks(fd, check, u->n);
    for (int i = 0; i < u->n; i++) dsf_buf_free(&check[i].detail);
    (void)close(fd);
    exit(sent ? 0 : 1); /* not _exit: a leak checker looks at exit */
}

/* ---- the parent ---- */

static dsf_status start(work *k, worker *w, dsf_suite_unit *u)
{
    int fd[2];
    u->threads = u->alone ? k->threads : k->threads / k->n_workers;
    if (u->threads < 1) u->threads = 1;
    (void)snprintf(u->temp, sizeof u->temp, "%s/%d.h5", k->folder, (int)(w - k->w));
    if (pipe(fd) != 0) return DSF_FAIL(DSF_EIO, "a pipe to a worker: %s", strerror(errno));
    (void)fflush(NULL); /* else the child would write the same again */
    pid_t pid = fork();
    if (pid < 0) {
        (void)close(fd[0]);
        (void)close(fd[1]);
        return DSF_FAIL(DSF_EIO, "a worker process: %s", strerror(errno));
    }
    if (pid == 0) {
        (void)close(fd[0]);
        be_child(u, k->r, fd[1]);
    }
    (void)close(fd[1]);
    *w = (worker){.unit = u, .pid = pid, .fd = fd[0], .t0 = dsf_clock_ns()};
    k->running++;
    return DSF_OK;
}

/* Takes the checks that arrived whole; the number of them. */
static int take(work *k, worker *w)
{
    size_t at = 0;
    for (int i = 0; i < w->unit->n; i++) {
        dsf_suite_check *c = &k->r->check[w->unit->first + i], in;
        if (w->got.len - at < sizeof in) return i;
        memcpy(&in, w->got.data + at, sizeof in);
        at += sizeof in;
        size_t n = in.detail.len;
        if (n > w->got.len - at) return i;
        in.detail = (dsf_buf){.max = 0};
        if (n) dsf_buf_add(&in.detail, w->got.data + at, n);
        at += n;
        *c = in;
    }
    return w->unit->n;
}

static void name_end(dsf_suite_check *c, int status)
{
    c->verdict = DSF_FAILED;
    if (WIFSIGNALED(status))
        dsf_suite_say(c, "the check crashed: signal %d (%s)", WTERMSIG(status),
                      strsignal(WTERMSIG(status)));
    else
        dsf_suite_say(c, "the check ended early, with exit code %d", WEXITSTATUS(status));
}

static void finish(work *k, worker *w)
{
    int status = 0;
    (void)close(w->fd);
    w->fd = -1;
    while (waitpid(w->pid, &status, 0) < 0 && errno == EINTR) continue;
    int whole = take(k, w);
    bool clean = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    for (int i = 0; i < w->unit->n; i++) {
        dsf_suite_check *c = &k->r->check[w->unit->first + i];
        if (!clean || i >= whole) {
            name_end(c, status);
            c->seconds = (double)(dsf_clock_ns() - w->t0) * 1e-9;
        }
        dsf_suite_seal(c);
        if (k->o->finished) k->o->finished(k->o->ud, c);
    }
    dsf_buf_free(&w->got);
    (void)unlink(w->unit->temp);
    k->running--;
    k->finished++;
    if (k->o->progress) k->o->progress("verify", k->finished, k->p->n);
}

/* Waits for some worker to say something. */
static dsf_status listen_to(work *k)
{
    struct pollfd p[MOST_WORKERS];
    worker *of[MOST_WORKERS];
    int n = 0;
    for (int i = 0; i < k->n_workers; i++)
        if (k->w[i].fd >= 0) {
            of[n] = &k->w[i];
            p[n++] = (struct pollfd){.fd = k->w[i].fd, .events = POLLIN};
        }
    if (poll(p, (nfds_t)n, POLL_MS) < 0 && errno != EINTR)
        return DSF_FAIL(DSF_EIO, "workers: %s", strerror(errno));
    for (int i = 0; i < n; i++) {
        char chunk[65536];
        if (!(p[i].revents & (POLLIN | POLLHUP | POLLERR))) continue;
        ssize_t got = read(of[i]->fd, chunk, sizeof chunk);
        if (got > 0) dsf_buf_add(&of[i]->got, chunk, (size_t)got);
        if (got == 0 || (got < 0 && errno != EINTR)) finish(k, of[i]);
    }
    return DSF_OK;
}

static worker *free_worker(work *k, const dsf_suite_unit *u)
{
    if (u->alone && k->running > 0) return NULL;
    for (int i = 0; i < k->n_workers; i++)
        if (k->w[i].fd < 0) return &k->w[i];
    return NULL;
}

static dsf_status check_stop(const work *k)
{
    if (k->o->stop && k->o->stop()) return DSF_FAIL(DSF_ECANCELED, "stopped on request");
    return DSF_OK;
}

static dsf_status run_one(work *k, dsf_suite_unit *u)
{
    worker *w;
    while ((w = free_worker(k, u)) == NULL) {
        DSF_TRY(listen_to(k));
        DSF_TRY(check_stop(k));
    }
    return start(k, w, u);
}

/* Those that need the machine for themselves come last. */
static dsf_status run_all(work *k, bool alone)
{
    for (int i = 0; i < k->p->n; i++) {
        if (k->p->unit[i].alone != alone) continue;
        DSF_TRY(check_stop(k));
        DSF_TRY(run_one(k, &k->p->unit[i]));
    }
    while (k->running > 0) {
        DSF_TRY(listen_to(k));
        DSF_TRY(check_stop(k));
    }
    return DSF_OK;
}

static void end_all(work *k)
{
    for (int i = 0; i < k->n_workers; i++) {
        worker *w = &k->w[i];
        if (w->fd < 0) continue;
        (void)kill(w->pid, SIGKILL);
        (void)close(w->fd);
        while (waitpid(w->pid, NULL, 0) < 0 && errno == EINTR) continue;
        dsf_buf_free(&w->got);
    }
}

/* How many at a time: a checkpoint that cannot be read is the checks' business. */
static int workers_for(const dsf_suite_plan *p, int threads)
{
    int64_t most = 0;
    for (int i = 0; i < p->n; i++) {
        dsf_ckpt *c = NULL;
        bool same = i && p->unit[i].model == p->unit[i - 1].model;
        if (!p->unit[i].model || same || dsf_ckpt_open(&c, p->unit[i].model) != DSF_OK) continue;
        if (dsf_ckpt_bytes(c) > most) most = dsf_ckpt_bytes(c);
        dsf_ckpt_close(c);
    }
    if (most > large_checkpoint) return 1;
    return threads < MOST_WORKERS ? threads : MOST_WORKERS;
}

dsf_status dsf_suite_work(const dsf_verify_options *o, dsf_suite_plan *p, dsf_results *r)
{
    work k = {.o = o, .p = p, .r = r, .folder = ""};
    for (int i = 0; i < MOST_WORKERS; i++) k.w[i].fd = -1;
    k.threads = o->threads > 0 ? o->threads : dsf_pool_processors();
    k.n_workers = workers_for(p, k.threads);
    DSF_TRY(dsf_temp_open(k.folder, "dsf-verify"));
    dsf_status st = run_all(&k, false);
    if (st == DSF_OK) st = run_all(&k, true);
    end_all(&k);
    dsf_temp_close(k.folder);
    return st;
}
