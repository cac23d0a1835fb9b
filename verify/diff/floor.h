/* Measured noise of the reference: where every limit comes from (verification.md 11).
 *
 * Two forms of one JSON layout. The official one stands beside the golden folders and is bound to
 * them: the reference's model is one of its sets, its config is the one in that folder, and a dump
 * of an engine says of its weights what the folder's are (checkpoint_digest). The project's own has
 * a "binding" object, and what it names must be equal to what the reference dump says: "model",
 * "model_digest" (checkpoint_digest), "reference_digest" (plan_digest of a reference file),
 * "producer", "config_sha256" (of config_json), "backend", "token_class" ("prefill", or
 * "prefill+decode" where rows stand behind the prompt), "prompts" (names; this one must be among
 * them), "prompts_digest" (SHA-256 over the inputs of all of them: token ids as int32, image mask
 * as bytes, rows of embed as float32; checked where they lie beside the reference). All but the
 * last must be there. */
#ifndef DSF_DIFF_FLOOR_H
#define DSF_DIFF_FLOOR_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "verify/dump/reader.h"

typedef struct dsf_floor dsf_floor;

/* The largest noise of one kind of tap. */
typedef struct {
    bool known;
    int runs; /* how many measurements this is the maximum of */
    double rel_l2, row_median, row_max, max_abs, changed; /* changed: fraction of elements */
} dsf_floor_noise;

typedef struct {
    dsf_floor_noise own;     /* this set and prompt, every layer from exact inputs: all variants and
                                builds */
    dsf_floor_noise pooled;  /* all sets, variants and builds in which no selection flipped */
    dsf_floor_noise every;   /* all sets, variants and builds, flips or not */
    dsf_floor_noise carried; /* this set and prompt, free-running; of this layer where known */
    double limit_rel_l2, limit_row_median; /* as published, else 4 x the largest with its floor */
} dsf_floor_kind;

/* EINVAL: numbers that do not belong together, or another file than its manifest lists
 * (floor_rule.h). */
DSF_MUST dsf_status dsf_floor_open(dsf_floor **out, const char *path);
void dsf_floor_close(dsf_floor *f); /* NULL is fine */
/* Chooses set and prompt for this reference. EINVAL with both values when the floor is not bound to
 * it, or `ours` (NULL: unknown) says that it comes from other weights. */
DSF_MUST dsf_status dsf_floor_bind(dsf_floor *f, const dsf_dump_file *reference,
                                   const dsf_dump_file *ours);
/* "official limits, tiny-b/p0" or the project's floor by its file name. */
const char *dsf_floor_name(const dsf_floor *f);
bool dsf_floor_official(const dsf_floor *f);
/* False when nothing was measured for this kind of tap ("attn/q", "logits_oneshot"). layer: of the
 * carried noise, -1: the largest of all. */
bool dsf_floor_get(const dsf_floor *f, const char *kind, int layer, bool is_f32,
                   dsf_floor_kind *out);

/* Relative L2 of each layer's output: `local` from exact inputs, `carried` in free runs, the
 * largest of all variants of this set and prompt. False when the floor does not hold them by layer.
 */
bool dsf_floor_streams(const dsf_floor *f, int n_layers, double *local, double *carried);
/* By which factor an error in the output of layer `from` has grown in that of layer `to`: measured
 * on this prompt, 1 where it was not. */
double dsf_floor_growth(const dsf_floor *f, int from, int to);

#endif
