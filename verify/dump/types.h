/* What writer and reader of dump files share: the schema's names, the geometry of a model as its
 * config tells it, and which taps a dump holds (dump-schema.md). */
#ifndef DSF_DUMP_TYPES_H
#define DSF_DUMP_TYPES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "plan/tap.h"

#define DSF_DUMP_SCHEMA "dsv41-dump-1"

/* Element types as stored. */
typedef enum { DSF_DUMP_F32, DSF_DUMP_I32, DSF_DUMP_I64, DSF_DUMP_U8 } dsf_dump_kind;

/* Names of the attribute source_dtype, by dsf_tap_source. */
const char *dsf_dump_source_name(dsf_tap_source s);
/* False when the name is none of the schema's. */
bool dsf_dump_source_parse(dsf_tap_source *out, const char *name);
/* Bytes of one stored element. */
int64_t dsf_dump_kind_bytes(dsf_dump_kind k);
/* How a tap is stored: engram/rows as int64, other numbers as int32, masks as uint8, values as
 * float32. */
dsf_dump_kind dsf_dump_kind_of(dsf_tap_id id);

enum { DSF_DUMP_MAX_LAYERS = 128 };

/* The numbers of config.json that decide shapes and comparisons. Zero where the config does not
 * say: a dump of another engine may carry a smaller one. */
typedef struct {
    int n_layers, n_stages; /* backbone layers, draft stages */
    int dim, n_heads, head_dim, q_lora, index_heads, index_dim;
    int window, index_topk;
    int n_experts, n_activated, stage_experts, stage_activated;
    int pool_layer, pool_blocks, pool_block; /* pool_layer -1: none */
    int ratio[DSF_DUMP_MAX_LAYERS];          /* 0, 1 or 2; n_layers + n_stages entries */
    bool kv_source[DSF_DUMP_MAX_LAYERS], index_source[DSF_DUMP_MAX_LAYERS];
    bool engram[DSF_DUMP_MAX_LAYERS], target[DSF_DUMP_MAX_LAYERS];
    int engram_columns, engram_dim; /* hash columns, channels of a table row */
    int draft_rows, markov_rank;
    int64_t vocab;
} dsf_dump_geometry;

/* Reads the content of a config.json (n bytes; `name` opens messages). ECORRUPT: not JSON, or a
 * number out of range. Absent keys stay zero. */
DSF_MUST dsf_status dsf_dump_geometry_parse(dsf_dump_geometry *g, const char *name,
                                            const char *text, size_t n);
/* Elements of one row in the schema's shape, outermost first; returns their number (0..3), or -1
 * where the geometry does not tell. n_tokens sizes the entry axis. */
int dsf_dump_geometry_row(const dsf_dump_geometry *g, dsf_tap tap, int64_t n_tokens,
                          int64_t dim[3]);
/* Last layer <= `layer` that has its flag set, or -1. */
int dsf_dump_geometry_source(const bool *flag, int layer);
/* Whether a model of this geometry has the tap at all. */
bool dsf_dump_geometry_has(const dsf_dump_geometry *g, dsf_tap tap);

/* Which taps and rows a dump holds. All zero: everything of slot 0. The strings are the caller's
 * and live as long as the dump. */
typedef struct {
    const char *const *glob; /* on paths ("layers/0?/attn/q", `**` crosses slashes), or on the part
                                below the layer ("attn/q") */
    int n_globs;
    bool by_layer, by_position;
    int layer_from, layer_to; /* inclusive; stage S is layer n_layers + S; global taps stay */
    int64_t position_from,
        position_to; /* inclusive; entries count with the tokens they stand for */
    int32_t slot;    /* rows of this sequence slot */
} dsf_dump_filter;

bool dsf_dump_filter_wants(const dsf_dump_filter *f, dsf_tap tap, int n_layers);
/* ratio 0: label is a position; else the entry `label` of a ratio-r cache. */
bool dsf_dump_filter_row(const dsf_dump_filter *f, int32_t label, int ratio);
/* `*` and `?` stay within a path segment, `**` does not. */
bool dsf_dump_glob(const char *pattern, const char *path);

#endif
