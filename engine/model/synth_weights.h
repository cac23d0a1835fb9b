/* The content of one synthetic tensor at any position: weight statistics as measured on the release
 * (architecture.md 14), spread so that mistakes show. Internal to engine/model. */
#ifndef DSF_MODEL_SYNTH_WEIGHTS_H
#define DSF_MODEL_SYNTH_WEIGHTS_H

#include "model/names.h"

typedef struct dsf_synth_source dsf_synth_source;

DSF_MUST dsf_status dsf_synth_source_open(dsf_synth_source **out, const dsf_config *c,
                                          uint64_t seed);
void dsf_synth_source_close(dsf_synth_source *s);
/* Bytes [from, from + bytes) of tensor n into out; both multiples of 64 but at the tensor's end. */
void dsf_synth_fill(dsf_synth_source *s, const dsf_name *n, int64_t from, int64_t bytes,
                    uint8_t *out);

#endif
