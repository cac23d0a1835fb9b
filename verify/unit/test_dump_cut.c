/* A dump whose process or machine stops at any of its system calls, or whose calls fail from there
 * on: what was finished is there, bit for bit. The calls are counted where the program makes them:
 * the functions below stand in for the C library's. */
#include "dump_fixture.h"

#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "verify/dump/recover.h"

TestSuite(dump_cut, .fini = temp_clean, .timeout = 240);

enum { TAPS = 5, N = 64, WIDTH = 512, DECODE = 3, SYNC_BYTES = 200 << 10 };

/* What happens at the call of number `at`, counted from 1. POWER: the process ends, and of all that
 * it wrote since the last sync of each file only a part, chosen by `seed`, is on the disk. */
typedef enum { NOTHING, KILL, TEAR, POWER, FAIL_ONCE, DISK_FULL } cut_mode;

static struct {
    cut_mode mode;
    int64_t at, calls;
    uint32_t seed;
} cut;

/* --- a disk that may lose what was not synced --- */

typedef struct {
    int fd;
    off_t at;
    size_t n;
    char *old; /* [n], zeros beyond the end that there was */
    off_t length;
} undo;
static undo undone[4096];
static int n_undone;

static void remember(int fd, off_t at, size_t n)
{
    struct stat s;
    if (cut.mode != POWER || n_undone == 4096 || fstat(fd, &s) != 0) return;
    undo *u = &undone[n_undone++];
    *u = (undo){fd, at, n, calloc(n + 1, 1), s.st_size};
    (void)!syscall(SYS_pread64, fd, u->old, n, at);
}

static void forget(int fd)
{
    int kept = 0;
    for (int i = 0; i < n_undone; i++)
        if (undone[i].fd != fd) undone[kept++] = undone[i];
    n_undone = kept;
}

static void lose_power(void)
{
    while (n_undone-- > 0) {
        const undo *u = &undone[n_undone];
        cut.seed = cut.seed * 1664525u + 1013904223u;
        if (cut.seed >> 31) (void)!syscall(SYS_pwrite64, u->fd, u->old, u->n, u->at);
        if (cut.seed >> 30 & 1 && u->n == 0) (void)!syscall(SYS_ftruncate, u->fd, u->length);
    }
}

/* --- the calls; the system's headers give their parameters reserved names --- */
/* NOLINTBEGIN(readability-inconsistent-declaration-parameter-name) */

static bool fails(void)
{
    if (cut.mode == NOTHING || ++cut.calls < cut.at) return false;
    if (cut.mode == POWER) lose_power();
    if (cut.mode == KILL || cut.mode == POWER) (void)raise(SIGKILL);
    if (cut.mode == FAIL_ONCE && cut.calls == cut.at) {
        errno = EIO;
        return true;
    }
    errno = ENOSPC;
    return cut.mode == DISK_FULL;
}

ssize_t pwrite(int fd, const void *data, size_t n, off_t at)
{
    if (fails()) return -1;
    if (cut.mode == TEAR && cut.calls == cut.at) {
        (void)!syscall(SYS_pwrite64, fd, data, n / 2, at);
        (void)raise(SIGKILL);
    }
    remember(fd, at, n);
    return syscall(SYS_pwrite64, fd, data, n, at);
}

int ftruncate(int fd, off_t n)
{
    struct stat s;
    if (fails()) return -1;
    if (cut.mode == POWER && fstat(fd, &s) == 0) {
        if (n < s.st_size) remember(fd, n, (size_t)(s.st_size - n));
        remember(fd, n, 0);
    }
    return (int)syscall(SYS_ftruncate, fd, n);
}

int fdatasync(int fd)
{
    if (fails()) return -1;
    forget(fd); /* the real disk is not what is tested */
    return 0;
}

int unlink(const char *path) { return fails() ? -1 : (int)syscall(SYS_unlink, path); }

int rename(const char *from, const char *to)
{
    return fails() ? -1 : (int)syscall(SYS_rename, from, to);
}

/* NOLINTEND(readability-inconsistent-declaration-parameter-name) */

/* --- a small dump --- */

static const char config[] = "{\"num_hidden_layers\": 5, \"hidden_size\": 128}";

static float value(int layer, int64_t row, int64_t i)
{
    uint32_t x = (uint32_t)(row * WIDTH + i) * 2654435761u + (uint32_t)layer * 40503u;
    return (float)((x ^ x >> 15) % 4096) * 0.25f;
}

