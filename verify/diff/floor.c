#include "verify/diff/floor.h"

#include <libgen.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "ckpt/index.h"
#include "verify/diff/floor_rule.h"
#include "verify/diff/sha256.h"

struct dsf_floor {
    char path[4096], name[160], set[64], prompt[16];
    dsf_json_doc *doc;
    const dsf_json *root;
    bool official;
};

dsf_status dsf_floor_open(dsf_floor **out, const char *path)
{
    *out = NULL;
    dsf_floor *f = NULL;
    dsf_file file = {0};
    dsf_status st = DSF_OK;
    DSF_TRY(dsf_mem_new(&f, 1, sizeof *f));
    DSF_TRY_OUT(dsf_file_open(&file, path));
    DSF_TRY_OUT(dsf_json_parse(&f->doc, path, (const char *)file.data, file.size));
    (void)snprintf(f->path, sizeof f->path, "%s", path);
    f->root = dsf_json_root(f->doc);
    if (!dsf_json_get(f->root, "results") ||
        !dsf_json_get(f->root, "recommended_limits_injected_mode")) {
        st = DSF_FAIL(DSF_ECORRUPT,
                      "%s: not a noise floor: no results, no recommended_limits_injected_mode",
                      path);
        goto out;
    }
    f->official = !dsf_json_get(f->root, "binding");
    DSF_TRY_OUT(dsf_floor_check_manifest(path, file.data, file.size));
    DSF_TRY_OUT(dsf_floor_check_limits(path, f->root, f->official));
    *out = f;
    f = NULL;
out:
    dsf_file_close(&file);
    dsf_floor_close(f);
    return st;
}

void dsf_floor_close(dsf_floor *f)
{
    if (!f) return;
    dsf_json_free(f->doc);
    dsf_mem_free(f);
}

const char *dsf_floor_name(const dsf_floor *f) { return f->name; }
bool dsf_floor_official(const dsf_floor *f) { return f->official; }

/* "p0" from the file's name (dump-p0.h5), else from its notes ("prompt p0; ..."). */
static void find_prompt(char out[16], const dsf_dump_info *info)
{
    char path[4096];
    (void)snprintf(path, sizeof path, "%s", info->path);
    const char *at = strstr(basename(path), "dump-p");
    if (at) at += 5;
    if (!at && (at = strstr(info->notes, "prompt p")) != NULL) at += 7;
    int n = at ? (int)strspn(at + 1, "0123456789") : 0;
    out[0] = 0;
    if (n > 0 && n < 14) (void)snprintf(out, 16, "%.*s", n + 1, at);
}

/* Whether any measurement names this set. */
static bool has_set(const dsf_floor *f, const char *set)
{
    size_t n = strlen(set);
    const dsf_json *list = dsf_json_get(f->root, "results");
    for (const dsf_json *v = dsf_json_first(list); v; v = dsf_json_next(v))
        if (strncmp(dsf_json_key(v), set, n) == 0 && dsf_json_key(v)[n] == '/') return true;
    return false;
}

/* JSON without the white space between its tokens, for comparing two writings of one document. */
static void squeeze(dsf_buf *out, const char *text, size_t n)
{
    bool quoted = false;
    for (size_t i = 0; i < n; i++) {
        char c = text[i];
        if (quoted && c == '\\' && i + 1 < n) {
            dsf_buf_add(out, text + i++, 2);
            continue;
        }
        if (c == '"') quoted = !quoted;
        if (quoted || !strchr(" \t\r\n", c)) dsf_buf_char(out, c);
    }
}

