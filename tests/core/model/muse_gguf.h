// What GGUF files of Muse Glimmer have besides: the scale of queries, as the
// weights of norms.
#ifndef INLAY_TESTS_CORE_MODEL_MUSE_GGUF_H_
#define INLAY_TESTS_CORE_MODEL_MUSE_GGUF_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/json/json.h"
#include "tests/support/gguf_from_published.h"

namespace inlay {

inline void AddMuseNorms(const Json& config,
                         std::vector<GgufTensorData>* tensors) {
  const auto width = config["head_dim"].get<size_t>();
  for (int i = 0; i < config["num_hidden_layers"].get<int>(); ++i) {
    for (const auto& [part, value] :
         {std::pair{"q", config["qk_scale_factor"].get<float>()},
          std::pair{"k", 1.0f}}) {
      const std::vector<float> weights(width, value);
      tensors->push_back(
          {"blk." + std::to_string(i) + ".attn_" + part + "_norm.weight",
           DType::kF32,
           {static_cast<int64_t>(width)},
           std::string(reinterpret_cast<const char*>(weights.data()),
                       width * sizeof(float))});
    }
  }
}

}  // namespace inlay

#endif  // INLAY_TESTS_CORE_MODEL_MUSE_GGUF_H_
