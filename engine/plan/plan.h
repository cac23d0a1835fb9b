/* The plan: a flat array of steps over a flat array of values. Recorded once by model/, then chosen
 * (variants), pruned, placed (offsets) and run by exec/. It is data: it can be printed and compared
 * on any machine, before a byte is allocated.
 *
 * Rows. A pass runs on n token rows. A step runs on one row set: the tokens of the pass, a suffix
 * of them (cone prefill), the completed compressor entries, the rows whose logits are wanted. A
 * value that is indexed by rows has room for the largest pass; a step sees the rows of its own set,
 * and operands whose first letter differs from that of its first output are seen whole (attention
 * over all keys of the pass). */
#ifndef DSF_PLAN_PLAN_H
#define DSF_PLAN_PLAN_H

#include <stdbool.h>
#include <string.h>

#include "base/arena.h"
#include "base/buf.h"
#include "op.h"
#include "plan/tap.h"

typedef int dsf_val; /* index of a value; DSF_NO_VAL: absent */
enum { DSF_NO_VAL = -1 };

/* Row sets. Layer l computes window keys on DSF_ROWS_KV(l) and everything else on DSF_ROWS_Q(l). */
enum {
    DSF_ROWS_NONE = -1,  /* not indexed by rows */
    DSF_ROWS_ALL = 0,    /* every token of the pass */
    DSF_ROWS_POOLED = 1, /* ratio-2 entries that the pass pools from its tokens */
    DSF_ROWS_PAIRS = 2,  /* ratio-2 entries that the pass stores: the same, but for given latents */
    DSF_ROWS_SINGLES =
        3,             /* ratio-1 entries that the pass stores: the tokens, but for given latents */
    DSF_ROWS_HEAD = 4, /* rows whose logits are wanted */
    DSF_ROWS_CONTEXT = 5, /* rows that seed the draft rings */
    DSF_ROWS_LAYER = 6
};
#define DSF_ROWS_Q(layer)  (DSF_ROWS_LAYER + 2 * (layer))
#define DSF_ROWS_KV(layer) (DSF_ROWS_LAYER + 2 * (layer) + 1)

/* What the session supplies with each pass. X(id, dtype, row set) */
#define DSF_INPUT_MAP(X)                                                                           \
    X(IDS, I32, ALL)          /* token ids */                                                      \
    X(POS, I32, ALL)          /* positions */                                                      \
    X(SLOT, I32, ALL)         /* cache slot of the sequence */                                     \
    X(ROW, I32, ALL)          /* index of the row among the pass's window keys */                  \
    X(START, I32, ALL)        /* first position of the sequence in this pass */                    \
    X(END, I32, ALL)          /* one past its last position in this pass */                        \
    X(LO, I32, ALL)           /* lowest visible window position */                                 \
    X(LO_DECODER, I32, ALL)   /* the same for the decoder half: the cut of `replay` */             \
    X(VL, U8, ALL)            /* 1 inside an image span */                                         \
    X(PAIR_ROW, I32, POOLED)  /* pass row that closes the entry */                                 \
    X(PAIR_POS, I32, PAIRS)   /* position of its first token */                                    \
    X(PAIR_INDEX, I32, PAIRS) /* entry id */                                                       \
    X(PAIR_SLOT, I32, PAIRS)                                                                       \
    X(PAIR_END, I32, PAIRS)     /* one past the last entry id */                                   \
    X(SINGLE_POS, I32, SINGLES) /* position = entry id */                                          \
    X(SINGLE_SLOT, I32, SINGLES)                                                                   \
    X(SINGLE_END, I32, SINGLES)                                                                    \
    X(HEAD_ROW, I32, HEAD) /* pass row */                                                          \
    X(HEAD_POS, I32, HEAD)                                                                         \
    X(HEAD_SLOT, I32, HEAD)                                                                        \
    X(HEAD_HOW, I64, HEAD) /* dsf_sample_how: how the next token is drawn */                       \
    X(ANCHOR, I32, NONE)   /* draft: the token placed in row 0 */                                  \
    X(ENGRAM, I64, ALL)    /* table rows; one input for each Engram layer */

typedef enum {
#define X(id, dtype, rows) DSF_INPUT_##id,
    DSF_INPUT_MAP(X)
#undef X
        DSF_N_INPUTS
} dsf_input;

/* What the caller reads after a pass. */
typedef enum {
    DSF_RESULT_LOGITS,     /* [heads, vocab] f32 */
    DSF_RESULT_NEXT,       /* [heads] i32: drawn from them */
    DSF_RESULT_DRAFT_IDS,  /* [block] i32 */
    DSF_RESULT_CONFIDENCE, /* [block] f32 */
    DSF_N_RESULTS
} dsf_result;

typedef enum {
    DSF_VALUE_SCRATCH, /* computed; lives from its first to its last step */
    DSF_VALUE_INPUT,   /* supplied with each pass */
    DSF_VALUE_GIVEN,   /* a tap's value put in by the caller in place of the computed one */
    DSF_VALUE_CONST,   /* weights */
    DSF_VALUE_CACHE    /* lives with the sequences */
} dsf_value_kind;

