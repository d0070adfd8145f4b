// MergeBounds: between which characters no merge joins anything, so that a
// piece can be cut there and its parts be merged one by one. What a merge joins
// are two tokens, and what meets there are the last character of one and the
// first of the other: no other pairs of characters ever come together.
#ifndef INLAY_CORE_TEXT_BPE_BOUNDS_H_
#define INLAY_CORE_TEXT_BPE_BOUNDS_H_

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace inlay {

// Filled while a vocabulary is read, immutable afterwards. It may say that a
// cut is impossible where it is not, never the other way.
class MergeBounds {
 public:
  // For about so many pairs.
  explicit MergeBounds(size_t num_pairs) {
    // An eighth of the bits set, so that few pairs pass for others.
    const size_t bits =
        std::bit_ceil(std::clamp(8 * num_pairs, kMinBits, kMaxBits));
    shift_ = 64 - std::countr_zero(bits);
    joined_.resize(bits / 64);
  }

  // The character is a token. Only such ones bound a cut: others are spelled in
  // ways that depend on their neighbours, or vanish.
  void AddToken(uint32_t code) {
    if (code / 64 >= tokens_.size()) tokens_.resize(code / 64 + 1);
    tokens_[code / 64] |= uint64_t{1} << code % 64;
  }
  // Some merge joins tokens that end and begin with these.
  void Join(uint32_t last, uint32_t first) {
    const size_t bit = Bit(last, first);
    joined_[bit / 64] |= uint64_t{1} << bit % 64;
  }

  // Whether a piece can be cut between these two.
  bool CanCut(uint32_t last, uint32_t first) const {
    const size_t bit = Bit(last, first);
    return (joined_[bit / 64] >> bit % 64 & 1) == 0 && IsToken(last) &&
           IsToken(first);
  }

 private:
  static constexpr size_t kMinBits = size_t{1} << 12;
  static constexpr size_t kMaxBits = size_t{1} << 22;

  bool IsToken(uint32_t code) const {
    return code / 64 < tokens_.size() &&
           (tokens_[code / 64] >> code % 64 & 1) != 0;
  }
  // Multiplicative hashing (Knuth, The Art of Computer Programming 3, 6.4).
  size_t Bit(uint32_t last, uint32_t first) const {
    const uint64_t pair = uint64_t{last} << 32 | first;
    return pair * 0x9E3779B97F4A7C15u >> shift_;
  }

  int shift_;
  std::vector<uint64_t> joined_;  // bits by hash of the pair
  std::vector<uint64_t> tokens_;  // bits by code point
};

}  // namespace inlay

#endif  // INLAY_CORE_TEXT_BPE_BOUNDS_H_
