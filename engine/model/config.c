#include "model/config.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "ckpt/digest.h"
#include "ckpt/faults.h"
#include "model/config_check.h"
#include "model/config_fields.h"
#include "model/engram_hash.h"

static const char *const section_name[N_SECTIONS] = {"", "quantization_config.", "text_config.",
                                                     "text_config.rope_scaling.", "vision_config."};

typedef struct {
    dsf_config_file f;
    dsf_config_faults faults;
    const dsf_config_accept *accept;
} parser;

#define FAULT(p, field, fmt, ...)                                                                  \
    do {                                                                                           \
        dsf_faults_add(&(p)->faults.list, "%s%s: " fmt, section_name[(field)->in], (field)->key,   \
                       __VA_ARGS__);                                                               \
        mark(p, field);                                                                            \
    } while (0)

static void *place(parser *p, const dsf_config_field *f) { return (char *)&p->f + f->at; }

/* Checks of this field's value are left out: it was told already. A field that keeps no value has
 * no place, and would silence the checks of another. */
static void mark(parser *p, const dsf_config_field *f)
{
    if (f->kind != FIELD_FIXED && f->kind != FIELD_ANY && f->kind != FIELD_HEAD)
        dsf_config_mark(&p->faults, place(p, f));
}

/* What was found, as text for a message. */
static const char *found(const dsf_json *v)
{
    const char *s = dsf_json_text(v, NULL);
    if (dsf_json_kind_of(v) == DSF_JSON_BOOL) return dsf_json_true(v) ? "true" : "false";
    return *s ? s : dsf_json_kind_name(dsf_json_kind_of(v));
}

/* An integer within the field's bounds, or a fault. */
static bool take_int(parser *p, const dsf_config_field *f, const dsf_json *v, int64_t *out)
{
    if (dsf_json_int(v, out) != DSF_OK) {
        FAULT(p, f, "%.64s; an integer is needed", found(v));
        return false;
    }
    if ((double)*out >= f->min && (double)*out <= f->max) return true;
    FAULT(p, f, "%lld; allowed are %.0f to %.0f", (long long)*out, f->min, f->max);
    return false;
}

static void take_number(parser *p, const dsf_config_field *f, const dsf_json *v)
{
    double d;
    if (f->null_is_zero && dsf_json_kind_of(v) == DSF_JSON_NULL) return;
    if (dsf_json_double(v, &d) != DSF_OK) {
        FAULT(p, f, "%.64s; a finite number is needed", found(v));
        return;
    }
    if (d < f->min || d > f->max)
        FAULT(p, f, "%.64s; allowed are %s%g to %g", found(v), f->min < 1e-200 ? "more than " : "",
              f->min < 1e-200 ? 0.0 : f->min, f->max);
    else
        *(double *)place(p, f) = d;
}

static void take_list(parser *p, const dsf_config_field *f, const dsf_json *v)
{
    int *count = (int *)((char *)&p->f + f->count_at);
    size_t n = dsf_json_count(v);
    if (dsf_json_kind_of(v) != DSF_JSON_ARRAY || n > DSF_MAX_LAYERS) {
        FAULT(p, f, "%s of %zu entries; a list of at most %d is needed",
              dsf_json_kind_name(dsf_json_kind_of(v)), n, DSF_MAX_LAYERS);
        return;
    }
    for (const dsf_json *e = dsf_json_first(v); e; e = dsf_json_next(e)) {
        int64_t i;
        if (!take_int(p, f, e, &i)) return;
        if (f->kind == FIELD_LIST)
            ((int *)place(p, f))[*count] = (int)i;
        else
            ((int64_t *)place(p, f))[*count] = i;
        ++*count;
    }
}

