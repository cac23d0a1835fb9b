/* One function an instruction, named after it: the only place with inline PTX (PTX ISA 8.x, sm_90a).
 * Shared-memory addresses are 32-bit, as the instructions take them. */
#ifndef DSF_SM90_PTX_CUH
#define DSF_SM90_PTX_CUH

#include <cuda.h>
#include <stdint.h>

namespace ptx {

__device__ inline uint32_t smem(const void *p)
{
    return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

/* ---- mbarrier ---- */

__device__ inline void mbarrier_init(uint32_t bar, uint32_t count)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(count) : "memory");
}

/* Makes the initialised barriers visible to the copy engine and to the cluster. */
__device__ inline void fence_mbarrier_init()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ inline void mbarrier_arrive(uint32_t bar)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}

/* Arrives at the same barrier of another block of the cluster. */
__device__ inline void mbarrier_arrive_cluster(uint32_t bar, uint32_t rank)
{
    asm volatile("{\n.reg .b32 a;\n"
                 "mapa.shared::cluster.u32 a, %0, %1;\n"
                 "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [a];\n}" ::"r"(bar),
                 "r"(rank)
                 : "memory");
}

/* The same without making writes of this thread visible there: gives back what was only read. (The
 * release above costs a fence of the whole device.) */
__device__ inline void mbarrier_arrive_remote(uint32_t bar, uint32_t rank)
{
    asm volatile("{\n.reg .b32 a;\n"
                 "mapa.shared::cluster.u32 a, %0, %1;\n"
                 "mbarrier.arrive.shared::cluster.b64 _, [a];\n}" ::"r"(bar),
                 "r"(rank)
                 : "memory");
}

__device__ inline void mbarrier_arrive_expect_tx(uint32_t bar, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes)
                 : "memory");
}

__device__ inline bool mbarrier_try_wait(uint32_t bar, uint32_t parity)
{
    uint32_t done;
    asm volatile("{\n.reg .pred p;\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                 "selp.u32 %0, 1, 0, p;\n}"
                 : "=r"(done)
                 : "r"(bar), "r"(parity)
                 : "memory");
    return done != 0;
}

__device__ inline void mbarrier_wait(uint32_t bar, uint32_t parity)
{
    while (!mbarrier_try_wait(bar, parity)) {}
}

/* ---- copies ---- */

__device__ inline void prefetch_tensormap(const CUtensorMap *map)
{
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

/* c0: fastest dimension, in elements. */
__device__ inline void cp_async_bulk_tensor_2d(uint32_t dst, const CUtensorMap *map, uint32_t bar,
                                               int c0, int c1)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4}], [%2];" ::"r"(dst),
                 "l"(map), "r"(bar), "r"(c0), "r"(c1)
                 : "memory");
}

/* The same into the blocks of the cluster that `mask` names, at the same offset, each with its own
 * barrier. */
__device__ inline void cp_async_bulk_tensor_2d_multicast(uint32_t dst, const CUtensorMap *map,
                                                         uint32_t bar, int c0, int c1,
                                                         uint16_t mask)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 ".multicast::cluster [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(dst),
                 "l"(map), "r"(bar), "r"(c0), "r"(c1), "h"(mask)
                 : "memory");
}

__device__ inline void cp_async_bulk_tensor_3d(uint32_t dst, const CUtensorMap *map, uint32_t bar,
                                               int c0, int c1, int c2)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4, %5}], [%2];" ::"r"(dst),
                 "l"(map), "r"(bar), "r"(c0), "r"(c1), "r"(c2)
                 : "memory");
}

/* bytes, src and dst: multiples of 16. */
__device__ inline void cp_async_bulk(uint32_t dst, const void *src, uint32_t bytes, uint32_t bar)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], "
                 "%2, [%3];" ::"r"(dst),
                 "l"(src), "r"(bytes), "r"(bar)
                 : "memory");
}

/* 16 bytes past the L1; `valid` bytes are read, the rest is zero. */
__device__ inline void cp_async_16(uint32_t dst, const void *src, uint32_t valid)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(dst), "l"(src), "r"(valid)
                 : "memory");
}

__device__ inline void cp_async_8(uint32_t dst, const void *src, uint32_t valid)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(dst), "l"(src), "r"(valid)
                 : "memory");
}

__device__ inline void cp_async_4(uint32_t dst, const void *src, uint32_t valid)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(dst), "l"(src), "r"(valid)
                 : "memory");
}

__device__ inline void cp_async_commit_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }

