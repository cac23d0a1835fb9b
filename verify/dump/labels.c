#include "verify/dump/labels.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"

static const char *const first_path[] = {
    [DSF_LABEL_POSITION] = "/positions",           [DSF_LABEL_ENTRY_R1] = "/entries_r1",
    [DSF_LABEL_ENTRY_R2] = "/entries_r2",          [DSF_LABEL_LOGIT] = "/logit_positions",
    [DSF_LABEL_DRAFT] = "/dspark/draft_positions",
};

static dsf_status grow(dsf_label_list *l, int64_t n)
{
    if (n <= l->cap) return DSF_OK;
    int64_t cap = l->cap ? l->cap : 64;
    while (cap < n) cap *= 2;
    DSF_TRY(dsf_mem_grow(&l->label, (size_t)cap, sizeof *l->label));
    l->cap = cap;
    return DSF_OK;
}

static bool counts_up(const int32_t *label, int64_t n, int64_t from)
{
    for (int64_t i = 0; i < n; i++)
        if (label[i] != from + i) return false;
    return true;
}

static bool class_used(const dsf_labels *set, dsf_label_class class)
{
    for (int i = 0; i < set->n; i++)
        if (strcmp(set->list[i].path, first_path[class]) == 0) return true;
    return false;
}

static dsf_status add_list(dsf_labels *set, dsf_label_class class, bool from_zero, int *at)
{
    if (set->n == set->cap) {
        int cap = set->cap ? 2 * set->cap : 8;
        DSF_TRY(dsf_mem_grow(&set->list, (size_t)cap, sizeof *set->list));
        set->cap = cap;
    }
    dsf_label_list *l = &set->list[set->n];
    *l = (dsf_label_list){.class = class};
    bool is_axis = class <= DSF_LABEL_ENTRY_R2;
    if (!class_used(set, class) && (from_zero || !is_axis)) {
        l->axis = is_axis;
        (void)snprintf(l->path, sizeof l->path, "%s", first_path[class]);
    } else if (set->named++ == 0) {
        (void)snprintf(l->path, sizeof l->path, "/rows_sub");
    } else {
        (void)snprintf(l->path, sizeof l->path, "/rows_%02d", set->named - 1);
    }
    *at = set->n++;
    return DSF_OK;
}

/* Whether rows have..have+n can carry these labels on list l (it may have to grow). */
static bool agrees(const dsf_label_list *l, int64_t have, const int32_t *label, int64_t n)
{
    int64_t known = l->n - have < n ? l->n - have : n;
    if (known < 0) return false;
    if (memcmp(l->label + have, label, (size_t)known * sizeof *label) != 0) return false;
    return known == n || !l->axis || counts_up(label + known, n - known, l->n);
}

static dsf_status extend(dsf_label_list *l, int64_t have, const int32_t *label, int64_t n)
{
    if (have + n <= l->n) return DSF_OK;
    DSF_TRY(grow(l, have + n));
    memcpy(l->label + have, label, (size_t)n * sizeof *label);
    l->n = have + n;
    return DSF_OK;
}

static bool same_start(const dsf_label_list *a, const dsf_label_list *b, int64_t n)
{
    return a->class == b->class && a->n >= n &&
           memcmp(a->label, b->label, (size_t)n * sizeof *a->label) == 0;
}

dsf_status dsf_labels_append(dsf_labels *set, dsf_label_class class, int *at, int64_t have,
                             const int32_t *label, int64_t n)
{
    if (n == 0) return DSF_OK;
    if (*at >= 0 && agrees(&set->list[*at], have, label, n))
        return extend(&set->list[*at], have, label, n);
    for (int i = 0; i < set->n; i++) {
        dsf_label_list *l = &set->list[i];
        bool start = *at < 0 ? l->class == class && l->n > 0 && l->label[0] == label[0]
                             : same_start(l, &set->list[*at], have);
        if (!start || !agrees(l, have, label, n)) continue;
        *at = i;
        return extend(l, have, label, n);
    }
    int made = 0, old = *at;
    int32_t first = old < 0 ? label[0] : set->list[old].label[0];
    DSF_TRY(add_list(set, class, first == 0 && have == 0 && counts_up(label, n, 0), &made));
    if (have > 0) DSF_TRY(extend(&set->list[made], 0, set->list[old].label, have));
    DSF_TRY(extend(&set->list[made], have, label, n));
    *at = made;
    return DSF_OK;
}

dsf_status dsf_labels_trim(dsf_labels *set, int *at, int64_t have)
{
    const dsf_label_list *l = &set->list[*at];
    if (l->n == have) return DSF_OK;
    for (int i = 0; i < set->n; i++) {
        if (set->list[i].n != have || !same_start(&set->list[i], l, have)) continue;
        *at = i;
        return DSF_OK;
    }
    int made = 0;
    DSF_TRY(add_list(set, l->class, false, &made));
    DSF_TRY(extend(&set->list[made], 0, set->list[*at].label, have));
    *at = made;
    return DSF_OK;
}

void dsf_labels_free(dsf_labels *set)
{
    for (int i = 0; i < set->n; i++) dsf_mem_free(set->list[i].label);
    dsf_mem_free(set->list);
    *set = (dsf_labels){0};
}
