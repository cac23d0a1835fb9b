#include "frame.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/mem.h"

enum { GUARD_BYTES = 256 }; /* at least so many, on the side that is not the unmapped page */

static size_t page_bytes(void) { return (size_t)sysconf(_SC_PAGESIZE); }

dsf_status dsf_region_open(dsf_region *r, size_t bytes)
{
    size_t page = page_bytes(), inner = (bytes + GUARD_BYTES + page - 1) / page * page;
    void *map = mmap(NULL, inner + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED) return DSF_FAIL(DSF_ENOMEM, "operand of %zu bytes", bytes);
    if (mprotect((uint8_t *)map + page, inner, PROT_READ | PROT_WRITE) != 0) {
        (void)munmap(map, inner + 2 * page);
        return DSF_FAIL(DSF_ENOMEM, "operand of %zu bytes", bytes);
    }
    *r = (dsf_region){map, inner, (uint8_t *)map + page, bytes};
    return DSF_OK;
}

void dsf_region_close(dsf_region *r)
{
    if (r->map) (void)munmap(r->map, r->inner + 2 * page_bytes());
    *r = (dsf_region){0};
}

void dsf_region_place(dsf_region *r, dsf_placement where)
{
    uint8_t *first = r->map + page_bytes();
    r->data = where == DSF_AT_START ? first : first + r->inner - r->bytes;
}

/* Varies, so that a neighbour's byte or a constant does not pass for it. */
static uint8_t guard_byte(size_t i) { return (uint8_t)(i * 37 + 11); }

void dsf_region_guard(dsf_region *r)
{
    uint8_t *first = r->map + page_bytes();
    size_t at = (size_t)(r->data - first);
    for (size_t i = 0; i < at; i++) first[i] = guard_byte(i);
    for (size_t i = at + r->bytes; i < r->inner; i++) first[i] = guard_byte(i);
}

int64_t dsf_region_breach(const dsf_region *r)
{
    const uint8_t *first = r->map + page_bytes();
    size_t at = (size_t)(r->data - first);
    for (size_t i = at + r->bytes; i < r->inner; i++)
        if (first[i] != guard_byte(i)) return (int64_t)(i - at);
    for (size_t i = at; i-- > 0;)
        if (first[i] != guard_byte(i)) return (int64_t)i - (int64_t)at;
    return 0;
}

/* One dimension letter as op.h defines them. */
static int64_t size_of(const dsf_op *op, const dsf_case *c, char letter)
{
    if (letter >= '0' && letter <= '9') return letter - '0';
    bool blocks = letter >= 'A' && letter <= 'Z';
    const char *at = strchr(op->dims, blocks ? letter - 'A' + 'a' : letter);
    if (!at) return 0;
    int64_t v = c->v[at - op->dims];
    return blocks ? (v + 31) / 32 : v;
}

/* An optional operand with a dimension of 0 is absent in that case. */
static dsf_status open_operand(dsf_frame *f, int i, bool absent)
{
    const dsf_operand *o = &f->op->operand[i];
    dsf_tensor t = {.dtype = o->dtype, .rank = (int)strlen(o->dims)};
    bool optional = (o->flags & DSF_OPERAND_OPTIONAL) != 0;
    if (absent && optional) return DSF_OK;
    for (int d = 0; d < t.rank; d++) {
        t.dim[d] = size_of(f->op, &f->sizes, o->dims[d]);
        if (t.dim[d] == 0 && optional) return DSF_OK;
        if (t.dim[d] <= 0)
            return DSF_FAIL(DSF_EINVAL, "%s.%s: dimension '%c' is %lld in a case", f->op->name,
                            o->name, o->dims[d], (long long)t.dim[d]);
    }
    DSF_TRY(dsf_region_open(&f->region[i], (size_t)dsf_tensor_bytes(&t)));
    t.data = f->region[i].data;
    *dsf_frame_tensor(f, i) = t;
    return DSF_OK;
}

static dsf_status open_all(dsf_frame *f, bool absent)
{
    DSF_TRY(dsf_mem_new(&f->args, 1, f->op->args_size));
    for (int i = 0; i < f->op->n_operands; i++) DSF_TRY(open_operand(f, i, absent));
    if (f->op->init) f->op->init(f->args, &f->sizes);
    return DSF_OK;
}

