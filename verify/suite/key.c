/* The digest that a verdict is known by: same digest, same question. Every part enters with its
 * name, so that an absent one differs from an empty one. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "ckpt/digest.h"
#include "ckpt/index.h"
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

static void add_model(const key *k, const char *model)
{
    dsf_ckpt *c = NULL;
    char hex[33] = "unreadable";
    if (dsf_ckpt_open(&c, model) == DSF_OK && dsf_ckpt_digest(c, hex) != DSF_OK)
        (void)snprintf(hex, sizeof hex, "unreadable");
    dsf_ckpt_close(c);
    add_text(k, "layout", hex);
    add_file_in(k, model, "config.json");
    add_file_in(k, model, "tokenizer.json");
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
    DSF_TRY(dsf_digest_open(&k.d));
    add_text(&k, "version", DSF_VERSION);
    add_text(&k, "backend", o->backend);
    add_text(&k, "variants", o->variants);
    for (int i = 0; i < p->n; i++) {
        const dsf_suite_unit *u = &p->unit[i], *before = i ? u - 1 : NULL;
        if (u->model && (!before || before->model != u->model)) add_model(&k, u->model);
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
    dsf_digest_close(k.d);
    return DSF_OK;
}
