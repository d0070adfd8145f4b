// attention on Hopper, the host side: tensor maps for the copy engine, and
// which kernels a plan needs. No device code.
#include <algorithm>
#include <numeric>

#include "kernels/attention/attention_sm90.h"
#include "kernels/attention/attention_unpack.h"
#include "kernels/cuda_tensor_map.h"
#include "memory/device/cuda_stream.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

absl::StatusOr<CUtensorMap> Encode(DType dtype, void* base,
                                   const TensorBoxes& boxes) {
  return EncodeTensorMap("the KV cache", base,
                         dtype == DType::kF16
                             ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                             : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                         CU_TENSOR_MAP_SWIZZLE_128B, boxes);
}

absl::Status LaunchItems(const AttentionDesc& desc,
                         const AttentionParams& params, CudaStream& stream) {
  const bool selects = desc.selects > 0;
  switch (desc.kv) {
    case DType::kI8:
      return selects ? LaunchAttentionSelectedI8(desc, params, stream)
                     : LaunchAttentionItemsI8(desc, params, stream);
    case DType::kF8E4M3:
      return selects ? LaunchAttentionSelectedF8(desc, params, stream)
                     : LaunchAttentionItemsF8(desc, params, stream);
    default:
      return selects ? LaunchAttentionSelected16Bit(desc, params, stream)
                     : LaunchAttentionItems16Bit(desc, params, stream);
  }
}

absl::Status LaunchTiles(const AttentionDesc& desc,
                         const AttentionParams& params, CudaStream& stream) {
  switch (desc.head_dim) {
    case 64:
      return LaunchAttentionTilesD64(desc, params, stream);
    case 80:
      return LaunchAttentionTilesD80(desc, params, stream);
    case 96:
      return LaunchAttentionTilesD96(desc, params, stream);
    case 128:
      return LaunchAttentionTilesD128(desc, params, stream);
    case 192:
      return LaunchAttentionTilesD192(desc, params, stream);
    default:
      return LaunchAttentionTilesD256(desc, params, stream);
  }
}

// Where `blocks` blocks of `heads` of the cache's heads are unpacked: at the
// workspace's beginning.
KvLayerView UnpackedView(const AttentionDesc& desc,
                         const AttentionParams& params, int heads) {
  KvLayerView view;
  view.base = static_cast<std::byte*>(params.workspace);
  view.dtype = desc.activation;
  view.block_size = params.kv.block_size;
  view.num_kv_heads = heads;
  view.head_dim = desc.head_dim;
  view.v_offset_bytes = int64_t{2} * heads * view.block_size * desc.head_dim;
  view.block_stride_bytes = 2 * view.v_offset_bytes;
  return view;
}

// The tiles of `round` for `heads` KV heads from `first` on, as if the model
// had no others and the cache were the unpacked one.
absl::Status LaunchUnpacked(const AttentionDesc& desc,
                            const AttentionParams& params,
                            const AttentionUnpackRound& round, int first,
                            int heads, CudaStream& stream) {
  const int group = desc.num_heads / desc.num_kv_heads;
  AttentionPlan plan;
  plan.shape = params.plan->shape;
  plan.layout = params.plan->layout;
  plan.layout.tiles +=
      static_cast<size_t>(round.first_tile) * sizeof(AttentionTile);
  plan.num_tiles = round.num_tiles;
  plan.masked = params.plan->masked;
  plan.device = params.plan->device;
  AttentionDesc part = desc;
  part.num_heads = heads * group;
  part.num_kv_heads = heads;
  part.kv = desc.activation;
  AttentionParams view = params;
  view.plan = &plan;
  view.kv = UnpackedView(desc, params, heads);
  const int64_t head_bytes = int64_t{2} * desc.head_dim;
  view.q.data += first * group * head_bytes;
  view.out.data += first * group * head_bytes;
  if (params.sinks != nullptr) view.sinks += first * group;
  if (params.alibi_slopes != nullptr) view.alibi_slopes += first * group;
  INLAY_RETURN_IF_ERROR(
      LaunchAttentionUnpack(params, round, first, view.kv, stream));
  return LaunchTiles(part, view, stream);
}

}  // namespace

int BoxRows(int block_size, int tile_keys) {
  return std::gcd(block_size, tile_keys);
}

absl::StatusOr<KvTensorMaps> MakeKvTensorMaps(const KvLayerView& kv,
                                              int box_rows) {
  const auto row_bytes =
      static_cast<uint64_t>(KvRowBytes(kv.dtype, kv.head_dim));
  const auto slots = static_cast<uint64_t>(kv.block_size);
  // The cache's end is not known here, nor needed: block tables stay within.
  const TensorBoxes boxes = {
      4,
      {static_cast<uint64_t>(kv.head_dim), slots,
       static_cast<uint64_t>(kv.num_kv_heads), uint64_t{1} << 31},
      {row_bytes, slots * row_bytes,
       static_cast<uint64_t>(kv.block_stride_bytes)},
      {kSlabColumns, static_cast<uint32_t>(box_rows), 1, 1}};
  KvTensorMaps maps;
  INLAY_ASSIGN_OR_RETURN(
      maps.k, Encode(kv.dtype, kv.base.base + kv.k_offset_bytes, boxes));
  INLAY_ASSIGN_OR_RETURN(
      maps.v, Encode(kv.dtype, kv.base.base + kv.v_offset_bytes, boxes));
  return maps;
}

absl::StatusOr<CUtensorMap> MakeQueryTensorMap(const TensorView& q,
                                               const AttentionDesc& desc,
                                               int box_tokens) {
  const auto head_bytes = 2 * static_cast<uint64_t>(desc.head_dim);
  return Encode(
      desc.activation, q.data,
      {3,
       {static_cast<uint64_t>(desc.head_dim),
        static_cast<uint64_t>(desc.num_heads), static_cast<uint64_t>(q.rows())},
       {head_bytes, q.row_stride_bytes},
       {kSlabColumns, static_cast<uint32_t>(desc.num_heads / desc.num_kv_heads),
        static_cast<uint32_t>(box_tokens)}});
}

absl::Status RunAttentionCudaSm90(const AttentionDesc& desc,
                                  const AttentionParams& params,
                                  Stream& stream) {
  if (params.kv.block_size % 16 != 0) {
    return absl::InvalidArgumentError(FormattedString(
        "attention: block_size is %d; expected a multiple of 16",
        params.kv.block_size));
  }
  CudaStream& cuda = CudaStream::Of(stream);
  const AttentionPlan& plan = *params.plan;
  if (plan.run_items) {
    AttentionParams items = params;
    items.workspace =
        static_cast<std::byte*>(params.workspace) + plan.unpacked_bytes;
    INLAY_RETURN_IF_ERROR(LaunchItems(desc, items, cuda));
  }
  // A graph's pieces are launched whatever there is.
  if (plan.shape.piece_keys > 0 ||
      (plan.num_tiles > 0 && plan.shape.unpack_bytes == 0)) {
    return LaunchTiles(desc, params, cuda);
  }
  for (const AttentionUnpackRound& round : plan.rounds) {
    const int heads = UnpackedHeads(plan.shape, round.num_blocks);
    for (int first = 0; first < desc.num_kv_heads; first += heads) {
      INLAY_RETURN_IF_ERROR(
          LaunchUnpacked(desc, params, round, first,
                         std::min(heads, desc.num_kv_heads - first), cuda));
    }
  }
  return absl::OkStatus();
}

}  // namespace inlay
