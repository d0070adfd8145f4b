#include "core/model/layers/latent_heads.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "kernels/cpu_float.h"
#include "kernels/quant/quant.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

// Where one head's matrices lie after each other.
constexpr size_t kAlignment = 64;

size_t Aligned(size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// Of one head: `key_dim` rows of keys, then its values' rows, in the file's
// format, become K^T and V as their kernels want them: in another format only
// where the file's is one of blocks.
struct HeadPacking {
  int64_t key_dim = 0;
  int64_t value_dim = 0;
  int64_t rank = 0;
  DType stored = DType::kF32;
  const BlockCodec* codec = nullptr;  // of blocks; null: plain floats
  DType keys = DType::kF32;           // what K^T becomes
  GemmDesc values;
  const WeightPacking<GemmDesc>* packing = nullptr;  // of values

  size_t row_bytes() const {
    return RowBytes(stored, static_cast<size_t>(rank));
  }
  size_t key_bytes() const {
    return Aligned(RowBytes(keys, static_cast<size_t>(key_dim * rank)));
  }
  size_t value_bytes() const {
    return Aligned(
        packing == nullptr
            ? RowBytes(values.weight, static_cast<size_t>(value_dim * rank))
            : packing->bytes(values));
  }
  size_t bytes() const { return key_bytes() + value_bytes(); }

  // Runs on several threads and allocates nothing.
  void Pack(const std::byte* rows, std::byte* head) const {
    for (int64_t i = 0; i < key_dim; ++i) {
      const std::byte* row = rows + static_cast<size_t>(i) * row_bytes();
      codec == nullptr ? TurnPlain(row, i, head) : TurnBlocks(row, i, head);
    }
    const std::byte* from = rows + static_cast<size_t>(key_dim) * row_bytes();
    std::byte* to = head + key_bytes();
    if (packing != nullptr) {
      packing->pack(values, from, 0, value_dim, to);
    } else if (values.weight == stored) {
      std::memcpy(to, from, static_cast<size_t>(value_dim) * row_bytes());
    } else {
      Decode(from, value_dim * rank, [&](int64_t at, float value) {
        StoreFloat(values.weight, to, at, value);
      });
    }
  }

  // Column `i` of K^T.
  void TurnPlain(const std::byte* row, int64_t i, std::byte* head) const {
    const size_t size = RowBytes(stored, 1);
    const size_t stride = RowBytes(stored, static_cast<size_t>(key_dim));
    std::byte* to = head + static_cast<size_t>(i) * size;
    for (int64_t j = 0; j < rank; ++j, row += size, to += stride) {
      std::memcpy(to, row, size);
    }
  }
  void TurnBlocks(const std::byte* row, int64_t i, std::byte* head) const {
    Decode(row, rank, [&](int64_t at, float value) {
      StoreFloat(keys, head, at * key_dim + i, value);
    });
  }
  // store(i, value) of `count` elements in blocks.
  template <typename Store>
  void Decode(const std::byte* from, int64_t count, const Store& store) const {
    const FormatInfo& format = GetFormatInfo(stored);
    float block[kMaxBlockElements];
    for (int64_t i = 0; i < count; i += format.block_elements) {
      codec->decode(from, 1, block);
      from += format.block_bytes;
      for (int e = 0; e < format.block_elements; ++e) store(i + e, block[e]);
    }
  }
};

// One head's rows of a tensor that holds either keys or values, as a kernel
// wants them.
struct HeadMatrix {
  GemmDesc desc;
  DType stored = DType::kF32;
  const BlockCodec* codec = nullptr;  // of blocks; null: plain floats
  const WeightPacking<GemmDesc>* packing = nullptr;

  size_t stored_bytes() const {
    return RowBytes(stored, static_cast<size_t>(desc.n * desc.k));
  }
  size_t bytes() const {
    return Aligned(
        packing == nullptr
            ? RowBytes(desc.weight, static_cast<size_t>(desc.n * desc.k))
            : packing->bytes(desc));
  }

  // Runs on several threads and allocates nothing.
  void Pack(const std::byte* from, std::byte* to) const {
    if (packing != nullptr) {
      packing->pack(desc, from, 0, desc.n, to);
    } else if (desc.weight == stored) {
      std::memcpy(to, from, stored_bytes());
    } else {
      const FormatInfo& format = GetFormatInfo(stored);
      float block[kMaxBlockElements];
      for (int64_t i = 0; i < desc.n * desc.k; i += format.block_elements) {
        codec->decode(from, 1, block);
        from += format.block_bytes;
        for (int e = 0; e < format.block_elements; ++e) {
          StoreFloat(desc.weight, to, i + e, block[e]);
        }
      }
    }
  }
};

}  // namespace

