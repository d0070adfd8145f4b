#include "kernels/attention/attention.h"

#include <cmath>
#include <limits>

#include "kernels/attention/attention_mask.h"
#include "kernels/cpu_float.h"
#include "kernels/validate.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {

absl::Status RunAttentionCpuSimd(const AttentionDesc& desc,
                                 const AttentionParams& params,
                                 Stream& stream);  // attention_cpu_simd.cc
absl::Status RunAttentionCpuScalar(const AttentionDesc& desc,
                                   const AttentionParams& params,
                                   Stream& stream);  // attention_cpu.cc

#if INLAY_HAS_CUDA
absl::Status RunAttentionCudaSm90(const AttentionDesc& desc,
                                  const AttentionParams& params,
                                  Stream& stream);  // attention_cuda_sm90.cu
absl::Status RunAttentionCudaLatent(
    const AttentionDesc& desc, const AttentionParams& params,
    Stream& stream);  // attention_latent_sm90.cu
absl::Status RunAttentionCudaMma(const AttentionDesc& desc,
                                 const AttentionParams& params,
                                 Stream& stream);  // attention_cuda_mma.cu
absl::Status RunAttentionCudaPlain(const AttentionDesc& desc,
                                   const AttentionParams& params,
                                   Stream& stream);  // attention_cuda_plain.cu
#endif

