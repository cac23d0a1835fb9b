/* The driver's management library, looked for when the program runs: clocks, power, memory of a
 * whole device, whoever holds it. */
#ifndef DSF_BENCH_NVML_H
#define DSF_BENCH_NVML_H

#include <stdbool.h>
#include <stdint.h>

typedef struct {
    bool there;
    char driver[32], why[64]; /* why it is not there */
    double sm_mhz, memory_mhz, watts, celsius;
} dsf_nvml_reading;

typedef struct dsf_nvml dsf_nvml;
/* NULL when there is none; *first then has the reason. */
dsf_nvml *dsf_nvml_open(int index, dsf_nvml_reading *first);
void dsf_nvml_close(dsf_nvml *n);
/* What the chip does at this moment. n may be NULL. */
void dsf_nvml_read(dsf_nvml *n, dsf_nvml_reading *r);
/* Bytes of the device, and those in use by anybody. False: not known. n may be NULL. */
bool dsf_nvml_memory(dsf_nvml *n, int64_t *total, int64_t *used);

#endif
