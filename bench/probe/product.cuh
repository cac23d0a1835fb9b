/* Small products on the tensor cores, for the probe: tiles of operands in, f32 sums out.
 *
 * A batch holds `tiles` products of 64 rows of A by n rows of B over `steps` instructions along K;
 * a step is 32 bytes a row: 32 e4m3 or 16 bf16. Row r of tile t starts at
 * ((t * rows) + r) * steps * 32 bytes. */
#ifndef DSF_PROBE_PRODUCT_CUH
#define DSF_PROBE_PRODUCT_CUH

#include <stdint.h>

enum format { E4M3, BF16 };

/* How the steps of one output are combined. */
enum combine {
    CHAIN,   /* the tensor core accumulates all steps, from zero */
    ONTO,    /* the same from the values found in d */
    PROMOTE, /* every step from zero, then acc = fmaf(part, scale[step], acc), steps ascending */
};

struct batch {
    enum format format;
    enum combine combine;
    int tiles, n, steps;
    uint8_t *a, *b;      /* host */
    const float *scales; /* host, [steps]; PROMOTE only */
    float *d;            /* host, [tiles][64][n]; read when ONTO, written always */
};

/* wgmma; n is 8, 64, 128 or 256. */
void run_wgmma(const struct batch *batch);

/* mma.sync, the same operands and the same order of steps. */
void run_mma(const struct batch *batch);

/* Ends the program with a message when a CUDA call failed. */
void cuda_check(int error, const char *what);
#define CUDA(call) cuda_check((int)(call), #call)

/* The rates of the machine (rates.cu): memory, the link to the host, graph nodes. */
void measure_rates(void);

#endif
