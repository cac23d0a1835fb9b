/* A case is refused with words, or what it unpacks into is a checkpoint that opens; either way
 * nothing of it stays. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "ckpt/index.h"
#include "verify/reduce/case.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    dsf_case_files f;
    dsf_case_report r = {.layer = -1};
    dsf_ckpt *k = NULL;
    char folder[sizeof f.folder];
    dsf_status st = dsf_case_unpack("fuzz.h5", data, size, &f, &r);
    if (st != DSF_OK && !*dsf_error_message()) abort();
    if (st == DSF_OK && dsf_ckpt_open(&k, f.model) != DSF_OK) abort();
    if (st == DSF_OK && !dsf_file_exists(f.golden)) abort();
    dsf_ckpt_close(k);
    memcpy(folder, f.folder, sizeof folder);
    dsf_case_clean(&f);
    if (folder[0] && dsf_file_exists(folder)) abort();
    return 0;
}
