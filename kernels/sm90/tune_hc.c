#include "sm90/tune_hc.h"

int dsf_hc_mix_tiled(int64_t n, int64_t q) { return n >= DSF_HC_MANY && q % DSF_HC_SEGMENT == 0; }

/* Tiles: the coefficients in parts. Fewer rows, which the same plan serves: the sums of every
 * segment of a piece. */
size_t dsf_hc_mix_sm90_scratch(const void *args)
{
    const dsf_hc_mix_args *a = args;
    int64_t n = a->x.dim[0], q = a->fn.dim[1];
    int64_t rows = n < DSF_HC_PIECE ? n : DSF_HC_PIECE;
    int64_t segments = (q + DSF_HC_SEGMENT - 1) / DSF_HC_SEGMENT;
    size_t parts = dsf_hc_mix_tiled(n, q) ? (size_t)segments * DSF_HC_SPLIT_BYTES : 0;
    size_t sums = (size_t)(rows * segments * DSF_HC_STRIDE) * sizeof(float);
    return parts > sums ? parts : sums;
}

static int64_t boundary_groups(int64_t d) { return (d + 255) / 256; }

/* At 64 rows four blocks a row are two a multiprocessor; from there on rows alone fill the machine.
 */
int dsf_boundary_few(int64_t n, int64_t d)
{
    return n <= 64 && boundary_groups(d) <= DSF_BOUNDARY_CLUSTER * DSF_BOUNDARY_FEW_WARPS;
}

int64_t dsf_boundary_warps(int64_t n, int64_t d)
{
    int64_t groups = boundary_groups(d);
    if (dsf_boundary_few(n, d)) return (groups + DSF_BOUNDARY_CLUSTER - 1) / DSF_BOUNDARY_CLUSTER;
    return groups < DSF_BOUNDARY_MANY_WARPS ? groups : DSF_BOUNDARY_MANY_WARPS;
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
