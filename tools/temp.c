/* Temporaries of the tools end with the program, however it ends. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "inputs.h"
#include "verify/dump/temp.h"

static char part[4200], part_log[4210];

static void stop(int sig)
{
    static const char words[] = "\ndsf: stopped by a signal\n";
    (void)sig;
    dsf_temp_close_all(); // NOLINT(bugprone-signal-handler): made for it (temp.h)
    if (*part) (void)unlink(part);
    if (*part) (void)unlink(part_log);
    (void)!write(STDERR_FILENO, words, sizeof words - 1);
    _exit(DSF_EXIT_COULD_NOT);
}

void dsf_inputs_stop_on_signals(void)
{
    static const int number[] = {SIGINT, SIGTERM, SIGHUP};
    for (size_t i = 0; i < sizeof number / sizeof *number; i++) {
        struct sigaction was;
        bool ignored = sigaction(number[i], NULL, &was) == 0 && was.sa_handler == SIG_IGN;
        if (!ignored) (void)signal(number[i], stop); /* nohup stays nohup */
    }
}

void dsf_inputs_drop_on_stop(const char *out)
{
    if (!out || strlen(out) > 4096) return;
    (void)snprintf(part_log, sizeof part_log, "%s.part.log", out);
    (void)snprintf(part, sizeof part, "%s.part", out);
}

dsf_status dsf_inputs_temp(const char **path)
{
    static char folder[DSF_TEMP_BYTES], file[DSF_TEMP_BYTES + 16];
    if (!*folder) {
        dsf_inputs_stop_on_signals();
        DSF_TRY(dsf_temp_open(folder, "dsf"));
        (void)atexit(dsf_temp_close_all);
        (void)snprintf(file, sizeof file, "%s/tensors.h5", folder);
    }
    *path = file;
    return DSF_OK;
}
