#include "verify/diff/floor_rule.h"

#include <libgen.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "plan/tap.h"
#include "verify/diff/sha256.h"

enum { N_FIGURES = 3 };
/* As the limits' table and as the runs name them. */
static const char *const figure[N_FIGURES] = {"rel_l2", "row_median", "row_max"};
static const char *const run_figure[N_FIGURES] = {"rel_l2_max", "row_median_max", "row_max"};
static const double factor = 4.0;

typedef struct {
    const char *path;
    const dsf_json *root;
    bool official;
} rule;

static dsf_status get(const rule *r, const dsf_json *of, const char *tap, const char *key,
                      double *out)
{
    const dsf_json *v = dsf_json_get(of, key);
    *out = 0.0;
    if (!v) return DSF_OK; /* a measurement without this figure adds nothing */
    if (dsf_json_kind_of(v) == DSF_JSON_NUMBER && dsf_json_double(v, out) == DSF_OK &&
        isfinite(*out) && *out >= 0.0)
        return DSF_OK;
    return DSF_FAIL(DSF_ECORRUPT, "%s: %s: %s is %.40s, wanted is a number of 0 or more", r->path,
                    tap, key, dsf_json_text(v, NULL));
}

static dsf_status add_run(const rule *r, const dsf_json *modes, const char *tap,
                          double most[N_FIGURES])
{
    static const char *const flip[] = {"topk_flips", "expert_flips", "pool_flips"};
    const dsf_json *run = dsf_json_get(modes, "per_layer_from_exact_input");
    const dsf_json *of = dsf_json_get(dsf_json_get(run, "by_tap"), tap);
    const dsf_json *flips = dsf_json_get(run, "flips");
    for (int i = 0; of && i < 3; i++) {
        double n;
        DSF_TRY(get(r, flips, "flips", flip[i], &n));
        if (n > 0.0) return DSF_OK;
    }
    for (int i = 0; of && i < N_FIGURES; i++) {
        double v;
        DSF_TRY(get(r, of, tap, run_figure[i], &v));
        most[i] = fmax(most[i], v);
    }
    return DSF_OK;
}

/* results[set][variant] and other_builds[build][set] hold runs alike. */
static dsf_status largest(const rule *r, const char *tap, double most[N_FIGURES])
{
    static const char *const where[] = {"results", "other_builds"};
    for (int i = 0; i < N_FIGURES; i++) most[i] = 0.0;
    for (int k = 0; k < 2; k++) {
        const dsf_json *list = dsf_json_get(r->root, where[k]);
        for (const dsf_json *a = list ? dsf_json_first(list) : NULL; a; a = dsf_json_next(a))
            for (const dsf_json *b = dsf_json_first(a); b; b = dsf_json_next(b))
                DSF_TRY(add_run(r, b, tap, most));
    }
    return DSF_OK;
}

/* One significant digit, upwards, as floor.py does. */
static double round_up(double x)
{
    double power = pow(10.0, floor(log10(x)));
    return ceil(x / power - 1e-9) * power;
}

static bool near(double a, double b) { return fabs(a - b) <= 1e-6 * fmax(fabs(a), fabs(b)); }

/* Whether taps of this name hold float32 figures: 1, 0, or -1 when no tap has the name. */
static int is_f32(const char *name)
{
    const char *below = strncmp(name, "dspark/", 7) == 0 ? name + 7 : name;
    if (strcmp(name, "logits_oneshot") == 0) return 1;
    for (int i = 0; i < DSF_N_TAPS; i++)
        if (strcmp(dsf_taps[i].path, name) == 0 || strcmp(dsf_taps[i].path, below) == 0)
            return dsf_taps[i].source == DSF_SRC_F32;
    return -1;
}

static bool limit_fits(const rule *r, const char *tap, double measured, int which, double limit)
{
    static const double least[2][2] = {{2e-4, 1e-4}, {2e-6, 1e-6}}; /* bf16, float32 */
    int f32 = is_f32(tap);
    for (int k = 0; k < 2; k++) {
        double want = fmax(factor * measured, least[k][which]);
        bool good =
            r->official ? limit >= 0.6 * want && limit <= 1.5 * want : near(limit, round_up(want));
        if (good && (f32 < 0 || f32 == k)) return true;
    }
    return false;
}

