#include "sm90/tiles.h"

#include <stdio.h>
#include <string.h>

#include "ops/linear.h"
#include "ops/moe.h"
#include "sm90/tune_experts.h"
#include "sm90/tune_linear.h"
#include "sm90/tune_linear_g8.h"

static int is(const dsf_variant *v, const char *name) { return strcmp(v->name, name) == 0; }

static void say_g8(dsf_g8_tile t, char *text, size_t n)
{
    (void)snprintf(text, n, "%dx%d, K in %d, cluster %d, %d blocks", t.tokens, t.outputs,
                   t.slices > 1 ? t.slices : 1, t.cluster > 1 ? t.cluster : 1, t.blocks);
}

void dsf_tiles_linear_g8(const dsf_variant *v, const void *args, char *text, size_t n)
{
    const dsf_linear_g8_args *a = args;
    if (is(v, "sm90fp8"))
        say_g8(dsf_linear_g8_sm90fp8_tile(a->out.dim[0], a->w.dim[1], a->w.dim[0], 0), text, n);
}

void dsf_tiles_linear_g8_pair(const dsf_variant *v, const void *args, char *text, size_t n)
{
    const dsf_linear_g8_pair_args *a = args;
    if (is(v, "sm90fp8"))
        say_g8(dsf_linear_g8_sm90fp8_tile(a->out_a.dim[0], a->w_a.dim[1], a->w_a.dim[0],
                                          a->w_b.dim[0]),
               text, n);
}

static void say_linear(dsf_linear_tile t, int columns, char *text, size_t n)
{
    (void)snprintf(text, n, "%dx%d, cluster %d, %d stages", t.tokens, columns, t.cluster, t.stages);
}

void dsf_tiles_linear_bf16(const dsf_variant *v, const void *args, char *text, size_t n)
{
    const dsf_linear_args *a = args;
    if (is(v, "sm90tc"))
        say_linear(dsf_tune_linear(a->out.dim[0], a->w.dim[1], a->w.dim[0]), DSF_LINEAR_COLUMNS,
                   text, n);
}

void dsf_tiles_linear_group(const dsf_variant *v, const void *args, char *text, size_t n)
{
    const dsf_linear_group_args *a = args;
    if (!is(v, "sm90tc")) return;
    dsf_linear_tile t = dsf_tune_linear_group(a->out.dim[0], a->w.dim[1], a->w.dim[0]);
    say_linear(t, t.many ? DSF_LINEAR_COLUMNS : DSF_LINEAR_GROUP_COLUMNS, text, n);
}

static void say_experts(dsf_experts_lists l, char *text, size_t n)
{
    (void)snprintf(text, n, "%d pairs x %d, %s", l.tile_rows,
                   l.tile_rows == DSF_EXPERTS_TILE_ROWS ? DSF_EXPERTS_TILE_COLS
                                                        : DSF_EXPERTS_DECODE_COLS,
                   l.listed ? "listed" : "unlisted");
}

void dsf_tiles_experts_up(const dsf_variant *v, const void *args, char *text, size_t n)
{
    const dsf_experts_up_args *a = args;
    if (is(v, "sm90fp8"))
        say_experts(dsf_experts_tune_lists(a->ids.dim[0], a->ids.dim[1], a->w1.dim[0]), text, n);
}

void dsf_tiles_experts_down(const dsf_variant *v, const void *args, char *text, size_t n)
{
    const dsf_experts_down_args *a = args;
    if (is(v, "sm90fp8"))
        say_experts(dsf_experts_tune_lists(a->ids.dim[0], a->ids.dim[1], a->w2.dim[0]), text, n);
}
