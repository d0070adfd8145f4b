// The JSON of a safetensors header as a list of entries, with the structure
// checked and nothing else. It is read as a stream of events: a document tree
// would drop duplicate keys silently and cost many times the text.
#ifndef INLAY_CORE_FORMATS_SAFETENSORS_JSON_H_
#define INLAY_CORE_FORMATS_SAFETENSORS_JSON_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace inlay {

struct SafetensorsEntry {
  std::string name;
  std::string dtype;
  std::vector<uint64_t> shape;
  std::vector<uint64_t> data_offsets;  // two numbers
};

struct SafetensorsJsonLimits {
  size_t max_rank;
  size_t max_tensors;
};

// Entries in the order of the text; names may repeat. INVALID_ARGUMENT when the
// text is not one object of {dtype, shape, data_offsets} entries and at most
// one "__metadata__" map of strings; RESOURCE_EXHAUSTED above a limit.
absl::StatusOr<std::vector<SafetensorsEntry>> ParseSafetensorsJson(
    std::string_view json, const SafetensorsJsonLimits& limits);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_SAFETENSORS_JSON_H_
