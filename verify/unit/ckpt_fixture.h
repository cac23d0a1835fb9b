/* What the checkpoint tests share: temporary folders, files made by hand, the reference data. */
#ifndef DSF_UNIT_CKPT_FIXTURE_H
#define DSF_UNIT_CKPT_FIXTURE_H

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "config.h"
#include "model/synth.h"

/* Path of a file or folder of the reference data; false when it is not there. */
static inline bool find_shared(char out[4096], const char *name)
{
    const char *root = DSF_SHARED[0] == '/' ? "" : DSF_SOURCE_ROOT "/";
    return snprintf(out, 4096, "%s%s/%s", root, DSF_SHARED, name) < 4096 && dsf_file_exists(out);
}

static inline void make_temp(char out[4096])
{
    const char *base = getenv("TMPDIR");
    (void)snprintf(out, 4096, "%s/dsf-unit-XXXXXX", base ? base : "/tmp");
    if (!mkdtemp(out)) abort();
}

static inline void put_bytes(const char *folder, const char *name, const void *data, size_t n)
{
    char path[8192];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(data, 1, n, f) != n || fclose(f) != 0) abort();
}

static inline void put_text(const char *folder, const char *name, const char *text)
{
    put_bytes(folder, name, text, strlen(text));
}

static inline void remove_temp(const char *folder)
{
    DIR *d = opendir(folder);
    if (!d) return;
    for (struct dirent *e = readdir(d); e; e = readdir(d)) {
        char path[8192];
        (void)snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        if (e->d_name[0] != '.') (void)unlink(path);
    }
    (void)closedir(d);
    (void)rmdir(folder);
}

/* A safetensors file: the header as given (its real length in front), then n counting bytes. */
static inline void add_shard(dsf_buf *b, const char *header, size_t n)
{
    uint64_t length = strlen(header);
    for (int i = 0; i < 8; i++) dsf_buf_char(b, (char)(length >> 8 * i));
    dsf_buf_str(b, header);
    for (size_t i = 0; i < n; i++) dsf_buf_char(b, (char)i);
}

static inline void put_shard(const char *folder, const char *name, const char *header, size_t n)
{
    dsf_buf b = {.max = 1 << 24};
    add_shard(&b, header, n);
    put_bytes(folder, name, b.data, b.len);
    dsf_buf_free(&b);
}

/* Writes a preset into folder; *c is its config. */
static inline dsf_status put_preset(const char *folder, const char *preset, uint64_t seed,
                                    dsf_config *c)
{
    dsf_buf json = {.max = 1 << 20};
    dsf_status st = dsf_synth_preset(c, preset);
    if (st == DSF_OK) st = dsf_synth_finish(c, &json);
    dsf_synth_job job = {.folder = folder, .config = c, .config_json = &json, .seed = seed};
    if (st == DSF_OK) st = dsf_synth_write(&job);
    dsf_buf_free(&json);
    return st;
}

#endif
