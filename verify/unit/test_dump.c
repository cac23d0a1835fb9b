#include "dump_fixture.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "base/num.h"
#include "ops/quant.h"

TestSuite(dump, .fini = temp_clean);

enum { N = 24 };

static int32_t ids[N];
static int32_t labels[N];

static dsf_dump_meta mini_meta(void)
{
    for (int i = 0; i < N; i++) {
        ids[i] = i % 16;
        labels[i] = i;
    }
    return (dsf_dump_meta){.producer = "test",
                           .model = "mini",
                           .config_json = mini_config,
                           .notes = "a note",
                           .mode = "exact",
                           .backend = "ref",
                           .variants = "ref",
                           .checkpoint_digest = "c0ffee",
                           .plan_digest = "beef",
                           .token_ids = ids,
                           .n_tokens = N};
}

static dsf_status put(dsf_dump *d, dsf_tap_id id, int layer, dsf_tensor t, const int32_t *label)
{
    dsf_tap_value v = {.tap = {id, layer}, .value = &t, .n = t.dim[0], .label = label};
    dsf_tap_sink sink = dsf_dump_sink(d);
    return sink.on_value(sink.ud, &v);
}

static dsf_tensor tensor(void *data, dsf_dtype type, int64_t n, int64_t width)
{
    return (dsf_tensor){.data = data, .dtype = type, .rank = 2, .dim = {n, width}};
}

static float *ramp(int64_t n)
{
    float *x = calloc((size_t)n, sizeof *x);
    for (int64_t i = 0; i < n; i++) x[i] = (float)(i % 251) * 0.5f - 30.0f;
    return x;
}

static char *slurp(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    cr_assert_not_null(f, "%s", path);
    struct stat s;
    cr_assert_eq(fstat(fileno(f), &s), 0);
    char *data = malloc((size_t)s.st_size + 1);
    *n = fread(data, 1, (size_t)s.st_size, f);
    (void)fclose(f);
    return data;
}

static void spill(const char *path, const char *data, size_t n)
{
    FILE *f = fopen(path, "wb");
    cr_assert_not_null(f);
    cr_assert_eq(fwrite(data, 1, n, f), n);
    cr_assert_eq(fclose(f), 0);
}

Test(dump, every_bf16_code_comes_back)
{
    dsf_dump_meta m = mini_meta();
    dsf_dump *d;
    uint16_t *code = malloc(65536 * sizeof *code);
    for (int i = 0; i < 65536; i++) code[i] = (uint16_t)i;
    m.config_json = "{\"num_hidden_layers\": 2, \"hidden_size\": 4096}";
    GOOD(dsf_dump_create(&d, temp_path("bf16.h5"), &m));
    GOOD(put(d, DSF_TAP_EMBED, -1, tensor(code, DSF_BF16, 16, 4096), labels));
    GOOD(dsf_dump_finish(d));
    dsf_dump_file *f;
    dsf_dump_array a;
    GOOD(dsf_dump_open(&f, temp_path("bf16.h5")));
    GOOD(dsf_dump_read(f, "embed", &a));
    cr_assert_eq(a.n * a.width, 65536);
    for (int i = 0; i < 65536; i++) {
        uint32_t want = (uint32_t)i << 16;
        cr_assert_eq(dsf_f32_bits(a.f[i]), want, "code %04x", (unsigned)i);
    }
    dsf_dump_array_free(&a);
    dsf_dump_close(f);
    free(code);
}

