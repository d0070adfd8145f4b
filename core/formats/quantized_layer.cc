#include "core/formats/quantized_layer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_join.h"
#include "core/formats/describe.h"
#include "core/formats/stored_tensor.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr int64_t kBlocks[] = {128, 32};  // preferred first
constexpr int64_t kMaxBlock = 128;
// Of codes staged at once.
constexpr int64_t kStagingBytes = int64_t{8} << 20;

absl::Status NoBlock(const std::string& layer, const std::string& group,
                     int64_t k) {
  return absl::UnimplementedError(FormattedString(
      "layer %s is quantised in groups of %s of its k = %d columns; supported "
      "are groups and k that are multiples of 32",
      Quoted(layer), group, k));
}

DType BlockDType(CodeKind kind, int64_t block) {
  const bool large = block == kMaxBlock;
  switch (kind) {
    case CodeKind::kU4:
      return large ? DType::kU4_G128 : DType::kU4_G32;
    case CodeKind::kI8:
      return large ? DType::kI8_G128 : DType::kI8_G32;
    case CodeKind::kNf4:
      return DType::kNF4;
    case CodeKind::kBnbFp4:
      return DType::kBNB_FP4;
    case CodeKind::kNvfp4:
      return DType::kNVFP4_F32;
    case CodeKind::kMxfp4:
      return DType::kMXFP4;
    case CodeKind::kFloat:
      return DType::kF32;
    case CodeKind::kF8:
      break;
  }
  return large ? DType::kF8_G128 : DType::kF8_G32;
}

std::byte* Put(float value, std::byte* dst) {
  std::memcpy(dst, &value, sizeof(value));
  return dst + sizeof(value);
}

float MinOf(const Band& band, size_t group) {
  if (!band.mins.empty()) return band.mins[group];
  // Not the product where the zero point is 0: it would give -0.
  const auto zero = static_cast<float>(band.zeros[group]);
  return zero == 0.0f ? 0.0f : -zero * band.scales[group];
}

std::byte* PutNibbles(const uint8_t* codes, int64_t count, std::byte* dst) {
  for (int64_t run = 0; run < count; run += 32) {
    for (int64_t i = 0; i < 16; ++i) {
      *dst++ = std::byte(codes[run + i] | codes[run + 16 + i] << 4);
    }
  }
  return dst;
}

}  // namespace

absl::StatusOr<Grouping> ContiguousGroups(const std::string& layer, int64_t k,
                                          int64_t group_size) {
  INLAY_DCHECK(k > 0 && group_size > 0);
  Grouping grouping;
  grouping.k = k;
  grouping.group_size = std::min(group_size, k);
  grouping.groups = (k - 1) / grouping.group_size + 1;
  for (const int64_t block : kBlocks) {
    if (k % block != 0 || grouping.group_size % block != 0) continue;
    grouping.block = block;
    return grouping;
  }
  return NoBlock(layer, FormattedString("%d", group_size), k);
}

