#include "verify/reduce/reduce.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "model/config.h"
#include "verify/dump/temp.h"

typedef struct {
    const dsf_reduce_options *o;
    dsf_reduce_report *r;
    dsf_tries *tries;
    dsf_command command;
    char work[DSF_TEMP_BYTES];
} reduce;

static void keep_answer(reduce *x, const dsf_try *t)
{
    x->r->last_exit = t->exit;
    if (t->outcome == DSF_REDUCE_FAILS) memcpy(x->r->says, x->command.says, sizeof x->r->says);
    if (t->outcome == DSF_REDUCE_COULD_NOT)
        memcpy(x->r->cannot, x->command.says, sizeof x->r->cannot);
}

/* Runs until one fails, at most `repeat` times: what fails now and then fails. */
static dsf_status run_repeated(reduce *x, const dsf_candidate *c, dsf_try *out)
{
    int most = x->o->repeat > 1 ? x->o->repeat : 1;
    *out = (dsf_try){.outcome = DSF_REDUCE_GOOD};
    while (out->runs < most && out->outcome == DSF_REDUCE_GOOD) {
        dsf_try one;
        DSF_TRY(dsf_command_run(&x->command, c, &one));
        out->outcome = one.outcome;
        out->exit = one.exit;
        out->seconds += one.seconds;
        out->runs++;
    }
    return DSF_OK;
}

static dsf_status test(void *ud, const dsf_candidate *c, dsf_reduce_outcome *out)
{
    reduce *x = ud;
    dsf_try t;
    if (x->o->stop && x->o->stop()) return DSF_FAIL(DSF_ECANCELED, "stopped");
    DSF_TRY(run_repeated(x, c, &t));
    keep_answer(x, &t);
    *out = t.outcome;
    return dsf_tries_add(x->tries, c, &t);
}

static bool known(void *ud, const dsf_candidate *c, dsf_reduce_outcome *out)
{
    reduce *x = ud;
    dsf_try t;
    if (!dsf_tries_find(x->tries, c, false, &t)) return false;
    *out = t.outcome;
    return true;
}

static void progress(void *ud, const dsf_candidate *best, int64_t tests)
{
    reduce *x = ud;
    if (x->o->progress) x->o->progress(best, x->r->axes, tests);
}

/* The result once more: a failure that does not come back is flaky, and nothing was reduced. */
static dsf_status ask_again(reduce *x)
{
    dsf_try t;
    if (dsf_tries_find(x->tries, &x->r->found.best, false, &t)) x->r->last_exit = t.exit;
    if (x->r->found.end != DSF_SEARCH_MINIMAL) return DSF_OK;
    if (!dsf_tries_find(x->tries, &x->r->found.best, true, &t)) {
        dsf_status st = run_repeated(x, &x->r->found.best, &t);
        if (st == DSF_ECANCELED) x->r->found.end = DSF_SEARCH_STOPPED;
        if (st == DSF_ECANCELED) return DSF_OK;
        DSF_TRY(st);
        keep_answer(x, &t);
        t.again = true;
        DSF_TRY(dsf_tries_add(x->tries, &x->r->found.best, &t));
    }
    x->r->last_exit = t.exit;
    x->r->flaky = t.outcome != DSF_REDUCE_FAILS;
    return DSF_OK;
}

static dsf_status check_start(const dsf_reduce_options *o, const dsf_candidate *c, unsigned axes)
{
    const struct {
        bool bad;
        const char *words;
    } need[] = {
        {!axes, "no placeholder in the command: {ids}, {id_list}, {length}, {layers}, {model}, "
                "{rows}, {chunk}, {batch} or {variants}"},
        {axes & DSF_AXIS_IDS && c->n_ids < 1,
         "{ids} needs the failing list: --ids, --ids-file or --ids-from"},
        {axes & DSF_AXIS_LENGTH && !(axes & DSF_AXIS_IDS) && c->length < 1,
         "{length} needs the failing length: --length N"},
        {axes & DSF_AXIS_MODEL && !o->model, "{model} needs the checkpoint: --model DIR"},
        {axes & (DSF_AXIS_LAYERS | DSF_AXIS_MODEL) &&
             (c->layers[0] < 0 || c->layers[1] < c->layers[0]),
         "{layers} needs the failing range: --layers A-B"},
        {axes & DSF_AXIS_ROWS && (c->rows[0] < 0 || c->rows[1] < c->rows[0]),
         "{rows} needs the failing range: --rows A-B"},
        {axes & DSF_AXIS_CHUNK && c->chunk < 1, "{chunk} needs the failing one: --chunk N"},
        {axes & DSF_AXIS_BATCH && c->batch < 1, "{batch} needs the failing one: --batch N"},
        {!(o->limit > 0), "--timeout: more than 0 seconds"},
        {o->repeat < 0 || o->repeat > 1000, "--repeat: 1 to 1000"},
        {o->most_tests < 0, "--max-tries: 1 or more"},
    };
    for (size_t i = 0; i < sizeof need / sizeof *need; i++)
        if (need[i].bad) return DSF_FAIL(DSF_EINVAL, "%s", need[i].words);
    return DSF_OK;
}

