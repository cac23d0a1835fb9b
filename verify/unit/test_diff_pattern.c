/* Each pattern rule with data that have it and data that only look like it. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "verify/diff/pattern.h"

TestSuite(diff_pattern);

enum { ROWS = 64, HEADS = 4, CHANNELS = 32, WIDTH = HEADS * CHANNELS, WINDOW = 8 };

static float golden[ROWS * WIDTH], ours[ROWS * WIDTH];
static int64_t pair[2 * ROWS];
static dsf_dump_geometry geometry;
static dsf_diff_state state;
static dsf_row row[ROWS];
static uint8_t wrong[ROWS];

static void reset(void)
{
    geometry =
        (dsf_dump_geometry){.n_layers = 4, .window = WINDOW, .index_topk = 6, .pool_layer = -1};
    geometry.ratio[2] = 2;
    state = (dsf_diff_state){.g = &geometry, .n = ROWS, .first_flip = -1, .decode_from = -1};
    for (int i = 0; i < ROWS * WIDTH; i++) golden[i] = ours[i] = (float)(1 + i % 7);
    for (int i = 0; i < ROWS; i++) {
        pair[2 * i] = pair[2 * i + 1] = i;
        row[i] = (dsf_row){.label = i};
        wrong[i] = 0;
    }
}

/* An error in this channel of this row. */
static void spoil(int r, int c)
{
    ours[r * WIDTH + c] += 0.5F + 0.01F * (float)(c % 5);
    wrong[r] = 1;
}

static dsf_diff_pattern find(dsf_tap_id id, int layer)
{
    const dsf_dump_array a = {
        .f = golden, .n = ROWS, .width = WIDTH, .rank = 3, .dim = {ROWS, HEADS, CHANNELS}};
    dsf_dump_array b = a;
    b.f = ours;
    const dsf_joined j = {.a = &a, .b = &b, .pair = pair, .n = ROWS, .width = WIDTH};
    dsf_diff_pattern p;
    cr_assert_eq(dsf_pattern_find(&state, (dsf_tap){id, layer}, &j, row, ROWS, wrong, &p), DSF_OK);
    return p;
}

static dsf_diff_pattern find_rows(bool (*is_wrong)(int))
{
    reset();
    for (int r = 0; r < ROWS; r++)
        if (is_wrong(r)) spoil(r, (r * 37 + r / 3) % WIDTH);
    return find(DSF_TAP_ATTN_O, 1);
}

#define SAID(p, kind, words)                                                                       \
    cr_expect((p).rows == (kind) && strstr((p).text, words), "%s: \"%s\"",                         \
              dsf_diff_pattern_name((p).rows), (p).text)

static bool every(int r) { return r >= 0; }
static bool all_but_a_few(int r) { return r > 1; }
static bool beyond(int r) { return r >= WINDOW; }
static bool beyond_one_short(int r) { return r >= WINDOW - 1; }
static bool late(int r) { return r >= 40; }
static bool inside(int r) { return r < 5; }
static bool odd(int r) { return r % 2 == 1; }
static bool by_eight(int r) { return r % 8 == 3; }
static bool one(int r) { return r == 17; }
static bool few(int r) { return r == 3 || r == 11 || r == 12 || r == 30 || r == 33; }
static bool some_of_the_odd(int r) { return r % 10 == 1; }
static bool thin_late(int r) { return r >= WINDOW && r % 3 == 0; }

Test(diff_pattern, rows_are_told_by_what_they_share)
{
    dsf_diff_pattern p = find_rows(every);
    SAID(p, DSF_PATTERN_ALL, "all tokens");
    p = find_rows(all_but_a_few);
    SAID(p, DSF_PATTERN_ALL, "all tokens");
    p = find_rows(beyond);
    SAID(p, DSF_PATTERN_WINDOW, "rows beyond the window (t >= 8)");
    p = find_rows(beyond_one_short);
    SAID(p, DSF_PATTERN_WINDOW, "rows beyond the window (t >= 7)");
    p = find_rows(late);
    SAID(p, DSF_PATTERN_FROM, "rows from 40 on");
    p = find_rows(inside);
    SAID(p, DSF_PATTERN_FIRST, "the first rows (t <= 4)");
    p = find_rows(odd);
    SAID(p, DSF_PATTERN_RESIDUE, "rows t mod 2 = 1");
    p = find_rows(by_eight);
    SAID(p, DSF_PATTERN_RESIDUE, "rows t mod 8 = 3");
    p = find_rows(one);
    SAID(p, DSF_PATTERN_ROW, "a single row");
}

Test(diff_pattern, what_only_looks_like_a_rule_is_none)
{
    dsf_diff_pattern p = find_rows(few);
    SAID(p, DSF_PATTERN_SCATTERED, "scattered tokens");
    p = find_rows(some_of_the_odd);
    SAID(p, DSF_PATTERN_SCATTERED, "scattered tokens");
    p = find_rows(thin_late); /* beyond the window, yet most of those rows are right */
    SAID(p, DSF_PATTERN_SCATTERED, "scattered tokens");
    reset();
    p = find(DSF_TAP_ATTN_O, 1);
    cr_expect(p.rows == DSF_PATTERN_NONE && p.channels == DSF_PATTERN_NONE && !p.text[0]);
}

