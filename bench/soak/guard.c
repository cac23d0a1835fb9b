/* Why the run must stop before the machine swaps, and who took the memory. */
#include <stdio.h>

#include "bench/soak/state.h"

static void say_plan(const dsf_soak_guard *g, char *out, size_t room)
{
    (void)snprintf(out, room,
                   "guard: %lld bytes are available, %lld of them planned: less than %lld would be "
                   "left, so it was not started; the largest is \"%s\", %lld bytes (%s)",
                   (long long)g->available, (long long)g->planned, (long long)g->guard, g->line,
                   (long long)g->line_bytes, g->formula);
}

void dsf_soak_guard_words(const dsf_soak_guard *g, char *out, size_t room)
{
    out[0] = 0;
    if (g->available < 0 || g->guard <= 0 || g->available - g->planned >= g->guard) return;
    if (g->planned > 0 && g->available >= g->guard) {
        say_plan(g, out, room);
        return;
    }
    int n = snprintf(out, room, "guard: %lld bytes are available, less than %lld; ",
                     (long long)g->available, (long long)g->guard);
    out += n;
    room -= (size_t)n;
    int64_t before = g->available + g->lost;
    if (before < g->guard) {
        (void)snprintf(out, room, "the machine had %lld before the run, too little for this guard",
                       (long long)before);
        return;
    }
    /* Others, when all that this process took would not be enough, or is the lesser part. */
    if (2 * g->own < g->lost || g->own < g->guard - g->available)
        (void)snprintf(out, room,
                       "other processes took it: this one grew by %lld bytes, the machine has %lld "
                       "less than at the start",
                       (long long)g->own, (long long)g->lost);
    else if (g->beside && g->beside_bytes > g->line_bytes)
        (void)snprintf(out, room,
                       "this process grew by %lld bytes; beside the plan %s holds %lld of them",
                       (long long)g->own, g->beside, (long long)g->beside_bytes);
    else
        (void)snprintf(out, room,
                       "this process grew by %lld bytes; the largest is \"%s\", %lld bytes (%s)",
                       (long long)g->own, g->line, (long long)g->line_bytes, g->formula);
}
