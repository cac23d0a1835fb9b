#include "verify/reduce/candidate.h"

#include <stdio.h>
#include <string.h>

#include "op.h"

const char *dsf_reduce_outcome_name(dsf_reduce_outcome o)
{
    static const char *const name[] = {"good", "fails", "could not"};
    return name[o];
}

int64_t dsf_candidate_length(const dsf_candidate *c, unsigned axes)
{
    if (axes & DSF_AXIS_IDS) return c->n_ids;
    return axes & DSF_AXIS_LENGTH ? c->length : 0;
}

/* Digits alone, to what follows them; NULL when there are none, or more than 64 bits hold. */
static const char *read_digits(const char *text, int64_t *out)
{
    const char *at = text;
    int64_t v = 0;
    for (; *at >= '0' && *at <= '9'; at++) {
        if (v > (INT64_MAX - (*at - '0')) / 10) return NULL;
        v = v * 10 + (*at - '0');
    }
    *out = v;
    return at > text ? at : NULL;
}

dsf_status dsf_candidate_range(const char *name, const char *text, int64_t range[2])
{
    int64_t a = 0, b = -1;
    bool good = !text;
    const char *end = text ? read_digits(text, &a) : NULL;
    if (end) {
        b = a;
        if (*end == '-') end = read_digits(end + 1, &b);
        good = end && !*end && b >= a;
    }
    if (!good) return DSF_FAIL(DSF_EINVAL, "%s %s: a number, or two with a dash", name, text);
    range[0] = a;
    range[1] = b;
    return DSF_OK;
}

/* ---- kernel variants ---- */

static bool has_variant(const dsf_op *op, unsigned machine)
{
    for (int k = 1; k < op->n_variants; k++)
        if (dsf_variant_runs(&op->variant[k], machine)) return true;
    return false;
}

int dsf_variant_names(const char *name[64])
{
    int n = 0;
    for (int i = 0; i < dsf_n_ops && n < 64; i++)
        if (has_variant(dsf_ops[i], dsf_machine())) name[n++] = dsf_ops[i]->name;
    return n;
}

static void mask_out(const dsf_op *op, dsf_buf *b)
{
    for (int k = 1; k < op->n_variants; k++)
        if (op->variant[k].run)
            dsf_buf_fmt(b, "%s-%s:%s", b->len ? "," : "", op->variant[k].name, op->name);
}

void dsf_variant_mask(uint64_t fast, dsf_buf *b)
{
    const char *name[64];
    int n = dsf_variant_names(name);
    dsf_buf mask = {.max = 1 << 16};
    for (int i = 0; i < n; i++)
        if (!(fast >> i & 1)) mask_out(dsf_op_find(name[i]), &mask);
    dsf_buf_str(b, fast || n == 0 ? (mask.data ? mask.data : "") : "ref");
    dsf_buf_free(&mask);
}

/* Does the mask's item [at, at + n) take kernels of this operation away? */
static bool item_masks(const char *at, size_t n, const char *op)
{
    const char *colon = memchr(at, ':', n);
    size_t left = colon ? n - (size_t)(colon - at) - 1 : 0;
    return !colon || (strlen(op) == left && memcmp(colon + 1, op, left) == 0);
}

dsf_status dsf_variant_parse(const char *mask, uint64_t *fast)
{
    const char *name[64];
    int n = dsf_variant_names(name);
    *fast = n == 64 ? UINT64_MAX : ((uint64_t)1 << n) - 1;
    if (strcmp(mask, "ref") == 0) *fast = 0;
    if (*fast == 0) return DSF_OK;
    for (const char *at = mask; *at;) {
        size_t len = strcspn(at, ",");
        if (at[0] != '-' || len < 2)
            return DSF_FAIL(DSF_EINVAL,
                            "kernel mask \"%s\": neither \"ref\" nor -VARIANT nor -VARIANT:OP",
                            mask);
        for (int i = 0; i < n; i++)
            if (item_masks(at, len, name[i])) *fast &= ~((uint64_t)1 << i);
        at += len + (at[len] == ',');
    }
    return DSF_OK;
}

