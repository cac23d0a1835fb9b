/* What every subcommand of `dsf` shares: exit codes, options, output. One file a subcommand, at
 * most 300 lines: parse, call a library, print. */
#ifndef DSF_TOOLS_CMD_H
#define DSF_TOOLS_CMD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/log.h"

enum { DSF_EXIT_GOOD = 0, DSF_EXIT_NO = 1, DSF_EXIT_USAGE = 2, DSF_EXIT_COULD_NOT = 3 };

/* X(name, built, summary): the one list of subcommands. built 0: listed, answers exit 3 with words;
 * HDF5: so where the build lacks it. */
#define DSF_COMMAND_MAP(X)                                                                         \
    X(info, 1, "config as understood, tensor contract, bytes by part and per rank")                \
    X(encode, 1, "the exact prompt of a chat, or token ids of a text")                             \
    X(run, 1, "generate tokens")                                                                   \
    X(dump, HDF5, "write the tensors of a run to HDF5")                                            \
    X(diff, HDF5, "compare two dumps in execution order: the first divergence")                    \
    X(graft, HDF5, "run every layer on golden inputs: local error beside carried error")           \
    X(verify, HDF5, "the verification suites: a verdict with its evidence")                        \
    X(synth, 1, "write a synthetic checkpoint in the released format")                             \
    X(plan, 1, "memory by name and formula; the steps")                                            \
    X(bench, 1, "measurements as ratios, with output parity checked in the same run")              \
    X(doctor, 1, "what this machine has and lacks, each with the consequence")                     \
    X(reduce, HDF5, "the smallest failing case")                                                   \
    X(soak, 1, "long prefills with memory sampled at each phase")                                  \
    X(report, 1, "one self-contained page from results")                                           \
    X(serve, 0, "HTTP server for the validated engine")                                            \
    X(fetch, 0, "resumable, verified download of a checkpoint")

#define X(name, built, summary) int dsf_cmd_##name(int argc, char **argv);
DSF_COMMAND_MAP(X)
#undef X

/* Options: a table parsed by one function. Positional arguments are collected in order. */
typedef enum { OPT_FLAG, OPT_STRING, OPT_INT, OPT_NUMBER, OPT_LIST } opt_kind;
typedef struct {
    const char *name; /* "--json"; also "-o" */
    opt_kind kind;
    void *value;     /* bool *, const char **, int64_t *, double *, opt_list * */
    const char *arg; /* name of the argument in the help, NULL for flags */
    const char *help;
} opt;
typedef struct {
    const char *item[32];
    int n;
} opt_list;
typedef struct {
    const char *command, *synopsis, *about, *example;
    const opt *opts;
    int n_opts;
    const char **positional; /* filled in order; missing ones stay NULL */
    int n_positional, n_required;
} opt_spec;

/* Parses argv[1..]; prints help (exit 0) or a usage error to stderr (exit 2). Returns -1 to go on,
 * else the exit code. */
int dsf_opt_parse(const opt_spec *spec, int argc, char **argv);

/* The name of n that is nearest in spelling, or NULL when none is near. */
const char *dsf_cmd_nearest(const char *word, const char *const *names, int n);

/* Exit code for a status, after printing the error record to stderr. */
int dsf_cmd_fail(const char *command, dsf_status st);
/* Writes b to stdout; exit code 0 or 3. */
int dsf_cmd_print(const dsf_buf *b);
/* The log given to the library: to stderr, level by --log or DSF_LOG. */
const dsf_log *dsf_cmd_log(void);
void dsf_cmd_log_level(const char *name);

/* Progress on stderr, only on a terminal: "name 12/40 30% 3.1/s 9s left". Call with done = total to
 * end the line. */
void dsf_progress(const char *name, int64_t done, int64_t total);

#endif
