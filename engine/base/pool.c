#define _GNU_SOURCE
#include "base/pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/mem.h"

enum { SPINS = 4000, THREADS_MAX = 1024 };

/* Workers spin briefly for the next job, then sleep: a decode step has hundreds of short jobs. */
struct dsf_pool {
    int threads, started;
    pthread_t thread[THREADS_MAX];
    pthread_mutex_t lock;
    pthread_cond_t wake;
    atomic_uint job;   /* number of the current job */
    atomic_int busy;   /* workers still in it */
    atomic_llong next; /* next item */
    atomic_bool stop;
    int64_t n;
    dsf_pool_fn *fn;
    void *arg;
};

typedef struct {
    dsf_pool *pool;
    int worker;
} start_arg;

static void work(dsf_pool *p, int worker)
{
    for (;;) {
        int64_t i = atomic_fetch_add(&p->next, 1);
        if (i >= p->n) return;
        p->fn(p->arg, i, worker);
    }
}

static void wait_for_job(dsf_pool *p, unsigned seen)
{
    for (int i = 0; i < SPINS; i++) {
        if (atomic_load_explicit(&p->job, memory_order_acquire) != seen) return;
        __builtin_ia32_pause();
    }
    (void)pthread_mutex_lock(&p->lock);
    while (atomic_load(&p->job) == seen) (void)pthread_cond_wait(&p->wake, &p->lock);
    (void)pthread_mutex_unlock(&p->lock);
}

static void *worker_main(void *arg)
{
    start_arg a = *(start_arg *)arg;
    dsf_mem_free(arg);
    unsigned seen = 0;
    for (;;) {
        wait_for_job(a.pool, seen);
        seen = atomic_load(&a.pool->job);
        if (atomic_load(&a.pool->stop)) return NULL;
        work(a.pool, a.worker);
        atomic_fetch_sub(&a.pool->busy, 1);
    }
}

static void post(dsf_pool *p)
{
    (void)pthread_mutex_lock(&p->lock);
    atomic_fetch_add(&p->job, 1);
    (void)pthread_cond_broadcast(&p->wake);
    (void)pthread_mutex_unlock(&p->lock);
}

static dsf_status start_worker(dsf_pool *p, int worker)
{
    start_arg *a = NULL;
    DSF_TRY(dsf_mem_new(&a, 1, sizeof *a));
    *a = (start_arg){p, worker};
    if (pthread_create(&p->thread[worker], NULL, worker_main, a) != 0) {
        dsf_mem_free(a);
        return DSF_FAIL(DSF_ENOMEM, "thread %d of %d could not be started", worker + 1, p->threads);
    }
    p->started++;
    return DSF_OK;
}

dsf_status dsf_pool_open(dsf_pool **out, int threads)
{
    if (threads < 1 || threads > THREADS_MAX)
        return DSF_FAIL(DSF_EINVAL, "%d threads asked, 1 to %d possible", threads,
                        (int)THREADS_MAX);
    dsf_pool *p = NULL;
    DSF_TRY(dsf_mem_new(&p, 1, sizeof *p));
    p->threads = threads;
    (void)pthread_mutex_init(&p->lock, NULL);
    (void)pthread_cond_init(&p->wake, NULL);
    for (int i = 1; i < threads; i++) {
        dsf_status st = start_worker(p, i);
        if (st != DSF_OK) {
            dsf_pool_close(p);
            return st;
        }
    }
    *out = p;
    return DSF_OK;
}

void dsf_pool_close(dsf_pool *p)
{
    if (!p) return;
    atomic_store(&p->stop, true);
    post(p);
    for (int i = 1; i <= p->started; i++) (void)pthread_join(p->thread[i], NULL);
    (void)pthread_mutex_destroy(&p->lock);
    (void)pthread_cond_destroy(&p->wake);
    dsf_mem_free(p);
}

int dsf_pool_threads(const dsf_pool *p) { return p ? p->threads : 1; }

void dsf_pool_run(dsf_pool *p, int64_t n, dsf_pool_fn *fn, void *arg)
{
    if (!p || p->threads == 1 || n <= 1) {
        for (int64_t i = 0; i < n; i++) fn(arg, i, 0);
        return;
    }
    p->n = n;
    p->fn = fn;
    p->arg = arg;
    atomic_store(&p->next, 0);
    atomic_store(&p->busy, p->threads - 1);
    post(p);
    work(p, 0);
    while (atomic_load_explicit(&p->busy, memory_order_acquire) != 0) __builtin_ia32_pause();
}

int dsf_pool_processors(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
    int n = CPU_COUNT(&set);
    return n > 0 ? n : 1;
}