Test(diff_pattern, borders_have_names)
{
    reset();
    for (int r = 13; r < ROWS; r++) spoil(r, (r * 37) % WIDTH); /* ratio 2, list of 6: 2 x 7 - 1 */
    dsf_diff_pattern p = find(DSF_TAP_ATTN_TOPK, 2);
    SAID(p, DSF_PATTERN_SELECT, "rows from 13 on, where entries are left out");
    state.decode_from = 13;
    p = find(DSF_TAP_ATTN_TOPK, 2);
    SAID(p, DSF_PATTERN_DECODE, "only decoded rows (t >= 13)");
    state.decode_from = 20; /* wrong before that too */
    p = find(DSF_TAP_ATTN_TOPK, 2);
    SAID(p, DSF_PATTERN_SELECT, "left out");
    reset();
    for (int r = 30; r < ROWS; r++) spoil(r, (r * 37) % WIDTH);
    state.first_flip = 29;
    p = find(DSF_TAP_ATTN_O, 1);
    SAID(p, DSF_PATTERN_FLIP, "only rows from 30 on; a choice flipped at row 29");
    state.first_flip = 31; /* the first wrong row is before the flip */
    p = find(DSF_TAP_ATTN_O, 1);
    SAID(p, DSF_PATTERN_FROM, "rows from 30 on");
}

Test(diff_pattern, image_rows_are_told)
{
    int32_t image[ROWS] = {0};
    reset();
    for (int r = 20; r < 30; r++) {
        image[r] = 1;
        spoil(r, r);
    }
    state.image = image;
    dsf_diff_pattern p = find(DSF_TAP_FFN_U, 1);
    SAID(p, DSF_PATTERN_IMAGE, "image rows only");
    spoil(40, 3);
    p = find(DSF_TAP_FFN_U, 1);
    cr_expect(p.rows != DSF_PATTERN_IMAGE, "%s", p.text);
}

Test(diff_pattern, rows_without_a_gate_count_for_nothing)
{
    reset();
    for (int r = 0; r < ROWS; r++) {
        if (r < 10) row[r].status = DSF_ROW_REPORTED;
        if (r >= 10) spoil(r, r);
    }
    dsf_diff_pattern p = find(DSF_TAP_ATTN_O, 1);
    SAID(p, DSF_PATTERN_ALL, "all tokens");
}

static dsf_diff_pattern find_channels(dsf_tap_id id, bool (*is_wrong)(int))
{
    reset();
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < WIDTH; c++)
            if (is_wrong(c)) spoil(r, c);
    return find(id, 1);
}

static bool head_two(int c) { return c / CHANNELS == 2; }
static bool part_of_head_two(int c) { return c / CHANNELS == 2 && c % 3 == 0; }
static bool rotated(int c) { return c % CHANNELS >= CHANNELS / 2; }
static bool group(int c) { return c >= 32 && c < 48; }
static bool fourth(int c) { return c % 4 == 1; }
static bool fourth_and_more(int c) { return c % 4 == 1 || c % 11 == 0; }

Test(diff_pattern, channels_are_told_by_what_they_share)
{
    dsf_diff_pattern p = find_channels(DSF_TAP_ATTN_Q, head_two);
    cr_expect(p.channels == DSF_PATTERN_HEAD && strstr(p.text, "all tokens, head 2"), "%s", p.text);
    p = find_channels(DSF_TAP_ATTN_Q, part_of_head_two);
    cr_expect(p.channels == DSF_PATTERN_HEAD && strstr(p.text, "head 2"), "%s", p.text);
    p = find_channels(DSF_TAP_MID, head_two);
    cr_expect(p.channels == DSF_PATTERN_STREAM && strstr(p.text, "stream 2"), "%s", p.text);
    p = find_channels(DSF_TAP_ATTN_Q, rotated);
    cr_expect(p.channels == DSF_PATTERN_ROTATED, "%s", p.text);
    cr_expect_not_null(strstr(p.text, "channels 16-31 of every head (where RoPE acts)"), "%s",
                       p.text);
    p = find_channels(DSF_TAP_FFN_U, group);
    cr_expect(p.channels == DSF_PATTERN_GROUP && strstr(p.text, "channels 32-47"), "%s", p.text);
    p = find_channels(DSF_TAP_FFN_U, fourth);
    cr_expect(p.channels == DSF_PATTERN_STRIDE && strstr(p.text, "every 4. channel (from 1)"), "%s",
              p.text);
}

Test(diff_pattern, channels_without_a_rule_say_nothing)
{
    dsf_diff_pattern p = find_channels(DSF_TAP_FFN_U, every);
    cr_expect_eq(p.channels, DSF_PATTERN_NONE, "%s", p.text);
    p = find_channels(DSF_TAP_ATTN_Q, every);
    cr_expect_eq(p.channels, DSF_PATTERN_NONE, "%s", p.text);
    p = find_channels(DSF_TAP_FFN_U, fourth_and_more);
    cr_expect_eq(p.channels, DSF_PATTERN_NONE, "%s", p.text);
    reset(); /* seven elements are no pattern */
    for (int c = 0; c < 7; c++) spoil(17, 32 + c);
    p = find(DSF_TAP_FFN_U, 1);
    cr_expect_eq(p.channels, DSF_PATTERN_NONE, "%s", p.text);
}

Test(diff_pattern, rows_are_listed_as_runs)
{
    char text[64];
    reset();
    wrong[3] = wrong[4] = wrong[5] = wrong[20] = 1;
    dsf_pattern_rows(text, sizeof text, row, ROWS, wrong);
    cr_expect_str_eq(text, "3-5, 20");
    for (int r = 0; r < ROWS; r += 2) wrong[r] = 1;
    dsf_pattern_rows(text, sizeof text, row, ROWS, wrong);
    cr_expect_str_eq(text, "0, 2-6, 8, 10, ...");
    memset(wrong, 1, sizeof wrong);
    dsf_pattern_rows(text, sizeof text, row, ROWS, wrong);
    cr_expect_str_eq(text, "0-63");
}
