/* Running the variants of an operation that this machine has, for unit tests with cases of their
 * own. */
#ifndef DSF_UNIT_OP_VARIANTS_H
#define DSF_UNIT_OP_VARIANTS_H

#include <criterion/criterion.h>
#include <stdlib.h>

#include "base/num.h"
#include "op.h"
#include "ops/fill.h"

/* The next variant that this machine can run, the first after NULL; NULL at the end. */
static inline const dsf_variant *variant_next(const dsf_op *op, const dsf_variant *v)
{
    for (v = v ? v + 1 : op->variant; v < op->variant + op->n_variants; v++)
        if (dsf_variant_runs(v, dsf_machine())) return v;
    return NULL;
}

/* Scratch of exactly the size asked for, filled with NaN. */
static inline void variant_run(const dsf_variant *v, const void *args)
{
    size_t bytes = v->scratch ? v->scratch(args) : 0, room = (bytes + 63) & ~(size_t)63;
    dsf_launch lc = {.scratch = aligned_alloc(64, room ? room : 64), .scratch_bytes = bytes};
    cr_assert_not_null(lc.scratch);
    memset(lc.scratch, 0xFF, room);
    cr_assert_eq(v->run(&lc, args), DSF_OK, "%s: %s", v->name, dsf_error_text());
    free(lc.scratch);
}

/* The arguments of a contract's case: random bytes, then the contract's own fill. */
static inline void case_open(const dsf_op *op, const dsf_case *c, void *args, uint64_t seed)
{
    memset(args, 0, op->args_size);
    for (int i = 0; i < op->n_operands; i++) {
        dsf_tensor *t = dsf_op_operand(op, args, i);
        const char *dims = op->operand[i].dims;
        t->dtype = op->operand[i].dtype;
        t->rank = (int)strlen(dims);
        for (int d = 0; d < t->rank; d++) t->dim[d] = c->v[strchr(op->dims, dims[d]) - op->dims];
        int64_t bytes = dsf_tensor_bytes(t);
        t->data = calloc((size_t)bytes + 1, 1);
        for (int64_t b = 0; b < bytes; b++) ((uint8_t *)t->data)[b] = (uint8_t)dsf_fill_next(&seed);
    }
    if (op->init) op->init(args, c);
    if (op->fill) op->fill(args, c, seed);
}

static inline void case_close(const dsf_op *op, void *args)
{
    for (int i = 0; i < op->n_operands; i++) free(dsf_op_operand(op, args, i)->data);
}

static inline dsf_tensor tensor_of(void *data, dsf_dtype dtype, int64_t a, int64_t b, int64_t c)
{
    dsf_tensor t = {.data = data, .dtype = dtype, .rank = c ? 3 : b ? 2 : 1, .dim = {a, b, c, 0}};
    return t;
}

#endif
