/* Compiler attributes in use, each spelled once. */
#ifndef DSF_BASE_ATTR_H
#define DSF_BASE_ATTR_H

#define DSF_MUST             __attribute__((warn_unused_result))
#define DSF_PRINTF(fmt, arg) __attribute__((format(printf, fmt, arg)))
#define DSF_UNUSED           __attribute__((unused))

/* A sanitizer's own memory is counted among the process's. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define DSF_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define DSF_SANITIZED 1
#endif
#endif
#ifndef DSF_SANITIZED
#define DSF_SANITIZED 0
#endif

#endif
