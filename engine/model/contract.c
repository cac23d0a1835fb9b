#include "model/contract.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/share.h"
#include "model/contract_scan.h"

typedef struct {
    const dsf_ckpt *k;
    dsf_scan scan;
    dsf_contract *out;
} checker;

const char *dsf_contract_fault_name(dsf_fault f)
{
    static const char *const text[] = {
#define X(id, words) words,
        DSF_FAULT_MAP(X)
#undef X
    };
    return text[f];
}

typedef struct {
    char text[112];
} shape_text;

static shape_text describe(dsf_dtype dtype, int rank, const int64_t *dim)
{
    shape_text s;
    size_t n = (size_t)snprintf(s.text, sizeof s.text, "%s [", dsf_safetensors_dtype(dtype));
    for (int i = 0; i < rank; i++)
        n += (size_t)snprintf(s.text + n, sizeof s.text - n, "%s%" PRId64, i ? ", " : "", dim[i]);
    (void)snprintf(s.text + n, sizeof s.text - n, "]");
    return s;
}

static void add(checker *c, dsf_fault kind, const char *name, const char *text)
{
    c->out->count[kind]++;
    dsf_faults_add(&c->out->faults, "%s %s: %s", dsf_contract_fault_name(kind), name, text);
}

static const char *shard_of(const checker *c, const dsf_ckpt_entry *e)
{
    const char *path = dsf_ckpt_shard_path(c->k, e->shard), *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* "mtp.<stage>.embed..." or "mtp.<stage>.head...". */
static bool is_tied(const char *name)
{
    int end = 0;
    if (sscanf(name, "mtp.%*[0-9].%n", &end) != 0 || !end) return false;
    return strncmp(name + end, "embed.", 6) == 0 || strncmp(name + end, "head.", 5) == 0;
}

static void add_extra(checker *c, const dsf_ckpt_entry *e)
{
    char text[256];
    if (is_tied(e->name)) {
        c->out->ignored++;
        return;
    }
    shape_text s = describe(e->view.dtype, e->view.rank, e->view.dim);
    (void)snprintf(text, sizeof text, "%s, in %.100s", s.text, shard_of(c, e));
    add(c, DSF_FAULT_EXTRA, e->name, text);
}

static void add_missing(checker *c, const dsf_name *n)
{
    shape_text s = describe(n->dtype, n->rank, n->dim);
    add(c, DSF_FAULT_MISSING, n->name, s.text);
}

static void scan_values(checker *c, const dsf_name *n, const dsf_ckpt_entry *e)
{
    static const char *const what[] = {[DSF_E8M0] = "scale bytes are 255 (NaN)",
                                       [DSF_E4M3] = "codes are NaN",
                                       [DSF_BF16] = "values are not finite",
                                       [DSF_F32] = "values are not finite"};
    char text[256];
    if (c->scan == DSF_SCAN_NONE || (c->scan == DSF_SCAN_SCALES && !n->scale)) return;
    dsf_scan_result r = dsf_scan_tensor(&e->view);
    if (n->scale && r.high >= 0) {
        int *low = &c->out->scale_min[n->role], *high = &c->out->scale_max[n->role];
        if (*high < 0 || r.low < *low) *low = r.low;
        if (r.high > *high) *high = r.high;
    }
    if (!r.bad) return;
    (void)snprintf(text, sizeof text,
                   "%" PRId64 " of %" PRId64 " %s, the first at %" PRId64 ", in %.100s", r.bad,
                   dsf_tensor_count(&e->view), what[e->view.dtype], r.first, shard_of(c, e));
    add(c, DSF_FAULT_VALUE, n->name, text);
}

static void compare(checker *c, const dsf_name *n, const dsf_ckpt_entry *e)
{
    char text[400];
    bool type = n->dtype == e->view.dtype, shape = n->rank == e->view.rank;
    for (int i = 0; shape && i < n->rank; i++) shape = n->dim[i] == e->view.dim[i];
    if (type && shape) {
        c->out->matched++;
        scan_values(c, n, e);
        return;
    }
    shape_text want = describe(n->dtype, n->rank, n->dim);
    shape_text have = describe(e->view.dtype, e->view.rank, e->view.dim);
    (void)snprintf(text, sizeof text, "%s, the config needs %s, in %.100s", have.text, want.text,
                   shard_of(c, e));
    add(c, type ? DSF_FAULT_MISSHAPEN : DSF_FAULT_MISTYPED, n->name, text);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const dsf_name *)a)->name, ((const dsf_name *)b)->name);
}

