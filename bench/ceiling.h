/* The inner loops of the ceilings: one file for each instruction set. */
#ifndef DSF_BENCH_CEILING_H
#define DSF_BENCH_CEILING_H

#include <stddef.h>
#include <stdint.h>

/* Reads n bytes (a multiple of 4096, 64-aligned) and returns something that depends on them all. */
uint64_t dsf_read_avx512(const uint8_t *p, size_t n);
/* Do `rounds` rounds of independent multiply-adds in registers and return the sum of the results;
 * a round is so many floating-point operations. */
float dsf_spin_bf16_avx512(int64_t rounds);
float dsf_spin_f32_avx512(int64_t rounds);
enum { DSF_SPIN_CHAINS = 24, DSF_SPIN_BF16_FLOPS = 24 * 64, DSF_SPIN_F32_FLOPS = 24 * 32 };

#endif
