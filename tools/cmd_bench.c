/* dsf bench: measurements as ratios. */
#include <stdio.h>
#include <string.h>

#include "bench/bench.h"
#include "cmd.h"

typedef struct {
    int64_t repeat, threads;
} options;

static dsf_status run_ceiling(const options *o)
{
    dsf_pool *pool = NULL;
    dsf_ceiling c = {.buffer = NULL};
    dsf_samples read = {.n = 0}, bf16 = {.n = 0}, f32 = {.n = 0};
    dsf_status st = DSF_OK;
    DSF_TRY_OUT(dsf_pool_open(&pool, o->threads ? (int)o->threads : dsf_pool_processors()));
    DSF_TRY_OUT(dsf_ceiling_open(&c, pool, (size_t)2 << 30));
    for (int64_t i = 0; i < o->repeat; i++) {
        dsf_samples_add(&read, dsf_ceiling_read(&c, (size_t)512 << 20));
        dsf_samples_add(&bf16, dsf_ceiling_bf16(&c));
        dsf_samples_add(&f32, dsf_ceiling_f32(&c));
    }
    (void)printf("read %.2f GB/s +-%.1f%%, bf16 %.1f GFLOP/s +-%.1f%%, f32 %.1f GFLOP/s +-%.1f%%\n",
                 dsf_samples_median(&read) * 1e-9, 100 * dsf_samples_spread(&read),
                 dsf_samples_median(&bf16) * 1e-9, 100 * dsf_samples_spread(&bf16),
                 dsf_samples_median(&f32) * 1e-9, 100 * dsf_samples_spread(&f32));
out:
    dsf_ceiling_close(&c);
    dsf_pool_close(pool);
    return st;
}

int dsf_cmd_bench(int argc, char **argv)
{
    options o = {.repeat = 9};
    const opt opts[] = {
        {"--repeat", OPT_INT, &o.repeat, "N", "measurements of each kind (default 9)"},
        {"--threads", OPT_INT, &o.threads, "N", "threads (default: all processors)"},
    };
    const char *positional[1] = {NULL};
    const opt_spec spec = {.command = "bench",
                           .synopsis = "ceiling",
                           .about = "Measures this machine: read rate and arithmetic peaks.",
                           .example = "dsf bench ceiling",
                           .opts = opts,
                           .n_opts = sizeof opts / sizeof *opts,
                           .positional = positional,
                           .n_positional = 1,
                           .n_required = 1};
    int code = dsf_opt_parse(&spec, argc, argv);
    if (code >= 0) return code;
    if (strcmp(positional[0], "ceiling") != 0) {
        (void)fprintf(stderr, "dsf bench: no measurement \"%s\"\n", positional[0]);
        return DSF_EXIT_USAGE;
    }
    dsf_status st = run_ceiling(&o);
    return st == DSF_OK ? DSF_EXIT_GOOD : dsf_cmd_fail("bench", st);
}
