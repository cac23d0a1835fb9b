/* The search for the smallest failing candidate: bisection of ranges and numbers, delta debugging
 * of the token list and of the fast kernels, over all axes until nothing gets smaller.
 *
 * Badness need not be monotone: only candidates that were seen to fail are kept, and at the end
 * every single further step (one token dropped or replaced, one layer, row, sequence or kernel
 * less) has been seen not to fail. */
#ifndef DSF_REDUCE_SEARCH_H
#define DSF_REDUCE_SEARCH_H

#include "verify/reduce/candidate.h"

typedef struct {
    unsigned axes;
    dsf_candidate start; /* lent */
    int32_t filler;      /* the id that tokens without a part in the failure become */
    int64_t most_tests;  /* stop after so many answers that were not known before; 0: no bound */
    /* One run. ECANCELED ends the search with what it has; any other failure is its failure. */
    dsf_status (*test)(void *ud, const dsf_candidate *c, dsf_reduce_outcome *out);
    /* Answers known from before (may be NULL): true when *out is set. */
    bool (*known)(void *ud, const dsf_candidate *c, dsf_reduce_outcome *out);
    void (*progress)(void *ud, const dsf_candidate *best, int64_t tests); /* may be NULL */
    void *ud;
} dsf_search;

typedef enum {
    DSF_SEARCH_MINIMAL,   /* best fails, every single further step does not */
    DSF_SEARCH_STOPPED,   /* ECANCELED, or most_tests reached: best fails and may get smaller */
    DSF_SEARCH_GOOD,      /* the start does not fail */
    DSF_SEARCH_COULD_NOT, /* the start gives no answer */
    DSF_SEARCH_UNBEGUN    /* ECANCELED before the start had an answer */
} dsf_search_end;

typedef struct {
    dsf_search_end end;
    dsf_candidate best;                           /* owned; free with dsf_search_result_free */
    int64_t asked, tests, good, fails, could_not; /* tests: of the asked, not known before */
} dsf_search_result;

DSF_MUST dsf_status dsf_search_run(const dsf_search *s, dsf_search_result *r);
void dsf_search_result_free(dsf_search_result *r);

#endif
