#include "base/proc.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The whole of a small file, ended with NUL; false when it cannot be read. */
static bool read_text(const char *path, char *text, size_t room)
{
    size_t n = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    for (ssize_t k = 1; k > 0 && n + 1 < room; n += k > 0 ? (size_t)k : 0)
        k = read(fd, text + n, room - 1 - n);
    text[n] = 0;
    (void)close(fd);
    return n > 0;
}

/* The number after `key` at the start of a line, times `unit`; -1 when there is none. */
static int64_t number_after(const char *text, const char *key, int64_t unit)
{
    size_t n = strlen(key);
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, n) != 0) continue;
        char *end = NULL;
        long long v = strtoll(line + n, &end, 10);
        return end == line + n ? -1 : v * unit;
    }
    return -1;
}

dsf_proc_memory dsf_proc_own(void)
{
    char text[4096];
    dsf_proc_memory m = {-1, -1, -1, -1};
    if (!read_text("/proc/self/status", text, sizeof text)) return m;
    int64_t shared = number_after(text, "RssShmem:", 1024);
    m.anon = number_after(text, "RssAnon:", 1024);
    m.file = number_after(text, "RssFile:", 1024);
    if (m.file >= 0 && shared > 0) m.file += shared;
    m.peak = number_after(text, "VmHWM:", 1024);
    m.swapped = number_after(text, "VmSwap:", 1024);
    return m;
}

void dsf_proc_forget_peak(void)
{
    int fd = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
    if (fd < 0) return;
    (void)!write(fd, "5", 1);
    (void)close(fd);
}

int64_t dsf_proc_files(void)
{
    int64_t n = -1; /* the folder's own descriptor is no other's */
    DIR *d = opendir("/proc/self/fd");
    if (!d) return -1;
    for (const struct dirent *e = readdir(d); e; e = readdir(d)) n += e->d_name[0] != '.';
    (void)closedir(d);
    return n;
}

/* The folder of this process's memory group. Version 2 has one hierarchy, "0::/path"; version 1 one
 * of its own for memory, "N:memory:/path". */
static bool group_folder(char *out, size_t room, bool *second)
{
    char text[4096];
    if (!read_text("/proc/self/cgroup", text, sizeof text)) return false;
    const char *first = strstr(text, ":memory:"), *path = first ? first + 8 : strstr(text, "0::");
    if (!path) return false;
    *second = !first;
    path += *second ? 3 : 0;
    int n = snprintf(out, room, "/sys/fs/cgroup%s%.*s", *second ? "" : "/memory",
                     (int)strcspn(path, "\n"), path);
    if (n < 0 || n >= (int)room) return false;
    /* Inside a container the group is the root of what can be seen. */
    if (access(out, F_OK) != 0)
        (void)snprintf(out, room, "/sys/fs/cgroup%s", *second ? "" : "/memory");
    return true;
}

static int64_t group_number(const char *folder, const char *name)
{
    char path[4400], text[64];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    return read_text(path, text, sizeof text) ? number_after(text, "", 1) : -1;
}

/* Tightens m by the group's limit. What the group holds of the page cache can be given back. */
static void apply_group(dsf_proc_machine_memory *m)
{
    char folder[4200], path[4400], text[8192];
    bool second = false;
    if (!group_folder(folder, sizeof folder, &second)) return;
    int64_t limit = group_number(folder, second ? "memory.max" : "memory.limit_in_bytes");
    int64_t used = group_number(folder, second ? "memory.current" : "memory.usage_in_bytes");
    if (limit < 0 || used < 0 || (m->total >= 0 && limit >= m->total)) return;
    (void)snprintf(path, sizeof path, "%s/memory.stat", folder);
    int64_t idle = 0;
    if (read_text(path, text, sizeof text))
        idle = number_after(text, second ? "inactive_file " : "total_inactive_file ", 1);
    int64_t left = limit - used + (idle > 0 ? idle : 0);
    m->total = limit;
    if (m->available < 0 || left < m->available) m->available = left;
}

dsf_proc_machine_memory dsf_proc_machine(void)
{
    char text[8192];
    dsf_proc_machine_memory m = {-1, -1, -1};
    if (read_text("/proc/meminfo", text, sizeof text)) {
        m.total = number_after(text, "MemTotal:", 1024);
        m.available = number_after(text, "MemAvailable:", 1024);
        m.cached = number_after(text, "Cached:", 1024);
    }
    apply_group(&m);
    return m;
}