Test(dump, records_are_stored_as_their_exact_values)
{
    static const struct {
        dsf_dtype type;
        dsf_tap_id id;
        void (*pack)(uint8_t *, const uint16_t *, int64_t);
        void (*unpack)(uint16_t *, const uint8_t *, int64_t);
        const char *path;
    } format[] = {
        {DSF_Q8, DSF_TAP_ATTN_KV_WINDOW, dsf_q8_row, dsf_q8_unpack, "layers/01/attn/kv_window"},
        {DSF_Q4N, DSF_TAP_ATTN_KV_MAIN, dsf_q4n_row, dsf_q4n_unpack, "layers/01/attn/kv_main"},
        {DSF_Q4X, DSF_TAP_ATTN_INDEX_K, dsf_q4x_row, dsf_q4x_unpack, "layers/01/attn/index_k"},
    };
    dsf_dump_meta m = mini_meta();
    dsf_dump *d;
    uint8_t rec[3][8][64];
    GOOD(dsf_dump_create(&d, temp_path("records.h5"), &m));
    for (int k = 0; k < 3; k++) {
        int64_t bytes = dsf_dtype_bytes(format[k].type, 32);
        uint8_t *packed = rec[k][0];
        for (int r = 0; r < 8; r++) {
            uint16_t x[32];
            for (int c = 0; c < 32; c++) x[c] = dsf_f32_to_bf16(sinf((float)(37 * r + c)) * 3.0f);
            format[k].pack(packed + r * bytes, x, 32);
        }
        GOOD(put(d, format[k].id, 1, tensor(packed, format[k].type, 8, 32), labels));
    }
    GOOD(dsf_dump_finish(d));
    dsf_dump_file *f;
    GOOD(dsf_dump_open(&f, temp_path("records.h5")));
    for (int k = 0; k < 3; k++) {
        dsf_dump_array a;
        GOOD(dsf_dump_read(f, format[k].path, &a));
        int64_t bytes = dsf_dtype_bytes(format[k].type, 32);
        for (int r = 0; r < 8; r++) {
            uint16_t want[32];
            format[k].unpack(want, rec[k][0] + r * bytes, 32);
            for (int c = 0; c < 32; c++)
                cr_expect_eq(dsf_f32_bits(a.f[32 * r + c]), (uint32_t)want[c] << 16);
        }
        dsf_dump_array_free(&a);
    }
    cr_expect_str_eq(dsf_dump_find(f, "layers/01/attn/kv_main")->rows, "/entries_r2");
    cr_expect_eq(dsf_dump_find(f, "layers/01/attn/kv_main")->source, DSF_SRC_E2M1);
    cr_expect_eq(dsf_dump_find(f, "layers/01/attn/kv_window")->source, DSF_SRC_E4M3);
    dsf_dump_close(f);
}

Test(dump, selections_take_the_form_of_the_schema)
{
    dsf_dump_meta m = mini_meta();
    dsf_dump *d;
    m.n_tokens = 6; /* three entries of ratio 2, two blocks */
    int32_t pool[6 * 2] = {-1, -1, 0, -1, 0, -1, 0, -1, 0, 1, 1, -1};
    int32_t topk[6 * 5];
    uint16_t score[6 * 8];
    int64_t rows[6 * 2];
    for (int i = 0; i < 30; i++) topk[i] = i % 5 < 2 ? i % 5 : -1;
    for (int i = 0; i < 48; i++) score[i] = dsf_f32_to_bf16((float)i);
    for (int i = 0; i < 12; i++) rows[i] = (INT64_C(1) << 40) + i;
    GOOD(dsf_dump_create(&d, temp_path("select.h5"), &m));
    GOOD(put(d, DSF_TAP_ATTN_POOL, 1, tensor(pool, DSF_I32, 6, 2), labels));
    GOOD(put(d, DSF_TAP_ATTN_TOPK, 1, tensor(topk, DSF_I32, 6, 5), labels));
    GOOD(put(d, DSF_TAP_ATTN_INDEX_SCORES, 1, tensor(score, DSF_BF16, 6, 8), labels));
    GOOD(put(d, DSF_TAP_ENGRAM_ROWS, 0, tensor(rows, DSF_I64, 6, 2), labels));
    GOOD(dsf_dump_finish(d));
    dsf_dump_file *f;
    dsf_dump_array a;
    GOOD(dsf_dump_open(&f, temp_path("select.h5")));
    GOOD(dsf_dump_read(f, "layers/01/attn/pool", &a));
    static const int64_t mask[] = {0, 0, 0, 1, 1, 0, 1, 1, 0, 1, 1, 0, 1, 1, 1, 0, 0, 1};
    cr_assert_eq(a.width, 3);
    cr_expect_arr_eq(a.i, mask, sizeof mask);
    dsf_dump_array_free(&a);
    GOOD(dsf_dump_read(f, "layers/01/attn/topk", &a));
    cr_expect_eq(a.width, 3, "K = min(index_topk, E)");
    cr_expect_eq(a.i[2], -1);
    dsf_dump_array_free(&a);
    GOOD(dsf_dump_read(f, "layers/01/attn/index_scores", &a));
    cr_expect_eq(a.width, 3);
    cr_expect_eq(a.f[3], 8.0f, "row 1 starts after 8 columns of the tensor");
    dsf_dump_array_free(&a);
    GOOD(dsf_dump_read(f, "layers/00/engram/rows", &a));
    cr_expect_eq(a.i[11], (INT64_C(1) << 40) + 11);
    cr_expect_eq(dsf_dump_find(f, "layers/00/engram/rows")->kind, DSF_DUMP_I64);
    dsf_dump_array_free(&a);
    dsf_dump_close(f);
}

