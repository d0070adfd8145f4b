#include "core/quantize/index_tables.h"

#include <cstdint>
#include <cstring>
#include <variant>

#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {

absl::StatusOr<std::vector<const WeightInfo*>> FindIndexTables(
    const DecoderSpec& spec, const WeightSource& source) {
  std::vector<const WeightInfo*> tables;
  for (const LayerSpec& layer : spec.layers) {
    for (const BlockSpec& block : layer.blocks) {
      const auto* moe = std::get_if<MoeSpec>(&block.part);
      if (moe == nullptr || !moe->routing.hashed) continue;
      const WeightInfo* table = source.Find(moe->table);
      if (table == nullptr) {
        return absl::NotFoundError(
            FormattedString("the weights have no tensor \"%s\"", moe->table));
      }
      tables.push_back(table);
    }
  }
  return tables;
}

absl::StatusOr<std::vector<std::byte>> ReadIndexTable(
    const WeightSource& source, const WeightInfo& table) {
  std::vector<std::byte> bytes(table.bytes);
  INLAY_RETURN_IF_ERROR(source.Read(table, 0, absl::MakeSpan(bytes)));
  if (table.dtype != DType::kI64) return bytes;
  const size_t count = bytes.size() / sizeof(int64_t);
  for (size_t i = 0; i < count; ++i) {
    int64_t wide;
    std::memcpy(&wide, bytes.data() + i * sizeof(wide), sizeof(wide));
    const auto narrow = static_cast<int32_t>(wide);
    std::memcpy(bytes.data() + i * sizeof(narrow), &narrow, sizeof(narrow));
  }
  bytes.resize(count * sizeof(int32_t));
  return bytes;
}

}  // namespace inlay
