/* What the three kernels of linear_g8's `sm90fp8` share: the operands as kernels see them, the
 * order of tokens in a tile, scales on their way to shared memory, tensor maps. */
#ifndef DSF_SM90_LINEAR_G8_CUH
#define DSF_SM90_LINEAR_G8_CUH

#include "sm90/ptx.cuh"
#include "sm90/sm90.cuh"
#include "sm90/tensormap.cuh"
extern "C" {
#include "ops/linear.h"
#include "sm90/tune_linear_g8.h"
}

namespace g8
{

constexpr int STEP = DSF_G8_STEP;   /* bytes of K in a stage */
constexpr int BLOCKS = STEP / 32;   /* scale blocks of it: one wgmma k32 each */
constexpr int DESC_BLOCK = 32 >> 4; /* one block along K on a matrix descriptor */

struct maps {
    CUtensorMap x, w[2];
};

struct matrix {
    uint16_t *out;    /* [n, o] */
    const uint8_t *s; /* [ceil(o/32), k/32] */
    int o;
};

struct operands {
    matrix of[2];     /* a second one, with few tokens */
    const uint8_t *x; /* [n, k + k/32] */
    int n, k;
    int direct; /* x may be loaded by the copy engine; else 8 or 4 bytes at a time */
    int units_of_8;
    int token_tiles, steps;
    int output_tiles, first_tiles; /* of both matrices, of the first */
};

/* Tile u of the outputs of both matrices. */
struct place {
    int which, tile;
    __device__ place(const operands &p, int u)
        : which(u >= p.first_tiles), tile(which ? u - p.first_tiles : u)
    {
    }
};

/* Place in the ring of stages, and the parity its barriers have there. */
template <int STAGES> struct ring {
    int slot = 0;
    uint32_t parity = 0;
    __device__ void advance()
    {
        if (++slot == STAGES) {
            slot = 0;
            parity ^= 1;
        }
    }
};

/* Scale bytes of token `t` (4 for each step), NULL past the end. */
__device__ inline const uint32_t *token_scales(const operands &p, int t)
{
    return t < p.n ? reinterpret_cast<const uint32_t *>(p.x + int64_t(t) * (p.k + p.k / 32) + p.k)
                   : nullptr;
}

/* Scale bytes of the 32 outputs of row block `b` of a matrix, NULL past the end. */
__device__ inline const uint32_t *output_scales(const operands &p, int which, int b)
{
    const matrix &m = p.of[which];
    return b < (m.o + 31) / 32 ? reinterpret_cast<const uint32_t *>(m.s + int64_t(b) * (p.k / 32))
                               : nullptr;
}

/* Scales of the next AHEAD stages of a row, asked for together: their latency is met once. Stages
 * are `stride` steps apart. */
template <int AHEAD> struct scale_words {
    uint32_t v[AHEAD];
    __device__ void load(const uint32_t *row, int step, int stride, int steps)
    {
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            int at = step + i * stride;
            v[i] = row && at < steps ? row[at] : 0;
        }
    }
    /* The next stage's; moved down, so that a loop over stages need not be unrolled. */
    __device__ uint32_t next()
    {
        uint32_t first = v[0];
#pragma unroll
        for (int i = 1; i < AHEAD; i++) v[i - 1] = v[i];
        return first;
    }
};

/* A warp brings step `step` of `rows` tokens to a tile in shared memory, where the
 * copy engine can't: 8 or 4 bytes at a time, swizzled as it would. */
__device__ inline void copy_x(uint32_t to, const operands &p, int rows, int step, int lane)
{
    int record = p.k + p.k / 32, shift = p.units_of_8 ? 4 : 5, unit = STEP >> shift;
    const uint8_t *from = p.x + step * STEP;
    for (int i = lane; i < rows << shift; i += 32) {
        int row = i >> shift, column = (i - (row << shift)) * unit;
        uint32_t at = to + uint32_t(row * STEP + (column ^ (row % 8 * 16)));
        const uint8_t *source = from + int64_t(row) * record + column;
        if (unit == 8)
            ptx::cp_async_8(at, source);
        else
            ptx::cp_async_4(at, source);
    }
}

/* A word of 4 scales that holds a byte of equal bits, 0 or 255: no plain exponent. */
__device__ inline bool special_scales(uint32_t v)
{
    uint32_t changes = (v ^ v >> 1) & 0x7F7F7F7Fu; /* a byte of 0: its bits are equal */
    return (changes - 0x01010101u) & 0x80808080u;
}

