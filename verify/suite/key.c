/* The digest that a verdict is known by: same digest, same question. Every part enters with its
 * name, so that an absent one differs from an empty one. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "ckpt/digest.h"
#include "config.h"
#include "verify/suite/unit.h"

typedef struct {
    dsf_digest *d;
} key;

static void add_text(const key *k, const char *name, const char *value)
{
    dsf_digest_add(k->d, name, strlen(name) + 1);
    dsf_digest_add(k->d, value ? value : "", (value ? strlen(value) : 0) + 1);
}

static void add_number(const key *k, const char *name, int64_t value)
{
    char text[24];
    (void)snprintf(text, sizeof text, "%lld", (long long)value);
    add_text(k, name, text);
}

/* A file that is not there is a part too: what is missing stands in the checks. */
static void add_file(const key *k, const char *name, const char *path)
{
    dsf_file f;
    char hex[33] = "absent";
    if (dsf_file_open(&f, path) == DSF_OK) {
        dsf_digest_bytes(f.data ? (const void *)f.data : "", f.size, hex);
        dsf_file_close(&f);
    }
    add_text(k, name, hex);
}

static void add_file_in(const key *k, const char *folder, const char *name)
{
    char path[4096];
    if (dsf_file_join(path, folder, name) == DSF_OK) add_file(k, name, path);
}

/* Suites that look at config, tokenizer or kernels alone. */
static bool reads_weights(const dsf_suite_unit *u)
{
    static dsf_suite_fn *const without[] = {dsf_suite_config_values,
                                            dsf_suite_config_leaves,
                                            dsf_suite_config_unknown,
                                            dsf_suite_prompts,
                                            dsf_suite_stream,
                                            dsf_suite_tokenizer,
                                            dsf_suite_op};
    for (size_t i = 0; i < sizeof without / sizeof *without; i++)
        if (u->run == without[i]) return false;
    return u->model != NULL;
}

static dsf_status add_model(const key *k, const dsf_verify_options *o, const char *folder,
                            bool weights, dsf_suite_model *m)
{
    DSF_TRY(dsf_suite_model_key(o, folder, weights, m));
    add_text(k, "layout", m->layout);
    add_text(k, "weights", m->weights);
    add_text(k, "chosen", m->variants);
    add_file_in(k, folder, "config.json");
    add_file_in(k, folder, "tokenizer.json");
    return DSF_OK;
}

/* Every model once, in the order of the plan. */
static dsf_status add_models(const key *k, const dsf_verify_options *o, const dsf_suite_plan *p,
                             dsf_results *r)
{
    for (int i = 0; i < p->n; i++) {
        const char *model = p->unit[i].model;
        bool seen = !model, weights = false;
        for (int j = 0; j < i && !seen; j++) seen = p->unit[j].model == model;
        if (seen) continue;
        for (int j = i; j < p->n; j++)
            weights |= p->unit[j].model == model && reads_weights(&p->unit[j]);
        DSF_TRY(dsf_mem_grow(&r->model, (size_t)r->n_models + 1, sizeof *r->model));
        DSF_TRY(add_model(k, o, model, weights, &r->model[r->n_models]));
        r->n_models++;
    }
    return DSF_OK;
}

static void add_unit(const key *k, const dsf_suite_unit *u)
{
    char file[32];
    if (!u->set) return;
    (void)snprintf(file, sizeof file, "dump-p%d.h5", u->number);
    add_file_in(k, u->set, file);
}

dsf_status dsf_suite_digest(const dsf_verify_options *o, const dsf_suite_plan *p, dsf_results *r)
{
    key k = {NULL};
    char floor[4096];
    dsf_status st;
    DSF_TRY(dsf_digest_open(&k.d));
    DSF_TRY_OUT(add_models(&k, o, p, r));
    add_text(&k, "version", DSF_VERSION);
    add_text(&k, "backend", o->backend);
    add_text(&k, "variants", o->variants);
    if (o->tokens) add_number(&k, "tokens", o->tokens);
    for (int i = 0; i < p->n; i++) {
        const dsf_suite_unit *u = &p->unit[i], *before = i ? u - 1 : NULL;
        if (!before || before->set != u->set || before->number != u->number) add_unit(&k, u);
        if (!u->set || (before && before->set == u->set)) continue;
        if (dsf_suite_floor(o, u->set, floor) != DSF_OK || !floor[0]) continue;
        add_file(&k, "floor", floor);
        if (!r->floor[0]) (void)snprintf(r->floor, sizeof r->floor, "%s", floor);
    }
    if (o->cases) add_file_in(&k, o->cases, "cases.jsonl");
    if (o->cases) add_file_in(&k, o->cases, "stream-cases.jsonl");
    for (int i = 0; i < r->n; i++) add_text(&k, "check", r->check[i].name);
    dsf_digest_hex(k.d, r->digest);
out:
    dsf_digest_close(k.d);
    return st;
}