/* The official floor belongs to the folders beside it: same config as the set's config.json. */
static dsf_status bind_folder(const dsf_floor *f, const dsf_dump_info *info)
{
    char folder[4096], path[4096], relative[96];
    (void)snprintf(path, sizeof path, "%s", f->path);
    (void)snprintf(folder, sizeof folder, "%s", dirname(path));
    (void)snprintf(relative, sizeof relative, "%s/config.json", f->set);
    DSF_TRY(dsf_file_join(path, folder, relative));
    dsf_file file = {0};
    dsf_buf theirs = {0}, ours = {0};
    dsf_status st = DSF_OK;
    DSF_TRY_OUT(dsf_file_open(&file, path));
    squeeze(&theirs, (const char *)file.data, file.size);
    squeeze(&ours, info->config_json, strlen(info->config_json));
    DSF_TRY_OUT(dsf_buf_status(&theirs));
    DSF_TRY_OUT(dsf_buf_status(&ours));
    if (theirs.len != ours.len || (ours.len && memcmp(theirs.data, ours.data, ours.len) != 0))
        st = DSF_FAIL(DSF_EINVAL,
                      "%s: measured on the model of %s, whose config is not the one in %s", f->path,
                      path, info->path);
out:
    dsf_file_close(&file);
    dsf_buf_free(&theirs);
    dsf_buf_free(&ours);
    return st;
}

static dsf_status check_bound(const dsf_floor *f, const dsf_json *binding, const char *key,
                              const char *have)
{
    const dsf_json *v = dsf_json_get(binding, key);
    if (!v)
        return DSF_FAIL(DSF_EINVAL, "%s: its binding names no %s (this reference has %.80s)",
                        f->path, key, *have ? have : "(none)");
    const char *want = dsf_json_text(v, NULL);
    if (strcmp(want, have) == 0) return DSF_OK;
    return DSF_FAIL(DSF_EINVAL, "%s: bound to %s %.80s; this reference has %.80s", f->path, key,
                    want, *have ? have : "(none)");
}

static bool names_prompt(const dsf_json *prompts, const char *prompt)
{
    for (const dsf_json *v = dsf_json_first(prompts); v; v = dsf_json_next(v))
        if (strcmp(dsf_json_text(v, NULL), prompt) == 0) return true;
    return false;
}

/* The inputs of one prompt, as the digest reads them. */
static dsf_status add_inputs(dsf_buf *b, const char *path)
{
    dsf_dump_file *f = NULL;
    dsf_dump_array embed = {0};
    int32_t *ids = NULL, *mask = NULL;
    int64_t n, n_mask;
    dsf_status st = DSF_OK;
    DSF_TRY_OUT(dsf_dump_open(&f, path));
    DSF_TRY_OUT(dsf_dump_read_axis(f, "token_ids", &ids, &n));
    DSF_TRY_OUT(dsf_dump_read_axis(f, "image_mask", &mask, &n_mask));
    dsf_buf_add(b, ids, (size_t)n * sizeof *ids);
    if (mask) {
        DSF_TRY_OUT(dsf_dump_read(f, "embed", &embed));
        for (int64_t i = 0; i < n_mask; i++) dsf_buf_char(b, (char)mask[i]);
        dsf_buf_add(b, embed.f, (size_t)(embed.n * embed.width) * sizeof *embed.f);
    }
out:
    dsf_dump_array_free(&embed);
    dsf_mem_free(ids);
    dsf_mem_free(mask);
    dsf_dump_close(f);
    return st;
}

static dsf_status check_prompts(const dsf_floor *f, const dsf_json *binding,
                                const dsf_dump_info *info)
{
    const dsf_json *prompts = dsf_json_get(binding, "prompts");
    if (prompts && !names_prompt(prompts, f->prompt))
        return DSF_FAIL(DSF_EINVAL, "%s: measured on other prompts than %s (%s)", f->path,
                        *f->prompt ? f->prompt : "(none)", info->path);
    if (!prompts || !dsf_json_get(binding, "prompts_digest")) return DSF_OK;
    dsf_buf inputs = {0};
    dsf_status st = DSF_OK;
    char folder[4096], path[4096], name[64], digest[65];
    (void)snprintf(path, sizeof path, "%s", info->path);
    (void)snprintf(folder, sizeof folder, "%s", dirname(path));
    for (const dsf_json *v = dsf_json_first(prompts); v; v = dsf_json_next(v)) {
        (void)snprintf(name, sizeof name, "dump-%.40s.h5", dsf_json_text(v, NULL));
        DSF_TRY_OUT(dsf_file_join(path, folder, name));
        if (!dsf_file_exists(path)) goto out; /* a reference that was copied alone */
        DSF_TRY_OUT(add_inputs(&inputs, path));
    }
    DSF_TRY_OUT(dsf_buf_status(&inputs));
    dsf_sha256_hex(inputs.data, inputs.len, digest);
    st = check_bound(f, binding, "prompts_digest", digest);
out:
    dsf_buf_free(&inputs);
    return st;
}

