#include <criterion/criterion.h>
#include <string.h>

#include "base/budget.h"
#include "base/json.h"
#include "base/mem.h"

static dsf_budget table(void)
{
    dsf_budget b = {.n = 0};
    dsf_budget_add(&b, "cache", 890, "context %d x %d B", 1, 890);
    dsf_budget_add(&b, "scratch", 110, "chunk %d", 16);
    dsf_budget_add_file(&b, "weights", 5000);
    return b;
}

Test(budget, totals_keep_anonymous_and_file_backed_bytes_apart)
{
    dsf_budget b = table();
    cr_expect_eq(dsf_budget_total(&b, 0), 1000);
    cr_expect_eq(dsf_budget_total(&b, 1), 5000);
}

Test(budget, a_full_table_keeps_its_totals)
{
    dsf_budget b = {.n = 0};
    for (int i = 0; i < 3 * DSF_BUDGET_LINES; i++)
        dsf_budget_add(&b, "line", (int64_t)1 << 40, "%d", i);
    cr_expect_eq(b.n, DSF_BUDGET_LINES);
    cr_expect_eq(dsf_budget_total(&b, 0), (int64_t)(3 * DSF_BUDGET_LINES) << 40);
    cr_expect_str_eq(b.line[b.n - 1].name, "more");
}

Test(budget, the_table_names_every_line_with_its_formula)
{
    dsf_budget b = table();
    dsf_buf text = {.max = 0};
    dsf_budget_print(&b, &text);
    cr_assert_eq(dsf_buf_status(&text), DSF_OK);
    cr_expect_not_null(strstr(text.data, "context 1 x 890 B"));
    cr_expect_not_null(strstr(text.data, "mapped read-only"));
    cr_expect_not_null(strstr(text.data, "1000"));
    dsf_buf_free(&text);
}

Test(budget, the_json_holds_the_same_numbers)
{
    dsf_budget b = table();
    dsf_buf text = {.max = 0};
    dsf_json_doc *doc;
    int64_t sum = 0, n;
    dsf_budget_json(&b, &text);
    cr_assert_eq(dsf_json_parse(&doc, "budget", text.data, text.len), DSF_OK);
    const dsf_json *lines = dsf_json_get(dsf_json_root(doc), "lines");
    for (const dsf_json *l = dsf_json_first(lines); l; l = dsf_json_next(l)) {
        cr_assert_eq(dsf_json_int(dsf_json_get(l, "bytes"), &n), DSF_OK);
        sum += n;
    }
    cr_expect_eq(sum, 6000);
    cr_assert_eq(dsf_json_int(dsf_json_get(dsf_json_root(doc), "anonymous_bytes"), &n), DSF_OK);
    cr_expect_eq(n, 1000);
    cr_assert_eq(dsf_json_int(dsf_json_get(dsf_json_root(doc), "file_backed_bytes"), &n), DSF_OK);
    cr_expect_eq(n, 5000);
    dsf_json_free(doc);
    dsf_buf_free(&text);
}

Test(budget, long_names_and_formulas_are_cut_not_overrun)
{
    dsf_budget b = {.n = 0};
    char longer[300];
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = 0;
    dsf_budget_add(&b, longer, 7, "%s", longer);
    cr_expect_eq(strlen(b.line[0].name), sizeof b.line[0].name - 1);
    cr_expect_eq(strlen(b.line[0].formula), sizeof b.line[0].formula - 1);
    cr_expect_eq(b.line[0].bytes, 7);
}
