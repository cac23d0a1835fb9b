/* The checker of kernels: one variant against the reference on every case of its contract, and the
 * properties that need no reference. A library without a framework; `checkops` and the unit tests
 * are its fronts. */
#ifndef DSF_VERIFY_CHECK_H
#define DSF_VERIFY_CHECK_H

#include <stdbool.h>

#include "op.h"

/* What a variant can break. The order is that of the checks. */
#define DSF_RULE_MAP(X)                                                                            \
    X(NONE, "nothing")                                                                             \
    X(STATUS, "it returned an error")                                                              \
    X(FAULT, "it touched unmapped memory beside an operand")                                       \
    X(GUARD, "it wrote outside an operand")                                                        \
    X(INPUT, "it changed an input")                                                                \
    X(CLASS, "NaN and infinity must be at the reference's places")                                 \
    X(EXACT, "every bit must be the reference's")                                                  \
    X(ULP, "the error must be within the stated ulp")                                              \
    X(SUM, "the error must be within the bound of the sum")                                        \
    X(UNWRITTEN, "every output element must be written")                                           \
    X(REPEAT, "two runs on the same inputs must give the same bits")                               \
    X(THREADS, "the number of threads must not change a bit")                                      \
    X(ROWS, "a row must not depend on other rows or their number")                                 \
    X(ALIAS, "output in place of the input must give the same bits")                               \
    X(BIAS, "roundings must fall above and below equally often")
typedef enum {
#define X(id, text) DSF_RULE_##id,
    DSF_RULE_MAP(X)
#undef X
} dsf_rule;

const char *dsf_rule_text(dsf_rule r);
const char *dsf_rule_name(dsf_rule r);

/* Why a variant was rejected. */
typedef struct {
    dsf_rule rule;
    int case_index, operand; /* operand -1: none in particular */
    const char *pattern;
    int64_t index; /* element of the operand, or -1 */
    double got, want, error, allowance;
    char note[256];
} dsf_finding;

typedef struct {
    uint64_t seed;
    int threads; /* the most that are tried: 1, 2, ... threads */
    int only;    /* case index, -1 for all */
    bool quick;  /* few patterns, and none of the expensive cases */
} dsf_check_options;

typedef struct {
    int cases, refused; /* checked; outside the variant's accepts() */
    double worst;       /* largest error in units of its allowance */
    dsf_finding finding;
} dsf_check_result;

/* Checks one variant that this machine can run. DSF_OK when the check could be done, whatever its
 * verdict: that is result->finding.rule. */
DSF_MUST dsf_status dsf_check(const dsf_op *op, const dsf_variant *v, const dsf_check_options *opt,
                              dsf_check_result *result);

/* NULL when v can be checked here, else why not. Device variants need dsf_on_device_open(). */
const char *dsf_check_state(const dsf_variant *v);

#endif
