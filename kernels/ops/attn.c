#include "ops/attn.h"

#include <math.h>

#include "base/num.h"
#include "config.h"
#include "ops/fill.h"

/* The key list. */

/* What the list of one row is made of. */
typedef struct {
    const dsf_attn_args *a;
    int64_t i, slot, t, row, start;
    int64_t n_window, n_tail; /* window or ring keys, then main keys or the block's rows */
} key_list;

static key_list list_of(const dsf_attn_args *a, int64_t i)
{
    key_list s = {.a = a, .i = i};
    s.slot = ((const int32_t *)a->slot.data)[i];
    s.t = ((const int32_t *)a->pos.data)[i];
    s.row = ((const int32_t *)a->row.data)[i];
    s.start = ((const int32_t *)a->start.data)[i];
    if (a->block) {
        s.n_window = s.start < a->window ? s.start : a->window;
        s.n_tail = a->block;
        return s;
    }
    int64_t lo = ((const int32_t *)a->lo.data)[i];
    s.n_window = s.t - lo + 1 < a->window ? s.t - lo + 1 : a->window;
    if (!a->topk.rank) return s;
    const int32_t *id = (const int32_t *)a->topk.data + i * a->topk.dim[1];
    while (s.n_tail < a->topk.dim[1] && id[s.n_tail] >= 0) s.n_tail++;
    return s;
}

static dsf_attn_key key_in(const dsf_tensor *t, int64_t slot, int64_t index)
{
    int64_t row = t->rank == 3 ? slot * t->dim[1] + index : index;
    int64_t bytes = dsf_dtype_bytes(t->dtype, t->dim[t->rank - 1]);
    return (dsf_attn_key){(const uint8_t *)t->data + row * bytes, t->dtype == DSF_Q4N};
}

static dsf_attn_key key_at(const key_list *s, int64_t j)
{
    const dsf_attn_args *a = s->a;
    if (a->block) {
        if (j >= s->n_window)
            return key_in(&a->kv_new, 0, s->row - (s->t - s->start) + j - s->n_window);
        /* The largest p < start with p mod w = j. */
        int64_t p = s->start - 1 - (s->start - 1 - j) % a->window;
        return key_in(&a->ring, s->slot, p % a->ring.dim[1]);
    }
    if (j >= s->n_window) {
        const int32_t *id = (const int32_t *)a->topk.data + s->i * a->topk.dim[1];
        return key_in(&a->main, s->slot, id[j - s->n_window]);
    }
    int64_t p = s->t - s->n_window + 1 + j;
    return p >= s->start ? key_in(&a->kv_new, 0, s->row - (s->t - p))
                         : key_in(&a->ring, s->slot, p % a->ring.dim[1]);
}

int64_t dsf_attn_list_max(const dsf_attn_args *a)
{
    return a->window + (a->topk.rank ? a->topk.dim[1] : 0) + a->block;
}

int dsf_attn_list(const dsf_attn_args *a, int64_t i, dsf_attn_key *key)
{
    key_list s = list_of(a, i);
    for (int64_t j = 0; j < s.n_window + s.n_tail; j++) key[j] = key_at(&s, j);
    return (int)(s.n_window + s.n_tail);
}

/* The allowance. */

static const double unit = 0x1p-24, tiny = 0x1p-126; /* f32 rounding; smallest normal */

/* Running sums of one output element, relative to the running maximum, and what a variant's may be
 * away from them. */
typedef struct {
    float max;
    double num, num_abs, den; /* sum of p^ v, p^ |v|, p; p^ is p as bf16 */
    double flips, den_error;  /* sum of possible steps of p^ times |v|; sum of p times its error */
    double logit_error;       /* of the worst logit so far */
    double scale_error;       /* relative, of all rescales so far */
} sums;

