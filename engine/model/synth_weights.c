/* Everything is drawn from mix(key(seed, tensor) + position): no state, no order, no libm (sqrt is
 * exactly rounded everywhere). Gaussian draws are sums of four uniforms (Irwin-Hall).
 *
 * Quantised tensors are made as codes and scales. Scales are 2^(k + d), d spread over -1, 0, 1 by
 * position, so with codes of root mean square t the weights' mean square is t^2 4^k (1/4 + 1 +
 * 4)/3. fp8: k and t follow from the wanted deviation. fp4: all sixteen codes are alike, t is
 * fixed, and a share p of the scales gets one more binade: a factor of 1 + 3 p.
 */
#include "model/synth_weights.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/mix.h"
#include "base/num.h"

/* ---- counter generator ---- */

static uint64_t draw(uint64_t key, uint64_t i) { return dsf_mix64(key + i * 0x9e3779b97f4a7c15u); }

static uint64_t make_key(uint64_t seed, const char *name)
{
    uint64_t h = 0xcbf29ce484222325u; /* FNV-1a */
    for (const char *s = name; *s; s++) h = (h ^ (unsigned char)*s) * 0x100000001b3u;
    return dsf_mix64(h ^ dsf_mix64(seed + 0x9e3779b97f4a7c15u));
}

/* In [-1, 1). */
static double uniform(uint64_t u) { return (double)(int64_t)u * (1.0 / 9223372036854775808.0); }

/* Mean 0, deviation 1, |z| < 3.47. */
static double gauss(uint64_t u)
{
    int64_t sum = (int64_t)((u & 0xFFFF) + (u >> 16 & 0xFFFF) + (u >> 32 & 0xFFFF) + (u >> 48));
    /* 4 uniforms on 0..65535 have variance 4 (2^32 - 1) / 12 */
    return (double)(sum - 2 * 65535) * 2.6428997921303014e-05;
}

/* ---- what each role gets ---- */

typedef enum {
    FAN,    /* a x fan_in^-1/2 x gauss */
    PLAIN,  /* a x gauss */
    AROUND, /* a (1 + b gauss) */
    SPREAD, /* norm weights of root mean square a: channels spread, three outliers, one dead group
             */
    BASE,   /* hc base */
    SIGNED  /* +-[b, a): away from zero */
} recipe_kind;

typedef struct {
    recipe_kind kind;
    double a, b;
} recipe;

/* Sublayer outputs (wo_b, w2) are scaled down to about a tenth of the stream: without it a small
 * random stack is chaotic (14). */