template <int N> __device__ inline void cp_async_wait_group()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

/* The barrier gets one arrival (not counted as pending before) when this thread's copies are done. */
__device__ inline void cp_async_mbarrier_arrive_noinc(uint32_t bar)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(bar) : "memory");
}

/* ---- ordering ---- */

/* Ordinary stores to shared memory, before the tensor cores or the copy engine read them. */
__device__ inline void fence_proxy_async()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* The same for stores to any block of the cluster. */
__device__ inline void fence_proxy_async_cluster()
{
    asm volatile("fence.proxy.async.shared::cluster;" ::: "memory");
}

template <int REGISTERS> __device__ inline void setmaxnreg_inc()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

template <int REGISTERS> __device__ inline void setmaxnreg_dec()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

/* Barrier `id` (1..15; 0 is __syncthreads) among `threads` threads. */
__device__ inline void bar_sync(int id, int threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

__device__ inline void bar_arrive(int id, int threads)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/* bar_sync, and whether x holds for all of the threads. */
__device__ inline bool bar_red_and(int id, int threads, bool x)
{
    uint32_t all;
    asm volatile("{\n.reg .pred p, q;\n"
                 "setp.ne.u32 p, %3, 0;\n"
                 "barrier.cta.red.and.pred q, %1, %2, p;\n"
                 "selp.u32 %0, 1, 0, q;\n}"
                 : "=r"(all)
                 : "r"(id), "r"(threads), "r"(uint32_t(x))
                 : "memory");
    return all != 0;
}

/* Programmatic dependent launch: waits until the kernels before have written what they write. */
__device__ inline void griddepcontrol_wait()
{
    asm volatile("griddepcontrol.wait;" ::: "memory");
}

__device__ inline void griddepcontrol_launch_dependents()
{
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

/* ---- clusters ---- */

__device__ inline uint32_t cluster_ctarank()
{
    uint32_t rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

/* All threads of all blocks of the cluster; orders their shared memory. */
__device__ inline void cluster_sync()
{
    asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}

/* The same in two halves: what a thread does in between must not touch other blocks' memory. */
__device__ inline void cluster_arrive()
{
    asm volatile("barrier.cluster.arrive.release;" ::: "memory");
}

/* Orders no memory: does not wait for stores on their way. */
__device__ inline void cluster_arrive_relaxed()
{
    asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
}

__device__ inline void cluster_wait() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }

/* What the block `rank` of the cluster has at this address of its shared memory. */
__device__ inline float ld_shared_cluster_f32(uint32_t addr, uint32_t rank)
{
    float v;
    asm volatile("{\n.reg .b32 a;\nmapa.shared::cluster.u32 a, %1, %2;\n"
                 "ld.shared::cluster.f32 %0, [a];\n}"
                 : "=f"(v)
                 : "r"(addr), "r"(rank)
                 : "memory");
    return v;
}

/* The address of the same place in the block `rank` of the cluster. */
__device__ inline uint32_t mapa(uint32_t addr, uint32_t rank)
{
    uint32_t there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(addr), "r"(rank));
    return there;
}

/* To an address that mapa gave; the barrier (of the same block) counts 4 bytes when it is there. */
__device__ inline void st_async_f32(uint32_t addr, float v, uint32_t bar)
{
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::
                     "r"(addr),
                 "r"(__float_as_uint(v)), "r"(bar)
                 : "memory");
}

/* To an address that mapa gave. */
__device__ inline void st_shared_cluster_v4(uint32_t addr, uint4 v)
{
    asm volatile("st.shared::cluster.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(addr), "r"(v.x),
                 "r"(v.y), "r"(v.z), "r"(v.w)
                 : "memory");
}

__device__ inline double ld_shared_cluster_f64(uint32_t addr, uint32_t rank)
{
    double v;
    asm volatile("{\n.reg .b32 a;\nmapa.shared::cluster.u32 a, %1, %2;\n"
                 "ld.shared::cluster.f64 %0, [a];\n}"
                 : "=d"(v)
                 : "r"(addr), "r"(rank)
                 : "memory");
    return v;
}

/* Brings the line of p near without a register. */
__device__ inline void prefetch_global_l2(const void *p)
{
    asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
}

/* ---- warps ---- */

__device__ inline void ldmatrix_x4(uint32_t (&r)[4], uint32_t addr)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(addr)
                 : "memory");
}

