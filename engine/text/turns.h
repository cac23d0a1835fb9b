/* Messages checked, merged into turns and put in order: the first half of the encoder
 * (encoding.md 2.2-2.4). */
#ifndef DSF_TEXT_TURNS_H
#define DSF_TEXT_TURNS_H

#include "text/chat.h"

typedef enum {
    DSF_PART_TEXT,  /* value: content of a user message; NULL is empty */
    DSF_PART_BLOCK, /* value: one content block */
    DSF_PART_TOOL   /* value: a whole tool message */
} dsf_part_kind;

/* One piece of a user turn. */
typedef struct {
    dsf_part_kind kind;
    const dsf_json *value;
} dsf_part;

typedef struct {
    const dsf_json *message; /* whose fields count; NULL for a system message made for tools */
    const char *role;
    const dsf_json *tools;
    bool in_context;
    int index;       /* in its list, for messages to people */
    size_t first, n; /* parts of a user turn */
} dsf_turn;

typedef struct {
    const char *where; /* "messages" or "context": for paths in error messages */
    const dsf_json *list;
} dsf_message_list;

/* State of one encoding. */
typedef struct {
    dsf_chat_prompt *out;
    dsf_message_list context, messages;
    const dsf_json *tools, *effort;
    bool thinking, drop, bos;
    dsf_turn *turn; /* context first */
    size_t n_turns, n_context;
    dsf_part *part;
    size_t n_parts, turn_cap, part_cap;
} dsf_chat;

#define DSF_CHAT_FAIL(chat, kind, ...)                                                             \
    ((chat)->out->error = DSF_CHAT_##kind, DSF_FAIL(DSF_ECORRUPT, __VA_ARGS__))

/* The last member of that name, as a Python dict would have it; NULL without one or without obj. */
const dsf_json *dsf_turns_get(const dsf_json *obj, const char *key);
/* Python's truth: not null, false, 0, "", [] or {}; false for NULL. */
bool dsf_turns_truth(const dsf_json *v);
/* The content blocks of a message: content_blocks, or content when that is a list; NULL if neither.
 */
const dsf_json *dsf_turns_blocks(const dsf_json *message);
/* Type of a content block; "" when it has none. */
const char *dsf_turns_type(const dsf_json *block);
bool dsf_turns_is_image(const dsf_json *block);

/* Checks all messages and fills turn, part and n_context: merged, results in call order, request
 * tools placed. */
DSF_MUST dsf_status dsf_turns_build(dsf_chat *c);
/* Index of the last turn that counts as the user's among the first n, or -1 (2.4). */
int64_t dsf_turns_last_user(const dsf_chat *c, size_t n);
/* Removes what thinking mode drops; n_context follows. */
void dsf_turns_drop(dsf_chat *c);
void dsf_turns_free(dsf_chat *c);

#endif
