/* How the device draws tokens. */
#ifndef DSF_SM90_TUNE_SAMPLE_H
#define DSF_SM90_TUNE_SAMPLE_H

#include <stdint.h>

enum {
    DSF_SAMPLE_CLUSTER = 8,        /* blocks that share a row */
    DSF_SAMPLE_THREADS = 512,      /* of a block */
    DSF_SAMPLE_CLUSTERS = 16,      /* at work at a time: as many as 132 multiprocessors hold */
    DSF_SAMPLE_BYTES = 12,         /* of workspace an id: exp in double, probability in f32 */
    DSF_SAMPLE_SHARED = 200 * 1024 /* a block's probabilities lie in shared memory up to here */
};

/* Clusters of a launch for n rows; each has its own workspace. */
int64_t dsf_sample_clusters(int64_t n);
/* Neighbouring ids that a warp has of v. */
int64_t dsf_sample_each(int64_t v);
/* Bytes of shared memory for a block's probabilities; 0: they lie in the workspace. */
int64_t dsf_sample_shared(int64_t v);

#endif
