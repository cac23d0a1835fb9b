/* model.safetensors.index.json over two fixed shards. Property: it is accepted exactly when it puts
 * a and b into 1 and c into 2, and then every tensor is found. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ckpt/index.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char folder[64];

static void require(int holds)
{
    if (!holds) abort();
}

static void put(const char *name, const void *data, size_t n)
{
    char path[128];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    require(f && fwrite(data, 1, n, f) == n && fclose(f) == 0);
}

static void put_shard(const char *name, const char *header, size_t n)
{
    char file[512] = {(char)strlen(header)};
    (void)snprintf(file + 8, sizeof file - 8, "%s", header);
    put(name, file, 8 + strlen(header) + n);
}

static void remove_folder(void)
{
    static const char *const name[] = {"1", "2", "model.safetensors.index.json"};
    for (int i = 0; i < 3; i++) {
        char path[128];
        (void)snprintf(path, sizeof path, "%s/%s", folder, name[i]);
        (void)unlink(path);
    }
    (void)rmdir(folder);
}

static void make_folder(void)
{
    if (folder[0]) return;
    (void)snprintf(folder, sizeof folder, "/tmp/dsf-fuzz-XXXXXX");
    require(mkdtemp(folder) != NULL);
    (void)atexit(remove_folder);
    put_shard("1",
              "{\"a\":{\"dtype\":\"I8\",\"shape\":[1],\"data_offsets\":[0,1]},"
              "\"b\":{\"dtype\":\"I8\",\"shape\":[1],\"data_offsets\":[1,2]}}",
              2);
    put_shard("2", "{\"c\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    dsf_ckpt *c;
    make_folder();
    put("model.safetensors.index.json", data, size);
    if (dsf_ckpt_open(&c, folder) != DSF_OK) {
        require(c == NULL && dsf_error_message()[0] != 0);
        return 0;
    }
    static const char *const name[] = {"a", "b", "c"};
    require(dsf_ckpt_count(c) == 3 && dsf_ckpt_bytes(c) == 10);
    for (int i = 0; i < 3; i++) {
        const dsf_ckpt_entry *e = dsf_ckpt_find(c, name[i]);
        require(e == dsf_ckpt_at(c, i));
        require(e->shard == (i == 2));
    }
    dsf_ckpt_close(c);
    return 0;
}
