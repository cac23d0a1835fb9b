#include "pace.h"

#include <stdio.h>

static dsf_status hand_out(dsf_bench *b, dsf_buf *json)
{
    dsf_json_end(json, '}');
    dsf_status st = dsf_buf_status(json);
    if (st == DSF_OK) b->out.line(b->out.ud, json->data, "");
    dsf_buf_free(json);
    return st;
}

dsf_status dsf_pace_case(dsf_bench *b, dsf_buf *json)
{
    dsf_json_add_cstr(json, "pace", "case");
    return hand_out(b, json);
}

bool dsf_pace_more(void) { return getchar() == 'r'; }

dsf_status dsf_pace_round(dsf_bench *b, double ns, const dsf_division *d)
{
    dsf_buf json = {.max = 0};
    dsf_json_begin(&json, NULL, '{');
    dsf_json_add_cstr(&json, "pace", "round");
    dsf_json_add_num(&json, "ns", ns);
    dsf_json_begin(&json, "part", '[');
    for (int i = 0; d && i < d->n; i++) {
        dsf_json_begin(&json, NULL, '{');
        dsf_json_add_cstr(&json, "op", d->part[i].op);
        dsf_json_add_cstr(&json, "variant", d->part[i].variant);
        dsf_json_add_num(&json, "ns", d->part[i].ns);
        dsf_json_end(&json, '}');
    }
    dsf_json_end(&json, ']');
    return hand_out(b, &json);
}

dsf_status dsf_pace_done(dsf_bench *b)
{
    dsf_buf json = {.max = 0};
    dsf_json_begin(&json, NULL, '{');
    dsf_json_add_cstr(&json, "pace", "done");
    return hand_out(b, &json);
}
