#include "verify/reduce/scope.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

typedef struct {
    dsf_scope *s;
    const dsf_loaded *load;
    dsf_golden *g;
    const dsf_scope_choice *choice;
    dsf_plan *plan;
    bool *needed; /* by value */
} scope;

bool dsf_scope_whole(dsf_tap tap)
{
    return tap.id == DSF_TAP_ATTN_KV_WINDOW || dsf_taps[tap.id].rows == DSF_ROWS_ENTRY;
}

/* ---- which taps are compared ---- */

static bool given(void *ud, dsf_tap t)
{
    scope *x = ud;
    bool of_all = t.layer < x->load->config.n_layers &&
                  (t.id == DSF_TAP_ATTN_KV_WINDOW || t.id == DSF_TAP_ATTN_LATENT);
    if (of_all && !x->s->all_rows) return true;
    return dsf_golden_find(x->g, t) != NULL;
}

static bool missing(void *ud, dsf_tap t)
{
    scope *x = ud;
    return !dsf_golden_gives(x->g, t, x->s->label, x->s->n);
}

/* The op as the user wrote it: its whole path, or what stands below the layer. */
static bool named(const scope *x, const char *path)
{
    const char *op = x->choice->op;
    size_t n = strlen(path), k = strlen(op);
    if (strcmp(path, op) == 0) return true;
    return x->choice->layer >= 0 && n > k && path[n - k - 1] == '/' &&
           strcmp(path + n - k, op) == 0 && strspn(path + 7, "0123456789") == n - k - 8;
}

static bool wants(void *ud, dsf_tap t)
{
    const scope *x = ud;
    char path[64];
    if (t.id == DSF_TAP_IN || t.id == DSF_TAP_PREMIX) return false; /* what enters */
    if (x->choice->layer >= 0 && t.layer != x->choice->layer) return false;
    dsf_tap_path(path, t, x->load->config.n_layers);
    /* the tap's own dataset: a layer's input may also be read from the layer before */
    const dsf_dump_entry *e = dsf_dump_find(x->g->file, path);
    return e && e->readable && !e->stats && (!x->choice->op || named(x, path));
}

static dsf_status add_tap(dsf_tap **list, int *n, dsf_tap t)
{
    for (int i = 0; i < *n; i++)
        if ((*list)[i].id == t.id && (*list)[i].layer == t.layer) return DSF_OK;
    DSF_TRY(dsf_mem_grow(list, (size_t)*n + 1, sizeof **list));
    (*list)[(*n)++] = t;
    return DSF_OK;
}

/* ---- which tensors are read ---- */

static dsf_status add_tensor(scope *x, const dsf_ckpt_entry *e)
{
    dsf_scope *s = x->s;
    for (int64_t i = 0; i < s->n_tensors; i++)
        if (s->tensor[i].entry == e) return DSF_OK;
    DSF_TRY(dsf_mem_grow(&s->tensor, (size_t)s->n_tensors + 1, sizeof *s->tensor));
    s->tensor[s->n_tensors++] = (dsf_scope_tensor){.entry = e};
    return DSF_OK;
}

static const dsf_ckpt_entry *entry_of(const scope *x, const void *data)
{
    for (int64_t i = 0; data && i < dsf_ckpt_count(x->load->ckpt); i++) {
        const dsf_ckpt_entry *e = dsf_ckpt_at(x->load->ckpt, i);
        if (e->view.data == data) return e;
    }
    return NULL;
}