namespace {

bool BlocksFit(const AttentionDesc& desc) {
  return desc.mix.block > 0 && (desc.mix.block & (desc.mix.block - 1)) == 0 &&
         desc.selects % desc.mix.block == 0;
}

const char* CpuRefuses(const AttentionDesc& desc, const DeviceInfo&) {
  if (desc.activation != DType::kF32) return "activations must be f32";
  if (!IsKvFormat(desc.kv)) {
    return "the cache must be f32, f16, bf16, i8, f8_e4m3 or kv_q4";
  }
  if (desc.head_dim < 1 || desc.head_dim > kMaxAttentionHeadDim) {
    return "head_dim must be 1 to 576";
  }
  if (desc.value_dim < 0 || desc.value_dim > desc.head_dim) {
    return "value_dim must be 0 to head_dim";
  }
  if (desc.num_kv_heads < 1 || desc.num_heads < 1 ||
      desc.num_heads % desc.num_kv_heads != 0) {
    return "num_heads must be a multiple of num_kv_heads";
  }
  if (!desc.causal && desc.window > 0) return "a window needs causal";
  if (desc.selects > 0 && (!desc.causal || desc.window > 0)) {
    return "selected keys need causal order and no window";
  }
  if (!BlocksFit(desc)) return "blocks of selected keys must divide selects";
  return nullptr;
}

#if INLAY_HAS_CUDA
const char* PlainRefuses(const AttentionDesc& desc, const DeviceInfo& device) {
  if (!IsPlainFloat(desc.activation)) {
    return "activations must be f32, f16 or bf16";
  }
  if (desc.head_dim % 8 != 0 || desc.value_dim % 8 != 0 ||
      desc.out_dim() > kMaxCudaValueDim) {
    return "head_dim and value_dim must be multiples of 8, values' up to 512";
  }
  AttentionDesc rest = desc;
  rest.activation = DType::kF32;
  return CpuRefuses(rest, device);
}

// Rows that it copies at a time.
constexpr int kSm90SelectedBlock = 16;

// wgmma's code is for this one, and for none newer.
constexpr int kSm90 = 90;
constexpr const char* kNotSm90 = "written for compute capability 9.0";
constexpr const char* kNot16Bit = "activations must be f16 or bf16";
constexpr const char* kOtherCache =
    "the cache must be of the activations' type";

bool Is16Bit(DType dtype) {
  return dtype == DType::kF16 || dtype == DType::kBF16;
}

// Null where tiles are compiled for such heads.
const char* TilesRefuse(const AttentionDesc& desc) {
  switch (desc.head_dim) {
    case 64:
    case 80:
    case 96:
    case 128:
    case 192:
    case 256:
      break;
    default:
      return "head_dim must be 64, 80, 96, 128, 192 or 256";
  }
  return desc.value_dim > 0 ? "values must have rows of their own" : nullptr;
}

const char* Sm90Refuses(const AttentionDesc& desc, const DeviceInfo& device) {
  if (device.sm != kSm90) return kNotSm90;
  if (!Is16Bit(desc.activation)) return kNot16Bit;
  const bool bytes = desc.kv == DType::kI8 || desc.kv == DType::kF8E4M3;
  if (!bytes && desc.kv != desc.activation) {
    return "the cache must be i8, f8_e4m3 or of the activations' type";
  }
  if (desc.selects > 0 &&
      (desc.mix.row_tokens != 0 || desc.mix.block % kSm90SelectedBlock != 0)) {
    return "keys must not be selected, but in blocks of a multiple of 16";
  }
  if (desc.head_dim == 80 && bytes) {
    return "head_dim must not be 80 where the cache is i8 or f8";
  }
  if (const char* reason = TilesRefuse(desc)) return reason;
  return PlainRefuses(desc, device);
}

// Its items know no selections.
const char* MmaRefuses(const AttentionDesc& desc, const DeviceInfo& device) {
  if (!Is16Bit(desc.activation)) return kNot16Bit;
  if (desc.kv == DType::kI8) {
    const int dim = desc.head_dim;
    if (dim != 64 && dim != 96 && dim != 128) {
      return "head_dim must be 64, 96 or 128 where the cache is i8";
    }
  } else if (desc.kv != desc.activation) {
    return "the cache must be i8 or of the activations' type";
  }
  if (desc.selects > 0) return "keys must not be selected";
  if (const char* reason = TilesRefuse(desc)) return reason;
  return PlainRefuses(desc, device);
}

const char* LatentRefuses(const AttentionDesc& desc, const DeviceInfo& device) {
  if (device.sm != kSm90) return kNotSm90;
  if (!Is16Bit(desc.activation)) return kNot16Bit;
  if (desc.kv != desc.activation) return kOtherCache;
  if (desc.value_dim == 0) return "values must lie in their keys' rows";
  if (desc.head_dim % 16 != 0 || desc.value_dim % 16 != 0) {
    return "head_dim and value_dim must be multiples of 16";
  }
  return PlainRefuses(desc, device);
}
#endif

constexpr AttentionRow kRows[] = {
#if INLAY_HAS_CUDA
    {"cuda_sm90", DeviceKind::kCuda, 90, Sm90Refuses, nullptr,
     RunAttentionCudaSm90},
    {"cuda_latent", DeviceKind::kCuda, 90, LatentRefuses, nullptr,
     RunAttentionCudaLatent},
    {"cuda_mma", DeviceKind::kCuda, 80, MmaRefuses, nullptr,
     RunAttentionCudaMma},
    {"cuda_plain", DeviceKind::kCuda, 80, PlainRefuses, nullptr,
     RunAttentionCudaPlain},
#endif
    {"cpu_simd", DeviceKind::kCpu, 0, CpuRefuses, nullptr, RunAttentionCpuSimd},
    {"cpu_scalar", DeviceKind::kCpu, 0, CpuRefuses, nullptr,
     RunAttentionCpuScalar},
};

absl::Status CheckDesc(const AttentionDesc& desc) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  INLAY_RETURN_IF_ERROR(
      CheckRange("attention", "num_heads", desc.num_heads, 1, 1 << 16));
  INLAY_RETURN_IF_ERROR(CheckRange("attention", "num_kv_heads",
                                   desc.num_kv_heads, 1, desc.num_heads));
  INLAY_RETURN_IF_ERROR(CheckRange("attention", "head_dim", desc.head_dim, 1,
                                   kMaxAttentionHeadDim));
  INLAY_RETURN_IF_ERROR(
      CheckRange("attention", "value_dim", desc.value_dim, 0, desc.head_dim));
  INLAY_RETURN_IF_ERROR(
      CheckRange("attention", "window", desc.window, 0, kMost));
  INLAY_RETURN_IF_ERROR(
      CheckRange("attention", "selects", desc.selects, 0, kMost));
  if (desc.num_heads % desc.num_kv_heads != 0) {
    return absl::InvalidArgumentError(FormattedString(
        "attention: num_heads is %d; expected a multiple of num_kv_heads, %d",
        desc.num_heads, desc.num_kv_heads));
  }
  if ((!desc.causal || desc.selects > 0) && desc.window > 0) {
    return absl::InvalidArgumentError(FormattedString(
        "attention: window is %d; expected 0 where not causal and where keys "
        "are selected",
        desc.window));
  }
  INLAY_RETURN_IF_ERROR(CheckRange("attention", "the window of selected keys",
                                   desc.mix.window, 0, desc.selects));
  INLAY_RETURN_IF_ERROR(
      CheckRange("attention", "tokens a row", desc.mix.row_tokens, 0, kMost));
  if (!desc.causal && desc.selects > 0) {
    return absl::InvalidArgumentError(FormattedString(
        "attention: selects is %d; expected 0 where not causal", desc.selects));
  }
  if (!BlocksFit(desc)) {
    return absl::InvalidArgumentError(FormattedString(
        "attention: selected blocks are of %d keys; expected a power of two "
        "that divides selects, %d",
        desc.mix.block, desc.selects));
  }
  if (!std::isfinite(desc.scale) || !std::isfinite(desc.softcap) ||
      desc.softcap < 0.0f) {
    return absl::InvalidArgumentError(FormattedString(
        "attention: scale is %g and softcap %g; expected finite, softcap >= 0",
        desc.scale, desc.softcap));
  }
  return absl::OkStatus();
}

