/* dsf encode: the exact prompt of a chat, or the token ids of a text. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "cmd.h"
#include "text/bpe.h"
#include "text/chat.h"

typedef struct {
    const char *model, *chat, *text, *text_file;
    bool ids, json, tokens, inert;
} options;

typedef struct {
    dsf_buf input; /* the file or the text */
    dsf_json_doc *doc;
    dsf_chat_prompt chat;
    const dsf_buf *prompt;
    dsf_bpe *bpe;
    dsf_ids ids;
} work;

/* A whole file, or standard input for "-". */
static dsf_status read_input(dsf_buf *out, const char *path)
{
    char chunk[65536];
    size_t n;
    dsf_file f;
    if (strcmp(path, "-") == 0) {
        while ((n = fread(chunk, 1, sizeof chunk, stdin)) > 0) dsf_buf_add(out, chunk, n);
        if (ferror(stdin)) return DSF_FAIL(DSF_EIO, "standard input: could not be read");
    } else {
        DSF_TRY(dsf_file_open(&f, path));
        dsf_buf_add(out, f.data ? (const char *)f.data : "", f.size);
        dsf_file_close(&f);
    }
    return dsf_buf_status(out);
}

static dsf_status make_prompt(const options *o, work *w)
{
    w->prompt = &w->input;
    if (o->text) {
        dsf_buf_str(&w->input, o->text);
        return dsf_buf_status(&w->input);
    }
    const char *path = o->chat ? o->chat : o->text_file;
    DSF_TRY(read_input(&w->input, path));
    if (!o->chat) return DSF_OK;
    const char *name = strcmp(path, "-") == 0 ? "standard input" : path;
    w->prompt = &w->chat.prompt;
    DSF_TRY(dsf_json_parse(&w->doc, name, w->input.data ? w->input.data : "", w->input.len));
    dsf_status st = dsf_chat_encode(dsf_json_root(w->doc), "chat", &w->chat);
    if (st == DSF_OK || w->chat.error == DSF_CHAT_NONE) return st;
    char words[512];
    (void)snprintf(words, sizeof words, "%s", dsf_error_message());
    return DSF_FAIL(st, "%s: %s (%s)", name, words, dsf_chat_error_name(w->chat.error));
}

static dsf_status make_ids(const options *o, work *w)
{
    DSF_TRY(dsf_bpe_open(&w->bpe, o->model));
    const dsf_buf *p = w->prompt;
    return dsf_bpe_encode(w->bpe, p->data ? p->data : "", p->len,
                          o->inert ? DSF_BPE_PLAIN : DSF_BPE_ADDED, &w->ids);
}

static dsf_status print_json(const work *w, dsf_buf *out)
{
    dsf_buf images = {0};
    DSF_TRY(dsf_chat_images_json(&w->chat, &images));
    dsf_json_begin(out, NULL, '{');
    dsf_json_add_str(out, "prompt", w->prompt->data ? w->prompt->data : "", w->prompt->len);
    dsf_json_begin(out, "ids", '[');
    for (size_t i = 0; i < w->ids.n; i++) dsf_json_add_int(out, NULL, w->ids.id[i]);
    dsf_json_end(out, ']');
    dsf_json_add_raw(out, "images", images.data);
    dsf_json_add_int(out, "n", (int64_t)w->ids.n);
    dsf_json_end(out, '}');
    dsf_buf_char(out, '\n');
    dsf_buf_free(&images);
    return dsf_buf_status(out);
}

/* One line a token: place, id, and its bytes as a JSON string (cut characters shown as U+FFFD). */
static void print_tokens(const work *w, dsf_buf *out)
{
    dsf_buf text = {0};
    for (size_t i = 0; i < w->ids.n; i++) {
        size_t n = 0;
        const char *bytes = dsf_bpe_token_bytes(w->bpe, w->ids.id[i], &n);
        text.len = 0;
        dsf_bpe_lossy(&text, bytes ? bytes : "", n);
        dsf_buf_fmt(out, "%6zu  %6d  ", i, w->ids.id[i]);
        dsf_json_quote(out, text.data ? text.data : "", text.len);
        dsf_buf_char(out, '\n');
    }
    dsf_buf_free(&text);
}

static dsf_status print(const options *o, const work *w, dsf_buf *out)
{
    if (o->json) return print_json(w, out);
    if (o->tokens) {
        print_tokens(w, out);
    } else if (o->ids || !o->chat) {
        for (size_t i = 0; i < w->ids.n; i++) dsf_buf_fmt(out, i ? " %d" : "%d", w->ids.id[i]);
        dsf_buf_char(out, '\n');
    } else {
        dsf_buf_add(out, w->prompt->data, w->prompt->len); /* not a byte more */
    }
    return dsf_buf_status(out);
}

static int run(const options *o)
{
    work w = {0};
    dsf_buf out = {0};
    dsf_status st = make_prompt(o, &w);
    if (st == DSF_OK) st = make_ids(o, &w);
    if (st == DSF_OK) st = print(o, &w, &out);
    int code = st == DSF_OK ? dsf_cmd_print(&out) : dsf_cmd_fail("encode", st);
    dsf_buf_free(&out);
    dsf_ids_free(&w.ids);
    dsf_bpe_close(w.bpe);
    dsf_chat_free(&w.chat);
    dsf_json_free(w.doc);
    dsf_buf_free(&w.input);
    return code;
}

int dsf_cmd_encode(int argc, char **argv)
{
    options o = {0};
    const opt opts[] = {
        {"--chat", OPT_STRING, &o.chat, "FILE", "chat as JSON: a list of messages, or an object"},
        {"--text", OPT_STRING, &o.text, "S", "a text"},
        {"--text-file", OPT_STRING, &o.text_file, "FILE",
         "a text from a file; - is standard input"},
        {"--ids", OPT_FLAG, &o.ids, NULL, "print the chat's token ids, not its prompt"},
        {"--tokens", OPT_FLAG, &o.tokens, NULL, "print one token a line: place, id, text"},
        {"--json", OPT_FLAG, &o.json, NULL, "print {prompt, ids, images, n}"},
        {"--inert", OPT_FLAG, &o.inert, NULL, "special tokens spelled in the text stay text"},
    };
    const opt_spec spec = {
        .command = "encode",
        .synopsis = "MODEL (--chat FILE | --text S | --text-file FILE) [--ids] [--tokens] [--json]",
        .about =
            "Prints the exact prompt of a chat, byte for byte, or token ids. MODEL is a folder "
            "with\ntokenizer.json, or that file. A chat object has messages and optionally "
            "thinking_mode\n(chat or thinking; chat when absent), tools, context, "
            "drop_thinking, reasoning_effort\nand add_default_bos_token.",
        .example = "dsf encode MODEL --chat talk.json --ids",
        .opts = opts,
        .n_opts = sizeof opts / sizeof *opts,
        .positional = &o.model,
        .n_positional = 1,
        .n_required = 1,
    };
    int code = dsf_opt_parse(&spec, argc, argv);
    if (code >= 0) return code;
    if (!!o.chat + !!o.text + !!o.text_file != 1) {
        (void)fprintf(stderr, "dsf encode: one of --chat, --text and --text-file is needed\n");
        return DSF_EXIT_USAGE;
    }
    if (o.inert && o.chat) {
        (void)fprintf(stderr, "dsf encode: --inert would break a chat's own tokens\n");
        return DSF_EXIT_USAGE;
    }
    return run(&o);
}
