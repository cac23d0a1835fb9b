/* Contradictions between the fields of a config.json: each names both numbers. Internal to
 * engine/model. */
#ifndef DSF_MODEL_CONFIG_CHECK_H
#define DSF_MODEL_CONFIG_CHECK_H

#include "ckpt/faults.h"
#include "model/config_fields.h"

/* The faults so far, and which fields they made useless: a check that needs one is not made. */
typedef struct {
    dsf_faults list;
    const void *bad[128];
    int n_bad;
} dsf_config_faults;

void dsf_config_mark(dsf_config_faults *f, const void *field);
void dsf_config_check(const dsf_config_file *file, dsf_config_faults *faults);

#endif
