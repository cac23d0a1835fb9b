/* One operation at one shape: checked against the reference, then timed between measurements of the
 * machine's limits, with the reference's own time as the control. */
#include <errno.h>
#include <fnmatch.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "bench.h"
#include "compare.h"
#include "pace.h"
#include "run.h"
#include "shapes.h"

enum {
    MOST_FRAMES = 512,
    SAMPLED_ROWS = 3,       /* of many: the reference is scalar code in double */
    FEW_ROWS = 8,           /* up to so many rows the operands come from memory */
    GROUP_NS = 4 * 1000000, /* length of one group of timed calls: shorter than a time slice */
    MOST_CALLS = 4096,
    REF_ROUNDS = 3,
    LEAST_ROUNDS = 7
};
static const double frame_bytes_most = 3e9;
static const double paced_bytes =
    64e6; /* past the caches of a core; two programs share the memory */
static const int64_t case_ns = 4LL * 1000000000; /* then LEAST_ROUNDS are enough */

typedef struct {
    dsf_bench *b;
    const dsf_op *op;
    const dsf_variant *v;
    dsf_shape shape;
    dsf_frame *frame; /* the same inputs so often that a group of calls finds none in a cache */
    int n_frames, next;
    dsf_frame sample, want, got; /* of SAMPLED_ROWS rows */
    int64_t row[SAMPLED_ROWS];
    dsf_launch launch, ref_launch;
    dsf_cost cost;
    dsf_limits limits;
    dsf_samples time, ref; /* ns */
    dsf_warmup warm;
    uint64_t hash;                 /* of the checked run's outputs */
    dsf_samples share, bf16_share; /* percent of the limit */
    double worst;                  /* error in units of its allowance */
    dsf_finding finding;
} job;

static dsf_status open_launch(job *j, const dsf_variant *v, const void *args, dsf_launch *lc)
{
    size_t each = v->scratch ? v->scratch(args) : 0;
    void *p = NULL;
    *lc = (dsf_launch){.pool = j->b->pool, .scratch_bytes = (each + 63) / 64 * 64};
    if (each) DSF_TRY(dsf_mem_map(&p, lc->scratch_bytes * (size_t)j->b->host.threads));
    lc->scratch = p;
    return DSF_OK;
}

static void close_launch(const job *j, dsf_launch *lc)
{
    if (lc->scratch) dsf_mem_unmap(lc->scratch, lc->scratch_bytes * (size_t)j->b->host.threads);
    lc->scratch = NULL;
}

static double frame_bytes(const dsf_frame *f)
{
    double sum = 0;
    for (int i = 0; i < f->op->n_operands; i++) sum += (double)f->region[i].bytes;
    return sum;
}

/* Frames of the whole shape, and three of a few of its rows. */
static dsf_status open_frames(job *j)
{
    const dsf_case *c = &j->shape.sizes;
    int64_t n = c->v[0];
    DSF_TRY(dsf_mem_new(&j->frame, MOST_FRAMES, sizeof *j->frame));
    DSF_TRY(dsf_frame_open(&j->frame[0], j->op, c, false));
    j->n_frames = 1;
    DSF_TRY(dsf_frame_generate(&j->frame[0], DSF_PATTERN_NORMAL, 1));
    dsf_shape_settle(j->op, j->frame[0].args);
    j->cost = j->op->cost(j->frame[0].args);
    /* As far as the read rate's own buffer: a cache that does not evict the oldest keeps a share.
     */
    double rotate = j->b->paced ? paced_bytes : (double)j->b->ceiling.bytes;
    int want = n <= FEW_ROWS ? (int)ceil(rotate / j->cost.bytes) : 1;
    int most = (int)(frame_bytes_most / frame_bytes(&j->frame[0]));
    if (want > most) want = most;
    if (want > MOST_FRAMES) want = MOST_FRAMES;
    for (; j->n_frames < want; j->n_frames++) {
        DSF_TRY(dsf_frame_open(&j->frame[j->n_frames], j->op, c, false));
        dsf_frame_copy(&j->frame[j->n_frames], &j->frame[0], NULL);
    }
    dsf_case few = *c;
    if (j->op->props & DSF_PROP_ROWS && n > SAMPLED_ROWS) few.v[0] = SAMPLED_ROWS;
    for (int64_t i = 0; i < few.v[0] && i < SAMPLED_ROWS; i++)
        j->row[i] = few.v[0] > 1 ? i * (n - 1) / (few.v[0] - 1) : 0;
    DSF_TRY(dsf_frame_open(&j->sample, j->op, &few, false));
    DSF_TRY(dsf_frame_open(&j->want, j->op, &few, false));
    DSF_TRY(dsf_frame_open(&j->got, j->op, &few, false));
    dsf_frame_copy(&j->sample, &j->frame[0], few.v[0] < n ? j->row : NULL);
    return DSF_OK;
}

