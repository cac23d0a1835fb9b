#include "model.cuh"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "operand.cuh"

/* All terms are cut to `bits` bits below the exponent of the largest and added exactly. */
struct model {
    int bits;
    enum cut { TOWARDS_ZERO, DOWN, NEAREST } cut;
    enum exponent {
        OF_OPERANDS,   /* sum of the operands' exponents, subnormals at the least one */
        OF_NORMALISED, /* the same with subnormals normalised */
        OF_PRODUCT,    /* of the product itself */
    } exponent;
    enum accumulator {
        ALIGNED,  /* one of the terms */
        ADDED,    /* added to the sum of products, rounded to nearest */
        ADDED_RZ, /* the same, truncated */
    } accumulator;
    enum cut last; /* of the sum to the result */
    int kept;      /* fraction bits of the result: 23 is f32 */
};

static const char *const cuts[] = {"towards zero", "down", "nearest"};
static const char *const exponents[] = {"operands", "normalised operands", "product"};
static const char *const accumulators[] = {"a term", "added, nearest", "added, towards zero"};

static double cut_to(double x, enum model::cut cut)
{
    return cut == model::TOWARDS_ZERO ? trunc(x) : cut == model::DOWN ? floor(x) : nearbyint(x);
}

/* To a float of `kept` fraction bits. */
static float to_result(double x, enum model::cut cut, int kept)
{
    if (x == 0) return 0;
    int up = kept - ilogb(x);
    return (float)ldexp(cut_to(ldexp(x, up), cut), -up);
}

/* One output: its terms with the three exponents, prepared once for all models. */
struct sum {
    double term[33];
    int exponent[33][3];
    int terms;  /* nonzero products */
    float onto; /* accumulator */
    float got;
};

static float apply(const struct model *m, const struct sum *s)
{
    int top = -100000;
    int aligned = m->accumulator == model::ALIGNED && s->onto != 0;
    for (int i = 0; i < s->terms; i++)
        if (s->exponent[i][m->exponent] > top) top = s->exponent[i][m->exponent];
    if (aligned && ilogbf(s->onto) > top) top = ilogbf(s->onto);
    if (top == -100000) return s->onto;
    double up = ldexp(1, m->bits - top), total = 0;
    for (int i = 0; i < s->terms; i++) total += cut_to(s->term[i] * up, m->cut);
    if (aligned) total += cut_to(s->onto * up, m->cut);
    total = ldexp(total, top - m->bits);
    if (aligned || s->onto == 0) return to_result(total, m->last, m->kept);
    double sum = (double)to_result(total, m->last, m->kept) + s->onto;
    return to_result(sum, m->accumulator == model::ADDED ? model::NEAREST : model::TOWARDS_ZERO,
                     23);
}

static int least_exponent(enum format format) { return format == E4M3 ? -6 : -126; }

static void gather(const struct batch *b, int t, int row, int col, float onto, struct sum *s)
{
    int least = least_exponent(b->format);
    s->terms = 0;
    s->onto = onto;
    s->got = b->d[d_at(b, t, row, col)];
    for (int k = 0; k < step_products(b->format); k++) {
        double x = decode(b->format, b->a, a_at(b, t, row, k));
        double y = decode(b->format, b->b, b_at(b, t, col, k));
        if (x == 0 || y == 0) continue;
        int ex = ilogb(x), ey = ilogb(y), *e = s->exponent[s->terms];
        s->term[s->terms++] = x * y;
        e[model::OF_OPERANDS] = (ex < least ? least : ex) + (ey < least ? least : ey);
        e[model::OF_NORMALISED] = ex + ey;
        e[model::OF_PRODUCT] = ilogb(x * y);
    }
}

/* Share of the sums reproduced; gives up early on a bad model. */
static double score(const struct model *m, const struct sum *sums, int n)
{
    int equal = 0;
    for (int i = 0; i < n; i++) {
        equal += apply(m, &sums[i]) == sums[i].got;
        if (i == 63 && equal < 40) return (double)equal / (i + 1);
    }
    return (double)equal / n;
}

/* The best model; *ties: how many do as well (unused choices do not count apart). */
static struct model best_of(const struct sum *sums, int n, int onto, double *share, int *ties)
{
    struct model best = {};
    *share = -1;
    *ties = 0;
    static const int kept[] = {23, 10, 11, 12, 13, 14, 15};
    for (int i = 0; i < 24 * 3 * 3 * 3 * 2 * 7; i++) {
        struct model m;
        m.bits = 8 + i / 378;
        m.cut = (enum model::cut)(i / 126 % 3);
        m.exponent = (enum model::exponent)(i / 42 % 3);
        m.accumulator = (enum model::accumulator)(i / 14 % 3);
        m.last = i / 7 % 2 ? model::NEAREST : model::TOWARDS_ZERO;
        m.kept = kept[i % 7];
        if (!onto && m.accumulator != model::ALIGNED) continue;
        double s = score(&m, sums, n);
        *ties += s == *share;
        if (s > *share) {
            *share = s;
            best = m;
            *ties = 0;
        }
    }
    return best;
}

static void fit(enum format format, enum spread spread, int onto, const char *values)
{
    static const int cases = 2048;
    struct batch b = make_batch(format, 4, 64, 1);
    struct sum *sums = (struct sum *)calloc(cases, sizeof *sums);
    float *before = (float *)calloc((size_t)4 * 64 * 64, sizeof(float));
    uint64_t seed = 37 + spread;
    fill(format, spread, b.a, (size_t)4 * 64 * row_length(&b), &seed);
    fill(format, spread, b.b, (size_t)4 * 64 * row_length(&b), &seed);
    run_wgmma(&b);
    /* accumulators from far below to far above the sums, with all bits in use */
    for (size_t i = 0; onto && i < (size_t)4 * 64 * 64; i++)
        before[i] = b.d[i] =
            (float)(b.d[i] * ldexp(random_normal(&seed), (int)(random_word(&seed) % 24) - 12));
    b.combine = onto ? ONTO : CHAIN;
    run_wgmma(&b);
    for (int i = 0; i < cases; i++) {
        int t = i % 4, row = i / 4 % 64, col = (i / 256 * 7 + i) % 64;
        gather(&b, t, row, col, before[d_at(&b, t, row, col)], &sums[i]);
    }
    double share;
    int ties;
    struct model m = best_of(sums, cases, onto, &share, &ties);
    printf(
        "{\"probe\":\"model\",\"format\":\"%s\",\"values\":\"%s\",\"accumulator\":\"%s\","
        "\"reproduced\":%.5f,\"bits\":%d,\"cut\":\"%s\",\"exponent_of\":\"%s\",\"result_cut\":\"%s\",\"result_bits\":%d,"
        "\"other_models_as_good\":%d}\n",
        format == E4M3 ? "e4m3" : "bf16", values, onto ? accumulators[m.accumulator] : "zero",
        share, m.bits, cuts[m.cut], exponents[m.exponent], cuts[m.last], m.kept, ties);
    free(before);
    free(sums);
    free_batch(&b);
}

void fit_models(enum format format)
{
    static const char *const spreads[] = {"gaussian", "wide", "tiny"};
    for (int onto = 0; onto < 2; onto++)
        for (int s = GAUSSIAN; s <= TINY; s++) fit(format, (enum spread)s, onto, spreads[s]);
}
