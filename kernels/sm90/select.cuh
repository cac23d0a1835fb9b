/* The k best of a row of scores by one block: 16-bit numbers in the order of the scores, larger
 * first, then the smaller position.
 *
 * One pass over the scores. A buffer in shared memory holds, in order of position, what may still
 * be among the best: first everything, and once it has been cut to k, only scores above the k-th
 * best of those seen (one that equals it comes later than k as good, so it loses). A full buffer is
 * cut to k again: a bisection over the 16-bit numbers finds the k-th, ties go to the first. With
 * scores in random order the threshold rises so fast that three cuts serve 262,144 scores; in the
 * worst order every step is followed by a cut and the result is the same. */
#ifndef DSF_SM90_SELECT_CUH
#define DSF_SM90_SELECT_CUH

#include "sm90/index.cuh"

namespace index_sm90
{

constexpr int select_threads = 512;
constexpr int select_warps = select_threads / 32;
constexpr int select_each = 8;                            /* scores of a thread in a step */
constexpr int select_step = select_threads * select_each; /* 4,096 */
constexpr int select_most = 2 * DSF_INDEX_MOST_KEPT;      /* of the buffer before a step */
constexpr int select_room = select_most + select_step;    /* 12,288 places of 6 bytes */
constexpr uint32_t select_minus_inf = 0x007F;             /* what -inf becomes; 0: no candidate */

struct select_memory {
    uint4 key[select_room / 8 + 1]; /* 16 bits each */
    uint4 pos[select_room / 4 + 2];
    int count[2][select_warps];
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

__device__ inline uint32_t word_of(const uint4 &v, int i)
{
    return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

__device__ inline uint4 load_v4(const void *p) { return *static_cast<const uint4 *>(p); }

/* Eight scores from x[at], those below `end`. */
__device__ inline uint4 fetch_scores(const uint16_t *x, int64_t at, int64_t end, bool aligned)
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

/* Entries: all visible ones, or those of the pool's blocks. */
struct entry_source {
    static constexpr bool ordered = false;
    const uint16_t *x;
    const int32_t *pool; /* [b]; nullptr: all */
    int64_t b, stride, visible, count;
    int block;
    bool packed, aligned;

    __device__ entry_source(const select_job &j, int64_t row)
        : x(j.scores + row * j.stride), pool(j.pool ? j.pool + row * j.b : nullptr), b(j.b),
          stride(j.stride), visible(visible_entries(j.pos[row], j.ratio, j.entries)),
          block(j.block), packed(j.packed), aligned(j.stride % 8 == 0)
    {
        count = pool ? b * block : visible;
    }
    __device__ int64_t entry(int64_t p) const
    {
        return candidate_entry(pool, b, block, visible, p);
    }
    __device__ piece fetch(int64_t p) const
    {
        if (p >= count) return {make_uint4(0, 0, 0, 0), 0};
        int64_t first = pool ? entry(p) : p;
        if (!pool || block % 8 == 0) { /* consecutive entries */
            if (first < 0) return {make_uint4(0, 0, 0, 0), 0};
            int64_t left = visible - first, at = packed ? p : first;
            uint32_t valid = left >= 8 ? 0xFF : (1u << left) - 1;
            return {fetch_scores(x, at, packed ? stride : visible, aligned), valid};
        }
        return gather(p);
    }
    __device__ piece gather(int64_t p) const
    {
        uint32_t w[4] = {0, 0, 0, 0}, valid = 0;
#pragma unroll
        for (int i = 0; i < 8; i++) {
            int64_t e = entry(p + i);
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
    int64_t count; /* -1: no entry is visible */
    int block;
    bool aligned;

    __device__ block_source(const select_job &j, int64_t row)
        : x(j.scores + row * j.stride), block(j.block), aligned(j.stride % 8 == 0)
    {
        int64_t visible = visible_entries(j.pos[row], j.ratio, j.entries);
        count = (visible + block - 1) / block - 1;
    }
    __device__ int64_t entry(int64_t p) const { return p; }
    static __device__ __nv_bfloat162 pair(uint32_t w)
    {
        return *reinterpret_cast<__nv_bfloat162 *>(&w);
    }
    /* The largest; NaN only if there is nothing else. */
    __device__ uint32_t largest(int64_t m) const
    {
        __nv_bfloat162 best = pair(0xFFFFFFFFu);
        if (block == 8 && aligned) {
            uint4 v = load_v4(x + 8 * m);
            best = __hmax2(__hmax2(pair(v.x), pair(v.y)), __hmax2(pair(v.z), pair(v.w)));
        } else {
            for (int64_t e = m * block; e < (m + 1) * block; e++)
                best = __hmax2(best, pair(x[e] * 0x10001u));
        }
        return __bfloat16_as_ushort(__hmax(__low2bfloat16(best), __high2bfloat16(best)));
    }
    __device__ piece fetch(int64_t p) const
    {
        uint32_t w[4] = {0, 0, 0, 0}, valid = 0;
#pragma unroll
        for (int i = 0; i < 8; i++) {
            if (p + i >= count) continue;
            valid |= 1u << i;
            w[i / 2] |= largest(p + i) << 16 * (i % 2);
        }
        return {make_uint4(w[0], w[1], w[2], w[3]), valid};
    }
};

/* What the parts of a row kept: numbers (0: an empty place), positions. */
struct list_source {
    static constexpr bool ordered = true;
    const uint16_t *key;
    const uint32_t *pos;
    int64_t count; /* a multiple of 8 */

    __device__ piece fetch(int64_t p) const
    {
        if (p >= count) return {make_uint4(0, 0, 0, 0), 0};
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
        int sum = x;
        if (__any_sync(0xFFFFFFFFu, x != 0)) {
#pragma unroll
            for (int d = 1; d < 32; d *= 2) {
                int y = __shfl_up_sync(0xFFFFFFFFu, sum, d);
                if (lane >= d) sum += y;
            }
        }
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
    /* How many of the first m numbers of the buffer are at least t (those past m are 0). */
    __device__ int count(int m, uint32_t t)
    {
        int n = 0;
        for (int v = threadIdx.x; 8 * v < m; v += select_threads) {
            uint4 k = s.key[v];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                uint32_t w = word_of(k, i);
                n += ((w & 0xFFFF) >= t) + ((w >> 16) >= t);
            }
        }
        return sum(n);
    }
    __device__ void append(int m, const uint32_t (&key)[8], uint32_t taken, int64_t p)
    {
        for (; taken; taken &= taken - 1) {
            int i = __ffs(int(taken)) - 1;
            uint32_t k = key[0];
#pragma unroll
            for (int c = 1; c < 8; c++) k = i == c ? key[c] : k;
            keys()[m] = uint16_t(k);
            positions()[m++] = uint32_t(p) + i;
        }
    }
    /* Keeps, in order, the numbers above `above` and the first `ties` that equal it. */
    __device__ int squeeze(int m, uint32_t above, int ties)
    {
        int larger = 0, equal = 0; /* in the tiles before */
        for (int base = 0; base < m; base += select_step) {
            int at = base + threadIdx.x * 8;
            uint32_t key[8] = {}, pos[8] = {}, up = 0, tie = 0;
            if (at < m) {
                uint4 k = s.key[at / 8], p0 = s.pos[at / 4], p1 = s.pos[at / 4 + 1];
#pragma unroll
                for (int i = 0; i < 8; i++) {
                    key[i] = word_of(k, i / 2) >> 16 * (i % 2) & 0xFFFF;
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
    /* Cuts the buffer of m > k to its k best. threshold: in: none of them is below; out: the k-th.
     */
    __device__ int cut(int m, int k, uint32_t &threshold)
    {
        if (threadIdx.x < 8) keys()[m + threadIdx.x] = 0;
        __syncthreads();
        uint32_t low = threshold, high = 0x10000;
        int above = 0; /* how many are at least `high` */
        while (high - low > 1) {
            uint32_t mid = (low + high) / 2;
            int n = count(m, mid);
            if (n >= k) low = mid;
            if (n < k) high = mid, above = n;
            if (n == k) break;
        }
        threshold = low;
        if (high - low > 1) return squeeze(m, low - 1, 0); /* exactly k at least `low` */
        return squeeze(m, low, k - above);
    }
    /* The best k (at most DSF_INDEX_MOST_KEPT) of candidates from..to-1 above the number `least`
     * are left in the buffer, in order. Returns how many. */
    template <typename SOURCE>
    __device__ int best(const SOURCE &source, int64_t from, int64_t to, int k, uint32_t least)
    {
        int m = 0, full = 4 * k <= select_step ? select_step : select_most;
        uint32_t threshold = least;
        int64_t p = from + threadIdx.x * 8;
        piece next = source.fetch(p);
        for (; from < to; from += select_step, p += select_step) {
            piece now = next;
            if (from + select_step < to) next = source.fetch(p + select_step);
            uint32_t key[8], taken = 0;
#pragma unroll
            for (int i = 0; i < 8; i++) {
                uint32_t x = word_of(now.x, i / 2) >> 16 * (i % 2) & 0xFFFF;
                key[i] = SOURCE::ordered ? x : select_order(x);
                taken |= uint32_t(key[i] > threshold && p + i < to) << i;
            }
            taken &= now.valid;
            int before, all = scan(__popc(taken), before);
            append(m + before, key, taken, p);
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
    __device__ int64_t best_wide(const SOURCE &source, int64_t to, int64_t k, uint32_t least,
                                 int32_t *out)
    {
        uint32_t low = least + 1, high = 0x10000;
        int64_t above = 0, kept = 0, equal = 0;
        bool all = passing(source, to, low) <= k;
        while (!all && high - low > 1) {
            uint32_t mid = (low + high) / 2;
            int64_t n = passing(source, to, mid);
            if (n >= k) low = mid;
            if (n < k) high = mid, above = n;
        }
        int64_t ties = all ? to : k - above;
        for (int64_t from = 0; from < to; from += select_step) {
            int64_t p = from + threadIdx.x * 8;
            piece now = source.fetch(p);
            uint32_t up = 0, tie = 0;
#pragma unroll
            for (int i = 0; i < 8; i++) {
                uint32_t key = select_order(word_of(now.x, i / 2) >> 16 * (i % 2) & 0xFFFF);
                up |= uint32_t(key > low) << i;
                tie |= uint32_t(key == low) << i;
            }
            up &= now.valid;
            tie &= now.valid;
            int before, sums = scan(__popc(up) | __popc(tie) << 16, before);
            int64_t g = kept + (before & 0xFFFF), t = equal + (before >> 16);
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
    template <typename SOURCE>
    __device__ int64_t passing(const SOURCE &source, int64_t to, uint32_t t)
    {
        int64_t n = 0;
        for (int64_t from = 0; from < to; from += select_step) {
            piece now = source.fetch(from + threadIdx.x * 8);
            int mine = 0;
#pragma unroll
            for (int i = 0; i < 8; i++) {
                uint32_t key = select_order(word_of(now.x, i / 2) >> 16 * (i % 2) & 0xFFFF);
                mine += (now.valid >> i & 1) && key >= t;
            }
            n += sum(mine);
        }
        return n;
    }
};

} // namespace index_sm90

#endif
