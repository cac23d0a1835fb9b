/* experts_up and experts_down on the fp8 tensor cores, for many rows: EXPERTS.md.
 *
 * Tile: 128 pairs of one expert (M) by 192 weight rows (N; up: 96 channels, w1 and w3 alternating,
 * so that a thread holds both sums of a channel). Stage: 128 channels of K. One warpgroup expands
 * codes to e4m3 in shared memory (B); two warpgroups multiply, 64 pairs each, or, where a tile has
 * at most 64 pairs, half of the columns each. Each multiplying warp copies the records of its 16
 * pairs itself (A), by cp.async, two stages ahead.
 *
 * Arithmetic of an element: for each block of 32 channels part = one wgmma from zero, then
 * acc = fma(part, sx sw, acc), blocks ascending. sx is one number for a row of A: two registers.
 * sw would be one for each column, so it goes into the codes: a weight row is expanded relative to
 * its first scale, 2^(sw - first + part of the code), and the epilogue multiplies by 2^first.
 * Powers of two commute with every rounding here (no sum falls below the normal range: first scale
 * at least 2^-63, all terms multiples of 2^-104). A row whose scales do not fit (a factor of
 * 2^-5..2^6 around the first) makes the tile repeat its K loop with the product sx sw for each
 * element: same bits, slower.
 */
#include "sm90/experts_expand.cuh"

namespace
{

/* ---- the multiplying warpgroups ---- */

/* A warp's place in a tile. SPLIT: both warpgroups have the same rows, each half of the columns. */
struct place {
    int warp;   /* 0..7 */
    int row;    /* of the tile: the warp's 16 begin here */
    int column; /* of the tile: the warpgroup's columns begin here */