static dsf_status list_expected(const dsf_config *c, dsf_name **out, int64_t *n)
{
    dsf_name name;
    dsf_names it = dsf_names_begin(c);
    *n = 0;
    while (dsf_names_next(&it, &name)) ++*n;
    DSF_TRY(dsf_mem_new(out, (size_t)*n, sizeof **out));
    it = dsf_names_begin(c);
    for (int64_t i = 0; i < *n; i++) (void)dsf_names_next(&it, &(*out)[i]);
    qsort(*out, (size_t)*n, sizeof **out, by_name);
    return DSF_OK;
}

/* Both lists ascend by name: one merge. */
static void merge(checker *c, const dsf_name *want, int64_t n)
{
    int64_t i = 0, j = 0, m = dsf_ckpt_count(c->k);
    while (i < n || j < m) {
        const dsf_ckpt_entry *e = j < m ? dsf_ckpt_at(c->k, j) : NULL;
        int d = i == n ? 1 : !e ? -1 : strcmp(want[i].name, e->name);
        if (d < 0)
            add_missing(c, &want[i]);
        else if (d > 0)
            add_extra(c, e);
        else
            compare(c, &want[i], e);
        i += d <= 0;
        j += d >= 0;
    }
}

static void check_total(checker *c)
{
    char text[128];
    int64_t said = dsf_ckpt_total_size(c->k), held = dsf_ckpt_bytes(c->k);
    if (said < 0 || said == held) return;
    (void)snprintf(text, sizeof text, "the index says %" PRId64 ", the shards hold %" PRId64, said,
                   held);
    add(c, DSF_FAULT_TOTAL, "metadata", text);
}

void dsf_contract_parts(const dsf_config *c, int64_t *bytes, int64_t *tensors)
{
    dsf_name name;
    dsf_names it = dsf_names_begin(c);
    for (int i = 0; i < DSF_N_PARTS; i++) bytes[i] = tensors[i] = 0;
    while (dsf_names_next(&it, &name)) {
        bytes[name.part] += name.bytes;
        tensors[name.part]++;
    }
}

int64_t dsf_contract_share(const dsf_config *c, const int64_t *bytes, int part, int64_t ranks)
{
    int64_t experts = part == DSF_PART_EXPERTS         ? c->n_routed_experts
                      : part == DSF_PART_DRAFT_EXPERTS ? c->dspark_n_routed_experts
                                                       : 0;
    if (experts) return bytes[part] / experts * dsf_share(experts, ranks);
    if (part != DSF_PART_TABLES) return bytes[part];
    int64_t row = c->engram_head_dim + c->engram_head_dim / 32, sum = 0;
    for (int e = 0; e < c->n_engram; e++) sum += dsf_share(c->engram[e].rows, ranks) * row;
    return sum;
}

int64_t dsf_contract_scale_bytes(const dsf_config *c)
{
    int64_t bytes = 0;
    dsf_name name;
    dsf_names it = dsf_names_begin(c);
    while (dsf_names_next(&it, &name)) bytes += name.scale ? name.bytes : 0;
    return bytes;
}

dsf_status dsf_contract_check(const dsf_config *c, const dsf_ckpt *k, dsf_scan scan,
                              dsf_contract *out)
{
    checker ch = {.k = k, .scan = scan, .out = out};
    dsf_name *want = NULL;
    *out = (dsf_contract){.scanned = scan};
    for (int i = 0; i < DSF_N_ROLES; i++) out->scale_max[i] = -1;
    DSF_TRY(list_expected(c, &want, &out->expected));
    dsf_contract_parts(c, out->part_bytes, out->part_tensors);
    merge(&ch, want, out->expected);
    check_total(&ch);
    dsf_mem_free(want);
    return dsf_buf_status(&out->faults.text);
}

dsf_status dsf_contract_status(const dsf_contract *r, const char *folder)
{
    return dsf_faults_status(&r->faults, DSF_ECORRUPT, folder);
}

void dsf_contract_free(dsf_contract *r) { dsf_faults_free(&r->faults); }
