/* The rows of one shown value in their stored form, or counted, by the threads of the run that
 * shows them: each row and each block is made by one of them, so that their number changes no bit.
 */
#ifndef DSF_DUMP_ROWS_H
#define DSF_DUMP_ROWS_H

#include "base/pool.h"
#include "verify/dump/series.h"

typedef struct dsf_rows_worker dsf_rows_worker;

typedef struct {
    dsf_pool *pool;
    dsf_rows_worker *worker; /* [threads] */
} dsf_rows;

/* pool: idle while a value is shown; NULL: the calling thread alone. */
DSF_MUST dsf_status dsf_rows_open(dsf_rows *r, dsf_pool *pool);
void dsf_rows_close(dsf_rows *r);

/* Which rows: order[0..n) of a tensor. */
typedef struct {
    const dsf_tensor *tensor;
    const int32_t *order;
    int64_t n;
} dsf_rows_of;

/* To `out`, plan->width stored elements each. EINVAL: types that do not fit. */
DSF_MUST dsf_status dsf_rows_widen(dsf_rows *r, const dsf_widen_plan *plan, dsf_rows_of rows,
                                   uint8_t *out);
/* To the statistics of a tap, behind the s->rows that it has. */
DSF_MUST dsf_status dsf_rows_count(dsf_rows *r, dsf_series *s, dsf_rows_of rows);

#endif
