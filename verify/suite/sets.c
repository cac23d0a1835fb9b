#include "verify/suite/sets.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/mem.h"
#include "verify/suite/unit.h"

enum { DEEPEST = 4 }; /* folders below one another that are searched for stray data */

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), k = strlen(end);
    return n >= k && strcasecmp(s + n - k, end) == 0;
}

static bool looks_like_data(const char *name)
{
    return ends_with(name, ".h5") || ends_with(name, ".hdf5") || ends_with(name, ".h5.part");
}

/* N of "dump-pN.h5": decimal, as it is printed. -1: another name. */
static int prompt_of(const char *name)
{
    int p = -1;
    char back[32];
    if (strlen(name) >= sizeof back || sscanf(name, "dump-p%9d", &p) != 1 || p < 0) // NOLINT
        return -1;
    (void)snprintf(back, sizeof back, "dump-p%d.h5", p);
    return strcmp(back, name) == 0 ? p : -1;
}

typedef enum { NOTHING, A_FILE, A_FOLDER, OTHER } thing;
static thing what_is(const char *path)
{
    struct stat st;
    if (stat(path, &st) != 0) return NOTHING;
    return S_ISREG(st.st_mode) ? A_FILE : S_ISDIR(st.st_mode) ? A_FOLDER : OTHER;
}

/* Data in it, or in a folder of it. */
static bool holds_data(const char *folder, int depth)
{
    char path[4096];
    bool found = false;
    DIR *d = opendir(folder);
    for (struct dirent *e = d ? readdir(d) : NULL; e && !found; e = readdir(d)) {
        if (e->d_name[0] == '.' || dsf_file_join(path, folder, e->d_name) != DSF_OK) continue;
        found = looks_like_data(e->d_name) ||
                (depth > 1 && what_is(path) == A_FOLDER && holds_data(path, depth - 1));
    }
    if (d) (void)closedir(d);
    return found;
}

/* ---- growing ---- */

static dsf_status add_odd(dsf_golden_sets *s, const char *set, const char *name, const char *why)
{
    if (s->n_odd == s->cap_odd) {
        int cap = s->cap_odd ? 2 * s->cap_odd : 16;
        DSF_TRY(dsf_mem_grow(&s->odd, (size_t)cap, sizeof *s->odd));
        s->cap_odd = cap;
    }
    dsf_golden_odd *o = &s->odd[s->n_odd++];
    (void)snprintf(o->name, sizeof o->name, "%s%s%s", set, *set ? "/" : "", name);
    (void)snprintf(o->why, sizeof o->why, "not taken: %s", why);
    return DSF_OK;
}

static dsf_status add_prompt(dsf_golden_set *set, int p)
{
    if (set->n_prompts == set->cap) {
        int cap = set->cap ? 2 * set->cap : 8;
        DSF_TRY(dsf_mem_grow(&set->prompt, (size_t)cap, sizeof *set->prompt));
        set->cap = cap;
    }
    set->prompt[set->n_prompts++] = p;
    return DSF_OK;
}

static dsf_status add_set(dsf_golden_sets *s, const dsf_golden_set *set)
{
    if (s->n == s->cap) {
        int cap = s->cap ? 2 * s->cap : 16;
        DSF_TRY(dsf_mem_grow(&s->set, (size_t)cap, sizeof *s->set));
        s->cap = cap;
    }
    s->set[s->n++] = *set;
    return DSF_OK;
}

/* ---- one folder ---- */

static const char bad_name[] = "a golden file is called dump-pN.h5, N without zeros in front";

/* An entry of a set. */
static dsf_status take(dsf_golden_sets *s, dsf_golden_set *set, const char *name)
{
    char path[4096];
    const char *base = dsf_suite_base(set->path), *why = NULL;
    DSF_TRY(dsf_file_join(path, set->path, name));
    thing t = what_is(path);
    int p = prompt_of(name);
    if (p >= 0 && t == A_FILE) return add_prompt(set, p);
    if (t == A_FOLDER && (looks_like_data(name) || holds_data(path, DEEPEST)))
        why = "a folder beside the dumps of a set";
    else if (t != A_FOLDER && looks_like_data(name))
        why = t == NOTHING ? "a link to nothing" : t == OTHER ? "not a regular file" : bad_name;
    return why ? add_odd(s, base, name, why) : DSF_OK;
}

