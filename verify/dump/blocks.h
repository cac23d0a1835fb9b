/* The block statistics of a tap, from a statistics dump as they stand there or from a full dump
 * computed: so that two statistics dumps, or one and a full dump, compare bit by bit. */
#ifndef DSF_DUMP_BLOCKS_H
#define DSF_DUMP_BLOCKS_H

#include "verify/dump/reader.h"

typedef struct {
    dsf_dump_stat *stat; /* [n]: rows k * block .. of the tap, by index; the last may have fewer */
    int64_t n, block;
    int32_t *label; /* [rows] */
    int64_t rows, width;
    dsf_tap_source source;
    bool computed; /* from rows */
} dsf_dump_blocks;

/* Of "layers/03/attn/q". *found false and OK when the file has neither rows nor statistics of it. A
 * full dump's float32 values are first rounded to the type that source_dtype names, which changes
 * none that has this type already. ECORRUPT: records that do not fit their labels. Memory: one
 * block of rows. Free with dsf_dump_blocks_free. */
DSF_MUST dsf_status dsf_dump_blocks_read(dsf_dump_file *f, const char *path, dsf_dump_blocks *out,
                                         bool *found);
void dsf_dump_blocks_free(dsf_dump_blocks *b);

#endif
