#include "kernels/attention/attention_pattern.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "kernels/sample/philox.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr int32_t kMostPositions = 1 << 30;
// Of a query; drawn for every row anew.
constexpr int32_t kMostRandomBlocks = 256;
// Philox's third counter word: not the draws of sampling (philox.h).
constexpr uint32_t kPatternDraws = 0x70617474;

struct Length {
  const char* name;
  int32_t AttentionPattern::*member;
};
constexpr Length kLengths[] = {{"window", &AttentionPattern::window},
                               {"global", &AttentionPattern::global},
                               {"segment", &AttentionPattern::segment},
                               {"dilated", &AttentionPattern::dilated},
                               {"dilation", &AttentionPattern::dilation},
                               {"stride", &AttentionPattern::stride},
                               {"random", &AttentionPattern::random},
                               {"context", &AttentionPattern::context}};

absl::Status Wrong(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("attention pattern: ", what));
}

absl::Status Check(const AttentionPattern& pattern) {
  if (pattern.block < 16 || pattern.block > 1024 ||
      !std::has_single_bit(static_cast<uint32_t>(pattern.block))) {
    return Wrong(FormattedString(
        "block is %d; expected a power of two from 16 to 1024", pattern.block));
  }
  for (const Length& length : kLengths) {
    const int32_t value = pattern.*length.member;
    if (value < 0 || value > kMostPositions || value % pattern.block != 0) {
      return Wrong(FormattedString(
          "%s is %d; expected a multiple of block, which is %d, of at most %d",
          length.name, value, pattern.block, kMostPositions));
    }
  }
  if ((pattern.dilated > 0) != (pattern.dilation > 0)) {
    return Wrong("dilated and dilation go together");
  }
  if (pattern.dilated > 0 && pattern.dilated % pattern.dilation != 0) {
    return Wrong(
        FormattedString("dilated is %d; expected a multiple of "
                        "dilation, which is %d",
                        pattern.dilated, pattern.dilation));
  }
  if (pattern.random / pattern.block > kMostRandomBlocks) {
    return Wrong(FormattedString("random is %d blocks; expected at most %d",
                                 pattern.random / pattern.block,
                                 kMostRandomBlocks));
  }
  if (pattern.context > 0 && !pattern.any()) {
    return Wrong("context goes with what is seen before it");
  }
  return absl::OkStatus();
}

// One row of bits. Blocks outside [0, end) are left out.
class Row {
 public:
  Row(uint32_t* words, int64_t end) : words_(words), end_(end) {}

  void Add(int64_t block) {
    if (block >= 0 && block < end_) {
      words_[block / 32] |= uint32_t{1} << block % 32;
    }
  }
  void AddRange(int64_t begin, int64_t end) {
    begin = std::max<int64_t>(begin, 0);
    end = std::min(end, end_);
    while (begin < end && begin % 32 != 0) Add(begin++);
    for (; begin + 32 <= end; begin += 32) words_[begin / 32] = ~uint32_t{0};
    while (begin < end) Add(begin++);
  }

 private:
  uint32_t* words_;
  int64_t end_;
};

// `count` different ones of [0, n), all of them where there are not more.
// Source: R. Floyd's sampling (Bentley, "Programming pearls: a sample of
// brilliance", CACM 30(9), 1987).
void AddRandom(int64_t count, int64_t n, uint32_t seed, int64_t query,
               Row& row) {
  if (count >= n) return row.AddRange(0, n);
  std::array<int64_t, kMostRandomBlocks> drawn;
  auto* end = drawn.begin();
  for (int64_t most = n - count; most < n; ++most) {
    const PhiloxWords bits =
        Philox4x32({{static_cast<uint32_t>(query), static_cast<uint32_t>(most),
                     kPatternDraws, 0}},
                   seed, 0);
    // Its bias is below n / 2^32.
    const auto any = static_cast<int64_t>(
        uint64_t{bits.words[0]} * static_cast<uint64_t>(most + 1) >> 32);
    const bool again = std::find(drawn.begin(), end, any) != end;
    *end = again ? most : any;
    row.Add(*end++);
  }
}

// What queries of block n see of `blocks` blocks.
void FillRow(const AttentionPattern& pattern, bool causal, int64_t n,
             int64_t blocks, uint32_t* words) {
  // Causal order is the mask's; what lies behind the query need not be drawn.
  const int64_t end = causal ? std::min(n + 1, blocks) : blocks;
  Row row(words, end);
  row.Add(n);
  if (n < pattern.global / pattern.block) return row.AddRange(0, end);
  if (pattern.context > 0 && n >= pattern.context / pattern.block) {
    return row.AddRange(0, end);
  }
  row.AddRange(0, pattern.global / pattern.block);
  const int64_t window = pattern.window / pattern.block;
  row.AddRange(n - window + 1, n + window);
  if (pattern.segment > 0) {
    const int64_t segment = pattern.segment / pattern.block;
    row.AddRange(n / segment * segment, (n / segment + 1) * segment);
  }
  if (pattern.dilation > 0) {
    const int64_t step = pattern.dilation / pattern.block;
    const int64_t most =
        std::min<int64_t>(pattern.dilated / pattern.dilation, blocks / step);
    for (int64_t i = 1; i <= most; ++i) {
      row.Add(n - i * step);
      row.Add(n + i * step);
    }
  }
  if (pattern.stride > 0) {
    const int64_t stride = pattern.stride / pattern.block;
    for (int64_t m = stride - 1; m < end; m += stride) row.Add(m);
  }
  if (pattern.random > 0) {
    AddRandom(pattern.random / pattern.block, causal ? n : blocks, pattern.seed,
              n, row);
  }
}

