#include <algorithm>

#include "kernels/gemm/gemm_parts.h"
#include "kernels/gemm/quantised/mma_shape.h"
#include "kernels/gemm/quantised/quantised_cuda.h"
#include "memory/status.h"

#if INLAY_HAS_CUDA

namespace inlay {
namespace {

// Of shared memory: what every GPU gives a block, and each of two.
constexpr int64_t kSharedMost = 99 * 1024 - 16;
constexpr int64_t kSharedOfTwo = 49 * 1024 - 16;
constexpr int kMostStages = 5;
// Fewer stages than that do not hide memory's latency behind one block.
constexpr int kEnoughStages = 3;

// Rows of x at a time.
int MostRows(const QuantForm& form) {
  return QuantCodeBytes(form.codes) < kQuantRows * kQuantColumns ? 32 : 16;
}

QuantMmaShape ShapeOf(const GemmDesc& desc, const QuantForm& form, int m) {
  QuantMmaShape shape = {};
  shape.n = desc.n;
  shape.k = desc.k;
  shape.tile_bytes = QuantTileBytes(form, desc.k);
  shape.m = m;
  shape.x_tiles = m <= 8 ? 1 : m <= 16 ? 2 : 4;
  shape.tiles = static_cast<int>((desc.n + kQuantRows - 1) / kQuantRows);
  shape.units = static_cast<int>(QuantUnits(desc.k));
  shape.unit_bytes = QuantUnitBytes(form);
  shape.w_bytes = 2 * shape.unit_bytes;
  shape.stage_bytes = kQuantMmaWarps * (shape.w_bytes + m * kQuantMmaStride);
  int64_t stages = kSharedOfTwo / shape.stage_bytes;
  if (shape.x_tiles > 1 || stages < kEnoughStages) {
    stages = kSharedMost / shape.stage_bytes;
  }
  shape.stages = static_cast<int>(std::min<int64_t>(stages, kMostStages));
  shape.narrow = desc.output == desc.activation;
  return shape;
}

absl::Status Launch(const GemmParams& params, const QuantForm& form,
                    const QuantMmaShape& shape, CudaStream& stream) {
  switch (form.codes) {
    case QuantCodes::kLinear4:
      return LaunchMmaLinear4(params, form, shape, stream);
    case QuantCodes::kLinear6:
      return LaunchMmaLinear6(params, form, shape, stream);
    case QuantCodes::kTable4:
      return LaunchMmaTable4(params, form, shape, stream);
    case QuantCodes::kInt8:
      return LaunchMmaInt8(params, form, shape, stream);
    default:
      return LaunchMmaE4M3(params, form, shape, stream);
  }
}

}  // namespace

absl::Status RunQuantisedMma(const GemmDesc& desc, const GemmParams& params,
                             const QuantForm& form, CudaStream& stream) {
  const int64_t rows = params.x.rows();
  const int most = MostRows(form);
  for (int64_t first = 0; first < rows; first += most) {
    const int64_t count = std::min<int64_t>(most, rows - first);
    INLAY_RETURN_IF_ERROR(Launch(RowsOfCall(params, first, count), form,
                                 ShapeOf(desc, form, static_cast<int>(count)),
                                 stream));
  }
  return absl::OkStatus();
}

}  // namespace inlay

#endif  // INLAY_HAS_CUDA
