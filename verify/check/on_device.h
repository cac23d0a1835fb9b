/* A frame's run on a CUDA device: operands travel there with guard bytes around them and come back
 * into the frame, so that everything checked of a host run is checked of this one. */
#ifndef DSF_VERIFY_ON_DEVICE_H
#define DSF_VERIFY_ON_DEVICE_H

#include "check.h"
#include "frame.h"

/* Opens device `index`, once for the process. apart: every operand in an allocation of exactly its
 * size instead of between guards: what compute-sanitizer needs to see a stray read. */
DSF_MUST dsf_status dsf_on_device_open(int index, bool apart);
bool dsf_on_device(void); /* one is open */
void dsf_on_device_close(void);
/* Runs v on sealed operands. *ran: what the kernel or the device said; f is set when it wrote
 * beside an operand or its workspace. */
DSF_MUST dsf_status dsf_on_device_run(const dsf_variant *v, dsf_frame *frame, dsf_status *ran,
                                      dsf_finding *f);

#endif