absl::StatusOr<LatentHeads> LatentHeads::Create(const LatentAttentionSpec& spec,
                                                ModelBuild& build) {
  if (build.weights.Has(spec.up_keys.name + ".weight")) {
    return CreateApart(spec, build);
  }
  const std::string name = spec.up.name + ".weight";
  if (build.weights.HasOrder(spec.up.name)) {
    return absl::UnimplementedError(FormattedString(
        "tensor \"%s\" has its inputs in another order (act order), allowed "
        "for latent attention: the order of the latent",
        name));
  }
  INLAY_ASSIGN_OR_RETURN(const DType stored,
                         build.weights.MatrixDType(name, spec.up.n, spec.up.k));
  LatentHeads heads;
  heads.on_cpu_ = build.on_cpu();
  INLAY_RETURN_IF_ERROR(heads.Choose(spec, stored, build));
  INLAY_RETURN_IF_ERROR(heads.Load(spec, stored, build));
  return heads;
}

absl::StatusOr<LatentHeads> LatentHeads::CreateApart(
    const LatentAttentionSpec& spec, ModelBuild& build) {
  LatentHeads heads;
  heads.on_cpu_ = build.on_cpu();
  INLAY_RETURN_IF_ERROR(LoadApart(spec, spec.up_keys, build, &heads.keys_));
  INLAY_RETURN_IF_ERROR(LoadApart(spec, spec.up_values, build, &heads.values_));
  return heads;
}

absl::Status LatentHeads::LoadApart(const LatentAttentionSpec& spec,
                                    const LinearSpec& layer, ModelBuild& build,
                                    Product* product) {
  const std::string name = layer.name + ".weight";
  INLAY_ASSIGN_OR_RETURN(const DType stored,
                         build.weights.MatrixDType(name, layer.n, layer.k));
  ExpertLinearDesc desc;
  desc.num_experts = desc.top_k = spec.num_heads;
  desc.row_a_slot = true;
  desc.gemm.activation = desc.gemm.output = build.activation;
  desc.gemm.batch_invariant = build.batch_invariant;
  desc.gemm.n = layer.n / spec.num_heads;
  desc.gemm.k = layer.k;
  const bool as_stored = build.on_cpu() || !IsBlockFormat(stored);
  desc.gemm.weight = as_stored ? stored : build.activation;
  INLAY_ASSIGN_OR_RETURN(
      product->op,
      build.kernels.Choose("expert_linear", ExpertLinearTable(), desc));
  const HeadMatrix head = {desc.gemm, stored, FindBlockCodec(stored),
                           ExpertPacking(*product->op.row, desc.gemm)};
  WeightLoader::Packing packing;
  packing.bytes = static_cast<size_t>(spec.num_heads) * head.bytes();
  packing.group = desc.gemm.n;
  packing.pack = [head](const std::byte* rows, int64_t first, int64_t count,
                        std::byte* packed) {
    for (int64_t i = 0; i < count / head.desc.n; ++i) {
      head.Pack(
          rows + static_cast<size_t>(i) * head.stored_bytes(),
          packed + static_cast<size_t>(first / head.desc.n + i) * head.bytes());
    }
  };
  INLAY_ASSIGN_OR_RETURN(
      const TensorView packed,
      build.weights.Packed({{name, layer.n}}, layer.k, packing));
  if (packed.empty()) return absl::OkStatus();  // planning
  if (!build.on_cpu()) {
    product->stacked.base = packed.data;
    product->stacked.stride_bytes = head.bytes();
    return absl::OkStatus();
  }
  for (int h = 0; h < spec.num_heads; ++h) {
    product->each.push_back(packed.data +
                            static_cast<size_t>(h) * head.bytes());
  }
  return absl::OkStatus();
}

absl::Status LatentHeads::Choose(const LatentAttentionSpec& spec, DType stored,
                                 const ModelBuild& build) {
  ExpertLinearDesc desc;
  desc.num_experts = desc.top_k = spec.num_heads;
  desc.row_a_slot = true;
  desc.gemm.activation = desc.gemm.output = build.activation;
  desc.gemm.batch_invariant = build.batch_invariant;
  desc.gemm.n = spec.value_dim;
  desc.gemm.k = spec.rank;
  const DType plain = !IsBlockFormat(stored) ? stored
                      : build.on_cpu()       ? DType::kF32
                                             : build.activation;
  desc.gemm.weight = build.on_cpu() ? stored : plain;
  INLAY_ASSIGN_OR_RETURN(
      values_.op,
      build.kernels.Choose("expert_linear", ExpertLinearTable(), desc));
  desc.gemm.n = spec.rank;
  desc.gemm.k = spec.key_dim;
  desc.gemm.weight = plain;
  INLAY_ASSIGN_OR_RETURN(
      keys_.op,
      build.kernels.Choose("expert_linear", ExpertLinearTable(), desc));
  // Plain floats lie as they are.
  INLAY_DCHECK(ExpertPacking(*keys_.op.row, desc.gemm) == nullptr);
  return absl::OkStatus();
}

