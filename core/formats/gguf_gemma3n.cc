#include "core/formats/gguf_gemma3n.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/formats/gguf_gemma.h"
#include "core/formats/normal_quantile.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr char kSparsity[] = "activation_sparsity_scale";
constexpr char kPattern[] = "activation_sparsity_pattern";
constexpr char kShared[] = "attention.shared_kv_layers";
// Where files do not say.
constexpr int64_t kLayersWithKv = 20;
constexpr size_t kSparseLayers = 10;
constexpr double kUsualSparsity = 0.95;
// config.json's sparsities end before.
constexpr float kMostDeviations = 4.75f;

absl::Status ReadSparsity(const GgufFiles& files, const GgufArchKeys& keys,
                          int64_t layers, Json* config) {
  const std::string key = keys.Name(kSparsity);
  const GgufValue* value = files.header().Find(key);
  if (value == nullptr) return absl::OkStatus();
  if (!value->is_array || value->type != GgufType::kF32 ||
      value->count != static_cast<uint64_t>(layers)) {
    return absl::InvalidArgumentError(FormattedString(
        "%s: %d values of type %s, allowed: an f32 for each of %d layers", key,
        value->count, GgufTypeName(value->type), layers));
  }
  // Infinities are meant.
  std::vector<float> found(static_cast<size_t>(value->count));
  std::memcpy(found.data(), value->data.data(), found.size() * sizeof(float));
  Json parts = Json::array();
  for (const float deviations : found) {
    if (std::isnan(deviations) || deviations > kMostDeviations) {
      return absl::InvalidArgumentError(
          FormattedString("%s is %g, allowed: at most %g, or -inf for none",
                          key, deviations, kMostDeviations));
    }
    parts.push_back(NormalBelow(deviations));
  }
  (*config)[kPattern] = std::move(parts);
  return absl::OkStatus();
}

absl::Status ReadSizes(const GgufFiles& files, const GgufArchKeys& keys,
                       const GgufSizes& sizes, Json* config) {
  constexpr char kInner[] = "feed_forward_length";
  constexpr char kWidth[] = "embedding_length_per_layer_input";
  INLAY_ASSIGN_OR_RETURN((*config)["intermediate_size"],
                         keys.LayerInts(kInner, sizes.layers, 1, kMaxGgufSize));
  INLAY_ASSIGN_OR_RETURN(
      (*config)["hidden_size_per_layer_input"],
      keys.Required(kWidth, keys.Int(kWidth, 1, kMaxGgufSize)));
  for (const auto& [tensor, key] :
       {std::pair{"per_layer_token_embd.weight", "vocab_size_per_layer_input"},
        std::pair{"blk.0.laurel_l.weight", "laurel_rank"}}) {
    const GgufTensor* found = files.FindTensor(tensor);
    if (found == nullptr || found->info.shape.size() != 2) {
      return absl::InvalidArgumentError(
          FormattedString("tensor \"%s\" is missing or no matrix", tensor));
    }
    (*config)[key] = found->info.shape[0];
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadGgufGemma3n(const GgufFiles& files, const GgufArchKeys& keys,
                             const GgufSizes& sizes, Json* config) {
  constexpr char kWindow[] = "attention.sliding_window";
  INLAY_ASSIGN_OR_RETURN(
      (*config)["sliding_window"],
      keys.Required(kWindow, keys.Int(kWindow, 1, kMaxGgufSize)));
  INLAY_ASSIGN_OR_RETURN(const auto shared,
                         keys.Int(kShared, 0, sizes.layers - 1));
  (*config)["num_kv_shared_layers"] =
      shared.value_or(std::max<int64_t>(sizes.layers - kLayersWithKv, 0));
  for (const auto& [key, name] :
       {std::pair{"altup.num_inputs", "altup_num_inputs"},
        std::pair{"altup.active_idx", "altup_active_idx"}}) {
    INLAY_ASSIGN_OR_RETURN((*config)[name],
                           keys.Required(key, keys.Int(key, 0, 1 << 20)));
  }
  (*config)["altup_correct_scale"] =
      files.FindTensor("blk.0.altup_correct_scale.weight") != nullptr;
  for (const auto& [key, name] :
       {std::pair{"final_logit_softcapping", "final_logit_softcapping"},
        std::pair{"rope.freq_base_swa", "rope_local_base_freq"}}) {
    INLAY_RETURN_IF_ERROR(keys.CopyNumber(key, name, config));
  }
  INLAY_RETURN_IF_ERROR(ReadSizes(files, keys, sizes, config));
  INLAY_RETURN_IF_ERROR(ReadSparsity(files, keys, sizes.layers, config));
  return ReadGgufPattern(keys, sizes.layers, false, config);
}

absl::Status SetGgufGemma3n(GgufKeyWriter& keys) {
  const Json& config = keys.config();
  INLAY_RETURN_IF_ERROR(keys.Expect("attention_bias", false));
  // Files without these have the family's.
  for (const char* key : {"final_logit_softcapping", "sliding_window"}) {
    if (keys.IsNull(key)) return keys.NotSaid(key, Json());
  }
  INLAY_ASSIGN_OR_RETURN(const int64_t count, keys.Size("num_hidden_layers"));
  const auto layers = static_cast<size_t>(count);
  for (const auto& [from, to, fallback] :
       {std::tuple{"hidden_size_per_layer_input",
                   "embedding_length_per_layer_input", int64_t{256}},
        std::tuple{"sliding_window", "attention.sliding_window", int64_t{512}},
        std::tuple{"altup_num_inputs", "altup.num_inputs", int64_t{4}}}) {
    INLAY_RETURN_IF_ERROR(keys.CopySize(from, to, fallback).status());
  }
  for (const auto& [from, to, fallback] :
       {std::tuple{"altup_active_idx", "altup.active_idx", int64_t{0}},
        std::tuple{"num_kv_shared_layers", kShared, int64_t{15}}}) {
    INLAY_ASSIGN_OR_RETURN(const int64_t value,
                           JsonInt(config, from, fallback, 0, 1 << 20));
    INLAY_RETURN_IF_ERROR(keys.SetU32(to, value));
  }
  INLAY_RETURN_IF_ERROR(keys.CopyNumber("final_logit_softcapping",
                                        "final_logit_softcapping", 30.0));
  std::vector<bool> slides;
  const Json* types = JsonFind(config, "layer_types");
  const Json* sparsity = JsonFind(config, kPattern);
  std::vector<float> deviations;
  for (size_t i = 0; i < layers; ++i) {
    const bool listed = types != nullptr && i < types->size();
    slides.push_back(listed ? (*types)[i] == "sliding_attention"
                            : (i + 1) % 5 != 0);
    double part =
        layers > kSparseLayers && i < kSparseLayers ? kUsualSparsity : 0.0;
    if (sparsity != nullptr && i < sparsity->size() &&
        (*sparsity)[i].is_number()) {
      part = (*sparsity)[i].get<double>();
    }
    deviations.push_back(
        static_cast<float>(NormalQuantile(static_cast<float>(part))));
  }
  INLAY_RETURN_IF_ERROR(
      keys.writer().SetF32s(keys.Name(kSparsity), deviations));
  return keys.SetBools("attention.sliding_window_pattern", slides);
}

}  // namespace inlay
