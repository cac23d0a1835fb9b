#include "model/weights.h"

#include <string.h>
#include <sys/mman.h>

#include "base/mem.h"
#include "base/mix.h"

static bool same_shape(const dsf_name *want, const dsf_tensor *have)
{
    if (want->dtype != have->dtype || want->rank != have->rank) return false;
    for (int i = 0; i < want->rank; i++)
        if (want->dim[i] != have->dim[i]) return false;
    return true;
}

static int64_t *expert_row(const dsf_weights *w, int layer, dsf_expert_table t)
{
    return w->experts + ((int64_t)layer * DSF_N_EXPERT_TABLES + t) * w->most_experts;
}

static void put(dsf_weights *w, const dsf_name *n, const dsf_tensor *t)
{
    static const dsf_expert_table first[] = {DSF_EXPERT_W1, DSF_EXPERT_W2, DSF_EXPERT_W3};
    if (n->expert >= 0) {
        int which = n->role == DSF_ROLE_EXPERT_W1 ? 0 : n->role == DSF_ROLE_EXPERT_W2 ? 1 : 2;
        expert_row(w, n->layer, (dsf_expert_table)(first[which] + n->scale))[n->expert] =
            (int64_t)(intptr_t)t->data;
        return;
    }
    bool in_layer = n->layer >= 0 && n->part != DSF_PART_VISION;
    int row = in_layer ? n->layer : w->n_layers;
    w->view[((int64_t)row * DSF_N_ROLES + n->role) * 2 + n->scale] = *t;
}

static dsf_status fill(dsf_weights *w, const dsf_ckpt *k)
{
    dsf_names it = dsf_names_begin(w->config);
    dsf_name n;
    while (dsf_names_next(&it, &n)) {
        dsf_tensor t;
        DSF_TRY(dsf_ckpt_get(k, n.name, &t));
        if (!same_shape(&n, &t))
            return DSF_FAIL(
                DSF_ECORRUPT,
                "%s: %s is not of the contract's shape and type: dsf info lists all faults",
                dsf_ckpt_folder(k), n.name);
        put(w, &n, &t);
        w->mapped_bytes += n.bytes;
    }
    return DSF_OK;
}

static dsf_status take_tables(dsf_weights *w, const dsf_config *c)
{
    *w = (dsf_weights){.config = c, .n_layers = c->n_layers + c->n_mtp_layers};
    w->most_experts = c->n_routed_experts > c->dspark_n_routed_experts ? c->n_routed_experts
                                                                       : c->dspark_n_routed_experts;
    size_t views = (size_t)(w->n_layers + 1) * DSF_N_ROLES * 2;
    size_t pointers = (size_t)w->n_layers * DSF_N_EXPERT_TABLES * (size_t)w->most_experts;
    w->table_bytes = (int64_t)(views * sizeof(dsf_tensor) + pointers * sizeof(int64_t));
    DSF_TRY(dsf_mem_new(&w->view, views, sizeof(dsf_tensor)));
    return dsf_mem_new(&w->experts, pointers, sizeof(int64_t));
}

dsf_status dsf_weights_open(dsf_weights *w, const dsf_config *c, const dsf_ckpt *k)
{
    dsf_status st = take_tables(w, c);
    if (st == DSF_OK) st = fill(w, k);
    if (st == DSF_OK) return st;
    dsf_weights_close(w);
    return dsf_error_pass(st, DSF_HERE);
}

/* ---- synthetic ---- */

enum { APART = 256, PIECE = 1 << 20 }; /* between two addresses; bytes that one task fills */

typedef struct {
    uint8_t *at;
    size_t bytes;
    uint64_t seed;
    bool scale;
} filling;

/* Codes of all signs, exponent fields 5..8; scales 2^-7 to 2^-4. */
static void fill_piece(void *arg, int64_t piece, int worker)
{
    (void)worker;
    const filling *f = arg;
    const uint64_t ones = 0x0101010101010101u;
    size_t from = (size_t)piece * PIECE, to = from + PIECE < f->bytes ? from + PIECE : f->bytes;
    for (size_t i = from; i < to; i += 8) {
        uint64_t bits = dsf_mix64(f->seed + i * 0x9E3779B97F4A7C15u);
        bits = f->scale ? (bits & 0x03 * ones) + 120 * ones : (bits & 0x9F * ones) + 0x28 * ones;
        memcpy(f->at + i, &bits, to - i < 8 ? to - i : 8);
    }
}

