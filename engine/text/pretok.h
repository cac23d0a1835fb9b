/* The pre-tokenizer: a chain of regular expressions, each cutting the pieces of the one before
 * into matches and gaps (encoding.md 4). */
#ifndef DSF_TEXT_PRETOK_H
#define DSF_TEXT_PRETOK_H

#include <stddef.h>

#include "base/json.h"

typedef struct dsf_pretok dsf_pretok;         /* immutable after load: shared by threads */
typedef struct dsf_pretok_run dsf_pretok_run; /* match state of one caller */

/* Called for every piece in order, never empty. A status other than DSF_OK stops the cutting. */
typedef dsf_status dsf_pretok_fn(void *ud, const char *piece, size_t n);

/* `value` is the object pre_tokenizer. Only a Sequence of isolating Splits by Regex, closed by
 * ByteLevel without prefix space and without its own expression, is supported. */
DSF_MUST dsf_status dsf_pretok_load(dsf_pretok **out, const char *name, const dsf_json *value);
void dsf_pretok_free(dsf_pretok *p); /* NULL is fine */

DSF_MUST dsf_status dsf_pretok_open(dsf_pretok_run **out, const dsf_pretok *p);
void dsf_pretok_close(dsf_pretok_run *r); /* NULL is fine */
/* text: valid UTF-8. ECORRUPT when an expression meets its limit of steps. */
DSF_MUST dsf_status dsf_pretok_cut(dsf_pretok_run *r, const char *text, size_t n, dsf_pretok_fn *fn,
                                   void *ud);

#endif
