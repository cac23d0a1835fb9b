/* What the system says of this process's memory and of the machine's. Nothing is allocated. */
#ifndef DSF_BASE_PROC_H
#define DSF_BASE_PROC_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes; -1 where the system does not tell. */
typedef struct {
    int64_t anon, file; /* resident: anonymous, file-backed and shared */
    int64_t peak;       /* most that was resident, of all kinds, since dsf_proc_forget_peak */
    int64_t swapped;
} dsf_proc_memory;
dsf_proc_memory dsf_proc_own(void);
/* Most anonymous resident bytes that a plan of so many explains: 5 % for pages half used, 16 MiB
 * for stacks, the heap's own pages, what loading leaves. */
static inline int64_t dsf_proc_resident_limit(int64_t planned)
{
    return planned + planned / 20 + (16 << 20);
}
/* Starts the peak anew; where the system does not allow it the peak is since the start. */
void dsf_proc_forget_peak(void);
int64_t dsf_proc_files(void); /* open descriptors; -1: unknown */

/* Of the machine, or of the control group that holds this process where that is tighter: the limit
 * that ends it first. Bytes; -1 where the system does not tell. */
typedef struct {
    int64_t total;
    int64_t available; /* before the system swaps, or the group's limit ends a process */
    int64_t cached;    /* page cache of the machine */
} dsf_proc_machine_memory;
dsf_proc_machine_memory dsf_proc_machine(void);

#ifdef __cplusplus
}
#endif
#endif
