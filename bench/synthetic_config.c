#include "synthetic_config.h"

#include <stdlib.h>

#include "limits.h"
#include "model/synth.h"

/* "0-3,8" into ascending numbers; returns how many, -1: not such a list. */
static int parse_layers(const char *text, int *layer)
{
    int n = 0;
    while (*text) {
        char *end = NULL;
        long from = strtol(text, &end, 10), to = from;
        if (end == text) return -1;
        if (*end == '-') {
            const char *second = end + 1;
            to = strtol(second, &end, 10);
            if (end == second) return -1;
        }
        if (from < 0 || to < from || to >= DSF_MAX_LAYERS || (*end && *end != ',')) return -1;
        for (; from <= to && n < DSF_MAX_LAYERS; from++) layer[n++] = (int)from;
        text = *end ? end + 1 : end;
    }
    return n;
}

dsf_status dsf_synthetic_config(struct dsf_synthetic *s, const char *layers, int64_t engram_vocab,
                                dsf_config *whole, int *layer)
{
    dsf_buf json = {.max = 0};
    dsf_config *c = &s->config;
    int n = parse_layers(layers, layer);
    if (n < 1)
        return DSF_FAIL(DSF_EINVAL, "--synthetic \"%s\": layers like 0-17 or 0-3,8,14", layers);
    DSF_TRY(dsf_synth_preset(whole, "full"));
    *c = *whole;
    DSF_TRY(dsf_layers_keep(c, layer, n));
    c->vision = (dsf_vision_config){.present = false};
    if (engram_vocab) c->engram_vocab_size = engram_vocab;
    dsf_status st = dsf_synth_finish(c, &json);
    dsf_buf_free(&json);
    s->seed = 1;
    return st;
}