dsf_status dsf_frame_open(dsf_frame *f, const dsf_op *op, const dsf_case *c, bool absent)
{
    *f = (dsf_frame){.op = op, .sizes = *c, .replaced = -1};
    if (op->n_operands > DSF_FRAME_OPERANDS)
        return DSF_FAIL(DSF_EINVAL, "%s: %d operands, room for %d", op->name, op->n_operands,
                        (int)DSF_FRAME_OPERANDS);
    dsf_status st = open_all(f, absent);
    if (st != DSF_OK) dsf_frame_close(f);
    return st;
}

void dsf_frame_close(dsf_frame *f)
{
    for (int i = 0; i < DSF_FRAME_OPERANDS; i++) dsf_region_close(&f->region[i]);
    dsf_mem_free(f->args);
    f->args = NULL;
}

void dsf_frame_place(dsf_frame *f, dsf_placement where)
{
    for (int i = 0; i < f->op->n_operands; i++) {
        dsf_tensor *t = dsf_frame_tensor(f, i);
        if (!f->region[i].map) continue;
        dsf_region_place(&f->region[i], where);
        t->data = f->region[i].data;
    }
}

/* A table entry that leads into an operand of src leads to the same place of dst. */
static void relocate(dsf_frame *dst, const dsf_frame *src, int operand)
{
    dsf_tensor *t = dsf_frame_tensor(dst, operand);
    int64_t *p = t->data;
    for (int64_t i = 0; i < dsf_tensor_count(t); i++) {
        for (int o = 0; o < src->op->n_operands; o++) {
            uintptr_t base = (uintptr_t)src->region[o].data, at = (uintptr_t)p[i];
            if (!(src->op->operand[o].flags & DSF_OPERAND_AUX)) continue;
            if (at < base || at >= base + src->region[o].bytes) continue;
            p[i] = (int64_t)((uintptr_t)dst->region[o].data + (at - base));
            break;
        }
    }
}

void dsf_frame_copy(dsf_frame *dst, const dsf_frame *src, const int64_t *rows)
{
    for (int i = 0; i < dst->op->n_operands; i++) {
        const dsf_tensor *to = dsf_frame_tensor(dst, i), *from = dsf_frame_tensor(src, i);
        if (to->rank == 0 || dst->op->operand[i].dir == DSF_OUT) continue;
        if (rows && dsf_frame_has_rows(dst, i)) {
            size_t stride = (size_t)dsf_tensor_stride(to);
            for (int64_t r = 0; r < to->dim[0]; r++)
                memcpy((uint8_t *)to->data + (size_t)r * stride,
                       (const uint8_t *)from->data + (size_t)rows[r] * stride, stride);
        } else {
            memcpy(to->data, from->data, (size_t)dsf_tensor_bytes(to));
        }
        if (to->dtype == DSF_I64) relocate(dst, src, i);
    }
}

/* Any change of a word changes it: a multiply-rotate chain. */
static uint64_t hash_bytes(const uint8_t *p, size_t n)
{
    uint64_t h = n, word = 0;
    for (size_t i = 0; i < n; i += 8) {
        size_t left = n - i < 8 ? n - i : 8;
        memcpy(&word, p + i, left);
        h = (h ^ word) * 0x9E3779B97F4A7C15u;
        h = h << 29 | h >> 35;
    }
    return h;
}

void dsf_frame_seal(dsf_frame *f, uint8_t poison)
{
    for (int i = 0; i < f->op->n_operands; i++) {
        const dsf_region *r = &f->region[i];
        if (!r->map) continue;
        if (f->op->operand[i].dir == DSF_OUT) memset(r->data, poison, r->bytes);
        dsf_region_guard(&f->region[i]);
        f->hash[i] = hash_bytes(r->data, r->bytes);
    }
}

int dsf_frame_breached(const dsf_frame *f, int64_t *distance)
{
    for (int i = 0; i < f->op->n_operands; i++) {
        *distance = f->region[i].map ? dsf_region_breach(&f->region[i]) : 0;
        if (*distance != 0) return i;
    }
    return -1;
}

int dsf_frame_input_changed(const dsf_frame *f)
{
    for (int i = 0; i < f->op->n_operands; i++) {
        const dsf_region *r = &f->region[i];
        if (!r->map || f->op->operand[i].dir != DSF_IN || i == f->replaced) continue;
        if (hash_bytes(r->data, r->bytes) != f->hash[i]) return i;
    }
    return -1;
}