static const recipe recipes[DSF_N_ROLES] = {
    [DSF_ROLE_EMBED] = {PLAIN, 0.12, 0},
    [DSF_ROLE_HEAD] = {FAN, 1, 0},
    [DSF_ROLE_NORM] = {AROUND, 1, 0.1},
    [DSF_ROLE_ATTN_NORM] = {SPREAD, 0.025, 0},
    [DSF_ROLE_FFN_NORM] = {SPREAD, 0.2, 0},
    [DSF_ROLE_HC_ATTN_FN] = {FAN, 1, 0},
    [DSF_ROLE_HC_ATTN_BASE] = {BASE, 0, 0},
    [DSF_ROLE_HC_ATTN_SCALE] = {SIGNED, 1.1, 0.5},
    [DSF_ROLE_HC_FFN_FN] = {FAN, 1, 0},
    [DSF_ROLE_HC_FFN_BASE] = {BASE, 1, 0},
    [DSF_ROLE_HC_FFN_SCALE] = {SIGNED, 1.1, 0.5},
    [DSF_ROLE_WQ_A] = {FAN, 1.6, 0},
    [DSF_ROLE_Q_NORM] = {AROUND, 0.97, 0.1},
    [DSF_ROLE_WQ_B] = {FAN, 0.95, 0},
    [DSF_ROLE_WKV] = {FAN, 1.8, 0},
    [DSF_ROLE_KV_NORM] = {AROUND, 0.4, 0.1},
    [DSF_ROLE_WO_A] = {FAN, 1.6, 0},
    [DSF_ROLE_WO_B] = {FAN, 1.9 / 32, 0},
    [DSF_ROLE_ATTN_SINK] = {SIGNED, 1, 0.2},
    [DSF_ROLE_COMPRESSOR_WKV] = {FAN, 1.8, 0},
    [DSF_ROLE_COMPRESSOR_WGATE] = {FAN, 1, 0},
    [DSF_ROLE_COMPRESSOR_NORM] = {AROUND, 0.6, 0.1},
    [DSF_ROLE_INDEXER_WK] = {FAN, 1, 0},
    [DSF_ROLE_INDEXER_K_NORM] = {AROUND, 0.5, 0.1},
    [DSF_ROLE_INDEXER_WQ_B] = {FAN, 0.95, 0},
    [DSF_ROLE_INDEXER_WEIGHTS] = {FAN, 1, 0},
    [DSF_ROLE_GATE] = {FAN, 2.9, 0},
    [DSF_ROLE_GATE_BIAS] = {PLAIN, 0.15, 0},
    [DSF_ROLE_GATE_BIAS_VL] = {PLAIN, 0.15, 0},
    [DSF_ROLE_EXPERT_W1] = {FAN, 1.5, 0},
    [DSF_ROLE_EXPERT_W2] = {FAN, 1.05 / 4, 0},
    [DSF_ROLE_EXPERT_W3] = {FAN, 1.5, 0},
    [DSF_ROLE_SHARED_W1] = {FAN, 1.5, 0},
    [DSF_ROLE_SHARED_W2] = {FAN, 1.05 / 4, 0},
    [DSF_ROLE_SHARED_W3] = {FAN, 1.5, 0},
    [DSF_ROLE_ENGRAM_EMBED] = {PLAIN, 0.03, 0},
    [DSF_ROLE_ENGRAM_WKV] = {FAN, 1.8, 0},
    [DSF_ROLE_ENGRAM_Q] = {AROUND, 1, 0.2},
    [DSF_ROLE_ENGRAM_K] = {AROUND, 1, 0.2},
    [DSF_ROLE_MAIN_PROJ] = {FAN, 1, 0},
    [DSF_ROLE_MAIN_NORM] = {AROUND, 1, 0.1},
    [DSF_ROLE_DRAFT_NORM] = {AROUND, 1, 0.1},
    [DSF_ROLE_MARKOV_EMBED] = {PLAIN, 0.12, 0},
    [DSF_ROLE_MARKOV_HEAD] = {FAN, 6, 0},
    [DSF_ROLE_CONFIDENCE] = {FAN, 1, 0},
    [DSF_ROLE_PATCH_W] = {FAN, 1, 0},
    [DSF_ROLE_PATCH_B] = {PLAIN, 0.1, 0},
    [DSF_ROLE_VISION_NORM] = {AROUND, 1, 0.1},
    [DSF_ROLE_ALIGNER_W1] = {FAN, 1.5, 0},
    [DSF_ROLE_ALIGNER_B1] = {PLAIN, 0.1, 0},
    [DSF_ROLE_ALIGNER_W2] = {FAN, 0.5, 0},
    [DSF_ROLE_ALIGNER_B2] = {PLAIN, 0.02, 0},
    [DSF_ROLE_IMAGE_START] = {PLAIN, 0.12, 0},
    [DSF_ROLE_IMAGE_END] = {PLAIN, 0.12, 0},
    [DSF_ROLE_IMAGE_NEWLINE] = {PLAIN, 0.12, 0},
    [DSF_ROLE_BLOCK_NORM1] = {AROUND, 1, 0.1},
    [DSF_ROLE_BLOCK_NORM2] = {AROUND, 1, 0.1},
    [DSF_ROLE_BLOCK_WQKV] = {FAN, 1, 0},
    [DSF_ROLE_BLOCK_BQKV] = {PLAIN, 0.1, 0},
    [DSF_ROLE_BLOCK_WO] = {FAN, 1, 0},
    [DSF_ROLE_BLOCK_BO] = {PLAIN, 0.1, 0},
    [DSF_ROLE_BLOCK_W1] = {FAN, 1.5, 0},
    [DSF_ROLE_BLOCK_W2] = {FAN, 1, 0},
};

/* ---- quantised tensors ---- */

enum { CODES = 1 << 16 };
#define E4M3_RMS      120.0              /* at most: 3.47 x 120 stays below 448, never NaN */
#define E2M1_RMS      2.9261749776799064 /* sqrt(68.5 / 8) */
#define SPREAD_SQUARE 1.75               /* mean of 4^d */

struct dsf_synth_source {
    const dsf_config *c;
    uint64_t seed;
    double rms;          /* of the codes below */
    uint8_t e4m3[CODES]; /* gaussian codes, indexed by 16 random bits */
};

