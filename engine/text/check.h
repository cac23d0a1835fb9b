/* What makes a message be refused before anything is rendered (encoding.md 2.2, 2.9). */
#ifndef DSF_TEXT_CHECK_H
#define DSF_TEXT_CHECK_H

#include "text/turns.h"

DSF_MUST dsf_status dsf_check_messages(dsf_chat *c, const dsf_message_list *list);
/* The record of an image block; false: it has no source that is not empty. */
bool dsf_check_image(const dsf_json *block, dsf_chat_image *image);

#endif
