#include <stdio.h>

#include "device_bench.h"
#include "device_fill.h"

enum {
    STREAM_BYTES = 512 << 20,
    STREAMS =
        4, /* passes a measurement: ramp and tail are a few microseconds of each millisecond */
    WARM_ROUNDS = 600 /* 0.15 s: clocks rise from idle */
};

dsf_status dsf_bench_device_open(dsf_bench_device *d, dsf_bench *b, int index)
{
    *d = (dsf_bench_device){.b = b, .bytes = STREAM_BYTES};
    DSF_TRY(dsf_device_open(&d->device, index));
    d->nvml = dsf_nvml_open(index, &d->reading);
    (void)snprintf(b->host.machine, sizeof b->host.machine, "%s",
                   dsf_device_describe(d->device)->name);
    DSF_TRY(dsf_device_new(d->device, &d->from, d->bytes));
    DSF_TRY(dsf_device_new(d->device, &d->to, d->bytes));
    const dsf_fill_values any = {DSF_FILL_BYTES, 0, 255, 0};
    const dsf_fill_layout l = {any, any, 1024, 1024};
    void *stream = dsf_device_stream(d->device);
    DSF_TRY(dsf_device_fill(stream, d->from, d->bytes, &l, 1));
    for (int i = 0; i < WARM_ROUNDS; i++)
        DSF_TRY(dsf_device_copy(d->device, d->to, d->from, d->bytes));
    return dsf_device_wait(d->device);
}

void dsf_bench_device_close(dsf_bench_device *d)
{
    dsf_nvml_close(d->nvml);
    if (d->device) {
        dsf_device_free(d->device, d->from);
        dsf_device_free(d->device, d->to);
        dsf_device_close(d->device);
    }
    *d = (dsf_bench_device){.b = NULL};
}

dsf_status dsf_bench_device_rates(dsf_bench_device *d, dsf_samples *copy, dsf_samples *read)
{
    void *stream = dsf_device_stream(d->device);
    double us = 0, passes = STREAMS;
    DSF_TRY(dsf_device_mark(d->device, 0));
    for (int i = 0; i < STREAMS; i++) DSF_TRY(dsf_device_copy(d->device, d->to, d->from, d->bytes));
    DSF_TRY(dsf_device_mark(d->device, 1));
    for (int i = 0; i < STREAMS; i++)
        DSF_TRY(dsf_device_stream_read(stream, d->to, d->from, d->bytes));
    DSF_TRY(dsf_device_mark(d->device, 2));
    DSF_TRY(dsf_device_between(d->device, 0, 1, &us));
    dsf_samples_add(copy, 2e6 * passes * (double)d->bytes / us);
    DSF_TRY(dsf_device_between(d->device, 1, 2, &us));
    dsf_samples_add(read, 1e6 * passes * (double)d->bytes / us);
    return DSF_OK;
}

void dsf_bench_device_json(const dsf_bench_device *d, dsf_buf *json)
{
    const dsf_device_info *i = dsf_device_describe(d->device);
    const dsf_nvml_reading *r = &d->reading;
    dsf_json_begin(json, "device", '{');
    dsf_json_add_int(json, "multiprocessors", i->multiprocessors);
    dsf_json_add_int(json, "cuda_driver", i->driver);
    dsf_json_add_int(json, "cuda_runtime", i->runtime);
    if (r->driver[0]) dsf_json_add_cstr(json, "driver", r->driver);
    if (r->there) {
        dsf_json_add_num(json, "sm_mhz", r->sm_mhz);
        dsf_json_add_num(json, "memory_mhz", r->memory_mhz);
        dsf_json_add_num(json, "watts", r->watts);
        dsf_json_add_num(json, "celsius", r->celsius);
    } else {
        dsf_json_add_cstr(json, "clocks_unknown", r->why);
    }
    dsf_json_end(json, '}');
}
