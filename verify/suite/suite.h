/* The verification suites (product.md 5): checks with a verdict, the number compared, and words. A
 * suite that compared nothing has not passed. */
#ifndef DSF_VERIFY_SUITE_H
#define DSF_VERIFY_SUITE_H

#include "base/buf.h"
#include "dsf.h"

typedef enum { DSF_PASS, DSF_FAILED, DSF_SKIPPED, DSF_COULD_NOT } dsf_verdict;
const char *dsf_verdict_name(dsf_verdict v);

typedef struct {
    char suite[16], name[80];
    dsf_verdict verdict;
    int64_t compared;
    double seconds;
    char words[512]; /* the worst coordinate, the reason, the missing thing */
    dsf_buf detail;  /* text table for people; may be empty */
} dsf_check_result;

typedef struct {
    dsf_check_result *check;
    int n, cap;
    dsf_status status; /* sticky */
} dsf_results;

typedef struct {
    const char *model;  /* NULL: the golden set itself */
    const char *golden; /* a set, a folder of sets, or NULL */
    const char *floor;  /* NULL: noise_floor.json of the golden folder or of the folder above */
    const char *suites; /* comma list; NULL: all that can run */
    const char *only;   /* glob on check names, or NULL */
    const char *backend, *variants;
    const char *temp; /* path of a dump that is kept only while it is compared */
    int threads;
    void (*progress)(const char *name, int64_t done, int64_t total);
} dsf_verify_options;

/* X(name, built, question) */
#define DSF_SUITE_MAP(X)                                                                            \
    X(contract, 1,                                                                                  \
      "config as specified; exactly the expected tensors, shapes, types, finite values")            \
    X(tokenizer, 1, "every token's text survives a round trip, the Engram class map has its size")  \
    X(layers, 1,                                                                                    \
      "every tap from golden inputs within the measured noise, choices exact on golden scores")     \
    X(logits, 1, "free-running from token ids: streams, KL and best token against golden logits")   \
    X(states, 1, "whole = chunked = decoded = forked = rewound = batched = cone, bit for bit")      \
    X(memory, 1,                                                                                    \
      "no allocation per token, taps change no bit (dsf bench memory: resident against plan)")      \
    X(template, 0,                                                                                  \
      "prompts byte-equal to the reference encoder: unit tests test_chat, test_parse, test_stream") \
    X(engram, 0,                                                                                    \
      "hash rows and dequantised bits: taps engram/* of suite layers, unit test engram_hash")       \
    X(ops, 0, "every kernel variant against its reference: the program checkops")                   \
    X(choices, 0, "part of suites layers and logits here")                                          \
    X(speed, 0, "dsf bench checks the output of what it times")

/* Runs the suites; EINVAL for an unknown suite name, ENOTSUP for one that was asked for and is not
 * built or cannot run here. */
DSF_MUST dsf_status dsf_verify_run(const dsf_verify_options *o, dsf_results *r);
void dsf_results_free(dsf_results *r);
/* Something passed, nothing failed, nothing could not run. */
bool dsf_results_good(const dsf_results *r);
int dsf_results_count(const dsf_results *r, dsf_verdict v);
void dsf_results_json(const dsf_results *r, const dsf_verify_options *o, dsf_buf *b);
void dsf_results_junit(const dsf_results *r, dsf_buf *b);

/* For the suite files: adds a check (returns it, or NULL after a failure), and the suites
 * themselves. */
dsf_check_result *dsf_results_add(dsf_results *r, const char *suite, const char *name);
dsf_status dsf_suite_contract(const dsf_verify_options *o, const char *model, dsf_results *r);
dsf_status dsf_suite_tokenizer(const dsf_verify_options *o, const char *model, dsf_results *r);
dsf_status dsf_suite_layers(const dsf_verify_options *o, const char *model, const char *set,
                            dsf_results *r);
dsf_status dsf_suite_logits(const dsf_verify_options *o, const char *model, const char *set,
                            dsf_results *r);
dsf_status dsf_suite_states(const dsf_verify_options *o, const char *model, dsf_results *r);
dsf_status dsf_suite_memory(const dsf_verify_options *o, const char *model, dsf_results *r);

#endif