static void close_job(job *j)
{
    for (int i = 0; i < j->n_frames; i++) dsf_frame_close(&j->frame[i]);
    dsf_mem_free(j->frame);
    dsf_frame_close(&j->sample);
    dsf_frame_close(&j->want);
    dsf_frame_close(&j->got);
    close_launch(j, &j->launch);
    close_launch(j, &j->ref_launch);
}

/* The sampled rows of this frame's outputs, against the reference's. */
static bool right(job *j, const dsf_frame *f)
{
    bool whole = j->sample.sizes.v[0] == j->shape.sizes.v[0];
    for (int i = 0; i < j->op->n_operands; i++) {
        const dsf_tensor *from = dsf_frame_tensor(f, i), *to = dsf_frame_tensor(&j->got, i);
        if (j->op->operand[i].dir == DSF_IN || to->rank == 0) continue;
        size_t stride = (size_t)dsf_tensor_stride(to);
        for (int64_t r = 0; r < to->dim[0]; r++)
            memcpy((uint8_t *)to->data + (size_t)r * stride,
                   (const uint8_t *)from->data + (size_t)(whole ? r : j->row[r]) * stride, stride);
        if (!dsf_compare_values(&j->got, &j->want, i, &j->worst, &j->finding)) return false;
    }
    return true;
}

static uint64_t hash_of(const dsf_frame *f)
{
    uint64_t h = 0;
    for (int i = 0; i < f->op->n_operands; i++) {
        const dsf_tensor *t = dsf_frame_tensor(f, i);
        if (f->op->operand[i].dir != DSF_IN && t->rank > 0)
            h = dsf_parity_hash(h, t->data, (size_t)dsf_tensor_bytes(t));
    }
    return h;
}

/* The checker's guarded run for the reference and, on the first frame, for the variant. */
static dsf_status check(job *j)
{
    const dsf_variant *ref = &j->op->variant[0];
    j->finding.pattern = dsf_pattern_name(DSF_PATTERN_NORMAL);
    dsf_frame_copy(&j->want, &j->sample, NULL);
    dsf_frame_copy(&j->got, &j->sample, NULL);
    DSF_TRY(dsf_run_frame(ref, &j->want, 0xFF, j->b->pool, &j->finding));
    if (j->finding.rule == DSF_RULE_NONE)
        DSF_TRY(dsf_run_frame(j->v, &j->frame[0], 0xFF, j->b->pool, &j->finding));
    if (j->finding.rule == DSF_RULE_NONE && right(j, &j->frame[0])) j->hash = hash_of(&j->frame[0]);
    return DSF_OK;
}

static dsf_status time_calls(job *j, int calls, double *each)
{
    int64_t t0 = dsf_clock_ns();
    for (int i = 0; i < calls; i++) {
        DSF_TRY(j->v->run(&j->launch, j->frame[j->next].args));
        j->next = (j->next + 1) % j->n_frames;
    }
    *each = (double)(dsf_clock_ns() - t0) / calls;
    return DSF_OK;
}

/* One round: limits and calls in alternating order, so that a drift of the machine falls on both.
 */