    __device__ place(bool split) : warp(int(threadIdx.x) / 32)
    {
        row = (split ? 0 : warp / 4 * 64) + warp % 4 * 16;
        column = split ? warp / 4 * (tile_n / 2) : 0;
    }
};

/* The warp's records of a stage: rows of 128 bytes, the index of 16 bytes xored with row % 8. COPY:
 * what records are a multiple of, 8 or 16 bytes. */
template <int COPY>
__device__ void copy_records(const expert_params &p, shared_memory &s, const tile_facts &f,
                             const place &at, int stage)
{
    constexpr int per_row = stage_k / COPY, rows = 32 / per_row;
    int slot = stage % record_stages, lane = threadIdx.x % 32;
    int row = lane / per_row, byte = lane % per_row * COPY;
    uint32_t dst = smem(s.a[slot][at.warp]) + row * stage_k + byte % 16;
    const uint8_t *src = p.records + (stage * stage_k + byte);
#pragma unroll
    for (int i = 0; i < 16 / rows; i++) {
        const uint8_t *from = src + f.record[at.row + row + i * rows];
        uint32_t to = dst + i * rows * stage_k + ((byte / 16 ^ (row + i * rows) % 8) * 16);
        if constexpr (COPY == 16)
            ptx::cp_async_16(to, from);
        else
            ptx::cp_async_8(to, from);
    }
    if (lane < 16)
        ptx::cp_async_4(smem(&s.record_scale[slot][at.warp][lane]),
                        p.records + (f.record[at.row + lane] + p.k + stage * stage_blocks));
}

/* The lane's fragment of block `block` of the stage at base. */
__device__ __forceinline__ void load_a(uint32_t (&a)[4], uint32_t base, int block)
{
    int lane = threadIdx.x % 32, chunk = 2 * block + lane / 16;
    ptx::ldmatrix_x4(a, base + lane % 16 * stage_k + ((chunk ^ (lane % 8)) * 16));
}

/* acc[c] = fma(part, s, acc[c]): s0 for the thread's first row, s1 for the second. */
template <int N, int M>
__device__ __forceinline__ void promote(float (&acc)[N], const float (&part)[M], int c, float s0,
                                        float s1)
{
#pragma unroll
    for (int i = 0; i < M; i++)
        acc[c * M + i] = __fmaf_rn(part[i], i & 2 ? s1 : s0, acc[c * M + i]);
}

__device__ __forceinline__ void release(shared_memory &s, int slot)
{
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(smem(&s.empty[slot]));
}

template <int N>
__device__ __forceinline__ void issue(float (&part)[N / 2], const uint32_t (&a)[4], uint64_t b,
                                      int block, int c)
{
    ptx::wgmma_fence_operand(part);
    ptx::wgmma_fence();
    ptx::wgmma<N>::e4m3_rs(part, a, b + uint64_t((c * N * stage_k + block * 32) / 16), 0);
    ptx::wgmma_commit_group();
}

/* Two stages of records on their way. */
template <int COPY>
__device__ __forceinline__ void begin_records(const expert_params &p, shared_memory &s,
                                              const tile_facts &f, const place &at)
{
    __syncwarp(); /* what was there has been read */
    for (int stage = 0; stage < record_stages - 1; stage++) {
        copy_records<COPY>(p, s, f, at, stage);
        ptx::cp_async_commit_group();
    }
}

/* Waits for the records of a stage. */
__device__ __forceinline__ void wait_records()
{
    ptx::cp_async_wait_group<record_stages - 2>();
    __syncwarp();
}

/* Asks for the records two stages ahead: where those of the stage before were. */
template <int COPY>
__device__ __forceinline__ void next_records(const expert_params &p, shared_memory &s,
                                             const tile_facts &f, const place &at, int stage, int n)
{
    if (stage + record_stages - 1 < n) copy_records<COPY>(p, s, f, at, stage + record_stages - 1);
    ptx::cp_async_commit_group();
}

/* The K loop in chunks of N columns: while one is multiplied, the one before is promoted. Nothing
 * is in flight from one stage to the next: the compiler would serialise what crosses the loop's
 * end; the other warpgroup fills the gap. */
template <int COPY, int N, int CHUNKS>
__device__ __forceinline__ void multiply(const expert_params &p, shared_memory &s,
                                         const tile_facts &f, float (&acc)[CHUNKS * N / 2],
                                         const place &at, ring &r)
{
    constexpr int all = stage_blocks * CHUNKS;
    int n = p.k / stage_k, row = threadIdx.x % 32 / 4;
    float part[2][N / 2], scale[2][2];
    uint32_t a[2][4];
#pragma unroll
    for (int i = 0; i < CHUNKS * N / 2; i++) acc[i] = 0;
    begin_records<COPY>(p, s, f, at);
#pragma unroll 1
    for (int stage = 0; stage < n; stage++) {
        wait_records();
        uint32_t base = smem(s.a[stage % record_stages][at.warp]);
        const uint32_t *words = s.record_scale[stage % record_stages][at.warp];
        uint32_t word0 = words[row], word1 = words[row + 8];
        load_a(a[0], base, 0);
        ptx::mbarrier_wait(smem(&s.full[r.slot]), r.phase);
        uint64_t b = ptx::wgmma_desc_128b(smem(s.b[r.slot]) + at.column * stage_k);
        issue<N>(part[0], a[0], b, 0, 0);
        next_records<COPY>(p, s, f, at, stage, n);
#pragma unroll
        for (int i = 0; i < all; i++) {
            int block = (i + 1) / CHUNKS, c = (i + 1) % CHUNKS;
            if (i % CHUNKS == 0) {
                scale[i / CHUNKS % 2][0] = num::normal_e8m0(word0, i / CHUNKS);
                scale[i / CHUNKS % 2][1] = num::normal_e8m0(word1, i / CHUNKS);
            }
            if (i + 1 < all) {
                if (c == 0) load_a(a[block % 2], base, block);
                issue<N>(part[(i + 1) % 2], a[block % 2], b, block, c);
                ptx::wgmma_wait_group<1>();
            } else {
                ptx::wgmma_wait_group<0>();
                release(s, r.slot);
            }
            ptx::wgmma_fence_operand(part[i % 2]);
            promote(acc, part[i % 2], i % CHUNKS, scale[i / CHUNKS % 2][0],
                    scale[i / CHUNKS % 2][1]);
        }
        r.advance();
    }
}

/* The same with a scale for each element. */
template <int COPY, int N, int CHUNKS>
__device__ __forceinline__ void multiply_misfit(const expert_params &p, shared_memory &s,
                                                const tile_facts &f, float (&acc)[CHUNKS * N / 2],
                                                const place &at, ring &r)
{
    float part[N / 2];
    uint32_t a[4];
    int n = p.k / stage_k, row = threadIdx.x % 32 / 4, q = threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < CHUNKS * N / 2; i++) acc[i] = 0;
    begin_records<COPY>(p, s, f, at);
#pragma unroll 1
    for (int stage = 0; stage < n; stage++) {
        wait_records();
        next_records<COPY>(p, s, f, at, stage, n);
        const uint32_t *words = s.record_scale[stage % record_stages][at.warp];
        ptx::mbarrier_wait(smem(&s.full[r.slot]), r.phase);
        uint64_t b = ptx::wgmma_desc_128b(smem(s.b[r.slot]) + at.column * stage_k);
#pragma unroll 1
        for (int block = 0; block < stage_blocks; block++) {
            load_a(a, smem(s.a[stage % record_stages][at.warp]), block);
            float s0 = num::e8m0_to_f32(uint8_t(words[row] >> 8 * block));
            float s1 = num::e8m0_to_f32(uint8_t(words[row + 8] >> 8 * block));
#pragma unroll
            for (int c = 0; c < CHUNKS; c++) {
                issue<N>(part, a, b, block, c);
                ptx::wgmma_wait_group<0>();
                ptx::wgmma_fence_operand(part);
                const float *w = &s.weight_scale[r.slot][block][at.column + c * N + 2 * q];
#pragma unroll
                for (int i = 0; i < N / 2; i++) {
                    float scale = __fmul_rn(i & 2 ? s1 : s0, w[i / 4 * 8 + (i & 1)]);
                    acc[c * (N / 2) + i] = __fmaf_rn(part[i], scale, acc[c * (N / 2) + i]);
                }
            }
        }
        release(s, r.slot);
        r.advance();
    }
}

