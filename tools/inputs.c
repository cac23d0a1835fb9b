#include "inputs.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "base/utf8.h"
#include "device.h"
#include "plan/plan.h"
#include "text/chat.h"

dsf_status dsf_inputs_read(const char *path, dsf_buf *b)
{
    if (strcmp(path, "-") != 0) {
        dsf_file f;
        DSF_TRY(dsf_file_open(&f, path));
        dsf_buf_add(b, f.data, f.size);
        dsf_file_close(&f);
        return dsf_buf_status(b);
    }
    char piece[65536];
    size_t k;
    while ((k = fread(piece, 1, sizeof piece, stdin)) > 0) dsf_buf_add(b, piece, k);
    if (ferror(stdin)) return DSF_FAIL(DSF_EIO, "standard input: %s", strerror(errno));
    return dsf_buf_status(b);
}

dsf_status dsf_inputs_flush(void)
{
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout)) return DSF_OK;
    return DSF_FAIL(DSF_EIO, "standard output: %s", errno ? strerror(errno) : "not all was taken");
}

dsf_status dsf_inputs_print(const dsf_buf *b)
{
    DSF_TRY(dsf_buf_status(b));
    if (b->len) (void)fwrite(b->data, 1, b->len, stdout);
    return dsf_inputs_flush();
}

/* Moves to what follows white space and at most one comma, which stands between two items. False:
 * the end. *comma: an item must follow. */
static bool next_item(const char *text, size_t n, size_t *i, bool *comma)
{
    size_t from = *i;
    for (; *i < n && text[*i] && strchr(" \t\r\n,", text[*i]); ++*i) {
        if (text[*i] != ',') continue;
        if (*comma || from == 0) return *comma = true;
        *comma = true;
    }
    return *i < n;
}

dsf_status dsf_inputs_parse_ids(const char *name, const char *text, size_t n, dsf_ids *ids)
{
    size_t i = 0;
    for (bool comma = false; next_item(text, n, &i, &comma) || comma; comma = false) {
        int64_t v = 0;
        size_t from = i;
        while (i < n && text[i] >= '0' && text[i] <= '9' && v <= INT32_MAX)
            v = v * 10 + (text[i++] - '0');
        if (i == from || v > INT32_MAX)
            return DSF_FAIL(DSF_EINVAL, "%s: byte %zu: no token id", name, from);
        int32_t id = (int32_t)v;
        DSF_TRY(dsf_ids_add(ids, &id, 1));
    }
    if (ids->n == 0) return DSF_FAIL(DSF_EINVAL, "%s: no token ids", name);
    return DSF_OK;
}

static dsf_status encode_chat(const char *path, const dsf_bpe *bpe, dsf_ids *ids)
{
    dsf_buf text = {.max = (size_t)1 << 30};
    dsf_json_doc *doc = NULL;
    dsf_chat_prompt p = {.prompt = {.max = (size_t)1 << 30}};
    dsf_status st = DSF_OK;
    DSF_TRY_OUT(dsf_inputs_read(path, &text));
    DSF_TRY_OUT(dsf_json_parse(&doc, path, text.data ? text.data : "", text.len));
    DSF_TRY_OUT(dsf_chat_encode(dsf_json_root(doc), "chat", &p));
    if (p.n_images)
        DSF_TRY_OUT(DSF_FAIL(DSF_ENOTSUP,
                             "%s: images need the vision tower, which this version lacks", path));
    DSF_TRY_OUT(dsf_bpe_encode(bpe, p.prompt.data, p.prompt.len, DSF_BPE_ADDED, ids));
out:
    dsf_chat_free(&p);
    dsf_json_free(doc);
    dsf_buf_free(&text);
    return st;
}

static dsf_status read_ids_file(const char *path, dsf_ids *ids)
{
    dsf_buf b = {.max = (size_t)1 << 30};
    dsf_status st = DSF_OK;
    DSF_TRY_OUT(dsf_inputs_read(path, &b));
    DSF_TRY_OUT(dsf_inputs_parse_ids(path, b.data ? b.data : "", b.len, ids));
out:
    dsf_buf_free(&b);
    return st;
}

dsf_status dsf_inputs_ids(const input_options *in, dsf_bpe **bpe, dsf_ids *ids)
{
    int given = !!in->prompt + !!in->chat + !!in->ids + !!in->ids_file;
    if (given != 1)
        return DSF_FAIL(DSF_EINVAL, "give one of --prompt, --chat, --ids, --ids-file (%d given)",
                        given);
    if (in->ids) return dsf_inputs_parse_ids("--ids", in->ids, strlen(in->ids), ids);
    if (in->ids_file) return read_ids_file(in->ids_file, ids);
    if (in->prompt && dsf_utf8_valid(in->prompt, strlen(in->prompt)) != strlen(in->prompt))
        return DSF_FAIL(DSF_EINVAL, "--prompt: byte %zu of %zu is not UTF-8",
                        dsf_utf8_valid(in->prompt, strlen(in->prompt)), strlen(in->prompt));
    if (!*bpe) DSF_TRY(dsf_bpe_open(bpe, in->model));
    if (in->chat) return encode_chat(in->chat, *bpe, ids);
    DSF_TRY(dsf_bpe_encode(*bpe, in->prompt, strlen(in->prompt), DSF_BPE_ADDED, ids));
    if (ids->n == 0) return DSF_FAIL(DSF_EINVAL, "--prompt: the text is empty");
    return DSF_OK;
}

