/* A model folder, checked and opened: config, checkpoint, weights, rope tables, Engram classes.
 * What an engine runs on, and what verification builds its own plans from. */
#ifndef DSF_SERVE_LOAD_H
#define DSF_SERVE_LOAD_H

#include "model/model.h"

/* Zero-initialise. The parts point to each other: it must not move once opened. */
typedef struct {
    dsf_config config;
    dsf_ckpt *ckpt;
    dsf_weights weights;
    dsf_model model;
    int32_t *classes; /* token id -> Engram class; NULL without Engram */
} dsf_loaded;

/* A model without a checkpoint, for benchmarks on a device: the shapes of a config, weights from a
 * seed (dsf_weights_open_synthetic; the Engram tables are filled once their memory is granted). */
struct dsf_synthetic {
    dsf_config config;
    uint64_t seed;
    bool planned; /* stands for a checkpoint that is not at hand: only for plans. Engram tables have
                     names too, and no memory */
};

DSF_MUST dsf_status dsf_load_synthetic(dsf_loaded *l, const struct dsf_synthetic *s);
/* EIO, ECORRUPT with the file and what is wrong. Close in either case. */
DSF_MUST dsf_status dsf_load_open(dsf_loaded *l, const char *folder,
                                  const dsf_config_accept *accept);
void dsf_load_close(dsf_loaded *l);

#endif
