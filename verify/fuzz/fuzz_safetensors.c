/* safetensors header. Property: what is accepted covers the file once, in order of the names, and
 * every name is found again. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "ckpt/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int holds)
{
    if (!holds) abort();
}

/* A copy in memory that the shard may unmap, as it does with files. */
static int make_file(dsf_file *f, const uint8_t *data, size_t size)
{
    void *copy = NULL;
    *f = (dsf_file){.path = "fuzz", .size = size};
    if (size == 0) return 1;
    if (dsf_mem_map(&copy, size) != DSF_OK) return 0;
    memcpy(copy, data, size);
    f->data = copy;
    return 1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    dsf_file f;
    dsf_shard s;
    if (!make_file(&f, data, size)) return 0;
    if (dsf_safetensors_parse(&s, &f) != DSF_OK) {
        require(dsf_error_message()[0] != 0);
        require(s.entry == NULL && s.file.data == NULL);
        return 0;
    }
    uint64_t header = 8, covered = 0;
    for (int i = 0; i < 8; i++) header += (uint64_t)data[i] << 8 * i;
    for (int64_t i = 0; i < s.n; i++) {
        const dsf_shard_entry *e = &s.entry[i];
        uint64_t bytes = (uint64_t)dsf_dtype_bytes(e->dtype, 1);
        for (int d = 0; d < e->rank; d++) bytes *= (uint64_t)e->dim[d];
        require(bytes == e->bytes);
        require(e->offset >= header && e->offset + e->bytes <= size);
        require(i == 0 || strcmp(s.entry[i - 1].name, e->name) < 0);
        require(dsf_safetensors_find(&s, e->name) == e);
        covered += e->bytes;
    }
    require(header + covered == size);
    dsf_safetensors_close(&s);
    return 0;
}
