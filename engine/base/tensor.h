/* A typed view of someone else's memory, and the element types. Contiguous, outermost dimension
 * first.
 *
 * Besides plain elements there are row records: the last dimension d is stored as its codes
 * followed by its scales, which is the packed form of architecture.md 13 and of activations: Q8  d
 * e4m3 codes,   then d/32 ue8m0 scales (33/32 d bytes)   window KV 512 -> 528 Q4X d e2m1 nibbles,
 * then d/32 ue8m0 scales                    index keys 128 -> 68 Q4N d e2m1 nibbles, then d/16 e4m3
 * scales                     main KV 512 -> 288 Nibbles: low one first (even channel). */
#ifndef DSF_BASE_TENSOR_H
#define DSF_BASE_TENSOR_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* X(id, name) */
#define DSF_DTYPE_MAP(X)                                                                           \
    X(F32, "f32")                                                                                  \
    X(BF16, "bf16")                                                                                \
    X(I32, "i32")                                                                                  \
    X(I64, "i64")                                                                                  \
    X(U8, "u8")                                                                                    \
    X(E4M3, "e4m3")                                                                                \
    X(E8M0, "e8m0")                                                                                \
    X(E2M1X2, "e2m1x2")                                                                            \
    X(Q8, "q8")                                                                                    \
    X(Q4X, "q4x")                                                                                  \
    X(Q4N, "q4n")

typedef enum {
#define X(name, text) DSF_##name,
    DSF_DTYPE_MAP(X)
#undef X
        DSF_N_DTYPES
} dsf_dtype;

enum { DSF_MAX_RANK = 4 };

typedef struct {
    void *data;
    dsf_dtype dtype;
    int rank;
    int64_t
        dim[DSF_MAX_RANK]; /* elements; E2M1X2 counts bytes (two values each), as checkpoints do */
} dsf_tensor;

const char *dsf_dtype_name(dsf_dtype t);
/* Bytes of d consecutive elements (a whole last dimension for record types). */
static inline int64_t dsf_dtype_bytes(dsf_dtype t, int64_t d)
{
    switch (t) {
    case DSF_F32:
    case DSF_I32:
        return 4 * d;
    case DSF_BF16:
        return 2 * d;
    case DSF_I64:
        return 8 * d;
    case DSF_Q8:
        return d + d / 32;
    case DSF_Q4X:
        return d / 2 + d / 32;
    case DSF_Q4N:
        return d / 2 + d / 16;
    default:
        return d;
    }
}

/* Elements in all but the last dimension; 1 for rank 1. */
int64_t dsf_tensor_rows(const dsf_tensor *t);
/* Elements in all dimensions. */
int64_t dsf_tensor_count(const dsf_tensor *t);
int64_t dsf_tensor_bytes(const dsf_tensor *t);
/* Bytes of one step along the first dimension. */
int64_t dsf_tensor_stride(const dsf_tensor *t);

#ifdef __cplusplus
}
#endif
#endif
