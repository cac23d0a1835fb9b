/* dsf synth: a synthetic checkpoint in the released format. */
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "cmd.h"
#include "model/synth.h"
#include "text/classes.h"

typedef struct {
    const char *out, *preset, *config, *tokenizer;
    int64_t layers, mtp, seed, engram_vocab;
    bool force;
} options;

/* What is known before anything is written. */
typedef struct {
    dsf_config config;
    dsf_buf config_json, tokenizer, tokenizer_config;
} plan;

static void free_plan(plan *p)
{
    dsf_buf_free(&p->config_json);
    dsf_buf_free(&p->tokenizer);
    dsf_buf_free(&p->tokenizer_config);
}

static dsf_status read_file(const char *path, dsf_buf *out)
{
    dsf_file f;
    DSF_TRY(dsf_file_open(&f, path));
    dsf_buf_add(out, f.data, f.size);
    dsf_file_close(&f);
    return dsf_buf_status(out);
}

/* engram_compressed_vocab_size follows from the tokenizer: the hash constants depend on it. */
static dsf_status count_classes(const dsf_buf *tokenizer, dsf_config *c)
{
    dsf_bpe *bpe = NULL;
    int32_t *map = NULL;
    dsf_status st;
    DSF_TRY(dsf_bpe_parse(&bpe, "tokenizer.json", tokenizer->data, tokenizer->len));
    int32_t n = dsf_bpe_n_vocab(bpe);
    if (n > c->vocab_size) {
        st = DSF_FAIL(DSF_EINVAL, "tokenizer.json: %d tokens, vocab_size is %lld", n,
                      (long long)c->vocab_size);
        goto out;
    }
    DSF_TRY_OUT(dsf_mem_new(&map, (size_t)n, sizeof *map));
    DSF_TRY_OUT(dsf_classes_build(bpe, map, &c->engram_compressed_vocab_size));
out:
    dsf_mem_free(map);
    dsf_bpe_close(bpe);
    return st;
}

static dsf_status make_tokenizer(const options *o, plan *p)
{
    if (o->tokenizer)
        DSF_TRY(read_file(o->tokenizer, &p->tokenizer));
    else if (!o->config && strcmp(o->preset, "full") != 0)
        DSF_TRY(dsf_synth_tokenizer(o->preset, p->config.vocab_size, &p->tokenizer,
                                    &p->tokenizer_config));
    return p->tokenizer.len ? count_classes(&p->tokenizer, &p->config) : DSF_OK;
}

static dsf_status make_plan(const options *o, plan *p)
{
    if (o->config)
        DSF_TRY(dsf_config_load(&p->config, o->config, NULL));
    else
        DSF_TRY(dsf_synth_preset(&p->config, o->preset));
    if (o->layers > DSF_MAX_LAYERS || o->mtp > DSF_MAX_LAYERS)
        return DSF_FAIL(DSF_EINVAL, "%lld layers, %lld draft stages; at most %d",
                        (long long)o->layers, (long long)o->mtp, DSF_MAX_LAYERS);
    DSF_TRY(dsf_synth_trim(&p->config, (int)o->layers, (int)o->mtp));
    if (o->engram_vocab) p->config.engram_vocab_size = o->engram_vocab;
    DSF_TRY(make_tokenizer(o, p));
    return dsf_synth_finish(&p->config, &p->config_json);
}

static bool is_ours(const char *name)
{
    int a, b, end = 0;
    if (strncmp(name, "model.safetensors", 17) == 0) return true;
    return sscanf(name, "model-%d-of-%d.safetensors%n", &a, &b, &end) == 2 && end &&
           (name[end] == 0 || strcmp(name + end, ".part") == 0);
}

/* A folder that holds a model is kept unless asked; then the index goes first, so that a run cut
 * short leaves no folder that looks complete. */
static dsf_status clear_folder(const options *o)
{
    char path[4096];
    DSF_TRY(dsf_file_join(path, o->out, "model.safetensors.index.json"));
    bool there = dsf_file_exists(path);
    if (there && !o->force)
        return DSF_FAIL(DSF_EINVAL, "%s holds a model; --force replaces it", o->out);
    if (there && unlink(path) != 0) return DSF_FAIL(DSF_EIO, "%s: cannot remove", path);
    DIR *d = opendir(o->out);
    if (!d) return DSF_OK; /* not there yet */
    dsf_status st = DSF_OK;
    for (struct dirent *e = readdir(d); e && st == DSF_OK; e = readdir(d)) {
        if (!is_ours(e->d_name)) continue;
        st = !o->force ? DSF_FAIL(DSF_EINVAL, "%s holds %s; --force replaces it", o->out, e->d_name)
                       : dsf_file_join(path, o->out, e->d_name);
        if (st == DSF_OK && unlink(path) != 0) st = DSF_FAIL(DSF_EIO, "%s: cannot remove", path);
    }
    (void)closedir(d);
    return st;
}

