/* Any accepted JSON prints, reads back and prints the same again. */
#include <stdlib.h>
#include <string.h>

#include "text/pyjson.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static dsf_buf print(const char *text, size_t n, bool *good)
{
    dsf_json_doc *doc = NULL;
    dsf_buf out = {0};
    *good = dsf_json_parse(&doc, "fuzz", text, n) == DSF_OK;
    if (*good && dsf_pyjson_add(&out, dsf_json_root(doc)) != DSF_OK) abort();
    dsf_json_free(doc);
    return out;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    bool good, again;
    dsf_buf one = print((const char *)data, size, &good);
    if (good && !strstr(one.data, "Infinity")) { /* 1e999: Python's word for it is no JSON */
        dsf_buf two = print(one.data, one.len, &again);
        if (!again || one.len != two.len || memcmp(one.data, two.data, one.len) != 0) abort();
        dsf_buf_free(&two);
    }
    dsf_buf_free(&one);
    return 0;
}
