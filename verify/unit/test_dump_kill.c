#include "dump_fixture.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include "base/buf.h"
#include "base/file.h"
#include "verify/dump/recover.h"
#include "verify/dump/temp.h"

/* What a run that is killed leaves in PATH.part. */
TestSuite(dump_kill, .fini = temp_clean);

enum { N = 24, WIDTH = 128 };

static int32_t ids[N];

static dsf_dump_meta meta_of(const char *config, int64_t n_tokens, int64_t n_decode)
{
    for (int i = 0; i < N; i++) ids[i] = i;
    return (dsf_dump_meta){.producer = "test",
                           .model = "mini",
                           .config_json = config,
                           .mode = "exact",
                           .token_ids = ids,
                           .n_tokens = n_tokens,
                           .n_decode = n_decode};
}

static dsf_status put_in(dsf_dump *d, int layer, float *x, int64_t n, const int32_t *label)
{
    const dsf_tensor t = {.data = x, .dtype = DSF_F32, .rank = 2, .dim = {n, WIDTH}};
    const dsf_tap_value v = {.tap = {DSF_TAP_IN, layer}, .value = &t, .n = n, .label = label};
    dsf_tap_sink sink = dsf_dump_sink(d);
    return sink.on_value(sink.ud, &v);
}

/* A child writes taps and tells each one that is done; it is killed at some moment. */
static void write_until_killed(const char *path, int pipe_end)
{
    const dsf_dump_meta m = meta_of("{\"num_hidden_layers\": 120, \"hidden_size\": 32}", N, 0);
    float x[N * WIDTH];
    dsf_dump *d;
    for (int i = 0; i < N * WIDTH; i++) x[i] = (float)(i % 251) * 0.5f - 30.0f;
    if (dsf_dump_create(&d, path, &m) != DSF_OK) _exit(1);
    for (int layer = 0; layer < 120; layer++) {
        x[0] = (float)layer;
        if (put_in(d, layer, x, N, ids) != DSF_OK) _exit(1);
        char done = (char)layer;
        if (write(pipe_end, &done, 1) != 1) _exit(1);
    }
    for (;;) (void)pause();
}

Test(dump_kill, a_killed_run_leaves_its_finished_taps)
{
    const char *path = temp_path("killed.h5"), *part = temp_path("killed.h5.part");
    uint32_t seed = 20; /* of the moment: a tap, and some microseconds after it */
    for (int kill_no = 0; kill_no < 20; kill_no++) {
        seed = seed * 1664525u + 1013904223u;
        int fd[2], wanted = 1 + (int)((seed >> 16) % 118);
        const struct timespec nap = {0, (long)(seed % 997) * 1000};
        cr_assert_eq(pipe(fd), 0);
        pid_t child = fork();
        if (child == 0) write_until_killed(path, fd[1]);
        (void)close(fd[1]);
        char last = -1;
        while (last < wanted && read(fd[0], &last, 1) == 1) {
        }
        (void)nanosleep(&nap, NULL);
        (void)kill(child, SIGKILL);
        (void)waitpid(child, NULL, 0);
        char more;
        while (read(fd[0], &more, 1) == 1) last = more;
        (void)close(fd[0]);
        dsf_dump_file *f;
        cr_expect_eq(dsf_dump_open(&f, path), DSF_EIO);
        SAYS("a run that was killed");
        GOOD(dsf_dump_open(&f, part));
        cr_expect(dsf_dump_info_of(f)->partial);
        for (int layer = 0; layer <= last; layer++) {
            char tap[64];
            dsf_dump_array a;
            dsf_tap_path(tap, (dsf_tap){DSF_TAP_IN, layer}, 120);
            GOOD(dsf_dump_read(f, tap, &a));
            cr_assert_eq(a.n, N);
            cr_expect_eq(a.f[0], (float)layer);
            cr_expect_eq(a.f[1], -29.5f);
            dsf_dump_array_free(&a);
        }
        dsf_dump_close(f);
        dsf_dump_recovery r;
        GOOD(dsf_dump_recover(part, path, &r));
        cr_expect_geq(r.taps, last + 1);
        cr_expect_neq(access(part, F_OK), 0);
        GOOD(dsf_dump_open(&f, path));
        cr_expect_not_null(strstr(dsf_dump_info_of(f)->notes, "did not finish"));
        cr_expect_eq(dsf_dump_count(f), r.taps);
        dsf_dump_close(f);
        (void)unlink(path);
    }
}

/* A child dies with everything committed; false when it never came so far. */
static bool leave_part(const char *path)
{
    int fd[2];
    char last = -1;
    cr_assert_eq(pipe(fd), 0);
    pid_t child = fork();
    if (child == 0) write_until_killed(path, fd[1]);
    (void)close(fd[1]);
    while (last < 60 && read(fd[0], &last, 1) == 1) {
    }
    (void)kill(child, SIGKILL);
    (void)waitpid(child, NULL, 0);
    (void)close(fd[0]);
    return last >= 60;
}

