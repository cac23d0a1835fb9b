/* dsf doctor: what this machine has and lacks, each with the consequence. */
#include <stdio.h>
#include <unistd.h>

#include "base/pool.h"
#include "cmd.h"
#include "config.h"
#include "device.h"
#include "op.h"

static void line(dsf_buf *b, bool json, const char *name, bool have, const char *consequence)
{
    if (!json) {
        dsf_buf_fmt(b, "%-10s %-4s %s\n", name, have ? "yes" : "no", consequence);
        return;
    }
    dsf_json_begin(b, name, '{');
    dsf_json_add_bool(b, "present", have);
    dsf_json_add_cstr(b, "consequence", consequence);
    dsf_json_end(b, '}');
}

int dsf_cmd_doctor(int argc, char **argv)
{
    bool json = false;
    const opt opts[] = {{"--json", OPT_FLAG, &json, NULL, "as JSON"}};
    const opt_spec spec = {.command = "doctor",
                           .synopsis = "",
                           .about = "Tells what this machine has and lacks.",
                           .example = "dsf doctor",
                           .opts = opts,
                           .n_opts = 1};
    int code = dsf_opt_parse(&spec, argc, argv);
    if (code >= 0) return code;
    dsf_buf b = {.max = 0};
    bool avx = (dsf_machine() & DSF_NEEDS_AVX512) != 0;
    int64_t page = sysconf(_SC_PAGESIZE), memory = (int64_t)sysconf(_SC_PHYS_PAGES) * page;
    if (json) dsf_json_begin(&b, NULL, '{');
    line(
        &b, json, "avx512", avx,
        !HAVE_AVX512 ? "the compiler of this build has none: reference kernels"
        : avx
            ? "F BW VL DQ VBMI VNNI BF16: the fast kernels run"
            : "some of F BW VL DQ VBMI VNNI BF16 is missing: reference kernels, about a hundred times slower");
    line(&b, json, "hdf5", HAVE_HDF5,
         HAVE_HDF5 ? "dump, diff, graft and verify work"
                   : "dump, diff, graft and verify answer exit 3");
    const char *why = NULL;
    bool cuda = dsf_device_count(&why) > 0; /* this process forks no more */
    line(&b, json, "cuda", cuda, cuda ? "a Hopper device: --backend cuda works" : why);
    line(&b, json, "nccl", false, "not in this version: one process, no GPUs");
    line(&b, json, "verbs", false, "not in this version: no RDMA");
    if (json) {
        dsf_json_add_int(&b, "processors", dsf_pool_processors());
        dsf_json_add_int(&b, "memory_bytes", memory);
        dsf_json_end(&b, '}');
        dsf_buf_char(&b, '\n');
    } else {
        dsf_buf_fmt(&b, "processors %d\nmemory     %.1f GiB\n", dsf_pool_processors(),
                    (double)memory / (1 << 30));
    }
    code = dsf_cmd_print(&b);
    dsf_buf_free(&b);
    return code;
}
