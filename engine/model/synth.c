#include "model/synth.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "ckpt/safetensors.h"
#include "model/synth_weights.h"

enum { PIECE = 4 << 20 };
#define SHARD_BYTES 10700000000 /* the size of the released shards, about */

/* A tensor and the shard it goes into. */
typedef struct {
    dsf_name name;
    int group;
    int shard; /* 0-based */
} item;

typedef struct {
    const dsf_synth_job *job;
    dsf_synth_source *source;
    item *list;
    int64_t n;
    int n_shards;
    uint8_t *piece;
    int64_t done, total;
} writer;

/* Embedding, head and vision first, then the layers, the draft stages, each Engram table last:
 * the order of the release. */
static int group_of(const dsf_config *c, const dsf_name *n)
{
    if (n->part == DSF_PART_TABLES) return 3 + dsf_config_engram_at(c, n->layer);
    if (n->part == DSF_PART_VISION || n->layer < 0) return 0;
    return n->layer < c->n_layers ? 1 : 2;
}

int64_t dsf_synth_bytes(const dsf_config *c)
{
    int64_t bytes = 0;
    dsf_names it = dsf_names_begin(c);
    dsf_name name;
    while (dsf_names_next(&it, &name)) bytes += name.bytes;
    return bytes;
}

static int by_group(const void *a, const void *b)
{
    const item *x = a, *y = b;
    if (x->group != y->group) return x->group < y->group ? -1 : 1;
    if (x->name.layer != y->name.layer) return x->name.layer < y->name.layer ? -1 : 1;
    return strcmp(x->name.name, y->name.name);
}

/* Inside a shard wide elements come first, so that all data are aligned (the header is a multiple
 * of 8 bytes long). */
static int by_shard(const void *a, const void *b)
{
    const item *x = a, *y = b;
    int64_t u = dsf_dtype_bytes(x->name.dtype, 1), v = dsf_dtype_bytes(y->name.dtype, 1);
    if (x->shard != y->shard) return x->shard < y->shard ? -1 : 1;
    if (u != v) return u > v ? -1 : 1;
    return by_group(a, b);
}

static dsf_status list_tensors(writer *w)
{
    const dsf_config *c = w->job->config;
    dsf_name name;
    dsf_names it = dsf_names_begin(c);
    size_t n = 0;
    while (dsf_names_next(&it, &name)) n++;
    DSF_TRY(dsf_mem_new(&w->list, n, sizeof *w->list));
    it = dsf_names_begin(c);
    while (dsf_names_next(&it, &name)) {
        w->list[w->n++] = (item){.name = name, .group = group_of(c, &name)};
        w->total += name.bytes;
    }
    qsort(w->list, n, sizeof *w->list, by_group);
    int64_t filled = 0;
    for (int64_t i = 0; i < w->n; i++) {
        item *t = &w->list[i];
        bool next = i && (t->group != w->list[i - 1].group || filled + t->name.bytes > SHARD_BYTES);
        if (i == 0 || next) {
            w->n_shards++;
            filled = 0;
        }
        t->shard = w->n_shards - 1;
        filled += t->name.bytes;
    }
    qsort(w->list, n, sizeof *w->list, by_shard);
    return DSF_OK;
}

static void shard_name(char out[64], const writer *w, int shard)
{
    (void)snprintf(out, 64, "model-%05d-of-%05d.safetensors", shard + 1, w->n_shards);
}