/* The same rows in one call, in chunks and row by row give the same tensors. */
static void write_in_pieces(const char *path, int64_t piece, int64_t decode)
{
    dsf_dump_meta m = mini_meta();
    float *x = ramp(N * 128);
    dsf_dump *d;
    m.n_tokens = N - decode;
    m.n_decode = decode;
    GOOD(dsf_dump_create(&d, path, &m));
    if (decode) GOOD(dsf_dump_add_tokens(d, ids + N - decode, decode));
    for (int64_t from = 0; from < N; from += piece) {
        int64_t n = from + piece < N ? piece : N - from;
        GOOD(put(d, DSF_TAP_IN, 1, tensor(x + 128 * from, DSF_F32, n, 128), labels + from));
        GOOD(put(d, DSF_TAP_OUT, 1, tensor(x + 128 * from, DSF_F32, n, 128), labels + from));
        GOOD(put(d, DSF_TAP_ATTN_INDEX_SCORES, 1, tensor(x + 12 * from, DSF_F32, n, 12),
                 labels + from));
    }
    GOOD(dsf_dump_finish(d));
    free(x);
}

Test(dump, rows_append_over_chunks_and_decode)
{
    write_in_pieces(temp_path("one.h5"), N, 0);
    for (int64_t piece = 1; piece < N; piece += 6) {
        dsf_dump_file *f, *g;
        write_in_pieces(temp_path("many.h5"), piece, piece % 4);
        GOOD(dsf_dump_open(&f, temp_path("one.h5")));
        GOOD(dsf_dump_open(&g, temp_path("many.h5")));
        cr_expect_eq(dsf_dump_info_of(g)->n_tokens, N);
        cr_expect_eq(dsf_dump_info_of(g)->prompt_length, N - piece % 4);
        for (int64_t i = 0; i < dsf_dump_count(f); i++) {
            const char *path = dsf_dump_at(f, i)->path;
            dsf_dump_array a, b;
            GOOD(dsf_dump_read(f, path, &a));
            GOOD(dsf_dump_read(g, path, &b));
            cr_assert_eq(b.n * b.width, a.n * a.width);
            cr_expect_eq(memcmp(a.f, b.f, (size_t)(a.n * a.width) * 4), 0, "%s", path);
            cr_expect_arr_eq(a.label, b.label, (size_t)a.n * 4);
            cr_expect_str_eq(dsf_dump_find(g, path)->rows, "/positions");
            dsf_dump_array_free(&a);
            dsf_dump_array_free(&b);
        }
        cr_expect_eq(dsf_dump_find(f, "layers/01/in")->rank, 3, "[N, 4, D]");
        dsf_dump_close(f);
        dsf_dump_close(g);
    }
}

