#include "verify/diff/pattern.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "verify/diff/classes.h"

/* A rule holds when all wrong rows are of the class and at least this share of the class is wrong.
 */
static const double most_of_class = 0.6;
/* A channel rule holds when this share of the squared error lies in the channels it names. */
static const double most_of_error = 0.95;

const char *dsf_diff_pattern_name(dsf_diff_pattern_kind k)
{
    static const char *const name[DSF_N_PATTERNS] = {[DSF_PATTERN_NONE] = "none",
                                                     [DSF_PATTERN_ALL] = "all-rows",
                                                     [DSF_PATTERN_WINDOW] = "beyond-window",
                                                     [DSF_PATTERN_SELECT] = "selecting-rows",
                                                     [DSF_PATTERN_FROM] = "from-row",
                                                     [DSF_PATTERN_FIRST] = "first-rows",
                                                     [DSF_PATTERN_RESIDUE] = "residue",
                                                     [DSF_PATTERN_ONE_EXPERT] = "one-expert",
                                                     [DSF_PATTERN_DECODE] = "decode-rows",
                                                     [DSF_PATTERN_FLIP] = "after-flip",
                                                     [DSF_PATTERN_IMAGE] = "image-rows",
                                                     [DSF_PATTERN_ROW] = "single-row",
                                                     [DSF_PATTERN_SCATTERED] = "scattered",
                                                     [DSF_PATTERN_STRIDE] = "every-kth-channel",
                                                     [DSF_PATTERN_GROUP] = "channel-group",
                                                     [DSF_PATTERN_HEAD] = "one-head",
                                                     [DSF_PATTERN_STREAM] = "one-stream",
                                                     [DSF_PATTERN_ROTATED] = "rotated-channels"};
    return name[k];
}

typedef struct {
    const dsf_diff_state *s;
    dsf_tap tap;
    const dsf_row *row;
    const uint8_t *wrong;
    int64_t n, bad;    /* judged rows; wrong ones */
    int32_t low, high; /* labels of the first and last wrong row */
    const char *unit;  /* "tokens", "entries", "rows" */
} view;

static void say(dsf_diff_pattern *out, dsf_diff_pattern_kind kind, const char *fmt, int a, int b)
{
    out->rows = kind;
    (void)snprintf(out->text, sizeof out->text, fmt, a, b);
}

/* ---- which rows ---- */

typedef bool member_fn(const view *v, int32_t label, int x, int y);

/* Whether the wrong rows are those of a class: all inside it, most of it, and not all rows. */
static bool is_class(const view *v, member_fn *member, int x, int y)
{
    int64_t size = 0, inside = 0, judged = 0;
    for (int64_t i = 0; i < v->n; i++) {
        if (v->row[i].status != DSF_ROW_JUDGED) continue;
        bool in = member(v, v->row[i].label, x, y);
        judged++;
        size += in;
        inside += in && v->wrong[i];
    }
    return inside == v->bad && size < judged && size > 1 &&
           (double)inside >= most_of_class * (double)size;
}

static bool from_on(const view *v, int32_t label, int x, int y)
{
    (void)v, (void)y;
    return label >= x;
}

static bool below(const view *v, int32_t label, int x, int y)
{
    (void)v, (void)y;
    return label < x;
}

static bool congruent(const view *v, int32_t label, int m, int r)
{
    (void)v;
    return label % m == r;
}

static bool in_image(const view *v, int32_t label, int x, int y)
{
    (void)x, (void)y;
    return v->s->image && label >= 0 && label < v->s->n && v->s->image[label];
}

static bool find_residue(const view *v, dsf_diff_pattern *out)
{
    static const int modulus[] = {2, 4, 8, 16};
    for (unsigned i = 0; i < sizeof modulus / sizeof *modulus; i++) {
        int m = modulus[i], r = v->low % m;
        if (v->bad < 3 || !is_class(v, congruent, m, r)) continue;
        say(out, DSF_PATTERN_RESIDUE, "rows t mod %d = %d", m, r);
        return true;
    }
    return false;
}