static float channel(const dsf_attn_key *key, int64_t d, int64_t c)
{
    const uint8_t *r = key->record;
    if (!key->is_main) return dsf_e4m3_to_f32(r[c]) * dsf_e8m0_to_f32(r[d + c / 32]);
    return dsf_e2m1_to_f32(r[c / 2] >> (c & 1 ? 4 : 0)) * dsf_e4m3_to_f32(r[d / 2 + c / 16]);
}

/* The logit, and by how much another f32 summation order may miss it. A variant may take
 * subnormals as zero, as vdpbf16ps does: tiny a channel. */
static float logit(const uint16_t *q, const dsf_attn_key *key, int64_t d, double *error)
{
    double sum = 0, sum_abs = 0, flushed = 0, scale = (float)(1.0 / sqrt((double)d));
    for (int64_t c = 0; c < d; c++) {
        double x = (double)dsf_bf16_to_f32(q[c]), k = (double)channel(key, d, c);
        sum += x * k;
        sum_abs += fabs(x * k);
        flushed += tiny * (2 + fabs(x) + fabs(k));
    }
    *error = scale * ((double)(d + 4) * unit * sum_abs + flushed);
    return (float)sum * (float)scale;
}

/* Relative error of e^x as f32, x the difference of two logits that may be `shift` off together:
 * the subtraction twice, an exponential of 2 ulp and one of half an ulp. */
static double exp_error(double x, double shift)
{
    return expm1(shift + 2 * unit * fabs(x) + 5 * unit);
}

static void move_max(sums *s, float max)
{
    double x = (double)(s->max - max), rescale = exp(x);
    if (max == s->max) return;
    s->max = max;
    s->num *= rescale;
    s->num_abs *= rescale;
    s->den *= rescale;
    s->flips *= rescale;
    s->den_error *= rescale;
    if (s->den > 0) s->scale_error += exp_error(x, 2 * s->logit_error);
}

static void add_key(sums *s, float l, double v)
{
    double x = (double)(l - s->max), p = exp(x), error = exp_error(x, 2 * s->logit_error);
    double low = (double)dsf_bf16_to_f32(dsf_f64_to_bf16(p * (1 - fmin(error, 1))));
    double high = (double)dsf_bf16_to_f32(dsf_f64_to_bf16(p * (1 + error)));
    double rounded = (double)dsf_bf16_to_f32(dsf_f32_to_bf16((float)p));
    s->num += rounded * v;
    s->num_abs += rounded * fabs(v);
    s->den += p;
    s->flips += (high - low) * fabs(v) + tiny * (1 + fabs(v));
    s->den_error += p * error;
}

static void add_block(sums *s, const key_list *list, int64_t first, int64_t head, int64_t c)
{
    const dsf_attn_args *a = list->a;
    int64_t d = a->q.dim[2], count = list->n_window + list->n_tail - first;
    const uint16_t *q = (const uint16_t *)a->q.data + (list->i * a->q.dim[1] + head) * d;
    float l[DSF_ATTN_BLOCK], max = s->max;
    if (count > DSF_ATTN_BLOCK) count = DSF_ATTN_BLOCK;
    for (int64_t j = 0; j < count; j++) {
        dsf_attn_key key = key_at(list, first + j);
        double error;
        l[j] = logit(q, &key, d, &error);
        s->logit_error = fmax(s->logit_error, error);
        max = fmaxf(max, l[j]);
    }
    move_max(s, max);
    for (int64_t j = 0; j < count; j++) {
        dsf_attn_key key = key_at(list, first + j);
        add_key(s, l[j], (double)channel(&key, d, c));
    }
}

/* Of one element, in units of 2^-24: what the errors of the logits, exponentials and sums do to the
 * quotient, and the bf16 steps of those probabilities that lie as near to a rounding boundary as
 * their error. Costs a pass over the list's keys. */
