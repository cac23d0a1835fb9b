/* Some layers of the released model, as a config whose weights are made on a device. */
#ifndef DSF_BENCH_SYNTHETIC_CONFIG_H
#define DSF_BENCH_SYNTHETIC_CONFIG_H

#include "serve/load.h"

/* layers: "0-17" or "0-3,8,14,20". engram_vocab: rows of a column of the Engram tables, 0: the
 * release's. *whole: the released schedule; layer[DSF_MAX_LAYERS]: the numbers kept. EINVAL. */
DSF_MUST dsf_status dsf_synthetic_config(struct dsf_synthetic *s, const char *layers,
                                         int64_t engram_vocab, dsf_config *whole, int *layer);

#endif