/* Layers that are not said: all of the model. */
static dsf_status all_layers(const dsf_reduce_options *o, unsigned axes, dsf_candidate *start)
{
    char path[4096];
    dsf_config config;
    bool layers = axes & (DSF_AXIS_LAYERS | DSF_AXIS_MODEL);
    if (!layers || !o->model || start->layers[1] >= start->layers[0]) return DSF_OK;
    DSF_TRY(dsf_file_join(path, o->model, "config.json"));
    DSF_TRY(dsf_config_load(&config, path, NULL));
    start->layers[0] = 0;
    start->layers[1] = config.n_layers - 1;
    return DSF_OK;
}

static dsf_status open_work(reduce *x)
{
    const dsf_reduce_options *o = x->o;
    DSF_TRY(dsf_temp_open(x->work, "dsf-reduce"));
    x->command = (dsf_command){.argv = o->argv,
                               .n = o->n,
                               .work = x->work,
                               .model = o->model,
                               .limit = o->limit,
                               .fails = {1},
                               .n_fails = 1,
                               .stop = o->stop};
    if (o->n_fails) memcpy(x->command.fails, o->fails, sizeof o->fails);
    if (o->n_fails) x->command.n_fails = o->n_fails;
    const dsf_tries_bind bind = {.command = (const char *const *)o->argv,
                                 .n_command = o->n,
                                 .axes = x->r->axes,
                                 .start = &x->r->start,
                                 .filler = o->filler,
                                 .repeat = o->repeat};
    return dsf_tries_open(&x->tries, o->record, o->resume, &bind);
}

/* As typed at a shell. */
static void quote(dsf_buf *b, const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_-+=:,./@%";
    if (*word && word[strspn(word, plain)] == 0) {
        dsf_buf_str(b, word);
        return;
    }
    dsf_buf_char(b, '\'');
    for (; *word; word++)
        if (*word == '\'')
            dsf_buf_str(b, "'\\''");
        else
            dsf_buf_char(b, *word);
    dsf_buf_char(b, '\'');
}

/* {ids}, {model} and {dump} name files that are gone by then: they stay as they are, unless the
 * ids are kept in a file. */
static dsf_status fill_command(reduce *x)
{
    dsf_command shown = x->command;
    shown.ids_name = x->o->ids_name;
    for (int i = 0; i < shown.n; i++) {
        dsf_buf word = {.max = 0};
        bool file = (strstr(shown.argv[i], "{ids}") && !shown.ids_name) ||
                    strstr(shown.argv[i], "{model}") || strstr(shown.argv[i], "{dump}");
        dsf_status st = file ? DSF_OK : dsf_command_fill(&shown, i, &x->r->found.best, &word);
        if (i) dsf_buf_char(&x->r->command, ' ');
        quote(&x->r->command, file ? shown.argv[i] : word.data ? word.data : "");
        dsf_buf_free(&word);
        DSF_TRY(st);
    }
    return dsf_buf_status(&x->r->command);
}

static dsf_status run_all(reduce *x)
{
    const dsf_reduce_options *o = x->o;
    x->r->start = o->start;
    DSF_TRY(all_layers(o, x->r->axes, &x->r->start));
    DSF_TRY(check_start(o, &x->r->start, x->r->axes));
    DSF_TRY(open_work(x));
    const dsf_search s = {.axes = x->r->axes,
                          .start = x->r->start,
                          .filler = o->filler,
                          .most_tests = o->most_tests,
                          .test = test,
                          .known = known,
                          .progress = progress,
                          .ud = x};
    DSF_TRY(dsf_search_run(&s, &x->r->found));
    DSF_TRY(ask_again(x));
    x->r->seconds = dsf_tries_seconds(x->tries);
    return fill_command(x);
}

