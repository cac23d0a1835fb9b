#include "verify/dump/types.h"

#include <string.h>

static const char *const source_names[] = {
    [DSF_SRC_BF16] = "bf16",
    [DSF_SRC_F32] = "f32",
    [DSF_SRC_E4M3] = "e4m3-dequantized",
    [DSF_SRC_E2M1] = "e2m1-dequantized",
    [DSF_SRC_INT] = "int",
    [DSF_SRC_BOOL] = "bool",
};

const char *dsf_dump_source_name(dsf_tap_source s) { return source_names[s]; }

bool dsf_dump_source_parse(dsf_tap_source *out, const char *name)
{
    for (unsigned i = 0; i < sizeof source_names / sizeof *source_names; i++) {
        if (strcmp(source_names[i], name) != 0) continue;
        *out = (dsf_tap_source)i;
        return true;
    }
    return false;
}

int64_t dsf_dump_kind_bytes(dsf_dump_kind k)
{
    return k == DSF_DUMP_I64 ? 8 : k == DSF_DUMP_U8 ? 1 : 4;
}

dsf_dump_kind dsf_dump_kind_of(dsf_tap_id id)
{
    if (id == DSF_TAP_ENGRAM_ROWS) return DSF_DUMP_I64; /* tables go beyond 32 bits */
    switch (dsf_taps[id].source) {
    case DSF_SRC_INT:
        return DSF_DUMP_I32;
    case DSF_SRC_BOOL:
        return DSF_DUMP_U8;
    default:
        return DSF_DUMP_F32;
    }
}

/* Matching with two retreat points: the last `*`, which may not swallow a slash, and the last `**`,
 * which may. Linear space, at most |pattern| * |path| steps. */
bool dsf_dump_glob(const char *pattern, const char *path)
{
    const char *star = NULL, *star_at = NULL, *wide = NULL, *wide_at = NULL;
    while (*path) {
        if (pattern[0] == '*' && pattern[1] == '*') {
            wide = pattern += 2;
            wide_at = path;
            star = NULL;
        } else if (*pattern == '*') {
            star = ++pattern;
            star_at = path;
        } else if (*pattern == *path || (*pattern == '?' && *path != '/')) {
            pattern++;
            path++;
        } else if (star && *star_at != '/') {
            pattern = star;
            path = ++star_at;
        } else if (wide) {
            star = NULL;
            pattern = wide;
            path = ++wide_at;
        } else {
            return false;
        }
    }
    while (*pattern == '*') pattern++;
    return *pattern == 0;
}

bool dsf_dump_filter_wants(const dsf_dump_filter *f, dsf_tap tap, int n_layers)
{
    if (f->by_layer && tap.layer >= 0 && (tap.layer < f->layer_from || tap.layer > f->layer_to))
        return false;
    char path[64];
    dsf_tap_path(path, tap, n_layers);
    for (int i = 0; i < f->n_globs; i++)
        if (dsf_dump_glob(f->glob[i], path) || dsf_dump_glob(f->glob[i], dsf_taps[tap.id].path))
            return true;
    return f->n_globs == 0;
}

bool dsf_dump_filter_row(const dsf_dump_filter *f, int32_t label, int ratio)
{
    if (!f->by_position) return true;
    int64_t first = ratio ? (int64_t)label * ratio : label;
    int64_t last = ratio ? first + ratio - 1 : label;
    return last >= f->position_from && first <= f->position_to;
}