dsf_status dsf_inputs_size(const char *name, const char *text, int64_t *out)
{
    char *end;
    errno = 0;
    long long v = text[0] >= '0' && text[0] <= '9' ? strtoll(text, &end, 10) : 0;
    const char *unit = v > 0 && !errno && *end ? strchr("KMGT", *end) : NULL;
    int shift = unit ? 10 * (int)(unit - "KMGT" + 1) : 0;
    if (v > 0 && unit) end += strcmp(end + 1, "iB") == 0 ? 3 : 1;
    if (v <= 0 || errno || *end || v > INT64_MAX >> shift)
        return DSF_FAIL(DSF_EINVAL, "%s %s: a number of bytes, with K, M, G or T", name, text);
    *out = (int64_t)v << shift;
    return DSF_OK;
}

dsf_status dsf_inputs_threads(int64_t n)
{
    if (n < 0 || n > 1024) return DSF_FAIL(DSF_EINVAL, "--threads %lld: 1 to 1024", (long long)n);
    return DSF_OK;
}

static dsf_status pick_prefill(const char *word, dsf_prefill *out)
{
    static const char *const name[] = {"cone", "exact", "replay"};
    for (int i = 0; i < 3; i++)
        if (strcmp(word, name[i]) == 0) {
            *out = (dsf_prefill)i;
            return DSF_OK;
        }
    return DSF_FAIL(DSF_EINVAL, "--prefill %s: exact, cone or replay", word);
}

const char *dsf_inputs_backend_name(const char *variants)
{
    if (dsf_plan_on_device(variants)) return "cuda";
    return variants && strcmp(variants, "ref") == 0 ? "ref" : "cpu";
}

/* Usable devices, asked in a child: a process that has used CUDA cannot fork workers that do. */
static int probe_devices(void)
{
    /* Without the driver's device file there is nothing to ask, and nothing to wait for. */
    if (access("/dev/nvidiactl", F_OK) != 0) return 0;
    pid_t child = fork();
    if (child == 0) _exit(dsf_device_count(NULL) & 0x7F);
    int state = 0;
    if (child < 0 || waitpid(child, &state, 0) != child || !WIFEXITED(state)) return 0;
    return WEXITSTATUS(state);
}

/* "cuda" and the user's words behind it. */
static const char *device_mask(const char *words, char *room, size_t n)
{
    if (!words || !*words) return "cuda";
    return snprintf(room, n, "cuda,%s", words) < (int)n ? room : NULL;
}

dsf_status dsf_inputs_backend(const char *word, const char **variants)
{
    static char mask[1024]; /* lives as long as the options that point to it: the process */
    const char *b = word ? word : "auto";
    bool ref = strcmp(b, "ref") == 0, cuda = strcmp(b, "cuda") == 0, any = strcmp(b, "auto") == 0;
    if (!ref && !cuda && !any && strcmp(b, "cpu") != 0)
        return DSF_FAIL(DSF_EINVAL, "--backend %s: auto, cpu, ref or cuda", b);
    if (ref && *variants)
        return DSF_FAIL(DSF_EINVAL, "--backend ref is a mask already: --variants %s beside it",
                        *variants);
    if (any && !*variants) cuda = probe_devices() > 0;
    if (ref) *variants = "ref";
    if (cuda) *variants = device_mask(*variants, mask, sizeof mask);
    if (cuda && !*variants) return DSF_FAIL(DSF_EINVAL, "--variants is too long");
    return DSF_OK;
}

/* A file of another name beside it can be made where this one can. */
static dsf_status try_folder(const char *out)
{
    char beside[4096];
    if (snprintf(beside, sizeof beside, "%s.XXXXXX", out) >= (int)sizeof beside)
        return DSF_FAIL(DSF_EINVAL, "path of %zu bytes is too long", strlen(out));
    int fd = mkstemp(beside);
    if (fd < 0) return DSF_FAIL(DSF_EIO, "%s: cannot be written: %s", out, strerror(errno));
    (void)close(fd);
    (void)unlink(beside);
    return DSF_OK;
}

dsf_status dsf_inputs_check_out(const char *out, const char *const *input, int n)
{
    if (!out) return DSF_OK;
    if (!*out) return DSF_FAIL(DSF_EINVAL, "the name of the output is empty");
    for (int i = 0; i < n; i++)
        if (input[i] && dsf_file_same(input[i], out))
            return DSF_FAIL(DSF_EINVAL, "%s: input and output are one file", out);
    DSF_TRY(dsf_file_may_replace(out));
    return try_folder(out);
}

dsf_status dsf_inputs_options(const input_options *in, const char *default_prefill, dsf_options *o,
                              const char **accept)
{
    *o = (dsf_options){.model = in->model,
                       .context = in->context,
                       .chunk = in->chunk,
                       .rewind = in->rewind,
                       .threads = (int)in->threads,
                       .accept_config = accept};
    for (int i = 0; i < in->accept.n; i++) accept[i] = in->accept.item[i];
    accept[in->accept.n] = NULL;
    DSF_TRY(dsf_inputs_threads(in->threads));
    o->log = *dsf_cmd_log();
    DSF_TRY(pick_prefill(in->prefill ? in->prefill : default_prefill, &o->prefill));
    o->variants = in->variants;
    return dsf_inputs_backend(in->backend, &o->variants);
}

dsf_status dsf_inputs_write(const char *path, const dsf_buf *b)
{
    dsf_file_out f;
    DSF_TRY(dsf_buf_status(b));
    DSF_TRY(dsf_file_create(&f, path));
    dsf_status st = dsf_file_write(&f, b->data, b->len);
    if (st == DSF_OK) st = dsf_file_finish(&f);
    dsf_file_abandon(&f);
    return st;
}
