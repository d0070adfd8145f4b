// embedding of block formats on CUDA: a thread an element, decoded from the
// file's block. Rows are few, so that byte accesses do not matter.
#include "kernels/cuda_row.cuh"
#include "kernels/embedding/embedding.h"
#include "kernels/gemm/quantised/pack.h"

namespace inlay {
namespace {

__global__ void EmbedBlocks(const __grid_constant__ QuantMatrix matrix,
                            const __grid_constant__ QuantGrid grid,
                            const __grid_constant__ TensorView table,
                            const int32_t* ids, int64_t num_ids, float scale,
                            bool accumulate, CudaMatrix<float> y_rows,
                            unsigned chunks) {
  LetNextBegin();
  WaitForPrevious();
  const unsigned token = blockIdx.x / chunks;
  const unsigned i = blockIdx.x % chunks * kCudaMapThreads + threadIdx.x;
  if (i >= matrix.k) return;
  const int64_t id = ids[token] < num_ids ? ids[token] : 0;
  const auto* row = reinterpret_cast<const uint8_t*>(table.data) +
                    id * static_cast<int64_t>(table.row_stride_bytes);
  const auto elements = static_cast<unsigned>(matrix.block_elements);
  const unsigned number = i / elements;
  const uint8_t* block = row + int64_t{number} * matrix.block_bytes;
  const auto element = static_cast<int>(i - number * elements);
  const QuantScale group = QuantScaleOf(matrix.dtype, block, element);
  const int code = QuantCodeOf(matrix.dtype, block, element, grid.levels);
  const float value =
      fmaf(group.scale, QuantLevel(matrix.form, code), group.min);
  // The product is rounded before the sum, as on the CPU.
  const float scaled = __fmul_rn(value, scale);
  float* y = y_rows.row(token) + i;
  *y = accumulate ? *y + scaled : scaled;
}

}  // namespace

absl::Status RunEmbeddingBlocksCuda(const EmbeddingDesc& desc,
                                    const EmbeddingParams& params,
                                    Stream& stream) {
  const int64_t chunks = MapChunks(desc.width, 1);
  return LaunchCuda("embedding", CudaStream::Of(stream),
                    {params.y.rows() * chunks, kCudaMapThreads}, EmbedBlocks,
                    QuantMatrix(desc.table, desc.width),
                    QuantGridOf(desc.table), params.table, params.ids,
                    params.table.rows(), params.scale, params.accumulate,
                    CudaMatrix<float>(params.y), static_cast<unsigned>(chunks));
}

}  // namespace inlay