/* The 8 x 8 tile of 16-bit values that the warp holds in v (two a lane, by rows), transposed. */
__device__ inline uint32_t movmatrix_trans(uint32_t v)
{
    uint32_t t;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(t) : "r"(v));
    return t;
}

__device__ inline void stmatrix_x4(uint32_t addr, const uint32_t (&r)[4])
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(addr),
                 "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
                 : "memory");
}

__device__ inline void st_shared_v4(uint32_t addr, uint4 v)
{
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(addr), "r"(v.x), "r"(v.y),
                 "r"(v.z), "r"(v.w)
                 : "memory");
}

__device__ inline uint4 ld_shared_v4(uint32_t addr)
{
    uint4 v;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(addr)
                 : "memory");
    return v;
}

__device__ inline uint32_t ld_shared_u32(uint32_t addr)
{
    uint32_t v;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(addr) : "memory");
    return v;
}

/* Loads when `yes`, and keeps v otherwise: a branch would make the next load wait for this one. */
__device__ inline void ld_global_nc_v4_if(uint4 &v, const void *p, bool yes)
{
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %5, 0;\n"
                 "@p ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];\n}"
                 : "+r"(v.x), "+r"(v.y), "+r"(v.z), "+r"(v.w)
                 : "l"(p), "r"(int(yes)));
}

