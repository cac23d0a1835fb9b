/* Tensor maps of matrices of bytes for the copy engine. The driver's encoder is asked for by name
 * at run time: linking the driver would make a program that does not start without one. */
#ifndef DSF_SM90_TENSORMAP_CUH
#define DSF_SM90_TENSORMAP_CUH

#include <cuda.h>
#include <cudaTypedefs.h>

#include "sm90/sm90.cuh"

/* rows x width bytes at `base` (16-aligned), `pitch` bytes from row to row (a multiple of 16); the
 * box is box_rows x box_width bytes. Rows past the end read as zero. width may exceed the pitch:
 * rows that overlap are legal. With `pieces` a row is seen as pieces of box_width bytes:
 * coordinates are (byte, row, piece), and a load brings so many boxes, one after the other. */
struct dsf_byte_matrix {
    const void *base;
    int64_t rows, width, pitch;
    uint32_t box_rows, box_width;
    uint32_t pieces = 0;
};

static inline dsf_status dsf_tensormap_bytes(CUtensorMap *map, const dsf_byte_matrix &m,
                                             CUtensorMapSwizzle swizzle)
{
    void *entry = nullptr;
    cudaDriverEntryPointQueryResult found;
    DSF_CUDA_TRY(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000,
                                                  cudaEnableDefault, &found));
    if (found != cudaDriverEntryPointSuccess || !entry)
        return DSF_FAIL(DSF_EDEVICE, "the driver has no cuTensorMapEncodeTiled");
    bool cut = m.pieces > 0;
    const cuuint64_t dim[3] = {cuuint64_t(cut ? m.box_width : m.width), cuuint64_t(m.rows),
                               cuuint64_t(m.width / m.box_width)};
    const cuuint64_t stride[2] = {cuuint64_t(m.pitch), m.box_width};
    const cuuint32_t box[3] = {m.box_width, m.box_rows, m.pieces}, step[3] = {1, 1, 1};
    CUresult error = reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(entry)(
        map, CU_TENSOR_MAP_DATA_TYPE_UINT8, cut ? 3 : 2, const_cast<void *>(m.base), dim, stride,
        box, step, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (error != CUDA_SUCCESS)
        return DSF_FAIL(
            DSF_EDEVICE, "tensor map of %lld rows of %lld bytes, %lld apart, at %p: error %d",
            (long long)m.rows, (long long)m.width, (long long)m.pitch, m.base, int(error));
    return DSF_OK;
}

#endif
