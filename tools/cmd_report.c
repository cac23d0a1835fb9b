/* dsf report: one page from results. The page is made by Python (Jinja2; h5py where dumps are
 * read): this finds the script beside the program, as built or as installed, and becomes it. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "bench/baseline.h"
#include "inputs.h"

enum { MOST_RESULTS = 256, MOST_WORDS = MOST_RESULTS + 112 };

typedef struct {
    const char *out, *title, *reference, *ours;
    opt_list tap, compare;
} options;

/* --- --compare: what changed is said by the judge of `dsf bench --baseline`; the page shows it ---
 */

typedef struct {
    dsf_baseline *of[32]; /* one for each file of --compare */
    int n;
} baselines;

static dsf_status open_old(const opt_list *old, baselines *b)
{
    for (; b->n < old->n; b->n++) {
        dsf_file f;
        DSF_TRY(dsf_file_open(&f, old->item[b->n]));
        dsf_status st =
            dsf_baseline_open(&b->of[b->n], old->item[b->n], (const char *)f.data, f.size);
        dsf_file_close(&f);
        if (st != DSF_OK) return st;
    }
    return DSF_OK;
}

/* One measurement against the first file that has the same: a JSON line, or nothing. */
static void judge_line(const baselines *b, int file, int number, const char *line, dsf_buf *json)
{
    dsf_judgement j = {.verdict = DSF_CMP_ABSENT};
    int old = 0;
    while (old < b->n && dsf_baseline_judge(b->of[old], line, &j) == DSF_CMP_ABSENT && !j.line)
        old++;
    if (old == b->n) return;
    json->comma = false;
    dsf_json_begin(json, NULL, '{');
    dsf_json_add_int(json, "file", file);
    dsf_json_add_int(json, "line", number);
    dsf_json_add_int(json, "old_file", old);
    dsf_json_add_int(json, "old_line", j.line);
    dsf_json_add_cstr(json, "verdict",
                      j.verdict == DSF_CMP_ABSENT ? "not told" : dsf_comparison_words(j.verdict));
    dsf_json_add_num(json, "change", j.change);
    dsf_json_add_num(json, "noise", j.noise);
    dsf_json_add_num(json, "control", j.control);
    dsf_json_end(json, '}');
    dsf_buf_char(json, '\n');
}

static dsf_status judge_file(const baselines *b, int file, const char *path, dsf_buf *json)
{
    dsf_file f;
    DSF_TRY(dsf_file_open(&f, path));
    dsf_buf line = {.max = 0};
    int number = 1;
    for (size_t at = 0; at < f.size; number++) {
        const char *text = (const char *)f.data + at, *end = memchr(text, '\n', f.size - at);
        size_t n = end ? (size_t)(end - text) : f.size - at;
        line.len = 0;
        dsf_buf_add(&line, text, n);
        if (n && dsf_buf_status(&line) == DSF_OK) judge_line(b, file, number, line.data, json);
        at += n + 1;
    }
    dsf_status st = dsf_buf_status(&line);
    dsf_buf_free(&line);
    dsf_file_close(&f);
    return st;
}

/* The judgements become the standard input of the page maker. */
static dsf_status hand_on(const dsf_buf *json)
{
    FILE *f = tmpfile();
    bool good = f && fwrite(json->data, 1, json->len, f) == json->len && fflush(f) == 0 &&
                lseek(fileno(f), 0, SEEK_SET) == 0 && dup2(fileno(f), STDIN_FILENO) >= 0;
    return good ? DSF_OK
                : DSF_FAIL(DSF_EIO, "a temporary file for the comparison: %s", strerror(errno));
}

static dsf_status judge(const options *o, const char *const *result)
{
    baselines b = {.n = 0};
    dsf_buf json = {.max = 0};
    dsf_buf_str(&json, "\n"); /* something to write where nothing has an equal */
    dsf_status st = open_old(&o->compare, &b);
    for (int i = 0; st == DSF_OK && i < MOST_RESULTS && result[i]; i++)
        st = judge_file(&b, i, result[i], &json);
    if (st == DSF_OK) st = dsf_buf_status(&json);
    if (st == DSF_OK) st = hand_on(&json);
    for (int i = 0; i < b.n; i++) dsf_baseline_close(b.of[i]);
    dsf_buf_free(&json);
    return st;
}

/* --- the page maker --- */

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
    for (int i = 0; i < o->compare.n; i++) add(&w, "--compare", o->compare.item[i]);
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
        {"--compare", OPT_LIST, &o.compare, "OLD,...",
         "lines of an earlier bench: what became faster or slower since, by bench --baseline's "
         "rule"},
    };
    const char *result[MOST_RESULTS + 1] = {NULL};
    const opt_spec spec = {
        .command = "report",
        .synopsis = "RESULT... -o report.html",
        .about =
            "Makes one page from results: JSON of verify, diff, graft (--json, --rows for the "
            "heat map),\nbench and soak, and published figures (bench/published.json), each known "
            "by its content.\nThe page holds all it needs and asks the network nothing. Its "
            "verdict is counted from the\nresults; the exit code says only whether the page was "
            "written. Needs Python 3 with Jinja2,\nand h5py for dumps; DSF_PYTHON names another "
            "Python.",
        .example = "dsf report verify.json diff.json bench.json -o report.html\n"
                   "  dsf report --compare old.json new.json -o changes.html\n"
                   "  dsf report h200-prefill.json h200-decode.json bench/published.json",
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
    if (o.compare.n && !result[0]) {
        (void)fprintf(stderr, "dsf report: --compare OLD wants the new RESULT beside it\n"
                              "try: dsf report --help\n");
        return DSF_EXIT_USAGE;
    }
    const char *input[MOST_RESULTS + 34] = {o.reference, o.ours};
    memcpy(input + 2, result, MOST_RESULTS * sizeof *result);
    memcpy(input + 2 + MOST_RESULTS, o.compare.item, sizeof o.compare.item);
    dsf_status st = dsf_inputs_check_out(o.out, input, MOST_RESULTS + 34);
    if (st == DSF_OK && o.compare.n) st = judge(&o, result);
    return st == DSF_OK ? become(&o, result) : dsf_cmd_fail("report", st);
}
