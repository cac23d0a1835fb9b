#include "serve/load.h"

#include "base/file.h"
#include "base/mem.h"
#include "model/engram_hash.h"
#include "text/classes.h"

/* The Engram hash needs the class of every token id: built from the tokenizer, which is not kept.
 */
static dsf_status load_classes(dsf_loaded *l, const char *folder)
{
    const dsf_config *c = &l->config;
    dsf_bpe *bpe = NULL;
    dsf_status st = DSF_OK;
    if (c->n_engram == 0) return DSF_OK;
    DSF_TRY_OUT(dsf_bpe_open(&bpe, folder));
    if (dsf_bpe_n_vocab(bpe) != c->vocab_size)
        DSF_TRY_OUT(DSF_FAIL(DSF_ECORRUPT,
                             "%s: tokenizer.json has %d ids, config.json says vocab_size %lld",
                             folder, (int)dsf_bpe_n_vocab(bpe), (long long)c->vocab_size));
    DSF_TRY_OUT(dsf_mem_new(&l->classes, (size_t)c->vocab_size, sizeof *l->classes));
    int n = 0;
    DSF_TRY_OUT(dsf_classes_build(bpe, l->classes, &n));
    if (n != c->engram_compressed_vocab_size)
        DSF_TRY_OUT(DSF_FAIL(DSF_ECORRUPT,
                             "%s: tokenizer.json gives %d Engram classes, config.json says %d",
                             folder, n, c->engram_compressed_vocab_size));
out:
    dsf_bpe_close(bpe);
    return st;
}

dsf_status dsf_load_open(dsf_loaded *l, const char *folder, const dsf_config_accept *accept)
{
    char path[4096];
    DSF_TRY(dsf_file_join(path, folder, "config.json"));
    DSF_TRY(dsf_config_load(&l->config, path, accept));
    DSF_TRY(dsf_ckpt_open(&l->ckpt, folder));
    DSF_TRY(dsf_weights_open(&l->weights, &l->config, l->ckpt));
    DSF_TRY(load_classes(l, folder));
    dsf_mem_trim(); /* the tokenizer is gone, and most of the index with its JSON */
    return dsf_model_open(&l->model, &l->config, &l->weights);
}

/* Neighbouring ids share a class, as case and accents do in a vocabulary. */
static dsf_status make_classes(dsf_loaded *l)
{
    const dsf_config *c = &l->config;
    if (c->n_engram == 0) return DSF_OK;
    DSF_TRY(dsf_mem_new(&l->classes, (size_t)c->vocab_size, sizeof *l->classes));
    for (int64_t i = 0; i < c->vocab_size; i++)
        l->classes[i] = (int32_t)(i * c->engram_compressed_vocab_size / c->vocab_size);
    return DSF_OK;
}

dsf_status dsf_load_synthetic(dsf_loaded *l, const struct dsf_synthetic *s)
{
    l->config = s->config;
    DSF_TRY(dsf_engram_constants_make(&l->config));
    DSF_TRY(dsf_weights_open_synthetic(&l->weights, &l->config, !s->planned));
    DSF_TRY(make_classes(l));
    return dsf_model_open(&l->model, &l->config, &l->weights);
}

void dsf_load_close(dsf_loaded *l)
{
    dsf_model_close(&l->model);
    dsf_weights_close(&l->weights);
    dsf_ckpt_close(l->ckpt);
    dsf_mem_free(l->classes);
    l->ckpt = NULL;
    l->classes = NULL;
}
