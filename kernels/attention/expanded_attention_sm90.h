// expanded_attention on Hopper: round by round and turn by turn, heads' keys
// and values into the workspace (latent_expand_sm90.cu), then the plan's tiles
// over them: attention_tiles_sm90.h, compiled for keys and values of different
// lengths. The keys' rotated columns, which all heads share, come from the
// cache. The expanded_attention_d*_sm90.cu each compile it for one of
// kExpandedDims.
#ifndef INLAY_KERNELS_ATTENTION_EXPANDED_ATTENTION_SM90_H_
#define INLAY_KERNELS_ATTENTION_EXPANDED_ATTENTION_SM90_H_

#include <algorithm>

#include "kernels/attention/attention_expand.h"
#include "kernels/attention/attention_tiles_sm90.h"
#include "kernels/attention/expanded_attention.h"
#include "kernels/attention/latent_expand_sm90.h"
#include "kernels/cuda_tensor_map.h"

namespace inlay {

// By kExpandedDims.
absl::Status RunExpandedD192V128(const ExpandedAttentionDesc& desc,
                                 const ExpandedAttentionParams& params,
                                 CudaStream& stream);
absl::Status RunExpandedD256V256(const ExpandedAttentionDesc& desc,
                                 const ExpandedAttentionParams& params,
                                 CudaStream& stream);
absl::Status RunExpandedD96V64(const ExpandedAttentionDesc& desc,
                               const ExpandedAttentionParams& params,
                               CudaStream& stream);

namespace expanded_sm90 {

// Heads' keys or values: [head][row][columns], a box is `box_rows` rows of a
// slab.
inline absl::StatusOr<CUtensorMap> ExpandedMap(DType dtype, std::byte* base,
                                               int64_t rows, int heads,
                                               int columns, int box_rows) {
  const int64_t row_bytes = int64_t{2} * columns;
  return EncodeTensorMap(
      "expanded latents", base,
      dtype == DType::kF16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                           : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
      CU_TENSOR_MAP_SWIZZLE_128B,
      {3,
       {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows),
        static_cast<cuuint64_t>(heads)},
       {static_cast<cuuint64_t>(row_bytes),
        static_cast<cuuint64_t>(rows * row_bytes)},
       {kSlabColumns, static_cast<cuuint32_t>(box_rows), 1}});
}

inline HeadMatrices From(const HeadMatrices& matrices, int head) {
  return {matrices.base + static_cast<size_t>(head) * matrices.stride_bytes,
          matrices.stride_bytes};
}

// `round` for `heads` heads from `first` on.
template <ExpandedDims dims>
class Turn {
 public:
  static constexpr int kHeadDim = dims.key_dim + dims.rope_dim;
  static constexpr int kValueDim = dims.value_dim;
  static constexpr int kRopeDim = dims.rope_dim;
  using S = tiles_sm90::Shape<kHeadDim, kValueDim, kRopeDim>;
  static_assert(S::kRows == kExpandedTileTokens && S::kStages >= 2);

  Turn(const ExpandedAttentionDesc& desc, const ExpandedAttentionParams& params,
       const AttentionUnpackRound& round, int first, int heads)
      : desc_(desc),
        params_(params),
        round_(round),
        first_(first),
        heads_(heads),
        rows_(int64_t{round.num_blocks} * desc.block_size),
        keys_(static_cast<std::byte*>(params.workspace)),
        values_(keys_ + heads * rows_ * 2 * dims.key_dim) {}

  absl::Status Expand(CudaStream& stream) const {
    const AttentionPlan& plan = *params_.plan;
    LatentExpansion expansion;
    expansion.kv = params_.kv;
    expansion.dtype = desc_.activation;
    expansion.blocks =
        reinterpret_cast<const int32_t*>(plan.device + plan.layout.blocks) +
        round_.first_block;
    expansion.num_blocks = round_.num_blocks;
    expansion.dims = dims;
    expansion.keys = From(params_.keys, first_);
    expansion.values = From(params_.values, first_);
    expansion.heads = heads_;
    expansion.expanded_keys = keys_;
    expansion.expanded_values = values_;
    return LaunchLatentExpand(expansion, stream);
  }

