/* g / (1 + e^-g) for a bf16 g as the reference rounds it to f32: evaluated in double, to 2^-37
 * before the quotient. There are 65,536 inputs, and all have the reference's bits. Eighteen double
 * operations: a library exponential and quotient take 45. */
#ifndef DSF_SM90_SILU_CUH
#define DSF_SM90_SILU_CUH

#include "sm90/fused.cuh"

/* 2^f, |f| <= 1/2: ln(2)^k / k! up to k = 9; the next term is below 2^-37. */
__device__ inline double exp2_fraction(double f)
{
    double p = 1.0178086009239699e-7;
    p = fma(p, f, 1.3215486790144310e-6);
    p = fma(p, f, 1.5252733804059840e-5);
    p = fma(p, f, 1.5403530393381609e-4);
    p = fma(p, f, 1.3333558146428443e-3);
    p = fma(p, f, 9.6181291076284772e-3);
    p = fma(p, f, 5.5504108664821580e-2);
    p = fma(p, f, 2.4022650695910072e-1);
    p = fma(p, f, 6.9314718055994531e-1);
    return fma(p, f, 1.0);
}

/* Below -690 the quotient is zero; -infinity gives NaN. */
__device__ inline float silu(float g)
{
    constexpr float magic = 0x1.8p23f; /* added, it leaves an integer in the low bits */
    float low = fmaxf(g, -690.0f), turned = fmaf(low, -1.44269504f, magic), turns = turned - magic;
    double f = fma(double(low), -1.4426950408889634, -double(turns)), e = exp2_fraction(f);
    int n = __float_as_int(turned) - __float_as_int(magic);
    e = __hiloint2double(__double2hiint(e) + n * (1 << 20), __double2loint(e));
    double r = fused::reciprocal(1.0 + e), x = double(g);
    return __double2float_rn(fma(x, 0.0, x * r));
}

__device__ inline float swiglu(float g, float v, float limit)
{
    return __fmul_rn(silu(fminf(g, limit)), fminf(fmaxf(v, -limit), limit));
}

#endif
