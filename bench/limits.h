/* What the model costs on paper: bytes a step must read, operations a token must do, and the shares
 * of its layers by kind, so that what was measured on some layers can be said of all. From the
 * config alone; checked against the printed figures of the released one. */
#ifndef DSF_BENCH_LIMITS_H
#define DSF_BENCH_LIMITS_H

#include "model/config.h"

/* --- kinds of layers: those of one kind do the same work --- */

enum {
    DSF_KIND_RATIO = 3,      /* compress_ratio in the low bits: 0 window only */
    DSF_KIND_KV = 1 << 2,    /* compresses and stores entries */
    DSF_KIND_INDEX = 1 << 3, /* scores entries and selects */
    DSF_KIND_MAKES_POOL = 1 << 4,
    DSF_KIND_USES_POOL = 1 << 5, /* scores only the pool's entries */
    DSF_KIND_ENGRAM = 1 << 6,
    DSF_N_KINDS = 1 << 7
};

int dsf_layer_kind(const dsf_config *c, int layer);
/* "window, engram", "ratio 2, stores, selects"; out: room for 64 bytes. */
void dsf_layer_kind_name(int kind, char *out);
/* Keeps these layers (ascending) under numbers from 0, in their roles; a role's source that is not
 * kept is lost. EINVAL: a kept layer reads from a layer that is not. */
DSF_MUST dsf_status dsf_layers_keep(dsf_config *c, const int *layer, int n);

/* Times of the layers of `part`, brought to all layers of `whole` by kind: the mean of each kind
 * times its number. from..to: layers of whole (a half of the model). *missing: layers of kinds that
 * part does not have; they count as nothing. */
double dsf_layers_scale(const dsf_config *part, const double *time, const dsf_config *whole,
                        int from, int to, int *missing);

/* --- bytes and operations --- */

typedef struct {
    double expert; /* bytes of one routed expert */
    double dense;  /* bytes of all other weights of the layers that a step reads, Engram's
                      projections too, scales with the codes */
    double head;   /* bytes */
    int experts, active, layers, first_decoder;
    /* FLOPs of a prompt token: routed experts, dense products of the first half, attention there
     * and, for each token of context, index scores averaged over the prompt. */
    double flops_experts, flops_dense, flops_attention, flops_index;
    double index_all, index_pool, pool; /* bytes of index keys a decode row reads: per entry of the
                                           context, per entry of the pool; entries of the pool */
    double hc_row;                      /* bytes of one boundary for one row */
} dsf_inventory;

void dsf_inventory_of(const dsf_config *c, dsf_inventory *inv);
/* Different experts a layer meets with `rows` rows, routed uniformly. */
double dsf_limit_distinct(const dsf_inventory *inv, double rows);
/* Seconds of a decode step of `rows` sequences at context n on g devices that read `rate` bytes a
 * second. */
double dsf_limit_decode(const dsf_inventory *inv, double rows, int64_t n, int g, double rate);
/* Seconds a prompt token of a prompt of n takes when the first half of the layers alone runs, at
 * these operations a second in fp8 and in bf16. */
double dsf_limit_prefill(const dsf_inventory *inv, int64_t n, int g, double fp8, double bf16);
/* Seconds a token of a chunk takes to bring the first half's experts in once. */
double dsf_limit_stream(const dsf_inventory *inv, int64_t chunk, int g, double rate);

#endif
