/* config.json. Property: what is accepted, written again and parsed, is the same configuration. */
#include <stdlib.h>
#include <string.h>

#include "model/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int holds)
{
    if (!holds) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static dsf_config a, b;
    dsf_buf first = {.max = 1 << 20}, second = {.max = 1 << 20}, shown = {.max = 1 << 20};
    if (dsf_config_parse(&a, "fuzz", (const char *)data, size, NULL) != DSF_OK) {
        require(dsf_error_message()[0] != 0);
        return 0;
    }
    require(a.n_layers + a.n_mtp_layers <= DSF_MAX_LAYERS && a.n_engram <= DSF_MAX_ENGRAMS);
    dsf_config_write(&a, &first);
    dsf_config_print(&a, &shown);
    require(dsf_buf_status(&first) == DSF_OK && dsf_buf_status(&shown) == DSF_OK);
    require(dsf_config_parse(&b, "again", first.data, first.len, NULL) == DSF_OK);
    dsf_config_write(&b, &second);
    require(first.len == second.len && memcmp(first.data, second.data, first.len) == 0);
    memcpy(a.digest, b.digest, sizeof a.digest); /* of the text, which may be spelled otherwise */
    require(memcmp(&a, &b, sizeof a) == 0);
    dsf_buf_free(&first);
    dsf_buf_free(&second);
    dsf_buf_free(&shown);
    return 0;
}
