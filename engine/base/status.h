/* Status codes, and this thread's error record: what went wrong, with the numbers, and its way up.
 */
#ifndef DSF_BASE_STATUS_H
#define DSF_BASE_STATUS_H

#include "base/attr.h"

#ifdef __cplusplus
extern "C" {
#endif

#define DSF_STATUS_MAP(X)                                                                          \
    X(OK, "success")                                                                               \
    X(EINVAL, "argument outside the contract")                                                     \
    X(ENOMEM, "memory budget exceeded")                                                            \
    X(ECORRUPT, "malformed input")                                                                 \
    X(EIO, "file could not be read or written")                                                    \
    X(ENOTSUP, "not supported by this build or device")                                            \
    X(EDEVICE, "accelerator or interconnect failed")                                               \
    X(ECANCELED, "stopped on request")

typedef enum {
#define X(name, text) DSF_##name,
    DSF_STATUS_MAP(X)
#undef X
} dsf_status;

/* Text of a status code; static. */
const char *dsf_status_text(dsf_status st);

/* Starts this thread's error record. Returns st, so that it can end a function. */
dsf_status dsf_error_raise(dsf_status st, const char *where, const char *fmt, ...) DSF_PRINTF(3, 4);
/* Adds one frame to the record. Returns st. */
dsf_status dsf_error_pass(dsf_status st, const char *where);
/* The record as text: the message, then one line per frame. Valid until the next raise. */
const char *dsf_error_text(void);
/* The message alone, without place and frames. */
const char *dsf_error_message(void);

#define DSF_STR2(x) #x
#define DSF_STR(x)  DSF_STR2(x)
#define DSF_HERE    __FILE__ ":" DSF_STR(__LINE__)

#define DSF_FAIL(st, ...) dsf_error_raise((st), DSF_HERE, __VA_ARGS__)
#define DSF_TRY(call)                                                                              \
    do {                                                                                           \
        dsf_status try_st = (call);                                                                \
        if (try_st != DSF_OK) return dsf_error_pass(try_st, DSF_HERE);                             \
    } while (0)
/* The same where things must be undone: leaves by the label `out` with `st` set. */
#define DSF_TRY_OUT(call)                                                                          \
    do {                                                                                           \
        st = (call);                                                                               \
        if (st != DSF_OK) {                                                                        \
            (void)dsf_error_pass(st, DSF_HERE);                                                    \
            goto out;                                                                              \
        }                                                                                          \
    } while (0)

#ifdef __cplusplus
}
#endif
#endif