static void read_file(const char *path, dsf_buf *b)
{
    dsf_file f;
    GOOD(dsf_file_open(&f, path));
    dsf_buf_add(b, f.data, f.size);
    dsf_file_close(&f);
}

Test(dump_kill, a_recovery_to_another_disk_writes_nothing_to_the_full_one)
{
    const char *path = temp_path("full.h5"), *part = temp_path("full.h5.part"), *file[2];
    char other[64] = "/dev/shm/dsf-test-XXXXXX", out[96], copy[104];
    struct stat here, there;
    dsf_buf before[2] = {{.max = 0}, {.max = 0}}, after[2] = {{.max = 0}, {.max = 0}};
    dsf_dump_recovery r;
    if (!mkdtemp(other)) cr_skip_test("/dev/shm is no folder to write to");
    (void)snprintf(out, sizeof out, "%s/out.h5", other);
    (void)snprintf(copy, sizeof copy, "%s.part", out);
    cr_assert(leave_part(path));
    if (stat(part, &here) == 0 && stat(other, &there) == 0 && here.st_dev == there.st_dev) {
        (void)rmdir(other);
        cr_skip_test("/dev/shm and the temporaries are one file system");
    }
    file[0] = part;
    file[1] = temp_path("full.h5.part.log");
    for (int i = 0; i < 2; i++) read_file(file[i], &before[i]);
    FILE *strange = fopen(copy, "wb"); /* what another run left there stays */
    cr_assert_not_null(strange);
    (void)fclose(strange);
    cr_expect_eq(dsf_dump_recover(part, out, &r), DSF_EIO);
    SAYS("out.h5.part");
    cr_expect_eq(unlink(copy), 0);
    GOOD(dsf_dump_recover(part, out, &r));
    cr_expect(r.copied && r.taps >= 60);
    cr_expect_neq(access(copy, F_OK), 0);
    for (int i = 0; i < 2; i++) {
        read_file(file[i], &after[i]);
        cr_expect(before[i].len == after[i].len &&
                      memcmp(before[i].data, after[i].data, after[i].len) == 0,
                  "%s", file[i]);
        dsf_buf_free(&before[i]);
        dsf_buf_free(&after[i]);
    }
    dsf_dump_file *f;
    GOOD(dsf_dump_open(&f, out));
    cr_expect_eq(dsf_dump_count(f), r.taps);
    dsf_dump_close(f);
    GOOD(dsf_dump_recover(part, path, &r)); /* and it is as recoverable as before */
    cr_expect(!r.copied);
    (void)unlink(out);
    (void)rmdir(other);
}

static void put_file(const char *folder, const char *name)
{
    char path[4096];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    cr_assert_not_null(f);
    (void)fputs("x", f);
    (void)fclose(f);
}

Test(dump_kill, temporaries_are_under_tmpdir_and_go_with_all_that_is_in_them)
{
    char one[DSF_TEMP_BYTES], two[DSF_TEMP_BYTES], below[DSF_TEMP_BYTES + 8], name[16];
    struct stat s;
    const char *outside = temp_path("outside"), *under = getenv("TMPDIR");
    FILE *f = fopen(outside, "wb");
    cr_assert_not_null(f);
    (void)fclose(f);
    GOOD(dsf_temp_open(one, "dsf-a"));
    GOOD(dsf_temp_open(two, "dsf-a"));
    cr_expect_neq(strcmp(one, two), 0);
    cr_expect_eq(
        strncmp(one, under && *under ? under : "/tmp", strlen(under && *under ? under : "/tmp")),
        0);
    cr_expect(stat(one, &s) == 0 && (s.st_mode & 0777) == 0700);
    (void)snprintf(below, sizeof below, "%s/below", one);
    cr_assert_eq(mkdir(below, 0700), 0);
    for (int i = 0; i < 300; i++) {
        (void)snprintf(name, sizeof name, "f%d", i);
        put_file(i % 2 ? one : below, name);
    }
    (void)snprintf(below, sizeof below, "%s/link", one);
    cr_assert_eq(symlink(temp_path("."), below), 0); /* a link goes, what it leads to stays */
    dsf_temp_close(one);
    cr_expect_eq(one[0], 0);
    put_file(two, "x.h5.part.log");
    char kept[DSF_TEMP_BYTES];
    memcpy(kept, two, sizeof kept);
    dsf_temp_close_all();
    cr_expect_neq(access(kept, F_OK), 0);
    cr_expect_eq(access(outside, F_OK), 0);
    cr_assert_eq(setenv("TMPDIR", "/no/such/folder", 1), 0);
    cr_expect_eq(dsf_temp_open(one, "dsf-a"), DSF_EIO);
    SAYS("/no/such/folder");
    cr_expect_eq(one[0], 0);
}

enum { GROWN_TAPS = 6, GROWN_STEP = 13, GROWN_ROWS = 4000 };

static float grown_value(int layer, int64_t row, int64_t i)
{
    uint32_t x = (uint32_t)(row * WIDTH + i) * 2654435761u + (uint32_t)layer * 40503u;
    return (float)((x ^ x >> 15) % 4096) * 0.25f;
}

