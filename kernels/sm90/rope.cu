/* Rotary embedding (architecture.md 3.6). rope_table: one thread an angle, in double. rope: one
 * thread a chunk of 8 channels, four pairs of the tail or eight channels that are copied; in place
 * only the tails are touched. Products and sums round separately, as the contract asks. */
#include "sm90/row.cuh"

extern "C" {
#include "ops/rope.h"
}

/* Powers 1/n! of the Taylor series on [-pi/4, pi/4], whose next terms are below 2^-58. */
__device__ inline double sine(double r)
{
    double z = r * r, p = 2.8114572543455206e-15; /* 1/17! */
    p = fma(p, z, -7.6471637318198164e-13);
    p = fma(p, z, 1.6059043836821613e-10);
    p = fma(p, z, -2.5052108385441720e-08);
    p = fma(p, z, 2.7557319223985893e-06);
    p = fma(p, z, -1.9841269841269841e-04);
    p = fma(p, z, 8.3333333333333332e-03);
    p = fma(p, z, -1.6666666666666666e-01);
    return fma(r * z, p, r);
}

__device__ inline double cosine(double r)
{
    double z = r * r, p = 4.7794773323873853e-14; /* 1/16! */
    p = fma(p, z, -1.1470745597729725e-11);
    p = fma(p, z, 2.0876756987868100e-09);
    p = fma(p, z, -2.7557319223985888e-07);
    p = fma(p, z, 2.4801587301587302e-05);
    p = fma(p, z, -1.3888888888888889e-03);
    p = fma(p, z, 4.1666666666666664e-02);
    p = fma(p, z, -0.5);
    return fma(p, z, 1.0);
}

/* Angles stay below 2^31, so that the quarter turns are exact in double and pi/2 in two parts
 * leaves an error of at most 2^-75: no angle of 24 bits comes closer than 2^-31 to a quarter. */
static __global__ void rope_table_kernel(float2 *cs, const int32_t *pos, const float *freq,
                                         unsigned items, unsigned f)
{
    begin();
    unsigned item = blockIdx.x * blockDim.x + threadIdx.x;
    if (item >= items) return;
    unsigned row = item / f;
    double angle = double(__fmul_rn(float(pos[row]), freq[item - row * f]));
    double turns = rint(angle * 0.63661977236758138); /* 2/pi */
    double r = fma(-turns, 1.5707963267948966, angle);
    r = fma(-turns, 6.123233995736766e-17, r);
    double s = sine(r), c = cosine(r);
    int quarter = int(__double2ll_rn(turns)) & 3;
    double real = quarter & 1 ? s : c, imaginary = quarter & 1 ? c : s;
    if (quarter == 1 || quarter == 2) real = -real;
    if (quarter >= 2) imaginary = -imaginary;
    cs[item] = make_float2(__double2float_rn(real), __double2float_rn(imaginary));
}

extern "C" dsf_status dsf_rope_table_sm90(const dsf_launch *lc, const void *args)
{
    const dsf_rope_table_args *a = static_cast<const dsf_rope_table_args *>(args);
    int64_t f = a->freq.dim[0], items = a->pos.dim[0] * f;
    return launch_flat(lc, items, rope_table_kernel, data_of<float2>(a->cs),
                       data_of<int32_t>(a->pos), data_of<float>(a->freq), unsigned(items),
                       unsigned(f));
}

__device__ inline uint32_t rotate(float re, float im, float c, float s)
{
    return num::pack_bf16(__fsub_rn(__fmul_rn(re, c), __fmul_rn(im, s)),
                          __fadd_rn(__fmul_rn(re, s), __fmul_rn(im, c)));
}

/* d, plain and f in channels; items = heads of all rows x chunks of a head from `first` on. */
struct rope_shape {
    unsigned items, heads, d, plain, f, first, per_head;
    float sign; /* -1: inverse */
};

static __global__ void __launch_bounds__(FLAT_THREADS)
    rope_chunks(uint16_t *out, const uint16_t *x, const float *cs, rope_shape shape)
{
    begin();
    unsigned item = blockIdx.x * blockDim.x + threadIdx.x;
    if (item >= shape.items) return;
    unsigned head = item / shape.per_head;
    unsigned c = shape.first + (item - head * shape.per_head) * CHUNK;
    uint4 v = load_chunk<true>(x + int64_t(head) * shape.d, c, shape.d);
    if (c >= shape.plain) {
        const float4 *angle = reinterpret_cast<const float4 *>(
            cs + int64_t(head / shape.heads) * 2 * shape.f + (c - shape.plain));
        float4 a = angle[0], b = angle[1];
        v.x = rotate(num::low_bf16(v.x), num::high_bf16(v.x), a.x, shape.sign * a.y);
        v.y = rotate(num::low_bf16(v.y), num::high_bf16(v.y), a.z, shape.sign * a.w);
        v.z = rotate(num::low_bf16(v.z), num::high_bf16(v.z), b.x, shape.sign * b.y);
        v.w = rotate(num::low_bf16(v.w), num::high_bf16(v.w), b.z, shape.sign * b.w);
    }
    store_chunk<true>(out + int64_t(head) * shape.d, c, shape.d, v);
}

/* Any d and f: a thread copies one channel or turns one pair. */
static __global__ void __launch_bounds__(FLAT_THREADS)
    rope_pairs(uint16_t *out, const uint16_t *x, const float *cs, rope_shape shape)
{
    begin();
    unsigned item = blockIdx.x * blockDim.x + threadIdx.x;
    if (item >= shape.items) return;
    unsigned head = item / shape.per_head, at = item - head * shape.per_head;
    const uint16_t *from = x + int64_t(head) * shape.d;
    uint16_t *to = out + int64_t(head) * shape.d;
    if (at < shape.plain) {
        to[at] = from[at];
        return;
    }
    unsigned pair = at - shape.plain, c = shape.plain + 2 * pair;
    const float *angle = cs + (int64_t(head / shape.heads) * shape.f + pair) * 2;
    uint32_t v = rotate(num::bf16_to_f32(from[c]), num::bf16_to_f32(from[c + 1]), angle[0],
                        shape.sign * angle[1]);
    to[c] = uint16_t(v);
    to[c + 1] = uint16_t(v >> 16);
}

extern "C" dsf_status dsf_rope_sm90(const dsf_launch *lc, const void *args)
{
    const dsf_rope_args *a = static_cast<const dsf_rope_args *>(args);
    uint16_t *out = data_of<uint16_t>(a->out);
    const uint16_t *x = data_of<uint16_t>(a->x);
    const float *cs = data_of<float>(a->cs);
    int64_t heads = a->x.dim[0] * a->x.dim[1], d = a->x.dim[2], f = a->cs.dim[1];
    int64_t plain = d - 2 * f;
    bool vec = f % 4 == 0 && whole_chunks(d, out, x, cs);
    int64_t first = vec && out == x ? plain : 0;
    int64_t per_head = vec ? (d - first) / CHUNK : plain + f;
    rope_shape shape = {unsigned(heads * per_head),
                        unsigned(a->x.dim[1]),
                        unsigned(d),
                        unsigned(plain),
                        unsigned(f),
                        unsigned(first),
                        unsigned(per_head),
                        a->inverse ? -1.0f : 1.0f};
    auto kernel = vec ? rope_chunks : rope_pairs;
    return launch_flat(lc, heads * per_head, kernel, out, x, cs, shape);
}
