/* Two results of one operation, element by element: exact, ulp, sum-bound (style.md 5). */
#ifndef DSF_VERIFY_COMPARE_H
#define DSF_VERIFY_COMPARE_H

#include "check.h"
#include "frame.h"

/* How the variant's roundings lie: below or above the reference's magnitude, over bf16 outputs. */
typedef struct {
    int64_t above, below;
} dsf_balance;

/* Output `operand` of got against want, by the op's rule. On a failure *f holds the element and the
 * return is false. *worst grows to the largest error in units of its allowance. */
bool dsf_compare_values(const dsf_frame *got, const dsf_frame *want, int operand, double *worst,
                        dsf_finding *f);
void dsf_compare_balance(const dsf_frame *got, const dsf_frame *want, int operand, dsf_balance *b);
/* (above - below) / sqrt(above + below): beyond +-10 a rounding is biased. */
double dsf_balance_z(const dsf_balance *b);
/* Row from_a of one against row from_b of the other, n rows: the same bits (a NaN equals a NaN).
 * Returns the first element that differs, counted from the start of a's operand, or -1. */
int64_t dsf_compare_bits(const dsf_tensor *a, int64_t from_a, const dsf_tensor *b, int64_t from_b,
                         int64_t n);
/* Comparable elements in one step along the first dimension. */
int64_t dsf_compare_width(const dsf_tensor *t);
/* Element as a number; records and codes give their byte. */
double dsf_compare_element(const dsf_tensor *t, int64_t index);
/* The tolerance of an output. */
const dsf_tol *dsf_compare_tol(const dsf_op *op, int operand);

#endif
