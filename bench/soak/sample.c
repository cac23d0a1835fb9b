/* What is held at this moment, by every gauge there is. */
#include "base/clock.h"
#include "bench/soak/state.h"

static int64_t less(int64_t a, int64_t b) { return a < 0 || (b >= 0 && b < a) ? b : a; }

void dsf_soak_look(dsf_soak *s, dsf_soak_sample *out)
{
    *out = (dsf_soak_sample){.own = dsf_proc_own(),
                             .machine = dsf_proc_machine(),
                             .live = dsf_ledger_now(s->ledger).live,
                             .pinned = -1,
                             .device_free = -1,
                             .device_total = -1,
                             .device_used = -1,
                             .files = dsf_proc_files()};
    if (!s->engine || !s->engine->device) return;
    const dsf_device_usage held = dsf_device_used(s->engine->device);
    out->pinned = held.pinned;
    if (dsf_device_memory(s->engine->device, &out->device_free) != DSF_OK) out->device_free = -1;
    if (dsf_nvml_memory(s->nvml, &out->device_total, &out->device_used)) return;
    /* At least so much there is: what the driver would give, and what it gave us. */
    out->device_total = out->device_free < 0 ? -1 : out->device_free + held.bytes;
    out->device_used = -1;
}

static void add(dsf_buf *json, const char *key, int64_t bytes)
{
    if (bytes < 0)
        dsf_json_add_raw(json, key, "null");
    else
        dsf_json_add_int(json, key, bytes);
}

static void keep_least(dsf_soak *s, const dsf_soak_sample *now)
{
    s->least.machine.available = less(s->least.machine.available, now->machine.available);
    s->least.device_free = less(s->least.device_free, now->device_free);
    if (now->device_total >= 0) s->device_total = now->device_total;
    if (now->own.anon > s->least.own.anon) s->least.own.anon = now->own.anon;
    if (now->own.file > s->least.own.file) s->least.own.file = now->own.file;
}

dsf_status dsf_soak_take(dsf_soak *s, const char *phase)
{
    dsf_buf json = {.max = 0};
    dsf_soak_sample now;
    dsf_soak_look(s, &now);
    keep_least(s, &now);
    dsf_ledger_hush(s->ledger, true);
    dsf_soak_begin(&json, "sample");
    dsf_json_add_int(&json, "t_ms", (dsf_clock_ns() - s->began) / 1000000);
    dsf_json_add_cstr(&json, "stage", s->stage);
    dsf_json_add_int(&json, "length", s->length);
    dsf_json_add_int(&json, "chunk", s->chunk);
    dsf_json_add_int(&json, "cycle", s->cycle);
    dsf_json_add_cstr(&json, "phase", phase);
    add(&json, "anon_bytes", now.own.anon);
    add(&json, "file_bytes", now.own.file);
    add(&json, "resident_high_bytes", now.own.peak);
    add(&json, "available_bytes", now.machine.available);
    add(&json, "page_cache_bytes", now.machine.cached);
    dsf_json_add_int(&json, "live_bytes", now.live);
    add(&json, "pinned_bytes", now.pinned);
    add(&json, "device_free_bytes", now.device_free);
    add(&json, "device_used_bytes", now.device_used);
    add(&json, "fds", now.files);
    return dsf_soak_emit(s, &json, NULL);
}