absl::StatusOr<Grouping> IndexedGroups(const std::string& layer,
                                       absl::Span<const int32_t> index,
                                       int64_t groups) {
  const auto k = static_cast<int64_t>(index.size());
  // begins[g + 1] counts group g, then: where group g ends.
  std::vector<int64_t> begins(static_cast<size_t>(groups) + 1, 0);
  bool sorted = true;
  for (int64_t column = 0; column < k; ++column) {
    const int32_t group = index[column];
    if (group < 0 || group >= groups) {
      return absl::InvalidArgumentError(
          FormattedString("layer %s: column %d is of group %d; there are "
                          "groups 0 to %d",
                          Quoted(layer), column, group, groups - 1));
    }
    ++begins[static_cast<size_t>(group) + 1];
    sorted = sorted && (column == 0 || index[column - 1] <= group);
  }
  Grouping grouping;
  grouping.k = k;
  grouping.groups = groups;
  for (const int64_t block : kBlocks) {
    if (grouping.block == 0 &&
        std::all_of(begins.begin(), begins.end(),
                    [&](int64_t count) { return count % block == 0; })) {
      grouping.block = block;
    }
  }
  if (grouping.block == 0) {
    return NoBlock(
        layer,
        FormattedString("%d (and fewer)",
                        *std::max_element(begins.begin(), begins.end())),
        k);
  }
  for (int64_t group = 0; group < groups; ++group) {
    const int64_t count = begins[static_cast<size_t>(group) + 1];
    grouping.block_groups.insert(grouping.block_groups.end(),
                                 static_cast<size_t>(count / grouping.block),
                                 static_cast<int32_t>(group));
    begins[static_cast<size_t>(group) + 1] +=
        begins[static_cast<size_t>(group)];
  }
  if (sorted) return grouping;
  grouping.permutation.resize(index.size());
  for (int64_t column = 0; column < k; ++column) {
    const auto next = begins[static_cast<size_t>(index[column])]++;
    grouping.permutation[static_cast<size_t>(next)] =
        static_cast<int32_t>(column);
  }
  return grouping;
}

absl::Status CheckOrder(const WeightInfo& info) {
  if (info.shape.size() == 1 && info.bytes > 0 && info.dtype == DType::kI32) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(FormattedString(
      "tensor %s is %s [%s]; allowed: a vector of i32", Quoted(info.name),
      DTypeName(info.dtype), absl::StrJoin(info.shape, ", ")));
}

absl::Status LoadNibbles(const WeightSource& stored, const WeightInfo& codes,
                         Band& band) {
  const int64_t pairs = codes.shape[1];
  std::vector<std::byte> packed(static_cast<size_t>(band.rows * pairs));
  INLAY_RETURN_IF_ERROR(
      ReadStrip(stored, codes, band.first, band.rows, 0, pairs, packed.data()));
  for (size_t i = 0; i < packed.size(); ++i) {
    const auto pair = static_cast<uint8_t>(packed[i]);
    band.codes[2 * i] = pair & 15;
    band.codes[2 * i + 1] = pair >> 4;
  }
  return absl::OkStatus();
}

QuantizedLayer::QuantizedLayer(const std::string& layer, CodeKind kind,
                               int64_t n, Grouping grouping)
    : kind_(kind), grouping_(std::move(grouping)) {
  const int64_t k = grouping_.k;
  weight_.name = layer + ".weight";
  weight_.dtype = BlockDType(kind, grouping_.block);
  weight_.shape = {n, k};
  weight_.rows_are_outputs = true;
  weight_.bytes = static_cast<uint64_t>(n) *
                  RowBytes(weight_.dtype, static_cast<size_t>(k));
  permutation_.name = layer + std::string(kInputPermutation);
  permutation_.dtype = DType::kI32;
  permutation_.shape = {k};
  permutation_.bytes = static_cast<uint64_t>(k) * sizeof(int32_t);
}

void QuantizedLayer::PackNvfp4Row(const Band& band, int64_t row,
                                  std::byte* dst) const {
  constexpr int64_t kGroups = 4;  // of a block
  const uint8_t* codes = band.codes.data() + row * grouping_.k;
  const uint8_t* scales = band.scale_codes.data() + row * grouping_.groups;
  for (int64_t g = 0; g < grouping_.groups; ++g, codes += 16) {
    if (g % kGroups == 0) {
      dst = Put(factor_, dst);
      for (int64_t i = 0; i < kGroups; ++i) {
        *dst++ = std::byte(scales[g + i] & 0x7f);
      }
    }
    // Blocks' scales have no sign: that of e4m3 goes into the codes.
    const int signs = (scales[g] & 0x80) != 0 ? 0x88 : 0;
    for (int64_t i = 0; i < 8; ++i) {
      *dst++ = std::byte((codes[i] | codes[8 + i] << 4) ^ signs);
    }
  }
}