static dsf_status put_rows(dsf_dump *d, int layer, int32_t from, int32_t n)
{
    static float x[N * WIDTH];
    int32_t label[N];
    for (int32_t r = 0; r < n; r++) label[r] = from + r;
    for (int32_t r = 0; r < n; r++)
        for (int i = 0; i < WIDTH; i++) x[r * WIDTH + i] = value(layer, from + r, i);
    const dsf_tensor t = {.data = x, .dtype = DSF_F32, .rank = 2, .dim = {n, WIDTH}};
    const dsf_tap_value v = {.tap = {DSF_TAP_IN, layer}, .value = &t, .n = n, .label = label};
    dsf_tap_sink sink = dsf_dump_sink(d);
    return sink.on_value(sink.ud, &v);
}

/* Taps one after another, the last layer's in two parts, then decoded rows. Tells in *finished how
 * many taps have all rows of the prompt; TAPS + 1: the file is finished. */
static dsf_status write_dump(const char *path, bool compress, volatile int *finished)
{
    static int32_t ids[N];
    const dsf_dump_meta m = {.producer = "test",
                             .model = "mini",
                             .config_json = config,
                             .mode = "exact",
                             .token_ids = ids,
                             .n_tokens = N,
                             .n_decode = DECODE,
                             .sync_bytes = SYNC_BYTES,
                             .compress = compress};
    dsf_dump *d = NULL;
    DSF_TRY(dsf_dump_create(&d, path, &m));
    dsf_status st = DSF_OK;
    for (int layer = 0; layer < TAPS && st == DSF_OK; layer++) {
        if (layer == TAPS - 1) st = put_rows(d, layer, 0, 20);
        /* a compressed chunk in parts moves: its first place is used again */
        if (layer == TAPS - 1 && st == DSF_OK) st = dsf_dump_flush(d);
        int32_t from = layer == TAPS - 1 ? 20 : 0;
        if (st == DSF_OK) st = put_rows(d, layer, from, N - from);
        if (st == DSF_OK) *finished = layer + 1;
    }
    for (int32_t row = N; row < N + DECODE && st == DSF_OK; row++) {
        st = dsf_dump_add_tokens(d, &row, 1);
        for (int layer = 0; layer < TAPS && st == DSF_OK; layer++) st = put_rows(d, layer, row, 1);
        if (st == DSF_OK) st = dsf_dump_flush(d);
    }
    if (st != DSF_OK) {
        dsf_status end = dsf_dump_finish(d);
        return st == DSF_OK ? end : st;
    }
    DSF_TRY(dsf_dump_finish(d));
    *finished = TAPS + 1;
    return DSF_OK;
}

/* Every tap of the first `finished` has its rows; what else is there is right. */
static void expect_taps(const char *path, int finished)
{
    dsf_dump_file *f;
    GOOD(dsf_dump_open(&f, path));
    cr_expect_eq(dsf_dump_info_of(f)->n_unreadable, 0);
    for (int layer = 0; layer < TAPS; layer++) {
        char tap[64];
        dsf_dump_array a;
        int64_t wrong = 0;
        dsf_tap_path(tap, (dsf_tap){DSF_TAP_IN, layer}, TAPS);
        if (!dsf_dump_find(f, tap)) {
            cr_assert_leq(finished, layer, "%s is not there", tap);
            continue;
        }
        GOOD(dsf_dump_read(f, tap, &a));
        cr_assert_geq(a.n, finished > TAPS ? N + DECODE : layer < finished ? N : 0, "%s", tap);
        for (int64_t r = 0; r < a.n; r++) {
            wrong += a.label[r] != r;
            for (int i = 0; i < WIDTH; i++) wrong += a.f[r * WIDTH + i] != value(layer, r, i);
        }
        cr_assert_eq(wrong, 0, "%s", tap);
        dsf_dump_array_free(&a);
    }
    dsf_dump_close(f);
}

static void clear(const char *path)
{
    char name[600];
    static const char *const end[] = {"", ".part", ".part.log"};
    for (int i = 0; i < 3; i++) {
        (void)snprintf(name, sizeof name, "%s%s", path, end[i]);
        (void)unlink(name);
    }
}

/* Runs f(path) in a child that is cut; returns the child's exit code, or -1 for a kill. *calls: how
 * many calls it made. */
typedef struct {
    int finished;
    int64_t calls;
} told;

