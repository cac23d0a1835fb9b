/* One candidate of a reduction: the values that stand in a command's placeholders, as text that
 * also is its key, and one run's outcome. */
#ifndef DSF_REDUCE_CANDIDATE_H
#define DSF_REDUCE_CANDIDATE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

typedef enum {
    DSF_REDUCE_GOOD,     /* the check passes */
    DSF_REDUCE_FAILS,    /* the check fails: what is looked for */
    DSF_REDUCE_COULD_NOT /* no answer: another exit code, a signal, too long. Never a failure */
} dsf_reduce_outcome;
const char *dsf_reduce_outcome_name(dsf_reduce_outcome o);

/* What can be made smaller; a set of bits. */
enum {
    DSF_AXIS_IDS = 1 << 0,     /* the token list */
    DSF_AXIS_LENGTH = 1 << 1,  /* a number of tokens, where the list is the command's own */
    DSF_AXIS_LAYERS = 1 << 2,  /* an inclusive range */
    DSF_AXIS_MODEL = 1 << 3,   /* the checkpoint cut after layers[1] */
    DSF_AXIS_ROWS = 1 << 4,    /* an inclusive range */
    DSF_AXIS_CHUNK = 1 << 5,   /* rows of a prefill pass */
    DSF_AXIS_BATCH = 1 << 6,   /* sequences */
    DSF_AXIS_VARIANTS = 1 << 7 /* operations that keep their fast kernel */
};

enum { DSF_CHUNK_WHOLE = 0 };

typedef struct {
    int32_t *ids; /* [n_ids] */
    int64_t n_ids, length, chunk, batch;
    int64_t layers[2], rows[2];
    uint64_t fast; /* bit i: operation i of dsf_variant_names */
} dsf_candidate;

/* Tokens of the candidate, by list or by number; 0 when neither is an axis. */
int64_t dsf_candidate_length(const dsf_candidate *c, unsigned axes);
/* The values of the given axes as one JSON object: equal text, equal candidate. */
void dsf_candidate_json(const dsf_candidate *c, unsigned axes, dsf_buf *b);
/* The same in words, short: "12 tokens, layers 3-3, chunk whole". */
void dsf_candidate_words(const dsf_candidate *c, unsigned axes, dsf_buf *b);

/* "3-5" or "3" to an inclusive range; NULL: none, [0, -1]. EINVAL: neither. */
DSF_MUST dsf_status dsf_candidate_range(const char *name, const char *text, int64_t range[2]);

/* Operations that have another kernel than the reference on this machine, in the table's order; at
 * most 64. */
int dsf_variant_names(const char *name[64]);
/* The kernel mask (plan.h) under which exactly the operations of `fast` keep theirs. */
void dsf_variant_mask(uint64_t fast, dsf_buf *b);
/* The operations that a mask leaves their kernel. EINVAL: no mask. */
DSF_MUST dsf_status dsf_variant_parse(const char *mask, uint64_t *fast);

#endif