/* Through the warp's staging rows to 16-byte stores. first: the tile's first channel. */
template <bool UP, int N, int CHUNKS>
__device__ void store(const expert_params &p, uint8_t *staging, const tile_facts &f,
                      const float (&acc)[CHUNKS * N / 2], const place &at, int64_t first)
{
    constexpr int channels = UP ? N / 2 : N; /* of a chunk */
    constexpr int pieces = channels / 8;     /* of 16 bytes, a row */
    int lane = threadIdx.x % 32, q = lane % 4, r = lane / 4;
    float weight0 = UP ? f.weight[at.row + r] : 0, weight1 = UP ? f.weight[at.row + r + 8] : 0;
    first += at.column / (UP ? 2 : 1);
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) {
        const float *scale = &f.first[at.column + c * N + 2 * q];
#pragma unroll
        for (int j = 0; j < N / 8; j++) {
            const float *v = &acc[c * (N / 2) + 4 * j];
            float s0 = scale[8 * j], s1 = scale[8 * j + 1];
            uint8_t *to = staging + r * stage_row + (4 * j + q) * (UP ? 2 : 4);
            if constexpr (UP) {
                *reinterpret_cast<uint16_t *>(to) =
                    expert_swiglu(v[0] * s0, v[1] * s1, p.limit, weight0);
                *reinterpret_cast<uint16_t *>(to + 8 * stage_row) =
                    expert_swiglu(v[2] * s0, v[3] * s1, p.limit, weight1);
            } else {
                *reinterpret_cast<uint32_t *>(to) = num::pack_bf16(v[0] * s0, v[1] * s1);
                *reinterpret_cast<uint32_t *>(to + 8 * stage_row) =
                    num::pack_bf16(v[2] * s0, v[3] * s1);
            }
        }
        __syncwarp();
#pragma unroll
        for (int i = 0; i < 16 * pieces / 32; i++) {
            int row = (i * 32 + lane) / pieces, piece = (i * 32 + lane) % pieces;
            int64_t pair = f.pair[at.row + row];
            if (pair >= 0)
                *reinterpret_cast<uint4 *>(p.out + pair * p.width + first + c * channels +
                                           piece * 8) =
                    *reinterpret_cast<const uint4 *>(staging + row * stage_row + piece * 16);
        }
        __syncwarp();
    }
}

template <bool UP, int COPY, int N, int CHUNKS>
__device__ __forceinline__ void multiply_tile(const expert_params &p, shared_memory &s,
                                              const tile_facts &f, const work &w, ring &r)
{
    float acc[CHUNKS * N / 2];
    const place at(N * CHUNKS < tile_n);
    multiply<COPY, N, CHUNKS>(p, s, f, acc, at, r);
    if (f.misfit) multiply_misfit<COPY, N, CHUNKS>(p, s, f, acc, at, r);
    int own = int(threadIdx.x) / 32;
    ptx::hide(own); /* or the address would take a register through the K loop */
    store<UP, N, CHUNKS>(p, s.staging[own], f, acc, at, w.channel<UP>(p));
}

