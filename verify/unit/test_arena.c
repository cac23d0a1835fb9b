#include <criterion/criterion.h>
#include <stdint.h>
#include <string.h>

#include "base/arena.h"

/* A caller that takes, nests and releases, as a plan does. */
static dsf_status build(dsf_arena *a, size_t *last)
{
    size_t at;
    DSF_TRY(dsf_arena_take(a, 100, 64, &at));
    size_t mark = dsf_arena_mark(a);
    for (size_t i = 1; i <= 5; i++) {
        DSF_TRY(dsf_arena_take(a, 1000 * i, 128, &at));
        if (i == 3) dsf_arena_release(a, mark);
    }
    return dsf_arena_take(a, 1, 1, last);
}

Test(arena, measure_equals_use)
{
    dsf_arena measure = {.name = "scratch", .cap = SIZE_MAX};
    size_t offset = 0, again = 0;
    cr_assert_eq(build(&measure, &offset), DSF_OK);

    dsf_arena exact = {.name = "scratch", .cap = measure.peak};
    cr_assert_eq(build(&exact, &again), DSF_OK);
    cr_expect_eq(again, offset);
    cr_expect_eq(exact.peak, measure.peak);

    dsf_arena tight = {.name = "scratch", .cap = measure.peak - 1};
    cr_expect_eq(build(&tight, &again), DSF_ENOMEM, "one byte less must fail");
}

Test(arena, offsets_are_aligned_and_apart)
{
    dsf_arena a = {.name = "a", .cap = SIZE_MAX};
    size_t end = 0;
    for (size_t align = 1; align <= 4096; align *= 2) {
        size_t at = 0;
        cr_assert_eq(dsf_arena_take(&a, 3, align, &at), DSF_OK);
        cr_expect_eq(at % align, 0u);
        cr_expect_geq(at, end);
        cr_expect_lt(at, end + align, "no more padding than needed");
        end = at + 3;
        cr_expect_eq(a.used, end);
    }
}

Test(arena, release_gives_back_and_peak_remembers)
{
    dsf_arena a = {.name = "a", .cap = 1000};
    size_t at = 0;
    cr_assert_eq(dsf_arena_take(&a, 300, 1, &at), DSF_OK);
    size_t mark = dsf_arena_mark(&a);
    cr_assert_eq(dsf_arena_take(&a, 700, 1, &at), DSF_OK);
    dsf_arena_release(&a, mark);
    cr_assert_eq(dsf_arena_take(&a, 10, 1, &at), DSF_OK);
    cr_expect_eq(at, 300u, "the same place again");
    cr_expect_eq(a.peak, 1000u);
    cr_expect_eq(a.used, 310u);
}

Test(arena, refusal_names_the_numbers_and_changes_nothing)
{
    dsf_arena a = {.name = "kv", .cap = 1000};
    size_t at = 7;
    cr_assert_eq(dsf_arena_take(&a, 900, 1, &at), DSF_OK);
    at = 7;
    cr_assert_eq(dsf_arena_take(&a, 101, 1, &at), DSF_ENOMEM);
    cr_expect_eq(at, 7u, "written only on success");
    cr_expect_eq(a.used, 900u);
    const char *said = dsf_error_message();
    cr_expect(strstr(said, "kv") && strstr(said, "101") && strstr(said, "900") &&
                  strstr(said, "1000"),
              "%s", said);
    cr_expect_eq(dsf_arena_take(&a, 100, 1, &at), DSF_OK, "what fits still fits");
}

Test(arena, sizes_near_the_largest_do_not_wrap)
{
    dsf_arena a = {.name = "a", .cap = SIZE_MAX};
    size_t at = 0;
    cr_assert_eq(dsf_arena_take(&a, 10, 1, &at), DSF_OK);
    cr_expect_eq(dsf_arena_take(&a, SIZE_MAX, 1, &at), DSF_ENOMEM);
    cr_expect_eq(dsf_arena_take(&a, SIZE_MAX - 10, 64, &at), DSF_ENOMEM);
    cr_expect_eq(a.used, 10u);
    cr_expect_eq(dsf_arena_take(&a, 0, 64, &at), DSF_OK, "nothing is a size too");
    cr_expect_eq(at, 64u);
}
