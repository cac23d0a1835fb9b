/* Synthetic checkpoints in the released format: any configuration, deterministic by seed, written
 * as a stream (architecture.md 12, 14). The bytes are a function of (seed, tensor name, position)
 * in integer and exactly rounded arithmetic: equal on every machine, whatever the order. */
#ifndef DSF_MODEL_SYNTH_H
#define DSF_MODEL_SYNTH_H

#include "base/buf.h"
#include "model/config.h"
#include "model/names.h"

/* Fills *c with a preset: "mini" (every feature, seconds on two cores), "tiny" (section 14),
 * "full" (as released). Sizes only: constants and digest come with dsf_synth_finish. EINVAL names
 * the presets. */
DSF_MUST dsf_status dsf_synth_preset(dsf_config *c, const char *preset);
/* Keeps the first `layers` layers of the schedule and `mtp` draft stages (-1: as it is): sources,
 * Engram layers and draft targets follow. EINVAL when the config has fewer. */
DSF_MUST dsf_status dsf_synth_trim(dsf_config *c, int layers, int mtp);
/* Computes what follows from the sizes, and checks the result as a config.json; *json gets that
 * file's text (released form). */
DSF_MUST dsf_status dsf_synth_finish(dsf_config *c, dsf_buf *json);

/* tokenizer.json and tokenizer_config.json of preset "mini" or "tiny"; of vocab tokens for tiny.
 * EINVAL for another preset: its tokenizer is the user's file. */
DSF_MUST dsf_status dsf_synth_tokenizer(const char *preset, int64_t vocab, dsf_buf *json,
                                        dsf_buf *config_json);

typedef struct {
    const char *folder; /* made when it is not there */
    const dsf_config *config;
    const dsf_buf *config_json; /* from dsf_synth_finish */
    uint64_t seed;
    void (*progress)(void *ud, int64_t done, int64_t total); /* bytes; may be NULL */
    void *ud;
} dsf_synth_job;

/* Shards, config.json and last the index, each under a .part name until it is complete. */
DSF_MUST dsf_status dsf_synth_write(const dsf_synth_job *job);

/* Bytes of all tensors of a configuration. */
int64_t dsf_synth_bytes(const dsf_config *c);

#endif