int64_t NumBlocks(const AttentionPattern& pattern, int64_t positions) {
  return (positions + pattern.block - 1) / pattern.block;
}

}  // namespace

absl::StatusOr<AttentionPattern> ParseAttentionPattern(absl::string_view text) {
  AttentionPattern pattern;
  std::vector<absl::string_view> seen;
  for (const absl::string_view part :
       absl::StrSplit(text, ',', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> pair =
        absl::StrSplit(part, absl::MaxSplits('=', 1));
    if (std::find(seen.begin(), seen.end(), pair.first) != seen.end()) {
      return Wrong(absl::StrCat(pair.first, " is there twice"));
    }
    seen.push_back(pair.first);
    int32_t* member = pair.first == "block" ? &pattern.block : nullptr;
    for (const Length& length : kLengths) {
      if (pair.first == length.name) member = &(pattern.*length.member);
    }
    const bool read =
        pair.first == "seed"
            ? absl::SimpleAtoi(pair.second, &pattern.seed)
            : member != nullptr && absl::SimpleAtoi(pair.second, member);
    if (!read) {
      return Wrong(absl::StrCat(
          "\"", absl::CHexEscape(part.substr(0, 64)),
          "\"; expected block, window, global, segment, dilated, dilation, "
          "stride, random, context or seed, =, and a number"));
    }
  }
  INLAY_RETURN_IF_ERROR(Check(pattern));
  return pattern;
}

std::string FormatAttentionPattern(const AttentionPattern& pattern) {
  if (!pattern.any()) return "";
  std::string text = absl::StrCat("block=", pattern.block);
  for (const Length& length : kLengths) {
    const int32_t value = pattern.*length.member;
    if (value != 0) absl::StrAppend(&text, ",", length.name, "=", value);
  }
  if (pattern.random > 0 && pattern.seed != 0) {
    absl::StrAppend(&text, ",seed=", pattern.seed);
  }
  return text;
}

AttentionPatternRows::AttentionPatternRows(const AttentionPattern& pattern,
                                           bool causal,
                                           const AttentionSequence& sequence)
    : pattern_(pattern) {
  const int64_t blocks = NumBlocks(pattern, sequence.kv_len);
  first_row_ = (sequence.kv_len - sequence.q_len) / pattern.block;
  row_words_ = static_cast<int32_t>((blocks + 31) / 32);
  words_.resize(static_cast<size_t>((blocks - first_row_) * row_words_));
  for (int64_t n = first_row_; n < blocks; ++n) {
    FillRow(pattern, causal, n, blocks,
            words_.data() + (n - first_row_) * row_words_);
  }
}

AttentionMaskSpec AttentionPatternRows::Spec() const {
  AttentionMaskSpec spec;
  spec.blocks = words_;
  spec.first_row = first_row_;
  spec.row_words = row_words_;
  spec.query_block = pattern_.block;
  spec.key_block = pattern_.block;
  return spec;
}

// Of a sequence of q queries and k keys, q / block + 2 rows (one where q is 1)
// of k / (32 block) + 1 words, and q / tile_tokens + 1 tiles of k / tile_keys +
// 1 runs. Added up over sequences: the sum of q k is at most tokens * longest.
void AddPatternLimits(const AttentionPattern& pattern,
                      const AttentionPlanShape& shape, int64_t longest,
                      AttentionPlanLimits* limits) {
  const auto divide = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
  const int64_t block = pattern.block;
  const int64_t word = 32 * block;  // keys
  const int64_t keys = limits->blocks * shape.block_size;
  limits->mask_rows = limits->tokens;
  if (limits->graph) {
    limits->mask_words = limits->sequences + divide(keys, word) + 1;
    return;
  }
  const int64_t pairs = limits->tokens * longest;
  limits->mask_words = divide(limits->tokens, block) + 2 * limits->sequences +
                       divide(pairs, block * word) + divide(2 * keys, word) + 1;
  if (shape.tile_tokens == 0) return;
  const int64_t tile = shape.tile_tokens;
  const int64_t tile_keys = shape.tile_keys();
  limits->key_runs = divide(limits->tokens, tile) + limits->sequences +
                     divide(pairs, tile * tile_keys) + divide(keys, tile_keys);
}

}  // namespace inlay