template <bool UP, int COPY> __device__ void multiply_all(const expert_params &p, shared_memory &s)
{
    ring r = {0, 0};
    for (work w = {0}; w.more(s); w.n++) {
        const tile_facts &f = s.facts[w.n % facts_kept];
        ptx::mbarrier_wait(smem(&s.full[r.slot]), r.phase); /* the facts are there, too */
        if (f.rows > tile_m / 2)
            multiply_tile<UP, COPY, tile_n / chunks, chunks>(p, s, f, w, r);
        else
            multiply_tile<UP, COPY, tile_n / 2, 1>(p, s, f, w, r);
    }
}

template <bool UP, int COPY>
__global__ void __launch_bounds__(threads, 1) experts_fp8(const __grid_constant__ expert_params p)
{
    extern __shared__ __align__(1024) uint8_t memory[];
    shared_memory &s = *reinterpret_cast<shared_memory *>(memory);
    if (threadIdx.x == 0) {
        s.items = *p.lists.n_tiles * p.column_tiles;
        for (int i = 0; i < stages; i++) {
            ptx::mbarrier_init(smem(&s.full[i]), group_threads);
            ptx::mbarrier_init(smem(&s.empty[i]), 2 * 4); /* warps */
        }
        ptx::fence_mbarrier_init();
    }
    __syncthreads();
    if (threadIdx.x >= 2 * group_threads) {
        ptx::setmaxnreg_dec<expand_registers>();
        expand_all<UP>(p, s);
    } else {
        ptx::setmaxnreg_inc<multiply_registers>();
        multiply_all<UP, COPY>(p, s);
    }
}

template <bool UP, int COPY> dsf_status launch(const dsf_launch *lc, const expert_params &p)
{
    int processors = 0;
    DSF_TRY(dsf_multiprocessors(&processors));
    int bytes = int(sizeof(shared_memory));
    DSF_CUDA_TRY(cudaFuncSetAttribute(experts_fp8<UP, COPY>,
                                      cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    experts_fp8<UP, COPY><<<unsigned(processors), threads, size_t(bytes), dsf_stream(lc)>>>(p);
    DSF_CUDA_TRY(cudaGetLastError());
    return DSF_OK;
}

template <bool UP>
dsf_status run(const dsf_launch *lc, expert_params &p, const dsf_experts_lists &lists)
{
    cudaStream_t stream = dsf_stream(lc);
    p.lists = lists_in(lc->scratch, lists);
    p.listed = lists.listed;
    p.column_tiles = (p.width + tile_channels<UP> - 1) / tile_channels<UP>;
    if (lists.listed) {
        dsf_status status = dsf_experts_group(stream, p.ids, p.lists);
        if (status != DSF_OK) return status;
    }
    if (lists.tile_rows < tile_m)
        return UP ? dsf_experts_decode_up(stream, p) : dsf_experts_decode_down(stream, p);
    return p.k % 512 ? launch<UP, 8>(lc, p) : launch<UP, 16>(lc, p);
}

} // namespace

extern "C" dsf_status dsf_experts_up_sm90fp8(const dsf_launch *lc, const void *args)
{
    const auto *a = static_cast<const dsf_experts_up_args *>(args);
    expert_params p = {};
    p.records = data_of<uint8_t>(a->x);
    p.out = data_of<uint16_t>(a->out);
    p.weights = data_of<float>(a->weights);
    p.ids = data_of<int32_t>(a->ids);
    p.w[0] = table_of(a->w1, a->s1);
    p.w[1] = table_of(a->w3, a->s3);
    p.k = int(a->x.dim[1]);
    p.width = int(a->out.dim[2]);
    p.slots = int(a->out.dim[1]);
    p.limit = a->limit;
    return run<true>(lc, p, dsf_experts_tune_lists(a->ids.dim[0], a->ids.dim[1], a->w1.dim[0]));
}

extern "C" dsf_status dsf_experts_down_sm90fp8(const dsf_launch *lc, const void *args)
{
    const auto *a = static_cast<const dsf_experts_down_args *>(args);
    expert_params p = {};
    p.records = data_of<uint8_t>(a->h);
    p.out = data_of<uint16_t>(a->out);
    p.ids = data_of<int32_t>(a->ids);
    p.w[0] = table_of(a->w2, a->s2);
    p.k = int(a->h.dim[2]);
    p.width = int(a->out.dim[2]);
    p.slots = 1;
    return run<false>(lc, p, dsf_experts_tune_lists(a->ids.dim[0], a->ids.dim[1], a->w2.dim[0]));
}
