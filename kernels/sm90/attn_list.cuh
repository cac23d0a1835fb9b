/* The key list of a row on the device (ops/attn.h): the mirror of dsf_attn_list, for all kernels of
 * the op. The ids of `topk` are read by the caller, who knows when: list slot j of the tail is
 * topk[j - n_window], and the list ends at the first negative one. */
#ifndef DSF_SM90_ATTN_LIST_CUH
#define DSF_SM90_ATTN_LIST_CUH

#include <math.h>

#include "sm90/sm90.cuh"

extern "C" {
#include "ops/attn.h"
}

namespace attn
{

/* The operands and sizes, by value to a kernel. */
struct problem {
    uint16_t *out;
    const uint16_t *q;
    const uint8_t *kv_new, *ring, *main;
    const int32_t *topk;
    const float *sink;
    const int32_t *row, *pos, *start, *lo, *slot;
    int n, h, d;
    int window, block, k; /* k: 0 without topk */
    int ring_len, entries;
    float scale; /* d^-1/2 */
};

static inline problem problem_of(const dsf_attn_args *a)
{
    problem p = {};
    p.out = data_of<uint16_t>(a->out);
    p.q = data_of<const uint16_t>(a->q);
    p.kv_new = data_of<const uint8_t>(a->kv_new);
    p.ring = data_of<const uint8_t>(a->ring);
    p.sink = data_of<const float>(a->sink);
    p.row = data_of<const int32_t>(a->row);
    p.pos = data_of<const int32_t>(a->pos);
    p.start = data_of<const int32_t>(a->start);
    p.lo = data_of<const int32_t>(a->lo);
    p.slot = data_of<const int32_t>(a->slot);
    p.n = static_cast<int>(a->q.dim[0]);
    p.h = static_cast<int>(a->q.dim[1]);
    p.d = static_cast<int>(a->q.dim[2]);
    p.window = a->window;
    p.block = a->block;
    p.ring_len = static_cast<int>(a->ring.dim[1]);
    p.scale = static_cast<float>(1.0 / sqrt(static_cast<double>(p.d)));
    if (a->topk.rank && !a->block) {
        p.main = data_of<const uint8_t>(a->main);
        p.topk = data_of<const int32_t>(a->topk);
        p.k = static_cast<int>(a->topk.dim[1]);
        p.entries = static_cast<int>(a->main.dim[1]);
    }
    return p;
}

struct list {
    int slot, t, row, start;
    int n_window; /* keys of the window or the ring */
    int n_tail;   /* the block's rows, or the most ids there can be */
    const int32_t *id;
};

__device__ inline list list_of(const problem &p, int i)
{
    list l;
    l.slot = p.slot[i];
    l.t = p.pos[i];
    l.row = p.row[i];
    l.start = p.start[i];
    l.id = p.topk + int64_t(i) * p.k;
    if (p.block) {
        l.n_window = min(l.start, p.window);
        l.n_tail = p.block;
    } else {
        l.n_window = min(l.t - p.lo[i] + 1, p.window);
        l.n_tail = p.k;
    }
    return l;
}

/* The id of slot j, -1 past the end; 0 where the slot has none. */
__device__ inline int id_at(const problem &p, const list &l, int j)
{
    if (j < l.n_window) return 0;
    if (j >= l.n_window + l.n_tail) return -1;
    return p.block ? 0 : __ldg(l.id + (j - l.n_window));
}

enum source : int { MAIN, KV_NEW, RING };

/* Record `index` of a source: main, kv_new, or ring. */
struct place {
    source from;
    int index;
};

/* Slot j of the window or ring, or of the block's rows. */
__device__ inline place window_at(const problem &p, const list &l, int j)
{
    if (j >= l.n_window) return {KV_NEW, l.row - (l.t - l.start) + j - l.n_window};
    /* block: the largest position before start that is j modulo the window. */
    int pos = p.block ? l.start - 1 - (l.start - 1 - j) % p.window : l.t - l.n_window + 1 + j;
    if (!p.block && pos >= l.start) return {KV_NEW, l.row - (l.t - pos)};
    return {RING, l.slot * p.ring_len + pos % p.ring_len};
}

/* Slot j, whose id is `id`. */
__device__ inline place place_at(const problem &p, const list &l, int j, int id)
{
    if (j < l.n_window || p.block) return window_at(p, l, j);
    return {MAIN, l.slot * p.entries + id};
}

struct key {
    const uint8_t *record; /* of a slot past the end of the list: any that can be read */
    bool is_main;          /* Q4N, else Q8 */
    bool is_there;
};

__device__ inline key key_of(const problem &p, place at)
{
    int bytes = at.from == MAIN ? p.d / 2 + p.d / 16 : p.d + p.d / 32;
    const uint8_t *base = at.from == MAIN ? p.main : at.from == RING ? p.ring : p.kv_new;
    return {base + int64_t(at.index) * bytes, at.from == MAIN, true};
}

/* Slot j; one past the end looks like its neighbours before. */
__device__ inline key key_at(const problem &p, const list &l, int j, int id)
{
    if (id < 0) return {p.kv_new, p.k > 0, false};
    return key_of(p, place_at(p, l, j, id));
}

} // namespace attn

#endif
