/* A command as the check: its placeholders filled with a candidate, run in a process group of its
 * own with a time limit, its exit code as the outcome. */
#ifndef DSF_REDUCE_COMMAND_H
#define DSF_REDUCE_COMMAND_H

#include "verify/reduce/candidate.h"
#include "verify/reduce/tries.h"

/* X(placeholder, axis or 0, what stands in its place) */
#define DSF_PLACEHOLDER_MAP(X)                                                                     \
    X("ids", DSF_AXIS_IDS, "a file of token ids")                                                  \
    X("id_list", DSF_AXIS_IDS, "the ids themselves: 1,2,3")                                        \
    X("length", DSF_AXIS_LENGTH, "the number of tokens")                                           \
    X("layers", DSF_AXIS_LAYERS, "a range of layers: A-B")                                         \
    X("model", DSF_AXIS_MODEL, "the checkpoint, cut after the last layer of the range")            \
    X("rows", DSF_AXIS_ROWS, "a range of rows: A-B")                                               \
    X("chunk", DSF_AXIS_CHUNK, "rows of a prefill pass")                                           \
    X("batch", DSF_AXIS_BATCH, "a number of sequences")                                            \
    X("variants", DSF_AXIS_VARIANTS, "a kernel mask")                                              \
    X("dump", 0, "a file that the command may write")

typedef struct {
    char *const *argv; /* [n] with placeholders; lent */
    int n;
    const char *work;     /* folder for the files that placeholders name; lent */
    const char *ids_name; /* a name for {ids} other than that of the work folder; NULL: none */
    const char *model;    /* the checkpoint that {model} is cut from, or NULL */
    double limit;         /* seconds of one run */
    int fails[16];        /* exit codes that mean failure: 128 + signal too, -1 for out of time */
    int n_fails;
    bool (*stop)(void); /* asked while waiting; may be NULL */
    int cut_layers;     /* what work/model holds now; 0: nothing */
    char says[256];     /* last line of output of the last run */
} dsf_command;

/* Words as exit codes that mean failure; "timeout" is -1. EINVAL names the word. */
DSF_MUST dsf_status dsf_command_fails(const char *const *word, int n, int code[16], int *n_codes);
/* The axes of the placeholders that the command has. */
unsigned dsf_command_axes(char *const *argv, int n);
/* Argument i with its placeholders filled. EINVAL: too long. */
DSF_MUST dsf_status dsf_command_fill(const dsf_command *c, int i, const dsf_candidate *at,
                                     dsf_buf *out);
/* Runs it once. ECANCELED when stop() said so; EIO when the program cannot be started at all. */
DSF_MUST dsf_status dsf_command_run(dsf_command *c, const dsf_candidate *at, dsf_try *out);
/* Removes what it left in the work folder. */
void dsf_command_clean(dsf_command *c);

#endif
