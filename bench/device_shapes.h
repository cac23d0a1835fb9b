/* The operations at the released model's sizes as one GPU meets them. */
#ifndef DSF_BENCH_DEVICE_SHAPES_H
#define DSF_BENCH_DEVICE_SHAPES_H

#include "op.h"

/* The unit whose peak is an operation's limit in arithmetic. */
typedef enum { DSF_PEAK_FP8, DSF_PEAK_BF16, DSF_PEAK_F32, DSF_N_PEAKS } dsf_peak;

/* Datasheet of an H200, dense, operations a second; bytes a second of its memory. */
extern const double dsf_device_peak[DSF_N_PEAKS];
extern const double dsf_device_memory_peak;

/* Stands in the sizes for the number of rows. */
enum { DSF_ROWS = -1, DSF_HALF_ROWS = -2 };

/* Numbers of rows that a shape is measured at, as bits. */
enum {
    DSF_AT_1 = 1 << 0,
    DSF_AT_8 = 1 << 1,
    DSF_AT_64 = 1 << 2,
    DSF_AT_256 = 1 << 3,
    DSF_AT_8192 = 1 << 4,
    DSF_AT_16384 = 1 << 5,
    DSF_AT_DECODE = DSF_AT_1 | DSF_AT_8 | DSF_AT_64 | DSF_AT_256,
    DSF_AT_ALL = DSF_AT_DECODE | DSF_AT_8192 | DSF_AT_16384,
    DSF_N_AT = 6
};
extern const int64_t dsf_device_rows[DSF_N_AT];

typedef struct {
    const char *op, *use;
    dsf_peak peak;
    unsigned at;
    dsf_case sizes;
} dsf_device_shape;

extern const dsf_device_shape dsf_device_shapes[];
extern const int dsf_n_device_shapes;

/* The sizes with n rows in place. */
dsf_case dsf_device_sizes(const dsf_device_shape *s, int64_t n);

/* Writes what the sizes do not say into host operands of indices, positions and flags: the middle
 * of a long sequence (more than 256 rows: one sequence's prefill; fewer: a sequence a row), lists
 * that are full, routing that is uniform. Another seed, another choice of entries and experts. */
void dsf_device_settle(const dsf_op *op, void *args, uint64_t seed);

#endif
