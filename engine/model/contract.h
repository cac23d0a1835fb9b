/* The tensor contract held against a checkpoint: everything that is wrong, each fault with both
 * values (architecture.md 12). */
#ifndef DSF_MODEL_CONTRACT_H
#define DSF_MODEL_CONTRACT_H

#include "ckpt/faults.h"
#include "ckpt/index.h"
#include "model/names.h"

#define DSF_FAULT_MAP(X)                                                                           \
    X(MISSING, "missing")                                                                          \
    X(EXTRA, "extra")                                                                              \
    X(MISTYPED, "mistyped")                                                                        \
    X(MISSHAPEN, "misshapen")                                                                      \
    X(VALUE, "bad value")                                                                          \
    X(TOTAL, "total_size")

typedef enum {
#define X(id, text) DSF_FAULT_##id,
    DSF_FAULT_MAP(X)
#undef X
        DSF_N_FAULTS
} dsf_fault;

typedef enum {
    DSF_SCAN_NONE,   /* headers only */
    DSF_SCAN_SCALES, /* every scale byte: 255 is NaN */
    DSF_SCAN_ALL     /* every value: e4m3 NaN codes, bf16 and f32 that are not finite too */
} dsf_scan;

/* Zero-initialise; free with dsf_contract_free. */
typedef struct {
    int64_t expected; /* tensors of the configuration */
    int64_t matched;  /* of them there, with the right dtype and shape */
    int64_t ignored;  /* mtp.*.embed and mtp.*.head: copies of the backbone's, which are used */
    int64_t count[DSF_N_FAULTS];
    dsf_faults faults; /* one line each: "missing layers.0.attn.wq_a.weight: F8_E4M3 [64, 128]" */
    int64_t part_bytes[DSF_N_PARTS], part_tensors[DSF_N_PARTS]; /* as expected */
    dsf_scan scanned;
    int scale_min[DSF_N_ROLES], scale_max[DSF_N_ROLES]; /* scale bytes by weight; max -1: none */
} dsf_contract;

/* ENOMEM alone fails: a violated contract is a result, in *out. */
DSF_MUST dsf_status dsf_contract_check(const dsf_config *c, const dsf_ckpt *k, dsf_scan scan,
                                       dsf_contract *out);
/* OK, or ECORRUPT with the faults: for a caller that needs the contract kept. */
DSF_MUST dsf_status dsf_contract_status(const dsf_contract *r, const char *folder);
void dsf_contract_free(dsf_contract *r);
const char *dsf_contract_fault_name(dsf_fault f);

/* Bytes and tensors by part of a configuration alone, DSF_N_PARTS each. */
void dsf_contract_parts(const dsf_config *c, int64_t *bytes, int64_t *tensors);
/* Of `bytes` (dsf_contract_parts), what the largest of N ranks has of a part: routed and draft
 * experts and Engram table rows are shared (base/share.h), all else is on every rank. */
int64_t dsf_contract_share(const dsf_config *c, const int64_t *bytes, int part, int64_t ranks);
#define DSF_SHARE_RULE "expert e on rank e N / E; Engram rows in N ranges; all else on every rank"
/* Bytes of the configuration's scale tensors. */
int64_t dsf_contract_scale_bytes(const dsf_config *c);

#endif