static dsf_status check_space(const char *folder, int64_t bytes)
{
    struct statvfs s;
    if (statvfs(folder, &s) != 0) return DSF_OK; /* the write will tell */
    uint64_t left = (uint64_t)s.f_bavail * s.f_frsize;
    if ((uint64_t)bytes > left)
        return DSF_FAIL(DSF_EIO,
                        "%s: the checkpoint has %lld bytes, the disk has room for %llu; fewer "
                        "--layers or a smaller --engram-vocab make it smaller",
                        folder, (long long)bytes, (unsigned long long)left);
    return DSF_OK;
}

static dsf_status write_text(const char *folder, const char *name, const dsf_buf *text)
{
    char path[4096];
    dsf_file_out out = {.fd = -1};
    dsf_status st;
    DSF_TRY(dsf_file_join(path, folder, name));
    DSF_TRY_OUT(dsf_file_create(&out, path));
    DSF_TRY_OUT(dsf_file_write(&out, text->data, text->len));
    DSF_TRY_OUT(dsf_file_finish(&out));
out:
    dsf_file_abandon(&out);
    return st;
}

static void show(void *ud, int64_t done, int64_t total)
{
    (void)ud;
    dsf_progress("synth", done, total);
}

static dsf_status write_model(const options *o, const plan *p)
{
    DSF_TRY(clear_folder(o));
    DSF_TRY(dsf_file_make_folder(o->out));
    DSF_TRY(check_space(o->out, dsf_synth_bytes(&p->config)));
    if (p->tokenizer.len) DSF_TRY(write_text(o->out, "tokenizer.json", &p->tokenizer));
    if (p->tokenizer_config.len)
        DSF_TRY(write_text(o->out, "tokenizer_config.json", &p->tokenizer_config));
    dsf_synth_job job = {.folder = o->out,
                         .config = &p->config,
                         .config_json = &p->config_json,
                         .seed = (uint64_t)o->seed,
                         .progress = show};
    return dsf_synth_write(&job);
}

static int report(const options *o, const plan *p)
{
    const dsf_config *c = &p->config;
    dsf_buf b = {.max = 1 << 16};
    dsf_buf_fmt(&b, "%s: %d layers + %d draft stages, %lld bytes of tensors, seed %lld\n", o->out,
                c->n_layers, c->n_mtp_layers, (long long)dsf_synth_bytes(c), (long long)o->seed);
    if (p->tokenizer.len)
        dsf_buf_fmt(&b, "tokenizer.json: %d Engram classes\n", c->engram_compressed_vocab_size);
    else
        dsf_buf_str(&b,
                    "no tokenizer.json written (--tokenizer FILE copies one): prompts by ids\n");
    int code = dsf_cmd_print(&b);
    dsf_buf_free(&b);
    return code;
}

int dsf_cmd_synth(int argc, char **argv)
{
    options o = {.preset = "mini", .layers = -1, .mtp = -1, .seed = 1};
    const opt opts[] = {
        {"-o", OPT_STRING, &o.out, "DIR", "the folder to write (made when it is not there)"},
        {"--preset", OPT_STRING, &o.preset, "NAME", "mini (default), tiny or full"},
        {"--config", OPT_STRING, &o.config, "FILE", "any config.json instead of a preset"},
        {"--layers", OPT_INT, &o.layers, "N", "keep the first N layers of the schedule"},
        {"--mtp", OPT_INT, &o.mtp, "N", "keep N draft stages"},
        {"--seed", OPT_INT, &o.seed, "S", "equal seeds give equal bytes (1)"},
        {"--engram-vocab", OPT_INT, &o.engram_vocab, "N",
         "engram_vocab_size: the tables follow (24 primes from N at full size)"},
        {"--tokenizer", OPT_STRING, &o.tokenizer, "FILE", "tokenizer.json to copy in"},
        {"--force", OPT_FLAG, &o.force, NULL, "replace a model that is there"},
    };
    const opt_spec spec = {.command = "synth",
                           .synopsis = "-o DIR [options]",
                           .about = "Writes a synthetic checkpoint in the released format.",
                           .example = "dsf synth -o mini && dsf info mini",
                           .opts = opts,
                           .n_opts = sizeof opts / sizeof opts[0]};
    int code = dsf_opt_parse(&spec, argc, argv);
    if (code >= 0) return code;
    if (!o.out) {
        (void)fprintf(stderr, "dsf synth: -o DIR is needed\ntry: dsf synth --help\n");
        return DSF_EXIT_USAGE;
    }
    plan p = {.config_json = {.max = 1 << 20}, .tokenizer = {.max = 1 << 28}};
    dsf_status st = make_plan(&o, &p);
    if (st == DSF_OK) st = write_model(&o, &p);
    code = st == DSF_OK ? report(&o, &p) : dsf_cmd_fail("synth", st);
    free_plan(&p);
    return code;
}