/* 1 / x to 1 ulp; x neither zero nor subnormal. */
__device__ inline float rcp_approx(float x)
{
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* 2^x within 2 ulp; subnormal results are 0. */
__device__ inline float ex2_approx(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* d += a b for one 16 x 8 x 16 tile of bf16. */
__device__ inline void mma_m16n8k16_bf16(float (&d)[4], const uint32_t (&a)[4],
                                         const uint32_t (&b)[2])
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* d += a b for one 16 x 8 x 32 tile of e4m3. */
__device__ inline void mma_m16n8k32_e4m3(float (&d)[4], const uint32_t (&a)[4],
                                         const uint32_t (&b)[2])
{
    asm volatile("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* Byte i is byte s_i & 7 of b:a, where s_i is nibble i of the selector; with s_i & 8 the byte's sign
 * eight times. (__byte_perm leaves that bit out.) */
__device__ inline uint32_t prmt(uint32_t a, uint32_t b, uint32_t selector)
{
    uint32_t d;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(selector));
    return d;
}

/* Two f32 to bf16, negative ones to 0; NaN stays NaN. */
__device__ inline uint32_t cvt_rn_relu_bf16x2(float high, float low)
{
    uint32_t d;
    asm("cvt.rn.relu.bf16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(high), "f"(low));
    return d;
}

/* Global memory that other warps of the block read, too; stays where it stands in the program. */
__device__ inline uint4 ld_global_nc_cached_v4(const void *p)
{
    uint4 v;
    asm volatile("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p));
    return v;
}

/* One 16-byte store: the compiler takes vectors apart that were made word by word. */
__device__ inline void st_global_v4(void *p, uint4 v)
{
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(v.x), "r"(v.y), "r"(v.z),
                 "r"(v.w)
                 : "memory");
}

/* Global memory that is read once: past the L1. */
__device__ inline uint4 ld_global_nc_v4(const void *p)
{
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p));
    return v;
}

/* The same, 8 bytes. */
__device__ inline uint2 ld_global_nc_v2(const void *p)
{
    uint2 v;
    asm volatile("ld.global.nc.L1::no_allocate.v2.u32 {%0, %1}, [%2];"
                 : "=r"(v.x), "=r"(v.y)
                 : "l"(p));
    return v;
}

/* ---- wgmma ---- */

__device__ inline void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

__device__ inline void wgmma_commit_group()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

template <int N> __device__ inline void wgmma_wait_group()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

/* Keeps the compiler from moving uses of accumulators across a wait. */
template <int N> __device__ inline void wgmma_fence_operand(float (&d)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+f"(d[i])::"memory");
}

template <int N> __device__ inline void wgmma_fence_operand(int (&d)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+r"(d[i])::"memory");
}

/* Hides what the compiler knows of v. (ptxas serialises a wgmma of whose results some are never read:
 * C7511.) */
__device__ inline void hide(int &v) { asm volatile("" : "+r"(v)); }

/* Matrix descriptor of a tile in 128-byte swizzled shared memory (PTX ISA, "Matrix descriptor"):
 * rows of 128 bytes, 8 rows an atom of 1024 bytes, the 16-byte chunk index is xored with row % 8.
 * lbo and sbo in bytes: K-major tiles of 128 bytes along K need sbo = 1024 only (lbo is ignored).
 * A step of 32 bytes along K is +2 on the descriptor. */
__device__ inline uint64_t wgmma_desc_128b(uint32_t addr, uint32_t lbo = 16, uint32_t sbo = 1024)
{
    return static_cast<uint64_t>((addr & 0x3FFFF) >> 4) |
           static_cast<uint64_t>((lbo & 0x3FFFF) >> 4) << 16 |
           static_cast<uint64_t>((sbo & 0x3FFFF) >> 4) << 32 | static_cast<uint64_t>(1) << 62;
}

#define DSF_F8(d, i)                                                                               \
    "+f"((d)[(i)]), "+f"((d)[(i) + 1]), "+f"((d)[(i) + 2]), "+f"((d)[(i) + 3]),                    \
        "+f"((d)[(i) + 4]), "+f"((d)[(i) + 5]), "+f"((d)[(i) + 6]), "+f"((d)[(i) + 7])
#define DSF_D4(d)   "+f"((d)[0]), "+f"((d)[1]), "+f"((d)[2]), "+f"((d)[3])
#define DSF_D8(d)   DSF_F8(d, 0)
#define DSF_D16(d)  DSF_D8(d), DSF_F8(d, 8)
#define DSF_D32(d)  DSF_D16(d), DSF_F8(d, 16), DSF_F8(d, 24)
#define DSF_D40(d)  DSF_D32(d), DSF_F8(d, 32)
#define DSF_D36(d)                                                                                 \
    DSF_D32(d), "+f"((d)[32]), "+f"((d)[33]), "+f"((d)[34]), "+f"((d)[35])
#define DSF_D48(d)  DSF_D32(d), DSF_F8(d, 32), DSF_F8(d, 40)
#define DSF_D64(d)  DSF_D48(d), DSF_F8(d, 48), DSF_F8(d, 56)
#define DSF_D96(d)  DSF_D64(d), DSF_F8(d, 64), DSF_F8(d, 72), DSF_F8(d, 80), DSF_F8(d, 88)
#define DSF_D128(d) DSF_D96(d), DSF_F8(d, 96), DSF_F8(d, 104), DSF_F8(d, 112), DSF_F8(d, 120)

#define DSF_R4  "%0, %1, %2, %3"
#define DSF_R8  DSF_R4 ", %4, %5, %6, %7"
#define DSF_R16 DSF_R8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define DSF_R32                                                                                    \
    DSF_R16 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define DSF_R40                                                                                    \
    DSF_R32 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define DSF_R36 DSF_R32 ", %32, %33, %34, %35"
#define DSF_R48                                                                                    \
    DSF_R32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define DSF_R64                                                                                    \
    DSF_R48 ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define DSF_R96                                                                                    \
    DSF_R64 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "   \
            "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define DSF_R128                                                                                   \
    DSF_R96 ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, "   \
            "%110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, " \
            "%124, %125, %126, %127"

/* d[64 x N] = a b + (accumulate ? d : 0). ss: a and b by descriptor; rs: a in registers (the m64
 * fragment: 4 words a thread). Both K-major; the _tb forms take b with N contiguous (bf16 only). */
template <int N> struct wgmma;

#define DSF_WGMMA(N, NR, A0, A1, A2, A3, A4, A5, A6, REGS, OPS)                                        \
    template <> struct wgmma<N> {                                                                  \
        static __device__ inline void e4m3_ss(float (&d)[NR], uint64_t a, uint64_t b, int acc)     \
        {                                                                                          \
            asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #A2 ", 0;\n"                         \
                         "wgmma.mma_async.sync.aligned.m64n" #N "k32.f32.e4m3.e4m3 {" REGS "}, "   \
                         "%" #A0 ", %" #A1 ", p, 1, 1;\n}"                                         \
                         : OPS                                                                     \
                         : "l"(a), "l"(b), "r"(acc));                                              \
        }                                                                                          \
        static __device__ inline void e4m3_rs(float (&d)[NR], const uint32_t (&a)[4], uint64_t b,  \
                                              int acc)                                             \
        {                                                                                          \
            asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #A5 ", 0;\n"                         \
                         "wgmma.mma_async.sync.aligned.m64n" #N "k32.f32.e4m3.e4m3 {" REGS "}, "   \
                         "{%" #A0 ", %" #A1 ", %" #A2 ", %" #A3 "}, %" #A4 ", p, 1, 1;\n}"         \
                         : OPS                                                                     \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(acc));          \
        }                                                                                          \
        template <int TB>                                                                          \
        static __device__ inline void bf16_ss(float (&d)[NR], uint64_t a, uint64_t b, int acc)     \
        {                                                                                          \
            asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #A2 ", 0;\n"                         \
                         "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 {" REGS "}, "   \
                         "%" #A0 ", %" #A1 ", p, 1, 1, 0, %" #A3 ";\n}"                            \
                         : OPS                                                                     \
                         : "l"(a), "l"(b), "r"(acc), "n"(TB));                                     \
        }                                                                                          \
        template <int TB>                                                                          \
        static __device__ inline void bf16_rs(float (&d)[NR], const uint32_t (&a)[4], uint64_t b,  \
                                              int acc)                                             \
        {                                                                                          \
            asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #A5 ", 0;\n"                         \
                         "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 {" REGS "}, "   \
                         "{%" #A0 ", %" #A1 ", %" #A2 ", %" #A3 "}, %" #A4 ", p, 1, 1, %" #A6 ";\n}" \
                         : OPS                                                                     \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(acc), "n"(TB));          \
        }                                                                                          \
    };

