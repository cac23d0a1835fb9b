/* What the engine tests share: the mini model in a temporary folder, engines and sessions on it. */
#ifndef DSF_UNIT_ENGINE_FIXTURE_H
#define DSF_UNIT_ENGINE_FIXTURE_H

#include <criterion/criterion.h>

#include "base/mem.h"
#include "ckpt_fixture.h"
#include "dsf.h"
#include "serve/engine.h"

#define GOOD(call)        cr_assert_eq((call), DSF_OK, "%s", dsf_error_text())
#define REFUSED(st, call) cr_assert_eq((call), (st), "%s", dsf_error_text())
/* The record of the last failure holds these words. */
#define SAYS(words)                                                                                \
    cr_assert_not_null(strstr(dsf_error_message(), words), "\"%s\" in \"%s\"", words,              \
                       dsf_error_message())

enum { MINI_VOCAB = 512, MINI_WINDOW = 8 };

/* A model of this config with the preset's tokenizer. */
static inline void write_config(const char *folder, const char *preset, dsf_config *c)
{
    dsf_buf json = {.max = 1 << 20}, tokenizer = {.max = 1 << 24}, config = {.max = 1 << 16};
    GOOD(dsf_synth_finish(c, &json));
    GOOD(dsf_synth_tokenizer(preset, c->vocab_size, &tokenizer, &config));
    put_bytes(folder, "tokenizer.json", tokenizer.data, tokenizer.len);
    const dsf_synth_job job = {.folder = folder, .config = c, .config_json = &json, .seed = 1};
    GOOD(dsf_synth_write(&job));
    dsf_buf_free(&json);
    dsf_buf_free(&tokenizer);
    dsf_buf_free(&config);
}

/* A preset with the first `layers` layers and `mtp` stages (-1: all) and its tokenizer. */
static inline void write_model(const char *folder, const char *preset, int layers, int mtp)
{
    dsf_config c;
    GOOD(dsf_synth_preset(&c, preset));
    GOOD(dsf_synth_trim(&c, layers, mtp));
    write_config(folder, preset, &c);
}

static char mini_folder[4096];

/* The mini model, written at its first use in this process. */
static inline const char *mini(void)
{
    if (!mini_folder[0]) {
        make_temp(mini_folder);
        write_model(mini_folder, "mini", -1, -1);
    }
    return mini_folder;
}

static inline void mini_clean(void)
{
    if (mini_folder[0]) remove_temp(mini_folder);
    mini_folder[0] = 0;
}

static inline dsf_engine *open_engine(dsf_options o)
{
    dsf_engine *e = NULL;
    if (!o.model) o.model = mini();
    if (!o.threads) o.threads = 1;
    GOOD(dsf_engine_open(&e, &o));
    return e;
}

static inline dsf_session *open_session(dsf_engine *e)
{
    dsf_session *s = NULL;
    GOOD(dsf_session_open(&s, e));
    return s;
}

/* The i-th token of sequence `salt`: any tokens do, n-grams repeat now and then. */
static inline int32_t token(int64_t i, int salt)
{
    uint64_t x = ((uint64_t)(i % 19) * 2654435761u + (uint64_t)salt * 40503u + (uint64_t)(i / 13)) *
                 0x9E3779B97F4A7C15u;
    return (int32_t)((x >> 33) % MINI_VOCAB);
}

static inline void feed(dsf_session *s, int salt, int64_t from, int64_t to)
{
    int32_t ids[1024];
    cr_assert_leq(to - from, 1024);
    for (int64_t i = from; i < to; i++) ids[i - from] = token(i, salt);
    GOOD(dsf_session_feed(s, ids, (size_t)(to - from)));
}

static inline void run_all(dsf_session *s)
{
    while (dsf_session_queued(s) > 0) GOOD(dsf_engine_step(s->engine, &s, 1, NULL));
}

static inline void feed_run(dsf_session *s, int salt, int64_t from, int64_t to)
{
    feed(s, salt, from, to);
    run_all(s);
}

static inline void take_logits(const dsf_session *s, float *out)
{
    const float *row;
    GOOD(dsf_session_logits(s, &row));
    memcpy(out, row, (size_t)dsf_engine_vocab(s->engine) * sizeof *out);
}

/* Logits after tokens [0, n) of sequence `salt`, fed one by one under `exact`: the definition. */
static inline void want_logits(int salt, int64_t n, float *out)
{
    dsf_engine *e =
        open_engine((dsf_options){.context = n, .chunk = 1, .prefill = DSF_PREFILL_EXACT});
    dsf_session *s = open_session(e);
    feed_run(s, salt, 0, n);
    take_logits(s, out);
    dsf_session_close(s);
    dsf_engine_close(e);
}

#define SAME_LOGITS(a, b, ...)                                                                     \
    cr_expect(memcmp((a), (b), MINI_VOCAB * sizeof(float)) == 0, __VA_ARGS__)

#endif