/* ---- text ---- */

static void add_range(dsf_buf *b, const char *key, const int64_t range[2])
{
    dsf_json_begin(b, key, '[');
    dsf_json_add_int(b, NULL, range[0]);
    dsf_json_add_int(b, NULL, range[1]);
    dsf_json_end(b, ']');
}

static void add_variants(const dsf_candidate *c, dsf_buf *b)
{
    dsf_buf mask = {.max = 1 << 16};
    dsf_variant_mask(c->fast, &mask);
    dsf_json_add_cstr(b, "variants", mask.data ? mask.data : "");
    dsf_buf_free(&mask);
}

void dsf_candidate_json(const dsf_candidate *c, unsigned axes, dsf_buf *b)
{
    if (axes & DSF_AXIS_IDS) {
        dsf_json_begin(b, "ids", '[');
        for (int64_t i = 0; i < c->n_ids; i++) dsf_json_add_int(b, NULL, c->ids[i]);
        dsf_json_end(b, ']');
    }
    if (axes & DSF_AXIS_LENGTH && !(axes & DSF_AXIS_IDS)) dsf_json_add_int(b, "length", c->length);
    if (axes & (DSF_AXIS_LAYERS | DSF_AXIS_MODEL)) add_range(b, "layers", c->layers);
    if (axes & DSF_AXIS_ROWS) add_range(b, "rows", c->rows);
    if (axes & DSF_AXIS_CHUNK) dsf_json_add_int(b, "chunk", c->chunk);
    if (axes & DSF_AXIS_BATCH) dsf_json_add_int(b, "batch", c->batch);
    if (axes & DSF_AXIS_VARIANTS) add_variants(c, b);
}

static void say_variants(const dsf_candidate *c, dsf_buf *b)
{
    const char *name[64];
    int n = dsf_variant_names(name), on = 0;
    for (int i = 0; i < n; i++) on += (int)(c->fast >> i & 1);
    if (on == 0) dsf_buf_str(b, ", reference kernels");
    if (on == n && n) dsf_buf_str(b, ", all fast kernels");
    if (on == 0 || on == n) return;
    dsf_buf_str(b, ", fast kernel of");
    for (int i = 0; i < n; i++)
        if (c->fast >> i & 1) dsf_buf_fmt(b, " %s", name[i]);
}

void dsf_candidate_words(const dsf_candidate *c, unsigned axes, dsf_buf *b)
{
    dsf_buf w = {.max = 1 << 16};
    int64_t length = dsf_candidate_length(c, axes);
    if (length) dsf_buf_fmt(&w, ", %lld token%s", (long long)length, length == 1 ? "" : "s");
    if (axes & DSF_AXIS_LAYERS)
        dsf_buf_fmt(&w, ", layers %lld-%lld", (long long)c->layers[0], (long long)c->layers[1]);
    else if (axes & DSF_AXIS_MODEL)
        dsf_buf_fmt(&w, ", %lld layers", (long long)c->layers[1] + 1);
    if (axes & DSF_AXIS_ROWS)
        dsf_buf_fmt(&w, ", rows %lld-%lld", (long long)c->rows[0], (long long)c->rows[1]);
    if (axes & DSF_AXIS_CHUNK && c->chunk == DSF_CHUNK_WHOLE) dsf_buf_str(&w, ", one chunk");
    if (axes & DSF_AXIS_CHUNK && c->chunk != DSF_CHUNK_WHOLE)
        dsf_buf_fmt(&w, ", chunk %lld", (long long)c->chunk);
    if (axes & DSF_AXIS_BATCH) dsf_buf_fmt(&w, ", batch %lld", (long long)c->batch);
    if (axes & DSF_AXIS_VARIANTS) say_variants(c, &w);
    dsf_buf_str(b, w.len > 2 ? w.data + 2 : "");
    dsf_buf_free(&w);
}
