#include "verify/dump/probe.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PATIENCE_MS = 120000, LONGEST_NAP_MS = 50 };

/* The child says nothing: a sanitizer's report of a crash that was expected helps nobody. */
static void quiet(void)
{
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (null < 0) return;
    (void)dup2(null, STDOUT_FILENO);
    (void)dup2(null, STDERR_FILENO);
}

static dsf_status judge(const char *name, int status)
{
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return DSF_OK;
    int sig = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    return DSF_FAIL(DSF_ECORRUPT, "%s: damaged: the HDF5 library crashes on it (%s)", name,
                    sig ? strsignal(sig) : "memory error");
}

dsf_status dsf_probe(const char *name, void (*read)(void *ud), void *ud)
{
    pid_t child = fork();
    if (child < 0)
        return DSF_FAIL(DSF_EIO, "%s: no process to read it in: %s", name, strerror(errno));
    if (child == 0) {
        quiet();
        read(ud);
        _exit(0);
    }
    int status = 0;
    for (int64_t waited = 0, nap = 1; waited < PATIENCE_MS; waited += nap) {
        pid_t done = waitpid(child, &status, WNOHANG);
        if (done == child) return judge(name, status);
        if (done < 0 && errno != EINTR)
            return DSF_FAIL(DSF_EIO, "%s: waiting for its reader: %s", name, strerror(errno));
        nap = waited < LONGEST_NAP_MS ? 1 : LONGEST_NAP_MS;
        const struct timespec t = {0, nap * 1000000};
        (void)nanosleep(&t, NULL);
    }
    (void)kill(child, SIGKILL);
    (void)waitpid(child, &status, 0);
    return DSF_FAIL(DSF_ECORRUPT, "%s: damaged: not read through within %d seconds", name,
                    PATIENCE_MS / 1000);
}
