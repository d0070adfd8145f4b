// Masks of attention for tests: random descriptions, and what they say of one
// query and one key, straight from the definition. Header only.
#ifndef INLAY_TESTS_SUPPORT_ATTENTION_MASK_UTIL_H_
#define INLAY_TESTS_SUPPORT_ATTENTION_MASK_UTIL_H_

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <vector>

#include "kernels/attention/attention_mask.h"
#include "kernels/attention/attention_pattern.h"

namespace inlay::testing {

// A description and what it points to.
struct TestMask {
  int prefix = 0;
  std::vector<int32_t> documents;
  int reach = 0;
  std::vector<uint32_t> blocks;
  int row_words = 0;
  int query_block = 0;
  int key_block = 0;

  AttentionMaskSpec Spec() const {
    AttentionMaskSpec spec;
    spec.prefix = prefix;
    spec.documents = documents;
    spec.reach = reach;
    spec.blocks = blocks;
    spec.row_words = row_words;
    spec.query_block = query_block;
    spec.key_block = key_block;
    return spec;
  }

  bool Sees(const AttentionDesc& desc, int p, int k) const {
    const bool ordered =
        !desc.causal || (k <= p && (desc.window == 0 || k > p - desc.window));
    if (!ordered && (p >= prefix || k >= prefix)) return false;
    const auto next =
        std::upper_bound(documents.begin(), documents.end(), std::min(p, k));
    if (next != documents.end() && *next <= std::max(p, k)) return false;
    if (reach > 0 && std::abs(p - k) >= reach) return false;
    if (blocks.empty()) return true;
    const int bit = k / key_block;
    return (blocks[static_cast<size_t>(p / query_block * row_words +
                                       bit / 32)] >>
                (bit % 32) &
            1) != 0;
  }

  TestMask& Prefix(int length) {
    prefix = length;
    return *this;
  }
  TestMask& Reach(int positions) {
    reach = positions;
    return *this;
  }
  // Documents of 1 to 2 * mean positions.
  TestMask& Documents(std::mt19937& rng, int kv_len, int mean) {
    for (int at = 0; at < kv_len;
         at +=
         1 + static_cast<int>(rng() % (2u * static_cast<unsigned>(mean)))) {
      documents.push_back(at);
    }
    return *this;
  }
  // Each bit set with a probability of `percent`.
  TestMask& Blocks(std::mt19937& rng, int kv_len, int queries, int keys,
                   unsigned percent) {
    query_block = queries;
    key_block = keys;
    row_words = (kv_len + keys - 1) / keys / 32 + 1;
    const int rows = (kv_len + queries - 1) / queries;
    blocks.resize(static_cast<size_t>(rows * row_words));
    for (uint32_t& word : blocks) {
      for (int bit = 0; bit < 32; ++bit) {
        word |= (rng() % 100 < percent ? 1u : 0u) << bit;
      }
    }
    return *this;
  }
  // What it shows of a whole sequence.
  TestMask& Pattern(const AttentionPattern& pattern, bool causal, int kv_len) {
    const AttentionPatternRows rows(pattern, causal,
                                    {0, kv_len, kv_len, nullptr});
    const AttentionMaskSpec spec = rows.Spec();
    blocks.assign(spec.blocks.begin(), spec.blocks.end());
    row_words = spec.row_words;
    query_block = spec.query_block;
    key_block = spec.key_block;
    return *this;
  }

  static TestMask Random(std::mt19937& rng, int q_len, int kv_len) {
    const auto below = [&](int n) {
      return static_cast<int>(rng() % static_cast<unsigned>(n));
    };
    TestMask mask;
    const int kind = below(16);
    // Prefixes end before the step's queries, or within its keys.
    if ((kind & 1) != 0) mask.Prefix(below(kv_len + 1));
    if ((kind & 2) != 0) mask.Documents(rng, kv_len, 1 + below(kv_len + 1));
    if ((kind & 4) != 0) {
      mask.Blocks(rng, kv_len, 1 + below(below(2) == 0 ? 4 : q_len + 70),
                  1 << below(9), below(3) == 0 ? 20 : 80);
    }
    if ((kind & 8) != 0) mask.Reach(1 + below(below(2) == 0 ? 20 : kv_len + 9));
    return mask;
  }
};

// Of each sequence's queries: the first and the last key that any of them sees;
// {0, -1} if none does.
inline std::pair<int, int> SeenKeys(const TestMask& mask,
                                    const AttentionDesc& desc, int q_len,
                                    int kv_len) {
  int first = kv_len;
  int last = -1;
  for (int p = kv_len - q_len; p < kv_len; ++p) {
    for (int k = 0; k < kv_len; ++k) {
      if (!mask.Sees(desc, p, k)) continue;
      first = std::min(first, k);
      last = std::max(last, k);
    }
  }
  return last < 0 ? std::pair{0, -1} : std::pair{first, last};
}

}  // namespace inlay::testing

#endif  // INLAY_TESTS_SUPPORT_ATTENTION_MASK_UTIL_H_
