#include "verify/diff/classes.h"

#include <stdio.h>

#include "base/mem.h"

static void join_class(dsf_class_set *set, int class, int64_t row)
{
    set->member[row * set->words + class / 64] |= UINT64_C(1) << class % 64;
}

static bool is_member(const dsf_class_set *set, int class, int64_t row)
{
    return set->member[row * set->words + class / 64] >> class % 64 & 1;
}

static int name_class(dsf_class_set *set, const char *fmt, int value)
{
    (void)snprintf(set->name[set->n], sizeof set->name[0], fmt, value);
    return set->n++;
}

static void by_position(dsf_class_set *set, const dsf_diff_state *s, dsf_tap tap,
                        const dsf_row *row)
{
    int ratio = tap.layer < s->g->n_layers ? s->g->ratio[tap.layer] : 0;
    int inside = name_class(set, "t < %d (the window)", s->g->window);
    int beyond = name_class(set, "t >= %d (the window)", s->g->window);
    int first = set->n;
    for (int r = 0; r < ratio && ratio > 1; r++) (void)name_class(set, "t mod ratio = %d", r);
    for (int64_t i = 0; i < set->rows; i++) {
        join_class(set, row[i].label < s->g->window ? inside : beyond, i);
        if (ratio > 1) join_class(set, first + row[i].label % ratio, i);
    }
}

/* Rows that the reference sent to each expert. */
static dsf_status by_expert(dsf_class_set *set, const dsf_diff_state *s, dsf_tap tap,
                            const dsf_row *row)
{
    char path[64];
    dsf_tap_path(path, (dsf_tap){DSF_TAP_FFN_EXPERT_IDS, tap.layer}, s->g->n_layers);
    const dsf_dump_entry *e = dsf_dump_find(s->a, path);
    if (!e || !e->readable || e->kind == DSF_DUMP_F32) return DSF_OK;
    dsf_dump_array ids;
    DSF_TRY(dsf_dump_read(s->a, path, &ids));
    int first = set->n, experts = s->g->n_experts;
    for (int x = 0; x < experts; x++) (void)name_class(set, "expert %d", x);
    int64_t at = 0;
    for (int64_t i = 0; i < set->rows; i++) {
        while (at < ids.n && ids.label[at] < row[i].label) at++;
        if (at == ids.n || ids.label[at] != row[i].label) continue;
        for (int64_t k = 0; k < ids.width; k++) {
            int64_t x = ids.i[at * ids.width + k];
            if (x >= 0 && x < experts) join_class(set, first + (int)x, i);
        }
    }
    dsf_dump_array_free(&ids);
    return DSF_OK;
}

dsf_status dsf_classes_make(dsf_class_set *set, const dsf_diff_state *s, dsf_tap tap,
                            const dsf_row *row, int64_t n)
{
    *set = (dsf_class_set){.rows = n};
    bool tokens = dsf_taps[tap.id].scope == DSF_SCOPE_LAYER && tap.layer < s->g->n_layers &&
                  dsf_taps[tap.id].rows == DSF_ROWS_TOKEN;
    int experts = s->g->n_experts;
    if (!tokens || s->g->window <= 0 || experts > DSF_CLASS_MAX - 8) return DSF_OK;
    for (int64_t i = 0; i < n; i++)
        if (row[i].label < 0 || (i && row[i].label < row[i - 1].label)) return DSF_OK;
    set->words = (4 + 64 + experts + 63) / 64;
    DSF_TRY(dsf_mem_new(&set->name, (size_t)set->words * 64, sizeof set->name[0]));
    dsf_status st = dsf_mem_new(&set->member, (size_t)n, (size_t)set->words * 8);
    if (st == DSF_OK) by_position(set, s, tap, row);
    if (st == DSF_OK && tap.id >= DSF_TAP_FFN_EXPERT_WEIGHTS) st = by_expert(set, s, tap, row);
    if (st != DSF_OK) dsf_classes_free(set);
    return st;
}

dsf_class_count dsf_classes_count(const dsf_class_set *set, int i, const dsf_row *row, double least)
{
    dsf_class_count c = {0};
    for (int64_t r = 0; r < set->rows; r++) {
        if (row[r].status != DSF_ROW_JUDGED) continue;
        bool over = row[r].changed > 0 && row[r].rel > least;
        if (is_member(set, i, r)) {
            c.rows++;
            c.over += over;
        } else {
            c.others++;
            c.others_over += over;
        }
    }
    return c;
}

void dsf_classes_free(dsf_class_set *set)
{
    dsf_mem_free(set->name);
    dsf_mem_free(set->member);
    *set = (dsf_class_set){0};
}
