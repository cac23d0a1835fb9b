/* A self-contained case: one layer or one operation, its golden inputs and outputs, the weights
 * that it reads, the limits and the words, in one HDF5 file that runs where the checkpoint is not.
 *
 * The file is a dump (dump-schema.md) that holds the taps in question, so that every tool reads it;
 * what it has beyond stands under /case:
 *   attributes   schema "dsf-case-2", program, command, golden (its file's name), layer, op, rows,
 *                outputs (paths that are compared, one a line), inputs (those that are given),
 *                tensors (their number), verdict, sentence, digest (seal.h: of all other bytes)
 *   weights/NNNN uint8: the tensor's own bytes, attributes name, dtype, shape, digest; of a table
 *                only some rows, with their numbers in weights/NNNN_rows (int64)
 *   tokenizer, tokenizer_config, floor   uint8: files (absent where there are none)
 * Datasets with one row of zeros outside the case (embed, the next layer's input) end the part of
 * the model that is run: given, and not for these rows. */
#ifndef DSF_REDUCE_CASE_H
#define DSF_REDUCE_CASE_H

#include "verify/dump/temp.h"
#include "verify/reduce/scope.h"

#define DSF_CASE_SCHEMA "dsf-case-2"
enum { DSF_CASE_BYTES = 10000000 };

typedef struct {
    const char *model, *golden, *floor; /* floor: NULL: everything must be bit-equal */
    const char *variants, *backend, *command;
    int threads;
    dsf_scope_choice choice;
    int64_t max_bytes;
    void (*progress)(const char *name, int64_t done, int64_t total);
} dsf_case_options;

typedef struct {
    bool fails;                                /* this engine computes it wrong */
    char sentence[512];                        /* the comparison's verdict line */
    char recorded[16], recorded_sentence[512]; /* replay: what the file says was found */
    char op[64], rows[48], command[4096];
    int layer;
    int64_t bytes, tensors, taps;
} dsf_case_report;

/* The first operation, of choice.layer where that is one, that this engine computes wrong from
 * golden inputs: fills choice->layer, op (into `path`) and rows (the worst one). *found false when
 * none is. */
DSF_MUST dsf_status dsf_case_locate(const dsf_case_options *o, dsf_scope_choice *choice,
                                    char path[64], bool *found);
/* Writes a case, having run it from its own bytes. ENOMEM when it is over max_bytes: the words name
 * the largest parts. */
DSF_MUST dsf_status dsf_case_write(const dsf_case_options *o, const char *out, dsf_case_report *r);
/* Runs a case; of the options only variants, backend, threads and progress count. */
DSF_MUST dsf_status dsf_case_replay(const dsf_case_options *o, const char *path,
                                    dsf_case_report *r);

/* The case of the first wrong operation, on its worst row where that row fails alone. */
DSF_MUST dsf_status dsf_case_write_first(const dsf_case_options *o, const char *out,
                                         dsf_case_report *r, bool *found);
void dsf_case_print(const dsf_case_report *r, const char *path, dsf_buf *b);
/* One object; key: NULL where it is the document. */
void dsf_case_json(const dsf_case_report *r, const char *key, const char *path, dsf_buf *b);

/* Builds the file's bytes. Free *data with dsf_mem_free. */
DSF_MUST dsf_status dsf_case_build(const dsf_case_options *o, void **data, size_t *n,
                                   dsf_case_report *r);
/* What a case unpacks into: folder/floor.json, folder/MODEL/{config.json, tokenizer.json,
 * model.safetensors with holes, the golden's name}. */
typedef struct {
    char folder[DSF_TEMP_BYTES], model[512], golden[1024];
    char floor[DSF_TEMP_BYTES + 16]; /* "" when there is none */
    dsf_buf outputs;
} dsf_case_files;
DSF_MUST dsf_status dsf_case_unpack(const char *name, const void *data, size_t n, dsf_case_files *f,
                                    dsf_case_report *r);
/* Removes them. */
void dsf_case_clean(dsf_case_files *f);

#endif
