/* Trends of measured series: slopes that single outliers do not move, their intervals, and a fit
 * whose residual is what nothing explains. */
#ifndef DSF_BENCH_SOAK_TREND_H
#define DSF_BENCH_SOAK_TREND_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

enum {
    DSF_TREND_POINTS = 160, /* longer series are thinned evenly to so many: pairs grow squared */
    DSF_TREND_ROUNDS = 1000,
    DSF_FIT_TERMS = 4
};

typedef struct {
    double slope;     /* Theil-Sen: the median of the slopes between all pairs */
    double low, high; /* its 95 % interval by bootstrap over the points */
    int n;            /* points that were used */
} dsf_trend;

/* Values at equal steps, [n]; the slope is by step. Fewer than 2 points: all 0. The same seed gives
 * the same interval. ENOMEM. */
DSF_MUST dsf_status dsf_trend_of(dsf_trend *t, const double *value, int n, uint64_t seed);

typedef struct {
    double coefficient[DSF_FIT_TERMS]; /* 0 of a term that others make up for: see `told` */
    bool told[DSF_FIT_TERMS];          /* the points tell this term from the others */
    double residual_percent;           /* of the worst point: 100 |fit - y| / y */
    double rms_percent;
    int n;
} dsf_fit;

/* y[i] = sum over k of coefficient[k] term[i][k], i < n, by least squares of the relative error (y
 * spans decades; an absolute fit would see the largest alone). y > 0. terms <= DSF_FIT_TERMS. */
DSF_MUST dsf_status dsf_fit_of(dsf_fit *f, const double (*term)[DSF_FIT_TERMS], const double *y,
                               int n, int terms);

#endif