static dsf_status time_round(job *j, int round, int calls, double span)
{
    double each = 0, rate = 0;
    if (round % 2) rate = dsf_limits_take(j->b, &j->limits, j->cost, span);
    DSF_TRY(time_calls(j, calls, &each));
    if (!(round % 2)) rate = dsf_limits_take(j->b, &j->limits, j->cost, span);
    double bf16 = j->limits.bf16.v[j->limits.bf16.n - 1];
    dsf_samples_add(&j->time, each);
    dsf_samples_add(&j->share, 100 / (rate * each));
    if (bf16 > 0) dsf_samples_add(&j->bf16_share, 100 * j->cost.flops / (each * 1e-9) / bf16);
    if (round >= REF_ROUNDS) return DSF_OK;
    int64_t t0 = dsf_clock_ns();
    DSF_TRY(j->op->variant[0].run(&j->ref_launch, j->sample.args));
    dsf_samples_add(&j->ref, (double)(dsf_clock_ns() - t0));
    return DSF_OK;
}

/* Every frame once, so that all have outputs, then groups until two agree. */
static dsf_status warm_up(job *j, int *calls, double *each)
{
    if (j->b->paced) j->warm.most = DSF_WARMUPS_PACED;
    DSF_TRY(time_calls(j, 1, each));
    (void)dsf_warmup_more(&j->warm, *each);
    DSF_TRY(time_calls(j, j->n_frames, each));
    *calls = (int)fmin(fmax(GROUP_NS / *each, 1), MOST_CALLS);
    do DSF_TRY(time_calls(j, *calls, each));
    while (dsf_warmup_more(&j->warm, *each));
    return DSF_OK;
}

static dsf_status open_launches(job *j)
{
    DSF_TRY(open_launch(j, j->v, j->frame[0].args, &j->launch));
    return open_launch(j, &j->op->variant[0], j->sample.args, &j->ref_launch);
}

static dsf_status time_all(job *j)
{
    double each = 0;
    int calls = 0;
    DSF_TRY(open_launches(j));
    DSF_TRY(warm_up(j, &calls, &each));
    int64_t t0 = dsf_clock_ns();
    for (int r = 0; r < j->b->repeat; r++) {
        if (r >= LEAST_ROUNDS && dsf_clock_ns() - t0 > case_ns) break;
        DSF_TRY(time_round(j, r, calls, calls * each));
    }
    return DSF_OK;
}

static void print_shape(const job *j, dsf_buf *out)
{
    for (size_t i = 0; i < strlen(j->op->dims); i++)
        dsf_buf_fmt(out, "%s%c=%lld", i ? " " : "", j->op->dims[i], (long long)j->shape.sizes.v[i]);
}

static dsf_status refuse(job *j, dsf_buf *json, dsf_buf *text)
{
    const dsf_finding *f = &j->finding;
    dsf_buf why = {.max = 0};
    dsf_buf_fmt(&why, "%s: %s", dsf_rule_name(f->rule), dsf_rule_text(f->rule));
    if (f->index >= 0 && f->operand >= 0)
        dsf_buf_fmt(&why, "; %s[%lld] is %.9g, the reference has %.9g",
                    j->op->operand[f->operand].name, (long long)f->index, f->got, f->want);
    dsf_json_add_cstr(json, "refused", why.data ? why.data : "");
    dsf_buf_fmt(text, "%-12s %-22s REFUSED, not timed: %s", j->op->name, j->shape.use,
                why.data ? why.data : "");
    dsf_buf_free(&why);
    j->b->refused++;
    return dsf_bench_emit(j->b, json, text);
}

/* The fastest tenth of the rounds against the fastest tenth of the limits: what a busy machine
 * still tells. */
static double percent_at_best(const job *j)
{
    double read = dsf_samples_at(&j->limits.read, 0.9);
    double peak = fmax(dsf_samples_at(&j->limits.bf16, 0.9), dsf_samples_at(&j->limits.f32, 0.9));
    double seconds = fmax(j->cost.bytes / read, peak > 0 ? j->cost.flops / peak : 0);
    return 1e11 * seconds / dsf_samples_at(&j->time, 0.1);
}

