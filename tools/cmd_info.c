/* dsf info: the config as understood, the tensor contract, bytes by part and per rank. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "ckpt/index.h"
#include "cmd.h"
#include "model/contract.h"

typedef struct {
    const char *model;
    opt_list accept;
    int64_t ranks;
    bool json, scan;
} options;

/* What is shown; ckpt is NULL when only a config.json was given. */
typedef struct {
    dsf_config config;
    dsf_ckpt *ckpt;
    dsf_contract contract;
    int64_t bytes[DSF_N_PARTS], tensors[DSF_N_PARTS];
    char digest[33];
} facts;

enum { SCALES_READ_BYTES = 256 << 20 }; /* read without being asked up to here */

static dsf_status read_facts(const options *o, facts *f)
{
    char path[4096];
    bool folder = dsf_file_is_folder(o->model);
    dsf_config_accept accept = {.key = o->accept.item, .n = o->accept.n};
    if (folder)
        DSF_TRY(dsf_file_join(path, o->model, "config.json"));
    else
        (void)snprintf(path, sizeof path, "%s", o->model);
    DSF_TRY(dsf_config_load(&f->config, path, &accept));
    dsf_contract_parts(&f->config, f->bytes, f->tensors);
    if (!folder) return DSF_OK;
    DSF_TRY(dsf_ckpt_open(&f->ckpt, o->model));
    DSF_TRY(dsf_ckpt_digest(f->ckpt, f->digest));
    dsf_scan scan = o->scan                                                     ? DSF_SCAN_ALL
                    : dsf_contract_scale_bytes(&f->config) <= SCALES_READ_BYTES ? DSF_SCAN_SCALES
                                                                                : DSF_SCAN_NONE;
    return dsf_contract_check(&f->config, f->ckpt, scan, &f->contract);
}

static int64_t total(const int64_t *v)
{
    int64_t sum = 0;
    for (int i = 0; i < DSF_N_PARTS; i++) sum += v[i];
    return sum;
}

static int64_t share(const facts *f, int part, int64_t ranks)
{
    return dsf_contract_share(&f->config, f->bytes, part, ranks);
}

static int64_t rank_bytes(const facts *f, int64_t ranks)
{
    int64_t sum = 0;
    for (int i = 0; i < DSF_N_PARTS; i++) sum += share(f, i, ranks);
    return sum;
}

/* ---- text ---- */

static void print_parts(const options *o, const facts *f, dsf_buf *b)
{
    dsf_buf_fmt(b, "\n%-24s %9s %18s %10s", "part", "tensors", "bytes", "GiB");
    if (o->ranks) dsf_buf_fmt(b, " %18s", "largest rank");
    dsf_buf_char(b, '\n');
    for (int i = 0; i < DSF_N_PARTS; i++) {
        if (!f->tensors[i]) continue;
        dsf_buf_fmt(b, "%-24s %9" PRId64 " %18" PRId64 " %10.2f", dsf_names_part((dsf_part)i),
                    f->tensors[i], f->bytes[i], (double)f->bytes[i] / (1 << 30));
        if (o->ranks) dsf_buf_fmt(b, " %18" PRId64, share(f, i, o->ranks));
        dsf_buf_char(b, '\n');
    }
    dsf_buf_fmt(b, "%-24s %9" PRId64 " %18" PRId64 " %10.2f", "total", total(f->tensors),
                total(f->bytes), (double)total(f->bytes) / (1 << 30));
    if (o->ranks)
        dsf_buf_fmt(b, " %18" PRId64 "\nof %" PRId64 " ranks: " DSF_SHARE_RULE,
                    rank_bytes(f, o->ranks), o->ranks);
    dsf_buf_char(b, '\n');
}

static void print_scales(const dsf_contract *r, dsf_buf *b)
{
    if (r->scanned == DSF_SCAN_NONE) {
        dsf_buf_str(b, "scale bytes not read (--scan reads every value)\n");
        return;
    }
    dsf_buf_fmt(b, "\nscale bytes (2^(u - 127))  least greatest\n");
    for (int i = 0; i < DSF_N_ROLES; i++)
        if (r->scale_max[i] >= 0)
            dsf_buf_fmt(b, "%-26s %5d %8d\n", dsf_names_role((dsf_role)i), r->scale_min[i],
                        r->scale_max[i]);
}

static void print_contract(const facts *f, dsf_buf *b)
{
    const dsf_contract *r = &f->contract;
    print_scales(r, b);
    dsf_buf_fmt(b, "\nshards %d, layout digest %s\n", dsf_ckpt_shards(f->ckpt), f->digest);
    if (r->ignored)
        dsf_buf_fmt(b,
                    "%" PRId64 " tensors mtp.*.embed and mtp.*.head ignored: the backbone's are "
                    "used\n",
                    r->ignored);
    if (r->faults.n) {
        dsf_buf_add(b, r->faults.text.data, r->faults.text.len);
        dsf_buf_fmt(b, "contract violated:");
        for (int i = 0; i < DSF_N_FAULTS; i++)
            if (r->count[i])
                dsf_buf_fmt(b, " %" PRId64 " %s", r->count[i],
                            dsf_contract_fault_name((dsf_fault)i));
        dsf_buf_fmt(b, " (%" PRId64 " of %" PRId64 " tensors right)\n", r->matched, r->expected);
    } else {
        dsf_buf_fmt(b, "contract kept: %" PRId64 " tensors\n", r->matched);
    }
}

/* ---- JSON ---- */