/* Rows behind the prompt are decoded ones: another class of tokens. */
static const char *token_class(const dsf_dump_info *info)
{
    return info->prompt_length < info->n_tokens ? "prefill+decode" : "prefill";
}

static dsf_status bind_digests(const dsf_floor *f, const dsf_dump_info *info)
{
    const dsf_json *binding = dsf_json_get(f->root, "binding");
    char config[65];
    dsf_sha256_hex(info->config_json, strlen(info->config_json), config);
    DSF_TRY(check_bound(f, binding, "model", info->model));
    DSF_TRY(check_bound(f, binding, "model_digest", info->checkpoint_digest));
    DSF_TRY(check_bound(f, binding, "reference_digest", info->plan_digest));
    DSF_TRY(check_bound(f, binding, "config_sha256", config));
    DSF_TRY(check_bound(f, binding, "producer", info->producer));
    DSF_TRY(check_bound(f, binding, "backend", info->backend));
    DSF_TRY(check_bound(f, binding, "token_class", token_class(info)));
    return check_prompts(f, binding, info);
}

/* Ours says which weights it ran on; they must be those of the folder that was measured. */
static dsf_status bind_weights(const dsf_floor *f, const dsf_dump_info *ours)
{
    char folder[4096], path[4096], digest[33];
    dsf_ckpt *ckpt = NULL;
    dsf_status st = DSF_OK;
    if (strlen(ours->checkpoint_digest) != 32) return DSF_OK; /* of another engine: not said */
    (void)snprintf(path, sizeof path, "%s", f->path);
    (void)snprintf(folder, sizeof folder, "%s", dirname(path));
    DSF_TRY(dsf_file_join(path, folder, f->set));
    DSF_TRY_OUT(dsf_ckpt_open(&ckpt, path));
    DSF_TRY_OUT(dsf_ckpt_digest(ckpt, digest));
    if (strcmp(digest, ours->checkpoint_digest) != 0)
        st = DSF_FAIL(DSF_EINVAL, "%s: measured on the weights %s of %s; %s was made with %s",
                      f->path, digest, path, ours->path, ours->checkpoint_digest);
out:
    dsf_ckpt_close(ckpt);
    return st;
}

dsf_status dsf_floor_bind(dsf_floor *f, const dsf_dump_file *reference, const dsf_dump_file *ours)
{
    const dsf_dump_info *info = dsf_dump_info_of(reference);
    (void)snprintf(f->set, sizeof f->set, "%s", info->model);
    find_prompt(f->prompt, info);
    (void)snprintf(f->name, sizeof f->name, "%s limits, %s/%s",
                   f->official ? "official" : "project", f->set, f->prompt);
    if (!has_set(f, f->set))
        return DSF_FAIL(DSF_EINVAL, "%s: holds no measurement of model %s (%s)", f->path,
                        *f->set ? f->set : "(none)", info->path);
    if (!f->official) return bind_digests(f, info);
    DSF_TRY(bind_folder(f, info));
    return ours ? bind_weights(f, dsf_dump_info_of(ours)) : DSF_OK;
}

static double field(const dsf_json *tap, const char *key)
{
    const dsf_json *v = dsf_json_get(tap, key);
    double d = 0.0;
    /* a measurement without this figure adds nothing to the maximum */
    if (v && dsf_json_double(v, &d) != DSF_OK) d = 0.0;
    return d;
}