void QuantizedLayer::PackRow(const Band& band, int64_t row,
                             std::byte* dst) const {
  if (kind_ == CodeKind::kFloat) {
    std::memcpy(dst, band.values.data() + row * grouping_.k,
                RowBytes(DType::kF32, static_cast<size_t>(grouping_.k)));
    return;
  }
  if (kind_ == CodeKind::kNvfp4) return PackNvfp4Row(band, row, dst);
  const uint8_t* const codes = band.codes.data() + row * grouping_.k;
  const int64_t block = grouping_.block;
  uint8_t gathered[kMaxBlock];
  for (int64_t first = 0; first < grouping_.k; first += block) {
    const auto group = static_cast<size_t>(
        row * grouping_.groups + grouping_.GroupOfBlock(first / block));
    const uint8_t* from = codes + first;
    if (!grouping_.permutation.empty()) {
      for (int64_t i = 0; i < block; ++i) {
        gathered[i] =
            codes[grouping_.permutation[static_cast<size_t>(first + i)]];
      }
      from = gathered;
    }
    if (kind_ == CodeKind::kMxfp4) {
      *dst++ = std::byte(band.scale_codes[group]);
      dst = PutNibbles(from, block, dst);
      continue;
    }
    const float scale = band.scales[group];
    dst = Put(scale, dst);
    if (kind_ == CodeKind::kU4 || kind_ == CodeKind::kI8) {
      dst = Put(MinOf(band, group), dst);
    }
    if (kind_ != CodeKind::kI8 && kind_ != CodeKind::kF8) {
      dst = PutNibbles(from, block, dst);
    } else {
      std::memcpy(dst, from, static_cast<size_t>(block));
      dst += block;
    }
  }
}

void QuantizedLayer::Prepare(int64_t rows, Band* band) const {
  const auto count = static_cast<size_t>(rows);
  const size_t columns = count * static_cast<size_t>(grouping_.k);
  if (kind_ == CodeKind::kFloat) {
    band->values.resize(columns);
    return;
  }
  band->codes.resize(columns);
  const size_t scales = count * static_cast<size_t>(grouping_.groups);
  if (has_scale_codes()) {
    band->scale_codes.resize(scales);
  } else {
    band->scales.resize(scales);
    band->zeros.resize(scales);
  }
}

absl::Status QuantizedLayer::ReadWeight(
    uint64_t offset, absl::Span<std::byte> destination) const {
  const uint64_t row_bytes =
      RowBytes(weight_.dtype, static_cast<size_t>(grouping_.k));
  const int64_t element = kind_ == CodeKind::kFloat ? sizeof(float) : 1;
  const int64_t band_rows =
      std::max<int64_t>(kStagingBytes / element / grouping_.k, 1);
  std::vector<std::byte> part;
  Band band;
  while (!destination.empty()) {
    const uint64_t end = offset + destination.size();
    band.first = static_cast<int64_t>(offset / row_bytes);
    band.rows =
        std::min(static_cast<int64_t>((end - 1) / row_bytes) + 1 - band.first,
                 band_rows);
    Prepare(band.rows, &band);
    INLAY_RETURN_IF_ERROR(Load(band));
    for (int64_t row = 0; row < band.rows; ++row) {
      const uint64_t skip = offset % row_bytes;
      const uint64_t take =
          std::min<uint64_t>(row_bytes - skip, destination.size());
      if (take == row_bytes) {
        PackRow(band, row, destination.data());
      } else {
        part.resize(row_bytes);
        PackRow(band, row, part.data());
        std::memcpy(destination.data(), part.data() + skip, take);
      }
      offset += take;
      destination.remove_prefix(take);
    }
  }
  return absl::OkStatus();
}

void QuantizedLayer::ReadPermutation(uint64_t offset,
                                     absl::Span<std::byte> destination) const {
  if (destination.empty()) return;
  std::memcpy(
      destination.data(),
      reinterpret_cast<const std::byte*>(grouping_.permutation.data()) + offset,
      destination.size());
}

}  // namespace inlay
