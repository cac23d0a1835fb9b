/* Index records on the tensor cores: prepared queries, folded scales. The two kernels that score
 * (index_scores.cu: all entries; index_pool.cu: those of a pool) share them. */
#ifndef DSF_SM90_INDEX_TILE_CUH
#define DSF_SM90_INDEX_TILE_CUH

#include "sm90/index.cuh"

namespace index_sm90
{

constexpr int groups = DSF_INDEX_CHANNELS / 32;
constexpr int record = DSF_INDEX_CHANNELS / 2 + groups; /* 68 bytes, 4-aligned */
constexpr int tokens = DSF_INDEX_TILE_ROWS;
constexpr int heads = DSF_INDEX_HEADS;

/* Scales that fold: exponents within 30 of 0, so that no f32 or bf16 of the fast path leaves the
 * normal range (INDEX.md). */
constexpr int least_scale = 127 - 30, most_scale = 127 + 30, most_shift = 3;

/* Four prepared tokens. Columns and weights lie as the kernel that reads them needs:
 *   all entries: column 8g + 2c + e is head 2g + e of token c; weight [head / 4][token][head % 4],
 *     a bf16 in the high half;
 *   a pool: column 32 t + 8g + 2c + e is head 8c + 2g + e of token t; weight [token][head / 2], two
 *     bf16. */
struct tile {
    uint8_t code[128 * DSF_INDEX_CHANNELS]; /* [columns][channels], 128-byte swizzle */
    int32_t visible[tokens], slot[tokens];
    int32_t most, fast; /* the largest of visible; all records fold, all weights are in range */
    int32_t pad[22];
    uint32_t weight[tokens * heads]; /* a times 2^base */
    /* for the slow path */
    float a[tokens][heads];
    float unfold[heads][tokens][groups]; /* makes the group's sum of an integer one */
    float scale[heads][tokens][groups];
};
static_assert(sizeof(tile) == DSF_INDEX_TILE_BYTES, "tune_index.h");

/* Queues the preparation of all tiles. */
dsf_status prepare_tiles(const score_job &job, tile *tiles, cudaStream_t stream);
/* Whether the pool's blocks can be copied as they lie; the scores of its entries. */
bool pool_fits(const score_job &job);
dsf_status score_pool_tensor(const score_job &job, tile *tiles, cudaStream_t stream);

/* The scales of one record. */
struct scales {
    uint32_t bytes;
    int base; /* the smallest */
    bool folds;

    __device__ explicit scales(uint32_t b) : bytes(b)
    {
        int low = 255, high = 0;
#pragma unroll
        for (int g = 0; g < groups; g++) {
            low = min(low, at(g));
            high = max(high, at(g));
        }
        base = low;
        folds = low >= least_scale && high <= most_scale && high - low <= most_shift;
    }
    __device__ int at(int g) const { return bytes >> 8 * g & 255; }
    __device__ int shift(int g) const { return folds ? at(g) - base : 0; }
    /* The factor that stays outside of the integers. */
    __device__ float outside(int g) const { return num::e8m0_to_f32(folds ? base : at(g)); }
};

/* Two bf16 in a word. */
__device__ inline __nv_bfloat162 bf16x2(uint32_t x)
{
    return *reinterpret_cast<__nv_bfloat162 *>(&x);
}
__device__ inline uint32_t word(__nv_bfloat162 x) { return *reinterpret_cast<uint32_t *>(&x); }

} // namespace index_sm90

#endif
