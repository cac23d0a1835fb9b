/* Queries for the tensor cores: codes expanded to bytes with their scales folded in, in the order
 * and swizzle of the products that read them; weights. 68 bytes a head become 169. */
#include "sm90/index_tile.cuh"

using namespace index_sm90;

namespace
{

__device__ void put_codes(tile *t, int column, int head, int token, const uint32_t (&word)[16],
                          const scales &s)
{
    uint4 *out = reinterpret_cast<uint4 *>(t->code + column * DSF_INDEX_CHANNELS);
#pragma unroll
    for (int g = 0; g < groups; g++) {
        uint32_t x[4], y[4];
        const grid table(s.shift(g));
#pragma unroll
        for (int i = 0; i < 4; i++) table.expand(word[4 * g + i], x[i], y[i]);
        out[(2 * g) ^ (column & 7)] = make_uint4(x[0], x[1], x[2], x[3]);
        out[(2 * g + 1) ^ (column & 7)] = make_uint4(y[0], y[1], y[2], y[3]);
        t->unfold[head][token][g] = num::pow2(-2 - s.shift(g));
        t->scale[head][token][g] = num::e8m0_to_f32(uint8_t(s.at(g)));
    }
}

/* What the tile knows of its rows. */
__device__ void put_rows(tile *t, const score_job &j, int64_t first, bool fast)
{
    int64_t most = 0;
    for (int i = 0; i < tokens; i++) {
        int64_t row = first + i < j.n ? first + i : j.n - 1;
        int64_t v = visible_entries(j.pos[row], j.ratio, j.entries);
        if (first + i >= j.n) v = 0;
        t->visible[i] = int32_t(v);
        t->slot[i] = j.slot[row];
        most = v > most ? v : most;
    }
    t->most = int32_t(most);
    t->fast = fast;
    t->common = t->same_slot(t->slot[0]) == 15 ? t->slot[0] : -1;
}

/* One block a tile, one thread a (token, head). */
__global__ void __launch_bounds__(tokens *heads) prepare(score_job j, tile *tiles)
{
    tile *t = tiles + blockIdx.x;
    int token = threadIdx.x / heads, head = threadIdx.x % heads;
    int64_t first = int64_t(blockIdx.x) * tokens, row = first + token;
    uint32_t word[16] = {}, bytes = 0x7F7F7F7F;
    uint16_t a = 0;
    follow();
    if (row < j.n && head < j.h) {
        const uint8_t *rec = j.q + (row * j.h + head) * record;
#pragma unroll
        for (int i = 0; i < 16; i++) word[i] = load_word(rec + 4 * i, true);
        bytes = load_word(rec + 64, true);
        a = j.a[row * j.h + head];
    }
    scales s(bytes);
    bool in_range;
    uint16_t weight = scaled_weight(a, s.base, in_range);
    int column = head / 2 * 8 + token * 2 + head % 2;
    t->weight[head / 4][token][head % 4] = uint32_t(weight) << 16;
    put_codes(t, column, head, token, word, s);
    t->a[token][head] = num::bf16_to_f32(a);
    bool fast = __syncthreads_and(s.folds && in_range);
    if (threadIdx.x == 0) put_rows(t, j, first, fast);
}

} // namespace

dsf_status index_sm90::prepare_tiles(const score_job &job, tile *tiles, cudaStream_t stream)
{
    return launch_early(stream, {dsf_blocks(job.n, tokens), tokens * heads}, prepare, job, tiles);
}
