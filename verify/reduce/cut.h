/* Checkpoints made from others: one cut after a layer, and one with holes, in which only some
 * tensors or rows of tensors have content and the rest takes no room on the disk. */
#ifndef DSF_REDUCE_CUT_H
#define DSF_REDUCE_CUT_H

#include "model/config.h"
#include "model/names.h"

typedef struct {
    int fd;
    char path[4096];
    dsf_name *name; /* names ascending */
    uint64_t *at;   /* [n] offset in the file */
    int64_t n;
} dsf_cut;

/* Writes config.json and one model.safetensors with every tensor of the configuration, all holes.
 * The folder is made when it is not there. Close in either case. */
DSF_MUST dsf_status dsf_cut_open(dsf_cut *o, const char *folder, const dsf_config *c,
                                 const char *json, size_t n_json);
/* Fills bytes [from, from + n) of a tensor. EINVAL: no such tensor, or outside of it. */
DSF_MUST dsf_status dsf_cut_put(dsf_cut *o, const char *name, int64_t from, const void *data,
                                int64_t n);
void dsf_cut_close(dsf_cut *o);

/* The checkpoint `from` without the layers from `layers` on and without draft stages, in `to`; all
 * its layers: links to its files. */
DSF_MUST dsf_status dsf_cut_model(const char *from, int layers, const char *to);
/* Removes a folder that this module, or a case, was unpacked into: its files, and itself. */
void dsf_cut_remove(const char *folder);
/* Writes a whole file: it appears when it is complete. */
DSF_MUST dsf_status dsf_cut_file(const char *path, const void *data, size_t n);
/* Copies a file; OK and nothing done when `optional` and it is not there. */
DSF_MUST dsf_status dsf_cut_copy(const char *from, const char *to, bool optional);

#endif