static int compare_rows(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static void sort_rows(int64_t *row, int64_t *n)
{
    int64_t k = 0;
    if (*n) qsort(row, (size_t)*n, sizeof *row, compare_rows);
    for (int64_t i = 0; i < *n; i++)
        if (i == 0 || row[i] != row[i - 1]) row[k++] = row[i];
    *n = k;
}

/* The integers that the golden file has for a tap at the scope's rows, each once. *row NULL when it
 * holds none. */
static dsf_status stored_ids(const scope *x, dsf_tap tap, int64_t **row, int64_t *n)
{
    const dsf_dump_entry *e = dsf_golden_find(x->g, tap);
    dsf_dump_array a;
    *row = NULL;
    *n = 0;
    if (!e) return DSF_OK;
    DSF_TRY(dsf_dump_read(x->g->file, e->path, &a));
    dsf_status st = dsf_mem_new(row, (size_t)(a.n * a.width) + 1, sizeof **row);
    int64_t at = 0;
    for (int64_t i = 0; st == DSF_OK && a.i && i < a.n; i++) {
        while (at < x->s->n && x->s->label[at] < a.label[i]) at++;
        if (at == x->s->n || x->s->label[at] != a.label[i]) continue;
        for (int64_t k = 0; k < a.width; k++)
            if (a.i[i * a.width + k] >= 0) (*row)[(*n)++] = a.i[i * a.width + k];
    }
    dsf_dump_array_free(&a);
    sort_rows(*row, n);
    return st;
}

/* The experts that the golden choice names; all of them where it is computed. */
static dsf_status add_experts(scope *x, const dsf_value *v, int layer)
{
    const int64_t *pointer = v->data;
    int64_t *id = NULL, n = 0, all = v->dim[0];
    DSF_TRY(stored_ids(x, (dsf_tap){DSF_TAP_FFN_EXPERT_IDS, layer}, &id, &n));
    dsf_status st = DSF_OK;
    for (int64_t k = 0; k < (n ? n : all) && st == DSF_OK; k++) {
        int64_t e = n ? id[k] : k;
        const dsf_ckpt_entry *found =
            e < all ? entry_of(x, (const void *)(uintptr_t)pointer[e]) : NULL;
        if (found) st = add_tensor(x, found);
    }
    dsf_mem_free(id);
    return st;
}

static dsf_status add_const(scope *x, const dsf_step *step, const dsf_value *v)
{
    if (v->dtype == DSF_I64) return add_experts(x, v, step->layer);
    const dsf_ckpt_entry *e = entry_of(x, v->data);
    return e ? add_tensor(x, e) : DSF_OK; /* none: a table computed from the config */
}

/* ---- the walk back ---- */

static bool step_needed(const scope *x, const dsf_step *step)
{
    const dsf_plan *p = x->plan;
    for (int i = 0; i < step->n_taps; i++)
        if (wants((void *)x, step->tap[i].tap)) return true;
    for (int k = 0; k < step->op->n_operands; k++)
        if (step->operand[k] != DSF_NO_VAL && step->op->operand[k].dir != DSF_IN &&
            x->needed[dsf_plan_base(p, step->operand[k])])
            return true;
    return false;
}

static dsf_status use_value(scope *x, const dsf_step *step, dsf_val v)
{
    const dsf_value *value = &x->plan->value[dsf_plan_base(x->plan, v)];
    x->needed[dsf_plan_base(x->plan, v)] = true;
    if (value->kind == DSF_VALUE_GIVEN) return add_tap(&x->s->input, &x->s->n_inputs, value->tap);
    return value->kind == DSF_VALUE_CONST ? add_const(x, step, value) : DSF_OK;
}

static dsf_status walk(scope *x)
{
    const dsf_plan *p = x->plan;
    for (int i = p->n_steps - 1; i >= 0; i--) {
        const dsf_step *step = &p->step[i];
        if (!step_needed(x, step)) continue;
        for (int k = 0; k < step->n_taps; k++)
            if (wants(x, step->tap[k].tap))
                DSF_TRY(add_tap(&x->s->output, &x->s->n_outputs, step->tap[k].tap));
        for (int k = 0; k < step->op->n_operands; k++)
            if (step->operand[k] != DSF_NO_VAL && step->op->operand[k].dir != DSF_OUT)
                DSF_TRY(use_value(x, step, step->operand[k]));
    }
    return DSF_OK;
}

static dsf_status make_plan(scope *x)
{
    const dsf_config *c = &x->load->config;
    int64_t rows = x->g->n > c->dspark_block_size ? x->g->n : c->dspark_block_size;
    const dsf_plan_size size = {
        .rows = rows, .heads = rows, .slots = 1, .context = rows + c->dspark_block_size};
    const dsf_tap_sink sink = {.wants = wants, .ud = x};
    DSF_TRY(dsf_plan_open(&x->plan, &size, c->n_layers));
    x->plan->given = given;
    x->plan->given_ud = x;
    DSF_TRY(dsf_model_build(x->plan, &x->load->model));
    DSF_TRY(dsf_plan_prune(x->plan, &sink, missing, x));
    if (x->g->status != DSF_OK) return dsf_error_pass(x->g->status, DSF_HERE);
    return dsf_mem_new(&x->needed, (size_t)x->plan->n_values + 1, sizeof *x->needed);
}

/* ---- rows of the big tables ---- */

static dsf_status token_rows(const scope *x, int64_t **row, int64_t *n)
{
    DSF_TRY(dsf_mem_new(row, (size_t)x->s->n + 1, sizeof **row));
    for (*n = 0; *n < x->s->n; ++*n) (*row)[*n] = x->g->ids[x->s->label[*n]];
    sort_rows(*row, n);
    return DSF_OK;
}

/* Of the embedding and of the Engram tables only the rows that these tokens read. */
static dsf_status pick_rows(scope *x)
{
    const dsf_config *c = &x->load->config;
    for (int64_t i = 0; i < x->s->n_tensors; i++) {
        dsf_scope_tensor *t = &x->s->tensor[i];
        const void *data = t->entry->view.data;
        if (data == dsf_weights_at(&x->load->weights, -1, DSF_ROLE_EMBED, false)->data)
            DSF_TRY(token_rows(x, &t->row, &t->n_rows));
        for (int k = 0; k < c->n_engram; k++)
            for (int scale = 0; scale < 2; scale++)
                if (data == dsf_weights_at(&x->load->weights, c->engram[k].layer,
                                           DSF_ROLE_ENGRAM_EMBED, scale)
                                ->data)
                    DSF_TRY(stored_ids(x, (dsf_tap){DSF_TAP_ENGRAM_ROWS, c->engram[k].layer},
                                       &t->row, &t->n_rows));
        for (int64_t k = 0; k < t->n_rows; k++)
            if (t->row[k] >= t->entry->view.dim[0])
                return DSF_FAIL(DSF_ECORRUPT, "%s: row %lld of %s, which has %lld", x->g->path,
                                (long long)t->row[k], t->entry->name,
                                (long long)t->entry->view.dim[0]);
        t->by_row = t->n_rows > 0;
    }
    return DSF_OK;
}

/* The first dataset in question whose rows are some positions only; NULL: none. */
static const dsf_dump_entry *trimmed(scope *x)
{
    for (int64_t i = 0; i < dsf_dump_count(x->g->file); i++) {
        const dsf_dump_entry *e = dsf_dump_at(x->g->file, i);
        dsf_tap t;
        if (dsf_tap_parse(&t, e->path, x->load->config.n_layers) && !dsf_scope_whole(t) &&
            wants(x, t) && e->dim[0] != x->g->n)
            return e;
    }
    return NULL;
}

/* The positions of the case: all, or those of a dataset, within the rows asked for. */
static dsf_status set_rows(scope *x, const dsf_dump_entry *of)
{
    const dsf_scope_choice *c = x->choice;
    int64_t from = c->by_row ? c->row_from : 0, to = c->by_row ? c->row_to : x->g->n - 1;
    int64_t n = x->g->n;
    int32_t *have = NULL;
    if (from < 0 || to < from || to >= n)
        return DSF_FAIL(DSF_EINVAL, "rows %lld-%lld: %s has rows 0-%lld", (long long)from,
                        (long long)to, x->g->path, (long long)n - 1);
    if (of) DSF_TRY(dsf_golden_labels(x->g, of, &have, &n));
    dsf_mem_free(x->s->label);
    x->s->label = NULL;
    x->s->n = 0;
    dsf_status st = dsf_mem_new(&x->s->label, (size_t)n + 1, sizeof *x->s->label);
    for (int64_t i = 0; i < n && st == DSF_OK; i++) {
        int64_t at = have ? have[i] : i;
        if (at >= from && at <= to && (x->s->n == 0 || at > x->s->label[x->s->n - 1]))
            x->s->label[x->s->n++] = (int32_t)at;
    }
    dsf_mem_free(have);
    DSF_TRY(st);
    if (x->s->n == 0)
        return DSF_FAIL(DSF_EINVAL, "rows %lld-%lld: %s of %s has none of them", (long long)from,
                        (long long)to, of ? of->path : "", x->g->path);
    x->s->all_rows = x->s->n == x->g->n;
    return DSF_OK;
}

static dsf_status find_outputs(scope *x)
{
    dsf_mem_free(x->needed);
    dsf_plan_close(x->plan);
    x->needed = NULL;
    x->plan = NULL;
    DSF_TRY(make_plan(x));
    return walk(x);
}

/* Nothing to compare: why. */
static dsf_status refuse_scope(const scope *x)
{
    const dsf_scope_choice *c = x->choice;
    char layer[32] = "";
    bool known = !c->op;
    for (int64_t i = 0; i < dsf_dump_count(x->g->file) && !known; i++)
        known = named(x, dsf_dump_at(x->g->file, i)->path);
    if (c->layer >= 0)
        (void)snprintf(layer, sizeof layer, "layer %d%s", c->layer, c->op ? ", " : "");
    if (!known)
        return DSF_FAIL(DSF_EINVAL,
                        "%s: it holds no tap %s%s: an operation is a path such as "
                        "layers/03/ffn/y, or ffn/y with its layer beside it",
                        x->g->path, layer, c->op);
    return DSF_FAIL(DSF_EINVAL,
                    "%s: nothing of %s%s can be compared on rows %d-%d: the taps, or their inputs, "
                    "are not in the file for all of these rows",
                    x->g->path, layer, c->op ? c->op : "", (int)x->s->label[0],
                    (int)x->s->label[x->s->n - 1]);
}

static dsf_status find_scope(scope *x)
{
    const dsf_scope_choice *c = x->choice;
    if (c->layer >= x->load->config.n_layers)
        return DSF_FAIL(DSF_EINVAL, "layer %d: the model has layers 0-%d", c->layer,
                        x->load->config.n_layers - 1);
    if (c->layer < 0 && !c->op) return DSF_FAIL(DSF_EINVAL, "neither a layer nor an operation");
    DSF_TRY(set_rows(x, NULL));
    DSF_TRY(find_outputs(x));
    const dsf_dump_entry *some = x->s->n_outputs == 0 ? trimmed(x) : NULL;
    if (some) { /* a file that was trimmed to some rows */
        DSF_TRY(set_rows(x, some));
        DSF_TRY(find_outputs(x));
    }
    return x->s->n_outputs ? pick_rows(x) : refuse_scope(x);
}

dsf_status dsf_scope_open(dsf_scope *s, const dsf_loaded *load, dsf_golden *g,
                          const dsf_scope_choice *choice)
{
    *s = (dsf_scope){.n = 0};
    scope x = {.s = s, .load = load, .g = g, .choice = choice};
    dsf_status st = find_scope(&x);
    dsf_mem_free(x.needed);
    dsf_plan_close(x.plan);
    return st;
}

void dsf_scope_close(dsf_scope *s)
{
    for (int64_t i = 0; i < s->n_tensors; i++) dsf_mem_free(s->tensor[i].row);
    dsf_mem_free(s->tensor);
    dsf_mem_free(s->input);
    dsf_mem_free(s->output);
    dsf_mem_free(s->label);
    *s = (dsf_scope){.n = 0};
}