/* The scale of block b, in a word without special ones. */
__device__ inline float plain_scale(uint32_t v, int b)
{
    return __uint_as_float((b == 0   ? v << 23
                            : b == 1 ? v << 15
                            : b == 2 ? v << 7
                                     : v >> 1) &
                           0x7F800000u);
}

/* The scales of the 4 blocks of a step. */
__device__ inline float4 expand_scales(uint32_t v)
{
    if (special_scales(v))
        return make_float4(num::e8m0_to_f32(v & 255), num::e8m0_to_f32(v >> 8 & 255),
                           num::e8m0_to_f32(v >> 16 & 255), num::e8m0_to_f32(v >> 24));
    return make_float4(plain_scale(v, 0), plain_scale(v, 1), plain_scale(v, 2), plain_scale(v, 3));
}

/* Scales that nobody brings: 1, which takes no detour. */
constexpr uint32_t NO_SCALES = 0x7F7F7F7F;

/* A warp asks for the scales of the outputs of a tile before it may ask for anything of x. */
__device__ inline void prefetch_scales(const operands &p, const uint32_t *row, int lane)
{
    if (row && lane * 32 < p.k / 32)
        ptx::prefetch_global_l2(reinterpret_cast<const uint8_t *>(row) + lane * 32);
}

/* One product, or two of the same x. */
struct problem {
    dsf_tensor x;
    struct {
        dsf_tensor out, w, s;
    } of[2];
    int matrices;
};

/* What a tile says of shapes, and where x lies. */
static inline dsf_g8_tile at_address(dsf_g8_tile t, const problem &q)
{
    t.direct = t.direct && reinterpret_cast<intptr_t>(q.x.data) % 16 == 0;
    return t;
}

/* What one load brings: `tokens` rows of x, `w_rows` rows of w, of one step or of `slices` steps
 * one after the other. x: its codes, `pitch` bytes apart. */
static inline dsf_status make_maps(maps *m, const problem &q, const dsf_g8_tile &t, const void *x,
                                   int64_t pitch, int w_rows)
{
    int64_t n = q.x.dim[0], k = q.x.dim[1];
    uint32_t pieces = t.slices > 1 ? uint32_t(t.slices) : 0;
    if (n == 1) pitch = (pitch + 15) / 16 * 16; /* there is no second row */
    if (t.direct || !t.slices)
        DSF_TRY(dsf_tensormap_bytes(&m->x, {x, n, k, pitch, uint32_t(t.tokens), STEP, pieces},
                                    CU_TENSOR_MAP_SWIZZLE_128B));
    for (int i = 0; i < q.matrices; i++)
        DSF_TRY(dsf_tensormap_bytes(
            &m->w[i], {q.of[i].w.data, q.of[i].w.dim[0], k, k, uint32_t(w_rows), STEP, pieces},
            CU_TENSOR_MAP_SWIZZLE_128B));
    return DSF_OK;
}

static inline operands make_operands(const problem &q, const dsf_g8_tile &t)
{
    operands p = {};
    for (int i = 0; i < q.matrices; i++)
        p.of[i] = {data_of<uint16_t>(q.of[i].out), data_of<const uint8_t>(q.of[i].s),
                   int(q.of[i].out.dim[1])};
    p.x = data_of<const uint8_t>(q.x);
    p.n = int(q.x.dim[0]);
    p.k = int(q.x.dim[1]);
    p.direct = t.direct;
    p.units_of_8 = ((q.x.dim[1] + q.x.dim[1] / 32) | reinterpret_cast<intptr_t>(q.x.data)) % 8 == 0;
    p.token_tiles = int(t.token_tiles);
    p.steps = t.steps;
    p.output_tiles = int(t.output_tiles);
    p.first_tiles = int(t.first_tiles);
    return p;
}

/* Queues a kernel over the blocks and clusters of a tile. */
static inline dsf_status launch(const dsf_launch *lc, const dsf_g8_tile &t, int threads,
                                size_t shared, void (*kernel)(maps, operands), const maps &m,
                                const operands &p)
{
    launch_shape l = {unsigned(t.blocks), unsigned(threads), shared, unsigned(t.cluster)};
    return launch_early(dsf_stream(lc), l, kernel, m, p);
}

dsf_status launch_decode(const dsf_launch *lc, const problem &q, const dsf_g8_tile &t);
dsf_status launch_slices(const dsf_launch *lc, const problem &q, const dsf_g8_tile &t);

} // namespace g8

#endif