/* Equal values: same kind; numbers by value, strings and lists by content. */
static bool equal(const dsf_json *a, const dsf_json *b)
{
    double x, y;
    if (dsf_json_kind_of(a) != dsf_json_kind_of(b)) return false;
    switch (dsf_json_kind_of(a)) {
    case DSF_JSON_BOOL:
        return dsf_json_true(a) == dsf_json_true(b);
    case DSF_JSON_NUMBER:
        return dsf_json_double(a, &x) == DSF_OK && dsf_json_double(b, &y) == DSF_OK && x == y;
    case DSF_JSON_STRING:
        return strcmp(dsf_json_text(a, NULL), dsf_json_text(b, NULL)) == 0;
    default:
        return false;
    }
}

static bool equals_fixed(const dsf_json *v, const dsf_json *want)
{
    if (dsf_json_kind_of(want) != DSF_JSON_ARRAY) return equal(v, want);
    if (dsf_json_kind_of(v) != DSF_JSON_ARRAY || dsf_json_count(v) != dsf_json_count(want))
        return false;
    const dsf_json *b = dsf_json_first(want);
    for (const dsf_json *a = dsf_json_first(v); a; a = dsf_json_next(a), b = dsf_json_next(b))
        if (!equal(a, b)) return false;
    return true;
}

static dsf_status take_fixed(parser *p, const dsf_config_field *f, const dsf_json *v)
{
    dsf_json_doc *want;
    DSF_TRY(dsf_json_parse(&want, f->key, f->fixed, strlen(f->fixed)));
    if (!equals_fixed(v, dsf_json_root(want)))
        FAULT(p, f, "%.64s; this engine knows %s only", found(v), f->fixed);
    dsf_json_free(want);
    return DSF_OK;
}

static dsf_status take_field(parser *p, const dsf_config_field *f, const dsf_json *v)
{
    int64_t i;
    switch (f->kind) {
    case FIELD_INT:
        if (f->min == -1 && dsf_json_kind_of(v) == DSF_JSON_NULL)
            *(int *)place(p, f) = -1;
        else if (take_int(p, f, v, &i))
            *(int *)place(p, f) = (int)i;
        break;
    case FIELD_LONG:
        if (take_int(p, f, v, &i)) *(int64_t *)place(p, f) = i;
        break;
    case FIELD_NUM:
        take_number(p, f, v);
        break;
    case FIELD_FLAG:
        if (dsf_json_kind_of(v) != DSF_JSON_BOOL)
            FAULT(p, f, "%.64s; true or false is needed", found(v));
        *(bool *)place(p, f) = dsf_json_true(v);
        break;
    case FIELD_LIST:
    case FIELD_ROWS:
        take_list(p, f, v);
        break;
    case FIELD_FIXED:
        DSF_TRY(take_fixed(p, f, v));
        break;
    default: /* FIELD_ANY: no meaning; FIELD_HEAD: taken as a section */
        break;
    }
    return DSF_OK;
}

static bool is_known(dsf_config_section in, const char *key)
{
    for (int i = 0; i < dsf_config_n_fields; i++)
        if (dsf_config_fields[i].in == in && strcmp(dsf_config_fields[i].key, key) == 0)
            return true;
    return false;
}

static bool is_accepted(const dsf_config_accept *a, const char *key)
{
    for (int i = 0; a && i < a->n; i++)
        if (strcmp(a->key[i], key) == 0) return true;
    return false;
}

static void refuse_strangers(parser *p, dsf_config_section in, const dsf_json *object)
{
    for (const dsf_json *m = dsf_json_first(object); m; m = dsf_json_next(m)) {
        const char *key = dsf_json_key(m);
        if (dsf_json_get(object, key) != m)
            dsf_faults_add(&p->faults.list, "%s%.64s: occurs twice", section_name[in], key);
        else if (!is_known(in, key) && !is_accepted(p->accept, key))
            dsf_faults_add(&p->faults.list,
                           "%s%.64s: unknown key (it can be accepted by name, and is then ignored)",
                           section_name[in], key);
    }
}

