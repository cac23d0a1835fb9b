/* One tap of a dump being written: its rows waiting in memory, its dataset, its statistics. */
#ifndef DSF_DUMP_SERIES_H
#define DSF_DUMP_SERIES_H

#include <stdint.h>

#include "verify/dump/h5.h"
#include "verify/dump/labels.h"
#include "verify/dump/stats.h"
#include "verify/dump/types.h"
#include "verify/dump/widen.h"

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
    int64_t chunk_rows;     /* of the dataset */
    bool compress;
    uint8_t *pending; /* rows written..rows */
    size_t pending_cap;
    dsf_dump_block *block; /* statistics dumps: of the last rows % DSF_DUMP_STATS_ROWS rows */
    dsf_dump_stat *stat;   /* records that wait to be written */
    int64_t n_stats, stats_cap, stats_written;
    int64_t counted; /* rows that have a record */
} dsf_series;

int64_t dsf_series_row_bytes(const dsf_series *s);
/* How many rows a chunk of the dataset holds, of a dump of at most n rows. */
int64_t dsf_series_chunk_rows(const dsf_series *s, int64_t n);
/* Adds n whole blocks of rows, whose records the caller is to write to *stat. */
DSF_MUST dsf_status dsf_series_records(dsf_series *s, int64_t n, dsf_dump_stat **stat);
/* Ends the current block, if it has rows. */
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
