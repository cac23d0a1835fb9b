/* libdsf: DeepSeek-V4.1-Flash on this machine. An engine holds weights, plan and caches; a session
 * is one sequence. One thread at a time may use an engine and its sessions. No function prints,
 * exits or reads the environment; a failed one returns a status, and dsf_error_text() of the same
 * thread tells why. */
#ifndef DSF_H
#define DSF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/log.h"
#include "base/status.h"
#include "plan/tap.h"

typedef struct dsf_engine dsf_engine;   /* immutable after open, but for the sessions' caches */
typedef struct dsf_session dsf_session; /* one sequence: its tokens, its cache slot, its position */

typedef enum {
    DSF_PREFILL_CONE,  /* default: decoder layers only where results survive; same bits as exact */
    DSF_PREFILL_EXACT, /* all layers on all rows: the definition; needed for logits of every row */
    DSF_PREFILL_REPLAY /* decoder layers on the last `window` rows, truncated windows: approximate
                        */
} dsf_prefill;

typedef struct {
    const char *model; /* folder as released */
    int64_t
        context;    /* positions a session can hold; 0: 4096 or the model's limit if that is less */
    int64_t slots;  /* sessions at the same time; 0: 1 */
    int64_t chunk;  /* most rows of one pass; 0: 256 */
    int64_t rewind; /* positions a session can be taken back at once; 0: 16 */
    dsf_prefill prefill;
    int threads;          /* 0: the processors of this process */
    const char *variants; /* kernel mask: NULL, "ref", "-avx512", "-avx512:attn"; "cuda" alone or
                             before such words: on a device */
    int device;           /* which of the usable CUDA devices; 0: the first */
    bool eager;           /* device: launch every pass anew, replay none */
    bool separate;        /* device: each operation by itself, none fused */
    bool plan_only;       /* to be described, not run: no memory is taken, no device is needed, and
                             the machine's own limits do not refuse it (serve/planned.h) */
    int ranks;            /* plan_only: devices that share the experts; 0: 1 */
    bool all_logits;      /* logits of every row of a pass, not of the last one only; exact only */
    bool unfused;         /* index scores become observable: more memory, [chunk, context] bf16 */
    bool timed;           /* keep the time of each step */
    bool sampled;         /* a step draws each session's next token where its logits are, and these
                             stay there: dsf_session_sampling, dsf_session_next */
    bool given_embed;     /* rows come with their embedding (image spans), dsf_session_feed_embed */
    const struct dsf_synthetic *synthetic; /* in place of `model`; serve/load.h; a device only */
    const dsf_tap_sink
        *sink; /* planned for: only what it wants is kept observable; must outlive the engine */
    const char *const
        *accept_config; /* NULL-terminated keys of config.json to accept although unknown */
    dsf_log log;
} dsf_options;

/* Checks config, checkpoint, tokenizer and memory plan before anything is allocated for tokens.
 * EIO, ECORRUPT, EINVAL, ENOMEM (with the plan's table). Close sessions first, then the engine. */
DSF_MUST dsf_status dsf_engine_open(dsf_engine **out, const dsf_options *opt);
void dsf_engine_close(dsf_engine *e); /* NULL is fine */
/* The memory plan as text (or JSON), and with steps: one line a step. Ownership of *text:
 * dsf_text_free. */
DSF_MUST dsf_status dsf_engine_describe(const dsf_engine *e, bool steps, bool json, char **text);
void dsf_text_free(char *text);
int64_t dsf_engine_vocab(const dsf_engine *e);
int64_t dsf_engine_context(const dsf_engine *e);
int32_t dsf_engine_eos(const dsf_engine *e); /* the token that ends a turn */

/* A session takes one of the slots; ENOMEM names their number when all are taken. */
DSF_MUST dsf_status dsf_session_open(dsf_session **out, dsf_engine *e);
void dsf_session_close(dsf_session *s); /* NULL is fine */
/* Queues ids for the next steps. EINVAL: an id outside the vocabulary, or more than the context
 * holds (nothing is queued then). */
DSF_MUST dsf_status dsf_session_feed(dsf_session *s, const int32_t *ids, size_t n);
/* The same with image rows: mask[i] 1 inside a span; embed: [n, dim] bf16 rows for all n tokens. */
DSF_MUST dsf_status dsf_session_feed_embed(dsf_session *s, const int32_t *ids, const uint8_t *mask,
                                           const uint16_t *embed, size_t n);
/* Takes the session back to `position` tokens; what was queued is dropped. Within `rewind`
 * positions of the furthest point, and not into a prompt that cone or replay computed, this is
 * immediate; else the tokens before `position` are queued again. Either way the next step gives the
 * bits of a session that never went further. */
DSF_MUST dsf_status dsf_session_rewind(dsf_session *s, int64_t position);
/* A second session with the same state; both go on independently. */
DSF_MUST dsf_status dsf_session_fork(dsf_session **out, const dsf_session *s);
int64_t dsf_session_position(const dsf_session *s); /* tokens computed */
int64_t dsf_session_queued(const dsf_session *s);   /* tokens fed and not yet computed */

/* One pass: up to `chunk` queued tokens, taken from the sessions in order. Several sessions share a
 * pass in exact rows (cone and replay act when one session alone is in the pass). sink may be NULL.
 */
DSF_MUST dsf_status dsf_engine_step(dsf_engine *e, dsf_session *const *batch, size_t n,
                                    const dsf_tap_sink *sink);
/* Logits [vocab] f32 of the session's last token, valid until the next step; EINVAL while tokens
 * are queued. */
DSF_MUST dsf_status dsf_session_logits(const dsf_session *s, const float **row);
/* One draft pass (architecture.md 10.3) from the session's position with `anchor` as the token
 * chosen there. Fills ids[block] and confidence[block] (logits); returns the block length through
 * *n. */
DSF_MUST dsf_status dsf_session_draft(dsf_session *s, int32_t anchor, int32_t *ids,
                                      float *confidence, int *n, const dsf_tap_sink *sink);

/* ECORRUPT: a logit is NaN or +inf, or none is finite: the model is broken. Sampling (section 9):
 * temperature 0 is argmax (smallest id on ties). The draw depends on (seed, position) only. */
typedef struct {
    double temperature, top_p, min_p; /* top_p 1 and min_p 0: off */
    int64_t top_k;                    /* 0: off */
    uint64_t seed;
} dsf_sampling;
/* work: [n] floats of scratch (not used at temperature 0); holds what was drawn from. logprob (may
 * be NULL): natural log-probability under temperature 1. EINVAL: a NaN or +inf among the logits. */
DSF_MUST dsf_status dsf_sample(const float *logits, int64_t n, const dsf_sampling *p,
                               int64_t position, float *work, int32_t *id, double *logprob);
/* In an engine that was opened `sampled`: how the session's next tokens are drawn (until it is said
 * again; at first the largest logit). EINVAL: another engine, or a parameter outside its limits. */
DSF_MUST dsf_status dsf_session_sampling(dsf_session *s, const dsf_sampling *p);
/* What the last step drew after the session's last token: the id that dsf_sample draws at this
 * position. EINVAL while tokens are queued; ECORRUPT as dsf_sample. */
DSF_MUST dsf_status dsf_session_next(const dsf_session *s, int32_t *id);

#endif
