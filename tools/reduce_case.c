#include "reduce_case.h"

#include <stdio.h>

#include "inputs.h"
#include "verify/reduce/candidate.h"

static dsf_status fill_options(const reduce_case *o, dsf_case_options *c)
{
    int64_t rows[2];
    *c = (dsf_case_options){.model = o->model,
                            .golden = o->golden,
                            .floor = o->floor,
                            .variants = o->variants,
                            .threads = (int)o->threads,
                            .choice = {.layer = (int)o->layer, .op = o->op},
                            .max_bytes = DSF_CASE_BYTES,
                            .progress = dsf_progress};
    DSF_TRY(dsf_inputs_threads(o->threads));
    DSF_TRY(dsf_inputs_backend(o->backend, &c->variants));
    c->backend = dsf_inputs_backend_name(c->variants);
    if (o->max_bytes) DSF_TRY(dsf_inputs_size("--max-bytes", o->max_bytes, &c->max_bytes));
    DSF_TRY(dsf_candidate_range("--rows", o->rows, rows));
    c->choice.by_row = o->rows != NULL;
    c->choice.row_from = rows[0];
    c->choice.row_to = rows[1];
    return DSF_OK;
}

static dsf_status print(const reduce_case *o, const char *path, const dsf_case_report *r)
{
    dsf_buf b = {.max = 0};
    if (o->json)
        dsf_case_json(r, NULL, path, &b);
    else
        dsf_case_print(r, path, &b);
    if (o->json) dsf_buf_char(&b, '\n');
    dsf_status st = dsf_inputs_print(&b);
    dsf_buf_free(&b);
    return st;
}

dsf_status dsf_reduce_case_make(const reduce_case *o, const char *command, dsf_case_report *r,
                                bool *found)
{
    dsf_case_options c;
    bool first = !o->op && (o->layer < 0 || command); /* what --layer asks for is whole */
    DSF_TRY(fill_options(o, &c));
    c.command = command;
    *found = false;
    const char *const input[] = {o->golden, o->floor};
    DSF_TRY(dsf_inputs_check_out(o->out, input, 2));
    if (first) DSF_TRY(dsf_case_write_first(&c, o->out, r, found));
    if (*found || (first && o->layer < 0)) return DSF_OK;
    *found = true;
    return dsf_case_write(&c, o->out, r);
}

int dsf_reduce_case_none(const reduce_case *o)
{
    (void)fprintf(stderr,
                  "dsf reduce: every operation agrees with %s: no case is written "
                  "(--layer L writes one all the same)\n",
                  o->golden);
    return DSF_EXIT_NO;
}

dsf_status dsf_reduce_case_write(const reduce_case *o, int *code)
{
    dsf_case_report r;
    bool found = false;
    DSF_TRY(dsf_reduce_case_make(o, NULL, &r, &found));
    if (found) return print(o, o->out, &r);
    *code = dsf_reduce_case_none(o);
    return DSF_OK;
}

dsf_status dsf_reduce_case_replay(const reduce_case *o, const char *path, int *code)
{
    dsf_case_options c;
    dsf_case_report r;
    DSF_TRY(fill_options(o, &c));
    DSF_TRY(dsf_case_replay(&c, path, &r));
    *code = r.fails ? DSF_EXIT_NO : DSF_EXIT_GOOD;
    return print(o, path, &r);
}