Test(dump, equal_runs_give_equal_bytes)
{
    size_t n, k;
    write_in_pieces(temp_path("a.h5"), 5, 0);
    write_in_pieces(temp_path("b.h5"), 5, 0);
    char *a = slurp(temp_path("a.h5"), &n), *b = slurp(temp_path("b.h5"), &k);
    cr_assert_eq(n, k);
    cr_expect_eq(memcmp(a, b, n), 0);
    free(a);
    free(b);
}

Test(dump, filters_choose_taps_rows_and_slots)
{
    static const char *const globs[] = {"layers/*/attn/q", "mid"};
    static const int32_t slot[N] = {0, 0, 0, 0, 0, 1, 0, 0, 1};
    dsf_dump_meta m = mini_meta();
    float *x = ramp(N * 128);
    dsf_dump *d;
    m.filter = (dsf_dump_filter){.glob = globs,
                                 .n_globs = 2,
                                 .by_layer = true,
                                 .layer_from = 1,
                                 .layer_to = 1,
                                 .by_position = true,
                                 .position_from = 4,
                                 .position_to = 9};
    GOOD(dsf_dump_create(&d, temp_path("some.h5"), &m));
    dsf_tensor t = tensor(x, DSF_F32, N, 128), q = tensor(x, DSF_F32, N, 64);
    dsf_tap_sink sink = dsf_dump_sink(d);
    cr_expect(sink.wants(sink.ud, (dsf_tap){DSF_TAP_MID, 1}));
    cr_expect(!sink.wants(sink.ud, (dsf_tap){DSF_TAP_MID, 0}));
    cr_expect(!sink.wants(sink.ud, (dsf_tap){DSF_TAP_OUT, 1}));
    dsf_tap_value v = {.tap = {DSF_TAP_MID, 1}, .value = &t, .n = N, .label = labels, .slot = slot};
    GOOD(sink.on_value(sink.ud, &v));
    GOOD(put(d, DSF_TAP_MID, 0, t, labels));
    GOOD(put(d, DSF_TAP_OUT, 1, t, labels));
    GOOD(put(d, DSF_TAP_ATTN_Q, 1, q, labels));
    GOOD(dsf_dump_finish(d));
    dsf_dump_file *f;
    dsf_dump_array a;
    GOOD(dsf_dump_open(&f, temp_path("some.h5")));
    cr_expect_eq(dsf_dump_count(f), 2);
    GOOD(dsf_dump_read(f, "layers/01/mid", &a));
    static const int32_t want[] = {4, 6, 7, 9};
    cr_assert_eq(a.n, 4);
    cr_expect_arr_eq(a.label, want, sizeof want);
    cr_expect_eq(a.f[0], x[4 * 128]);
    dsf_dump_array_free(&a);
    cr_expect_str_neq(dsf_dump_find(f, "layers/01/mid")->rows,
                      dsf_dump_find(f, "layers/01/attn/q")->rows);
    dsf_dump_close(f);
    free(x);
}

Test(dump, globs_keep_to_their_segment)
{
    cr_expect(dsf_dump_glob("layers/*/attn/q", "layers/03/attn/q"));
    cr_expect(!dsf_dump_glob("layers/*/q", "layers/03/attn/q"));
    cr_expect(dsf_dump_glob("layers/**/q", "layers/03/attn/q"));
    cr_expect(dsf_dump_glob("layers/0?/**", "layers/03/attn/q"));
    cr_expect(!dsf_dump_glob("layers/0?/**", "layers/13/attn/q"));
    cr_expect(dsf_dump_glob("*", "embed"));
    cr_expect(!dsf_dump_glob("*", "final/h"));
    cr_expect(!dsf_dump_glob("", "embed"));
    char many[2001], name[2001];
    memset(many, '*', 2000);
    memset(name, 'a', 2000);
    many[2000] = name[2000] = 0;
    for (int i = 1; i < 2000; i += 2) many[i] = 'a';
    many[1999] = 'b';
    cr_expect(!dsf_dump_glob(many, name), "and soon");
}