typedef struct {
    char name[32];
    dsf_value_kind kind;
    dsf_dtype dtype;
    int rank;
    int64_t dim[DSF_MAX_RANK]; /* dim[0] of a row value: the most rows of a pass */
    int rows;                  /* row set, or DSF_ROWS_NONE */
    dsf_val base;        /* a view of that value's bytes with another shape; DSF_NO_VAL: none */
    const void *data;    /* CONST */
    size_t target_bytes; /* CONST of I64, a table of pointers: what each leads to */
    dsf_dtype target;
    int input, input_index; /* INPUT */
    dsf_tap tap;            /* GIVEN */
    int first, last;        /* steps that write it first and read it last; -1: none */
    size_t result; /* a result's place among the results, where they are copied out of a device's
                      memory; DSF_NO_RESULT */
    size_t offset,
        bytes; /* SCRATCH: in the scratch arena; CACHE: in the cache arena; INPUT: in the inputs */
} dsf_value;

#define DSF_NO_RESULT SIZE_MAX

enum { DSF_MAX_OPERANDS = 20, DSF_STEP_TAPS = 4 };

typedef struct {
    const dsf_op *op;
    const dsf_variant *variant;
    int rows;        /* row set of the step */
    char row_letter; /* operands whose shape starts with it are seen by the step's rows */
    int layer;       /* for printing and masks; -1 outside layers */
    dsf_val operand[DSF_MAX_OPERANDS];
    size_t args; /* offset in plan->args */
    int n_taps;
    struct {
        dsf_tap tap;
        dsf_val value;
    } tap[DSF_STEP_TAPS];
} dsf_step;

/* Sizes that the plan is made for. */
typedef struct {
    int64_t rows;    /* most token rows of a pass (prefill chunk or decode batch) */
    int64_t heads;   /* most rows whose logits are wanted in one pass */
    int64_t slots;   /* sequences */
    int64_t context; /* positions of a sequence */
    int64_t rewind;  /* positions that a sequence can be taken back without recomputing */
} dsf_plan_size;

typedef struct {
    dsf_step *step;
    int n_steps, cap_steps;
    dsf_value *value;
    int n_values, cap_values;
    uint8_t *args;
    size_t args_bytes, args_cap;
    dsf_plan_size size;
    int n_layers; /* backbone layers: tells stages from layers in tap names */
    size_t scratch_bytes, cache_bytes, input_bytes;
    dsf_val result[DSF_N_RESULTS]; /* DSF_NO_VAL: none of this kind */
    size_t result_bytes;
    size_t worker_bytes; /* kernel scratch of one worker (device: in all): the most that a chosen
                            variant asks for */
    unsigned target;     /* what the variants were chosen for */
    /* Recording state. */
    dsf_status status; /* sticky: the first failure; everything after it is a no-op */
    int rows_now, layer_now;
    bool (*given)(void *ud, dsf_tap tap); /* which taps the caller puts in; NULL: none */
    void *given_ud;
} dsf_plan;

DSF_MUST dsf_status dsf_plan_open(dsf_plan **out, const dsf_plan_size *size, int n_layers);
void dsf_plan_close(dsf_plan *p); /* NULL is fine */
int64_t dsf_plan_capacity(const dsf_plan *p, int rows);

/* Values. Row values take the current row set. All return DSF_NO_VAL after a failure. */
dsf_val dsf_plan_scratch(dsf_plan *p, const char *name, dsf_dtype t, int rank, const int64_t *tail);
dsf_val dsf_plan_const(dsf_plan *p, const char *name, const dsf_tensor *w);
/* A table of pointers, each to `bytes` bytes of a tensor of type `target`. */
dsf_val dsf_plan_table(dsf_plan *p, const char *name, const dsf_tensor *w, size_t bytes,
                       dsf_dtype target);
dsf_val dsf_plan_cache(dsf_plan *p, const char *name, dsf_dtype t, int rank, const int64_t *dim);
/* One value for each (input, index); tail: the dimensions after the rows (rank 1: none). */
dsf_val dsf_plan_input(dsf_plan *p, dsf_input input, int index, int rank, const int64_t *tail);
/* The same bytes as v with other dimensions after the rows. */
dsf_val dsf_plan_view(dsf_plan *p, dsf_val v, int rank, const int64_t *tail);
/* The value that owns v's bytes. */
static inline dsf_val dsf_plan_base(const dsf_plan *p, dsf_val v)
{
    return v != DSF_NO_VAL && p->value[v].base != DSF_NO_VAL ? p->value[v].base : v;
}
/* A value that only the caller can supply: the stream that a layer range starts from. */
dsf_val dsf_plan_given_value(dsf_plan *p, dsf_tap tap, dsf_dtype t, int rank, const int64_t *tail);

/* Shape, type and (of constants) data of a value. */
static inline dsf_tensor dsf_plan_tensor(const dsf_value *v)
{
    dsf_tensor t = {.data = (void *)(uintptr_t)v->data, .dtype = v->dtype, .rank = v->rank};
    memcpy(t.dim, v->dim, sizeof t.dim);
    return t;
}
/* The value bound to the operand at this offset of the argument struct. */
static inline dsf_val dsf_plan_operand(const dsf_step *s, size_t offset)
{
    for (int k = 0; k < s->op->n_operands; k++)
        if (s->op->operand[k].offset == offset) return s->operand[k];
    return DSF_NO_VAL;
}