DSF_WGMMA(8, 4, 4, 5, 6, 7, 8, 9, 10, DSF_R4, DSF_D4(d))
DSF_WGMMA(16, 8, 8, 9, 10, 11, 12, 13, 14, DSF_R8, DSF_D8(d))
DSF_WGMMA(32, 16, 16, 17, 18, 19, 20, 21, 22, DSF_R16, DSF_D16(d))
DSF_WGMMA(64, 32, 32, 33, 34, 35, 36, 37, 38, DSF_R32, DSF_D32(d))
DSF_WGMMA(72, 36, 36, 37, 38, 39, 40, 41, 42, DSF_R36, DSF_D36(d))
DSF_WGMMA(80, 40, 40, 41, 42, 43, 44, 45, 46, DSF_R40, DSF_D40(d))
DSF_WGMMA(96, 48, 48, 49, 50, 51, 52, 53, 54, DSF_R48, DSF_D48(d))
DSF_WGMMA(128, 64, 64, 65, 66, 67, 68, 69, 70, DSF_R64, DSF_D64(d))
DSF_WGMMA(192, 96, 96, 97, 98, 99, 100, 101, 102, DSF_R96, DSF_D96(d))
DSF_WGMMA(256, 128, 128, 129, 130, 131, 132, 133, 134, DSF_R128, DSF_D128(d))
#undef DSF_WGMMA

/* Integers: d[64 x N] = a b + (accumulate ? d : 0), exact. a in registers, b by descriptor, both
 * K-major, k32. */
#define DSF_I8(d, i)                                                                               \
    "+r"((d)[(i)]), "+r"((d)[(i) + 1]), "+r"((d)[(i) + 2]), "+r"((d)[(i) + 3]),                    \
        "+r"((d)[(i) + 4]), "+r"((d)[(i) + 5]), "+r"((d)[(i) + 6]), "+r"((d)[(i) + 7])
#define DSF_I16(d) DSF_I8(d, 0), DSF_I8(d, 8)
#define DSF_I64(d)                                                                                 \
    DSF_I16(d), DSF_I8(d, 16), DSF_I8(d, 24), DSF_I8(d, 32), DSF_I8(d, 40), DSF_I8(d, 48),         \
        DSF_I8(d, 56)

template <int N> struct wgmma_s8;

#define DSF_WGMMA_S8(N, NR, A0, A1, A2, A3, A4, A5, REGS, OPS)                                     \
    template <> struct wgmma_s8<N> {                                                               \
        static __device__ inline void rs(int (&d)[NR], const uint32_t (&a)[4], uint64_t b,         \
                                         int acc)                                                  \
        {                                                                                          \
            asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #A5 ", 0;\n"                         \
                         "wgmma.mma_async.sync.aligned.m64n" #N "k32.s32.s8.s8 {" REGS "}, "       \
                         "{%" #A0 ", %" #A1 ", %" #A2 ", %" #A3 "}, %" #A4 ", p;\n}"               \
                         : OPS                                                                     \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(acc));          \
        }                                                                                          \
    };

DSF_WGMMA_S8(32, 16, 16, 17, 18, 19, 20, 21, DSF_R16, DSF_I16(d))
DSF_WGMMA_S8(128, 64, 64, 65, 66, 67, 68, 69, DSF_R64, DSF_I64(d))
#undef DSF_WGMMA_S8

} // namespace ptx

#endif
