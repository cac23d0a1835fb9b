/* The command: dispatch only. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd.h"
#include "config.h"

#if HAVE_HDF5
enum { WITH_HDF5 = 1 };
#define RUN_HDF5(name) dsf_cmd_##name
#else
enum { WITH_HDF5 = 0 };
#define RUN_HDF5(name) NULL
#endif
#if HAVE_AVX512
enum { WITH_AVX512 = 1 };
#else
enum { WITH_AVX512 = 0 };
#endif

enum { WITH_CUDA = HAVE_CUDA };

typedef struct {
    const char *name, *summary;
    const char *built;                 /* "1", "0", or the feature it needs */
    int (*run)(int argc, char **argv); /* NULL: not in this version, or not in this build */
} command;

#define RUN_1(name) dsf_cmd_##name
#define RUN_0(name) NULL
static const command commands[] = {
#define X(name, built, summary) {#name, summary, #built, RUN_##built(name)},
    DSF_COMMAND_MAP(X)
#undef X
};
enum { N_COMMANDS = sizeof commands / sizeof commands[0] };

static const char *why_not(const command *c)
{
    return strcmp(c->built, "0") == 0 ? "not in this version" : "not in this build: it lacks HDF5";
}

static int print_usage(FILE *to)
{
    (void)fprintf(to, "usage: dsf COMMAND [ARGUMENTS]\n\n"
                      "An engine for DeepSeek-V4.1-Flash, and the instruments that prove it right."
                      "\n\ncommands:\n");
    for (int i = 0; i < N_COMMANDS; i++)
        if (commands[i].run)
            (void)fprintf(to, "  %-8s  %s\n", commands[i].name, commands[i].summary);
        else
            (void)fprintf(to, "  %-8s  %s (%s)\n", commands[i].name, commands[i].summary,
                          why_not(&commands[i]));
    (void)fprintf(to, "\ndsf COMMAND --help tells more; dsf --version tells what was built.\n"
                      "exit codes: 0 good, 1 the answer is no, 2 usage, 3 could not\n\n"
                      "example:\n  dsf encode MODEL --text \"Hello\" --ids\n");
    return to == stdout ? DSF_EXIT_GOOD : DSF_EXIT_USAGE;
}

static int print_version(void)
{
    (void)printf("dsf %s\nbuilt: ref cpu%s%s%s\nnot built:%s%s%s nccl verbs http\n", DSF_VERSION,
                 WITH_AVX512 ? " avx512" : "", WITH_HDF5 ? " hdf5" : "", WITH_CUDA ? " cuda" : "",
                 WITH_AVX512 ? "" : " avx512", WITH_HDF5 ? "" : " hdf5", WITH_CUDA ? "" : " cuda");
    return DSF_EXIT_GOOD;
}

static int complain_unknown(const char *word)
{
    const char *names[N_COMMANDS];
    for (int i = 0; i < N_COMMANDS; i++) names[i] = commands[i].name;
    const char *near = dsf_cmd_nearest(word, names, N_COMMANDS);
    (void)fprintf(stderr, "dsf: no command \"%s\"", word);
    if (near) (void)fprintf(stderr, "; meant %s?", near);
    (void)fprintf(stderr, "\ntry: dsf --help\n");
    return DSF_EXIT_USAGE;
}

int main(int argc, char **argv)
{
    const char *level = getenv("DSF_LOG");
    if (level) dsf_cmd_log_level(level);
    if (argc < 2) return print_usage(stderr);
    const char *word = argv[1];
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) return print_usage(stdout);
    if (strcmp(word, "--version") == 0) return print_version();
    for (int i = 0; i < N_COMMANDS; i++) {
        if (strcmp(word, commands[i].name) != 0) continue;
        if (commands[i].run) return commands[i].run(argc - 1, argv + 1);
        (void)fprintf(stderr, "dsf %s: %s: %s\n", word, commands[i].summary, why_not(&commands[i]));
        return DSF_EXIT_COULD_NOT;
    }
    return complain_unknown(word);
}