/* A value for the operand at this offset of the argument struct. */
typedef struct {
    size_t offset;
    dsf_val value;
} dsf_bind;
/* Records a step on the current rows. args: the op's struct with its scalars set (copied). Operands
 * that are not bound must be optional. Shapes and types are checked against the contract here. */
void dsf_plan_step(dsf_plan *p, const dsf_op *op, const void *args, const dsf_bind *bind, int n);
/* Names v. Returns what later steps read: v, or the caller's value (on the current rows) where it
 * gives this tap. */
dsf_val dsf_plan_tap(dsf_plan *p, dsf_tap_id id, int layer, dsf_val v);
/* The same for a value that is to be shown but not replaced. */
void dsf_plan_show(dsf_plan *p, dsf_tap_id id, int layer, dsf_val v);

/* v is what the caller reads after a pass: it is computed, and lives to the pass's end. */
void dsf_plan_result(dsf_plan *p, dsf_result which, dsf_val v);
const char *dsf_plan_result_name(dsf_result which);
static inline bool dsf_plan_is_result(const dsf_plan *p, dsf_val v)
{
    for (int i = 0; i < DSF_N_RESULTS; i++)
        if (p->result[i] != DSF_NO_VAL && dsf_plan_base(p, p->result[i]) == dsf_plan_base(p, v))
            return true;
    return false;
}

/* Passes over the finished recording, in this order. */
/* Drops steps that nothing needs: whose outputs reach no cache, no wanted tap and no result.
 * `missing` (may be NULL) tells given taps that the caller has no data for: what depends on them
 * goes too. */
DSF_MUST dsf_status dsf_plan_prune(dsf_plan *p, const dsf_tap_sink *wanted,
                                   bool (*missing)(void *ud, dsf_tap tap), void *ud);
/* Optional, between prune and choose: sequences of steps become one fused step (ops/fused.h) where
 * the target has a kernel for it that `mask` (below) allows; target 0 takes the references. Values
 * that a sink wants stay. */
DSF_MUST dsf_status dsf_plan_fuse(dsf_plan *p, unsigned target, const char *mask);
/* What dsf_plan_choose would run a step with; NULL: nothing. */
const dsf_variant *dsf_plan_pick(const dsf_op *op, const void *args, unsigned target,
                                 const char *mask);
/* The target that a mask names: DSF_NEEDS_SM90 for one that starts with the word "cuda" (with
 * DSF_PLAN_ONLY where `machine` has it), else `machine` without it. */
unsigned dsf_plan_target(unsigned machine, const char *mask);
/* The mask names a device. */
static inline bool dsf_plan_on_device(const char *mask)
{
    return (dsf_plan_target(0, mask) & DSF_NEEDS_SM90) != 0;
}
/* Picks a variant for each step: the last row of the op's table that the target has, `mask` allows
 * and that accepts the shapes. mask: "ref" (only the reference), or "-avx512,-avx512:attn" (minus
 * what is named); "cuda" alone or before such words: a device's variants. */
DSF_MUST dsf_status dsf_plan_choose(dsf_plan *p, unsigned machine, const char *mask);
/* Lifetimes to offsets. */
DSF_MUST dsf_status dsf_plan_place(dsf_plan *p);

/* What an arena holds (inside.c). */
typedef struct {
    dsf_val value;
    size_t bytes;
} dsf_inside;
/* Scratch values that live in the step where most bytes do, the biggest first; at most `room`.
 * Returns how many live there; *step: that step, *live: their bytes. p: placed. */
int dsf_plan_peak(const dsf_plan *p, dsf_inside *list, int room, int *step, size_t *live);
/* "x: 8192 x 4 x 5120 f32". */
void dsf_plan_value_text(const dsf_plan *p, dsf_val v, dsf_buf *out);
/* Kinds of caches: how the names of their values start, and the line of the memory table. */
enum { DSF_CACHE_KINDS = 4 };
extern const struct dsf_cache_kind {
    const char *prefix, *line;
} dsf_cache_kinds[DSF_CACHE_KINDS];
/* Bytes of the cache values whose names start with `prefix`, and their shapes in words. */
size_t dsf_plan_cache_group(const dsf_plan *p, const char *prefix, dsf_buf *out);
/* Kernel scratch of one worker by operation, the most of its steps, the biggest first. */
typedef struct {
    int step;
    size_t bytes;
} dsf_workspace;
int dsf_plan_workspaces(const dsf_plan *p, dsf_workspace *list, int room);
/* Heap of the plan itself. */
size_t dsf_plan_heap(const dsf_plan *p);

/* One line a step; stable text. */
void dsf_plan_print(const dsf_plan *p, dsf_buf *out);
/* The variants in use, "avx512 31, ref 4 (route, ...)". */
void dsf_plan_variants(const dsf_plan *p, dsf_buf *out);

#endif
