// Any bytes as a safetensors file and as a model.safetensors.index.json: no
// crash, and what is accepted keeps the promises that callers rely on.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "core/formats/safetensors.h"
#include "core/formats/safetensors_index.h"

namespace {

void Require(bool holds) {
  if (!holds) abort();
}

void CheckTensors(const std::vector<inlay::SafetensorsTensor>& tensors,
                  uint64_t data_start, uint64_t file_bytes) {
  uint64_t total = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const inlay::SafetensorsTensor& tensor = tensors[i];
    Require(i == 0 || tensors[i - 1].info.name < tensor.info.name);
    Require(tensor.offset >= data_start && tensor.offset <= file_bytes);
    Require(tensor.info.bytes <= file_bytes - tensor.offset);
    Require(tensor.info.shape.size() <= inlay::kMaxSafetensorsRank);
    uint64_t bytes = inlay::RowBytes(tensor.info.dtype, 1);
    for (const int64_t dim : tensor.info.shape) {
      Require(dim >= 0);
      bytes *= static_cast<uint64_t>(dim);
    }
    Require(bytes == tensor.info.bytes);
    total += bytes;
  }
  Require(total == file_bytes - data_start);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::Span<const std::byte> bytes(
      reinterpret_cast<const std::byte*>(data), size);
  const auto tensors = inlay::ParseSafetensorsHeader(bytes, size);
  if (tensors.ok()) {
    CheckTensors(*tensors, *inlay::SafetensorsDataStart(bytes, size), size);
  }
  const auto shards = inlay::ParseSafetensorsIndex(
      {reinterpret_cast<const char*>(data), size}, "index");
  if (shards.ok()) {
    for (const auto& [file, names] : *shards) {
      Require(!file.empty() && !names.empty());
      Require(file.find('/') == file.npos && file.find("..") == file.npos);
    }
  }
  return 0;
}
