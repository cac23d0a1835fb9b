/* The core of every matrix product: sums over k of x w for a block of rows and outputs.
 *
 * Both operands are expanded exactly to f32, and f32 multiply-add does the work: on the processors
 * at hand it has twice the product rate of vdpbf16ps, and it loses no subnormals. An element is the
 * same chain of roundings whatever the block: for each group of 128 channels (expand.h) eight
 * multiply-adds from zero in 16 lanes, one more with the group's scales into 16 running sums; at
 * the end one fixed tree over the lanes. Few rows: weights go through registers once, as they come
 * from memory. Many rows: a slab of weights is expanded to the first cache and meets all rows. */
#ifndef DSF_AVX512_GEMM_H
#define DSF_AVX512_GEMM_H

#include <stddef.h>
#include <stdint.h>

typedef enum { DSF_GEMM_E2M1, DSF_GEMM_E4M3, DSF_GEMM_BF16 } dsf_gemm_format;

enum { DSF_GEMM_ROWS = 128, DSF_GEMM_OUTS = 96, DSF_GEMM_FEW_ROWS = 8, DSF_GEMM_FEW_OUTS = 64 };

typedef struct {
    dsf_gemm_format format;
    int x_q8;         /* rows of x are Q8 records; else bf16 */
    int s_shift;      /* output o has scale row o >> s_shift */
    int64_t k;        /* a multiple of 32 unless BF16 */
    const uint8_t *w; /* [o, k] in the format */
    const uint8_t *s; /* [.., k/32] ue8m0; not for BF16 */
} dsf_gemm;

/* sum[r * DSF_GEMM_OUTS + o] = row[r] times output o0 + o, for n_rows (at most ROWS) and n_outs (at
 * most OUTS). */
typedef struct {
    const uint8_t *row[DSF_GEMM_ROWS];
    int n_rows, n_outs;
    int64_t o0;
    float *sum;       /* [ROWS, OUTS] */
    uint8_t *scratch; /* dsf_gemm_scratch() bytes, 64-aligned */
} dsf_gemm_block;

void dsf_gemm_run(const dsf_gemm *g, const dsf_gemm_block *b);

enum { DSF_GEMM_SUM_BYTES = DSF_GEMM_ROWS * DSF_GEMM_OUTS * 4 };
size_t dsf_gemm_scratch(void);

/* Rows and outputs of the blocks into which a product of n rows is cut: equal row blocks, so that
 * none is left with a few rows of its own. */
static inline int64_t dsf_gemm_rows(int64_t n)
{
    int64_t blocks = (n + DSF_GEMM_ROWS - 1) / DSF_GEMM_ROWS;
    return blocks == 0 ? 1 : ((n + blocks - 1) / blocks + 3) / 4 * 4;
}

static inline int64_t dsf_gemm_outs(int64_t n)
{
    return n <= DSF_GEMM_FEW_ROWS ? DSF_GEMM_FEW_OUTS : DSF_GEMM_OUTS;
}

/* Sums to n consecutive bf16. */
void dsf_gemm_store_bf16(uint16_t *out, const float *sum, int n);

#endif
