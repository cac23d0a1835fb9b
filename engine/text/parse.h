/* Completion text to message, strictly as the reference parser reads it (encoding.md 3.1). For what
 * models really write there is stream.h. */
#ifndef DSF_TEXT_PARSE_H
#define DSF_TEXT_PARSE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

#define DSF_PARSE_ERROR_MAP(X)                                                                     \
    X(NONE, "none")                                                                                \
    X(NO_THINK_END, "missing-think-end")                                                           \
    X(NO_EOS, "missing-eos")                                                                       \
    X(TRAILING, "trailing-content")                                                                \
    X(SPECIAL, "special-token-in-text")                                                            \
    X(BAD_CALLS, "bad-calls-block")                                                                \
    X(BAD_INVOKE, "bad-invoke-tag")                                                                \
    X(BAD_PARAM, "bad-parameter-tag")                                                              \
    X(TWICE, "duplicate-parameter")                                                                \
    X(BAD_NAMESPACE, "bad-tool-namespace")

typedef enum {
#define X(name, text) DSF_PARSE_##name,
    DSF_PARSE_ERROR_MAP(X)
#undef X
} dsf_parse_error;

const char *dsf_parse_error_name(dsf_parse_error e);

typedef struct {
    dsf_buf space, name; /* space: empty when the name has no :: */
    dsf_buf arguments;   /* JSON text; raw values in it are the model's, unchecked */
} dsf_call;

/* Zero-initialise; free with dsf_parse_free. */
typedef struct {
    dsf_buf reasoning, content;
    dsf_call *call;
    size_t n_calls, call_cap;
    dsf_parse_error error; /* the class when dsf_parse_completion refused */
} dsf_completion;

/* text: what was generated after the head, eos included. ECORRUPT: refused, byte offset in words.
 */
DSF_MUST dsf_status dsf_parse_completion(const char *text, size_t n, bool thinking,
                                         dsf_completion *out);
void dsf_parse_free(dsf_completion *c);

#endif