Test(dump, wrong_rows_are_refused_and_the_refusal_stays)
{
    static const int32_t twice[] = {3, 3};
    static const int32_t far[] = {N, N + 1};
    dsf_dump_meta m = mini_meta();
    float *x = ramp(256);
    dsf_dump *d;
    GOOD(dsf_dump_create(&d, temp_path("wrong.h5"), &m));
    cr_expect_eq(put(d, DSF_TAP_IN, 1, tensor(x, DSF_F32, 2, 128), twice), DSF_EINVAL);
    SAYS("row 3 after row 3");
    cr_expect_eq(put(d, DSF_TAP_MID, 1, tensor(x, DSF_F32, 2, 128), labels), DSF_EINVAL);
    SAYS("row 3 after row 3");
    cr_expect_eq(dsf_dump_finish(d), DSF_EINVAL);
    cr_expect_neq(access(temp_path("wrong.h5"), F_OK), 0);
    cr_expect_neq(access(temp_path("wrong.h5.part"), F_OK), 0);
    GOOD(dsf_dump_create(&d, temp_path("wrong.h5"), &m));
    cr_expect_eq(put(d, DSF_TAP_IN, 1, tensor(x, DSF_F32, 2, 128), far), DSF_EINVAL);
    SAYS("beyond the 24 tokens");
    dsf_dump_abandon(d);
    m.mode = "fast";
    cr_expect_eq(dsf_dump_create(&d, temp_path("wrong.h5"), &m), DSF_EINVAL);
    SAYS("allowed are exact, cone, replay, injected");
    m.mode = "exact";
    cr_expect_eq(dsf_dump_create(&d, "/nowhere/at/all.h5", &m), DSF_EIO);
    SAYS("No such file");
    free(x);
}

Test(dump, statistics_do_not_depend_on_chunks)
{
    dsf_dump_stat_row *first = NULL;
    for (int64_t piece = 7; piece <= N; piece += N - 7) {
        dsf_dump_meta m = mini_meta();
        float *x = ramp(N * 128);
        dsf_dump *d;
        m.stats = true;
        x[5] = NAN;
        x[6] = -INFINITY;
        GOOD(dsf_dump_create(&d, temp_path("stats.h5"), &m));
        for (int64_t from = 0; from < N; from += piece) {
            int64_t n = from + piece < N ? piece : N - from;
            GOOD(put(d, DSF_TAP_IN, 1, tensor(x + 128 * from, DSF_F32, n, 128), labels + from));
        }
        GOOD(dsf_dump_finish(d));
        dsf_dump_file *f;
        dsf_dump_stat_row *row;
        int64_t n;
        GOOD(dsf_dump_open(&f, temp_path("stats.h5")));
        GOOD(dsf_dump_read_stats(f, "stats/layers/01/in", &row, &n));
        cr_assert_eq(n, 1);
        cr_expect_eq(row->count, N * 128);
        cr_expect_eq(row->nan, 1);
        cr_expect_eq(row->inf, 1);
        cr_expect_eq(row->min, -30.0);
        cr_expect_eq(row->max, 95.0);
        if (first) cr_expect_eq(memcmp(first, row, sizeof *row), 0);
        dsf_mem_free(first);
        first = row;
        dsf_dump_close(f);
        free(x);
    }
    dsf_mem_free(first);
}

Test(dump, the_estimate_bounds_what_is_written)
{
    dsf_dump_meta m = mini_meta();
    int64_t all, some;
    static const char *const globs[] = {"**/mid"};
    GOOD(dsf_dump_estimate(&m, &all));
    m.filter = (dsf_dump_filter){.glob = globs, .n_globs = 1};
    GOOD(dsf_dump_estimate(&m, &some));
    cr_expect_eq(some - 8 * N, (2 * N + 2) * 128 * 4, "mid of two layers and of the draft stage");
    cr_expect_lt(some, all);
    m.config_json = "{\"num_hidden_layers\": -1}";
    cr_expect_eq(dsf_dump_estimate(&m, &all), DSF_ECORRUPT);
    SAYS("num_hidden_layers is -1");
}

