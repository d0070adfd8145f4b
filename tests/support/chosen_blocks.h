// Blocks of chosen numbers, written and decoded as quant_layouts.h has them.
#ifndef INLAY_TESTS_SUPPORT_CHOSEN_BLOCKS_H_
#define INLAY_TESTS_SUPPORT_CHOSEN_BLOCKS_H_

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/quant/quant.h"
#include "tests/support/quant_layouts.h"
#include "tests/support/sanitized.h"

namespace inlay::testing {

inline void PutBits(const BlockBits& bits, uint32_t value, uint8_t* block) {
  for (size_t i = 0; i < bits.size(); ++i) {
    const auto mask = static_cast<uint8_t>(1u << bits[i] % 8);
    uint8_t& byte = block[bits[i] / 8];
    byte = static_cast<uint8_t>((value >> i & 1) != 0 ? byte | mask
                                                      : byte & ~mask);
  }
}
inline int NumbersOf(const BlockBits& bits) { return 1 << bits.size(); }

inline uint32_t MixedBits(uint64_t x) {
  x = (x + 1) * 0x9e3779b97f4a7c15u;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  return static_cast<uint32_t>(x >> 32);
}

// A block whose numbers are set one by one, and whether the codec agrees.
class ChosenBlock {
 public:
  explicit ChosenBlock(const BlockCodec& codec)
      : codec_(codec),
        layout_(LayoutOf(codec.dtype)),
        block_(static_cast<size_t>(layout_.bytes)),
        levels_(static_cast<size_t>(layout_.elements)),
        got_(levels_.size()) {
    for (const CodeField& field : layout_.codes) {
      std::vector<double>& levels = levels_of_.emplace_back();
      if (levels_of_.size() > 1 &&
          field.elements.size() == layout_.codes[0].elements.size()) {
        continue;
      }
      for (int code = 0; code < NumbersOf(field.bits); ++code) {
        for (size_t i = 0; i < field.elements.size(); ++i) {
          const double level = layout_.level(code, static_cast<int>(i));
          levels.push_back(level);
          if (std::abs(level) > most_level_) most_level_ = std::abs(level);
        }
      }
    }
    subs_ = layout_.subs.empty() ? 1 : static_cast<int>(layout_.subs.size());
    sub_.resize(static_cast<size_t>(subs_), 1.0);
    sub_min_.resize(sub_.size(), 1.0);
    if (layout_.type == ScaleType::kF16) {
      for (uint32_t bits = 0; bits < 65536; ++bits) {
        scales_.push_back(F16Of(bits));
      }
    } else if (layout_.type == ScaleType::kE8M0) {
      for (int bits = 0; bits < 256; ++bits) scales_.push_back(E8M0Of(bits));
    }
    if (layout_.subs.empty()) return;
    for (int bits = 0; bits < NumbersOf(layout_.subs[0]); ++bits) {
      sub_values_.push_back(layout_.sub(bits));
    }
  }

  const BlockLayout& layout() const { return layout_; }
  const std::byte* bytes() const {
    return reinterpret_cast<const std::byte*>(block_.data());
  }
  // What was chosen, of elements and sub-blocks.
  const std::vector<double>& levels() const { return levels_; }
  const std::vector<double>& sub_scales() const { return sub_; }
  const std::vector<double>& sub_minima() const { return sub_min_; }
  double scale() const { return scale_; }
  double min() const { return min_; }

  int codes() const { return NumbersOf(layout_.codes[0].bits); }
  int signs() const {
    return layout_.signs.empty() ? 1 : NumbersOf(layout_.signs[0].bits);
  }
  int subs() const {
    return layout_.subs.empty() ? 1 : NumbersOf(layout_.subs[0]);
  }
  int sub_mins() const {
    return layout_.sub_mins.empty() ? 1 : NumbersOf(layout_.sub_mins[0]);
  }
  // Of scales and minima: all of them, or all upper halves.
  int scales() const {
    return layout_.type == ScaleType::kE8M0  ? 256
           : layout_.type == ScaleType::kOne ? 1
                                             : 65536;
  }
  uint32_t ScaleBits(int i) const {
    if (layout_.type != ScaleType::kF32) return static_cast<uint32_t>(i);
    const uint32_t low[] = {0, 0xffff,
                            MixedBits(static_cast<uint64_t>(i)) & 0xffff};
    return static_cast<uint32_t>(i) << 16 | low[i % 3];
  }

