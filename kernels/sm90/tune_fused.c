#include "sm90/tune_fused.h"

#include "ops/fused.h"

/* 16 rows a cluster spread few rows over the machine (1,024 rows are 64 clusters of 8 blocks), but
 * every cluster reads all of fn; 64 rows a cluster read it once for four times as many. */
enum { FEW_ROWS = 1024 };

/* A cluster of 16 needs a whole GPC: seven or eight of them at a time. */
enum { WIDE_ROWS = 64 };

int dsf_tune_boundary_cluster(int64_t n) { return n <= WIDE_ROWS ? 16 : 8; }

int dsf_tune_boundary_many(int64_t n) { return n > FEW_ROWS; }

size_t dsf_tune_boundary_parts_bytes(int64_t d)
{
    return (size_t)d * 4 * 24 * 3 * sizeof(uint16_t);
}

/* Every part holds whole tiles. */
int dsf_hc_boundary_sm90tc_accepts(const void *args)
{
    const dsf_hc_boundary_args *a = args;
    int64_t d = a->x.dim[2];
    return d > 0 && d % (DSF_BOUNDARY_PARTS * DSF_BOUNDARY_TILE) == 0 && d <= 5120;
}

size_t dsf_hc_boundary_sm90tc_scratch(const void *args)
{
    const dsf_hc_boundary_args *a = args;
    return dsf_tune_boundary_many(a->x.dim[0]) ? dsf_tune_boundary_parts_bytes(a->x.dim[2]) : 0;
}