/* The expert that the reference sent all wrong rows to, and most of whose rows are wrong. */
static dsf_status find_expert(const view *v, dsf_diff_pattern *out)
{
    dsf_class_set set;
    dsf_status st = dsf_classes_make(&set, v->s, v->tap, v->row, v->n);
    for (int i = 0; st == DSF_OK && i < set.n && out->rows == DSF_PATTERN_NONE; i++) {
        if (strncmp(set.name[i], "expert ", 7) != 0) continue;
        int64_t size = 0, inside = 0;
        for (int64_t r = 0; r < v->n; r++) {
            bool in = set.member[r * set.words + i / 64] >> i % 64 & 1;
            size += in && v->row[r].status == DSF_ROW_JUDGED;
            inside += in && v->wrong[r];
        }
        if (inside < v->bad || size == v->n || (double)inside < most_of_class * (double)size)
            continue;
        out->rows = DSF_PATTERN_ONE_EXPERT;
        (void)snprintf(out->text, sizeof out->text, "rows of %s", set.name[i]);
    }
    dsf_classes_free(&set);
    return st;
}

/* First row of this layer whose list, or pool, leaves visible entries out; -1: none does. */
static int selects_from(const view *v)
{
    const dsf_dump_geometry *g = v->s->g;
    int ratio = v->tap.layer >= 0 && v->tap.layer < g->n_layers ? g->ratio[v->tap.layer] : 0;
    int most = v->tap.id == DSF_TAP_ATTN_POOL ? g->pool_blocks * g->pool_block : g->index_topk;
    return ratio ? ratio * (most + 1) - 1 : -1;
}

/* All rows from one on: which border that row stands at. */
static bool find_suffix(const view *v, dsf_diff_pattern *out)
{
    int window = v->s->g->window, select = selects_from(v), low = v->low;
    if (low <= 0 || !is_class(v, from_on, low, 0)) return false;
    /* a window one short loses its oldest row from W - 1 on, one too long gains it from W on */
    if (window > 1 && low >= window - 1 && low <= window + 1)
        say(out, DSF_PATTERN_WINDOW, "rows beyond the window (t >= %d)", low, 0);
    else if (select >= 0 && low >= select && low <= select + 2)
        say(out, DSF_PATTERN_SELECT, "rows from %d on, where entries are left out", low, 0);
    else
        say(out, DSF_PATTERN_FROM, "rows from %d on", low, 0);
    return true;
}

static void find_tokens(const view *v, dsf_diff_pattern *out)
{
    int first = v->s->first_flip, decode = v->s->decode_from;
    if (decode > 0 && is_class(v, from_on, decode, 0))
        say(out, DSF_PATTERN_DECODE, "only decoded rows (t >= %d)", decode, 0);
    else if (is_class(v, in_image, 0, 0))
        say(out, DSF_PATTERN_IMAGE, "image rows only", 0, 0);
    else if (find_suffix(v, out) && out->rows == DSF_PATTERN_FROM && first >= 0 && v->low >= first)
        say(out, DSF_PATTERN_FLIP, "only rows from %d on; a choice flipped at row %d", v->low,
            first);
}

/* Rules from the strongest evidence to the weakest; the first that holds is the one said. */
static dsf_status find_rows(const view *v, dsf_diff_pattern *out)
{
    bool tokens = dsf_taps[v->tap.id].rows == DSF_ROWS_TOKEN && v->tap.layer < v->s->g->n_layers;
    int64_t judged = 0;
    for (int64_t i = 0; i < v->n; i++) judged += v->row[i].status == DSF_ROW_JUDGED;
    if (v->bad == 0) return DSF_OK;
    if (tokens && v->tap.id >= DSF_TAP_FFN_EXPERT_WEIGHTS) DSF_TRY(find_expert(v, out));
    /* the first rows may be right by chance: one visible entry, position 0 */
    bool all = v->bad == judged || (v->low <= 2 && (double)v->bad >= 0.9 * (double)judged);
    if (out->rows == DSF_PATTERN_NONE && !all && tokens) find_tokens(v, out);
    if (out->rows != DSF_PATTERN_NONE) return DSF_OK;
    if (all)
        say(out, DSF_PATTERN_ALL, "", 0, 0);
    else if (v->bad > 1 && is_class(v, below, v->high + 1, 0) && v->high + 1 < judged / 2)
        say(out, DSF_PATTERN_FIRST, "the first rows (t <= %d)", v->high, 0);
    else if (find_residue(v, out))
        return DSF_OK;
    else
        say(out, v->bad == 1 ? DSF_PATTERN_ROW : DSF_PATTERN_SCATTERED, "a single row", 0, 0);
    if (out->rows == DSF_PATTERN_ALL)
        (void)snprintf(out->text, sizeof out->text, "all %s", v->unit);
    if (out->rows == DSF_PATTERN_SCATTERED)
        (void)snprintf(out->text, sizeof out->text, "scattered %s", v->unit);
    return DSF_OK;
}

