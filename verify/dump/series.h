/* One tap of a dump being written: its rows waiting in memory, its dataset, its statistics. */
#ifndef DSF_DUMP_SERIES_H
#define DSF_DUMP_SERIES_H

#include <stdint.h>

#include "verify/dump/h5.h"
#include "verify/dump/labels.h"
#include "verify/dump/types.h"
#include "verify/dump/widen.h"

/* One record of /stats: rows of a block, as the compound of dump-schema.md 8. */
typedef struct {
    uint64_t count, nan, inf;
    double min, max, mean, rms; /* over the finite values; 0 when there is none */
    uint64_t hash;              /* xxh3-64 of the stored bytes of the rows */
} dsf_dump_stat;

typedef struct dsf_dump_block dsf_dump_block; /* a block of rows being counted */

typedef struct {
    dsf_tap tap;
    bool oneshot;  /* logits of all rows of one prefill */
    char path[96]; /* absolute, "/layers/03/attn/q" or "/stats/layers/03/attn/q" */
    dsf_tap_source source;
    dsf_widen_plan plan;
    dsf_label_class labels;
    int ratio;              /* entries: tokens of one; else 0 */
    int row_rank;           /* dimensions of a row */
    int64_t dim[3];         /* a row's shape; product = plan.width */
    int64_t rows, written;  /* taken so far; of these in the file */
    int64_t last;           /* label of the last row */
    int list, list_written; /* label list; the one the file's `rows` attribute names (-1: none) */
    uint8_t *pending;
    size_t pending_cap;
    uint16_t *scratch; /* one record, for unpacking */
    int64_t scratch_n;
    dsf_dump_block *block; /* statistics dumps */
    dsf_dump_stat *stat;
    int64_t n_stats, stats_cap, stats_written;
} dsf_series;

int64_t dsf_series_row_bytes(const dsf_series *s);
/* Appends one widened row (already in s->pending) to the statistics. */
DSF_MUST dsf_status dsf_series_count(dsf_series *s, const void *row);
/* Ends the current block. */
DSF_MUST dsf_status dsf_series_count_end(dsf_series *s);
/* Writes waiting rows (or records) to the file, making the dataset the first time; with `whole`
 * only rows that complete a chunk, the others go on waiting. Label lists must be written first. */
DSF_MUST dsf_status dsf_series_write(dsf_series *s, hid_t file, const char *name,
                                     const dsf_labels *labels, bool whole);
/* Narrows the entry axis of a finished tap to `width`. */
DSF_MUST dsf_status dsf_series_narrow(dsf_series *s, hid_t file, const char *name, int64_t width);
void dsf_series_free(dsf_series *s);

/* Appends to a one-dimensional dataset that grows (token ids, labels, masks), making it first. */
typedef struct {
    const void *data; /* [n] int32, or uint8 with `bytes` */
    int64_t from, n;  /* index of the first in the dataset */
    bool bytes;
} dsf_axis_rows;
DSF_MUST dsf_status dsf_series_axis(hid_t file, const char *name, const char *path,
                                    dsf_axis_rows rows);

#endif
