/* Writes the taps of one run as a dump file (dump-schema.md): a sink that appends rows, a bounded
 * buffer, a file that appears under its name only when it is whole.
 *
 * Until then PATH.part is the readable file that the last flush left, whatever ends the process and
 * when. One exception: a flush ends by copying the changed pages over the old ones in the system's
 * cache, some dozen pages in some ten microseconds where whole chunks were written, more where
 * parts of chunks were; a kill in between may leave single taps, or the file, unreadable. A machine
 * that loses power may lose more: the file is synced only when it is finished. */
#ifndef DSF_DUMP_WRITER_H
#define DSF_DUMP_WRITER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "plan/tap.h"
#include "verify/dump/types.h"

typedef struct dsf_dump dsf_dump;

/* What the file says about its run. Strings are copied; NULL writes none. Everything else lives as
 * long as the dump. */
typedef struct {
    const char *producer, *model, *config_json, *notes;
    const char *mode; /* exact | cone | replay | injected */
    const char *backend, *variants, *checkpoint_digest, *plan_digest;
    const int32_t *token_ids;
    int64_t n_tokens;          /* prompt length */
    int64_t n_decode;          /* tokens that may follow: sizes the entry axis */
    const uint8_t *image_mask; /* [n_tokens], or NULL */
    dsf_dump_filter filter;
    bool stats; /* statistics of row blocks instead of rows */
} dsf_dump_meta;

/* Rows that one record of a statistics dump covers. */
enum { DSF_DUMP_STATS_ROWS = 64 };

/* Starts PATH.part. Geometry comes from config_json. EINVAL: a number or string outside the schema;
 * EIO: with the system's words. */
DSF_MUST dsf_status dsf_dump_create(dsf_dump **out, const char *path, const dsf_dump_meta *meta);
/* The sink to give to a run; valid until the dump is finished or abandoned. Rows of a tap come in
 * ascending label order over any number of calls (draft rows: in any order); within one call any
 * order. After a failure every call returns that failure. */
dsf_tap_sink dsf_dump_sink(dsf_dump *d);
/* Ids of tokens fed after the prompt: they continue /token_ids and /positions. */
DSF_MUST dsf_status dsf_dump_add_tokens(dsf_dump *d, const int32_t *ids, int64_t n);
/* Where following rows of the tap `logits` go: false (at first) to `logits`, rows computed as the
 * last row of a prefill or by decode; true to `logits_oneshot`, rows of one prefill. */
void dsf_dump_logits_oneshot(dsf_dump *d, bool oneshot);
/* Writes what is buffered: a run killed later leaves it readable in PATH.part. Happens by itself
 * after every value of 16 rows or more, and when 64 MiB have gathered; after every 4 MiB with the
 * whole chunks of each tap (64 rows or less), so that taps of a killed run may differ in rows. */
DSF_MUST dsf_status dsf_dump_flush(dsf_dump *d);
/* Bytes of tensors taken so far, as stored before compression. */
int64_t dsf_dump_bytes(const dsf_dump *d);
/* Writes the rest, closes, renames PATH.part to PATH and frees d, whatever comes back. On failure
 * PATH.part is removed and PATH is as it was. */
DSF_MUST dsf_status dsf_dump_finish(dsf_dump *d);
/* Closes, removes PATH.part, frees d. NULL is fine. */
void dsf_dump_abandon(dsf_dump *d);

/* Upper bound, before compression, of the bytes that such a dump holds. */
DSF_MUST dsf_status dsf_dump_estimate(const dsf_dump_meta *meta, int64_t *bytes);

#endif
