/* The Engram class of every token id (architecture.md 8.1, encoding.md 5). */
#ifndef DSF_TEXT_CLASSES_H
#define DSF_TEXT_CLASSES_H

#include "text/bpe.h"

/* Fills map[dsf_bpe_n_vocab(b)] with classes in order of first appearance, *n_classes of them. A
 * caller compares that number with engram_compressed_vocab_size: all multipliers depend on it.
 * ECORRUPT: an id without token. */
DSF_MUST dsf_status dsf_classes_build(const dsf_bpe *b, int32_t *map, int *n_classes);

#endif
