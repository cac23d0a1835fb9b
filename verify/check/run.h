/* One run of one variant, with everything checked that needs no second run, and the properties. */
#ifndef DSF_VERIFY_RUN_H
#define DSF_VERIFY_RUN_H

#include "check.h"
#include "frame.h"

/* Runs v on a frame whose inputs are in place. The rule that it broke by itself (status, fault,
 * guard, input), with *f filled in, or DSF_RULE_NONE. threads 1 runs without a pool, so that a
 * fault is caught and named. */
DSF_MUST dsf_status dsf_run_frame(const dsf_variant *v, dsf_frame *frame, uint8_t poison,
                                  dsf_pool *pool, dsf_finding *f);

/* base holds v's checked result for inputs. Each returns DSF_OK with f->rule set when the property
 * is broken. */
typedef struct {
    const dsf_variant *v;
    const dsf_frame *inputs, *base;
    bool absent;   /* optional operands */
    int threads;   /* the most to try */
    uint64_t seed; /* of the row choice */
} dsf_prop_input;

DSF_MUST dsf_status dsf_props_repeat(const dsf_prop_input *in, dsf_finding *f);
DSF_MUST dsf_status dsf_props_threads(const dsf_prop_input *in, dsf_finding *f);
DSF_MUST dsf_status dsf_props_alias(const dsf_prop_input *in, dsf_finding *f);
DSF_MUST dsf_status dsf_props_rows(const dsf_prop_input *in, dsf_finding *f);

#endif