static void widen(double *to, double v) { *to = v > *to ? v : *to; }

static void add_run(dsf_floor_noise *n, const dsf_json *run, const char *kind)
{
    const dsf_json *tap = dsf_json_get(dsf_json_get(run, "by_tap"), kind);
    if (!tap) return;
    n->known = true;
    n->runs++;
    widen(&n->rel_l2, field(tap, "rel_l2_max"));
    widen(&n->row_median, field(tap, "row_median_max"));
    widen(&n->row_max, field(tap, "row_max"));
    widen(&n->max_abs, field(tap, "max_abs"));
    widen(&n->changed, field(tap, "changed_fraction_max"));
}

static bool flipped(const dsf_json *run)
{
    const dsf_json *flips = dsf_json_get(run, "flips");
    return field(flips, "topk_flips") + field(flips, "expert_flips") + field(flips, "pool_flips") >
           0.0;
}

static void add_pair(const dsf_floor *f, dsf_floor_kind *k, const dsf_json *runs, const char *set,
                     const char *kind)
{
    char own[96];
    (void)snprintf(own, sizeof own, "%s/%s", f->set, f->prompt);
    const dsf_json *exact = dsf_json_get(runs, "per_layer_from_exact_input");
    if (strcmp(set, own) == 0) {
        add_run(&k->own, exact, kind);
        add_run(&k->carried, dsf_json_get(runs, "free_running"), kind);
    }
    if (exact && !flipped(exact)) add_run(&k->pooled, exact, kind);
    add_run(&k->every, exact, kind);
}

/* results[set][variant] and other_builds[build][set] hold the same pair of runs. */
static void gather(const dsf_floor *f, dsf_floor_kind *k, const char *kind)
{
    const dsf_json *list = dsf_json_get(f->root, "results");
    for (const dsf_json *set = dsf_json_first(list); set; set = dsf_json_next(set))
        for (const dsf_json *v = dsf_json_first(set); v; v = dsf_json_next(v))
            add_pair(f, k, v, dsf_json_key(set), kind);
    list = dsf_json_get(f->root, "other_builds");
    if (!list) return;
    for (const dsf_json *build = dsf_json_first(list); build; build = dsf_json_next(build))
        for (const dsf_json *set = dsf_json_first(build); set; set = dsf_json_next(set))
            add_pair(f, k, set, dsf_json_key(set), kind);
}

/* The rule that the official file states for its own limits: 4 x the largest noise, not below
 * 2e-4 / 1e-4 for bf16 taps and 2e-6 / 1e-6 for float32 taps. Used for kinds it lists no limit of.
 */
static double by_rule(double noise, double least)
{
    return 4.0 * noise > least ? 4.0 * noise : least;
}

/* Carried noise up to one layer behind this one: in which layer a first choice flips is chance, how
 * far the noise has come by then is not. */
static void narrow(const dsf_floor *f, dsf_floor_kind *k, const char *kind, int layer)
{
    char own[96];
    double rel = 0.0, row = 0.0;
    bool known = false;
    (void)snprintf(own, sizeof own, "%s/%s", f->set, f->prompt);
    const dsf_json *set = dsf_json_get(dsf_json_get(f->root, "results"), own);
    for (const dsf_json *v = set ? dsf_json_first(set) : NULL; v; v = dsf_json_next(v)) {
        const dsf_json *run = dsf_json_get(v, "free_running");
        const dsf_json *list = dsf_json_get(dsf_json_get(run, "by_layer"), kind);
        const dsf_json *one = list ? dsf_json_first(list) : NULL;
        for (int l = 0; one && l <= layer + 1; one = dsf_json_next(one), l++) {
            const dsf_json *a = dsf_json_first(one);
            double d = 0.0;
            if (!a) continue; /* null: that layer has no such tap */
            if (dsf_json_double(a, &d) == DSF_OK) widen(&rel, d);
            if (dsf_json_next(a) && dsf_json_double(dsf_json_next(a), &d) == DSF_OK) widen(&row, d);
            known = true;
        }
    }
    if (!known) return;
    k->carried.rel_l2 = rel;
    k->carried.row_max = row;
}

