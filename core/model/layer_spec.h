// What every part of a decoder consists of, as plain data: norms and linear
// layers by the names of their tensors.
#ifndef INLAY_CORE_MODEL_LAYER_SPEC_H_
#define INLAY_CORE_MODEL_LAYER_SPEC_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace inlay {

enum class NormKind : uint8_t {
  kNone,
  kRms,
  kRmsZeroCentred,  // the weight is stored without its 1 (Gemma)
  kLayer,           // has a bias too
  kLayerNoBias,
  kLayerZeroCentred,  // kLayer, stored like kRmsZeroCentred (Nemotron)
};

constexpr bool IsLayerNorm(NormKind kind) {
  return kind == NormKind::kLayer || kind == NormKind::kLayerNoBias ||
         kind == NormKind::kLayerZeroCentred;
}

constexpr bool IsZeroCentred(NormKind kind) {
  return kind == NormKind::kRmsZeroCentred ||
         kind == NormKind::kLayerZeroCentred;
}

// What is made of stored numbers w and a scale s that belongs to them (nGPT's
// learned factors): w, w s, (w s)^2, |w s| or 1 - |w s|.
enum class WeightMap : uint8_t { kNone, kScaled, kSquare, kSize, kRest };

// Tensor NAME of numbers, one a channel, as `map` has them and times `factor`:
// what channels are multiplied by. Without a name: they are not.
struct ChannelSpec {
  std::string name;
  WeightMap map = WeightMap::kNone;
  float scale = 1.0f;
  float factor = 1.0f;
};

// Tensors NAME.weight and, where there is a bias, NAME.bias; without a name, of
// kRms and kLayerNoBias: none, every weight is 1.
struct NormSpec {
  NormKind kind = NormKind::kNone;
  std::string name;
  float epsilon = 0.0f;
  std::string_view suffix = ".weight";  // "": the tensor is NAME itself
  // > 0, of kLayerNoBias and of heads: NAME.weight is [heads, width], a row of
  // weights for each head.
  int heads = 0;
  bool heads_apart = false;  // NAME.N.weight [width] of each head N instead
  float factor = 1.0f;       // of kRms: of what it gives
  // Of kRms: what weights are made of, and what belongs to them.
  WeightMap map = WeightMap::kNone;
  float scale = 1.0f;
};

// Tensors NAME.weight [n, k] (or [k, n] when transposed) and NAME.bias [n].
struct LinearSpec {
  std::string name;
  int64_t n = 0;
  int64_t k = 0;
  bool bias = false;
  bool transposed = false;              // stored input by output (GPT-2)
  std::string_view suffix = ".weight";  // "": the tensor is NAME itself
};

}  // namespace inlay

#endif  // INLAY_CORE_MODEL_LAYER_SPEC_H_
