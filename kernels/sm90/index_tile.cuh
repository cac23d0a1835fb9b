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

/* Four prepared tokens. Column 8g + 2c + e is head 2g + e of token c. */
struct tile {
    uint8_t code[128 * DSF_INDEX_CHANNELS]; /* [columns][channels], 128-byte swizzle */
    int32_t visible[tokens], slot[tokens];
    int32_t most, fast; /* the largest of visible; all records fold, all weights are in range */
    int32_t common;     /* the slot of all four, -1 if they differ */
    int32_t pad[21];
    uint32_t weight[heads / 4][tokens][4]; /* a times 2^base, a bf16 in the high half */
    /* for the slow path */
    float a[tokens][heads];
    float unfold[heads][tokens][groups]; /* makes the group's sum of an integer one */
    float scale[heads][tokens][groups];

    /* Which tokens have it, a bit each. */
    __device__ unsigned same_slot(int s) const
    {
        unsigned set = 0;
#pragma unroll
        for (int i = 0; i < tokens; i++) set |= unsigned(slot[i] == s) << i;
        return set;
    }
};
static_assert(sizeof(tile) == DSF_INDEX_TILE_BYTES, "tune_index.h");

/* Queues the preparation of all tiles. */
dsf_status prepare_tiles(const score_job &job, tile *tiles, cudaStream_t stream);
/* Scores of rows that share no keys: a pool's entries, or few rows; whether they can be had so. */
bool own_keys_fit(const score_job &job);
dsf_status score_own_keys(const score_job &job, cudaStream_t stream);

/* The scales of one record. */
struct scales {
    uint32_t bytes;
    int base; /* the smallest */
    bool in_range, folds;

    __device__ explicit scales(uint32_t b) : bytes(b)
    {
        int low = 255, high = 0;
#pragma unroll
        for (int g = 0; g < groups; g++) {
            low = min(low, at(g));
            high = max(high, at(g));
        }
        base = low;
        in_range = low >= least_scale && high <= most_scale;
        folds = in_range && high - low <= most_shift;
    }
    __device__ int at(int g) const { return bytes >> 8 * g & 255; }
    __device__ int shift(int g) const { return folds ? at(g) - base : 0; }
    /* The factor that stays outside of the integers. */
    __device__ float outside(int g) const { return num::e8m0_to_f32(folds ? base : at(g)); }
};

/* a * 2^(base - 127) as bf16; ok: it is 0, or everything made of it stays normal. */
__device__ inline uint16_t scaled_weight(uint16_t a, int base, bool &ok)
{
    int exponent = a >> 7 & 255;
    ok = (a & 0x7FFF) == 0 || (exponent >= least_scale && exponent <= most_scale);
    return (a & 0x7FFF) == 0 ? 0 : uint16_t(a + (base - 127) * 128);
}

} // namespace index_sm90

#endif