/* ---- which channels ---- */

typedef struct {
    const double *e; /* [width] squared error over the wrong rows */
    int64_t width;
    double total;
} spread;

static double sum_of(const spread *s, int64_t from, int64_t to)
{
    double sum = 0.0;
    for (int64_t c = from; c < to; c++) sum += s->e[c];
    return sum;
}

/* The shortest run of parts of `size` channels that holds the error; its parts by reference. */
static void shortest_run(const spread *s, int64_t size, int64_t *from, int64_t *parts)
{
    int64_t n = s->width / size, lo = 0, hi = n;
    while (hi - lo > 1) {
        double first = sum_of(s, lo * size, (lo + 1) * size);
        double last = sum_of(s, (hi - 1) * size, hi * size);
        bool drop_first = first <= last;
        int64_t a = lo + drop_first, b = hi - !drop_first;
        if (sum_of(s, a * size, b * size) < most_of_error * s->total) break;
        lo = a;
        hi = b;
    }
    *from = lo;
    *parts = hi - lo;
}

static void add_words(dsf_diff_pattern *out, dsf_diff_pattern_kind kind, const char *fmt, int64_t a,
                      int64_t b)
{
    size_t used = strlen(out->text);
    out->channels = kind;
    if (used + 2 >= sizeof out->text) return;
    used += (size_t)snprintf(out->text + used, sizeof out->text - used, "%s", used ? ", " : "");
    (void)snprintf(out->text + used, sizeof out->text - used, fmt, (long long)a, (long long)b);
}

/* Rows of a tap as parts of one size: heads, streams; 1 where it has none. */
static int64_t part_size(const view *v, const dsf_joined *j, const char **name,
                         dsf_diff_pattern_kind *kind)
{
    int64_t last = j->a->dim[j->a->rank - 1];
    *kind = DSF_PATTERN_STREAM;
    *name = "stream";
    switch (v->tap.id) {
    case DSF_TAP_ATTN_Q:
    case DSF_TAP_ATTN_O:
    case DSF_TAP_ATTN_INDEX_Q:
        *kind = DSF_PATTERN_HEAD;
        *name = "head";
        return j->a->rank == 3 ? last : 1;
    case DSF_TAP_IN:
    case DSF_TAP_OUT:
    case DSF_TAP_MID:
    case DSF_TAP_ENGRAM_OUT:
        return j->a->rank == 3 ? last : 1;
    default:
        return 1;
    }
}

/* First channel of the shortest tail that holds all the error: RoPE turns the last channels only,
 * and a wrong angle shows most in the middle ones. */
static int64_t tail_from(const spread *s)
{
    double sum = 0.0;
    int64_t c = s->width;
    while (c > 0 && sum < 0.999 * s->total) sum += s->e[--c];
    return c;
}

/* The same channels of every part: error folded over the parts. */
static void find_folded(const spread *s, int64_t size, const char *name, double *folded,
                        dsf_diff_pattern *out)
{
    int64_t from, parts;
    char fmt[80];
    for (int64_t c = 0; c < size; c++) folded[c] = 0.0;
    for (int64_t c = 0; c < s->width; c++) folded[c % size] += s->e[c];
    const spread f = {folded, size, s->total};
    shortest_run(&f, 1, &from, &parts);
    int64_t tail = tail_from(&f);
    bool rotated = tail >= size / 2 && parts > 2;
    if (!rotated && parts > size / 2) return;
    (void)snprintf(fmt, sizeof fmt, "channels %%lld-%%lld of every %s%s", name,
                   rotated ? " (where RoPE acts)" : "");
    if (rotated)
        add_words(out, DSF_PATTERN_ROTATED, fmt, tail, size - 1);
    else
        add_words(out, DSF_PATTERN_GROUP, fmt, from, from + parts - 1);
}

static void find_stride(const spread *s, dsf_diff_pattern *out)
{
    for (int k = 32; k >= 2; k /= 2) { /* the widest that holds: every 4th is every 2nd too */
        double best = 0.0;
        int at = 0;
        if (k * 4 > s->width) continue;
        for (int r = 0; r < k; r++) {
            double sum = 0.0;
            for (int64_t c = r; c < s->width; c += k) sum += s->e[c];
            if (sum > best) at = r;
            best = fmax(best, sum);
        }
        if (best < most_of_error * s->total) continue;
        add_words(out, DSF_PATTERN_STRIDE, "every %lld. channel (from %lld)", k, at);
        return;
    }
}