bool dsf_floor_get(const dsf_floor *f, const char *kind, int layer, bool is_f32,
                   dsf_floor_kind *out)
{
    *out = (dsf_floor_kind){0};
    gather(f, out, kind);
    if (layer >= 0 && out->carried.known) narrow(f, out, kind, layer);
    const dsf_json *table =
        dsf_json_get(dsf_json_get(f->root, "recommended_limits_injected_mode"), "by_tap");
    const dsf_json *tap = dsf_json_get(table, kind);
    if (tap) {
        const dsf_json *measured = dsf_json_get(tap, "measured");
        out->pooled.known = true;
        widen(&out->pooled.rel_l2, field(measured, "rel_l2"));
        widen(&out->pooled.row_median, field(measured, "row_median"));
        widen(&out->pooled.row_max, field(measured, "row_max"));
    }
    out->limit_rel_l2 = field(tap, "limit_rel_l2");
    out->limit_row_median = field(tap, "limit_row_median");
    double rel = by_rule(out->pooled.rel_l2, is_f32 ? 2e-6 : 2e-4);
    double median = by_rule(out->pooled.row_median, is_f32 ? 1e-6 : 1e-4);
    if (out->limit_rel_l2 == 0.0) out->limit_rel_l2 = rel;
    if (out->limit_row_median == 0.0) out->limit_row_median = median;
    return out->own.known || out->pooled.known;
}

/* Layer `l` of by_layer.out of one run into to[l]; how many layers it has. */
static int add_layers(double *to, int n_layers, const dsf_json *run)
{
    const dsf_json *list = dsf_json_get(dsf_json_get(run, "by_layer"), "out");
    int n = 0;
    if (!list) return 0;
    for (const dsf_json *v = dsf_json_first(list); v && n < n_layers; v = dsf_json_next(v), n++) {
        double d = 0.0;
        const dsf_json *rel = dsf_json_first(v);
        if (rel && dsf_json_double(rel, &d) == DSF_OK) widen(&to[n], d);
    }
    return n;
}

bool dsf_floor_streams(const dsf_floor *f, int n_layers, double *local, double *carried)
{
    char own[96];
    int n = 0;
    (void)snprintf(own, sizeof own, "%s/%s", f->set, f->prompt);
    const dsf_json *set = dsf_json_get(dsf_json_get(f->root, "results"), own);
    for (int l = 0; l < n_layers; l++) local[l] = carried[l] = 0.0;
    if (!set) return false;
    for (const dsf_json *v = dsf_json_first(set); v; v = dsf_json_next(v)) {
        n = add_layers(local, n_layers, dsf_json_get(v, "per_layer_from_exact_input"));
        (void)add_layers(carried, n_layers, dsf_json_get(v, "free_running"));
    }
    return n == n_layers && n > 0;
}

double dsf_floor_growth(const dsf_floor *f, int from, int to)
{
    char own[96];
    double d = 1.0;
    if (from >= to) return 1.0;
    (void)snprintf(own, sizeof own, "%s/%s", f->set, f->prompt);
    /* row l: an error put into the input of layer l, read at the outputs of l, l + 1, ... */
    const dsf_json *v = dsf_json_get(dsf_json_get(f->root, "growth"), own);
    v = v ? dsf_json_first(v) : NULL;
    for (int l = 0; v && l < from + 1; l++) v = dsf_json_next(v);
    v = v ? dsf_json_first(v) : NULL;
    for (int k = from + 1; v && k < to; k++) v = dsf_json_next(v);
    return v && dsf_json_double(v, &d) == DSF_OK ? d : 1.0;
}