static const char grown_config[] = "{\"num_hidden_layers\": 6, \"hidden_size\": 32}";

/* One decode step: a token, a row of every tap. */
static bool grow(dsf_dump *d, int32_t row)
{
    float x[WIDTH];
    if (row > 0 && dsf_dump_add_tokens(d, &row, 1) != DSF_OK) return false;
    for (int layer = 0; layer < GROWN_TAPS; layer++) {
        for (int i = 0; i < WIDTH; i++) x[i] = grown_value(layer, row, i);
        if (put_in(d, layer, x, 1, &row) != DSF_OK) return false;
    }
    return true;
}

/* Decode steps of one row, a flush after every GROWN_STEP of them, until the file would outgrow
 * `limit`: SIGXFSZ then ends the process within a write, as SIGKILL might. Tells every flush. */
static void grow_until_killed(const char *path, rlim_t limit, int pipe_end)
{
    const dsf_dump_meta m = meta_of(grown_config, 1, GROWN_ROWS);
    dsf_dump *d;
    const struct rlimit size = {limit, limit}, core = {0, 0};
    if (setrlimit(RLIMIT_CORE, &core) != 0 || setrlimit(RLIMIT_FSIZE, &size) != 0) _exit(1);
    (void)signal(SIGXFSZ, SIG_DFL);
    if (dsf_dump_create(&d, path, &m) != DSF_OK) _exit(1);
    for (int32_t row = 0; row < GROWN_ROWS; row++) {
        if (!grow(d, row)) _exit(1);
        if (row % GROWN_STEP) continue;
        if (dsf_dump_flush(d) != DSF_OK || write(pipe_end, &row, sizeof row) != sizeof row)
            _exit(1);
    }
    _exit(1);
}

/* The file is there; every tap has at least the rows 0..last, and all that is there is right. */
static void expect_grown(const char *path, int32_t last)
{
    dsf_dump_file *f;
    int32_t *token;
    int64_t n;
    GOOD(dsf_dump_open(&f, path));
    cr_expect_eq(dsf_dump_info_of(f)->n_unreadable, 0);
    GOOD(dsf_dump_read_axis(f, "token_ids", &token, &n));
    cr_assert_gt(n, last);
    for (int64_t i = 0; i < n; i++) cr_assert_eq(token[i], i);
    dsf_mem_free(token);
    for (int layer = 0; layer < GROWN_TAPS; layer++) {
        char tap[64];
        dsf_dump_array a;
        dsf_tap_path(tap, (dsf_tap){DSF_TAP_IN, layer}, GROWN_TAPS);
        GOOD(dsf_dump_read(f, tap, &a));
        cr_assert_gt(a.n, last, "%s", tap);
        int64_t wrong = 0;
        for (int64_t row = 0; row < a.n; row++) {
            wrong += a.label[row] != row;
            for (int64_t i = 0; i < WIDTH; i++)
                wrong += a.f[row * WIDTH + i] != grown_value(layer, row, i);
        }
        cr_assert_eq(wrong, 0, "%s after %d rows", tap, (int)last);
        dsf_dump_array_free(&a);
    }
    dsf_dump_close(f);
}

Test(dump_kill, a_kill_within_a_flush_leaves_the_flush_before_it)
{
    const char *path = temp_path("grown.h5"), *part = temp_path("grown.h5.part");
    for (rlim_t limit = 800000; limit < 4000000; limit += 299993) {
        int fd[2], status = 0;
        cr_assert_eq(pipe(fd), 0);
        pid_t child = fork();
        if (child == 0) grow_until_killed(path, limit, fd[1]);
        (void)close(fd[1]);
        int32_t last = -1, row;
        while (read(fd[0], &row, sizeof row) == sizeof row) last = row;
        (void)close(fd[0]);
        cr_assert_eq(waitpid(child, &status, 0), child);
        cr_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGXFSZ);
        cr_assert_geq(last, GROWN_STEP, "killed in the third flush or later");
        expect_grown(part, last);
    }
}

Test(dump_kill, rows_that_wait_for_their_chunk_all_arrive)
{
    dsf_dump_meta m = meta_of(grown_config, 1, GROWN_ROWS);
    m.compress = true;
    const char *path = temp_path("whole.h5");
    dsf_dump *d;
    GOOD(dsf_dump_create(&d, path, &m));
    for (int32_t row = 0; row < GROWN_ROWS; row++) cr_assert(grow(d, row));
    dsf_dump_file *f;
    dsf_dump_array a;
    GOOD(dsf_dump_open(&f, temp_path("whole.h5.part")));
    GOOD(dsf_dump_read(f, "layers/05/in", &a));
    cr_expect_gt(a.n, GROWN_ROWS / 2, "committed by itself");
    cr_expect_eq(a.n % 64, 0, "whole chunks");
    dsf_dump_array_free(&a);
    dsf_dump_close(f);
    GOOD(dsf_dump_finish(d));
    expect_grown(path, GROWN_ROWS - 1);
}
