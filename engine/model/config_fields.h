/* The one table of config.json's fields: the parser, the printer and the writer of synthetic
 * configurations all walk it (architecture.md 1). Internal to engine/model. */
#ifndef DSF_MODEL_CONFIG_FIELDS_H
#define DSF_MODEL_CONFIG_FIELDS_H

#include <stddef.h>

#include "model/config.h"

typedef enum { IN_TOP, IN_QUANT, IN_TEXT, IN_ROPE, IN_VISION, N_SECTIONS } dsf_config_section;

typedef enum {
    FIELD_INT,   /* int, min..max */
    FIELD_LONG,  /* int64_t, min..max */
    FIELD_NUM,   /* double, min..max */
    FIELD_FLAG,  /* bool */
    FIELD_LIST,  /* int [DSF_MAX_LAYERS], each min..max */
    FIELD_ROWS,  /* int64_t [DSF_MAX_LAYERS] */
    FIELD_FIXED, /* one value only: the JSON in `fixed` */
    FIELD_ANY,   /* carries no meaning here: any scalar; written as `fixed` */
    FIELD_HEAD   /* opens the section `opens` */
} dsf_config_kind;

/* What a file says: the config, and the lists that become dsf_config.engram. */
typedef struct {
    dsf_config c;
    int engram_layer[DSF_MAX_LAYERS], n_engram_layers;
    int n_ratios;
    int64_t engram_rows[DSF_MAX_LAYERS];
    int n_engram_rows;
} dsf_config_file;

typedef struct {
    const char *key;
    const char *flat; /* the name of section 1; NULL: as key, or not printed when fixed */
    const char *fixed;
    size_t at, count_at; /* in dsf_config_file */
    double min, max;
    dsf_config_section in, opens;
    dsf_config_kind kind;
    bool optional, null_is_zero;
} dsf_config_field;

extern const dsf_config_field dsf_config_fields[];
extern const int dsf_config_n_fields;

/* Adds the lists that the writer needs. */
void dsf_config_to_file(const dsf_config *c, dsf_config_file *f);
/* A double in the fewest digits that read back as the same. */
void dsf_config_add_double(dsf_buf *b, double v);

#endif