static double bound(const void *args, int operand, int64_t index)
{
    (void)operand;
    const dsf_attn_args *a = args;
    int64_t h = a->q.dim[1], d = a->q.dim[2], head = index / d % h;
    key_list list = list_of(a, index / d / h);
    int64_t count = list.n_window + list.n_tail;
    sums s = {.max = -1e30f};
    if (count == 0) return 0;
    for (int64_t first = 0; first < count; first += DSF_ATTN_BLOCK)
        add_block(&s, &list, first, head, index % d);
    double x = (double)(((const float *)a->sink.data)[head] - s.max);
    int64_t roundings = count + 2 * (count / DSF_ATTN_BLOCK) + 4;
    double steps = (double)roundings * unit + s.scale_error;
    s.den += exp(x);
    s.den_error += exp(x) * exp_error(x, s.logit_error) + steps * s.den;
    double num_error = s.flips + steps * s.num_abs, o = fabs(s.num) / s.den;
    double rest = 1 - s.den_error / s.den;
    if (rest <= 0) return INFINITY;
    return ((num_error + o * s.den_error) / s.den / rest + 2 * unit * o) / unit;
}

/* Cases: n h d a s c e k, then window, block, flags. */

enum {
    EXACT = 1,  /* logits so far apart that p is 0 or 1; keys are small integers */
    PEAKED = 2, /* logits of about +-30 */
    REPLAY = 4  /* lo inside the window */
};

static const dsf_case cases[] = {{{1, 1, 32, 1, 1, 4, 0, 0, 4, 0, 0}},
                                 {{9, 8, 64, 9, 1, 8, 24, 6, 8, 0, 0}}, /* the tiny configuration */
                                 {{6, 8, 64, 6, 2, 8, 0, 0, 8, 3, 0}},
                                 {{7, 3, 96, 21, 3, 10, 40, 17, 10, 0, REPLAY}},
                                 {{12, 7, 64, 12, 3, 64, 100, 65, 64, 0, EXACT}},
                                 {{12, 5, 128, 40, 2, 128, 300, 64, 63, 0, PEAKED}},
                                 {{5, 4, 128, 5, 1, 128, 128, 64, 128, 0, 0}},
                                 {{130, 2, 64, 130, 1, 128, 0, 0, 128, 0, 0}},
                                 {{10, 64, 512, 10, 2, 128, 0, 0, 128, 5, 0}},    /* draft */
                                 {{1, 64, 512, 1, 1, 128, 4096, 512, 128, 0, 0}}, /* decode */
                                 {{2, 64, 512, 2, 2, 128, 1024, 512, 128, 0, EXACT}},
                                 {{17, 64, 512, 34, 2, 128, 2048, 512, 128, 0, 0}},
                                 /* More rows than one grid holds, heads that do not fill a tile or
                                  * need two, lists that end inside a tile or pass 640 keys. */
                                 {{140, 5, 512, 140, 1, 128, 300, 100, 128, 0, 0}},
                                 {{40, 20, 512, 40, 8, 128, 0, 0, 128, 5, 0}},
                                 {{36, 16, 512, 40, 2, 64, 200, 65, 60, 0, PEAKED}},
                                 {{3, 72, 512, 5, 1, 128, 400, 130, 128, 0, REPLAY}},
                                 {{2, 16, 512, 2, 1, 128, 2048, 1000, 128, 0, EXACT}}};

static void init(void *args, const dsf_case *c)
{
    dsf_attn_args *a = args;
    a->window = (int)c->v[8];
    a->block = (int)c->v[9];
}

/* -1..1 in steps of 2^-20. */
static float fraction(uint64_t *r)
{
    return (float)(dsf_fill_below(r, 1 << 21) - (1 << 20)) * 0x1p-20f;
}