/* u64 length, then the JSON padded with spaces to a multiple of 8. */
static dsf_status add_header(dsf_buf *b, const item *list, int64_t n)
{
    int64_t at = 0;
    dsf_buf_add(b, "\0\0\0\0\0\0\0", 8);
    dsf_buf_str(b, "{\"__metadata__\":{\"format\":\"pt\"}");
    for (int64_t i = 0; i < n; i++) {
        const dsf_name *t = &list[i].name;
        dsf_buf_fmt(b, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[", t->name,
                    dsf_safetensors_dtype(t->dtype));
        for (int d = 0; d < t->rank; d++) dsf_buf_fmt(b, "%s%" PRId64, d ? "," : "", t->dim[d]);
        dsf_buf_fmt(b, "],\"data_offsets\":[%" PRId64 ",%" PRId64 "]}", at, at + t->bytes);
        at += t->bytes;
    }
    dsf_buf_char(b, '}');
    while (b->len % 8) dsf_buf_char(b, ' ');
    DSF_TRY(dsf_buf_status(b));
    uint64_t length = b->len - 8;
    for (int i = 0; i < 8; i++) b->data[i] = (char)(length >> 8 * i);
    return DSF_OK;
}

static dsf_status write_tensor(writer *w, dsf_file_out *o, const dsf_name *t)
{
    for (int64_t from = 0; from < t->bytes; from += PIECE) {
        int64_t n = t->bytes - from < PIECE ? t->bytes - from : PIECE;
        dsf_synth_fill(w->source, t, from, n, w->piece);
        DSF_TRY(dsf_file_write(o, w->piece, (size_t)n));
        w->done += n;
        if (w->job->progress) w->job->progress(w->job->ud, w->done, w->total);
    }
    return DSF_OK;
}

static dsf_status write_shard(writer *w, const item *list, int64_t n)
{
    char name[64], path[4096];
    dsf_file_out o = {.fd = -1};
    dsf_buf header = {.max = 1 << 30};
    dsf_status st;
    shard_name(name, w, list[0].shard);
    DSF_TRY(dsf_file_join(path, w->job->folder, name));
    DSF_TRY_OUT(add_header(&header, list, n));
    DSF_TRY_OUT(dsf_file_create(&o, path));
    DSF_TRY_OUT(dsf_file_write(&o, header.data, header.len));
    for (int64_t i = 0; i < n; i++) DSF_TRY_OUT(write_tensor(w, &o, &list[i].name));
    DSF_TRY_OUT(dsf_file_finish(&o));
out:
    dsf_buf_free(&header);
    dsf_file_abandon(&o);
    return st;
}

static dsf_status write_text(const char *folder, const char *name, const dsf_buf *text)
{
    char path[4096];
    dsf_file_out o = {.fd = -1};
    dsf_status st;
    DSF_TRY(dsf_buf_status(text));
    DSF_TRY(dsf_file_join(path, folder, name));
    DSF_TRY_OUT(dsf_file_create(&o, path));
    DSF_TRY_OUT(dsf_file_write(&o, text->data, text->len));
    DSF_TRY_OUT(dsf_file_finish(&o));
out:
    dsf_file_abandon(&o);
    return st;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const item *)a)->name.name, ((const item *)b)->name.name);
}

static dsf_status write_index(writer *w)
{
    dsf_buf b = {.max = 1 << 30};
    qsort(w->list, (size_t)w->n, sizeof *w->list, by_name);
    dsf_buf_fmt(&b, "{\n \"metadata\": {\n  \"total_size\": %" PRId64 "\n },\n \"weight_map\": {",
                w->total);
    for (int64_t i = 0; i < w->n; i++) {
        char name[64];
        shard_name(name, w, w->list[i].shard);
        dsf_buf_fmt(&b, "%s\n  \"%s\": \"%s\"", i ? "," : "", w->list[i].name.name, name);
    }
    dsf_buf_str(&b, "\n }\n}\n");
    dsf_status st = write_text(w->job->folder, "model.safetensors.index.json", &b);
    dsf_buf_free(&b);
    return st;
}

dsf_status dsf_synth_write(const dsf_synth_job *job)
{
    writer w = {.job = job};
    dsf_status st;
    DSF_TRY(dsf_file_make_folder(job->folder));
    DSF_TRY_OUT(dsf_synth_source_open(&w.source, job->config, job->seed));
    DSF_TRY_OUT(dsf_mem_new(&w.piece, PIECE, 1));
    DSF_TRY_OUT(list_tensors(&w));
    DSF_TRY_OUT(write_text(job->folder, "config.json", job->config_json));
    for (int64_t from = 0, to; from < w.n; from = to) {
        for (to = from + 1; to < w.n && w.list[to].shard == w.list[from].shard;) to++;
        DSF_TRY_OUT(write_shard(&w, w.list + from, to - from));
    }
    DSF_TRY_OUT(write_index(&w));
out:
    dsf_synth_source_close(w.source);
    dsf_mem_free(w.piece);
    dsf_mem_free(w.list);
    return st;
}