Test(dump, a_full_disk_is_an_error_and_leaves_no_half_a_file)
{
    (void)signal(SIGXFSZ, SIG_IGN);
    for (rlim_t limit = 100; limit < 400000; limit = limit * 5 / 2) {
        dsf_dump_meta m = mini_meta();
        float *x = calloc(N * 2048, sizeof *x);
        uint32_t noise = 1;
        for (int i = 0; i < N * 2048; i++) x[i] = (float)(noise = noise * 1664525u + 1013904223u);
        dsf_dump *d = NULL;
        struct rlimit old;
        (void)getrlimit(RLIMIT_FSIZE, &old);
        const struct rlimit r = {limit, old.rlim_max};
        cr_assert_eq(setrlimit(RLIMIT_FSIZE, &r), 0);
        m.config_json = "{\"num_hidden_layers\": 4, \"hidden_size\": 512}";
        dsf_status st = dsf_dump_create(&d, temp_path("full.h5"), &m);
        for (int layer = 0; layer < 4 && st == DSF_OK; layer++)
            st = put(d, DSF_TAP_IN, layer, tensor(x, DSF_F32, N, 2048), labels);
        if (d) {
            dsf_status end = dsf_dump_finish(d);
            if (st == DSF_OK) st = end;
        }
        cr_assert_eq(setrlimit(RLIMIT_FSIZE, &old), 0);
        cr_expect_eq(st, DSF_EIO, "limit %lld", (long long)limit);
        SAYS("File too large");
        cr_expect_neq(access(temp_path("full.h5"), F_OK), 0);
        (void)unlink(temp_path("full.h5.part")); /* what is in it: test_dump_cut.c */
        (void)unlink(temp_path("full.h5.part.log"));
        free(x);
    }
}

/* Replaces `from` by `to` (equal lengths) wherever it stands. */
static void replace(char *data, size_t n, const char *from, const char *to)
{
    size_t k = strlen(from);
    for (char *at = data; (at = memmem(at, n - (size_t)(at - data), from, k)) != NULL; at += k)
        memcpy(at, to, k);
}

static dsf_status open_altered(const char *from, const char *to, dsf_dump_file **f)
{
    size_t n;
    write_in_pieces(temp_path("whole.h5"), N, 0);
    char *data = slurp(temp_path("whole.h5"), &n);
    replace(data, n, from, to);
    spill(temp_path("altered.h5"), data, n);
    free(data);
    return dsf_dump_open(f, temp_path("altered.h5"));
}

Test(dump, foreign_files_are_refused_with_words)
{
    dsf_dump_file *f = NULL;
    cr_expect_eq(open_altered("dsv41-dump-1", "dsv41-dump-2", &f), DSF_ENOTSUP);
    SAYS("this reader knows dsv41-dump-1");
    cr_expect_eq(open_altered("dsv41-dump-1", "other-dump-1", &f), DSF_ECORRUPT);
    SAYS("not a dump");
    cr_expect_eq(open_altered("\"hidden_size\"", "\"hidden_size ", &f), DSF_ECORRUPT);
    SAYS("config_json");
    dsf_dump_array a;
    GOOD(open_altered("/positions", "/positionz", &f));
    cr_expect_neq(dsf_dump_read(f, "layers/01/in", &a), DSF_OK);
    dsf_dump_close(f);
    spill(temp_path("text.h5"), "hello", 5);
    cr_expect_eq(dsf_dump_open(&f, temp_path("text.h5")), DSF_ECORRUPT);
    SAYS("not a readable HDF5 file");
    cr_expect_eq(dsf_dump_open(&f, temp_path("absent.h5")), DSF_EIO);
    SAYS("no such file");
    cr_expect_eq(dsf_dump_open(&f, temp_folder), DSF_EIO);
    SAYS("not a regular file");
}

