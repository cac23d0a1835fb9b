#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "nvml.h"

/* The functions of libnvidia-ml that we call; its handles are opaque pointers, 0 is success.
 */
struct nvml_memory {
    unsigned long long total, free, used;
};
struct dsf_nvml {
    void *library, *device;
    int (*clock)(void *device, unsigned kind, unsigned *mhz);
    int (*power)(void *device, unsigned *milliwatts);
    int (*temperature)(void *device, unsigned sensor, unsigned *celsius);
    int (*memory)(void *device, struct nvml_memory *bytes);
};
enum { CLOCK_SM = 1, CLOCK_MEMORY = 2, SENSOR_GPU = 0 };

/* dlsym gives a data pointer; POSIX says that it may be read as a function's. */
static bool find(void *library, const char *name, void *function)
{
    void *p = dlsym(library, name);
    memcpy(function, &p, sizeof p);
    return p != NULL;
}

static const char *connect(dsf_nvml *n, int index, dsf_nvml_reading *first)
{
    int (*init)(void) = NULL, (*handle)(unsigned, void **) = NULL;
    int (*driver)(char *, unsigned) = NULL;
    n->library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!n->library) return "no libnvidia-ml.so.1";
    if (!find(n->library, "nvmlInit_v2", &init) ||
        !find(n->library, "nvmlDeviceGetHandleByIndex_v2", &handle) ||
        !find(n->library, "nvmlSystemGetDriverVersion", &driver) ||
        !find(n->library, "nvmlDeviceGetClockInfo", &n->clock) ||
        !find(n->library, "nvmlDeviceGetPowerUsage", &n->power) ||
        !find(n->library, "nvmlDeviceGetTemperature", &n->temperature) ||
        !find(n->library, "nvmlDeviceGetMemoryInfo", &n->memory))
        return "libnvidia-ml.so.1 lacks a function";
    if (init() != 0) return "nvmlInit failed";
    if (driver(first->driver, sizeof first->driver) != 0) first->driver[0] = 0;
    return handle((unsigned)index, &n->device) == 0 ? NULL : "no such device";
}

dsf_nvml *dsf_nvml_open(int index, dsf_nvml_reading *first)
{
    dsf_nvml *n = NULL;
    *first = (dsf_nvml_reading){.there = false};
    if (dsf_mem_new(&n, 1, sizeof *n) != DSF_OK) return NULL;
    const char *why = connect(n, index, first);
    if (!why) {
        dsf_nvml_read(n, first);
        return n;
    }
    (void)snprintf(first->why, sizeof first->why, "%s", why);
    dsf_nvml_close(n);
    return NULL;
}

void dsf_nvml_close(dsf_nvml *n)
{
    if (n && n->library) (void)dlclose(n->library);
    dsf_mem_free(n);
}

void dsf_nvml_read(dsf_nvml *n, dsf_nvml_reading *r)
{
    unsigned sm = 0, memory = 0, milliwatts = 0, celsius = 0;
    if (!n) return;
    r->there = n->clock(n->device, CLOCK_SM, &sm) == 0;
    (void)n->clock(n->device, CLOCK_MEMORY, &memory);
    (void)n->power(n->device, &milliwatts);
    (void)n->temperature(n->device, SENSOR_GPU, &celsius);
    r->sm_mhz = sm;
    r->memory_mhz = memory;
    r->watts = 1e-3 * milliwatts;
    r->celsius = celsius;
}

bool dsf_nvml_memory(dsf_nvml *n, int64_t *total, int64_t *used)
{
    struct nvml_memory bytes = {0, 0, 0};
    if (!n || n->memory(n->device, &bytes) != 0) return false;
    *total = (int64_t)bytes.total;
    *used = (int64_t)bytes.used;
    return true;
}