static dsf_status map_table(dsf_weights *w, const dsf_name *n, dsf_tensor *t)
{
    void *p = NULL;
    if (w->n_tables == (int)(sizeof w->table / sizeof *w->table))
        return DSF_FAIL(DSF_EINVAL, "%s: more Engram tables than %d", n->name, w->n_tables);
    DSF_TRY(dsf_mem_map(&p, (size_t)n->bytes));
    w->table[w->n_tables] = p;
    w->table_size[w->n_tables++] = (size_t)n->bytes;
    t->data = p;
    return DSF_OK;
}

static dsf_status name_all(dsf_weights *w, bool tables)
{
    dsf_names it = dsf_names_begin(w->config);
    dsf_name n;
    size_t at = 0;
    while (dsf_names_next(&it, &n)) w->reserved_bytes += ((size_t)n.bytes + APART) / APART * APART;
    void *p = mmap(NULL, w->reserved_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                   -1, 0);
    if (p == MAP_FAILED)
        return DSF_FAIL(DSF_ENOMEM, "%zu bytes of addresses for synthetic weights",
                        w->reserved_bytes);
    w->reserved = p;
    it = dsf_names_begin(w->config);
    while (dsf_names_next(&it, &n)) {
        dsf_tensor t = {.dtype = n.dtype, .rank = n.rank, .data = w->reserved + at};
        memcpy(t.dim, n.dim, sizeof t.dim);
        if (tables && n.role == DSF_ROLE_ENGRAM_EMBED) DSF_TRY(map_table(w, &n, &t));
        put(w, &n, &t);
        at += ((size_t)n.bytes + APART) / APART * APART;
        w->mapped_bytes += n.bytes;
    }
    return DSF_OK;
}

dsf_status dsf_weights_open_synthetic(dsf_weights *w, const dsf_config *c, bool tables)
{
    dsf_status st = take_tables(w, c);
    if (st == DSF_OK) st = name_all(w, tables);
    if (st == DSF_OK) return st;
    dsf_weights_close(w);
    return dsf_error_pass(st, DSF_HERE);
}

int64_t dsf_weights_synthetic_tables(const dsf_weights *w)
{
    int64_t sum = 0;
    for (int i = 0; i < w->n_tables; i++) sum += (int64_t)w->table_size[i];
    return sum;
}

void dsf_weights_fill_synthetic(dsf_weights *w, uint64_t seed, dsf_pool *pool)
{
    dsf_names it = dsf_names_begin(w->config);
    dsf_name n;
    int i = 0;
    while (dsf_names_next(&it, &n)) {
        if (n.role != DSF_ROLE_ENGRAM_EMBED) continue;
        filling f = {w->table[i], (size_t)n.bytes, dsf_mix64(seed + (uint64_t)i + 1), n.scale};
        dsf_pool_run(pool, (n.bytes + PIECE - 1) / PIECE, fill_piece, &f);
        i++;
    }
}

int64_t dsf_weights_reserved(const dsf_weights *w, const void *p)
{
    const uint8_t *at = p;
    bool inside = w->reserved && at >= w->reserved && at < w->reserved + w->reserved_bytes;
    return inside ? at - w->reserved : -1;
}

void dsf_weights_close(dsf_weights *w)
{
    dsf_mem_free(w->view);
    dsf_mem_free(w->experts);
    if (w->reserved) (void)munmap(w->reserved, w->reserved_bytes);
    for (int i = 0; i < w->n_tables; i++) dsf_mem_unmap(w->table[i], w->table_size[i]);
    *w = (dsf_weights){.config = w->config};
}

int dsf_weights_n_experts(const dsf_weights *w, int layer)
{
    return layer < w->config->n_layers ? w->config->n_routed_experts
                                       : w->config->dspark_n_routed_experts;
}

dsf_tensor dsf_weights_experts(const dsf_weights *w, int layer, dsf_expert_table t)
{
    return (dsf_tensor){.data = expert_row(w, layer, t),
                        .dtype = DSF_I64,
                        .rank = 1,
                        .dim = {dsf_weights_n_experts(w, layer)}};
}
