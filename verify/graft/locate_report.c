/* What was located, as text for people and as JSON. */
#include <math.h>
#include <string.h>

#include "verify/diff/causes.h"
#include "verify/graft/locate.h"

/* The proof: what the file holds in the worst place, and what our operation makes of the same
 * inputs. */
static void print_proof(const dsf_located *r, dsf_buf *b)
{
    const dsf_diff_tap *t = &r->first;
    if (!r->proven || t->tap.id == DSF_TAP_NONE) return;
    dsf_buf_str(b,
                r->graft.by_op ? "wrong on the inputs it had" : "wrong from golden layer inputs");
    if (t->at_column >= 0)
        dsf_buf_fmt(b, ": row %d column %lld: the file holds %.9g, our operation makes %.9g",
                    (int)t->at_row, (long long)t->at_column, t->reference, t->ours);
    if (t->why[0]) dsf_buf_fmt(b, "; %s", t->why);
    dsf_buf_char(b, '\n');
}

static void print_others(const dsf_located *r, dsf_buf *b)
{
    int shown = 0;
    for (int64_t i = 0; i < r->local.n_taps && shown < 9; i++) {
        if (!dsf_located_also(r, i)) continue;
        if (++shown == 9)
            dsf_buf_str(b, " ...");
        else
            dsf_buf_fmt(b, "%s %s", shown == 1 ? "also wrong on the inputs they had:" : "",
                        r->local.tap[i].path);
    }
    if (shown) dsf_buf_char(b, '\n');
}

void dsf_located_print(const dsf_located *r, bool all, dsf_buf *b)
{
    dsf_buf_fmt(b, "%s%s\n", !r->good && r->first.path[0] ? "first divergence: " : "", r->sentence);
    if (!r->good && r->first.path[0]) dsf_causes_print(&r->first, b);
    print_proof(r, b);
    print_others(r, b);
    if (r->wiring[0] && !strstr(r->sentence, r->wiring)) dsf_buf_fmt(b, "and %s\n", r->wiring);
    if (r->carried.n_taps) dsf_buf_fmt(b, "free run: %s\n", r->carried.verdict);
    dsf_diff_print_tables(&r->local, all, b);
    dsf_buf_fmt(b, "\n%s, %lld passes; given: %s\n",
                r->graft.by_op ? "operation by operation" : "layer by layer",
                (long long)r->graft.passes, r->graft.given.data ? r->graft.given.data : "");
    if (r->graft.n_absent) dsf_buf_str(b, r->graft.absent.data);
}

static void json_others(const dsf_located *r, dsf_buf *b)
{
    dsf_json_begin(b, "also_wrong", '[');
    for (int64_t i = 0; i < r->local.n_taps; i++)
        if (dsf_located_also(r, i)) dsf_json_add_cstr(b, NULL, r->local.tap[i].path);
    dsf_json_end(b, ']');
}

void dsf_located_json(const dsf_located *r, dsf_buf *b)
{
    dsf_json_begin(b, NULL, '{');
    dsf_json_add_cstr(b, "schema", "dsf-graft-1");
    dsf_json_add_cstr(b, "verdict", r->sentence);
    dsf_json_add_bool(b, "good", r->good);
    dsf_json_add_bool(b, "proven", r->proven);
    bool named = !r->good && r->first.path[0];
    dsf_diff_json_first(b, named ? &r->first : NULL, r->sentence, r->local_ratio);
    json_others(r, b);
    dsf_json_add_cstr(b, "wiring", r->wiring);
    dsf_json_add_bool(b, "by_op", r->graft.by_op);
    dsf_json_add_int(b, "passes", r->graft.passes);
    dsf_json_add_cstr(b, "given", r->graft.given.data ? r->graft.given.data : "");
    dsf_diff_json_lines(b, "not_computed", &r->graft.absent);
    dsf_json_begin(b, "diff", '{');
    dsf_diff_json_fields(&r->local, b);
    dsf_json_end(b, '}');
    if (r->carried.n_taps) {
        dsf_json_begin(b, "carried", '{');
        dsf_diff_json_fields(&r->carried, b);
        dsf_json_end(b, '}');
    }
    dsf_json_end(b, '}');
    dsf_buf_char(b, '\n');
}
