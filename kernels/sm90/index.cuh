/* What the indexer's kernels share: jobs, candidates of a row, expansion of index keys. */
#ifndef DSF_SM90_INDEX_CUH
#define DSF_SM90_INDEX_CUH

#include "sm90/ptx.cuh"
#include "sm90/sm90.cuh"

extern "C" {
#include "sm90/tune_index.h"
}

namespace index_sm90
{

/* Scores of rows 0..n-1, `stride` apart. */
struct score_job {
    const uint8_t *q; /* [n, h, d] Q4X */
    const uint16_t *a;
    const uint8_t *keys; /* [s, c, d] Q4X */
    const int32_t *pos, *slot;
    const int32_t *pool; /* [n, b]; nullptr: all visible entries */
    uint16_t *out;
    int64_t n, h, d, c, entries, stride, b;
    int ratio, block;
    bool fill; /* -inf for the entries that are not visible */
};

/* Selections of rows 0..n-1. */
struct select_job {
    const uint16_t *scores; /* [n, stride] */
    const int32_t *pos;
    const int32_t *pool; /* [n, b]; nullptr: all visible entries compete */
    int32_t *topk;       /* [n, k] */
    int32_t *pool_out;   /* [n, b_out]; nullptr: not wanted */
    int64_t n, stride, entries, b, k, b_out;
    int ratio, block;
    bool packed; /* a row's scores are those of its pool's entries, in their order */
};

/* First in every kernel here: what came before has been written; what follows may start. */
__device__ inline void follow()
{
    ptx::griddepcontrol_wait();
    ptx::griddepcontrol_launch_dependents();
}

/* Queues the selections. memory: workspace of the cuts. */
dsf_status select_rows(const select_job &job, dsf_index_cut topk, dsf_index_cut pool,
                       uint8_t *memory, cudaStream_t stream);
/* The plain scores, any shape. */
dsf_status score_rows(const score_job &job, cudaStream_t stream);
/* The same on the tensor cores. tiles: workspace of the prepared queries. */
dsf_status score_rows_tensor(const score_job &job, uint8_t *tiles, cudaStream_t stream);

/* Entry of candidate p, or -1 where there is none. Blocks ascend, then -1. */
__device__ inline int candidate_entry(const int32_t *pool, int b, int block, int visible, int p)
{
    int entry = p;
    if (pool) {
        int m = p / block;
        if (m >= b) return -1;
        int32_t id = pool[m];
        if (id < 0) return -1;
        entry = id * block + p % block;
    }
    return entry < visible ? entry : -1;
}

/* V(t), cut to the entries there are, not negative. */
__device__ inline int64_t visible_entries(int32_t pos, int ratio, int64_t entries)
{
    int64_t v = (int64_t(pos) + 1) / ratio;
    v = v < entries ? v : entries;
    return v > 0 ? v : 0;
}

/* Twice an e2m1 value is an integer, -12..12. Tables of 2 |x| << shift as bytes (shift <= 3), and
 * their negatives. */
struct grid {
    uint32_t low, high, minus_low, minus_high;

    __device__ explicit grid(int shift)
        : low(0x03020100u << shift), high(0x0C080604u << shift),
          minus_low((~low & 0xFFFFFF00u) + 0x01010100u), minus_high(~high + 0x01010101u)
    {
    }
    /* Eight nibbles, in order: the first four to a, the others to b. */
    __device__ void expand(uint32_t w, uint32_t &a, uint32_t &b) const
    {
        uint32_t code = w & 0x77777777u, left = w << 4;
        a = pick(code, ptx::prmt(w, left, 0x9D8C));
        b = pick(code >> 16, ptx::prmt(w, left, 0xBFAE));
    }
    /* PRMT takes the low four nibbles of code; minus: 0xFF where the sign is set. */
    __device__ uint32_t pick(uint32_t code, uint32_t minus) const
    {
        uint32_t plus_x = ptx::prmt(low, high, code);
        uint32_t minus_x = ptx::prmt(minus_low, minus_high, code);
        return (plus_x & ~minus) | (minus_x & minus);
    }
};

/* Two bf16 in a word. */
__device__ inline __nv_bfloat162 bf16x2(uint32_t x)
{
    return *reinterpret_cast<__nv_bfloat162 *>(&x);
}
__device__ inline uint32_t word(__nv_bfloat162 x) { return *reinterpret_cast<uint32_t *>(&x); }

/* Four bytes at any address. */
__device__ inline uint32_t load_word(const uint8_t *p, bool aligned)
{
    if (aligned) return *reinterpret_cast<const uint32_t *>(p);
    return p[0] | uint32_t(p[1]) << 8 | uint32_t(p[2]) << 16 | uint32_t(p[3]) << 24;
}

} // namespace index_sm90

#endif
