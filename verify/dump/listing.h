/* Which datasets a dump file holds, each checked before anything is read from it. */
#ifndef DSF_DUMP_LISTING_H
#define DSF_DUMP_LISTING_H

#include <stdbool.h>

#include "verify/dump/h5.h"
#include "verify/dump/reader.h"

typedef struct {
    dsf_dump_entry *entry; /* sorted by path; labelled datasets */
    int64_t n, cap;
    int n_broken; /* partial files: objects that cannot be opened */
} dsf_listing;

/* Walks hard links from the root. ECORRUPT: too many objects, too deep, an object that cannot be
 * opened in a finished file. */
DSF_MUST dsf_status dsf_listing_make(dsf_listing *list, hid_t file, const char *name, bool partial);
/* What one path is; *found false when it is no dataset of the file. */
DSF_MUST dsf_status dsf_listing_describe(hid_t file, const char *name, const char *path,
                                         dsf_dump_entry *e, bool *found);
void dsf_listing_free(dsf_listing *list);

#endif
