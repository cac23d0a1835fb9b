#include "op.h"

#include "config.h"

#if HAVE_AVX512
#include <cpuid.h>

/* Intel SDM volume 2, CPUID: leaf 1 ECX, leaf 7.0 EBX and ECX, leaf 7.1 EAX. The bits are those of
 * avx512_args in meson.build: the compiler may use any of them in any function of that folder. */
enum {
    L1_FMA = 1 << 12,
    L1_OSXSAVE = 1 << 27,
    L1_F16C = 1 << 29,
    L7_F = 1 << 16,
    L7_DQ = 1 << 17,
    L7_BW = 1 << 30,
    L7_VBMI = 1 << 1,
    L7_VNNI = 1 << 11,
    L7_BF16 = 1 << 5
};
#define L7_VL (1u << 31)
/* XCR0: SSE, AVX, and the three parts of the AVX-512 state; all saved by the system or none of it
 * is usable. */
enum { XCR0_AVX512 = 0xE6 };

static unsigned read_xcr0(void)
{
    unsigned low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

static int has(unsigned reg, unsigned bits) { return (reg & bits) == bits; }

static int has_avx512(void)
{
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !has(c, L1_FMA | L1_OSXSAVE | L1_F16C)) return 0;
    if (!has(read_xcr0(), XCR0_AVX512)) return 0;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return 0;
    if (!has(b, (unsigned)L7_F | L7_DQ | L7_BW | L7_VL) || !has(c, L7_VBMI | L7_VNNI) || a < 1)
        return 0;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && has(a, L7_BF16);
}

unsigned dsf_machine(void) { return has_avx512() ? DSF_NEEDS_AVX512 : 0; }
#else
unsigned dsf_machine(void) { return 0; }
#endif
