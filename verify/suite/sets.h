/* Golden sets of a folder: the folder itself where it holds dump-pN.h5, else its subfolders that
 * do. What looks like a golden file and is not taken is told by name: nothing is left out in
 * silence. Names that begin with a dot are nobody's data. */
#ifndef DSF_VERIFY_SUITE_SETS_H
#define DSF_VERIFY_SUITE_SETS_H

#include "base/status.h"

typedef struct {
    char path[4096];
    int *prompt; /* [n_prompts] numbers N of its dump-pN.h5, ascending */
    int n_prompts, cap;
} dsf_golden_set;

/* Data that are not taken: the path below the folder that was given, or SET/FILE. */
typedef struct {
    char name[520], why[160];
} dsf_golden_odd;

typedef struct {
    dsf_golden_set *set; /* in name order */
    dsf_golden_odd *odd; /* in name order */
    int n, cap, n_odd, cap_odd;
} dsf_golden_sets;

/* None, and OK, where the folder is not there. Free in either case. */
DSF_MUST dsf_status dsf_golden_sets_find(const char *folder, dsf_golden_sets *s);
void dsf_golden_sets_free(dsf_golden_sets *s);

#endif
