/* Compiler attributes in use, each spelled once. */
#ifndef DSF_BASE_ATTR_H
#define DSF_BASE_ATTR_H

#define DSF_MUST             __attribute__((warn_unused_result))
#define DSF_PRINTF(fmt, arg) __attribute__((format(printf, fmt, arg)))
#define DSF_UNUSED           __attribute__((unused))

#endif
