/* Row quantisers (architecture.md 3.1-3.3). A thread holds 8 channels; the 4 (Q8, Q4X) or 2 (Q4N)
 * neighbours of a group share their largest magnitude by shuffles. 2 bytes are read and 1 or 1/2
 * written a channel, about 6 instructions each: bound by memory.
 * Exact: scales of Q8 and Q4X are powers of two, and x 2^-k is the correctly rounded quotient (both
 * powers are normal numbers). e4m3 scales of Q4N have 4 significant bits, so that a border of the
 * e2m1 grid times the scale is exact and x is compared with it instead of being divided. */
#include "sm90/fused.cuh"

extern "C" {
#include "ops/quant.h"
}

enum quant_format { Q8, Q4X, Q4N };

__device__ inline uint32_t codes_e2m1(const float (&x)[CHUNK], float s)
{
    uint32_t codes = 0;
#pragma unroll
    for (int i = 0; i < CHUNK; i++) codes |= num::f32_to_e2m1(x[i], s) << 4 * i;
    return codes;
}

/* A chunk of a record. All lanes call it; live: this one writes. */
template <quant_format F>
__device__ inline void put_chunk(uint8_t *rec, const float (&x)[CHUNK], unsigned c, unsigned d,
                                 bool live)
{
    constexpr int LANES = F == Q4N ? 2 : 4;
    constexpr float FLOOR = F == Q8 ? 1e-4f : F == Q4X ? 6 * 0x1p-126f : 6 * 0x1p-9f;
    float most = fused::group_max<LANES>(x, FLOOR);
    if (!live) return;
    if (F == Q8) return fused::put_q8_codes(rec, x, most, c, d, live);
    int k = num::pow2ceil(most, 1.0f / 6.0f);
    uint8_t e4m3 = num::f32_to_e4m3(__fdiv_rn(most, 6.0f));
    fused::put_word(rec + c / 2, codes_e2m1(x, F == Q4N ? num::e4m3_to_f32(e4m3) : num::pow2(k)));
    if (c % (LANES * CHUNK) == 0)
        rec[d / 2 + c / (LANES * CHUNK)] = F == Q4N ? e4m3 : uint8_t(k + 127);
}

template <quant_format F>
static __global__ void __launch_bounds__(FLAT_THREADS)
    quant_kernel(uint8_t *out, const uint16_t *x, unsigned items, unsigned chunks, unsigned bytes)
{
    begin();
    row_chunk at = {0, 0};
    bool live = this_chunk(at, items, chunks); /* every lane takes part in the shuffles */
    unsigned d = chunks * CHUNK;
    float v[CHUNK];
    unpack_chunk(v, live ? load_chunk<true>(x + int64_t(at.row) * d, at.c, d)
                         : make_uint4(0, 0, 0, 0));
    put_chunk<F>(out + int64_t(at.row) * bytes, v, at.c, d, live);
}

/* d is a multiple of 32: rows of x are 64-byte aligned whenever the tensor is. */
template <quant_format F> static dsf_status quant(const dsf_launch *lc, const void *args)
{
    const dsf_quant_args *a = static_cast<const dsf_quant_args *>(args);
    int64_t d = a->x.dim[2], items = dsf_tensor_rows(&a->x) * (d / CHUNK);
    return launch_flat(lc, items, quant_kernel<F>, data_of<uint8_t>(a->out),
                       data_of<const uint16_t>(a->x), unsigned(items), unsigned(d / CHUNK),
                       unsigned(dsf_dtype_bytes(a->out.dtype, d)));
}

extern "C" dsf_status dsf_quant_q8_sm90(const dsf_launch *lc, const void *args)
{
    return quant<Q8>(lc, args);
}

extern "C" dsf_status dsf_quant_q4x_sm90(const dsf_launch *lc, const void *args)
{
    return quant<Q4X>(lc, args);
}

extern "C" dsf_status dsf_quant_q4n_sm90(const dsf_launch *lc, const void *args)
{
    return quant<Q4N>(lc, args);
}