static void fill_records(dsf_tensor *t, int64_t flags, uint64_t *r)
{
    static const uint8_t whole[8] = {0x00, 0x38, 0x40, 0x44, 0x48, 0x4A, 0xB8, 0xC0}; /* -2..5 */
    int64_t d = t->dim[t->rank - 1], bytes = dsf_dtype_bytes(t->dtype, d);
    int main = t->dtype == DSF_Q4N;
    for (int64_t i = 0; i < dsf_tensor_rows(t); i++) {
        uint8_t *rec = (uint8_t *)t->data + i * bytes;
        int64_t codes = main ? d / 2 : d;
        for (int64_t c = 0; c < codes; c++) {
            uint8_t x = (uint8_t)dsf_fill_next(r);
            if (!main) x = flags & EXACT ? whole[x & 7] : (x & 0x7F) == 0x7F ? 0 : x;
            if (main && flags & EXACT) x = x & 0x66; /* 0, 1, 2, 4 */
            rec[c] = x;
        }
        for (int64_t c = codes; c < bytes; c++) {
            uint8_t x = (uint8_t)dsf_fill_below(r, 16);
            rec[c] = main ? (x == 0 ? 3 : 0x20 + x) : (uint8_t)(119 - (x & 3));
            if (flags & EXACT) rec[c] = main ? 0x38 : 127;
        }
        if (flags & EXACT) rec[0] = main ? (rec[0] & 0xF0) | (i % 3 ? 0 : 2) : (i % 3 ? 0 : 0x38);
    }
}

static void fill_rows(dsf_attn_args *a, const dsf_case *c, uint64_t *r)
{
    int64_t n = a->q.dim[0], pass = a->kv_new.dim[0], s = a->ring.dim[0], per = pass / s;
    int64_t w = a->window;
    /* Sequences that begin here, inside, at and past the window, and at the last position. */
    const int64_t starts[] = {0, 3 * w + 5, 1048576 - per, w / 2, w - 1, w, 1};
    int64_t turn = dsf_fill_below(r, 7);
    for (int64_t i = 0; i < n; i++) {
        int64_t row = (i + 1) * pass / n - 1, seq = row / per < s ? row / per : s - 1;
        int64_t start = starts[(turn + seq) % 7], t = start + row - seq * per;
        int64_t lo = c->v[10] & REPLAY && start > 2 ? start - 2 : 0;
        ((int32_t *)a->row.data)[i] = (int32_t)row;
        ((int32_t *)a->start.data)[i] = (int32_t)start;
        ((int32_t *)a->pos.data)[i] = (int32_t)t;
        ((int32_t *)a->lo.data)[i] = (int32_t)lo;
        ((int32_t *)a->slot.data)[i] = (int32_t)(s - 1 - seq);
    }
}

/* Ascending ids, in lists of all lengths: full, empty, one, half. */
static void fill_topk(dsf_attn_args *a, uint64_t *r)
{
    int64_t k = a->topk.dim[1], e = a->main.dim[1];
    for (int64_t i = 0; i < a->topk.dim[0]; i++) {
        int32_t *id = (int32_t *)a->topk.data + i * k;
        const int64_t lengths[] = {k, k, 0, k / 2, 1};
        int64_t want = lengths[i % 5], count = 0;
        for (int64_t j = 0; j < e && count < want; j++)
            if (dsf_fill_below(r, e - j) < want - count) id[count++] = (int32_t)j;
        while (count < k) id[count++] = -1;
    }
}

static void fill(void *args, const dsf_case *c, uint64_t seed)
{
    dsf_attn_args *a = args;
    int64_t flags = c->v[10], d = a->q.dim[2];
    uint16_t *q = a->q.data;
    float *sink = a->sink.data;
    for (int64_t i = 0; i < dsf_tensor_count(&a->q); i++) {
        float x = fraction(&seed) * (flags & PEAKED ? 64.0f : 3.0f);
        if (flags & EXACT) x = i % d ? 0 : 8192; /* e^(-8192 d^-1/2) is 0 */
        q[i] = dsf_f32_to_bf16(x);
    }
    for (int64_t i = 0; i < a->sink.dim[0]; i++)
        sink[i] = flags & EXACT ? -1000.0f : 4.0f * fraction(&seed);
    fill_records(&a->kv_new, flags, &seed);
    fill_records(&a->ring, flags, &seed);
    fill_rows(a, c, &seed);
    if (!a->topk.rank) return;
    fill_records(&a->main, flags, &seed);
    fill_topk(a, &seed);
}

