/* What Hopper's tensor core may lose in a sum of bf16 products (measured by bench/probe, and
 * reproduced bit for bit). A step takes 16 products and the sum so far. The place of a term is the
 * sum of its operands' exponents (subnormal ones have the least, -126); all terms are cut toward
 * zero at 2^-25 of the largest place and added exactly, and the result is cut toward zero to f32. A
 * product has 16 bits, 14 of them below its place: none is lost unless that is below 2^-11 of the
 * largest. */
#ifndef DSF_OPS_CUT_H
#define DSF_OPS_CUT_H

#include <math.h>
#include <stdint.h>

enum { DSF_CUT_STEP = 16, DSF_CUT_SEGMENT = 512 }; /* channels: of a step; of a chain from zero */

/* A chain: its exact sum, and the most that its steps have lost. */
typedef struct {
    double sum, lost;
} dsf_cut_chain;

typedef struct {
    double value, place;
} dsf_cut_term;

/* 2^exponent of a bf16 number. */
static inline double dsf_bf16_place(double v)
{
    return v == 0 ? 0 : fmax(ldexp(1, ilogb(v)), 0x1p-126);
}

static inline dsf_cut_term dsf_cut_product(double a, double b)
{
    return (dsf_cut_term){a * b, dsf_bf16_place(a) * dsf_bf16_place(b)};
}

static inline void dsf_cut_step(dsf_cut_chain *c, const dsf_cut_term *term, int n)
{
    double before = fabs(c->sum) + c->lost, most = before, loss = 0;
    for (int i = 0; i < n; i++) most = fmax(most, term[i].place);
    for (int i = 0; i < n; i++) {
        if (term[i].place < most * 0x1p-11) loss += fmin(fabs(term[i].value), most * 0x1p-25);
        c->sum += term[i].value;
    }
    if (before < most) loss += fmin(before, most * 0x1p-25);
    c->lost += loss;
    c->lost += 0x1p-23 * (fabs(c->sum) + c->lost);
}

#endif