  // The tiles of the round, as if each head were a KV head.
  absl::Status RunTiles(CudaStream& stream) const {
    AttentionPlan plan;
    plan.shape = params_.plan->shape;
    plan.shape.group = 1;
    plan.layout = params_.plan->layout;
    plan.layout.tiles +=
        static_cast<size_t>(round_.first_tile) * sizeof(AttentionTile);
    plan.num_tiles = round_.num_tiles;
    plan.device = params_.plan->device;
    AttentionDesc desc;
    desc.num_heads = desc.num_kv_heads = heads_;
    desc.head_dim = kHeadDim;
    desc.kv = desc.activation = desc_.activation;
    desc.scale = desc_.scale;
    AttentionParams params;
    params.q = params_.q;
    params.q.data += int64_t{first_} * 2 * kHeadDim;
    params.out = params_.out;
    params.out.data += int64_t{first_} * 2 * kValueDim;
    params.kv = params_.kv;
    params.plan = &plan;
    return desc.activation == DType::kF16
               ? LaunchOf<__half>(desc, params, stream)
               : LaunchOf<__nv_bfloat16>(desc, params, stream);
  }

 private:
  template <typename T>
  absl::Status LaunchOf(const AttentionDesc& desc,
                        const AttentionParams& params,
                        CudaStream& stream) const {
    const int box_rows = BoxRows(params.kv.block_size, S::kKeys);
    tiles_sm90::ExpandedMaps maps;
    INLAY_ASSIGN_OR_RETURN(const KvTensorMaps cache,
                           MakeKvTensorMaps(params.kv, box_rows));
    maps.cache = cache.k;
    maps.cache_column = dims.rank;
    INLAY_ASSIGN_OR_RETURN(
        maps.q, MakeQueryTensorMap(params.q, desc, kExpandedTileTokens));
    INLAY_ASSIGN_OR_RETURN(maps.k, ExpandedMap(desc.kv, keys_, rows_, heads_,
                                               dims.key_dim, S::kKeys));
    INLAY_ASSIGN_OR_RETURN(maps.v, ExpandedMap(desc.kv, values_, rows_, heads_,
                                               kValueDim, S::kKeys));
    constexpr int kBytes =
        tiles_sm90::SharedBytes<kHeadDim, kValueDim, kRopeDim>();
    static_assert(kBytes <= tiles_sm90::kSharedMost);
    const int grid = std::min(stream.num_sms(), round_.num_tiles * heads_);
    return LaunchCuda(
        "attention (expanded)", stream,
        {grid, S::kThreads, static_cast<size_t>(kBytes)},
        tiles_sm90::AttentionTiles<T, kHeadDim, false, kValueDim, kRopeDim>,
        tiles_sm90::MakeTileArgs(desc, params, box_rows), maps,
        tiles_sm90::MakeTileMask(params));
  }

  const ExpandedAttentionDesc& desc_;
  const ExpandedAttentionParams& params_;
  const AttentionUnpackRound& round_;
  int first_;
  int heads_;
  int64_t rows_;
  std::byte* keys_;
  std::byte* values_;
};

template <ExpandedDims dims>
absl::Status Run(const ExpandedAttentionDesc& desc,
                 const ExpandedAttentionParams& params, CudaStream& stream) {
  const AttentionPlan& plan = *params.plan;
  for (const AttentionUnpackRound& round : plan.rounds) {
    for (int first = 0; first < desc.num_heads; first += round.heads) {
      const Turn<dims> turn(desc, params, round, first,
                            std::min(round.heads, desc.num_heads - first));
      INLAY_RETURN_IF_ERROR(turn.Expand(stream));
      INLAY_RETURN_IF_ERROR(turn.RunTiles(stream));
    }
  }
  return absl::OkStatus();
}

}  // namespace expanded_sm90
}  // namespace inlay

#endif  // INLAY_KERNELS_ATTENTION_EXPANDED_ATTENTION_SM90_H_