dsf_status dsf_synth_source_open(dsf_synth_source **out, const dsf_config *c, uint64_t seed)
{
    DSF_TRY(dsf_mem_new(out, 1, sizeof **out));
    (*out)->c = c;
    (*out)->seed = seed;
    return DSF_OK;
}

void dsf_synth_source_close(dsf_synth_source *s) { dsf_mem_free(s); }

/* Tensors of one role share their codes' deviation, so this is made once a role. */
static void make_codes(dsf_synth_source *s, double rms)
{
    if (s->rms == rms) return;
    s->rms = rms;
    for (uint32_t i = 0; i < CODES; i++)
        s->e4m3[i] = dsf_f32_to_e4m3((float)(gauss(draw(0x5bd1e995u, i)) * rms));
}

/* The wanted deviation of a weight tensor's values. */
static double deviation(const dsf_synth_source *s, const dsf_name *n)
{
    const recipe *r = &recipes[n->role];
    dsf_name w;
    dsf_names_describe(s->c, n->layer, n->role, n->expert, false, &w);
    int64_t fan = w.dim[w.rank - 1] * (w.dtype == DSF_E2M1X2 ? 2 : 1);
    return r->kind == FAN ? r->a / sqrt((double)fan) : r->a;
}

/* want = 2^k x rest, rest in (most / 2, most]. */
static int split(double want, double most, double *rest)
{
    int k = 0;
    while (want > most) {
        want /= 2;
        k++;
    }
    while (want <= most / 2) {
        want *= 2;
        k--;
    }
    *rest = want;
    return k;
}

/* Codes do not depend on how the fill is cut: byte i comes from draw i/8 (fp4) or i/4 (fp8). */
static void fill_e2m1(uint64_t key, int64_t from, int64_t bytes, uint8_t *out)
{
    for (int64_t i = 0; i < bytes; i += 8) {
        uint64_t u = draw(key, (uint64_t)(from + i) / 8);
        for (int64_t j = 0; j < 8 && i + j < bytes; j++) out[i + j] = (uint8_t)(u >> 8 * j);
    }
}

static void fill_e4m3(dsf_synth_source *s, const dsf_name *n, int64_t from, int64_t bytes,
                      uint8_t *out)
{
    double rms;
    uint64_t key = make_key(s->seed, n->name);
    (void)split(deviation(s, n) / sqrt(SPREAD_SQUARE), E4M3_RMS, &rms);
    make_codes(s, rms);
    for (int64_t i = 0; i < bytes; i += 4) {
        uint64_t u = draw(key, (uint64_t)(from + i) / 4);
        for (int64_t j = 0; j < 4 && i + j < bytes; j++) out[i + j] = s->e4m3[u >> 16 * j & 0xFFFF];
    }
}

static void fill_scales(const dsf_synth_source *s, const dsf_name *n, int64_t from, int64_t bytes,
                        uint8_t *out)
{
    bool fp4 = n->role >= DSF_ROLE_EXPERT_W1 && n->role <= DSF_ROLE_EXPERT_W3;
    /* each three neighbours get -1, 0 and 1 in some order, so that small tensors are balanced */
    static const int8_t spread[6][3] = {{-1, 0, 1}, {-1, 1, 0}, {0, -1, 1},
                                        {0, 1, -1}, {1, -1, 0}, {1, 0, -1}};
    double rest, most = fp4 ? 2 * E2M1_RMS : E4M3_RMS;
    int k = 127 + split(deviation(s, n) / sqrt(SPREAD_SQUARE), most, &rest);
    double share = fp4 ? (rest * rest / (E2M1_RMS * E2M1_RMS) - 1) / 3 : 0; /* in [0, 1] */
    uint64_t below = (uint64_t)(share * 4294967296.0), key = make_key(s->seed, n->name);
    for (int64_t i = 0; i < bytes; i++) {
        int64_t at = from + i;
        int turn = (int)(draw(key, (uint64_t)(at / 3)) % 6);
        uint32_t u = (uint32_t)draw(~key, (uint64_t)at);
        out[i] = (uint8_t)(k + spread[turn][at % 3] + (u < below));
    }
}

/* ---- plain tensors ---- */

/* Norm weights: factors of two to the k/2 spread, three channels x16, one group of 32 whose
 * products stay under the fp8 quantiser's floor of 1e-4 (3.2); scaled to the wanted root mean
 * square. */
