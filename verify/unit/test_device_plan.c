/* A plan for a CUDA device is made, priced and printed on a machine that has none. */
#include <criterion/criterion.h>
#include <string.h>

#include "engine_fixture.h"
#include "model/synth.h"
#include "serve/engine.h"

/* The first layers of the released model, at a prefill chunk or a decode batch. */
static dsf_status open_plan(dsf_engine **e, struct dsf_synthetic *s, int layers, int64_t chunk)
{
    dsf_buf json = {.max = 0};
    GOOD(dsf_synth_preset(&s->config, "full"));
    GOOD(dsf_synth_trim(&s->config, layers, 0));
    s->config.engram_vocab_size = 1000;
    GOOD(dsf_synth_finish(&s->config, &json));
    dsf_buf_free(&json);
    s->config.vision.present = false;
    const dsf_options o = {
        .synthetic = s, .variants = "cuda", .context = 16384, .chunk = chunk, .plan_only = true};
    return dsf_engine_open(e, &o);
}

static const char *variant_of(const dsf_plan *p, const char *op)
{
    for (int i = 0; i < p->n_steps; i++)
        if (strcmp(p->step[i].op->name, op) == 0) return p->step[i].variant->name;
    return "";
}

Test(device_plan, at_the_released_shapes_the_tensor_cores_take_every_product)
{
    const int64_t chunk[] = {1, 64, 8192};
    for (size_t i = 0; i < sizeof chunk / sizeof *chunk; i++) {
        struct dsf_synthetic s = {.seed = 1};
        dsf_engine *e = NULL;
        GOOD(open_plan(&e, &s, 4, chunk[i]));
        for (int k = 0; k < e->plan->n_steps; k++)
            cr_expect(e->plan->step[k].variant->needs & DSF_NEEDS_SM90);
        static const char *const fp8[] = {"linear_g8", "experts_up", "experts_down"};
        static const char *const tc[] = {"linear_group", "linear_gf", "linear_gb", "attn",
                                         "index_topk"};
        for (size_t k = 0; k < sizeof fp8 / sizeof *fp8; k++)
            cr_expect_str_eq(variant_of(e->plan, fp8[k]), "sm90fp8", "%s at %lld rows", fp8[k],
                             (long long)chunk[i]);
        for (size_t k = 0; k < sizeof tc / sizeof *tc; k++)
            cr_expect_str_eq(variant_of(e->plan, tc[k]), "sm90tc", "%s at %lld rows", tc[k],
                             (long long)chunk[i]);
        dsf_engine_close(e);
    }
}

Test(device_plan, names_the_device_bytes_and_the_tiles)
{
    struct dsf_synthetic s = {.seed = 1};
    dsf_engine *e = NULL;
    char *text = NULL;
    GOOD(open_plan(&e, &s, 4, 8192));
    int64_t device = dsf_budget_total(&e->budget, DSF_BUDGET_DEVICE);
    cr_expect_gt(device, (int64_t)4 * 7000000000, "four layers of 384 experts");
    cr_expect_lt(device, (int64_t)4 * 10000000000);
    GOOD(dsf_engine_describe(e, true, false, &text));
    cr_expect(strstr(text, "total device"));
    cr_expect(strstr(text, "linear_g8        sm90fp8 {"), "tiles stand beside the variant");
    cr_expect(strstr(text, "hc_boundary"), "sequences are fused");
    dsf_text_free(text);
    dsf_engine_close(e);
}

/* Sizes are in every build, kernels are not: a plan that only describes needs none. */
Test(device_plan, a_plan_that_only_describes_never_runs)
{
    struct dsf_synthetic s = {.seed = 1};
    dsf_engine *e = NULL;
    dsf_exec exec;
    GOOD(open_plan(&e, &s, 4, 64));
    cr_expect(e->plan->target & DSF_PLAN_ONLY);
    REFUSED(DSF_EINVAL, dsf_exec_open(&exec, e->plan, &(dsf_exec_setup){.timed = false}));
    dsf_engine_close(e);
}

Test(device_plan, synthetic_weights_are_no_processor_s)
{
    struct dsf_synthetic s = {.seed = 1};
    dsf_engine *e = NULL;
    GOOD(dsf_synth_preset(&s.config, "mini"));
    REFUSED(DSF_ENOTSUP, dsf_engine_open(&e, &(dsf_options){.synthetic = &s}));
    cr_expect(strstr(dsf_error_message(), "CUDA device"), "%s", dsf_error_message());
    s.planned = true;
    REFUSED(DSF_EINVAL, dsf_engine_open(&e, &(dsf_options){.synthetic = &s, .variants = "cuda"}));
    cr_expect(strstr(dsf_error_message(), "only for a plan"), "%s", dsf_error_message());
}