static void print_row(job *j, double ref_whole, dsf_buf *text)
{
    double t = dsf_samples_median(&j->time);
    dsf_buf_fmt(text,
                "%-12s %-22s %4lld %10.1f us %5.1f%% %7.2f %8.1f %6.1f%% %6.1f%% %6.1f%% %7.1f",
                j->op->name, j->shape.use, (long long)j->shape.sizes.v[0], t * 1e-3,
                100 * dsf_samples_spread(&j->time), j->cost.bytes / t, j->cost.flops / t,
                dsf_samples_median(&j->share), percent_at_best(j),
                dsf_samples_median(&j->bf16_share), ref_whole / t);
    dsf_bench_flags(text, &j->time, &j->warm);
}

static void identify(const job *j, dsf_buf *json)
{
    dsf_buf shape = {.max = 0};
    dsf_bench_begin(j->b, json, "op");
    dsf_json_add_cstr(json, "op", j->op->name);
    dsf_json_add_cstr(json, "use", j->shape.use);
    dsf_json_add_cstr(json, "variant", j->v->name);
    print_shape(j, &shape);
    dsf_json_add_cstr(json, "shape", shape.data);
    dsf_buf_free(&shape);
}

/* The last frame that was timed: the reference's rows, the checked run's bits. */
static void check_again(job *j)
{
    const dsf_frame *last = &j->frame[(j->next + j->n_frames - 1) % j->n_frames];
    if (right(j, last) && hash_of(last) != j->hash) j->finding.rule = DSF_RULE_REPEAT;
}

static dsf_status pace_all(job *j)
{
    dsf_buf json = {.max = 0};
    double each = 0;
    int calls = 0;
    DSF_TRY(open_launches(j));
    DSF_TRY(warm_up(j, &calls, &each));
    identify(j, &json);
    dsf_bench_hash(&json, "output_hash", j->hash);
    DSF_TRY(dsf_pace_case(j->b, &json));
    while (dsf_pace_more()) {
        DSF_TRY(time_calls(j, calls, &each));
        DSF_TRY(dsf_pace_round(j->b, each, NULL));
    }
    check_again(j);
    return j->finding.rule == DSF_RULE_NONE ? dsf_pace_done(j->b) : DSF_OK;
}

static dsf_status report(job *j)
{
    dsf_buf json = {.max = 0}, text = {.max = 0};
    identify(j, &json);
    if (j->finding.rule != DSF_RULE_NONE) return refuse(j, &json, &text);
    int64_t n = j->shape.sizes.v[0], ref_rows = j->sample.sizes.v[0];
    double ref_whole = dsf_samples_median(&j->ref) * (double)n / (double)ref_rows;
    const char *bound =
        dsf_samples_median(&j->limits.read) * j->cost.flops <
                fmax(dsf_samples_median(&j->limits.bf16), dsf_samples_median(&j->limits.f32)) *
                    j->cost.bytes
            ? "memory"
            : "arithmetic";
    dsf_bench_row(&json, "random operands, seed 1", -1, -1);
    dsf_bench_hash(&json, "output_hash", j->hash);
    dsf_json_add_num(&json, "checked_worst", j->worst);
    dsf_json_add_num(&json, "bytes", j->cost.bytes);
    dsf_json_add_num(&json, "flops", j->cost.flops);
    dsf_json_add_int(&json, "rotated_bytes", (int64_t)((double)j->n_frames * j->cost.bytes));
    dsf_json_add_num(&json, "median_ns", dsf_samples_median(&j->time));
    dsf_json_add_num(&json, "spread", dsf_samples_spread(&j->time));
    dsf_json_add_int(&json, "rounds", j->time.n);
    dsf_bench_stats(&json, &j->time, 1, &j->warm);
    dsf_limits_json(&json, &j->limits);
    dsf_json_add_cstr(&json, "limit", bound);
    dsf_bench_sample(&json, "percent", &j->share, 1);
    dsf_json_add_num(&json, "best_ns", dsf_samples_at(&j->time, 0.1));
    dsf_json_add_num(&json, "percent_at_best", percent_at_best(j));
    dsf_bench_sample(&json, "percent_of_bf16", &j->bf16_share, 1);
    dsf_json_add_int(&json, "ref_rows", ref_rows);
    dsf_bench_sample(&json, "ref_ns", &j->ref, 1);
    dsf_json_add_num(&json, "ref_ratio", ref_whole / dsf_samples_median(&j->time));
    print_row(j, ref_whole, &text);
    return dsf_bench_emit(j->b, &json, &text);
}