enum { GROUP = 32, OUTLIERS = 3 };
#define DEAD_GROUP 5e-6

static int64_t dead_group(uint64_t key, int64_t d)
{
    return (int64_t)(draw(key, (uint64_t)d) % (uint64_t)(d / GROUP));
}

/* The o-th outlier: a channel outside the dead group. */
static int64_t outlier(uint64_t key, int64_t d, int o)
{
    int64_t live = d > GROUP ? d - GROUP : 1;
    int64_t i = (int64_t)(draw(key, (uint64_t)(d + 1 + o)) % (uint64_t)live);
    return i < GROUP * dead_group(key, d) ? i : i + GROUP;
}

static double spread_factor(uint64_t key, int64_t d, int64_t i)
{
    static const double factor[] = {0.35355339059327379, 0.5, 0.70710678118654757, 1,
                                    1.4142135623730951,  2,   2.8284271247461903};
    uint64_t u = draw(key, (uint64_t)i);
    double v = factor[(u >> 40) % 7];
    for (int o = 0; o < OUTLIERS; o++)
        if (i == outlier(key, d, o)) v = 16;
    return v * (1 + 0.15 * gauss(dsf_mix64(u)));
}

static double spread_scale(uint64_t key, int64_t d, double rms)
{
    double sum = 0;
    for (int64_t i = 0; i < d; i++) {
        double v = i / GROUP == dead_group(key, d) ? 0 : spread_factor(key, d, i);
        sum += v * v;
    }
    return rms / sqrt(sum / (double)d);
}

/* pre and post: gauss. Residual mix: gauss around a cyclic shift of the streams that depends on the
 * layer, so that a transposed or skipped mix cannot go unseen. */
static double base_value(const dsf_name *n, uint64_t u, int64_t i)
{
    double z = gauss(u);
    if (i < 2 * DSF_HC) return z;
    int64_t j = (i - 2 * DSF_HC) / DSF_HC, k = (i - 2 * DSF_HC) % DSF_HC;
    int64_t shift = n->layer + (n->role == DSF_ROLE_HC_FFN_BASE);
    return (k == (j + shift) % DSF_HC ? 2 : 0) + 0.75 * z;
}

typedef struct {
    const dsf_name *n;
    recipe r;
    uint64_t key;
    double scale;
} plain;

static double plain_value(const plain *p, int64_t i)
{
    int64_t d = p->n->dim[0];
    uint64_t u = draw(p->key, (uint64_t)i);
    switch (p->r.kind) {
    case AROUND:
        return p->r.a * (1 + p->r.b * gauss(u));
    case SPREAD:
        return i / GROUP == dead_group(p->key, d) ? DEAD_GROUP * (1 + 0.1 * gauss(u))
                                                  : p->scale * spread_factor(p->key, d, i);
    case BASE:
        return base_value(p->n, u, i);
    case SIGNED: {
        double v = uniform(u), size = p->r.b + (p->r.a - p->r.b) * fabs(v);
        return v < 0 ? -size : size;
    }
    default: /* FAN, PLAIN */
        return p->scale * gauss(u);
    }
}

static void fill_plain(const dsf_synth_source *s, const dsf_name *n, int64_t from, int64_t bytes,
                       uint8_t *out)
{
    plain p = {.n = n, .r = recipes[n->role], .key = make_key(s->seed, n->name)};
    p.scale = p.r.kind == SPREAD ? spread_scale(p.key, n->dim[0], p.r.a) : deviation(s, n);
    int64_t size = n->dtype == DSF_F32 ? 4 : 2, first = from / size, count = bytes / size;
    for (int64_t i = 0; i < count; i++) {
        double v = plain_value(&p, first + i);
        float f = (float)v;
        uint16_t h = dsf_f64_to_bf16(v);
        if (size == 4)
            memcpy(out + 4 * i, &f, 4);
        else
            memcpy(out + 2 * i, &h, 2);
    }
}

void dsf_synth_fill(dsf_synth_source *s, const dsf_name *n, int64_t from, int64_t bytes,
                    uint8_t *out)
{
    if (n->scale)
        fill_scales(s, n, from, bytes, out);
    else if (n->dtype == DSF_E2M1X2)
        fill_e2m1(make_key(s->seed, n->name), from, bytes, out);
    else if (n->dtype == DSF_E4M3)
        fill_e4m3(s, n, from, bytes, out);
    else
        fill_plain(s, n, from, bytes, out);
}
