#include "verify/dump/temp.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* MOST: folders that a signal removes; DEEPEST: folders within folders that are gone through. */
enum { MOST = 16, DEEPEST = 4, TIMES = 4 };

typedef struct {
    atomic_int owner; /* process; 0: free */
    char path[DSF_TEMP_BYTES];
} slot;

static slot slots[MOST];

static void empty(int folder, int depth);

static void remove_entry(int folder, const char *name, int depth)
{
    if (unlinkat(folder, name, 0) == 0 || depth == DEEPEST) return;
    int below = openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (below < 0) return;
    empty(below, depth + 1);
    (void)close(below);
    (void)unlinkat(folder, name, AT_REMOVEDIR);
}

/* Only calls that a signal handler may make: no opendir. */
static void empty(int folder, int depth)
{
    _Alignas(struct dirent64) char room[4096];
    for (ssize_t n; (n = getdents64(folder, room, sizeof room)) > 0;)
        for (ssize_t at = 0; at < n;) {
            const struct dirent64 *e = (const void *)(room + at);
            at += e->d_reclen;
            if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
                remove_entry(folder, e->d_name, depth);
        }
}

/* Again where something came meanwhile: another thread may still be writing. */
static void remove_folder(const char *path)
{
    for (int i = 0; i < TIMES && rmdir(path) != 0; i++) {
        int folder = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (folder < 0) return;
        empty(folder, 0);
        (void)close(folder);
    }
    (void)rmdir(path);
}

static void enter(const char *path)
{
    for (int i = 0, self = (int)getpid(); i < MOST; i++) {
        int free = 0;
        if (!atomic_compare_exchange_strong(&slots[i].owner, &free, -self)) continue;
        memcpy(slots[i].path, path, DSF_TEMP_BYTES);
        atomic_store(&slots[i].owner, self);
        return;
    }
}

dsf_status dsf_temp_open(char path[DSF_TEMP_BYTES], const char *stem)
{
    const char *under = getenv("TMPDIR");
    if (!under || !*under) under = "/tmp";
    int n = snprintf(path, DSF_TEMP_BYTES, "%s/%s-XXXXXX", under, stem);
    if (n < 0 || n >= DSF_TEMP_BYTES) {
        *path = 0;
        return DSF_FAIL(DSF_EINVAL, "TMPDIR: a path of %zu bytes, at most %zu", strlen(under),
                        DSF_TEMP_BYTES - strlen(stem) - sizeof "/-XXXXXX");
    }
    sigset_t all, before; /* no signal between the folder and its entry */
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_BLOCK, &all, &before);
    bool made = mkdtemp(path) != NULL;
    int error = errno;
    if (made) enter(path);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (made) return DSF_OK;
    *path = 0;
    return DSF_FAIL(DSF_EIO, "%s: no folder for temporary files can be made there: %s", under,
                    strerror(error));
}

void dsf_temp_close(char path[DSF_TEMP_BYTES])
{
    if (!*path) return;
    remove_folder(path);
    for (int i = 0; i < MOST; i++)
        if (atomic_load(&slots[i].owner) == (int)getpid() && strcmp(slots[i].path, path) == 0)
            atomic_store(&slots[i].owner, 0);
    *path = 0;
}

void dsf_temp_close_all(void)
{
    for (int i = 0; i < MOST; i++)
        if (atomic_load(&slots[i].owner) == (int)getpid()) remove_folder(slots[i].path);
}
