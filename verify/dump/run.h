/* One run of a model with its taps going to a dump file: what `dsf dump` and the suites call. */
#ifndef DSF_DUMP_RUN_H
#define DSF_DUMP_RUN_H

#include "dsf.h"
#include "verify/dump/writer.h"

typedef struct {
    dsf_options engine; /* model, prefill, chunk, threads, variants */
    const char *out, *backend;
    const int32_t *ids; /* [n]; unused with inputs_from */
    int64_t n, decode;  /* decode: greedy tokens after the prompt */
    const char
        *inputs_from; /* a dump: token_ids, image_mask, embed; of its logits the draft's anchor */
    dsf_dump_filter filter;
    bool stats, draft, compress;
    bool by_step; /* rows of these steps only: 0 is the prompt, k the kth decoded token */
    int64_t step_from, step_to;
    int64_t max_bytes; /* refuse above; 0: no limit */
    void (*progress)(const char *name, int64_t done, int64_t total);
    bool (*stop)(void);
} dsf_dump_run;

typedef struct {
    int64_t tokens, decoded, bytes;
    bool stopped;   /* before the end: the file's attribute `stopped` says so too */
    char words[64]; /* "after 12 of 40 tokens" */
} dsf_dump_run_report;

/* ENOMEM with both numbers when the estimate passes max_bytes; a stop finishes the file with what
 * is there. */
DSF_MUST dsf_status dsf_dump_run_model(const dsf_dump_run *d, dsf_dump_run_report *r);

#endif
