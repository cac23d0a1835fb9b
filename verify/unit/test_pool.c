#include <criterion/criterion.h>
#include <stdatomic.h>
#include <string.h>

#include "base/mem.h"
#include "base/pool.h"

enum { ITEMS = 1000, MOST = 8 };

typedef struct {
    atomic_int done[ITEMS];
    atomic_int by[MOST];
    atomic_int inside[MOST]; /* items that a worker is in: never two */
    atomic_int clash, threads;
} tally;

static void count(void *arg, int64_t item, int worker)
{
    tally *t = arg;
    if (worker < 0 || worker >= atomic_load(&t->threads)) {
        atomic_fetch_add(&t->clash, 1);
        return;
    }
    if (atomic_fetch_add(&t->inside[worker], 1) != 0) atomic_fetch_add(&t->clash, 1);
    atomic_fetch_add(&t->done[item], 1);
    atomic_fetch_add(&t->by[worker], 1);
    atomic_fetch_sub(&t->inside[worker], 1);
}

static void expect_each_once(dsf_pool *p, int threads, int64_t n)
{
    tally t = {0};
    atomic_store(&t.threads, threads);
    dsf_pool_run(p, n, count, &t);
    cr_expect_eq(atomic_load(&t.clash), 0, "a worker outside 0..%d or in two items at once",
                 threads - 1);
    for (int64_t i = 0; i < ITEMS; i++)
        cr_assert_eq(atomic_load(&t.done[i]), i < n, "%d threads, %d items: item %d", threads,
                     (int)n, (int)i);
}

Test(pool, every_item_runs_once_whatever_the_threads)
{
    for (int threads = 1; threads <= MOST; threads++) {
        dsf_pool *p = NULL;
        cr_assert_eq(dsf_pool_open(&p, threads), DSF_OK);
        cr_expect_eq(dsf_pool_threads(p), threads);
        for (int64_t n = 0; n <= ITEMS; n = n * 3 + 1) expect_each_once(p, threads, n);
        expect_each_once(p, threads, ITEMS);
        dsf_pool_close(p);
    }
}

Test(pool, none_means_the_callers_thread)
{
    cr_expect_eq(dsf_pool_threads(NULL), 1);
    expect_each_once(NULL, 1, ITEMS);
    dsf_pool_close(NULL);
}

/* A decode step is hundreds of short jobs in a row: none may be lost or seen twice. */
Test(pool, many_short_jobs_one_after_the_other)
{
    dsf_pool *p = NULL;
    cr_assert_eq(dsf_pool_open(&p, 3), DSF_OK);
    for (int i = 0; i < 3000; i++) {
        tally t = {0};
        atomic_store(&t.threads, 3);
        dsf_pool_run(p, i % 7, count, &t);
        int sum = 0;
        for (int w = 0; w < 3; w++) sum += atomic_load(&t.by[w]);
        cr_assert_eq(sum, i % 7, "job %d", i);
    }
    dsf_pool_close(p);
}

static void wait_for_all(void *arg, int64_t item, int worker)
{
    (void)item;
    (void)worker;
    atomic_int *arrived = arg;
    atomic_fetch_add(arrived, 1);
    while (atomic_load(arrived) < 4) { /* ends only when four workers are here together */
    }
}

Test(pool, workers_work_at_the_same_time, .timeout = 120)
{
    dsf_pool *p = NULL;
    atomic_int arrived = 0;
    cr_assert_eq(dsf_pool_open(&p, 4), DSF_OK);
    dsf_pool_run(p, 4, wait_for_all, &arrived);
    cr_expect_eq(atomic_load(&arrived), 4);
    dsf_pool_close(p);
}

Test(pool, refuses_a_number_of_threads_out_of_range)
{
    dsf_pool *p = NULL;
    cr_expect_eq(dsf_pool_open(&p, 0), DSF_EINVAL);
    cr_expect_eq(dsf_pool_open(&p, -3), DSF_EINVAL);
    cr_expect_eq(dsf_pool_open(&p, 1 << 20), DSF_EINVAL);
    cr_expect_not_null(strstr(dsf_error_message(), "1048576"));
    cr_expect_null(p, "written only on success");
}

Test(pool, a_failed_allocation_ends_in_a_status)
{
    for (uint64_t nth = 1; nth < 20; nth++) {
        dsf_pool *p = NULL;
        dsf_mem_fail_at(nth);
        dsf_status st = dsf_pool_open(&p, 4);
        dsf_mem_fail_at(0);
        if (st == DSF_OK) {
            expect_each_once(p, 4, ITEMS);
            dsf_pool_close(p);
            cr_expect_gt(nth, 1u);
            return;
        }
        cr_assert_eq(st, DSF_ENOMEM);
        cr_assert_null(p);
    }
    cr_assert(false, "it never succeeded");
}

Test(pool, at_least_one_processor) { cr_expect_geq(dsf_pool_processors(), 1); }
