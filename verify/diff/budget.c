#include "verify/diff/budget.h"

#include <math.h>

#include "base/mem.h"
#include "verify/diff/sentence.h"

double dsf_budget_combine(const double *local, const double *growth, int n)
{
    double sum = 0.0;
    for (int l = 0; l < n; l++) sum += growth[l] * local[l] * growth[l] * local[l];
    return sqrt(sum);
}

dsf_status dsf_budget_make(dsf_diff_report *r, const dsf_floor *f, const dsf_dump_geometry *g)
{
    double local[DSF_DUMP_MAX_LAYERS], carried[DSF_DUMP_MAX_LAYERS], grown[DSF_DUMP_MAX_LAYERS];
    int n = g->n_layers;
    if (r->injected || !dsf_floor_streams(f, n, local, carried)) return DSF_OK;
    DSF_TRY(dsf_mem_new(&r->budget, (size_t)n, sizeof *r->budget));
    for (int k = 0; k < n; k++) {
        const dsf_diff_tap *out = dsf_sentence_tap(r, (dsf_tap){DSF_TAP_OUT, k});
        if (!out) continue;
        for (int l = 0; l <= k; l++) grown[l] = dsf_floor_growth(f, l, k);
        r->budget[r->n_budget++] =
            (dsf_diff_budget){k, carried[k], dsf_budget_combine(local, grown, k + 1), out->rel_l2};
    }
    return DSF_OK;
}
