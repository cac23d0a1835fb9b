/* The arguments of one run of an operation, in memory that betrays a kernel which leaves its
 * operands: each operand lies between two unmapped pages with guard bytes in the slack, touching
 * one page or the other. */
#ifndef DSF_VERIFY_FRAME_H
#define DSF_VERIFY_FRAME_H

#include <stdbool.h>

#include "op.h"

enum { DSF_FRAME_OPERANDS = 24 };

/* AT_START: the operand starts after an unmapped page and guard bytes follow it.
 * AT_END: guard bytes lie before it and it ends at an unmapped page. */
typedef enum { DSF_AT_START, DSF_AT_END } dsf_placement;

typedef struct {
    uint8_t *map; /* unmapped page, inner bytes, unmapped page */
    size_t inner;
    uint8_t *data; /* bytes of data inside */
    size_t bytes;
} dsf_region;

DSF_MUST dsf_status dsf_region_open(dsf_region *r, size_t bytes);
void dsf_region_close(dsf_region *r); /* a zeroed one is fine */
void dsf_region_place(dsf_region *r, dsf_placement where);
/* Sets every byte that is not data. */
void dsf_region_guard(dsf_region *r);
/* Distance from the data of the first changed guard byte: < 0 before it, >= bytes behind it; 0 when
 * all are as they were. */
int64_t dsf_region_breach(const dsf_region *r);

typedef struct {
    const dsf_op *op;
    dsf_case sizes;
    void *args; /* op->args_size bytes; tensors point into the regions */
    dsf_region region[DSF_FRAME_OPERANDS];
    uint64_t hash[DSF_FRAME_OPERANDS]; /* of inputs, by dsf_frame_seal */
    int replaced;                      /* the input that an output is written over, or -1 */
    bool fp8_sum, bf16_sum;            /* allow what DSF_FP8_SUM, DSF_BF16_SUM allow */
} dsf_frame;

/* Tensors of the case's sizes; init() has run, and may have taken optional operands away by rank 0.
 * absent: all optional operands have rank 0. */
DSF_MUST dsf_status dsf_frame_open(dsf_frame *f, const dsf_op *op, const dsf_case *c, bool absent);
void dsf_frame_close(dsf_frame *f);
/* Moves the operands; their contents and pointer tables are lost. */
void dsf_frame_place(dsf_frame *f, dsf_placement where);
/* Inputs of src into dst; rows[i] of src becomes row i of operands led by 'n' (NULL: all, sizes
 * equal). Pointer tables are rewritten to dst's own storage. */
void dsf_frame_copy(dsf_frame *dst, const dsf_frame *src, const int64_t *rows);
/* Outputs to the poison byte, guards set, inputs remembered. */
void dsf_frame_seal(dsf_frame *f, uint8_t poison);
/* The first operand with a changed guard or, for inputs, changed contents; -1: none. */
int dsf_frame_breached(const dsf_frame *f, int64_t *distance);
int dsf_frame_input_changed(const dsf_frame *f);

/* On the frame of wanted values: what this variant's sums are allowed beside its contract. */
static inline void dsf_frame_allow(dsf_frame *f, const dsf_variant *v)
{
    f->fp8_sum = (v->needs & DSF_FP8_SUM) != 0;
    f->bf16_sum = (v->needs & DSF_BF16_SUM) != 0;
}

static inline dsf_tensor *dsf_frame_tensor(const dsf_frame *f, int operand)
{
    return dsf_op_operand(f->op, f->args, operand);
}
/* Letter 'n' leads: the operand has rows. */
static inline bool dsf_frame_has_rows(const dsf_frame *f, int operand)
{
    return f->op->operand[operand].dims[0] == 'n' && dsf_frame_tensor(f, operand)->rank > 0;
}

/* Value patterns. The last two only where the contract says that they are legal. */
#define DSF_PATTERN_MAP(X)                                                                         \
    X(NORMAL, "normal")                                                                            \
    X(MIXED, "mixed")                                                                              \
    X(UNIFORM, "uniform")                                                                          \
    X(EQUAL, "equal")                                                                              \
    X(INTEGERS, "integers")                                                                        \
    X(ZEROS, "zeros")                                                                              \
    X(SUBNORMAL, "subnormal")                                                                      \
    X(EXTREME, "extreme")                                                                          \
    X(NAN, "nan")                                                                                  \
    X(INFINITY, "infinity")
typedef enum {
#define X(id, text) DSF_PATTERN_##id,
    DSF_PATTERN_MAP(X)
#undef X
        DSF_N_PATTERNS
} dsf_pattern;

const char *dsf_pattern_name(dsf_pattern p);
/* Fills inputs by pattern, then runs the op's fill(). */
DSF_MUST dsf_status dsf_frame_generate(dsf_frame *f, dsf_pattern p, uint64_t seed);

#endif
