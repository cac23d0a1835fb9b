/* After an attention: its output turned back, and the window keys that it read stored in their
 * ring. Two copies with nothing in common but their place in a layer: the first blocks' threads
 * have a chunk of 8 channels of the output each, the rest 16 bytes of a key each. Bound by memory.
 */
#include "sm90/fused.cuh"

extern "C" {
#include "ops/fused.h"
}

struct turned {
    uint16_t *out;
    const uint16_t *o;
    const float2 *cs;
    unsigned heads, d, f;
};

struct kept {
    uint8_t *ring;
    const uint8_t *key;
    const int32_t *slot, *index, *end;
    int64_t places;
    unsigned bytes, units; /* of a record */
};

__device__ inline void turn(const turned &a, unsigned item)
{
    unsigned chunks = a.d / CHUNK, head = item / chunks, c = (item - head * chunks) * CHUNK;
    float v[CHUNK];
    unpack_chunk(v, load_chunk<true>(a.o + int64_t(head) * a.d, c, a.d));
    fused::rotate_chunk(v, a.cs + int64_t(head / a.heads) * a.f, c, a.d - 2 * a.f, -1.0f);
    store_chunk<true>(a.out + int64_t(head) * a.d, c, a.d, pack_chunk(v));
}

template <typename UNIT> __device__ inline void keep(const kept &a, unsigned item)
{
    unsigned row = item / a.units, at = item - row * a.units;
    int64_t slot = a.slot[row], index = a.index[row];
    if (slot < 0 || index < a.end[row] - a.places) return; /* a later row has its place */
    reinterpret_cast<UNIT *>(a.ring + (slot * a.places + index % a.places) * a.bytes)[at] =
        reinterpret_cast<const UNIT *>(a.key + int64_t(row) * a.bytes)[at];
}

template <typename UNIT>
static __global__ void __launch_bounds__(FLAT_THREADS)
    close_kernel(turned a, kept b, unsigned n_turned, unsigned n_kept)
{
    begin();
    unsigned item = blockIdx.x * FLAT_THREADS + threadIdx.x;
    if (item < n_turned)
        turn(a, item);
    else if (item - n_turned < n_kept)
        keep<UNIT>(b, item - n_turned);
}

extern "C" dsf_status dsf_attn_close_sm90(const dsf_launch *lc, const void *args)
{
    const dsf_attn_close_args *a = static_cast<const dsf_attn_close_args *>(args);
    int64_t n = a->o.dim[0], d = a->o.dim[2];
    if (d % CHUNK != 0)
        return DSF_FAIL(DSF_EINVAL, "attn_close: heads of %lld channels, a multiple of 8 is wanted",
                        static_cast<long long>(d));
    turned t = {data_of<uint16_t>(a->out),
                data_of<uint16_t>(a->o),
                data_of<float2>(a->cs),
                unsigned(a->o.dim[1]),
                unsigned(d),
                unsigned(a->cs.dim[1])};
    int64_t bytes = dsf_dtype_bytes(DSF_Q8, a->key.dim[1]);
    bool wide = bytes % 16 == 0 && aligned_to(a->ring.data, 16) && aligned_to(a->key.data, 16);
    int64_t units = wide ? bytes / 16 : bytes;
    kept k = {data_of<uint8_t>(a->ring), data_of<uint8_t>(a->key),
              data_of<int32_t>(a->slot), data_of<int32_t>(a->index),
              data_of<int32_t>(a->end),  a->ring.dim[1],
              unsigned(bytes),           unsigned(units)};
    int64_t n_turned = n * a->o.dim[1] * (d / CHUNK), n_kept = n * units;
    auto kernel = wide ? close_kernel<uint4> : close_kernel<uint8_t>;
    return launch_flat(lc, n_turned + n_kept, kernel, t, k, unsigned(n_turned), unsigned(n_kept));
}