  // Field i gets code first + i, and sign first + 11 i.
  void SetCodes(int first, int first_sign) {
    for (size_t f = 0; f < layout_.codes.size(); ++f) {
      SetCode(f, (first + static_cast<int>(f)) % codes());
    }
    for (size_t f = 0; f < layout_.signs.size(); ++f) {
      SetSign(f, (first_sign + 11 * static_cast<int>(f)) % signs());
    }
  }
  // After which the signs are to be set.
  void SetCode(size_t f, int code) {
    const CodeField& field = layout_.codes[f];
    PutBits(field.bits, static_cast<uint32_t>(code), block_.data());
    const std::vector<double>& levels =
        levels_of_[f].empty() ? levels_of_[0] : levels_of_[f];
    const size_t count = field.elements.size();
    for (size_t i = 0; i < count; ++i) {
      levels_[static_cast<size_t>(field.elements[i])] =
          levels[static_cast<size_t>(code) * count + i];
    }
  }
  void SetSign(size_t f, int sign) {
    const CodeField& field = layout_.signs[f];
    PutBits(field.bits, static_cast<uint32_t>(sign), block_.data());
    for (size_t i = 0; i < field.elements.size(); ++i) {
      double& level = levels_[static_cast<size_t>(field.elements[i])];
      level = layout_.with_sign(level, sign, static_cast<int>(i));
    }
  }
  // Sub-block j gets sub-scale first + j and minimum first_min + 3 j.
  void SetSubs(int first, int first_min) {
    for (size_t j = 0; j < layout_.subs.size(); ++j) {
      SetSub(j, (first + static_cast<int>(j)) % subs());
    }
    for (size_t j = 0; j < layout_.sub_mins.size(); ++j) {
      SetSubMin(j, (first_min + 3 * static_cast<int>(j)) % sub_mins());
    }
  }
  void SetSub(size_t j, int bits) {
    PutBits(layout_.subs[j], static_cast<uint32_t>(bits), block_.data());
    sub_[j] = sub_values_[static_cast<size_t>(bits)];
  }
  void SetSubMin(size_t j, int bits) {
    PutBits(layout_.sub_mins[j], static_cast<uint32_t>(bits), block_.data());
    sub_min_[j] = bits;
  }
  void SetScale(uint32_t bits) {
    PutBits(layout_.scale, bits, block_.data());
    scale_ = Number(bits);
  }
  void SetMin(uint32_t bits) {
    PutBits(layout_.min, bits, block_.data());
    min_ = layout_.min.empty() ? 0.0 : layout_.min_factor * Number(bits);
  }

  // Every operation in float64, then rounded: of two float32 that gives what
  // float32 arithmetic gives.
  void Check() {
    codec_.decode(bytes(), 1, got_.data());
    const size_t size = levels_.size() / static_cast<size_t>(subs_);
    const bool has_min = !layout_.min.empty();
    for (size_t j = 0; j < sub_.size(); ++j) {
      const double factor = static_cast<float>(scale_ * sub_[j]);
      const double min = static_cast<float>(min_ * sub_min_[j]);
      int wrong = 0;
      for (size_t e = j * size; e < (j + 1) * size; ++e) {
        float want = static_cast<float>(factor * levels_[e]);
        if (has_min) want = static_cast<float>(double{want} + min);
        wrong += !Same(got_[e], want);
      }
      checked_ += static_cast<int64_t>(size);
      if (wrong == 0) continue;
      wrong_ += wrong;
      if (!first_.empty()) continue;
      for (size_t e = j * size; e < (j + 1) * size; ++e) {
        float want = static_cast<float>(factor * levels_[e]);
        if (has_min) want = static_cast<float>(double{want} + min);
        if (Same(got_[e], want)) continue;
        first_ = "element " + std::to_string(e) + ": " +
                 std::to_string(got_[e]) + ", expected " +
                 std::to_string(want) + " of scale " + std::to_string(scale_) +
                 ", sub-scale " + std::to_string(sub_[j]) + ", level " +
                 std::to_string(levels_[e]) + ", minimum " +
                 std::to_string(min);
        break;
      }
    }
  }

  // The most that is added to give element e: its minimum and the largest
  // level.
  double Magnitude(int e) const {
    const size_t j = static_cast<size_t>(e) / (levels_.size() / sub_.size());
    return std::abs(scale_ * sub_[j]) * most_level_ +
           std::abs(min_ * sub_min_[j]);
  }

  void Expect(int64_t least) const {
    EXPECT_EQ(wrong_, 0) << "of " << checked_ << ", the first: " << first_;
    EXPECT_GE(checked_, least);
  }

 private:
  static bool Same(float a, float b) {
    return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) ||
           (a != a && b != b);
  }
  double Number(uint32_t bits) const {
    if (layout_.type == ScaleType::kOne) return 1.0;
    if (layout_.type == ScaleType::kF32) return std::bit_cast<float>(bits);
    return scales_[bits];
  }

  const BlockCodec& codec_;
  const BlockLayout layout_;
  int subs_ = 1;
  std::vector<uint8_t> block_;
  // By the code, of the first field and of those of other sizes.
  std::vector<std::vector<double>> levels_of_;
  double most_level_ = 0.0;
  std::vector<double> levels_, sub_, sub_min_, scales_, sub_values_;
  double scale_ = 1.0, min_ = 0.0;
  std::vector<float> got_;
  int64_t checked_ = 0, wrong_ = 0;
  std::string first_;
};

template <typename Test>
void WithEveryCodec(Test test) {
  for (const BlockCodec* codec : BlockCodecs()) {
    SCOPED_TRACE(DTypeName(codec->dtype));
    ASSERT_NE(LayoutOf(codec->dtype).elements, 0)
        << "a format that quant_layouts.h does not know";
    test(*codec);
  }
}

}  // namespace inlay::testing

#endif  // INLAY_TESTS_SUPPORT_CHOSEN_BLOCKS_H_