Test(dump, damaged_files_do_no_harm)
{
    size_t n;
    write_in_pieces(temp_path("whole.h5"), N, 0);
    char *data = slurp(temp_path("whole.h5"), &n), *copy = malloc(n);
    uint32_t seed = 7;
    for (int i = 0; i < 150; i++) {
        dsf_dump_file *f;
        memcpy(copy, data, n);
        for (int k = 0; k < 4; k++) {
            seed = seed * 1664525u + 1013904223u;
            copy[seed % n] = (char)(copy[seed % n] ^ 1 << (seed >> 29));
        }
        size_t size = i % 5 ? n : seed % n;
        if (dsf_dump_open_bytes(&f, "damaged", copy, size) != DSF_OK) {
            cr_expect_neq(strlen(dsf_error_message()), 0);
            continue;
        }
        for (int64_t k = 0; k < dsf_dump_count(f); k++) {
            dsf_dump_array a = {0};
            if (dsf_dump_read(f, dsf_dump_at(f, k)->path, &a) != DSF_OK)
                cr_expect_neq(strlen(dsf_error_message()), 0);
            dsf_dump_array_free(&a);
        }
        dsf_dump_close(f);
    }
    free(copy);
    free(data);
}

Test(dump, official_files_read_with_both_kinds_of_links)
{
    dsf_dump_file *f;
    dsf_dump_array a, b;
    GOOD(dsf_dump_open(&f, golden_path("tiny-b/dump-p0.h5")));
    cr_expect_eq(dsf_dump_info_of(f)->geometry.n_layers, 8);
    cr_expect_eq(dsf_dump_info_of(f)->n_tokens, 96);
    cr_expect_eq(dsf_dump_info_of(f)->prompt_length, 96);
    GOOD(dsf_dump_read(f, "layers/00/out", &a));
    GOOD(dsf_dump_read(f, "/layers/01/in", &b));
    cr_expect_eq(memcmp(a.f, b.f, (size_t)(a.n * a.width) * 4), 0);
    dsf_dump_array_free(&a);
    dsf_dump_array_free(&b);
    cr_expect(dsf_dump_find(f, "logits")->oneshot_bit_equal);
    dsf_dump_close(f);
}

Test(dump, row_subsets_join_by_label)
{
    dsf_dump_file *f;
    dsf_dump_array all, some;
    int64_t *pair, n;
    GOOD(dsf_dump_open(&f, golden_path("long-c/dump-p0.h5")));
    GOOD(dsf_dump_read(f, "layers/03/ffn/expert_ids", &all));
    GOOD(dsf_dump_read(f, "layers/03/ffn/expert_weights", &some));
    GOOD(dsf_dump_join(&some, &all, &pair, &n));
    cr_assert_eq(n, some.n);
    for (int64_t i = 0; i < n; i++) {
        cr_expect_eq(some.label[pair[2 * i]], all.label[pair[2 * i + 1]]);
        cr_expect_eq(all.label[pair[2 * i + 1]], pair[2 * i + 1]);
    }
    dsf_mem_free(pair);
    dsf_dump_array_free(&all);
    dsf_dump_array_free(&some);
    dsf_dump_close(f);
}

Test(dump, standard_tools_read_the_files)
{
    char command[1200];
    if (system("h5dump --version >/dev/null 2>&1") != 0) cr_skip_test("h5dump: not here");
    write_in_pieces(temp_path("tools.h5"), 5, 0);
    (void)snprintf(command, sizeof command,
                   "h5dump -d /layers/01/in '%s' | grep -q 'H5T_IEEE_F32LE' && h5diff '%s' '%s'",
                   temp_path("tools.h5"), temp_path("tools.h5"), temp_path("tools.h5"));
    cr_expect_eq(system(command), 0, "%s", command);
}
