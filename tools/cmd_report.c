/* dsf report: one page from results. The page is made by Python (Jinja2; h5py where dumps are
 * read): this finds the script beside the program, as built or as installed, and becomes it. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "inputs.h"

enum { MOST_RESULTS = 256, MOST_WORDS = MOST_RESULTS + 48 };

typedef struct {
    const char *out, *title, *reference, *ours;
    opt_list tap;
} options;

/* The folder of this program: path[4096]. */
static dsf_status find_here(char *path)
{
    ssize_t n = readlink("/proc/self/exe", path, 4095);
    if (n < 0) return DSF_FAIL(DSF_EIO, "/proc/self/exe: %s", strerror(errno));
    path[n] = 0;
    char *slash = strrchr(path, '/');
    if (slash) *slash = 0;
    return DSF_OK;
}

static dsf_status find_script(char *script)
{
    static const char *const places[] = {"report/report.py", "../share/dsf/report/report.py"};
    char here[4096];
    DSF_TRY(find_here(here));
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        DSF_TRY(dsf_file_join(script, here, places[i]));
        if (dsf_file_exists(script)) return DSF_OK;
    }
    return DSF_FAIL(DSF_EIO, "the page maker is neither %s/%s nor %s/%s: install dsf whole", here,
                    places[0], here, places[1]);
}

/* DSF_PYTHON, else the distribution's (its packages are those that ci/setup installs), else the one
 * in PATH. */
static const char *find_python(void)
{
    const char *named = getenv("DSF_PYTHON");
    if (named && *named) return named;
    return access("/usr/bin/python3", X_OK) == 0 ? "/usr/bin/python3" : "python3";
}

typedef struct {
    char *word[MOST_WORDS + 1];
    int n;
} words;

/* Words are given on as they are: execv does not write them. */
static void add(words *w, const char *name, const char *value)
{
    if (name && value) w->word[w->n++] = (char *)(uintptr_t)name;
    if (value) w->word[w->n++] = (char *)(uintptr_t)value;
}

static int become(const options *o, const char *const *result)
{
    char script[4096];
    words w = {.n = 0};
    const char *python = find_python();
    dsf_status st = find_script(script);
    if (st != DSF_OK) return dsf_cmd_fail("report", st);
    add(&w, NULL, python);
    add(&w, NULL, "-B"); /* leaves no compiled files where it is installed */
    add(&w, NULL, script);
    add(&w, "-o", o->out);
    add(&w, "--title", o->title);
    add(&w, "--reference", o->reference);
    add(&w, "--ours", o->ours);
    for (int i = 0; i < o->tap.n; i++) add(&w, "--tap", o->tap.item[i]);
    add(&w, NULL, "--");
    for (int i = 0; i < MOST_RESULTS && result[i]; i++) add(&w, NULL, result[i]);
    (void)execvp(python, w.word);
    (void)fprintf(stderr,
                  "dsf report: %s: %s: the page is made by Python 3 with Jinja2 (apt install "
                  "python3-jinja2); DSF_PYTHON names another\n",
                  python, strerror(errno));
    return DSF_EXIT_COULD_NOT;
}

int dsf_cmd_report(int argc, char **argv)
{
    options o = {.out = NULL};
    const opt opts[] = {
        {"-o", OPT_STRING, &o.out, "FILE", "the page, one HTML file (report.html)"},
        {"--title", OPT_STRING, &o.title, "TEXT", "what the page is called (the model's name)"},
        {"--reference", OPT_STRING, &o.reference, "A.h5",
         "with --ours: histograms and quantiles of taps of two dumps"},
        {"--ours", OPT_STRING, &o.ours, "B.h5", "the other dump"},
        {"--tap", OPT_LIST, &o.tap, "GLOB,...",
         "these taps of the dumps, 64 at most (the first and the worst over their limits, the "
         "streams)"},
    };
    const char *result[MOST_RESULTS + 1] = {NULL};
    const opt_spec spec = {
        .command = "report",
        .synopsis = "RESULT... -o report.html",
        .about =
            "Makes one page from results: JSON of verify, diff, graft (--json, --rows for the "
            "heat map) and\nbench, each known by its content. The page holds all it needs and "
            "asks the network nothing.\nIts verdict is counted from the results; the exit code "
            "says only whether the page was written.\nNeeds Python 3 with Jinja2, and h5py for "
            "dumps; DSF_PYTHON names another Python.",
        .example = "dsf report verify.json diff.json bench.json -o report.html",
        .opts = opts,
        .n_opts = (int)(sizeof opts / sizeof *opts),
        .positional = result,
        .n_positional = MOST_RESULTS,
        .n_required = 0};
    int code = dsf_opt_parse(&spec, argc, argv);
    if (code >= 0) return code;
    if (!o.out) o.out = "report.html";
    if (!result[0] && !o.reference && !o.ours) {
        (void)fprintf(stderr, "dsf report: no RESULT given\ntry: dsf report --help\n");
        return DSF_EXIT_USAGE;
    }
    if (!o.reference != !o.ours) {
        (void)fprintf(stderr, "dsf report: --reference A.h5 and --ours B.h5 go together\n"
                              "try: dsf report --help\n");
        return DSF_EXIT_USAGE;
    }
    const char *input[MOST_RESULTS + 2] = {o.reference, o.ours};
    memcpy(input + 2, result, MOST_RESULTS * sizeof *result);
    dsf_status st = dsf_inputs_check_out(o.out, input, MOST_RESULTS + 2);
    return st == DSF_OK ? become(&o, result) : dsf_cmd_fail("report", st);
}
