/* The contract of an operation as data: from one dsf_op come the plan's type check, the checker's
 * inputs, the bench row and the roofline. A variant is one file and one row. */
#ifndef DSF_KERNELS_OP_H
#define DSF_KERNELS_OP_H

#include <stddef.h>
#include <stdint.h>

#include "base/pool.h"
#include "base/status.h"
#include "base/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a kernel may use beside its arguments. On the host worker w owns scratch + w * scratch_bytes
 * (64-aligned). On a device there is one workspace (256-aligned, contents undefined), the tensors
 * are device memory, and a kernel returns when its launches are queued. */
typedef struct {
    dsf_pool *pool; /* NULL: run in the caller's thread */
    uint8_t *scratch;
    size_t scratch_bytes; /* per worker: at least what the variant's scratch() asked for */
    void *stream;         /* cudaStream_t of the launches; NULL on the host */
} dsf_launch;

typedef dsf_status dsf_kernel_fn(const dsf_launch *lc, const void *args);

enum {                            /* what a variant needs; dsf_machine() tells what is here */
       DSF_NEEDS_AVX512 = 1 << 0, /* F BW VL DQ VBMI VNNI BF16 */
       DSF_NEEDS_SM90 = 1 << 1, /* a device of compute capability 9.0: never mixed with the host */
       DSF_NEEDS_MACHINE = 0xFFFF, /* the bits above; those below are traits */
       DSF_PLAN_ONLY = 1 << 15, /* of a target: what this build has no kernel for is there too; such
                                   a plan is described and never run */
       DSF_FP8_SUM = 1 << 16,   /* sums of 32 products of e4m3 codes are rounded inside the tensor
                                   core: the contract's fp8_bound() is added to its bound() */
       DSF_BF16_SUM = 1 << 17   /* sums of bf16 products are cut toward zero inside the tensor core:
                                   the contract's bf16_bound() is added */
};

typedef enum { DSF_IN, DSF_OUT, DSF_INOUT } dsf_direction;

/* One tensor of the argument struct. dims: one letter a dimension, outermost first; a small letter
 * is a size of the case, a capital is ceil(size / 32) (scale grids), '4' and '2' are themselves. */
typedef struct {
    const char *name;
    size_t offset;
    dsf_direction dir;
    dsf_dtype dtype;
    const char *dims;
    unsigned flags;
} dsf_operand;

enum {
    DSF_OPERAND_OPTIONAL = 1 << 0, /* rank 0 when absent */
    DSF_OPERAND_AUX =
        1 << 1 /* storage that the checker fills and pointer tables lead to; unset in plans */
};

typedef struct {
    const char *name; /* "ref", "avx512", "sm90", "sm90tc", "sm90fp8" */
    unsigned needs;
    dsf_kernel_fn *run; /* NULL: not in this build */
    /* NULL: takes everything the contract takes. Looks at shapes and scalars only, never at data.
     */
    int (*accepts)(const void *args);
    /* Bytes of scratch per worker (device: in all) for these shapes, and for fewer rows: a plan is
     * made for the largest pass. NULL: none. */
    size_t (*scratch)(const void *args);
} dsf_variant;

/* Sizes in the order of the op's `dims` letters, then up to 4 numbers for init(). */
typedef struct {
    int64_t v[12];
} dsf_case;

typedef enum {
    DSF_TOL_EXACT, /* 0 bits */
    DSF_TOL_ULP,   /* at most k ulp of the output type */
    DSF_TOL_SUM, /* k * 2^-24 * bound + k_out ulp of the output type; bound from the op's bound() */
} dsf_tol_rule;

typedef struct {
    dsf_tol_rule rule;
    double k;
    const char *why; /* the derivation, in one line */
} dsf_tol;

typedef struct {
    double flops, bytes; /* useful ones: not padding */
} dsf_cost;

typedef struct dsf_op {
    const char *name;
    const char *dims; /* the letters, each once */
    size_t args_size;
    const dsf_operand *operand;
    int n_operands;
    const dsf_variant *variant;
    int n_variants;
    const dsf_case *cases;
    int n_cases;
    const dsf_tol *tol; /* one for each OUT/INOUT operand, in operand order */
    unsigned props;
    /* Sets scalars of args from the case. NULL: none. */
    void (*init)(void *args, const dsf_case *c);
    /* Rewrites generated inputs that carry meaning (indices, positions, pointer tables).
     * Deterministic in seed. NULL: patterns are fine as they are. */
    void (*fill)(void *args, const dsf_case *c, uint64_t seed);
    /* For DSF_TOL_SUM: sum of |a_i b_i| and length for element `index` of OUT operand `operand`. */
    double (*bound)(const void *args, int operand, int64_t index);
    /* The same for what the tensor core's own rounding of fp8 sums may add (DSF_FP8_SUM). */
    double (*fp8_bound)(const void *args, int operand, int64_t index);
    /* And for what it cuts from sums of bf16 products (DSF_BF16_SUM). */
    double (*bf16_bound)(const void *args, int operand, int64_t index);
    dsf_cost (*cost)(const void *args);
    /* Tiles that a device variant takes for these shapes, in words for the printed plan; "" when it
     * has no choice. NULL: none has. */
    void (*tiles)(const dsf_variant *v, const void *args, char *text, size_t n);
} dsf_op;

enum {                          /* properties checked beside values */
       DSF_PROP_ROWS = 1 << 0,  /* row i of every output depends on row i of the inputs only ('n' is
                                   the row letter) */
       DSF_PROP_ALIAS = 1 << 1, /* the first OUT may be the first IN */
       DSF_PROP_NAN = 1 << 2    /* NaN and infinity patterns are legal input */
};

#define DSF_ARG(type, field, dir, dtype, dims, flags)                                              \
    {                                                                                              \
#field, offsetof(type, field), dir, dtype, dims, flags                                     \
    }
#define DSF_TABLE(array) (array), (int)(sizeof(array) / sizeof((array)[0]))

/* The list of all ops, in table.c. */
extern const dsf_op *const dsf_ops[];
extern const int dsf_n_ops;
/* NULL when there is none. */
const dsf_op *dsf_op_find(const char *name);

/* DSF_NEEDS_* bits that this machine has, asked of the processor (and the kernel, for the
 * registers). */
unsigned dsf_machine(void);

/* True when v can run for this target: what dsf_machine() gave, or DSF_NEEDS_SM90 alone (with
 * DSF_PLAN_ONLY: could, in a build with CUDA). */
static inline int dsf_variant_runs(const dsf_variant *v, unsigned target)
{
    unsigned needs = v->needs & DSF_NEEDS_MACHINE;
    int there = v->run || (target & DSF_PLAN_ONLY);
    return there && !(needs & ~target) && !((needs ^ target) & DSF_NEEDS_SM90);
}

/* Operand i of an argument struct. */
static inline dsf_tensor *dsf_op_operand(const dsf_op *op, void *args, int i)
{
    return (dsf_tensor *)((char *)args + op->operand[i].offset);
}

#ifdef __cplusplus
}
#endif
#endif
