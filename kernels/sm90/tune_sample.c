#include "sm90/tune_sample.h"

#include "ops/sample.h"

enum { WARPS = DSF_SAMPLE_THREADS / 32 };

int64_t dsf_sample_clusters(int64_t n) { return n < DSF_SAMPLE_CLUSTERS ? n : DSF_SAMPLE_CLUSTERS; }

int64_t dsf_sample_each(int64_t v)
{
    return (v + DSF_SAMPLE_CLUSTER * WARPS - 1) / (DSF_SAMPLE_CLUSTER * WARPS);
}

int64_t dsf_sample_shared(int64_t v)
{
    int64_t bytes = dsf_sample_each(v) * WARPS * (int64_t)sizeof(float);
    return bytes <= DSF_SAMPLE_SHARED ? bytes : 0;
}

size_t dsf_sample_sm90_scratch(const void *args)
{
    const dsf_sample_args *a = args;
    int64_t each = (a->logits.dim[1] + 1) / 2 * 2 * DSF_SAMPLE_BYTES; /* doubles stay aligned */
    return (size_t)(dsf_sample_clusters(a->logits.dim[0]) * each);
}