static dsf_status measure(dsf_bench *b, const dsf_op *op, const dsf_variant *v, dsf_shape shape)
{
    job *j = NULL;
    DSF_TRY(dsf_mem_new(&j, 1, sizeof *j));
    *j = (job){.b = b, .op = op, .v = v, .shape = shape};
    j->finding = (dsf_finding){.operand = -1, .index = -1};
    dsf_status st = open_frames(j);
    if (st == DSF_OK) st = check(j);
    if (st == DSF_OK && j->finding.rule == DSF_RULE_NONE) st = b->paced ? pace_all(j) : time_all(j);
    if (st == DSF_OK && j->finding.rule == DSF_RULE_NONE && !b->paced) check_again(j);
    if (st == DSF_OK && (j->finding.rule != DSF_RULE_NONE || !b->paced)) st = report(j);
    close_job(j);
    dsf_mem_free(j);
    return st;
}

/* All variants but the reference that this machine has. */
static dsf_status measure_variants(dsf_bench *b, const dsf_op *op, dsf_shape shape)
{
    unsigned machine = dsf_machine();
    for (int i = 1; i < op->n_variants; i++) {
        const dsf_variant *v = &op->variant[i];
        if (!dsf_variant_runs(v, machine)) continue;
        DSF_TRY(measure(b, op, v, shape));
    }
    return DSF_OK;
}

static dsf_status parse_shape(const dsf_op *op, const char *text, dsf_shape *shape)
{
    const char *at = text;
    int n = 0, least = (int)strlen(op->dims);
    *shape = (dsf_shape){.op = op->name, .use = "given"};
    for (; *at && n < 12; n++) {
        char *end = NULL;
        errno = 0;
        long long v = strtoll(at, &end, 10);
        if (end == at || (*end && *end != ',') || errno || v < 0 || v > 1 << 30 ||
            (n < least && v == 0))
            return DSF_FAIL(DSF_EINVAL, "--shape \"%s\": sizes are numbers, divided by commas",
                            text);
        shape->sizes.v[n] = v;
        at = *end ? end + 1 : end;
    }
    if (n < least || *at)
        return DSF_FAIL(DSF_EINVAL, "--shape \"%s\": %d numbers; %s takes %s, then its own", text,
                        n, op->name, op->dims);
    return DSF_OK;
}

static dsf_status measure_given(dsf_bench *b, const dsf_bench_op_options *o)
{
    const dsf_op *op = o->glob ? dsf_op_find(o->glob) : NULL;
    dsf_shape shape;
    if (!op) return DSF_FAIL(DSF_EINVAL, "--shape needs --op with the full name of one operation");
    DSF_TRY(parse_shape(op, o->shape, &shape));
    if (!dsf_shape_sound(&shape))
        return DSF_FAIL(DSF_EINVAL,
                        "--shape \"%s\": %s cannot take these sizes (%s; see the bench's table)",
                        o->shape, op->name, op->dims);
    return measure_variants(b, op, shape);
}

dsf_status dsf_bench_op(dsf_bench *b, const dsf_bench_op_options *o)
{
    dsf_bench_heading(
        b,
        "operation    use                    rows        median spread    GB/s GFLOP/s  limit    best    "
        "bf16  vs ref");
    if (o->shape) return measure_given(b, o);
    int done = 0;
    for (int i = 0; i < dsf_n_shapes; i++) {
        const dsf_shape *s = &dsf_shapes[i];
        b->out.progress(b->out.ud, "operations", i, dsf_n_shapes);
        if (o->glob && fnmatch(o->glob, s->op, 0) != 0) continue;
        if (o->rows && s->sizes.v[0] != o->rows) continue;
        DSF_TRY(measure_variants(b, dsf_op_find(s->op), *s));
        done++;
    }
    b->out.progress(b->out.ud, "operations", dsf_n_shapes, dsf_n_shapes);
    if (done == 0)
        return DSF_FAIL(DSF_EINVAL, "no operation of the table matches \"%s\"",
                        o->glob ? o->glob : "*");
    return DSF_OK;
}
