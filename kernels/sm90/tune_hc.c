#include "sm90/tune_hc.h"

#include "ops/hc.h"

int dsf_hc_mix_tiled(int64_t n, int64_t q) { return n >= DSF_HC_MANY && q % DSF_HC_SEGMENT == 0; }

/* The sums of every segment of a piece. */
size_t dsf_hc_mix_sm90_scratch(const void *args)
{
    const dsf_hc_mix_args *a = args;
    int64_t n = a->x.dim[0], q = a->fn.dim[1];
    if (dsf_hc_mix_tiled(n, q)) return 0;
    int64_t rows = n < DSF_HC_PIECE ? n : DSF_HC_PIECE;
    int64_t segments = (q + DSF_HC_SEGMENT - 1) / DSF_HC_SEGMENT;
    return (size_t)(rows * segments * DSF_HC_STRIDE) * sizeof(float);
}