static bool find_group(const spread *s, int64_t size, dsf_diff_pattern *out)
{
    int64_t from, parts;
    shortest_run(s, size, &from, &parts);
    if (parts * size > s->width / 4 || s->width < 8) return false;
    add_words(out, DSF_PATTERN_GROUP, "channels %lld-%lld", from * size, (from + parts) * size - 1);
    return true;
}

static void find_channels(const view *v, const dsf_joined *j, const spread *s, double *folded,
                          dsf_diff_pattern *out)
{
    const char *name;
    dsf_diff_pattern_kind kind;
    int64_t size = part_size(v, j, &name, &kind), from, parts;
    if (size > 1 && s->width / size > 1) {
        shortest_run(s, size, &from, &parts);
        if (parts == 1) {
            char fmt[32];
            (void)snprintf(fmt, sizeof fmt, "%s %%lld", name);
            add_words(out, kind, fmt, from, 0);
            return;
        }
        find_folded(s, size, name, folded, out);
        if (out->channels != DSF_PATTERN_NONE) return;
    }
    bool rotates = v->tap.id == DSF_TAP_ATTN_KV_WINDOW || v->tap.id == DSF_TAP_ATTN_KV_MAIN ||
                   v->tap.id == DSF_TAP_ATTN_INDEX_K || v->tap.id == DSF_TAP_DSPARK_CTX_KV;
    if (rotates) find_folded(s, s->width, "row", folded, out);
    if (out->channels == DSF_PATTERN_NONE && !find_group(s, 1, out)) find_stride(s, out);
}

/* Squared errors by channel over the wrong rows; returns how many elements they are. */
static int64_t measure(const view *v, const dsf_joined *j, double *e, double *total)
{
    int64_t elements = 0;
    *total = 0.0;
    for (int64_t i = 0; i < v->n; i++) {
        for (int64_t c = 0; v->wrong[i] && c < j->width; c++) {
            double x = (double)j->a->f[j->pair[2 * i] * j->a->width + c];
            double d = (double)dsf_metrics_ours(j, i, c) - x;
            if (!isfinite(d) || d == 0.0) continue;
            elements++;
            e[c] += d * d;
            *total += d * d;
        }
    }
    return elements;
}

dsf_status dsf_pattern_find(const dsf_diff_state *s, dsf_tap tap, const dsf_joined *j,
                            const dsf_row *row, int64_t n, const uint8_t *wrong,
                            dsf_diff_pattern *out)
{
    view v = {.s = s, .tap = tap, .row = row, .wrong = wrong, .n = n, .low = -1};
    double *e = NULL, total;
    bool entry = dsf_taps[tap.id].rows == DSF_ROWS_ENTRY;
    *out = (dsf_diff_pattern){.rows = DSF_PATTERN_NONE};
    v.unit = entry ? "entries" : dsf_taps[tap.id].rows == DSF_ROWS_DRAFT ? "rows" : "tokens";
    for (int64_t i = 0; i < n; i++) {
        if (!wrong[i]) continue;
        if (v.bad++ == 0) v.low = row[i].label;
        v.high = row[i].label;
    }
    DSF_TRY(find_rows(&v, out));
    if (!j || v.bad == 0) return DSF_OK;
    DSF_TRY(dsf_mem_new(&e, 2 * (size_t)j->width + 2, sizeof *e));
    /* a handful of elements has no pattern */
    if (measure(&v, j, e, &total) >= 8) {
        const spread errors = {e, j->width, total};
        find_channels(&v, j, &errors, e + j->width, out);
    }
    dsf_mem_free(e);
    return DSF_OK;
}

void dsf_pattern_rows(char *out, size_t size, const dsf_row *row, int64_t n, const uint8_t *wrong)
{
    size_t used = 0;
    int shown = 0;
    out[0] = 0;
    for (int64_t i = 0; i < n; i++) {
        if (!wrong[i]) continue;
        int64_t end = i;
        while (end + 1 < n && wrong[end + 1] && row[end + 1].label == row[end].label + 1) end++;
        if (shown++ == 4 || used + 32 > size) {
            (void)snprintf(out + used, size - used, ", ...");
            return;
        }
        used += (size_t)snprintf(out + used, size - used, end > i ? "%s%d-%d" : "%s%d",
                                 used ? ", " : "", (int)row[i].label, (int)row[end].label);
        i = end;
    }
}
