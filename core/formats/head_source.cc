#include "core/formats/head_source.h"

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

constexpr std::string_view kFused = "query_key_value";
constexpr std::string_view kParts[] = {"q_proj", "k_proj", "v_proj"};
constexpr int64_t kNumParts = 3;

// Where the part's name stands in "P.query_key_value.weight" or ".bias"; npos
// for other names.
size_t FindFused(std::string_view name) {
  for (const std::string_view suffix : {".weight", ".bias"}) {
    if (!name.ends_with(suffix)) continue;
    const std::string_view layer = name.substr(0, name.size() - suffix.size());
    if (layer.ends_with(kFused)) return layer.size() - kFused.size();
  }
  return std::string_view::npos;
}

absl::Status AddParts(const WeightInfo& info, size_t at, int64_t heads,
                      std::vector<SlicedTensor>* tensors) {
  const bool is_shaped = info.shape.size() == 1 || info.shape.size() == 2;
  if (!is_shaped || info.bytes == 0 ||
      info.shape[0] % (kNumParts * heads) != 0) {
    return absl::InvalidArgumentError(FormattedString(
        "tensor %s has shape [%s]; its rows must be a multiple of three for "
        "each of %d heads",
        Quoted(info.name), absl::StrJoin(info.shape, ", "), heads));
  }
  const int64_t head_dim = info.shape[0] / (kNumParts * heads);
  for (int64_t part = 0; part < kNumParts; ++part) {
    SlicedTensor& tensor = tensors->emplace_back();
    tensor.info = info;
    tensor.info.name.replace(at, kFused.size(), kParts[part]);
    tensor.info.shape[0] = heads * head_dim;
    tensor.info.bytes = info.bytes / kNumParts;
    tensor.is_slice = true;
    tensor.slice.stored = &info;
    tensor.slice.first = part * head_dim;
    tensor.slice.run = head_dim;
    tensor.slice.step = kNumParts * head_dim;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::shared_ptr<const WeightSource>> PresentHeads(
    const Json& config, std::shared_ptr<const WeightSource> stored) {
  const Json* type = JsonFind(config, "model_type");
  if (type == nullptr || *type != "gpt_neox") return stored;
  INLAY_ASSIGN_OR_RETURN(
      const int64_t heads,
      JsonInt(config, "num_attention_heads", 64, 1, int64_t{1} << 20));
  std::vector<SlicedTensor> tensors;
  bool any = false;
  for (const WeightInfo& info : stored->weights()) {
    const size_t at = FindFused(info.name);
    if (at == std::string_view::npos) {
      tensors.push_back({info});
      continue;
    }
    INLAY_RETURN_IF_ERROR(AddParts(info, at, heads, &tensors));
    any = true;
  }
  if (!any) return stored;
  return MakeSlicedSource(std::move(stored), std::move(tensors));
}

}  // namespace inlay
