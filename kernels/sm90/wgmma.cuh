/* The warpgroup matrix instructions (PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions"):
 * as in ptx.cuh one function an instruction. */
#ifndef DSF_SM90_WGMMA_CUH
#define DSF_SM90_WGMMA_CUH

#include <stdint.h>

namespace ptx
{

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

/* Hides what the compiler knows of v. (ptxas serialises a wgmma of whose results some are never
 * read: C7511.) */
__device__ inline void hide(int &v) { asm volatile("" : "+r"(v)); }

/* Matrix descriptor of a tile in 128-byte swizzled shared memory (PTX ISA, "Matrix descriptor"):
 * rows of 128 bytes, 8 rows an atom of 1024 bytes, the 16-byte chunk index is xored with row % 8.
 * lbo in bytes: K-major tiles of 128 bytes along K ignore it. A step of 32 bytes along K is +2 on
 * the descriptor. */
__device__ inline uint64_t wgmma_desc_128b(uint32_t addr, uint32_t lbo = 16)
{
    return static_cast<uint64_t>((addr & 0x3FFFF) >> 4) |
           static_cast<uint64_t>((lbo & 0x3FFFF) >> 4) << 16 |
           static_cast<uint64_t>(1024 >> 4) << 32 | static_cast<uint64_t>(1) << 62;
}

#define DSF_F8(d, i)                                                                               \
    "+f"((d)[(i)]), "+f"((d)[(i) + 1]), "+f"((d)[(i) + 2]), "+f"((d)[(i) + 3]),                    \
        "+f"((d)[(i) + 4]), "+f"((d)[(i) + 5]), "+f"((d)[(i) + 6]), "+f"((d)[(i) + 7])
#define DSF_D4(d)  "+f"((d)[0]), "+f"((d)[1]), "+f"((d)[2]), "+f"((d)[3])
#define DSF_D8(d)  DSF_F8(d, 0)
#define DSF_D16(d) DSF_D8(d), DSF_F8(d, 8)
#define DSF_D32(d) DSF_D16(d), DSF_F8(d, 16), DSF_F8(d, 24)
#define DSF_D40(d) DSF_D32(d), DSF_F8(d, 32)
#define DSF_D36(d) DSF_D32(d), "+f"((d)[32]), "+f"((d)[33]), "+f"((d)[34]), "+f"((d)[35])
#define DSF_D48(d) DSF_D32(d), DSF_F8(d, 32), DSF_F8(d, 40)
#define DSF_D64(d) DSF_D48(d), DSF_F8(d, 48), DSF_F8(d, 56)
#define DSF_D96(d) DSF_D64(d), DSF_F8(d, 64), DSF_F8(d, 72), DSF_F8(d, 80), DSF_F8(d, 88)

#define DSF_R4  "%0, %1, %2, %3"
#define DSF_R8  DSF_R4 ", %4, %5, %6, %7"
#define DSF_R16 DSF_R8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define DSF_R32                                                                                    \
    DSF_R16 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define DSF_R40 DSF_R32 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define DSF_R36 DSF_R32 ", %32, %33, %34, %35"
#define DSF_R48                                                                                    \
    DSF_R32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define DSF_R64                                                                                    \
    DSF_R48 ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define DSF_R96                                                                                    \
    DSF_R64 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "   \
            "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"

/* d[64 x N] = a b + (accumulate ? d : 0). ss: a and b by descriptor; rs: a in registers (the m64
 * fragment: 4 words a thread). Both K-major; with TB b has N contiguous. */
template <int N> struct wgmma;

#define DSF_WGMMA(N, NR, A0, A1, A2, A3, A4, A5, REGS, OPS)                                        \
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
        static __device__ inline void bf16_rs(float (&d)[NR], const uint32_t (&a)[4], uint64_t b,  \
                                              int acc)                                             \
        {                                                                                          \
            asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #A5 ", 0;\n"                         \
                         "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 {" REGS "}, "   \
                         "{%" #A0 ", %" #A1 ", %" #A2 ", %" #A3 "}, %" #A4 ", p, 1, 1, 0;\n}"      \
                         : OPS                                                                     \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(acc));          \
        }                                                                                          \
    };

DSF_WGMMA(8, 4, 4, 5, 6, 7, 8, 9, DSF_R4, DSF_D4(d))
DSF_WGMMA(16, 8, 8, 9, 10, 11, 12, 13, DSF_R8, DSF_D8(d))
DSF_WGMMA(32, 16, 16, 17, 18, 19, 20, 21, DSF_R16, DSF_D16(d))
DSF_WGMMA(64, 32, 32, 33, 34, 35, 36, 37, DSF_R32, DSF_D32(d))
DSF_WGMMA(72, 36, 36, 37, 38, 39, 40, 41, DSF_R36, DSF_D36(d))
DSF_WGMMA(80, 40, 40, 41, 42, 43, 44, 45, DSF_R40, DSF_D40(d))
DSF_WGMMA(96, 48, 48, 49, 50, 51, 52, 53, DSF_R48, DSF_D48(d))
DSF_WGMMA(128, 64, 64, 65, 66, 67, 68, 69, DSF_R64, DSF_D64(d))
DSF_WGMMA(192, 96, 96, 97, 98, 99, 100, 101, DSF_R96, DSF_D96(d))
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
