/* Tool schemas and calls in the prompt (encoding.md 2.6, 2.7). */
#ifndef DSF_TEXT_TOOLS_H
#define DSF_TEXT_TOOLS_H

#include "text/turns.h"

/* Appends the tools block to the prompt. `place` is the path of `tools` for messages to people. */
DSF_MUST dsf_status dsf_tools_schemas(dsf_chat *c, const char *place, const dsf_json *tools);
/* Appends the calls block, blank line included; an empty list appends nothing. */
DSF_MUST dsf_status dsf_tools_calls(dsf_chat *c, const char *place, const dsf_json *calls);

#endif
