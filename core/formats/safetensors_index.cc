#include "core/formats/safetensors_index.h"

#include "core/formats/describe.h"
#include "core/json/json.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

// The largest published indexes have some 10 MB and under 1000 files.
constexpr JsonLimits kIndexLimits = {.max_bytes = size_t{64} << 20,
                                     .max_depth = 16};
constexpr size_t kMaxShards = 4096;

bool IsConfined(std::string_view name) {
  using std::string_view_literals::operator""sv;
  return !name.empty() && name.size() <= 255 &&
         name.find_first_of("/\\\0"sv) == std::string_view::npos &&
         name != "." && name.find("..") == std::string_view::npos;
}

}  // namespace

absl::StatusOr<SafetensorsShards> ParseSafetensorsIndex(std::string_view text,
                                                        std::string_view what) {
  INLAY_ASSIGN_OR_RETURN(const Json index, ParseJson(text, what, kIndexLimits));
  const Json* map = JsonFind(index, "weight_map");
  if (map == nullptr || !map->is_object()) {
    return absl::InvalidArgumentError(FormattedString(
        "%s: \"weight_map\" is %s, allowed: an object of tensor and file names",
        what, map == nullptr ? "missing" : map->type_name()));
  }
  SafetensorsShards shards;
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string()) {
      return absl::InvalidArgumentError(FormattedString(
          "%s: the file of tensor %s is of type %s, allowed: a string", what,
          Quoted(tensor), file.type_name()));
    }
    const std::string& name = file.get_ref<const std::string&>();
    if (!IsConfined(name)) {
      return absl::InvalidArgumentError(FormattedString(
          "%s: tensor %s is in the file %s, allowed: the name of a file in the "
          "same folder",
          what, Quoted(tensor), Quoted(name)));
    }
    shards[name].push_back(tensor);
    if (shards.size() > kMaxShards) {
      return absl::ResourceExhaustedError(FormattedString(
          "%s: more than the %d files allowed", what, kMaxShards));
    }
  }
  return shards;
}

}  // namespace inlay
