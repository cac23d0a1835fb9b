/* Writes the taps of one run as a dump file (dump-schema.md): a sink that appends rows, a bounded
 * buffer, a file that appears under its name only when it is whole.
 *
 * Until then PATH.part and PATH.part.log hold what was committed, whatever ends the process and
 * when (pages.h): the reader opens PATH.part with its log, and dsf_dump_recover makes a finished
 * file of it. Committed is a tap as soon as it has all rows of the prompt, and everything at the
 * latest when COMMIT_BYTES (8 MiB) have come since the last commit. */
#ifndef DSF_DUMP_WRITER_H
#define DSF_DUMP_WRITER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/pool.h"
#include "base/status.h"
#include "plan/tap.h"
#include "verify/dump/stats.h"
#include "verify/dump/types.h"

typedef struct dsf_dump dsf_dump;

/* What the file says about its run. Strings are copied; NULL writes none. Everything else lives as
 * long as the dump. */
typedef struct {
    const char *producer, *model, *config_json, *notes;
    const char *mode; /* exact | cone | replay | injected */
    const char *backend, *variants, *checkpoint_digest, *plan_digest;
    const int32_t *token_ids;
    int64_t n_tokens;          /* ids known now: the prompt's, or more than these */
    int64_t prompt_length;     /* 0: n_tokens */
    int64_t n_decode;          /* tokens that may follow: sizes the entry axis */
    const uint8_t *image_mask; /* [n_tokens], or NULL */
    dsf_dump_filter filter;
    dsf_pool *pool; /* converts rows; idle whenever a value is shown; NULL: the calling thread */
    bool stats;     /* statistics of row blocks instead of rows */
    int64_t sync_bytes; /* the file is synced and whole by itself after so many; 0: 1 GiB */
    bool compress; /* shuffle, deflate and checksums: a third of the bytes, a tenth of the speed */
} dsf_dump_meta;

/* Starts PATH.part. Geometry comes from config_json. EINVAL: a number or string outside the schema;
 * EIO: with the system's words. */
DSF_MUST dsf_status dsf_dump_create(dsf_dump **out, const char *path, const dsf_dump_meta *meta);
/* The sink to give to a run; valid until the dump is finished or abandoned. Rows of a tap come in
 * ascending label order over any number of calls (draft rows: in any order); within one call any
 * order. After a failure every call returns that failure. */
dsf_tap_sink dsf_dump_sink(dsf_dump *d);
/* Ids of tokens fed after the prompt: they continue /token_ids and /positions. */
DSF_MUST dsf_status dsf_dump_add_tokens(dsf_dump *d, const int32_t *ids, int64_t n);
/* The run was told to stop before its end: attribute `stopped`, "after 12 of 40 tokens". */
DSF_MUST dsf_status dsf_dump_note_stop(dsf_dump *d, const char *words);
/* Where following rows of the tap `logits` go: false (at first) to `logits`, rows computed as the
 * last row of a prefill or by decode; true to `logits_oneshot`, rows of one prefill. */
void dsf_dump_logits_oneshot(dsf_dump *d, bool oneshot);
/* Writes what is buffered and commits it. Happens by itself as said above; with `compress`, where a
 * chunk written in parts is compressed once for each, only whole chunks (64 rows or less) are
 * committed on the way, and the rest when 64 MiB wait. */
DSF_MUST dsf_status dsf_dump_flush(dsf_dump *d);
/* Bytes of tensors taken so far, as stored before compression. */
int64_t dsf_dump_bytes(const dsf_dump *d);
/* Writes the rest, closes, renames PATH.part to PATH and frees d, whatever comes back. After a
 * failure PATH is as it was; PATH.part is removed, but for a failure of the disk (EIO): then it
 * keeps what was committed, and the message says so. */
DSF_MUST dsf_status dsf_dump_finish(dsf_dump *d);
/* Closes, removes PATH.part (kept after a failure of the disk, as above), frees d. NULL is fine. */
void dsf_dump_abandon(dsf_dump *d);

/* Upper bound, before compression, of the bytes that such a dump holds. */
DSF_MUST dsf_status dsf_dump_estimate(const dsf_dump_meta *meta, int64_t *bytes);

#endif
