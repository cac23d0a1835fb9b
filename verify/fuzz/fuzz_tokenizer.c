/* The last line is a text, everything before it a tokenizer.json. What encodes decodes to the same
 * bytes, in both modes; decoding id by id gives what decoding at once gives. */
#include <stdlib.h>
#include <string.h>

#include "text/bpe.h"
#include "text/classes.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_decode(const dsf_bpe *b, const dsf_ids *ids, const char *text, size_t n)
{
    dsf_buf bytes = {0}, streamed = {0};
    dsf_bpe_tail tail = {0};
    if (dsf_bpe_decode(b, ids->id, ids->n, false, &bytes) != DSF_OK) abort();
    if (bytes.len != n || (n && memcmp(bytes.data, text, n) != 0)) abort();
    for (size_t i = 0; i < ids->n; i++)
        if (dsf_bpe_stream(b, &tail, ids->id[i], false, &streamed) != DSF_OK) abort();
    if (tail.n != 0 || streamed.len != n || (n && memcmp(streamed.data, text, n) != 0)) abort();
    dsf_buf_free(&bytes);
    dsf_buf_free(&streamed);
}

static void check(const dsf_bpe *b, const char *text, size_t n)
{
    int n_classes = 0, n_vocab = dsf_bpe_n_vocab(b);
    for (int mode = DSF_BPE_PLAIN; mode <= DSF_BPE_ADDED; mode++) {
        dsf_ids ids = {0};
        if (dsf_bpe_encode(b, text, n, mode, &ids) == DSF_OK) {
            if (ids.n > n) abort();
            check_decode(b, &ids, text, n);
        }
        dsf_ids_free(&ids);
    }
    int32_t *map = n_vocab < 4096 ? calloc((size_t)n_vocab, sizeof *map) : NULL;
    if (map && dsf_classes_build(b, map, &n_classes) == DSF_OK)
        for (int i = 0; i < n_vocab; i++)
            if (map[i] < 0 || map[i] >= n_classes || map[i] > i) abort();
    free(map);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    dsf_bpe *b = NULL;
    const char *s = (const char *)data, *gap = size ? memrchr(s, '\n', size) : NULL;
    if (!gap) return 0;
    if (dsf_bpe_parse(&b, "fuzz", s, (size_t)(gap - s)) == DSF_OK)
        check(b, gap + 1, size - (size_t)(gap + 1 - s));
    dsf_bpe_close(b);
    return 0;
}
