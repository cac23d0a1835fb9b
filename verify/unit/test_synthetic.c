/* A model without a checkpoint: addresses that only name tensors, Engram tables that are there, and
 * what a device would be given of it. */
#include <criterion/criterion.h>

#include "engine_fixture.h"
#include "exec/place.h"
#include "model/synth.h"
#include "serve/load.h"

static void open_mini(dsf_loaded *l, struct dsf_synthetic *s)
{
    *l = (dsf_loaded){.ckpt = NULL};
    *s = (struct dsf_synthetic){.seed = 7};
    GOOD(dsf_synth_preset(&s->config, "mini"));
    GOOD(dsf_load_synthetic(l, s));
}

Test(synthetic, tensors_have_addresses_of_their_own_and_tables_have_bytes)
{
    dsf_loaded l;
    struct dsf_synthetic s;
    open_mini(&l, &s);
    const dsf_tensor *head = dsf_weights_at(&l.weights, -1, DSF_ROLE_HEAD, false);
    const dsf_tensor *embed = dsf_weights_at(&l.weights, -1, DSF_ROLE_EMBED, false);
    cr_expect_geq(dsf_weights_reserved(&l.weights, head->data), 0);
    cr_expect_neq(head->data, embed->data);
    const dsf_tensor *table =
        dsf_weights_at(&l.weights, l.config.engram[0].layer, DSF_ROLE_ENGRAM_EMBED, false);
    cr_expect_eq(dsf_weights_reserved(&l.weights, table->data), -1);
    dsf_weights_fill_synthetic(&l.weights, s.seed, NULL);
    int64_t codes[256] = {0};
    for (int64_t i = 0; i < dsf_tensor_count(table); i++)
        codes[((const uint8_t *)table->data)[i]]++;
    cr_expect_eq(codes[0x7F] + codes[0xFF], 0, "no NaN");
    cr_expect_gt(codes[0x28], 0);
    cr_expect_gt(codes[0xA8], 0);
    dsf_load_close(&l);
}

Test(synthetic, a_place_counts_every_weight_of_a_plan_but_the_tables)
{
    dsf_loaded l;
    struct dsf_synthetic s;
    open_mini(&l, &s);
    const dsf_plan_size size = {8, 1, 1, 64, 0};
    dsf_plan *p = NULL;
    dsf_place *place = NULL;
    GOOD(dsf_plan_open(&p, &size, l.config.n_layers));
    GOOD(dsf_model_build(p, &l.model));
    GOOD(dsf_plan_prune(p, NULL, NULL, NULL));
    GOOD(dsf_plan_choose(p, 0, NULL));
    GOOD(dsf_plan_place(p));
    GOOD(dsf_place_open(&place, NULL, 1));
    GOOD(dsf_place_add(place, p));
    size_t once = dsf_place_bytes(place);
    GOOD(dsf_place_add(place, p));
    cr_expect_eq(dsf_place_bytes(place), once, "each tensor once");
    int64_t tables = dsf_weights_synthetic_tables(&l.weights);
    cr_expect_gt((int64_t)once, (l.weights.mapped_bytes - tables) / 2);
    cr_expect_lt((int64_t)once, l.weights.mapped_bytes);
    cr_expect_null(dsf_place_at(place, l.weights.reserved), "nothing is loaded yet");
    dsf_place_close(place);
    dsf_plan_close(p);
    dsf_load_close(&l);
}