static dsf_cost cost(const void *args)
{
    const dsf_attn_args *a = args;
    double keys = 0, bytes = 0, rows = (double)a->q.dim[0];
    double w = a->window + a->block, k = a->topk.rank ? (double)a->topk.dim[1] : 0;
    keys = rows * (w + k);
    bytes = rows * (w * (double)dsf_dtype_bytes(DSF_Q8, a->q.dim[2]) +
                    k * (double)dsf_dtype_bytes(DSF_Q4N, a->q.dim[2]));
    return (dsf_cost){4 * keys * (double)(a->q.dim[1] * a->q.dim[2]),
                      bytes + 2 * (double)dsf_tensor_bytes(&a->q)};
}

static const dsf_operand operands[] = {
    DSF_ARG(dsf_attn_args, out, DSF_OUT, DSF_BF16, "nhd", 0),
    DSF_ARG(dsf_attn_args, q, DSF_IN, DSF_BF16, "nhd", 0),
    DSF_ARG(dsf_attn_args, kv_new, DSF_IN, DSF_Q8, "ad", 0),
    DSF_ARG(dsf_attn_args, ring, DSF_IN, DSF_Q8, "scd", 0),
    DSF_ARG(dsf_attn_args, main, DSF_IN, DSF_Q4N, "sed", DSF_OPERAND_OPTIONAL),
    DSF_ARG(dsf_attn_args, topk, DSF_IN, DSF_I32, "nk", DSF_OPERAND_OPTIONAL),
    DSF_ARG(dsf_attn_args, sink, DSF_IN, DSF_F32, "h", 0),
    DSF_ARG(dsf_attn_args, row, DSF_IN, DSF_I32, "n", 0),
    DSF_ARG(dsf_attn_args, pos, DSF_IN, DSF_I32, "n", 0),
    DSF_ARG(dsf_attn_args, start, DSF_IN, DSF_I32, "n", 0),
    DSF_ARG(dsf_attn_args, lo, DSF_IN, DSF_I32, "n", 0),
    DSF_ARG(dsf_attn_args, slot, DSF_IN, DSF_I32, "n", 0)};

static const dsf_variant variants[] = {
    {"ref", 0, dsf_attn_ref, NULL, dsf_attn_scratch_ref},
    {"avx512", DSF_NEEDS_AVX512, DSF_X86(dsf_attn_avx512), NULL, DSF_X86(dsf_attn_scratch_avx512)},
    {"sm90", DSF_NEEDS_SM90, DSF_CUDA(dsf_attn_sm90), dsf_attn_accepts_sm90, NULL},
    {"sm90tc", DSF_NEEDS_SM90, DSF_CUDA(dsf_attn_sm90tc), dsf_attn_accepts_sm90tc,
     dsf_attn_scratch_sm90tc}};

static const dsf_tol tol[] = {
    {DSF_TOL_SUM, 1,
     "d f32 roundings of |q k| in a logit, 2 ulp of e^x, one bf16 step of each probability whose "
     "error spans a rounding boundary, a rounding a key in both sums; the quotient of these"}};

const dsf_op dsf_op_attn = {.name = "attn",
                            .dims = "nhdascek",
                            .args_size = sizeof(dsf_attn_args),
                            .operand = DSF_TABLE(operands),
                            .variant = DSF_TABLE(variants),
                            .cases = DSF_TABLE(cases),
                            .tol = tol,
                            .props = DSF_PROP_ROWS,
                            .init = init,
                            .fill = fill,
                            .bound = bound,
                            .cost = cost};
