#include "cmd.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

enum { HELP_COLUMN = 26, TAKEN = -1 };

static dsf_log_level log_level = DSF_LOG_WARN;
static const char *const log_names[] = {"error", "warn", "info", "debug"};

static int set_log_level(const char *name)
{
    for (int i = 0; i < 4; i++)
        if (strcmp(name, log_names[i]) == 0) {
            log_level = (dsf_log_level)i;
            return 1;
        }
    return 0;
}

void dsf_cmd_log_level(const char *name)
{
    if (!set_log_level(name))
        (void)fprintf(stderr, "dsf: log level \"%s\" is none of error, warn, info, debug\n", name);
}

static void print_line(void *ud, dsf_log_level level, const char *text)
{
    (void)ud;
    (void)fprintf(stderr, "%s %s\n", log_names[level], text);
}

const dsf_log *dsf_cmd_log(void)
{
    static dsf_log log = {.line = print_line};
    log.level = log_level;
    return &log;
}

/* --- options --- */

static int complain(const opt_spec *spec, const char *fmt, const char *a, const char *b)
{
    (void)fprintf(stderr, "dsf %s: ", spec->command);
    (void)fprintf(stderr, fmt, a, b);
    (void)fprintf(stderr, "\ntry: dsf %s --help\n", spec->command);
    return DSF_EXIT_USAGE;
}

static void print_option(const char *name, const char *arg, const char *help)
{
    int n = printf("  %s%s%s", name, arg ? " " : "", arg ? arg : "");
    int pad = n < HELP_COLUMN ? HELP_COLUMN - n : 0;
    if (pad == 0) (void)printf("\n%*s", HELP_COLUMN, "");
    (void)printf("%*s  %s\n", pad, "", help ? help : "");
}

static int print_help(const opt_spec *spec)
{
    (void)printf("usage: dsf %s %s\n\n%s\n\noptions:\n", spec->command,
                 spec->synopsis ? spec->synopsis : "", spec->about ? spec->about : "");
    for (int i = 0; i < spec->n_opts; i++)
        print_option(spec->opts[i].name, spec->opts[i].arg, spec->opts[i].help);
    print_option("--log", "LEVEL", "error, warn (default), info or debug, to stderr");
    print_option("--help", NULL, "this text");
    if (spec->example) (void)printf("\nexample:\n  %s\n", spec->example);
    return DSF_EXIT_GOOD;
}

/* Items are split at commas, in place: argv is ours to write. */
static int add_items(const opt_spec *spec, const opt *o, char *text)
{
    opt_list *list = o->value;
    int most = (int)(sizeof list->item / sizeof list->item[0]);
    for (char *at = text; at;) {
        char *comma = strchr(at, ',');
        if (comma) *comma = 0;
        if (!*at) return complain(spec, "%s: an empty item%s", o->name, "");
        if (list->n == most) return complain(spec, "%s: more than 32 items%s", o->name, "");
        list->item[list->n++] = at;
        at = comma ? comma + 1 : NULL;
    }
    return TAKEN;
}

static int set_value(const opt_spec *spec, const opt *o, char *text)
{
    char *end = NULL;
    switch (o->kind) {
    case OPT_STRING:
        *(const char **)o->value = text;
        return TAKEN;
    case OPT_LIST:
        return add_items(spec, o, text);
    case OPT_INT: {
        errno = 0;
        long long v = strtoll(text, &end, 10);
        if (errno) return complain(spec, "%s: %s does not fit 64 bits", o->name, text);
        if (end == text || *end) return complain(spec, "%s: \"%s\" is no integer", o->name, text);
        *(int64_t *)o->value = v;
        return TAKEN;
    }
    default: {
        double v = strtod(text, &end);
        if (end == text || *end) return complain(spec, "%s: \"%s\" is no number", o->name, text);
        *(double *)o->value = v;
        return TAKEN;
    }
    }
}

/* Letters to insert, delete or replace between a and b; names here are short. */
static size_t distance(const char *a, const char *b)
{
    size_t row[64], nb = strlen(b);
    if (nb >= 63) return 99;
    for (size_t j = 0; j <= nb; j++) row[j] = j;
    for (size_t i = 1; a[i - 1]; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= nb; j++) {
            size_t change = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            size_t least = row[j] < row[j - 1] ? row[j] + 1 : row[j - 1] + 1;
            row[j] = change < least ? change : least;
        }
    }
    return row[nb];
}