static void json_parts(const options *o, const facts *f, dsf_buf *b)
{
    dsf_json_begin(b, "parts", '[');
    for (int i = 0; i < DSF_N_PARTS; i++) {
        dsf_json_begin(b, NULL, '{');
        dsf_json_add_cstr(b, "part", dsf_names_part((dsf_part)i));
        dsf_json_add_int(b, "tensors", f->tensors[i]);
        dsf_json_add_int(b, "bytes", f->bytes[i]);
        if (o->ranks) dsf_json_add_int(b, "largest_rank_bytes", share(f, i, o->ranks));
        dsf_json_end(b, '}');
    }
    dsf_json_end(b, ']');
    dsf_json_add_int(b, "tensors", total(f->tensors));
    dsf_json_add_int(b, "bytes", total(f->bytes));
    if (!o->ranks) return;
    dsf_json_add_int(b, "ranks", o->ranks);
    dsf_json_add_int(b, "largest_rank_bytes", rank_bytes(f, o->ranks));
    dsf_json_add_cstr(b, "rank_rule", DSF_SHARE_RULE);
}

static void json_faults(const dsf_contract *r, dsf_buf *b)
{
    dsf_json_begin(b, "faults", '[');
    const char *s = r->faults.text.data;
    while (s && *s) {
        size_t n = strcspn(s, "\n");
        dsf_json_add_str(b, NULL, s, n);
        s += n + (s[n] == '\n');
    }
    dsf_json_end(b, ']');
}

static void json_contract(const facts *f, dsf_buf *b)
{
    static const char *const scans[] = {"none", "scales", "all"};
    const dsf_contract *r = &f->contract;
    dsf_json_begin(b, "contract", '{');
    dsf_json_add_bool(b, "kept", r->faults.n == 0);
    dsf_json_add_int(b, "expected", r->expected);
    dsf_json_add_int(b, "matched", r->matched);
    dsf_json_add_int(b, "ignored", r->ignored);
    for (int i = 0; i < DSF_N_FAULTS; i++)
        dsf_json_add_int(b, dsf_contract_fault_name((dsf_fault)i), r->count[i]);
    json_faults(r, b);
    dsf_json_add_cstr(b, "scanned", scans[r->scanned]);
    dsf_json_begin(b, "scales", '{');
    for (int i = 0; i < DSF_N_ROLES; i++) {
        if (r->scale_max[i] < 0) continue;
        dsf_json_begin(b, dsf_names_role((dsf_role)i), '[');
        dsf_json_add_int(b, NULL, r->scale_min[i]);
        dsf_json_add_int(b, NULL, r->scale_max[i]);
        dsf_json_end(b, ']');
    }
    dsf_json_end(b, '}');
    dsf_json_end(b, '}');
    dsf_json_add_int(b, "shards", dsf_ckpt_shards(f->ckpt));
    dsf_json_add_cstr(b, "digest", f->digest);
}

static void print(const options *o, const facts *f, dsf_buf *b)
{
    if (!o->json) {
        dsf_config_print(&f->config, b);
        print_parts(o, f, b);
        if (f->ckpt) print_contract(f, b);
        return;
    }
    dsf_json_begin(b, NULL, '{');
    dsf_json_add_cstr(b, "model", o->model);
    dsf_buf config = {.max = 1 << 22};
    dsf_config_json(&f->config, &config);
    dsf_json_add_raw(b, "config", config.data ? config.data : "null");
    dsf_buf_free(&config);
    json_parts(o, f, b);
    if (f->ckpt) json_contract(f, b);
    dsf_json_end(b, '}');
    dsf_buf_char(b, '\n');
}

int dsf_cmd_info(int argc, char **argv)
{
    options o = {.ranks = 0};
    const opt opts[] = {
        {"--json", OPT_FLAG, &o.json, NULL, "one JSON document"},
        {"--ranks", OPT_INT, &o.ranks, "N", "bytes of the largest of N ranks too"},
        {"--scan", OPT_FLAG, &o.scan, NULL, "read every value: NaN, infinities, NaN scales"},
        {"--accept-config", OPT_LIST, &o.accept, "KEY", "ignore this unknown key of config.json"},
    };
    const opt_spec spec = {.command = "info",
                           .synopsis = "MODEL|config.json [options]",
                           .about = "Shows the config as understood and holds the checkpoint "
                                    "against its tensor contract.",
                           .example = "dsf info mini --ranks 2",
                           .opts = opts,
                           .n_opts = sizeof opts / sizeof opts[0],
                           .positional = &o.model,
                           .n_positional = 1,
                           .n_required = 1};
    int code = dsf_opt_parse(&spec, argc, argv);
    if (code >= 0) return code;
    if (o.ranks < 0 || o.ranks > 4096) {
        (void)fprintf(stderr, "dsf info: --ranks %" PRId64 "; allowed are 1 to 4096\n", o.ranks);
        return DSF_EXIT_USAGE;
    }
    facts f = {.ckpt = NULL};
    dsf_status st = read_facts(&o, &f);
    if (st == DSF_OK) {
        dsf_buf b = {.max = 1 << 30};
        print(&o, &f, &b);
        code = dsf_cmd_print(&b);
        if (code == DSF_EXIT_GOOD && f.contract.faults.n) code = DSF_EXIT_NO;
        dsf_buf_free(&b);
    } else {
        code = dsf_cmd_fail("info", st);
    }
    dsf_contract_free(&f.contract);
    dsf_ckpt_close(f.ckpt);
    return code;
}
