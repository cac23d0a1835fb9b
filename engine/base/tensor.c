#include "base/tensor.h"

const char *dsf_dtype_name(dsf_dtype t)
{
    static const char *const name[] = {
#define X(id, text) text,
        DSF_DTYPE_MAP(X)
#undef X
    };
    return (unsigned)t < DSF_N_DTYPES ? name[t] : "?";
}

int64_t dsf_tensor_rows(const dsf_tensor *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->rank - 1; i++) n *= t->dim[i];
    return n;
}

int64_t dsf_tensor_count(const dsf_tensor *t)
{
    return t->rank ? dsf_tensor_rows(t) * t->dim[t->rank - 1] : 0;
}

int64_t dsf_tensor_bytes(const dsf_tensor *t)
{
    return t->rank ? dsf_tensor_rows(t) * dsf_dtype_bytes(t->dtype, t->dim[t->rank - 1]) : 0;
}

int64_t dsf_tensor_stride(const dsf_tensor *t)
{
    int64_t n = 1;
    if (t->rank == 1) return dsf_dtype_bytes(t->dtype, 1);
    for (int i = 1; i < t->rank - 1; i++) n *= t->dim[i];
    return n * dsf_dtype_bytes(t->dtype, t->dim[t->rank - 1]);
}
