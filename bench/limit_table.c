/* What the model costs on paper on a number of devices: the calculator of limits.h, printed. */
#include "base/mem.h"
#include "bench.h"
#include "device_shapes.h"
#include "limits.h"
#include "model/synth.h"
#include "serve/load.h"

typedef struct {
    dsf_inventory inv;
    dsf_bench *b;
    const dsf_bench_limits_options *o;
    const char *config;
} job;

static dsf_status print_row(const job *j, int64_t context, int64_t batch)
{
    const dsf_bench_limits_options *o = j->o;
    const dsf_inventory *inv = &j->inv;
    dsf_buf json = {.max = 0}, text = {.max = 0};
    int g = (int)o->gpus;
    double fp8 = dsf_device_peak[DSF_PEAK_FP8], bf16 = dsf_device_peak[DSF_PEAK_BF16];
    double decode = dsf_limit_decode(inv, (double)batch, context, g, o->rate);
    double prefill = dsf_limit_prefill(inv, context ? context : 1, g, fp8, bf16);
    double stream = dsf_limit_stream(inv, o->chunk, g, o->rate);
    double distinct = dsf_limit_distinct(inv, (double)batch);
    dsf_bench_begin(j->b, &json, "limits");
    dsf_json_add_cstr(&json, "model", j->config);
    dsf_json_add_int(&json, "gpus", o->gpus);
    dsf_json_add_int(&json, "context", context);
    dsf_json_add_int(&json, "batch", batch);
    dsf_json_add_int(&json, "chunk", o->chunk);
    dsf_json_add_num(&json, "rate_bytes_per_s", o->rate);
    dsf_json_add_num(&json, "fp8_flops_per_s", fp8);
    dsf_json_add_num(&json, "bf16_flops_per_s", bf16);
    dsf_json_add_num(&json, "distinct_experts", distinct);
    dsf_json_add_num(&json, "step_bytes", decode * g * o->rate);
    dsf_json_add_num(&json, "decode_ns", 1e9 * decode);
    dsf_json_add_num(&json, "decode_tokens_per_s", (double)batch / decode);
    dsf_json_add_num(&json, "prefill_ns_per_token", 1e9 * prefill);
    dsf_json_add_num(&json, "prefill_tokens_per_s", 1 / prefill);
    dsf_json_add_num(&json, "stream_ns_per_token", 1e9 * stream);
    dsf_buf_fmt(&text, "%4lld %9lld %5lld %8.1f %9.2f %10.3f %10.0f %10.3f %10.0f %10.3f",
                (long long)o->gpus, (long long)context, (long long)batch, distinct,
                1e-9 * decode * g * o->rate, 1e3 * decode, (double)batch / decode, 1e6 * prefill,
                1 / prefill, 1e6 * stream);
    return dsf_bench_emit(j->b, &json, &text);
}

static dsf_status take_config(job *j)
{
    dsf_loaded l = {.ckpt = NULL};
    dsf_config c;
    j->config = j->o->folder ? j->o->folder : "the released config";
    if (!j->o->folder) {
        DSF_TRY(dsf_synth_preset(&c, "full"));
        dsf_inventory_of(&c, &j->inv);
        return DSF_OK;
    }
    dsf_status st = dsf_load_open(&l, j->o->folder, NULL);
    if (st == DSF_OK) dsf_inventory_of(&l.config, &j->inv);
    dsf_load_close(&l);
    return st;
}

dsf_status dsf_bench_limits(dsf_bench *b, const dsf_bench_limits_options *o)
{
    job j = {.b = b, .o = o};
    if (o->gpus < 1 || o->gpus > 1024)
        return DSF_FAIL(DSF_EINVAL, "%lld GPUs: 1 to 1024", (long long)o->gpus);
    if (o->chunk < 1) return DSF_FAIL(DSF_EINVAL, "chunk %lld: from 1", (long long)o->chunk);
    if (!(o->rate > 0 && o->rate <= 1e18))
        return DSF_FAIL(DSF_EINVAL, "%g bytes a second: above 0, to 1e18", o->rate);
    DSF_TRY(take_config(&j));
    dsf_bench_heading(
        b,
        "GPUs   context batch  experts   GB/step   decode ms   tokens/s  prefill us   tokens/s  stream us");
    for (int c = 0; c < o->n_contexts; c++)
        for (int k = 0; k < o->n_batches; k++) DSF_TRY(print_row(&j, o->context[c], o->batch[k]));
    return DSF_OK;
}
