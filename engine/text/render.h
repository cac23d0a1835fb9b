/* One turn as prompt text: the second half of the encoder (encoding.md 2.5). */
#ifndef DSF_TEXT_RENDER_H
#define DSF_TEXT_RENDER_H

#include "text/turns.h"

/* Appends turn i. effort: 1..100, printed at i = 0. last_user: dsf_turns_last_user of all turns. */
DSF_MUST dsf_status dsf_render_turn(dsf_chat *c, size_t i, int effort, int64_t last_user);

#endif
