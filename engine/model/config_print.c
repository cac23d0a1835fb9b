#include <inttypes.h>
#include <stdio.h>

#include "model/config_fields.h"

static const char *name_of(const dsf_config_field *f)
{
    if (f->flat) return f->flat;
    return f->kind == FIELD_FIXED || f->kind == FIELD_ANY || f->kind == FIELD_HEAD ? NULL : f->key;
}

/* The value as JSON, which is also what the plain form shows. */
static void add_value(dsf_buf *b, const dsf_config_file *file, const dsf_config_field *f)
{
    const void *at = (const char *)file + f->at;
    const int *count = (const int *)((const char *)file + f->count_at);
    switch (f->kind) {
    case FIELD_INT:
        dsf_buf_fmt(b, "%d", *(const int *)at);
        break;
    case FIELD_LONG:
        dsf_buf_fmt(b, "%" PRId64, *(const int64_t *)at);
        break;
    case FIELD_NUM:
        if (f->null_is_zero && *(const double *)at == 0)
            dsf_buf_str(b, "null");
        else
            dsf_config_add_double(b, *(const double *)at);
        break;
    case FIELD_FLAG:
        dsf_buf_str(b, *(const bool *)at ? "true" : "false");
        break;
    case FIELD_LIST:
    case FIELD_ROWS:
        dsf_buf_char(b, '[');
        for (int i = 0; i < *count; i++) {
            if (i) dsf_buf_str(b, ", ");
            if (f->kind == FIELD_LIST)
                dsf_buf_fmt(b, "%d", ((const int *)at)[i]);
            else
                dsf_buf_fmt(b, "%" PRId64, ((const int64_t *)at)[i]);
        }
        dsf_buf_char(b, ']');
        break;
    default: /* FIELD_FIXED, FIELD_ANY */
        dsf_buf_str(b, f->fixed);
    }
}

static bool is_shown(const dsf_config *c, const dsf_config_field *f)
{
    return name_of(f) && (f->in != IN_VISION || c->vision.present);
}

/* 64-bit constants are strings: a JSON reader that makes doubles of numbers would round them. */
static void add_constants(dsf_buf *b, const dsf_config *c)
{
    dsf_json_begin(b, "engram", '[');
    for (int e = 0; e < c->n_engram; e++) {
        const dsf_engram_constants *g = &c->engram[e];
        char text[24];
        dsf_json_begin(b, NULL, '{');
        dsf_json_add_int(b, "layer", g->layer);
        dsf_json_add_int(b, "rows", g->rows);
        dsf_json_begin(b, "multipliers", '[');
        for (int k = 0; k < c->engram_max_ngram_size; k++) {
            (void)snprintf(text, sizeof text, "%" PRId64, g->multiplier[k]);
            dsf_json_add_cstr(b, NULL, text);
        }
        dsf_json_end(b, ']');
        dsf_json_begin(b, "primes", '[');
        for (int i = 0; i < dsf_config_engram_columns(c); i++)
            dsf_json_add_int(b, NULL, g->prime[i]);
        dsf_json_end(b, ']');
        dsf_json_end(b, '}');
    }
    dsf_json_end(b, ']');
}

void dsf_config_print(const dsf_config *c, dsf_buf *out)
{
    dsf_config_file file;
    dsf_config_to_file(c, &file);
    for (int i = 0; i < dsf_config_n_fields; i++) {
        const dsf_config_field *f = &dsf_config_fields[i];
        if (!is_shown(c, f)) continue;
        dsf_buf_fmt(out, "%-30s ", name_of(f));
        add_value(out, &file, f);
        dsf_buf_char(out, '\n');
    }
    for (int e = 0; e < c->n_engram; e++) {
        dsf_buf_fmt(out, "engram layer %-17d multipliers", c->engram[e].layer);
        for (int k = 0; k < c->engram_max_ngram_size; k++)
            dsf_buf_fmt(out, " %" PRId64, c->engram[e].multiplier[k]);
        dsf_buf_fmt(out, ", primes %" PRId64 " to %" PRId64 "\n", c->engram[e].prime[0],
                    c->engram[e].prime[dsf_config_engram_columns(c) - 1]);
    }
    dsf_buf_fmt(out, "%-30s %s\n", "vision", c->vision.present ? "yes" : "no");
    dsf_buf_fmt(out, "%-30s %s\n", "config digest", c->digest);
}

void dsf_config_json(const dsf_config *c, dsf_buf *out)
{
    dsf_config_file file;
    dsf_config_to_file(c, &file);
    dsf_json_begin(out, NULL, '{');
    for (int i = 0; i < dsf_config_n_fields; i++) {
        const dsf_config_field *f = &dsf_config_fields[i];
        if (!is_shown(c, f)) continue;
        dsf_buf value = {.max = 1 << 20};
        add_value(&value, &file, f);
        dsf_json_add_raw(out, name_of(f), value.data ? value.data : "null");
        dsf_buf_free(&value);
    }
    add_constants(out, c);
    dsf_json_add_bool(out, "vision", c->vision.present);
    dsf_json_add_cstr(out, "digest", c->digest);
    dsf_json_end(out, '}');
}

/* ---- the released form ---- */

static void add_section(dsf_buf *b, const dsf_config_file *file, dsf_config_section in, int depth)
{
    bool first = true;
    dsf_buf_char(b, '{');
    for (int i = 0; i < dsf_config_n_fields; i++) {
        const dsf_config_field *f = &dsf_config_fields[i];
        if (f->in != in ||
            (f->kind == FIELD_HEAD && f->opens == IN_VISION && !file->c.vision.present))
            continue;
        dsf_buf_fmt(b, "%s\n%*s\"%s\": ", first ? "" : ",", 2 * depth, "", f->key);
        first = false;
        if (f->kind == FIELD_HEAD)
            add_section(b, file, f->opens, depth + 1);
        else
            add_value(b, file, f);
    }
    dsf_buf_fmt(b, "\n%*s}", 2 * (depth - 1), "");
}

void dsf_config_write(const dsf_config *c, dsf_buf *out)
{
    dsf_config_file file;
    dsf_config_to_file(c, &file);
    add_section(out, &file, IN_TOP, 1);
    dsf_buf_char(out, '\n');
}
