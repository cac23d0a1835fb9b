#include "ckpt/digest.h"

#include <stdio.h>
#include <xxhash.h>

#include "base/mem.h"

struct dsf_digest {
    XXH3_state_t *state;
};

dsf_status dsf_digest_open(dsf_digest **out)
{
    dsf_digest *d;
    *out = NULL;
    DSF_TRY(dsf_mem_new(&d, 1, sizeof *d));
    d->state = XXH3_createState();
    if (!d->state || XXH3_128bits_reset(d->state) != XXH_OK) {
        dsf_digest_close(d);
        return DSF_FAIL(DSF_ENOMEM, "digest: no memory for its state");
    }
    *out = d;
    return DSF_OK;
}

void dsf_digest_add(dsf_digest *d, const void *data, size_t n)
{
    if (n) (void)XXH3_128bits_update(d->state, data, n); /* fails on NULL data only */
}

static void format(XXH128_hash_t h, char out[33])
{
    (void)snprintf(out, 33, "%016llx%016llx", (unsigned long long)h.high64,
                   (unsigned long long)h.low64);
}

void dsf_digest_hex(const dsf_digest *d, char out[33])
{
    format(XXH3_128bits_digest(d->state), out);
}

void dsf_digest_close(dsf_digest *d)
{
    if (!d) return;
    (void)XXH3_freeState(d->state);
    dsf_mem_free(d);
}

void dsf_digest_bytes(const void *data, size_t n, char out[33])
{
    format(XXH3_128bits(data, n), out);
}
