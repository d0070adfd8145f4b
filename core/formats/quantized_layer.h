// QuantizedLayer: one linear layer of a quantised checkpoint, presented as a
// tensor [n, k] in one of our grouped block formats. Owns the grouping, the
// writing of blocks and reading at any offset; knows nothing of how a method
// stores its codes, scales and zero points: subclasses load those.
//
// Blocks (little endian): f32 scale; f32 min (of u4 and i8); codes. Values are
// scale * code + min. u4: of each 32 elements, byte i holds element i in its
// low and element 16 + i in its high nibble; i8: int8; f8: e4m3; nf4 and
// bnb_fp4: codes of levels, in nibbles as u4's. nvfp4_f32: its factor, a scale
// in e4m3 of each 16 elements; of these byte i holds element i and element 8 +
// i. mxfp4: the scale's exponent, a byte; codes as u4's. Layers that no block
// fits may be float32: kFloat.
#ifndef INLAY_CORE_FORMATS_QUANTIZED_LAYER_H_
#define INLAY_CORE_FORMATS_QUANTIZED_LAYER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/formats/weight_source.h"

namespace inlay {

enum class CodeKind : uint8_t {
  kU4,
  kI8,
  kF8,
  kNf4,
  kBnbFp4,
  kNvfp4,
  kMxfp4,
  kFloat
};

// Which columns share a scale, and the blocks that follow from it: of 128
// columns where every group has a multiple of that, else of 32.
struct Grouping {
  int64_t k = 0;
  int64_t groups = 0;
  int64_t group_size = 0;  // of contiguous groups; the last may be shorter
  int64_t block = 0;       // 128 or 32; 64 of nf4, bnb_fp4 and nvfp4; 32 of
                           // mxfp4
  // Of groups that a file lists column by column, else empty:
  std::vector<int32_t> block_groups;  // [k / block]
  // Column j of the presented weight is column permutation[j] of the stored
  // one. Empty: the same.
  std::vector<int32_t> permutation;

  int64_t GroupOfBlock(int64_t b) const {
    return block_groups.empty() ? b * block / group_size
                                : block_groups[static_cast<size_t>(b)];
  }
};

// Groups of `group_size` columns one after another. UNIMPLEMENTED naming
// `layer`, the group and k where no block fits.
absl::StatusOr<Grouping> ContiguousGroups(const std::string& layer, int64_t k,
                                          int64_t group_size);
// Columns sorted by the group that `index` gives each, else in their order.
// INVALID_ARGUMENT for an index not in [0, groups).
absl::StatusOr<Grouping> IndexedGroups(const std::string& layer,
                                       absl::Span<const int32_t> index,
                                       int64_t groups);

// Behind a layer's name: its QuantizedLayer::permutation().
inline constexpr std::string_view kInputPermutation = ".input_permutation";
// INVALID_ARGUMENT naming a tensor of such a name that is no vector of i32.
absl::Status CheckOrder(const WeightInfo& info);

// Rows of a layer on their way into blocks.
struct Band {
  int64_t first = 0;
  int64_t rows = 0;
  std::vector<uint8_t> codes;  // [rows, k], columns as stored: 0 to 15, the
                               // bits of int8, or of e4m3
  std::vector<float> scales;   // [rows, groups]
  // [rows, groups]: the code that stands for 0; of u4 and i8.
  std::vector<int32_t> zeros;
  // [rows, groups]: in place of the zeros, sized by those who load them: what
  // code 0 stands for.
  std::vector<float> mins;
  // [rows, groups]: in place of scales and zeros, of nvfp4: e4m3, signs
  // included; of mxfp4: e8m0.
  std::vector<uint8_t> scale_codes;
  std::vector<float> values;  // [rows, k], in place of all these, of kFloat
};

// Loads band.codes from `codes`, bytes [n, k / 2] of two codes each, the first
// in the low bits.
absl::Status LoadNibbles(const WeightSource& stored, const WeightInfo& codes,
                         Band& band);

// Immutable; every method may run from any number of threads.
class QuantizedLayer {
 public:
  virtual ~QuantizedLayer() = default;
  QuantizedLayer(const QuantizedLayer&) = delete;
  QuantizedLayer& operator=(const QuantizedLayer&) = delete;

  // "<layer>.weight".
  const WeightInfo& weight() const { return weight_; }
  // "<layer>.input_permutation" (i32 [k]): input permutation[j] is multiplied
  // by column j of the weight. Null: each column takes its own input.
  const WeightInfo* permutation() const {
    return grouping_.permutation.empty() ? nullptr : &permutation_;
  }

  // Bytes [offset, offset + destination.size()) of the weight. The range must
  // lie in it. Stages at most some 16 MB, or one row where that is longer.
  absl::Status ReadWeight(uint64_t offset,
                          absl::Span<std::byte> destination) const;
  void ReadPermutation(uint64_t offset,
                       absl::Span<std::byte> destination) const;

 protected:
  QuantizedLayer(const std::string& layer, CodeKind kind, int64_t n,
                 Grouping grouping);

  // Fills the vectors of `band`, sized already, for its rows.
  virtual absl::Status Load(Band& band) const = 0;

  void set_input_codes(InputCodes codes) { weight_.input_codes = codes; }
  void set_factor(float factor) { factor_ = factor; }  // of nvfp4
  int64_t n() const { return weight_.shape[0]; }
  const Grouping& grouping() const { return grouping_; }

 private:
  void PackRow(const Band& band, int64_t row, std::byte* dst) const;
  bool has_scale_codes() const {
    return kind_ == CodeKind::kNvfp4 || kind_ == CodeKind::kMxfp4;
  }
  // Sizes what Load is to fill.
  void Prepare(int64_t rows, Band* band) const;
  void PackNvfp4Row(const Band& band, int64_t row, std::byte* dst) const;

  CodeKind kind_;
  float factor_ = 1.0f;
  Grouping grouping_;
  WeightInfo weight_;
  WeightInfo permutation_;
};

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_QUANTIZED_LAYER_H_
