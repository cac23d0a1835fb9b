/* JSON values written the way Python's json.dumps(ensure_ascii=False) does (encoding.md 2.6). */
#ifndef DSF_TEXT_PYJSON_H
#define DSF_TEXT_PYJSON_H

#include "base/json.h"

/* Members of an object as a Python dict keeps them: a repeated key has its first place and its last
 * value. *list gets *n members (by dsf_mem; the caller frees it), NULL when there are none. */
DSF_MUST dsf_status dsf_pyjson_members(const dsf_json *obj, const dsf_json ***list, size_t *n);
/* Appends v. Floats as repr() prints them, integers exactly as written. */
DSF_MUST dsf_status dsf_pyjson_add(dsf_buf *out, const dsf_json *v);
/* repr() of a double: the shortest digits that read back as it. */
void dsf_pyjson_add_double(dsf_buf *out, double x);
/* Appends the member's key as a JSON string. */
void dsf_pyjson_add_key(dsf_buf *out, const dsf_json *member);

#endif