absl::Status CheckCache(const AttentionDesc& desc, const KvLayerView& kv) {
  if (kv.dtype != desc.kv || kv.num_kv_heads != desc.num_kv_heads ||
      kv.head_dim != desc.head_dim) {
    return absl::InvalidArgumentError(FormattedString(
        "attention: the cache is %s, %d heads of %d; expected %s, %d of %d",
        DTypeName(kv.dtype), kv.num_kv_heads, kv.head_dim, DTypeName(desc.kv),
        desc.num_kv_heads, desc.head_dim));
  }
  INLAY_RETURN_IF_ERROR(CheckRange("attention", "the cache's value_dim",
                                   kv.value_dim, desc.value_dim,
                                   desc.value_dim));
  return CheckRange("attention", "block_size", kv.block_size, 1, 1 << 16);
}

absl::Status CheckMask(const AttentionMask* mask,
                       const AttentionSequence& sequence) {
  if (mask == nullptr) return absl::OkStatus();
  const int64_t end = int64_t{sequence.q_begin} + sequence.q_len;
  INLAY_RETURN_IF_ERROR(CheckRange("attention", "rows of the mask",
                                   static_cast<int64_t>(mask->rows.size()), end,
                                   std::numeric_limits<int32_t>::max()));
  for (int64_t i = sequence.q_begin; i < end; ++i) {
    INLAY_RETURN_IF_ERROR(CheckRange("attention", "the mask's last key",
                                     mask->rows[static_cast<size_t>(i)].end, 0,
                                     sequence.kv_len));
  }
  return absl::OkStatus();
}

absl::Status CheckSelection(const AttentionDesc& desc,
                            const AttentionParams& params) {
  if (desc.selects == 0) return absl::OkStatus();
  if (params.kv.block_size % desc.mix.block != 0) {
    return absl::InvalidArgumentError(FormattedString(
        "attention: the cache's block_size is %d; expected a multiple of "
        "the selected blocks' %d",
        params.kv.block_size, desc.mix.block));
  }
  if (params.mask != nullptr || params.alibi_slopes != nullptr) {
    return absl::InvalidArgumentError(
        "attention: a mask or ALiBi where keys are selected");
  }
  if (params.selection == nullptr && params.q.rows() > 0) {
    return absl::InvalidArgumentError(
        "attention: keys are selected, and there is no selection");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Span<const AttentionRow> AttentionTable() { return kRows; }

absl::Status ValidateAttention(const AttentionDesc& desc,
                               const AttentionParams& params) {
  INLAY_RETURN_IF_ERROR(CheckDesc(desc));
  INLAY_RETURN_IF_ERROR(CheckCache(desc, params.kv));
  const int64_t tokens = params.q.rows();
  const int64_t width = int64_t{desc.num_heads} * desc.head_dim;
  const int64_t out_width = int64_t{desc.num_heads} * desc.out_dim();
  INLAY_RETURN_IF_ERROR(
      CheckMatrix("attention", "q", params.q, tokens, width, desc.activation));
  INLAY_RETURN_IF_ERROR(CheckMatrix("attention", "out", params.out, tokens,
                                    out_width, desc.activation));
  if (Overlap(params.q, params.out)) {
    return absl::InvalidArgumentError("attention: out overlaps q");
  }
  INLAY_RETURN_IF_ERROR(CheckSelection(desc, params));
  for (const AttentionSequence& sequence : params.sequences) {
    INLAY_RETURN_IF_ERROR(
        CheckRange("attention", "q_begin", sequence.q_begin, 0, tokens));
    INLAY_RETURN_IF_ERROR(CheckRange("attention", "q_len", sequence.q_len, 0,
                                     tokens - sequence.q_begin));
    INLAY_RETURN_IF_ERROR(CheckRange("attention", "kv_len", sequence.kv_len,
                                     sequence.q_len,
                                     std::numeric_limits<int32_t>::max()));
    INLAY_RETURN_IF_ERROR(CheckMask(params.mask, sequence));
    if (sequence.kv_len > 0 &&
        ((sequence.blocks == nullptr && desc.selects == 0) ||
         params.kv.base.empty())) {
      return absl::InvalidArgumentError(
          "attention: a sequence with keys has no blocks");
    }
  }
  return absl::OkStatus();
}

}  // namespace inlay