static int run_cut(int (*f)(const char *path, told *t), const char *path, cut_mode mode, int64_t at,
                   told *t)
{
    told *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    cr_assert_neq(shared, MAP_FAILED);
    pid_t child = fork();
    if (child == 0) {
        cut.mode = mode;
        cut.at = at;
        cut.seed = (uint32_t)at * 2654435761u + 99;
        int code = f(path, shared);
        shared->calls = cut.calls;
        _exit(code);
    }
    int status = 0;
    cr_assert_eq(waitpid(child, &status, 0), child);
    *t = *shared;
    (void)munmap(shared, sizeof *shared);
    cr_assert(WIFEXITED(status) || WTERMSIG(status) == SIGKILL, "call %lld: signal %d",
              (long long)at, WTERMSIG(status));
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int dump_plain(const char *path, told *t)
{
    return write_dump(path, false, &t->finished) == DSF_OK ? 0 : 1;
}
static int dump_packed(const char *path, told *t)
{
    return write_dump(path, true, &t->finished) == DSF_OK ? 0 : 1;
}

static int64_t count_calls(int (*f)(const char *, told *), const char *path)
{
    told t;
    cr_assert_eq(run_cut(f, path, KILL, INT64_MAX, &t), 0);
    cr_assert_gt(t.calls, 40, "%lld calls", (long long)t.calls);
    return t.calls;
}

/* `lost`: the machine stopped, and nothing need be left but what is consistent. */
static void expect_left(const char *path, int finished, bool lost)
{
    char part[600];
    dsf_dump_recovery r;
    (void)snprintf(part, sizeof part, "%s.part", path);
    if (access(path, F_OK) == 0) {
        expect_taps(path, TAPS + 1);
        cr_expect_neq(access(part, F_OK), 0);
        return;
    }
    if (access(part, F_OK) != 0) {
        cr_expect_eq(finished, 0, "%d taps gone", finished);
        return;
    }
    dsf_status st = dsf_dump_recover(part, path, &r);
    if (st != DSF_OK) {
        cr_assert(finished == 0 || lost, "%d taps gone: %s", finished, dsf_error_text());
        return;
    }
    expect_taps(path, lost ? 0 : finished);
}

static void sweep(int (*f)(const char *, told *), cut_mode mode)
{
    const char *path = temp_path("cut.h5");
    int64_t calls = count_calls(f, path);
    for (int64_t at = 1; at <= calls; at++) {
        told t;
        clear(path);
        int code = run_cut(f, path, mode, at, &t);
        if (mode == KILL || mode == POWER) cr_assert_eq(code, -1, "call %lld", (long long)at);
        expect_left(path, t.finished, mode == POWER);
        /* a failure that the disk tells is told on, but for removing a log that is empty */
        if (mode == DISK_FULL && at < calls - 1) cr_expect_eq(code, 1, "call %lld", (long long)at);
    }
}

Test(dump_cut, a_kill_before_any_call_keeps_what_was_finished) { sweep(dump_plain, KILL); }
Test(dump_cut, a_kill_within_any_write_keeps_what_was_finished) { sweep(dump_plain, TEAR); }
Test(dump_cut, a_power_cut_before_any_call_leaves_a_consistent_file) { sweep(dump_plain, POWER); }
Test(dump_cut, a_failed_call_keeps_what_was_finished) { sweep(dump_plain, FAIL_ONCE); }
Test(dump_cut, a_full_disk_keeps_what_was_finished) { sweep(dump_plain, DISK_FULL); }
Test(dump_cut, a_kill_of_a_compressing_run_keeps_what_was_finished) { sweep(dump_packed, TEAR); }

/* The power fails in one of many ways; what is left must be one of the states that were committed.
 */
Test(dump_cut, what_a_power_cut_leaves_is_a_state_that_was)
{
    const char *path = temp_path("power.h5");
    int64_t calls = count_calls(dump_plain, path);
    int kept = 0;
    for (int64_t i = 0; i < 60; i++) {
        told t;
        char part[600];
        clear(path);
        (void)run_cut(dump_plain, path, POWER, calls - i % (calls / 2), &t);
        (void)snprintf(part, sizeof part, "%s.part", path);
        dsf_dump_recovery r;
        if (access(part, F_OK) != 0 || dsf_dump_recover(part, path, &r) != DSF_OK) continue;
        expect_taps(path, 1); /* the first checkpoint comes after the first tap */
        kept++;
    }
    cr_expect_gt(kept, 40);
}

static int recover_it(const char *path, told *t)
{
    char part[600];
    dsf_dump_recovery r;
    (void)t;
    (void)snprintf(part, sizeof part, "%s.part", path);
    return dsf_dump_recover(part, path, &r) == DSF_OK ? 0 : 1;
}

Test(dump_cut, a_killed_recovery_is_repeated)
{
    static const cut_mode modes[] = {KILL, TEAR, POWER};
    const char *path = temp_path("again.h5");
    int64_t calls = count_calls(dump_plain, path);
    told t;
    for (int m = 0; m < 3; m++)
        for (int64_t at = 1; at < 1000; at++) {
            clear(path);
            (void)run_cut(dump_plain, path, KILL, calls - calls / 4, &t);
            int finished = t.finished;
            cr_assert_eq(finished, TAPS);
            if (run_cut(recover_it, path, modes[m], at, &t) == 0) break;
            expect_left(path, finished, false);
        }
}