static dsf_status check_tap(const rule *r, const dsf_json *tap)
{
    static const char *const key[] = {"limit_rel_l2", "limit_row_median"};
    const char *name = dsf_json_key(tap);
    double most[N_FIGURES], measured[N_FIGURES], limit;
    DSF_TRY(largest(r, name, most));
    for (int i = 0; i < N_FIGURES; i++) {
        DSF_TRY(get(r, dsf_json_get(tap, "measured"), name, figure[i], &measured[i]));
        /* the official file writes two digits there and three in its runs */
        bool good = r->official ? measured[i] >= 0.94 * most[i] : near(measured[i], most[i]);
        if (!good)
            return DSF_FAIL(DSF_EINVAL,
                            "%s: %s: %s measured is %g, its results hold %g: edited by hand?",
                            r->path, name, figure[i], measured[i], most[i]);
    }
    for (int i = 0; i < 2; i++) {
        DSF_TRY(get(r, tap, name, key[i], &limit));
        if (!limit_fits(r, name, measured[i], i, limit))
            return DSF_FAIL(DSF_EINVAL,
                            "%s: %s: %s is %g, which is not %g x the measured %g: edited by hand?",
                            r->path, name, key[i], limit, factor, measured[i]);
    }
    return DSF_OK;
}

dsf_status dsf_floor_check_limits(const char *path, const dsf_json *root, bool official)
{
    const rule r = {path, root, official};
    const dsf_json *table =
        dsf_json_get(dsf_json_get(root, "recommended_limits_injected_mode"), "by_tap");
    for (const dsf_json *tap = table ? dsf_json_first(table) : NULL; tap; tap = dsf_json_next(tap))
        DSF_TRY(check_tap(&r, tap));
    return DSF_OK;
}

/* The digest that folder/MANIFEST.json gives for `name`; "" when it gives none. */
static dsf_status listed(char out[65], const char *folder, const char *name)
{
    char path[PATH_MAX];
    dsf_file file = {0};
    dsf_json_doc *doc = NULL;
    out[0] = 0;
    DSF_TRY(dsf_file_join(path, folder, "MANIFEST.json"));
    if (!dsf_file_exists(path)) return DSF_OK;
    DSF_TRY(dsf_file_open(&file, path));
    dsf_status st = dsf_json_parse(&doc, path, (const char *)file.data, file.size);
    if (st == DSF_ECORRUPT) st = DSF_OK; /* of something else */
    const dsf_json *root = doc ? dsf_json_root(doc) : NULL;
    const dsf_json *entry = root ? dsf_json_get(dsf_json_get(root, "files"), name) : NULL;
    const dsf_json *digest = entry ? dsf_json_get(entry, "sha256") : NULL;
    if (digest) (void)snprintf(out, 65, "%.64s", dsf_json_text(digest, NULL));
    dsf_json_free(doc);
    dsf_file_close(&file);
    return st;
}

dsf_status dsf_floor_check_manifest(const char *path, const void *data, size_t n)
{
    char real[PATH_MAX], name[PATH_MAX], want[65] = "", have[65];
    if (!realpath(path, real)) return DSF_OK;
    const char *folder = real, *shown = path;
    (void)snprintf(name, sizeof name, "%s", "");
    for (int up = 0; up < 2 && !*want; up++) {
        char *slash = strrchr(real, '/'), longer[PATH_MAX];
        if (!slash || slash == real) return DSF_OK;
        int got = snprintf(longer, sizeof longer, "%s%s%s", slash + 1, *name ? "/" : "", name);
        if (got < 0 || (size_t)got >= sizeof longer) return DSF_OK;
        memcpy(name, longer, (size_t)got + 1);
        *slash = 0;
        DSF_TRY(listed(want, folder, name));
    }
    if (!*want) return DSF_OK;
    dsf_sha256_hex(data, n, have);
    if (strcmp(want, have) == 0) return DSF_OK;
    return DSF_FAIL(DSF_EINVAL,
                    "%s: not the file that %s/MANIFEST.json lists as %s: SHA-256 %s, listed %s",
                    shown, folder, name, have, want);
}
