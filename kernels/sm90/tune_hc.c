#include "sm90/tune_hc.h"

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

int dsf_boundary_few(int64_t n) { return n <= 132; }

int64_t dsf_boundary_warps(int64_t n, int64_t d)
{
    int64_t groups = (d + 255) / 256, few = dsf_boundary_few(n);
    int64_t warps = few ? (groups + 1) / 2 : groups;
    int64_t most = few ? DSF_BOUNDARY_FEW_WARPS : DSF_BOUNDARY_MANY_WARPS;
    return warps < most ? warps : most;
}

dsf_hc_mix_args dsf_boundary_mix(const dsf_hc_boundary_args *a)
{
    return (dsf_hc_mix_args){.pre = a->next_pre,
                             .post = a->next_post,
                             .comb = a->next_comb,
                             .x = a->out,
                             .fn = a->fn,
                             .base = a->base,
                             .scale = a->scale,
                             .norm_eps = a->mix_eps,
                             .hc_eps = a->hc_eps,
                             .iters = a->iters};
}

size_t dsf_hc_boundary_sm90_scratch(const void *args)
{
    const dsf_hc_mix_args m = dsf_boundary_mix(args);
    return m.fn.rank ? dsf_hc_mix_sm90_scratch(&m) : 0;
}
