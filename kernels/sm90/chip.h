/* Numbers of the chip that tiles are cut for: H100 SXM and H200. */
#ifndef DSF_SM90_CHIP_H
#define DSF_SM90_CHIP_H

enum {
    DSF_SM90_SMS = 132,                 /* multiprocessors; a measure of how much is enough */
    DSF_SM90_SM_SHARED = 228 * 1024,    /* shared memory of a multiprocessor: the blocks on it */
    DSF_SM90_BLOCK_OWN = 1024,          /* of it the system's, for each block */
    DSF_SM90_BLOCK_SHARED = 227 * 1024, /* most of one block */
};

#endif
