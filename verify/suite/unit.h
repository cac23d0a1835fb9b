/* Inside the suites: a unit of work is a function that fills one or more checks which share what
 * they need. The plan makes units, the workers run them, the suite files define them. */
#ifndef DSF_VERIFY_SUITE_UNIT_H
#define DSF_VERIFY_SUITE_UNIT_H

#include "verify/dump/temp.h"
#include "verify/suite/sets.h"
#include "verify/suite/suite.h"

typedef struct dsf_suite_unit dsf_suite_unit;
/* check[unit->n]: named, the rest as dsf_suite_begin left it. Leaves a verdict in each. */
typedef void dsf_suite_fn(const dsf_suite_unit *u, dsf_suite_check *check);

struct dsf_suite_unit {
    dsf_suite_fn *run;
    const dsf_verify_options *o;
    const char *model, *set;        /* folders; NULL where the suite needs none */
    int number;                     /* prompt of the set, or index of the op */
    bool alone;                     /* with all threads, while nothing else runs */
    int first, n;                   /* its checks in the results */
    int threads;                    /* filled by the workers */
    char temp[DSF_TEMP_BYTES + 32]; /* path for a dump that is kept only while it is compared */
};

enum { DSF_SUITE_MOST_CHECKS = 3 }; /* of one unit */

typedef struct {
    dsf_suite_unit *unit;
    int n, cap;
    dsf_golden_sets golden; /* units point into it */
} dsf_suite_plan;

/* plan.c: sets, units and named checks of what was asked for. Free in either case. */
DSF_MUST dsf_status dsf_suite_plan_make(const dsf_verify_options *o, dsf_suite_plan *p,
                                        dsf_results *r);
void dsf_suite_plan_free(dsf_suite_plan *p);
/* The floor of a set: --floor, else its own, else that of the folder above; "" without. */
DSF_MUST dsf_status dsf_suite_floor(const dsf_verify_options *o, const char *set, char path[4096]);
/* Last part of a path. */
const char *dsf_suite_base(const char *path);

/* workers.c: runs every unit in a process of its own, several at a time. */
DSF_MUST dsf_status dsf_suite_work(const dsf_verify_options *o, dsf_suite_plan *p, dsf_results *r);

/* key.c: the digest of what a verdict is about: version, config, tokenizer and weights of the
 * models, kernel mask and the variants chosen by it, backend, golden files, floor, cases, names of
 * the checks. Fills r->model. */
DSF_MUST dsf_status dsf_suite_digest(const dsf_verify_options *o, const dsf_suite_plan *p,
                                     dsf_results *r);

/* model_key.c: layout; with weights also every byte and the variants of the plan. What cannot be
 * read stays "". ECANCELED: stopped. */
DSF_MUST dsf_status dsf_suite_model_key(const dsf_verify_options *o, const char *folder,
                                        bool weights, dsf_suite_model *m);

/* suite.c: a fresh check; "could not" with this thread's error record; the verdict from a count of
 * differences (the caller adds words); the last look at a check: zero compared and unnamed skips
 * fail. */
void dsf_suite_begin(dsf_suite_check *c, const char *suite, const char *name);
void dsf_suite_could_not(dsf_suite_check *c);
void dsf_suite_judge(dsf_suite_check *c, int64_t wrong);
void dsf_suite_say(dsf_suite_check *c, const char *fmt, ...) DSF_PRINTF(2, 3);
void dsf_suite_seal(dsf_suite_check *c);
/* The first difference wins. */
void dsf_suite_mark(dsf_suite_check *c, const char *path, int64_t row, int64_t column,
                    double reference, double ours);

/* The suites. */
dsf_suite_fn dsf_suite_config_values, dsf_suite_config_leaves, dsf_suite_config_unknown,
    dsf_suite_contract, dsf_suite_prompts, dsf_suite_stream, dsf_suite_tokenizer,
    dsf_suite_engram_hash, dsf_suite_engram_values, dsf_suite_engram_history, dsf_suite_op,
    dsf_suite_graft, dsf_suite_parity, dsf_suite_golden_choices, dsf_suite_free_run,
    dsf_suite_replay, dsf_suite_states, dsf_suite_chunks, dsf_suite_tokens, dsf_suite_resident,
    dsf_suite_speed;
/* Number and names of the ops suite's checks; whether a set has decoder replay to compare with. */
int dsf_suite_n_ops(void);
const char *dsf_suite_op_name(int i);
bool dsf_suite_has_replay(const char *set);
/* Whether a dump holds a choice with the scores that it was made on; not scored: or what they are
 * computed from. */
bool dsf_suite_has_choices(const char *set, int prompt, bool scored);

#endif
