/* One line of the memory table, explained to whoever wants it smaller. */
#include <string.h>

#include "serve/planned.h"

typedef struct {
    const char *name; /* of the line, or what it begins with */
    const char *what, *who, *smaller;
} words;

static const words known[] = {
    {"weights",
     "every tensor that a step reads, copied to the device once; Engram tables stay on the host",
     "every pass", "fewer layers (--synthetic), more devices (--ranks shares the experts)"},
    {"cache: main KV",
     "compressed keys = values of the KV source layers, fp4 with e4m3 scales, one entry for `ratio` positions",
     "attention of all layers of the source's group", "a smaller --ctx or --batch"},
    {"cache: index keys", "keys of the indexer, fp4, one for each main entry",
     "the index source layers", "a smaller --ctx or --batch"},
    {"cache: window rings",
     "window keys of each layer, fp8: the window and the positions that can be taken back",
     "attention of every layer", "a smaller --batch; it does not grow with the context"},
    {"cache: pending groups",
     "the open half of a ratio-2 entry, f32, once for each position that can be taken back",
     "the compressors of ratio-2 sources", "a smaller --batch; it does not grow with the context"},
    {"pass: values",
     "what the steps of a pass hand to each other; a value's bytes are used again after its last step",
     "prefill of a chunk; a decode batch uses its first rows", "a smaller --chunk"},
    {"draft: values", "the same for a draft pass", "drafting",
     "nothing: the block's length is the model's"},
    {"pass: kernel scratch", "workspace of the step that runs, as large as the largest needs",
     "the operations below, one at a time", "a smaller --chunk; of a host: fewer --threads"},
    {"draft: kernel scratch", "the same for a draft pass", "drafting",
     "of a host: fewer --threads"},
    {"pass: inputs", "token ids, positions, slots, Engram rows of a pass", "every pass",
     "a smaller --chunk"},
    {"draft: inputs", "the same for a draft pass", "drafting",
     "nothing: the block's length is the model's"},
    {"pass: given values", "where rows that the caller gives are noted", "dumps, grafts and images",
     "fewer layers"},
    {"draft: given values", "the same for a draft pass", "drafting", "fewer layers"},
    {"pass: embed", "the caller's embedding rows on the device", "image spans",
     "a smaller --chunk"},
    {"pass: step times", "time spent in each step", "dsf bench", "no timers"},
    {"draft: step times", "time spent in each step", "dsf bench", "no timers"},
    {"pass: shown tap", "the tap being shown, on its way to the host", "dumps",
     "fewer taps at a time"},
    {"draft: shown tap", "the tap being shown, on its way to the host", "dumps",
     "fewer taps at a time"},
    {"pass: results", "logits, or the ids drawn from them, on their way to the host", "every pass",
     "a smaller --batch"},
    {"draft: results", "draft ids and confidence on their way to the host", "drafting", "nothing"},
    {"pass: Engram",
     "Engram table rows of a pass, each once, on their way from the host's table, and the index that finds them",
     "the Engram layers", "a smaller --chunk"},
    {"pass: stages", "one record for each gathering step", "the Engram layers", "nothing"},
    {"pass: captured", "passes that came before, kept to be launched as one graph",
     "decoding on a device", "nothing: their number is fixed"},
    {"draft: captured", "the same for draft passes", "drafting on a device",
     "nothing: their number is fixed"},
    {"pass: steps waited for", "room for a step's list while a pass is captured",
     "decoding on a device", "fewer layers"},
    {"draft: steps waited for", "the same for draft passes", "drafting on a device", "nothing"},
    {"pass: order of steps", "which steps wait for which, for the branches of a captured pass",
     "decoding on a device", "fewer layers"},
    {"draft: order of steps", "the same for draft passes", "drafting on a device", "nothing"},
    {"plans", "the recorded steps, values and arguments", "every pass", "fewer layers"},
    {"weight tables", "views of the checkpoint's tensors, pointers to the experts", "every pass",
     "fewer layers"},
    {"token classes", "the Engram class of each token id", "the Engram hash",
     "nothing: the vocabulary is the model's"},
    {"sessions", "ids of each sequence, for rewinding and the Engram hash", "every sequence",
     "a smaller --ctx or --batch"},
    {"Engram tables", "tables made from a seed, on the host", "the Engram layers",
     "a smaller --engram-vocab"},
    {"checkpoint",
     "the model's files, mapped read-only: the system may drop and read again any page",
     "every pass on a host; loading and Engram rows with a device",
     "nothing; it need not be resident"},
    {"driver", "the CUDA context and the kernels' code", "every device",
     "--reserve keeps room for it"},
    {"communication", "buffers between devices", "nothing in this version", "-"},
};

