/* A JSON document written again with one place changed: what the config suite feeds the parser. */
#ifndef DSF_VERIFY_SUITE_EDIT_H
#define DSF_VERIFY_SUITE_EDIT_H

#include "base/json.h"

typedef enum {
    DSF_EDIT_NONE,
    DSF_EDIT_CHANGE,  /* another value of the same type */
    DSF_EDIT_RETYPE,  /* a list with an object in it, which nothing in a config is */
    DSF_EDIT_REMOVE,  /* the member or element is left out */
    DSF_EDIT_TWICE,   /* it stands there twice */
    DSF_EDIT_UNKNOWN, /* `at` is an object: one more member, "dsf_unknown_key" */
    DSF_EDIT_REPLACE  /* by the JSON in `raw` */
} dsf_edit_kind;

typedef struct {
    dsf_edit_kind kind;
    const dsf_json *at;
    const char *raw;
} dsf_edit;

/* Appends the document with the edit. */
void dsf_edit_write(const dsf_json *root, const dsf_edit *e, dsf_buf *out);

/* Every value of a document in reading order, with its path "text_config.rope_scaling.factor" and,
 * in lists, "compress_ratios.3". leaf: neither object nor list. Depth is bounded by the parser. */
typedef dsf_status dsf_edit_visit(void *ud, const dsf_json *v, const char *path, bool leaf);
DSF_MUST dsf_status dsf_edit_walk(const dsf_json *root, dsf_edit_visit *visit, void *ud);
/* The value at such a path, or NULL. */
const dsf_json *dsf_edit_find(const dsf_json *root, const char *path);
/* Equal as JSON: numbers by value, strings by text, lists element by element. */
bool dsf_edit_same(const dsf_json *a, const dsf_json *b);

#endif