/* object[section]: the JSON object of each section, NULL when it is not there. */
static dsf_status take_sections(parser *p, const dsf_json *root)
{
    const dsf_json *object[N_SECTIONS] = {[IN_TOP] = root};
    refuse_strangers(p, IN_TOP, root);
    for (int i = 0; i < dsf_config_n_fields; i++) {
        const dsf_config_field *f = &dsf_config_fields[i];
        if (!object[f->in]) { /* told once, for the section */
            mark(p, f);
            continue;
        }
        const dsf_json *v = dsf_json_get(object[f->in], f->key);
        if (!v) {
            if (!f->optional) FAULT(p, f, "%s", "missing");
            continue;
        }
        if (f->kind != FIELD_HEAD) {
            DSF_TRY(take_field(p, f, v));
            continue;
        }
        if (dsf_json_kind_of(v) != DSF_JSON_OBJECT) {
            if (!f->optional || dsf_json_kind_of(v) != DSF_JSON_NULL)
                FAULT(p, f, "%.64s; an object is needed", found(v));
            continue;
        }
        object[f->opens] = v;
        refuse_strangers(p, f->opens, v);
    }
    p->f.c.vision.present = object[IN_VISION] != NULL;
    return DSF_OK;
}

/* Constants cost a prime search, so they are made only from a config that is otherwise sound. */
static dsf_status finish_engram(parser *p)
{
    dsf_config *c = &p->f.c;
    c->n_engram = p->f.n_engram_layers;
    for (int i = 0; i < c->n_engram; i++) c->engram[i].layer = p->f.engram_layer[i];
    DSF_TRY(dsf_engram_constants_make(c));
    for (int i = 0; i < c->n_engram; i++)
        if (c->engram[i].rows != p->f.engram_rows[i])
            dsf_faults_add(&p->faults.list,
                           "text_config.engram_num_embeddings[%d]: %lld, but the primes from "
                           "engram_vocab_size %lld sum to %lld for layer %d",
                           i, (long long)p->f.engram_rows[i], (long long)c->engram_vocab_size,
                           (long long)c->engram[i].rows, c->engram[i].layer);
    return DSF_OK;
}

static dsf_status parse(parser *p, const char *name, const char *text, size_t n)
{
    dsf_json_doc *doc = NULL;
    dsf_status st;
    DSF_TRY(dsf_json_parse(&doc, name, text, n));
    const dsf_json *root = dsf_json_root(doc);
    if (dsf_json_kind_of(root) != DSF_JSON_OBJECT)
        dsf_faults_add(&p->faults.list, "the file holds %s, not an object",
                       dsf_json_kind_name(dsf_json_kind_of(root)));
    else
        DSF_TRY_OUT(take_sections(p, root));
    if (dsf_json_kind_of(root) == DSF_JSON_OBJECT) dsf_config_check(&p->f, &p->faults);
    if (!p->faults.list.n) DSF_TRY_OUT(finish_engram(p));
    DSF_TRY_OUT(dsf_faults_status(&p->faults.list, DSF_ECORRUPT, name));
    dsf_digest_bytes(text, n, p->f.c.digest);
out:
    dsf_json_free(doc);
    return st;
}

dsf_status dsf_config_parse(dsf_config *c, const char *name, const char *text, size_t n,
                            const dsf_config_accept *accept)
{
    parser p = {.accept = accept};
    dsf_status st = parse(&p, name, text, n);
    if (st == DSF_OK) *c = p.f.c;
    dsf_faults_free(&p.faults.list);
    return st;
}

dsf_status dsf_config_load(dsf_config *c, const char *path, const dsf_config_accept *accept)
{
    enum { CONFIG_MAX = 16 << 20 };
    dsf_file f;
    DSF_TRY(dsf_file_open(&f, path));
    dsf_status st =
        f.size > CONFIG_MAX
            ? DSF_FAIL(DSF_ECORRUPT, "%s: %zu bytes, at most %d", path, f.size, CONFIG_MAX)
            : dsf_config_parse(c, path, (const char *)f.data, f.size, accept);
    dsf_file_close(&f);
    return st;
}
