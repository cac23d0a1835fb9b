/* The faults found in one input: all of them are told at once, not the first alone. */
#ifndef DSF_CKPT_FAULTS_H
#define DSF_CKPT_FAULTS_H

#include "base/buf.h"

/* Zero-initialise. Free with dsf_faults_free. */
typedef struct {
    dsf_buf text; /* one line a fault */
    int64_t n;
} dsf_faults;

void dsf_faults_add(dsf_faults *f, const char *fmt, ...) DSF_PRINTF(2, 3);
/* OK when there are none, else st with "NAME: N faults:" and as many lines as the record holds. */
DSF_MUST dsf_status dsf_faults_status(const dsf_faults *f, dsf_status st, const char *name);
void dsf_faults_free(dsf_faults *f);

#endif
