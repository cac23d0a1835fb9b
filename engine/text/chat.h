/* Messages to prompt text, byte for byte as the model was trained on (encoding.md 2). */
#ifndef DSF_TEXT_CHAT_H
#define DSF_TEXT_CHAT_H

#include "base/json.h"

/* X(name, class in encoding.md 2.9) */
#define DSF_CHAT_ERROR_MAP(X)                                                                      \
    X(NONE, "none")                                                                                \
    X(BAD_REQUEST, "bad-request")                                                                  \
    X(BAD_MODE, "bad-thinking-mode")                                                               \
    X(BAD_EFFORT, "bad-reasoning-effort")                                                          \
    X(BAD_ROLE, "unknown-role")                                                                    \
    X(BAD_TASK, "bad-task")                                                                        \
    X(BAD_NAMESPACE, "bad-tool-namespace")                                                         \
    X(LITERAL_IMAGE, "literal-image-placeholder")                                                  \
    X(NO_IMAGE_SOURCE, "image-without-source")                                                     \
    X(BAD_IMAGE_TAG, "malformed-image-tag")                                                        \
    X(EMPTY_IMAGE_PATH, "empty-image-path")                                                        \
    X(BAD_TYPE, "type-error")                                                                      \
    X(MISSING_KEY, "missing-key")

typedef enum {
#define X(name, text) DSF_CHAT_##name,
    DSF_CHAT_ERROR_MAP(X)
#undef X
} dsf_chat_error;

const char *dsf_chat_error_name(dsf_chat_error e);

/* One image of the prompt; the values belong to the request, NULL where absent. */
typedef struct {
    const dsf_json *source, *url, *data;
} dsf_chat_image;

/* Zero-initialise; prompt.max bounds the text. Free with dsf_chat_free. */
typedef struct {
    dsf_buf prompt;
    dsf_chat_image *image; /* of `messages`, in prompt order: one per placeholder written for it */
    size_t n_images, image_cap;
    dsf_chat_error error; /* the reason when dsf_chat_encode refused */
} dsf_chat_prompt;

/* request: an object of messages, thinking_mode ("chat" or "thinking"), and optionally tools (put
 * on the first system message; an empty one is made when there is none), context, drop_thinking,
 * add_default_bos_token, reasoning_effort; or a bare list of messages. default_mode stands in for
 * an absent thinking_mode (NULL: none, an error). ECORRUPT: refused, with the message's index and
 * field in words and the class in out->error. */
DSF_MUST dsf_status dsf_chat_encode(const dsf_json *request, const char *default_mode,
                                    dsf_chat_prompt *out);
void dsf_chat_free(dsf_chat_prompt *p);
/* Appends the image records as a JSON array. */
DSF_MUST dsf_status dsf_chat_images_json(const dsf_chat_prompt *p, dsf_buf *out);

/* Compact notation: text with <image>path</image> in it becomes a JSON array of content blocks,
 * text without becomes a JSON string. ECORRUPT, with the class in *error. */
DSF_MUST dsf_status dsf_chat_tagged_text(const char *text, size_t n, dsf_buf *out,
                                         dsf_chat_error *error);

#endif