dsf_status dsf_reduce_run(const dsf_reduce_options *o, dsf_reduce_report *r)
{
    *r = (dsf_reduce_report){.axes = dsf_command_axes(o->argv, o->n)};
    reduce x = {.o = o, .r = r};
    dsf_status st = run_all(&x);
    dsf_tries_close(x.tries);
    dsf_temp_close(x.work);
    return st;
}

void dsf_reduce_report_free(dsf_reduce_report *r)
{
    dsf_search_result_free(&r->found);
    dsf_buf_free(&r->command);
}

/* ---- results ---- */

static const char *end_words(const dsf_reduce_report *r)
{
    if (r->flaky) return "flaky: it failed, and the same run again did not";
    switch (r->found.end) {
    case DSF_SEARCH_MINIMAL:
        return "fails; every single further step does not";
    case DSF_SEARCH_STOPPED:
        return "fails; stopped, it may get smaller";
    case DSF_SEARCH_GOOD:
        return "does not fail: nothing to reduce";
    case DSF_SEARCH_UNBEGUN:
        return "stopped before it had an answer";
    default:
        return "gives no answer: neither good nor failing";
    }
}

static void print_ids(const dsf_candidate *c, dsf_buf *b)
{
    dsf_buf_str(b, "ids: ");
    for (int64_t i = 0; i < c->n_ids && i < 64; i++)
        dsf_buf_fmt(b, "%s%d", i ? "," : "", (int)c->ids[i]);
    dsf_buf_str(b, c->n_ids > 64 ? ",... (--ids-out writes them all)\n" : "\n");
}

void dsf_reduce_print(const dsf_reduce_options *o, const dsf_reduce_report *r, dsf_buf *b)
{
    const dsf_search_result *f = &r->found;
    dsf_buf was = {.max = 0};
    dsf_candidate_words(&f->best, r->axes, b);
    dsf_candidate_words(&r->start, r->axes, &was);
    dsf_buf_fmt(b, " (from: %s): %s\n", was.data ? was.data : "", end_words(r));
    dsf_buf_free(&was);
    if (r->axes & DSF_AXIS_IDS) print_ids(&f->best, b);
    dsf_buf_fmt(b, "run: %s\n", r->command.data ? r->command.data : "");
    if (f->asked == 0)
        dsf_buf_str(b, "nothing was run to its end\n");
    else if (r->last_exit < 0)
        dsf_buf_fmt(b, "it ran out of %g seconds\n", o->limit);
    else
        dsf_buf_fmt(b, "it ends with %d\n", r->last_exit);
    if (r->says[0]) dsf_buf_fmt(b, "says: %s\n", r->says);
    dsf_buf_fmt(b,
                "%lld candidates: %lld fail, %lld good, %lld could not; %lld run now; %.1f s "
                "of running in all\n",
                (long long)f->asked, (long long)f->fails, (long long)f->good,
                (long long)f->could_not, (long long)f->tests, r->seconds);
    if (r->cannot[0]) dsf_buf_fmt(b, "the last that could not says: %s\n", r->cannot);
    if (o->record) dsf_buf_fmt(b, "tries: %s\n", o->record);
}

void dsf_reduce_json(const dsf_reduce_options *o, const dsf_reduce_report *r, dsf_buf *b)
{
    static const char *const end[] = {"minimal", "stopped", "good", "could not", "stopped"};
    const dsf_search_result *f = &r->found;
    dsf_json_add_cstr(b, "schema", "dsf-reduced-1");
    dsf_json_add_cstr(b, "end", r->flaky ? "flaky" : end[f->end]);
    dsf_json_begin(b, "start", '{');
    dsf_candidate_json(&r->start, r->axes, b);
    dsf_json_end(b, '}');
    dsf_json_begin(b, "best", '{');
    dsf_candidate_json(&f->best, r->axes, b);
    dsf_json_end(b, '}');
    dsf_json_add_cstr(b, "command", r->command.data ? r->command.data : "");
    dsf_json_add_int(b, "exit", r->last_exit);
    dsf_json_add_cstr(b, "says", r->says);
    dsf_json_add_cstr(b, "could_not_says", r->cannot);
    dsf_json_begin(b, "candidates", '{');
    dsf_json_add_int(b, "asked", f->asked);
    dsf_json_add_int(b, "fails", f->fails);
    dsf_json_add_int(b, "good", f->good);
    dsf_json_add_int(b, "could_not", f->could_not);
    dsf_json_add_int(b, "run", f->tests);
    dsf_json_end(b, '}');
    dsf_json_add_num(b, "seconds", r->seconds);
    if (o->record) dsf_json_add_cstr(b, "tries", o->record);
}