static const words *words_of(const char *name)
{
    const words *best = NULL;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strncmp(name, known[i].name, strlen(known[i].name)) == 0) /* the longest wins */
            if (!best || strlen(known[i].name) > strlen(best->name)) best = &known[i];
    return best;
}

static void print_kind(const dsf_plan *plan, dsf_value_kind kind, const char *prefix, dsf_buf *out)
{
    for (int i = 0; i < plan->n_values; i++) {
        const dsf_value *v = &plan->value[i];
        if (v->kind != kind || v->base != DSF_NO_VAL ||
            strncmp(v->name, prefix, strlen(prefix)) != 0)
            continue;
        dsf_buf_fmt(out, "  %18zu  ", v->bytes);
        dsf_plan_value_text(plan, i, out);
        dsf_buf_char(out, '\n');
    }
}

/* What lies inside, by name, where the plan knows it. */
static void print_inside(const dsf_planned *p, const char *name, dsf_buf *out)
{
    for (int i = 0; i < DSF_CACHE_KINDS; i++)
        if (strcmp(name, dsf_cache_kinds[i].line) == 0)
            print_kind(p->e->plan, DSF_VALUE_CACHE, dsf_cache_kinds[i].prefix, out);
    if (strcmp(name, "pass: values") == 0)
        dsf_planned_peak_print(p->e->plan, &p->peak[0], name, out);
    if (strcmp(name, "draft: values") == 0)
        dsf_planned_peak_print(p->e->draft_plan, &p->peak[1], name, out);
    if (strcmp(name, "pass: kernel scratch") == 0) dsf_planned_work_print(p, out);
    if (strcmp(name, "pass: inputs") == 0) print_kind(p->e->plan, DSF_VALUE_INPUT, "", out);
    if (strcmp(name, "draft: inputs") == 0) print_kind(p->e->draft_plan, DSF_VALUE_INPUT, "", out);
}

static dsf_status unknown(const dsf_budget *b, const char *name)
{
    dsf_buf all = {.max = 8192};
    for (int i = 0; i < b->n; i++) dsf_buf_fmt(&all, "%s%s", i ? ", " : "", b->line[i].name);
    dsf_status st = DSF_FAIL(DSF_EINVAL, "no line of the plan is called \"%s\"; there are: %s",
                             name, all.data ? all.data : "none");
    dsf_buf_free(&all);
    return st;
}

dsf_status dsf_planned_explain(const dsf_planned *p, const char *name, dsf_buf *out)
{
    const dsf_budget_line *l = dsf_budget_find(&p->e->budget, name);
    if (!l) return unknown(&p->e->budget, name);
    const words *w = words_of(name);
    if (!w) return DSF_FAIL(DSF_EINVAL, "\"%s\": nothing is written about this line", name);
    if (l->absent)
        dsf_buf_fmt(out, "%s: %s\n", l->name, l->formula);
    else
        dsf_buf_fmt(out, "%s: %lld bytes, %s, owner phase %s\nformula: %s\n", l->name,
                    (long long)l->bytes, dsf_budget_kind_name(l->kind), l->phase, l->formula);
    dsf_buf_fmt(out, "what: %s\nneeded by: %s\nsmaller with: %s\n", w->what, w->who, w->smaller);
    print_inside(p, name, out);
    return dsf_buf_status(out);
}
