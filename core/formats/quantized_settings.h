// What the methods' settings have in common: typed readings whose errors name
// the file, the key, what it is, what is supported. Owns nothing.
#ifndef INLAY_CORE_FORMATS_QUANTIZED_SETTINGS_H_
#define INLAY_CORE_FORMATS_QUANTIZED_SETTINGS_H_

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/json/json.h"

namespace inlay {

// Where settings stand, as errors name it.
inline constexpr std::string_view kConfigSettings =
    "config.json: quantization_config";
inline constexpr std::string_view kModelOptSettings =
    "hf_quant_config.json: quantization";

// One scale for each rows x columns of a weight (the last ones may be cut): a
// whole tensor, a channel, a group or a block.
struct ScaleGrid {
  int64_t rows = 1;
  int64_t columns = 1;

  bool operator==(const ScaleGrid&) const = default;
};

// UNIMPLEMENTED: PLACE's KEY is GOT; supported: ALLOWED.
absl::Status UnsupportedSetting(std::string_view key, std::string_view got,
                                std::string_view allowed,
                                std::string_view place = kConfigSettings);
// INVALID_ARGUMENT likewise.
absl::Status BadSetting(std::string_view key, const Json& got,
                        std::string_view allowed,
                        std::string_view place = kConfigSettings);
// "group_size": -1 is all columns, given as kMaxQuantizedColumns.
absl::StatusOr<int64_t> GroupSizeSetting(
    const Json& config, int64_t fallback,
    std::string_view place = kConfigSettings);
// [rows, columns].
absl::StatusOr<ScaleGrid> BlockSetting(std::string_view key, const Json& block);
// A list of strings, or absent.
absl::Status CheckNames(const Json& config, std::string_view key,
                        std::string_view place = kConfigSettings);

// Whether weights are rounded, as all methods do; checkpoints of ModelOpt and
// compressed-tensors may round their KV cache alone. `config`: as it stands,
// with its quant_method.
bool RoundsWeights(const Json& config);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_QUANTIZED_SETTINGS_H_
