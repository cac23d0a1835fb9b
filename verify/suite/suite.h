/* The verification suites (product.md 5): checks with a verdict, the number compared, the figure
 * against its limit, and words. Which checks there are is decided before anything runs; each piece
 * of work then runs in a process of its own. A check that compared nothing has not passed. */
#ifndef DSF_VERIFY_SUITE_H
#define DSF_VERIFY_SUITE_H

#include "base/buf.h"
#include "dsf.h"

typedef enum { DSF_PASS, DSF_FAILED, DSF_SKIPPED, DSF_COULD_NOT } dsf_verdict;
const char *dsf_verdict_name(dsf_verdict v);

/* The worst coordinate. row is a label (position, entry id), column an element of the row; -1: none
 * in particular; NaN: no value. path "" : no coordinate. */
typedef struct {
    char path[96];
    int64_t row, column;
    double reference, ours;
} dsf_suite_at;

typedef struct {
    char suite[16], name[640]; /* names of golden sets are not cut: two checks never share one */
    dsf_verdict verdict;
    int64_t compared;
    double seconds;
    char figure[64];      /* what value and limit measure; "" : the check has one figure only,
                             compared, and 0 differences are allowed */
    double value, limit;  /* NaN: none */
    char derivation[224]; /* where the limit comes from */
    dsf_suite_at at;
    char words[512];      /* what was compared; the reason; the missing thing */
    char divergence[512]; /* the sentence that names the first wrong operation, or "" */
    dsf_buf detail;       /* text table for people; may be empty */
} dsf_suite_check;

/* A model that was checked. "" : not read by any check of this run, or unreadable. */
typedef struct {
    char name[256];      /* last part of its folder */
    char layout[33];     /* names, types and shapes of its tensors */
    char weights[33];    /* layout and every byte */
    char variants[2048]; /* the kernel of each operation: "attn:avx512 route:ref ..." */
} dsf_suite_model;

typedef struct {
    dsf_suite_check *check; /* in the order of the plan, whatever finished first */
    int n, cap;
    dsf_status status;      /* sticky */
    char digest[33];        /* of what the verdict is about (dsf_verify_run); "" before */
    char floor[4096];       /* the limits' file, "" without */
    dsf_suite_model *model; /* [n_models] filled with the digest */
    int n_models;
} dsf_results;

typedef struct {
    const char *model;  /* NULL: the golden set itself */
    const char *golden; /* a set, a folder of sets, or NULL */
    const char *floor;  /* NULL: noise_floor.json of the golden folder or of the folder above */
    const char *cases;  /* folder of the reference encoder's cases, or NULL */
    const char *suites; /* comma list; NULL: all that can run */
    const char *only;   /* glob on check names, or NULL */
    const char *backend, *variants;
    int threads;    /* 0: all processors; shared by the processes */
    int64_t tokens; /* suite chunks; 0: by the size of the model */
    void (*progress)(const char *name, int64_t done, int64_t total);
    /* Called as checks finish, in that order. */
    void (*finished)(void *ud, const dsf_suite_check *c);
    void *ud;
    bool (*stop)(void); /* true: end now, keep what is finished */
} dsf_verify_options;

/* X(name, question): the suites in the order of their reports. */
#define DSF_SUITE_MAP(X)                                                                           \
    X(config, "every number of config.json reaches the engine unchanged; others are refused")      \
    X(contract, "exactly the expected tensors, with shape, type and finite values")                \
    X(template,                                                                                    \
      "prompts byte-equal and id-equal to the reference encoder; parser stable when cut")          \
    X(tokenizer, "ids round-trip, the vocabulary and the Engram class map have their sizes")       \
    X(engram, "hash rows, dequantised bits, gate; dead and pad tokens; history and rollback")      \
    X(ops, "every kernel variant on this machine against its reference")                           \
    X(layers, "every tap from golden inputs, within the measured noise")                           \
    X(choices, "top-k, pool and experts: exact on golden scores, ties only on own scores")         \
    X(logits, "free-running from token ids: streams, KL and best token against golden logits")     \
    X(parity,                                                                                      \
      "every tap of 300 lengths, from the inputs that the CPU's kernels had, as they have it")     \
    X(states, "whole = chunked = decoded = forked = rewound = batched = cone, bit for bit")        \
    X(chunks,                                                                                      \
      "one prompt over every limit in passes of three sizes: equal hashes of logits and caches")   \
    X(memory, "no allocation per token; resident memory within the plan, a planted block found")   \
    X(speed, "tokens and logits of a timed run equal those of the checked run; rates, no gate")

typedef struct {
    const char *name, *question;
} dsf_suite_info;
#define X(name, question) DSF_SUITE_##name,
enum { DSF_SUITE_MAP(X) DSF_N_SUITES };
#undef X
extern const dsf_suite_info dsf_suites[DSF_N_SUITES];

/* Plans the checks without running any: r->check holds their names, with the verdict "skip" or
 * "could not" and words where something is missing. EINVAL: an unknown suite, nothing to run on, a
 * glob that matches no check. */
DSF_MUST dsf_status dsf_verify_list(const dsf_verify_options *o, dsf_results *r);
/* Runs them. A check that fails, crashes or cannot run is in r; a status is for what stops all of
 * it. ECANCELED: stopped; r holds what was finished. */
DSF_MUST dsf_status dsf_verify_run(const dsf_verify_options *o, dsf_results *r);
void dsf_results_free(dsf_results *r);
/* Why something was skipped: the different words, "; " between them. */
void dsf_results_reasons(const dsf_results *r, dsf_buf *b);
/* Something passed, nothing failed, nothing could not run. */
bool dsf_results_good(const dsf_results *r);
int dsf_results_count(const dsf_results *r, dsf_verdict v);
/* The first wrong operation in the order of the plan, or "". */
const char *dsf_results_divergence(const dsf_results *r);

/* report.c, html.c: one check as text; all of it as JSON, JUnit XML and one page of HTML. */
void dsf_suite_text(const dsf_suite_check *c, bool table, dsf_buf *b);
void dsf_results_json(const dsf_results *r, const dsf_verify_options *o, dsf_buf *b);
void dsf_results_junit(const dsf_results *r, dsf_buf *b);
void dsf_results_html(const dsf_results *r, const dsf_verify_options *o, dsf_buf *b);

#endif
