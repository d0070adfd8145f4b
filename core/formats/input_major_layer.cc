#include "core/formats/input_major_layer.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/formats/describe.h"
#include "core/formats/stored_tensor.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

// The zero point of `output` in a row of words, of which the first is word
// `first_word` of all.
int32_t ZeroAt(const std::byte* row, int64_t first_word, int64_t output,
               const ZeroPacking& packing) {
  const int bits = packing.bits;
  const uint32_t mask = (1u << bits) - 1;
  const bool fills_words = 32 % bits == 0;
  const int64_t at = output * bits / 32 - first_word;
  int64_t shift = output * bits % 32;
  if (!packing.field_of.empty()) {
    const auto fields = static_cast<int64_t>(packing.field_of.size());
    shift = bits * packing.field_of[static_cast<size_t>(output % fields)];
  }
  uint32_t word = LoadWord(row, at);
  // The writer took 1 from every field of the word at once: carries count.
  if (packing.less_one && fills_words) word += ~0u / mask;
  uint64_t wide = word;
  if (shift + bits > 32) wide |= uint64_t{LoadWord(row, at + 1)} << 32;
  auto zero = static_cast<uint32_t>(wide >> shift) & mask;
  if (packing.less_one && !fills_words) zero = (zero + 1) & mask;
  zero ^= packing.flipped;
  // int8 codes are the stored ones less 128.
  return static_cast<int32_t>(zero) - (bits == 8 ? 128 : 0);
}

}  // namespace

int LayerBits(const WeightSource& stored, const std::string& layer, int64_t n,
              const LayerChoices& choices) {
  const WeightInfo* zeros = stored.Find(layer + ".qzeros");
  for (const int64_t bits : choices.bits) {
    if (zeros != nullptr && zeros->shape.size() == 2 &&
        FieldsIn(zeros->shape[1], 32) == n * bits) {
      return static_cast<int>(bits);
    }
  }
  return static_cast<int>(choices.bits.front());
}

absl::StatusOr<int64_t> LayerGroupSize(const WeightSource& stored,
                                       const std::string& layer,
                                       const InputMajorNames& names, int64_t k,
                                       const LayerChoices& choices,
                                       bool indexed) {
  const WeightInfo* scales = stored.Find(layer + names.scales);
  int64_t found = 0;
  for (const int64_t size : choices.group_sizes) {
    const int64_t own = std::min(size, k);
    const int64_t groups = (k - 1) / own + 1;
    if (scales == nullptr || scales->shape.size() != 2 ||
        scales->shape[0] != groups || own == found) {
      continue;
    }
    if (found != 0) {
      return absl::UnimplementedError(FormattedString(
          "layer %s has %d groups of its k = %d columns, which may be of %d or "
          "of %d; supported are layers whose tensors tell the two apart",
          Quoted(layer), groups, k, found, own));
    }
    found = own;
    if (indexed) break;
  }
  return found != 0 ? found : std::min(choices.group_sizes.front(), k);
}

InputMajorLayer::InputMajorLayer(const std::string& layer, Grouping grouping,
                                 const InputMajorTensors& tensors,
                                 const ZeroPacking& packing,
                                 std::shared_ptr<const WeightSource> stored)
    : QuantizedLayer(layer, packing.bits <= 4 ? CodeKind::kU4 : CodeKind::kI8,
                     tensors.scales->shape[1], std::move(grouping)),
      tensors_(tensors),
      packing_(packing),
      stored_(std::move(stored)) {}

absl::Status InputMajorLayer::Load(Band& band) const {
  const int64_t groups = grouping().groups;
  std::vector<float> scales(band.scales.size());
  INLAY_RETURN_IF_ERROR(ReadFloats(*stored_, *tensors_.scales, 0, groups,
                                   band.first, band.rows, scales.data()));
  const int64_t first_word = band.first * packing_.bits / 32;
  const int64_t words =
      ((band.first + band.rows) * packing_.bits - 1) / 32 + 1 - first_word;
  std::vector<std::byte> zeros(static_cast<size_t>(groups * words * 4));
  INLAY_RETURN_IF_ERROR(ReadStrip(*stored_, *tensors_.zeros, 0, groups,
                                  first_word * 4, words * 4, zeros.data()));
  for (int64_t row = 0; row < band.rows; ++row) {
    for (int64_t group = 0; group < groups; ++group) {
      const auto to = static_cast<size_t>(row * groups + group);
      band.scales[to] = scales[static_cast<size_t>(group * band.rows + row)];
      band.zeros[to] = ZeroAt(zeros.data() + group * words * 4, first_word,
                              band.first + row, packing_);
    }
  }
  return LoadCodes(band);
}

absl::StatusOr<InputMajorTensors> FindInputMajorTensors(
    const WeightSource& stored, const std::string& layer,
    const InputMajorNames& names, const WeightInfo* codes, int64_t n,
    int64_t groups, int bits) {
  // Of outputs that fill whole words.
  const int64_t run = 32 / std::gcd(32, bits);
  if (n % run != 0) {
    return absl::InvalidArgumentError(FormattedString(
        "layer %s has %d outputs; with packed zero points it must be a "
        "multiple of %d",
        Quoted(layer), n, run));
  }
  InputMajorTensors tensors;
  tensors.codes = codes;
  INLAY_ASSIGN_OR_RETURN(
      tensors.scales, StoredMatrix(stored, layer + names.scales, kScaleDTypes));
  INLAY_RETURN_IF_ERROR(CheckShape(*tensors.scales, {groups, n}));
  INLAY_ASSIGN_OR_RETURN(
      tensors.zeros, StoredMatrix(stored, layer + names.zeros, {DType::kI32}));
  INLAY_RETURN_IF_ERROR(CheckShape(*tensors.zeros, {groups, n * bits / 32}));
  return tensors;
}

}  // namespace inlay
