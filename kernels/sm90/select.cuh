/* The k best of a row of scores by one block: 16-bit numbers in the order of the scores, larger
 * first, then the smaller position.
 *
 * One pass over the scores. A buffer in shared memory holds, in order of position, what may still
 * be among the best: first everything, and once it has been cut to k, only scores above the k-th
 * best of those seen (one that equals it comes later than k as good, so it loses). A full buffer is
 * cut to k again: two histograms, of the high bytes and of the low bytes below the k-th's high one,
 * find the k-th number; ties go to the first. With scores in random order the threshold rises so
 * fast that three cuts serve 262,144 scores; in the worst order every step is followed by a cut and
 * the result is the same.
 */
#ifndef DSF_SM90_SELECT_CUH
#define DSF_SM90_SELECT_CUH

#include "sm90/index.cuh"

namespace index_sm90
{

constexpr int select_threads = 512;
constexpr int select_warps = select_threads / 32;
constexpr int select_pieces = 2; /* of 8 scores, of a thread in a step */
constexpr int select_step = select_threads * select_pieces * 8; /* 8,192 */
constexpr int select_tile = select_threads * 8;
constexpr int select_most = 2 * DSF_INDEX_MOST_KEPT;   /* of the buffer before a step */
constexpr int select_room = select_most + select_step; /* 16,384 places of 6 bytes */
constexpr uint32_t select_minus_inf = 0x007F;          /* what -inf becomes; 0: no candidate */

struct select_memory {
    uint4 key[select_room / 8 + 1]; /* 16 bits each */
    uint4 pos[select_room / 4 + 2];
    int count[2][select_warps];
    uint4 block[select_warps][32]; /* of each warp: largest scores of 256 blocks */
    int bin[2][256];               /* of the high bytes, of the low bytes below one of them */
};

/* Eight consecutive candidates: bf16 scores (or numbers already), and which of them compete. */
struct piece {
    uint4 x;
    uint32_t valid;
};

/* A bf16 score as a number: NaN is -inf, both zeros are one. */
__device__ inline uint32_t select_order(uint32_t x)
{
    uint32_t magnitude = x & 0x7FFF;
    uint32_t key = x & 0x8000 ? x ^ 0xFFFF : x | 0x8000;
    if (magnitude == 0) key = 0x8000;
    return magnitude > 0x7F80 ? select_minus_inf : key;
}

/* The score of a number that is at least that of -inf. */
__device__ inline uint32_t select_score(uint32_t key)
{
    return key ^ (key & 0x8000 ? 0x8000 : 0xFFFF);
}

__device__ inline uint32_t word_of(const uint4 &v, int i)
{
    return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

__device__ inline uint32_t half_of(const uint4 &v, int i)
{
    return word_of(v, i / 2) >> 16 * (i % 2) & 0xFFFF;
}

__device__ inline uint4 load_v4(const void *p) { return *static_cast<const uint4 *>(p); }

/* Eight scores from x[at], those below `end`. */
__device__ inline uint4 fetch_scores(const uint16_t *x, int at, int64_t end, bool aligned)
{
    if (aligned && at + 8 <= end) return load_v4(x + at);
    uint32_t w[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        uint32_t low = at + 2 * i < end ? x[at + 2 * i] : 0;
        uint32_t high = at + 2 * i + 1 < end ? x[at + 2 * i + 1] : 0;
        w[i] = low | high << 16;
    }
    return make_uint4(w[0], w[1], w[2], w[3]);
}

/* ---- candidates of a row ---- */

/* All visible entries. */
struct all_source {
    static constexpr bool ordered = false;
    const uint16_t *x;
    int count;
    bool aligned;

    __device__ all_source(const select_job &j, int64_t row, select_memory &)
        : x(j.scores + row * j.stride), count(int(visible_entries(j.pos[row], j.ratio, j.entries))),
          aligned(j.stride % 8 == 0)
    {
    }
    __device__ int entry(int p) const { return p; }
    /* p: a multiple of 8; nothing at `to` (at most count) and after it. */
    __device__ piece fetch(int p, int to) const
    {
        if (aligned && p + 8 <= to) return {load_v4(x + p), 0xFF};
        int left = min(max(to - p, 0), 8);
        return {fetch_scores(x, p, to, false), (1u << left) - 1};
    }
};

/* The visible entries of the pool's blocks. */
struct pool_source {
    static constexpr bool ordered = false;
    const uint16_t *x;
    const int32_t *pool; /* [b] */
    int64_t stride;
    int b, visible, count, block;
    bool packed, aligned;

    __device__ pool_source(const select_job &j, int64_t row, select_memory &)
        : x(j.scores + row * j.stride), pool(j.pool + row * j.b), stride(j.stride), b(int(j.b)),
          visible(int(visible_entries(j.pos[row], j.ratio, j.entries))), count(b * j.block),
          block(j.block), packed(j.packed), aligned(j.stride % 8 == 0)
    {
    }
    __device__ int entry(int p) const { return candidate_entry(pool, b, block, visible, p); }
    __device__ piece fetch(int p, int to) const
    {
        if (p >= to) return {make_uint4(0, 0, 0, 0), 0};
        if (block % 8 != 0) return gather(p);
        int first = entry(p); /* eight consecutive ones */
        if (first < 0) return {make_uint4(0, 0, 0, 0), 0};
        int left = visible - first, at = packed ? p : first;
        uint32_t valid = left >= 8 ? 0xFF : (1u << left) - 1;
        return {fetch_scores(x, at, packed ? stride : visible, aligned), valid};
    }
    __device__ piece gather(int p) const
    {
        uint32_t w[4] = {0, 0, 0, 0}, valid = 0;
#pragma unroll
        for (int i = 0; i < 8; i++) {
            int e = entry(p + i);
            if (e < 0) continue;
            valid |= 1u << i;
            w[i / 2] |= uint32_t(x[packed ? p + i : e]) << 16 * (i % 2);
        }
        return {make_uint4(w[0], w[1], w[2], w[3]), valid};
    }
};

/* Blocks before the newest visible one, by their largest scores. */
struct block_source {
    static constexpr bool ordered = false;
    const uint16_t *x;
    uint4 *stage;
    int count; /* -1: no entry is visible */
    int block;
    bool whole; /* 16 bytes a block */

    __device__ block_source(const select_job &j, int64_t row, select_memory &memory)
        : x(j.scores + row * j.stride), stage(memory.block[threadIdx.x / 32]), block(j.block),
          whole(j.block == 8 && j.stride % 8 == 0)
    {
        int visible = int(visible_entries(j.pos[row], j.ratio, j.entries));
        count = (visible + block - 1) / block - 1;
    }
    __device__ int entry(int p) const { return p; }
    /* The largest; NaN only if there is nothing else. */
    __device__ uint32_t largest(int m) const
    {
        __nv_bfloat162 best = bf16x2(0xFFFFFFFFu);
        if (whole) {
            uint4 v = load_v4(x + 8 * m);
            best = __hmax2(__hmax2(bf16x2(v.x), bf16x2(v.y)), __hmax2(bf16x2(v.z), bf16x2(v.w)));
        } else {
            for (int e = m * block; e < (m + 1) * block; e++)
                best = __hmax2(best, bf16x2(x[e] * 0x10001u));
        }
        return __bfloat16_as_ushort(__hmax(__low2bfloat16(best), __high2bfloat16(best)));
    }
    /* All lanes of a warp, p the same distance apart: eight lanes read the 128 bytes of one lane's
     * blocks. */
    __device__ piece fetch(int p, int to) const
    {
        int lane = threadIdx.x % 32, first = __shfl_sync(0xFFFFFFFFu, p, 0);
        int apart = __shfl_sync(0xFFFFFFFFu, p, 1) - first;
        uint16_t *out = reinterpret_cast<uint16_t *>(stage) + lane;
        __syncwarp();
#pragma unroll
        for (int i = 0; i < 8; i++) {
            int m = first + (4 * i + lane / 8) * apart + lane % 8;
            out[32 * i] = uint16_t(m < to ? largest(m) : 0);
        }
        __syncwarp();
        int left = min(max(to - p, 0), 8);
        return {stage[lane], (1u << left) - 1};
    }
};

/* What the parts of a row kept: numbers (0: an empty place), positions. */
struct list_source {
    static constexpr bool ordered = true;
    const uint16_t *key;
    const uint32_t *pos;
    int count; /* a multiple of 8 */

    __device__ piece fetch(int p, int to) const
    {
        if (p >= to) return {make_uint4(0, 0, 0, 0), 0};
        return {load_v4(key + p), 0xFF};
    }
};

/* ---- the selection ---- */

struct selector {
    select_memory &s;
    int parity, warp, lane;

    __device__ explicit selector(select_memory &memory)
        : s(memory), parity(0), warp(threadIdx.x / 32), lane(threadIdx.x % 32)
    {
    }
    __device__ uint16_t *keys() { return reinterpret_cast<uint16_t *>(s.key); }
    __device__ uint32_t *positions() { return reinterpret_cast<uint32_t *>(s.pos); }

    /* Sum of all threads' x; before: of the threads before this one. One barrier. */
    __device__ int scan(int x, int &before)
    {
        int sum = __any_sync(0xFFFFFFFFu, x != 0) ? warp_scan(x) : x;
        if (lane == 31) s.count[parity][warp] = sum;
        __syncthreads();
        int w = lane < select_warps ? s.count[parity][lane] : 0;
        parity ^= 1;
        before = sum - x + __reduce_add_sync(0xFFFFFFFFu, lane < warp ? w : 0);
        return __reduce_add_sync(0xFFFFFFFFu, w);
    }
    __device__ int sum(int x)
    {
        x = __reduce_add_sync(0xFFFFFFFFu, x);
        if (lane == 0) s.count[parity][warp] = x;
        __syncthreads();
        int w = lane < select_warps ? s.count[parity][lane] : 0;
        parity ^= 1;
        return __reduce_add_sync(0xFFFFFFFFu, w);
    }
    /* The bin in which the k-th largest is; above: how many lie in larger bins. */
    __device__ int find(const int *bin, int k, int &above)
    {
        int n[8], mine = 0;
#pragma unroll
        for (int i = 0; i < 8; i++) mine += n[i] = bin[255 - 8 * lane - i];
        int sum = warp_scan(mine);
        int owner = __ffs(int(__ballot_sync(0xFFFFFFFFu, sum >= k))) - 1, at = 255 - 8 * lane;
        sum -= mine;
#pragma unroll
        for (int i = 0; i < 7; i++) {
            if (sum + n[i] >= k) break;
            sum += n[i];
            at--;
        }
        above = __shfl_sync(0xFFFFFFFFu, sum, owner);
        return __shfl_sync(0xFFFFFFFFu, at, owner);
    }
    /* Counts byte `shift` of the first m numbers whose bits above it are those of `prefix`. */
    __device__ void count(int *bin, int m, int shift, uint32_t prefix)
    {
        for (int v = threadIdx.x; 8 * v < m; v += select_threads) {
            uint4 k = s.key[v];
#pragma unroll
            for (int i = 0; i < 8; i++) {
                uint32_t key = half_of(k, i);
                if (8 * v + i < m && key >> shift >> 8 == prefix)
                    atomicAdd(bin + (key >> shift & 255), 1);
            }
        }
        __syncthreads();
    }
    /* Which of a piece's scores are above the threshold. */
    template <typename SOURCE>
    static __device__ uint32_t passing(const piece &x, uint32_t threshold)
    {
        uint32_t bits = 0;
        if (SOURCE::ordered) {
#pragma unroll
            for (int i = 0; i < 8; i++) bits |= uint32_t(half_of(x.x, i) > threshold) << i;
            return bits & x.valid;
        }
        if (threshold < select_minus_inf) return x.valid;
        uint32_t t = select_score(threshold) * 0x10001u; /* a NaN is above nothing */
#pragma unroll
        for (int i = 0; i < 4; i++)
            bits |= __hgt2_mask(bf16x2(word_of(x.x, i)), bf16x2(t)) & (0x20001u << 2 * i);
        return (bits | bits >> 16) & x.valid;
    }
    template <typename SOURCE>
    __device__ int append(int m, const piece &piece, uint32_t taken, uint32_t p)
    {
        if (taken == 0xFF && m % 8 == 0) { /* at the start, where all pass */
            uint32_t w[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                uint32_t x = word_of(piece.x, i);
                w[i] = SOURCE::ordered ? x : select_order(x & 0xFFFF) | select_order(x >> 16) << 16;
            }
            s.key[m / 8] = make_uint4(w[0], w[1], w[2], w[3]);
            s.pos[m / 4] = make_uint4(p, p + 1, p + 2, p + 3);
            s.pos[m / 4 + 1] = make_uint4(p + 4, p + 5, p + 6, p + 7);
            return m + 8;
        }
        for (; taken; taken &= taken - 1) {
            int i = __ffs(int(taken)) - 1;
            uint32_t w = half_of(piece.x, i);
            keys()[m] = uint16_t(SOURCE::ordered ? w : select_order(w));
            positions()[m++] = p + i;
        }
        return m;
    }
    /* Keeps, in order, the numbers above `above` and the first `ties` that equal it. */
    __device__ int squeeze(int m, uint32_t above, int ties)
    {
        int larger = 0, equal = 0; /* in the tiles before */
        for (int base = 0; base < m; base += select_tile) {
            int at = base + threadIdx.x * 8;
            uint32_t key[8] = {}, pos[8] = {}, up = 0, tie = 0;
            if (at < m) {
                uint4 k = s.key[at / 8], p0 = s.pos[at / 4], p1 = s.pos[at / 4 + 1];
#pragma unroll
                for (int i = 0; i < 8; i++) {
                    key[i] = half_of(k, i);
                    pos[i] = word_of(i < 4 ? p0 : p1, i % 4);
                    up |= uint32_t(key[i] > above) << i;
                    tie |= uint32_t(key[i] == above) << i;
                }
            }
            int before, all = scan(__popc(up) | __popc(tie) << 16, before);
            int g = larger + (before & 0xFFFF), t = equal + (before >> 16);
#pragma unroll
            for (int i = 0; i < 8; i++) {
                bool is_tie = tie >> i & 1;
                if ((up >> i & 1) || (is_tie && t < ties)) {
                    int to = g + (t < ties ? t : ties);
                    keys()[to] = uint16_t(key[i]);
                    positions()[to] = pos[i];
                }
                g += up >> i & 1;
                t += is_tie;
            }
            larger += all & 0xFFFF;
            equal += all >> 16;
        }
        __syncthreads();
        return larger + (equal < ties ? equal : ties);
    }
    /* Cuts the buffer of m > k to its k best; the k-th is the new threshold. */
    __device__ int cut(int m, int k, uint32_t &threshold)
    {
        if (k == 0) return 0;
        if (threadIdx.x < 256) s.bin[0][threadIdx.x] = s.bin[1][threadIdx.x] = 0;
        if (threadIdx.x < 8) keys()[m + threadIdx.x] = 0;
        __syncthreads();
        int above, more;
        count(s.bin[0], m, 8, 0);
        uint32_t high = uint32_t(find(s.bin[0], k, above));
        count(s.bin[1], m, 0, high);
        threshold = high << 8 | uint32_t(find(s.bin[1], k - above, more));
        return squeeze(m, threshold, k - above - more);
    }
    /* The best k (at most DSF_INDEX_MOST_KEPT) of candidates from..to-1 above the number `least`
     * are left in the buffer, in order. Returns how many. */
    template <typename SOURCE>
    __device__ int best(const SOURCE &source, int from, int to, int k, uint32_t least)
    {
        int m = 0, full = k <= select_most / 8 ? select_most / 2 : select_most;
        uint32_t threshold = least;
        int p = from + threadIdx.x * 8 * select_pieces;
        piece next[select_pieces];
#pragma unroll
        for (int i = 0; i < select_pieces; i++) next[i] = source.fetch(p + 8 * i, to);
        for (; from < to; from += select_step, p += select_step) {
            piece now[select_pieces];
            uint32_t taken[select_pieces];
            int mine = 0;
#pragma unroll
            for (int i = 0; i < select_pieces; i++) {
                now[i] = next[i];
                if (from + select_step < to) next[i] = source.fetch(p + select_step + 8 * i, to);
                taken[i] = passing<SOURCE>(now[i], threshold);
                mine += __popc(taken[i]);
            }
            int before, all = scan(mine, before);
            before += m;
#pragma unroll
            for (int i = 0; i < select_pieces; i++)
                before = append<SOURCE>(before, now[i], taken[i], uint32_t(p + 8 * i));
            m += all;
            if (m <= full) continue;
            __syncthreads();
            if (m > k) m = cut(m, k, threshold);
        }
        __syncthreads();
        return m > k ? cut(m, k, threshold) : m;
    }
    /* The same for any k, straight to out[0..k): as many passes as the bisection has steps. */
    template <typename SOURCE>
    __device__ int best_wide(const SOURCE &source, int to, int k, uint32_t least, int32_t *out)
    {
        uint32_t low = least + 1, high = 0x10000;
        int above = 0, kept = 0, equal = 0;
        bool all = at_least(source, to, low) <= k;
        while (!all && high - low > 1) {
            uint32_t mid = (low + high) / 2;
            int n = at_least(source, to, mid);
            if (n >= k) low = mid;
            if (n < k) high = mid, above = n;
        }
        int ties = all ? to : k - above;
        for (int from = 0; from < to; from += select_tile) {
            int p = from + threadIdx.x * 8;
            piece now = source.fetch(p, to);
            uint32_t up = 0, tie = 0;
#pragma unroll
            for (int i = 0; i < 8; i++) {
                uint32_t key = select_order(half_of(now.x, i));
                up |= uint32_t(key > low) << i;
                tie |= uint32_t(key == low) << i;
            }
            up &= now.valid;
            tie &= now.valid;
            int before, sums = scan(__popc(up) | __popc(tie) << 16, before);
            int g = kept + (before & 0xFFFF), t = equal + (before >> 16);
            for (int i = 0; i < 8; i++) {
                bool is_tie = tie >> i & 1;
                if ((up >> i & 1) || (is_tie && t < ties))
                    out[g + (t < ties ? t : ties)] = int32_t(source.entry(p + i));
                g += up >> i & 1;
                t += is_tie;
            }
            kept += sums & 0xFFFF;
            equal += sums >> 16;
        }
        return kept + (equal < ties ? equal : ties);
    }
    template <typename SOURCE> __device__ int at_least(const SOURCE &source, int to, uint32_t t)
    {
        int n = 0;
        for (int from = 0; from < to; from += select_tile) {
            piece now = source.fetch(from + threadIdx.x * 8, to);
            int mine = 0;
#pragma unroll
            for (int i = 0; i < 8; i++) {
                uint32_t key = select_order(half_of(now.x, i));
                mine += (now.valid >> i & 1) && key >= t;
            }
            n += sum(mine);
        }
        return n;
    }
};

} // namespace index_sm90

#endif