const char *dsf_cmd_nearest(const char *word, const char *const *names, int n)
{
    const char *best = NULL;
    size_t least = strlen(word) / 2 + 2; /* farther is no help */
    for (int i = 0; i < n; i++) {
        size_t d = distance(word, names[i]);
        if (d < least) {
            least = d;
            best = names[i];
        }
    }
    return best;
}

static int complain_unknown(const opt_spec *spec, const char *word)
{
    const char *names[64];
    int n = 0;
    for (int i = 0; i < spec->n_opts && n < 62; i++) names[n++] = spec->opts[i].name;
    names[n++] = "--help";
    names[n++] = "--log";
    const char *near = dsf_cmd_nearest(word, names, n);
    return near ? complain(spec, "no option %s; meant %s?", word, near)
                : complain(spec, "no option %s%s", word, "");
}

static int take_option(const opt_spec *spec, int argc, char **argv, int *at)
{
    static const char *level;
    static const opt log_opt = {"--log", OPT_STRING, &level, "LEVEL", NULL};
    char *word = argv[*at], *value = word[1] == '-' ? strchr(word, '=') : NULL;
    if (value) *value++ = 0;
    const opt *o = strcmp(word, "--log") == 0 ? &log_opt : NULL;
    for (int i = 0; i < spec->n_opts && !o; i++)
        if (strcmp(word, spec->opts[i].name) == 0) o = &spec->opts[i];
    if (!o) return complain_unknown(spec, word);
    if (o->kind == OPT_FLAG) {
        if (value) return complain(spec, "%s takes no value, not \"%s\"", word, value);
        *(bool *)o->value = true;
        return TAKEN;
    }
    if (!value) {
        if (*at + 1 >= argc)
            return complain(spec, "%s needs %s", word, o->arg ? o->arg : "a value");
        value = argv[++*at];
    }
    int code = set_value(spec, o, value);
    if (o == &log_opt && !set_log_level(level))
        return complain(spec, "%s: \"%s\" is none of error, warn, info, debug", word, level);
    return code;
}

int dsf_opt_parse(const opt_spec *spec, int argc, char **argv)
{
    int n = 0;
    bool only_positional = false;
    for (int i = 1; i < argc; i++) {
        char *word = argv[i];
        if (!only_positional && strcmp(word, "--") == 0) {
            only_positional = true;
        } else if (!only_positional && word[0] == '-' && word[1]) {
            if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) return print_help(spec);
            int code = take_option(spec, argc, argv, &i);
            if (code != TAKEN) return code;
        } else if (n < spec->n_positional) {
            spec->positional[n++] = word;
        } else {
            return complain(spec, "one argument too many: \"%s\"%s", word, "");
        }
    }
    if (n < spec->n_required)
        return complain(spec, "an argument is missing: dsf %s %s", spec->command,
                        spec->synopsis ? spec->synopsis : "");
    return -1;
}

/* --- results --- */

int dsf_cmd_fail(const char *command, dsf_status st)
{
    bool all = log_level == DSF_LOG_DEBUG;
    (void)fprintf(stderr, "dsf %s: %s\n", command, all ? dsf_error_text() : dsf_error_message());
    return st == DSF_EINVAL ? DSF_EXIT_USAGE : DSF_EXIT_COULD_NOT;
}

int dsf_cmd_print(const dsf_buf *b)
{
    dsf_status st = dsf_buf_status(b);
    if (st != DSF_OK) return dsf_cmd_fail("output", st);
    size_t done = b->len ? fwrite(b->data, 1, b->len, stdout) : 0;
    if (done == b->len && fflush(stdout) == 0) return DSF_EXIT_GOOD;
    (void)fprintf(stderr, "dsf: standard output took %zu of %zu bytes\n", done, b->len);
    return DSF_EXIT_COULD_NOT;
}

void dsf_progress(const char *name, int64_t done, int64_t total)
{
    static int64_t start, last;
    static int terminal = -1;
    if (terminal < 0) terminal = isatty(STDERR_FILENO);
    if (!terminal) return;
    int64_t now = dsf_clock_ns();
    if (start == 0) start = now;
    bool end = done >= total;
    if (!end && now - last < 100000000) return;
    last = now;
    double seconds = (double)(now - start) * 1e-9, rate = seconds > 0 ? (double)done / seconds : 0;
    (void)fprintf(stderr, "\r%s %lld/%lld %d%% %.1f/s %.0fs left ", name, (long long)done,
                  (long long)total, total > 0 ? (int)(100.0 * (double)done / (double)total) : 100,
                  rate, rate > 0 ? (double)(total - done) / rate : 0.0);
    if (end) {
        (void)fprintf(stderr, "\r\033[K");
        start = 0;
    }
}
