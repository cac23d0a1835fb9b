/* Dumps for tests: a temporary folder, a small model's config, a copy of a dump made through the
 * writer with chosen rows altered on the way. */
#ifndef DSF_UNIT_DUMP_FIXTURE_H
#define DSF_UNIT_DUMP_FIXTURE_H

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "config.h"
#include "verify/dump/reader.h"
#include "verify/dump/writer.h"

/* Two backbone layers (window only; ratio 2 with its own index), one draft stage. */
static const char mini_config[] DSF_UNUSED =
    "{\"text_config\": {\"num_hidden_layers\": 2, \"num_nextn_predict_layers\": 1,"
    " \"hidden_size\": 32, \"num_attention_heads\": 2, \"head_dim\": 32, \"q_lora_rank\": 16,"
    " \"index_n_heads\": 2, \"index_head_dim\": 32, \"sliding_window\": 4, \"index_topk\": 3,"
    " \"compress_ratios\": [0, 2, 0], \"kv_source_layer_ids\": [1], \"index_source_layer_ids\": [1],"
    " \"candidate_source_layer_id\": 1, \"candidate_topk_blocks\": 2, \"candidate_block_size\": 2,"
    " \"n_routed_experts\": 4, \"num_experts_per_tok\": 2, \"engram_layer_ids\": [0],"
    " \"engram_max_ngram_size\": 2, \"engram_n_heads\": 2, \"engram_head_dim\": 8,"
    " \"dspark_n_routed_experts\": 2, \"dspark_num_experts_per_tok\": 1,"
    " \"dspark_block_size\": 2, \"dspark_markov_rank\": 8, \"dspark_target_layer_ids\": [0, 1],"
    " \"vocab_size\": 16}}";

static char temp_folder[256];

/* The path of a file in this test's own folder; the last four answers stay valid. */
static inline const char *temp_path(const char *name)
{
    static char path[4][512];
    static int turn;
    if (!*temp_folder) {
        const char *base = getenv("TMPDIR");
        (void)snprintf(temp_folder, sizeof temp_folder, "%s/dsf-test-XXXXXX", base ? base : "/tmp");
        cr_assert_not_null(mkdtemp(temp_folder));
    }
    turn = (turn + 1) % 4;
    (void)snprintf(path[turn], sizeof path[turn], "%s/%s", temp_folder, name);
    return path[turn];
}

static inline void temp_clean(void)
{
    char command[300];
    (void)snprintf(command, sizeof command, "rm -r '%s'", temp_folder);
    if (*temp_folder) cr_expect_eq(system(command), 0);
}

/* A file of the shared golden data; skips the test, by name, where there is none. */
static inline const char *golden_path(const char *name)
{
    static char path[4][1024];
    static int turn;
    bool relative = DSF_SHARED[0] != '/';
    turn = (turn + 1) % 4;
    (void)snprintf(path[turn], sizeof path[turn], "%s%s%s/golden-official/%s",
                   relative ? DSF_SOURCE_ROOT : "", relative ? "/" : "", DSF_SHARED, name);
    if (access(path[turn], R_OK) != 0) cr_skip_test("%s: not here", path[turn]);
    return path[turn];
}

#define GOOD(call) cr_assert_eq((call), DSF_OK, "%s", dsf_error_text())
#define SAYS(words)                                                                                \
    cr_expect_not_null(strstr(dsf_error_message(), words), "said \"%s\", wanted \"%s\"",           \
                       dsf_error_message(), words)

/* What to do to one tap on its way into the copy; returns false to leave the tap out. */
typedef bool (*edit_fn)(const char *path, dsf_dump_array *a);

static inline bool copy_pool(const dsf_dump_array *a, int block, dsf_tensor *t)
{
    /* the sink takes kept block ids */
    int64_t blocks = (a->width + block - 1) / block;
    int32_t *ids = calloc((size_t)(a->n * blocks), sizeof *ids);
    for (int64_t r = 0; r < a->n; r++) {
        int64_t n = 0;
        for (int64_t b = 0; b < blocks; b++)
            if (a->i[r * a->width + b * block]) ids[r * blocks + n++] = (int32_t)b;
        while (n < blocks) ids[r * blocks + n++] = -1;
    }
    *t = (dsf_tensor){.data = ids, .dtype = DSF_I32, .rank = 2, .dim = {a->n, blocks}};
    return true;
}

static inline void copy_tap(dsf_dump *d, dsf_tap tap, const dsf_dump_array *a, int block)
{
    int32_t *slot = calloc((size_t)a->n + 1, sizeof *slot);
    dsf_tensor t = {.data = a->f ? (void *)a->f : (void *)a->i,
                    .dtype = a->f ? DSF_F32 : DSF_I64,
                    .rank = a->rank};
    memcpy(t.dim, a->dim, sizeof t.dim);
    bool own = tap.id == DSF_TAP_ATTN_POOL && copy_pool(a, block, &t);
    dsf_tap_value v = {.tap = tap, .value = &t, .n = a->n, .label = a->label, .slot = slot};
    dsf_tap_sink sink = dsf_dump_sink(d);
    GOOD(sink.on_value(sink.ud, &v));
    if (own) free(t.data);
    free(slot);
}

/* Copies every tap of `from` through the writer. mode: what the copy says it is. */
static inline void copy_dump(const char *from, const char *to, const char *mode, edit_fn edit,
                             const dsf_dump_filter *filter)
{
    dsf_dump_file *f;
    int32_t *ids;
    int64_t n;
    GOOD(dsf_dump_open(&f, from));
    GOOD(dsf_dump_read_axis(f, "token_ids", &ids, &n));
    const dsf_dump_info *info = dsf_dump_info_of(f);
    const dsf_dump_meta meta = {.producer = "copy",
                                .model = info->model,
                                .config_json = info->config_json,
                                .mode = mode,
                                .token_ids = ids,
                                .n_tokens = n,
                                .n_decode = 16, /* room for the rows of the draft block */
                                .filter = filter ? *filter : (dsf_dump_filter){.n_globs = 0}};
    dsf_dump *d;
    GOOD(dsf_dump_create(&d, to, &meta));
    for (int64_t i = 0; i < dsf_dump_count(f); i++) {
        const char *path = dsf_dump_at(f, i)->path;
        bool oneshot = strcmp(path, "logits_oneshot") == 0;
        dsf_tap tap;
        dsf_dump_array a;
        if (!dsf_tap_parse(&tap, oneshot ? "logits" : path, info->geometry.n_layers)) continue;
        GOOD(dsf_dump_read(f, path, &a));
        dsf_dump_logits_oneshot(d, oneshot);
        if (!edit || edit(path, &a)) copy_tap(d, tap, &a, info->geometry.pool_block);
        dsf_dump_array_free(&a);
    }
    GOOD(dsf_dump_finish(d));
    dsf_mem_free(ids);
    dsf_dump_close(f);
}

#endif