absl::Status LatentHeads::Load(const LatentAttentionSpec& spec, DType stored,
                               ModelBuild& build) {
  HeadPacking head;
  head.key_dim = spec.key_dim;
  head.value_dim = spec.value_dim;
  head.rank = spec.rank;
  head.stored = stored;
  head.codec = FindBlockCodec(stored);
  head.keys = keys_.op.desc.gemm.weight;
  head.values = values_.op.desc.gemm;
  head.packing = ExpertPacking(*values_.op.row, head.values);
  const size_t bytes = head.bytes();
  const int64_t group = int64_t{spec.key_dim} + spec.value_dim;
  WeightLoader::Packing packing;
  packing.bytes = static_cast<size_t>(spec.num_heads) * bytes;
  packing.group = group;
  packing.pack = [head, bytes, group](const std::byte* rows, int64_t first,
                                      int64_t count, std::byte* packed) {
    const size_t head_rows = static_cast<size_t>(group) * head.row_bytes();
    for (int64_t i = 0; i < count / group; ++i) {
      head.Pack(rows + static_cast<size_t>(i) * head_rows,
                packed + static_cast<size_t>(first / group + i) * bytes);
    }
  };
  INLAY_ASSIGN_OR_RETURN(
      const TensorView packed,
      build.weights.Packed({{spec.up.name + ".weight", spec.up.n}}, spec.up.k,
                           packing));
  if (packed.empty()) return absl::OkStatus();  // planning
  if (!on_cpu_) {
    keys_.stacked.base = packed.data;
    values_.stacked.base = packed.data + head.key_bytes();
    keys_.stacked.stride_bytes = values_.stacked.stride_bytes = bytes;
    return absl::OkStatus();
  }
  for (int h = 0; h < spec.num_heads; ++h) {
    const std::byte* at = packed.data + static_cast<size_t>(h) * bytes;
    keys_.each.push_back(at);
    values_.each.push_back(at + head.key_bytes());
  }
  return absl::OkStatus();
}

LatentHeads::Slots LatentHeads::Place(Arena& arena, int64_t tokens) const {
  const int64_t heads = keys_.op.desc.num_experts;
  const auto take = [&](int64_t count) {
    return reinterpret_cast<int32_t*>(
        arena.Take(static_cast<size_t>(count) * sizeof(int32_t)));
  };
  Slots slots;
  slots.experts = take(tokens * heads);
  slots.offsets = take(heads + 1);
  slots.slots = take(tokens * heads);
  return slots;
}

size_t LatentHeads::ScratchBytes(int64_t tokens) const {
  if (!on_cpu_) return 0;
  Arena arena(nullptr);
  Place(arena, tokens);
  return arena.used();
}

size_t LatentHeads::KernelBytes(int64_t tokens) const {
  return std::max(keys_.op.WorkspaceBytes(tokens),
                  values_.op.WorkspaceBytes(tokens));
}

LatentHeads::Slots LatentHeads::List(std::byte* scratch, int32_t tokens) const {
  const int32_t heads = keys_.op.desc.num_experts;
  Arena arena(scratch);
  const Slots slots = Place(arena, tokens);
  for (int32_t h = 0; h < heads; ++h) {
    slots.offsets[h] = h * tokens;
    for (int32_t t = 0; t < tokens; ++t) {
      slots.experts[t * heads + h] = h;
      slots.slots[h * tokens + t] = t * heads + h;
    }
  }
  slots.offsets[heads] = heads * tokens;
  return slots;
}

absl::Status LatentHeads::Run(const Product& product, const TensorView& x,
                              const TensorView& y, std::byte* scratch,
                              const Step& step) const {
  const int32_t heads = product.op.desc.num_experts;
  Slots slots;
  if (on_cpu_) slots = List(scratch, static_cast<int32_t>(x.rows() / heads));
  ExpertLinearParams params;
  params.x = x;
  params.w = product.stacked;
  if (on_cpu_) params.w.each = product.each.data();
  params.experts = slots.experts;
  params.offsets = slots.offsets;
  params.slots = slots.slots;
  params.y = y;
  params.workspace = step.kernel_workspace;
  return product.op.Run(params, step.stream);
}

}  // namespace inlay
