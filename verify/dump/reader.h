/* Reads dump files of any producer (dump-schema.md): attributes, the taps that are there, and their
 * rows as float or int64 with labels. Files come from outside: everything is checked against limits
 * before it is believed. */
#ifndef DSF_DUMP_READER_H
#define DSF_DUMP_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "verify/dump/stats.h"
#include "verify/dump/types.h"

typedef struct dsf_dump_file dsf_dump_file;

/* One labelled dataset. */
typedef struct {
    char path[96]; /* without the leading slash: "layers/03/attn/q" */
    bool readable; /* float32 or integers, rank 1..4, known filters; `why` says what is not */
    char why[96];
    dsf_dump_kind kind;
    int rank;
    int64_t dim[4];
    bool has_source;
    dsf_tap_source source;
    char rows[96]; /* path of its labels, absolute as in the file */
    int64_t order; /* attribute `order`, -1 when absent */
    bool oneshot_bit_equal;
    bool stats; /* records of a statistics dump: dsf_dump_read_stats; never readable as rows */
    int64_t row_block, width; /* stats: rows of a record, elements of a row; 0 when not said */
} dsf_dump_entry;

/* Root attributes; "" where absent. */
typedef struct {
    const char *path, *schema, *producer, *model, *config_json, *notes, *mode, *backend, *variants,
        *checkpoint_digest, *plan_digest;
    const char *stopped;   /* "after 12 of 40 tokens": the run was told to stop */
    int64_t prompt_length; /* n_tokens when the attribute is absent */
    int64_t n_tokens;      /* /token_ids; 0 without */
    bool partial;          /* a .part file: the run that wrote it did not finish */
    int n_unreadable;      /* partial: datasets that the kill left without content */
    bool has_geometry;     /* config_json was there and could be read */
    dsf_dump_geometry geometry;
} dsf_dump_info;

/* Opens a file; a .part together with its log (pages.h): all that was committed. Another major
 * schema number, another kind of file, a file cut short: ECORRUPT or ENOTSUP with words. */
DSF_MUST dsf_status dsf_dump_open(dsf_dump_file **out, const char *path);
/* The same from n bytes in memory (copied); `name` opens messages. */
DSF_MUST dsf_status dsf_dump_open_bytes(dsf_dump_file **out, const char *name, const void *data,
                                        size_t n);
void dsf_dump_close(dsf_dump_file *f); /* NULL is fine */

/* Valid until close. */
const dsf_dump_info *dsf_dump_info_of(const dsf_dump_file *f);
/* Labelled datasets, in name order. */
int64_t dsf_dump_count(const dsf_dump_file *f);
const dsf_dump_entry *dsf_dump_at(const dsf_dump_file *f, int64_t i);
/* NULL when the file does not hold the path (leading slash optional). */
const dsf_dump_entry *dsf_dump_find(const dsf_dump_file *f, const char *path);

/* Rows with labels. Exactly one of f and i is set (both NULL for zero elements). */
typedef struct {
    float *f;   /* kind F32 */
    int64_t *i; /* integer kinds, masks */
    int64_t n, width;
    int rank; /* of the dataset: 1 + dimensions of a row */
    int64_t dim[4];
    int32_t *label; /* [n] */
    dsf_tap_source source;
} dsf_dump_array;

/* All rows of a labelled dataset. EINVAL: not there. ECORRUPT: sizes or labels that do not fit
 * together. ENOMEM: more than 8 GiB at once (read ranges). Free with dsf_dump_array_free. */
DSF_MUST dsf_status dsf_dump_read(dsf_dump_file *f, const char *path, dsf_dump_array *out);
/* Rows from..from+n by index. */
DSF_MUST dsf_status dsf_dump_read_range(dsf_dump_file *f, const char *path, int64_t from, int64_t n,
                                        dsf_dump_array *out);
void dsf_dump_array_free(dsf_dump_array *a);
/* The token after a prompt of n tokens at temperature 0: the best of the last row's logits; -1
 * without them. ECORRUPT: their width is not vocab. */
DSF_MUST dsf_status dsf_dump_anchor(dsf_dump_file *f, const char *path, int64_t n, int64_t vocab,
                                    int64_t *anchor);
/* A one-dimensional integer dataset that need not be labelled (token_ids, image_mask, axes).
 * *data NULL and OK when it is absent. Free with dsf_mem_free. */
DSF_MUST dsf_status dsf_dump_read_axis(dsf_dump_file *f, const char *path, int32_t **data,
                                       int64_t *n);

/* Rows from..from+n in the type they are stored in (`kind`), dsf_mem; NULL for zero elements. */
DSF_MUST dsf_status dsf_dump_read_stored(dsf_dump_file *f, const char *path, int64_t from,
                                         int64_t n, void **data);

/* The records of a statistics dataset ("stats/layers/03/attn/q"). Free with dsf_mem_free. */
typedef dsf_dump_stat dsf_dump_stat_row;
DSF_MUST dsf_status dsf_dump_read_stats(dsf_dump_file *f, const char *path, dsf_dump_stat_row **out,
                                        int64_t *n);

/* Labels of a tap's rows ascend and lie on their axis: tokens 0..N-1, entries 0..E-1, draft rows up
 * to the last of the block. ECORRUPT names tap, row and label. Datasets that are no tap: OK. */
DSF_MUST dsf_status dsf_dump_check_labels(const dsf_dump_file *f, const dsf_dump_entry *e,
                                          const int32_t *label, int64_t n);

/* Pairs of row indices with equal labels, in label order: pair[2k] of a, pair[2k+1] of b. The jth
 * row of a label meets the jth of the other side; negative labels (slots never written) never meet.
 * Free with dsf_mem_free. */
DSF_MUST dsf_status dsf_dump_join(const dsf_dump_array *a, const dsf_dump_array *b, int64_t **pair,
                                  int64_t *n);

#endif
