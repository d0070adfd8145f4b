#include "core/formats/group_source.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "core/formats/describe.h"
#include "core/formats/sliced_source.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr std::string_view kLayer = ".wo_a";
constexpr std::string_view kWeight = ".weight";

absl::Status AddGroups(const WeightInfo& info, int64_t groups,
                       std::vector<SlicedTensor>* tensors) {
  if (info.shape.size() != 2 || info.bytes == 0 ||
      info.shape[0] % groups != 0) {
    return absl::InvalidArgumentError(FormattedString(
        "tensor %s has shape [%s]; its rows must be a multiple of %d groups",
        Quoted(info.name), absl::StrJoin(info.shape, ", "), groups));
  }
  const int64_t rows = info.shape[0] / groups;
  const std::string layer =
      info.name.substr(0, info.name.size() - kWeight.size());
  for (int64_t g = 0; g < groups; ++g) {
    SlicedTensor& tensor = tensors->emplace_back();
    tensor.info = info;
    tensor.info.name = FormattedString("%s.%d%s", layer, g, kWeight);
    tensor.info.shape[0] = rows;
    tensor.info.bytes = info.bytes / static_cast<uint64_t>(groups);
    tensor.is_slice = true;
    tensor.slice.stored = &info;
    tensor.slice.first = g * rows;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::shared_ptr<const WeightSource>> PresentGroups(
    const Json& config, std::shared_ptr<const WeightSource> stored) {
  const Json* type = JsonFind(config, "model_type");
  if (type == nullptr || *type != "deepseek_v4") return stored;
  INLAY_ASSIGN_OR_RETURN(const int64_t groups,
                         JsonInt(config, "o_groups", 8, 1, int64_t{1} << 13));
  const std::string ending = std::string(kLayer) + std::string(kWeight);
  std::vector<SlicedTensor> tensors;
  bool any = false;
  for (const WeightInfo& info : stored->weights()) {
    if (!info.name.ends_with(ending)) {
      tensors.push_back({info});
      continue;
    }
    INLAY_RETURN_IF_ERROR(AddGroups(info, groups, &tensors));
    any = true;
  }
  if (!any) return stored;
  return MakeSlicedSource(std::move(stored), std::move(tensors));
}

}  // namespace inlay
