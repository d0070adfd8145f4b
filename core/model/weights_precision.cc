// WeightLoader: how much precision the values of a matrix need.
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/model/weights.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr uint64_t kPieces = 4;
constexpr uint64_t kPieceBytes = 4 << 10;

// bf16 has 8 bits of a number, wherever f16 has it: its range is wider.
bool FitsBf16(uint16_t f16) {
  const unsigned fraction = f16 & 0x3ff;
  if ((f16 & 0x7c00) != 0) return fraction % 8 == 0;
  return static_cast<int>(std::bit_width(fraction)) -
             std::countr_zero(fraction | 0x400) <=
         8;
}

}  // namespace

absl::StatusOr<bool> WeightLoader::FitsBf16(const std::string& name) const {
  const WeightInfo* info = Lookup(name);
  if (info == nullptr || files_.random || info->dtype != DType::kF16) {
    return false;
  }
  const uint64_t size = std::min(kPieceBytes, info->bytes);
  std::vector<uint16_t> piece(size / sizeof(uint16_t));
  for (uint64_t i = 0; i < kPieces; ++i) {
    const uint64_t at = (info->bytes - size) * i / (kPieces - 1) / 2 * 2;
    INLAY_RETURN_IF_ERROR(files_.weights->Read(
        *info, at,
        absl::MakeSpan(reinterpret_cast<std::byte*>(piece.data()), size)));
    if (!std::all_of(piece.begin(), piece.end(), inlay::FitsBf16)) return false;
  }
  return true;
}

}  // namespace inlay