static dsf_status each_entry(dsf_golden_sets *s, dsf_golden_set *set, DIR *d)
{
    for (struct dirent *e = readdir(d); e; e = readdir(d))
        if (e->d_name[0] != '.') DSF_TRY(take(s, set, e->d_name));
    return DSF_OK;
}

static int by_number(const void *a, const void *b)
{
    int x = *(const int *)a, y = *(const int *)b;
    return (x > y) - (x < y);
}

/* Adds the folder when it is a set; else s is as before. */
static dsf_status look_in(dsf_golden_sets *s, const char *folder, bool *is_set)
{
    dsf_golden_set set = {.n_prompts = 0};
    int odd = s->n_odd;
    size_t k = strlen(folder);
    while (k > 1 && folder[k - 1] == '/') k--;
    *is_set = false;
    if (snprintf(set.path, sizeof set.path, "%.*s", (int)k, folder) >= (int)sizeof set.path)
        return DSF_FAIL(DSF_EINVAL, "%.60s...: the path is too long", folder);
    DIR *d = opendir(folder);
    if (!d) return DSF_OK;
    dsf_status st = each_entry(s, &set, d);
    (void)closedir(d);
    *is_set = st == DSF_OK && set.n_prompts > 0;
    if (*is_set) {
        qsort(set.prompt, (size_t)set.n_prompts, sizeof *set.prompt, by_number);
        st = add_set(s, &set);
    } else {
        s->n_odd = odd;
    }
    if (st != DSF_OK || !*is_set) dsf_mem_free(set.prompt);
    return st;
}

/* ---- a folder of sets ---- */

static dsf_status take_below(dsf_golden_sets *s, const char *folder, const char *name)
{
    char path[4096];
    bool is_set = false;
    const char *why = NULL;
    DSF_TRY(dsf_file_join(path, folder, name));
    thing t = what_is(path);
    if (t == A_FOLDER) {
        DSF_TRY(look_in(s, path, &is_set));
        DIR *d = is_set ? NULL : opendir(path);
        if (is_set) return DSF_OK;
        if (!d)
            why = strerror(errno);
        else if (looks_like_data(name) || holds_data(path, DEEPEST))
            why = "a folder with data, though without a dump-pN.h5 of its own";
        if (d) (void)closedir(d);
    } else if (t == NOTHING) {
        why = "a link to nothing";
    } else if (looks_like_data(name)) {
        why = t == OTHER             ? "not a regular file"
              : prompt_of(name) >= 0 ? "a dump beside sets"
                                     : bad_name;
    }
    return why ? add_odd(s, "", name, why) : DSF_OK;
}

static int by_path(const void *a, const void *b)
{
    return strcmp(((const dsf_golden_set *)a)->path, ((const dsf_golden_set *)b)->path);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const dsf_golden_odd *)a)->name, ((const dsf_golden_odd *)b)->name);
}

dsf_status dsf_golden_sets_find(const char *folder, dsf_golden_sets *s)
{
    bool is_set;
    *s = (dsf_golden_sets){.n = 0};
    dsf_status st = look_in(s, folder, &is_set);
    DIR *d = st == DSF_OK && !is_set ? opendir(folder) : NULL;
    for (struct dirent *e = d ? readdir(d) : NULL; e && st == DSF_OK; e = readdir(d))
        if (e->d_name[0] != '.') st = take_below(s, folder, e->d_name);
    if (d) (void)closedir(d);
    if (s->n) qsort(s->set, (size_t)s->n, sizeof *s->set, by_path);
    if (s->n_odd) qsort(s->odd, (size_t)s->n_odd, sizeof *s->odd, by_name);
    return st;
}

void dsf_golden_sets_free(dsf_golden_sets *s)
{
    for (int i = 0; i < s->n; i++) dsf_mem_free(s->set[i].prompt);
    dsf_mem_free(s->set);
    dsf_mem_free(s->odd);
    *s = (dsf_golden_sets){.n = 0};
}
