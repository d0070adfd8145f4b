// Any bytes as a JSON document {"quantization_config": .., "model_type": ..,
// "tensors": {NAME:
// {"dtype": .., "shape": [..], "bytes": [..]}}} (a tensor's bytes repeat to its
// size): no crash, and what opens keeps its promises and can be read.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "core/formats/expert_source.h"
#include "core/formats/quantized_source.h"
#include "core/json/json.h"
#include "tests/support/memory_weights.h"

namespace {

constexpr uint64_t kMaxTensorBytes = 1 << 18;
constexpr size_t kMaxTensors = 16;

void Require(bool holds) {
  if (!holds) abort();
}

// What a reader of files accepts: dense sizes, checked.
void Add(const std::string& name, const inlay::Json& tensor,
         inlay::MemoryWeights& weights) {
  const auto type = inlay::JsonString(tensor, "dtype", "i32");
  const auto dtype = type.ok() ? inlay::DTypeFromName(*type) : std::nullopt;
  const inlay::Json* shape = inlay::JsonFind(tensor, "shape");
  if (!dtype.has_value() || shape == nullptr || !shape->is_array() ||
      inlay::GetFormatInfo(*dtype).block_elements != 1) {
    return;
  }
  std::vector<int64_t> dims;
  uint64_t bytes = inlay::RowBytes(*dtype, 1);
  for (const inlay::Json& dim : *shape) {
    if (!dim.is_number_unsigned() || dim > kMaxTensorBytes) return;
    dims.push_back(dim.get<int64_t>());
    bytes *= dim.get<uint64_t>();
    if (bytes > kMaxTensorBytes) return;
  }
  std::vector<uint8_t> data(bytes + 1, 0);
  const inlay::Json* pattern = inlay::JsonFind(tensor, "bytes");
  if (pattern != nullptr && pattern->is_array() && !pattern->empty()) {
    for (size_t i = 0; i < bytes; ++i) {
      const inlay::Json& value = (*pattern)[i % pattern->size()];
      if (!value.is_number_unsigned()) return;
      data[i] = static_cast<uint8_t>(value.get<uint64_t>());
    }
  }
  weights.Add(name, *dtype, dims, data.data());
}

void CheckSource(const inlay::WeightSource& source) {
  std::string_view last;
  for (const inlay::WeightInfo& info : source.weights()) {
    // The first may have an empty name.
    Require(&info == source.weights().data() || last < info.name);
    last = info.name;
    const auto& format = inlay::GetFormatInfo(info.dtype);
    if (format.block_elements > 1) {
      Require(info.shape.size() == 2 && info.shape[0] > 0 &&
              info.shape[1] > 0 && info.shape[1] % format.block_elements == 0);
      Require(
          info.bytes ==
          static_cast<uint64_t>(info.shape[0]) *
              inlay::RowBytes(info.dtype, static_cast<size_t>(info.shape[1])));
    }
    std::vector<std::byte> bytes(info.bytes);
    Require(source.Read(info, 0, absl::MakeSpan(bytes)).ok());
    std::vector<std::byte> part(info.bytes / 2);
    const uint64_t offset = info.bytes / 3;
    Require(source.Read(info, offset, absl::MakeSpan(part)).ok());
    Require(std::equal(part.begin(), part.end(),
                       bytes.begin() + static_cast<ptrdiff_t>(offset)));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto document =
      inlay::ParseJson({reinterpret_cast<const char*>(data), size}, "document");
  if (!document.ok()) return 0;
  const inlay::Json* config = inlay::JsonFind(*document, "quantization_config");
  const inlay::Json* tensors = inlay::JsonFind(*document, "tensors");
  if (config == nullptr || tensors == nullptr || !tensors->is_object() ||
      tensors->size() > kMaxTensors) {
    return 0;
  }
  const auto weights = std::make_shared<inlay::MemoryWeights>(size % 2 == 0);
  for (const auto& [name, tensor] : tensors->items()) {
    if (tensor.is_object()) Add(name, tensor, *weights);
  }
  const auto experts = inlay::PresentExperts(*document, weights);
  if (!experts.ok()) return 0;
  CheckSource(**experts);
  const auto source = inlay::OpenQuantized(*config, *experts);
  if (source.ok()) CheckSource(**source);
  return 0;
}
