/* What run, dump, graft and bench share: the options that name a model, a prompt and an engine. */
#ifndef DSF_TOOLS_INPUTS_H
#define DSF_TOOLS_INPUTS_H

#include "cmd.h"
#include "dsf.h"
#include "text/bpe.h"

typedef struct {
    const char *model, *prompt, *chat, *ids, *ids_file;
    const char *prefill, *backend, *variants;
    int64_t context, chunk, threads, rewind;
    opt_list accept;
} input_options;

/* Rows of the option table for the two groups; `in` is an input_options variable. */
#define INPUT_PROMPT_OPTS(in)                                                                      \
    {"--prompt", OPT_STRING, &(in).prompt, "S",                                                    \
     "text, encoded as it is (special tokens are matched)"},                                       \
        {"--chat", OPT_STRING, &(in).chat, "FILE",                                                 \
         "chat request as JSON, or - for standard input"},                                         \
        {"--ids", OPT_STRING, &(in).ids, "1,2,3", "token ids"},                                    \
    {                                                                                              \
        "--ids-file", OPT_STRING, &(in).ids_file, "FILE",                                          \
            "decimal ids separated by white space or commas"                                       \
    }
#define INPUT_ENGINE_OPTS(in)                                                                      \
    {"--prefill", OPT_STRING, &(in).prefill, "MODE", "exact, cone or replay"},                     \
        {"--backend", OPT_STRING, &(in).backend, "B", "auto, cpu, ref or cuda"},                   \
        {"--variants", OPT_STRING, &(in).variants, "MASK",                                         \
         "kernel mask: ref, -avx512, -avx512:attn"},                                               \
        {"--ctx", OPT_INT, &(in).context, "N", "positions of the sequence"},                       \
        {"--chunk", OPT_INT, &(in).chunk, "N", "rows of a prefill pass"},                          \
        {"--threads", OPT_INT, &(in).threads, "N", "threads (default: all processors)"},           \
    {                                                                                              \
        "--accept-config", OPT_LIST, &(in).accept, "KEY", "accept this unknown key of config.json" \
    }

/* Exactly one of --prompt, --chat, --ids, --ids-file, as ids. bpe: the model's tokenizer (opened
 * when a text was given; *bpe may be NULL after). */
DSF_MUST dsf_status dsf_inputs_ids(const input_options *in, dsf_bpe **bpe, dsf_ids *ids);
/* Fills dsf_options from the flags. EINVAL for unknown words; ENOTSUP for cuda. accept: room for 33
 * keys. */
DSF_MUST dsf_status dsf_inputs_options(const input_options *in, const char *default_prefill,
                                       dsf_options *o, const char **accept);
/* Reads a whole file, or standard input for "-", into b. */
DSF_MUST dsf_status dsf_inputs_read(const char *path, dsf_buf *b);
/* Writes b as a whole file: it appears when it is complete. */
DSF_MUST dsf_status dsf_inputs_write(const char *path, const dsf_buf *b);
/* Parses a list of decimal ids. */
DSF_MUST dsf_status dsf_inputs_parse_ids(const char *name, const char *text, size_t n,
                                         dsf_ids *ids);
/* "4096", "512M", "8G", "8GiB": bytes in powers of 1024, above 0. name: the option, for the
 * message. */
DSF_MUST dsf_status dsf_inputs_size(const char *name, const char *text, int64_t *out);
/* EINVAL outside 0 (all processors) to 1024. */
DSF_MUST dsf_status dsf_inputs_threads(int64_t n);
/* Writes b to standard output, or what printf left there: EIO when it does not take it all. */
DSF_MUST dsf_status dsf_inputs_print(const dsf_buf *b);
DSF_MUST dsf_status dsf_inputs_flush(void);
/* What can be told of an output before the work: EINVAL when it is one file with an input (by any
 * name; inputs may be NULL), EIO when it is a folder or a device or cannot be made there. NULL:
 * fine, there is no output. */
DSF_MUST dsf_status dsf_inputs_check_out(const char *out, const char *const *input, int n);
/* A file name for a dump that is kept only while it is compared, in a folder of its own under
 * TMPDIR or /tmp: removed at the end of the program, and by INT, TERM and HUP, which end it with
 * words and exit 3. Only in builds with HDF5. */
DSF_MUST dsf_status dsf_inputs_temp(const char **path);
/* What an unfinished output of that name has on the disk (PATH.part and its log) goes as well when
 * a signal ends the program. NULL: nothing. */
void dsf_inputs_drop_on_stop(const char *out);
/* INT, TERM and HUP remove the temporaries (verify/dump/temp.h) and end the program as said. */
void dsf_inputs_stop_on_signals(void);
/* --backend and --variants to a kernel mask. EINVAL: unknown, or both given with ref. `auto` is
 * cuda where a device is and no variants are asked for, else cpu. */
DSF_MUST dsf_status dsf_inputs_backend(const char *word, const char **variants);
/* The backend that such a mask means, as dumps name it: "ref", "cpu", "cuda". */
const char *dsf_inputs_backend_name(const char *variants);

#endif
