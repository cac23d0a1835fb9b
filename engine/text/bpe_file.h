/* The parts of a tokenizer, for the files that make up bpe.h. */
#ifndef DSF_TEXT_BPE_FILE_H
#define DSF_TEXT_BPE_FILE_H

#include "text/bpe.h"
#include "text/merges.h"
#include "text/pretok.h"
#include "text/vocab.h"

struct dsf_bpe {
    dsf_vocab vocab;
    dsf_merges merges;
    dsf_pretok *pretok;
    bool whole_first; /* ignore_merges: a piece that is a token is that token */
};

/* Fills a zeroed tokenizer from the file's root value. */
DSF_MUST dsf_status dsf_bpe_file_read(dsf_bpe *b, const char *name, const dsf_json *root);

#endif
