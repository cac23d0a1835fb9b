/* The content of tensors searched for values that no checkpoint may hold. Internal to
 * engine/model. */
#ifndef DSF_MODEL_CONTRACT_SCAN_H
#define DSF_MODEL_CONTRACT_SCAN_H

#include "base/tensor.h"

typedef struct {
    int64_t bad;   /* elements that are NaN or infinite */
    int64_t first; /* index of the first of them */
    int low, high; /* E8M0: least and greatest byte other than 255; high -1: none */
} dsf_scan_result;

/* E2M1X2 has no bad values: nothing is read. */
dsf_scan_result dsf_scan_tensor(const dsf_tensor *t);

#endif
