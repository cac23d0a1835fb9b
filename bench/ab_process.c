#include "ab_process.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static dsf_status spawn(dsf_ab_process *p, const char *program, char *const *argv, const int in[2],
                        const int out[2])
{
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], 0);
    posix_spawn_file_actions_adddup2(&actions, out[1], 1);
    int code = posix_spawn(&p->pid, program, &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (code == 0) return DSF_OK;
    p->pid = 0;
    return DSF_FAIL(DSF_EIO, "%s: %s", program, strerror(code));
}

/* Pipes that no later child inherits: its copy of an end would keep this program from seeing the
 * other's. */
dsf_status dsf_ab_start(dsf_ab_process *p, const char *name, const char *program, char *const *argv)
{
    int in[2] = {-1, -1}, out[2] = {-1, -1};
    *p = (dsf_ab_process){.name = name};
    dsf_status st = DSF_OK;
    if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0)
        st = DSF_FAIL(DSF_EIO, "a pipe to %s: %s", name, strerror(errno));
    if (st == DSF_OK) st = spawn(p, program, argv, in, out);
    if (in[0] >= 0) (void)close(in[0]);
    if (out[1] >= 0) (void)close(out[1]);
    if (in[1] >= 0) p->to = fdopen(in[1], "w");
    if (out[0] >= 0) p->from = fdopen(out[0], "r");
    return st;
}

dsf_status dsf_ab_read(dsf_ab_process *p)
{
    dsf_json_free(p->line);
    p->line = NULL;
    ssize_t n = getline(&p->text, &p->room, p->from);
    if (n <= 0) return DSF_OK;
    return dsf_json_parse(&p->line, p->name, p->text, (size_t)n - (p->text[n - 1] == '\n'));
}

dsf_status dsf_ab_tell(dsf_ab_process *p, char command)
{
    if (fputc(command, p->to) != EOF && fflush(p->to) == 0) return DSF_OK;
    return DSF_FAIL(DSF_EIO, "%s has ended: %s", p->name, strerror(errno));
}

int dsf_ab_end(dsf_ab_process *p)
{
    int status = 0;
    if (p->to) (void)fclose(p->to);
    if (p->from) (void)fclose(p->from);
    dsf_json_free(p->line);
    free(p->text); // NOLINT(bugprone-*) getline's
    if (p->pid > 0) (void)waitpid(p->pid, &status, 0);
    *p = (dsf_ab_process){.name = p->name};
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}
