#include "base/pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/mem.h"

enum { SPINS = 4000, THREADS_MAX = 1024, INDEX_BITS = 40 };

/* A job is over when its items are done, not when every worker has looked at it: a worker that the
 * system has put aside holds nobody up. So a late worker may still look at a job that is over, and
 * must not take an item of the next: job number and next item share one atomic word, and an item is
 * taken by compare-and-swap on both. */
struct dsf_pool {
    int threads, started;
    pthread_t thread[THREADS_MAX];
    pthread_mutex_t lock;
    pthread_cond_t wake;
    _Atomic uint64_t next; /* job << INDEX_BITS | item */
    atomic_llong n, done;
    _Atomic(dsf_pool_fn *) fn;
    _Atomic(void *) arg;
    atomic_bool stop;
};

typedef struct {
    dsf_pool *pool;
    int worker;
} start_arg;

static uint64_t job_of(uint64_t word) { return word >> INDEX_BITS; }

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* Takes items of the current job until none is left. */
static void work(dsf_pool *p, int worker)
{
    uint64_t word = atomic_load(&p->next);
    for (;;) {
        int64_t item = (int64_t)(word & (((uint64_t)1 << INDEX_BITS) - 1));
        dsf_pool_fn *fn = atomic_load_explicit(&p->fn, memory_order_relaxed);
        void *arg = atomic_load_explicit(&p->arg, memory_order_relaxed);
        if (item >= atomic_load_explicit(&p->n, memory_order_relaxed)) {
            if (atomic_load(&p->next) == word) return;
            word = atomic_load(&p->next); /* n was the next job's */
            continue;
        }
        if (!atomic_compare_exchange_weak(&p->next, &word, word + 1)) continue;
        fn(arg, item, worker);
        atomic_fetch_add_explicit(&p->done, 1, memory_order_release);
        word = atomic_load(&p->next);
    }
}

static void wait_for_job(dsf_pool *p, uint64_t seen)
{
    for (int i = 0; i < SPINS; i++) {
        if (job_of(atomic_load(&p->next)) != seen) return;
        relax();
    }
    (void)pthread_mutex_lock(&p->lock);
    while (job_of(atomic_load(&p->next)) == seen) (void)pthread_cond_wait(&p->wake, &p->lock);
    (void)pthread_mutex_unlock(&p->lock);
}

static void *worker_main(void *arg)
{
    start_arg a = *(start_arg *)arg;
    dsf_mem_free(arg);
    uint64_t seen = 0;
    for (;;) {
        wait_for_job(a.pool, seen);
        seen = job_of(atomic_load(&a.pool->next));
        if (atomic_load(&a.pool->stop)) return NULL;
        work(a.pool, a.worker);
    }
}

/* Publishes the next job: everything about it is written before its number. */
static void post(dsf_pool *p)
{
    uint64_t job = job_of(atomic_load(&p->next)) + 1;
    (void)pthread_mutex_lock(&p->lock);
    atomic_store(&p->next, job << INDEX_BITS);
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
    atomic_store(&p->n, 0); /* whoever still looks finds nothing to do */
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
    /* Close the job that is over (its item index is past any n) before changing what it points to.
     */
    uint64_t closed = (uint64_t)1 << INDEX_BITS;
    atomic_fetch_or(&p->next, closed - 1);
    atomic_store(&p->done, 0);
    atomic_store(&p->n, n);
    atomic_store(&p->fn, fn);
    atomic_store(&p->arg, arg);
    post(p);
    work(p, 0);
    while (atomic_load_explicit(&p->done, memory_order_acquire) < n) relax();
}

int dsf_pool_processors(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
    int n = CPU_COUNT(&set);
    return n > 0 ? n : 1;
}
