// expert_linear on Hopper with weights of 8 bits, x rounded to codes and many
// slots: x's rows as codes, those in the order of experts, then one launch of
// expert_codes_sm90.cu for all of them.
#if INLAY_HAS_CUDA

#include "kernels/moe/expert_codes.h"

#include <algorithm>

#include "kernels/cuda_tensor_map.h"
#include "kernels/gemm/rounded_input.h"
#include "kernels/moe/expert_linear_cuda.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr size_t kAlignment = 256;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Parts of the workspace, one after another.
struct Workspace {
  Workspace(const ExpertLinearDesc& desc, int64_t slots)
      : room(ExpertRowsRoom(slots, desc.num_experts)) {
    // Of whatever reach: it is known later.
    const int64_t scale_count =
        RoundingScales(RowRounding::kFp8Groups, room, desc.gemm.k);
    scales = After(0, room * desc.gemm.k);
    rounded = After(scales, scale_count * static_cast<int64_t>(sizeof(float)));
    bytes = rounded +
            RoundedInputBytes(desc.row_a_slot ? slots : slots / desc.top_k,
                              desc.gemm.k);
  }
  static size_t After(size_t at, int64_t bytes) {
    return (at + static_cast<size_t>(bytes) + kAlignment - 1) / kAlignment *
           kAlignment;
  }

  int64_t room;  // rows
  size_t scales, rounded, bytes;
};

absl::StatusOr<ExpertCodesMaps> MapsOf(const TensorView& x,
                                       const QuantForm& form,
                                       const ExpertCodesShape& shape) {
  ExpertCodesMaps maps;
  INLAY_ASSIGN_OR_RETURN(
      maps.x,
      EncodeTensorMap("codes of x", x.data, CU_TENSOR_MAP_DATA_TYPE_UINT8,
                      CU_TENSOR_MAP_SWIZZLE_128B,
                      {2,
                       {static_cast<cuuint64_t>(x.cols()),
                        static_cast<cuuint64_t>(x.rows())},
                       {x.row_stride_bytes},
                       {kQuantColumns, kExpertCodesStep}}));
  if (shape.table != nullptr) {
    maps.w = maps.x;  // not looked at
    return maps;
  }
  // Halves, since a box has at most 256 elements a side.
  const auto half = static_cast<cuuint32_t>(QuantUnitBytes(form) / 2);
  INLAY_ASSIGN_OR_RETURN(
      maps.w,
      EncodeTensorMap(
          "packed weights", const_cast<std::byte*>(shape.w) + kQuantHeadBytes,
          CU_TENSOR_MAP_DATA_TYPE_FLOAT64, CU_TENSOR_MAP_SWIZZLE_NONE,
          {3,
           {half / 8, static_cast<cuuint64_t>(2 * shape.units),
            static_cast<cuuint64_t>(shape.expert_tiles) *
                static_cast<cuuint64_t>(shape.num_experts)},
           {half, static_cast<cuuint64_t>(shape.tile_bytes)},
           {half / 8, 2, kExpertCodesTiles}}));
  return maps;
}

ExpertCodesShape ShapeOf(const ExpertLinearDesc& desc,
                         const ExpertLinearParams& params,
                         const QuantForm& form) {
  const GemmDesc& gemm = desc.gemm;
  ExpertCodesShape shape = {};
  shape.n = gemm.n;
  shape.tile_bytes = QuantTileBytes(form, gemm.k);
  shape.units = static_cast<int>(QuantUnits(gemm.k));
  shape.num_experts = desc.num_experts;
  shape.expert_tiles = static_cast<int>(params.w.stride_bytes /
                                        static_cast<size_t>(shape.tile_bytes));
  shape.blocks_n =
      static_cast<int>(CeilDiv(gemm.n, kExpertCodesTiles * kQuantRows));
  const size_t four = 4 * RowBytes(gemm.output, 1);
  shape.vectors = reinterpret_cast<uintptr_t>(params.y.data) % four == 0 &&
                  params.y.row_stride_bytes % four == 0;
  shape.offsets = params.offsets;
  shape.slots = params.slots;
  shape.w = params.w.base;
  shape.table = params.w.table;
  shape.bias = params.bias;
  shape.y = params.y;
  return shape;
}

}  // namespace

RowRounding ExpertCodesRounding(const ExpertLinearDesc& desc, int64_t slots) {
  if (ExpertRowsAreSome(desc, slots)) return RowRounding::kNone;
  const bool rows = desc.gemm.scale_reach == ScaleReach::kRow;
  if (desc.gemm.weight == DType::kI8_G128) {
    return rows ? RowRounding::kInt8Rows : RowRounding::kNone;
  }
  return rows ? RowRounding::kFp8Rows : RowRounding::kFp8Groups;
}

bool ExpertCodesTakes(const ExpertLinearParams& params) {
  if (params.slots == nullptr) return false;
  return params.x_scales != nullptr ||
         (params.x.row_stride_bytes % 16 == 0 &&
          reinterpret_cast<uintptr_t>(params.x.data) % 16 == 0);
}

size_t ExpertCodesBytes(const ExpertLinearDesc& desc, int64_t max_tokens) {
  const int64_t slots = max_tokens * desc.top_k;
  const size_t others = ExpertLinearGroupedBytes(desc, max_tokens);
  return ExpertRowsAreSome(desc, slots)
             ? others
             : std::max(others, Workspace(desc, slots).bytes);
}

absl::Status RunExpertCodes(const ExpertLinearDesc& desc,
                            const ExpertLinearParams& params,
                            CudaStream& stream) {
  const int64_t slots = params.y.rows();
  const RowRounding rounding = ExpertCodesRounding(desc, slots);
  const bool groups = rounding == RowRounding::kFp8Groups;
  const QuantForm form = QuantFormOf(desc.gemm.weight);
  const Workspace workspace(desc, slots);
  auto* base = static_cast<std::byte*>(params.workspace);
  GemmParams input;
  input.x = params.x;
  input.x_scales = params.x_scales;
  INLAY_ASSIGN_OR_RETURN(
      const RoundedRows x,
      RoundInput(desc.gemm, input, rounding, base + workspace.rounded, stream));
  const TensorView codes =
      MatrixView(base, RoundingDType(rounding), workspace.room, desc.gemm.k);
  auto* scales = reinterpret_cast<float*>(base + workspace.scales);
  INLAY_RETURN_IF_ERROR(
      GatherExpertCodes(desc, params, x, groups, codes, scales, stream));
  ExpertCodesShape shape = ShapeOf(desc, params, form);
  shape.x_scales = scales;
  shape.rows = workspace.room;
  // At most: how many rows each expert has only the device knows.
  const int64_t pieces =
      std::min(slots, slots / kExpertCodesColumns + desc.num_experts);
  const int64_t blocks =
      std::min<int64_t>(pieces * shape.blocks_n, std::max(1, stream.num_sms()));
  INLAY_ASSIGN_OR_RETURN(const ExpertCodesMaps maps,
                         MapsOf(codes, form, shape));
  return LaunchExpertCodes(maps, form.codes, groups, shape, blocks, stream);
}

}  // namespace inlay

#endif  // INLAY_HAS_CUDA
