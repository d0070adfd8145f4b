#include "kernels/attention/attention_mask.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "kernels/validate.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr int64_t kMost = std::numeric_limits<int32_t>::max();

absl::Status CheckBlocks(const AttentionMaskSpec& spec,
                         const AttentionSequence& sequence) {
  const int64_t kv_len = sequence.kv_len;
  if (spec.blocks.empty()) return absl::OkStatus();
  INLAY_RETURN_IF_ERROR(
      CheckRange("attention mask", "query_block", spec.query_block, 1, kMost));
  INLAY_RETURN_IF_ERROR(
      CheckRange("attention mask", "key_block", spec.key_block, 1, 1 << 30));
  if (!std::has_single_bit(static_cast<uint32_t>(spec.key_block))) {
    return absl::InvalidArgumentError(
        FormattedString("attention mask: key_block is %d; expected a power of "
                        "two",
                        spec.key_block));
  }
  const int64_t bits = (kv_len + spec.key_block - 1) / spec.key_block;
  const int64_t rows = (kv_len + spec.query_block - 1) / spec.query_block;
  INLAY_RETURN_IF_ERROR(CheckRange("attention mask", "row_words",
                                   spec.row_words, (bits + 31) / 32, kMost));
  INLAY_RETURN_IF_ERROR(
      CheckRange("attention mask", "first_row", spec.first_row, 0,
                 (kv_len - sequence.q_len) / spec.query_block));
  return CheckRange("attention mask", "words of blocks",
                    static_cast<int64_t>(spec.blocks.size()),
                    (rows - spec.first_row) * spec.row_words, kMost);
}

absl::Status CheckSpec(const AttentionMaskSpec& spec,
                       const AttentionSequence& sequence) {
  INLAY_RETURN_IF_ERROR(
      CheckRange("attention mask", "q_begin", sequence.q_begin, 0, kMost));
  INLAY_RETURN_IF_ERROR(CheckRange("attention mask", "q_len", sequence.q_len, 0,
                                   kMost - sequence.q_begin));
  INLAY_RETURN_IF_ERROR(CheckRange("attention mask", "kv_len", sequence.kv_len,
                                   sequence.q_len, kMost));
  const int32_t start = sequence.kv_len - sequence.q_len;
  const bool inside = sequence.q_len > 0 && start < spec.prefix;
  INLAY_RETURN_IF_ERROR(CheckRange("attention mask", "prefix", spec.prefix, 0,
                                   inside ? sequence.kv_len : kMost));
  INLAY_RETURN_IF_ERROR(
      CheckRange("attention mask", "reach", spec.reach, 0, kMost));
  int32_t before = 0;
  for (const int32_t begin : spec.documents) {
    INLAY_RETURN_IF_ERROR(CheckRange(
        "attention mask", "the begin of a document", begin, before, kMost));
    before = begin;
  }
  return CheckBlocks(spec, sequence);
}

class Compiler {
 public:
  Compiler(const AttentionDesc& desc, const AttentionMaskSpec& spec,
           const AttentionSequence& sequence, AttentionMask& mask)
      : desc_(desc), spec_(spec), sequence_(sequence), mask_(mask) {}

  void Run() {
    const int32_t start = sequence_.kv_len - sequence_.q_len;
    if (!spec_.blocks.empty() && sequence_.q_len > 0) CopyBits(start);
    for (int32_t i = 0; i < sequence_.q_len; ++i) {
      mask_.rows[static_cast<size_t>(sequence_.q_begin + i)] =
          KeysOf(start + i);
    }
  }

 private:
  // The rows that the step's queries have.
  void CopyBits(int32_t start) {
    first_bits_ = static_cast<int64_t>(mask_.bits.size());
    first_row_ = start / spec_.query_block;
    const int64_t last = (sequence_.kv_len - 1) / spec_.query_block;
    const auto from =
        spec_.blocks.begin() + (first_row_ - spec_.first_row) * spec_.row_words;
    mask_.bits.insert(mask_.bits.end(), from,
                      from + (last + 1 - first_row_) * spec_.row_words);
  }

  AttentionRowKeys KeysOf(int32_t position) {
    AttentionRowKeys keys = KeysOfQuery(
        desc_, {}, sequence_, position - (sequence_.kv_len - sequence_.q_len));
    if (position < spec_.prefix) {
      keys.begin = 0;
      keys.end = std::max(keys.end, spec_.prefix);
    }
    const auto documents = spec_.documents;
    while (document_ < documents.size() && documents[document_] <= position) {
      ++document_;
    }
    if (document_ > 0) {
      keys.begin = std::max(keys.begin, documents[document_ - 1]);
    }
    if (document_ < documents.size()) {
      keys.end = std::min(keys.end, documents[document_]);
    }
    if (spec_.reach > 0) {
      keys.begin = std::max(keys.begin, position - spec_.reach + 1);
      // Without a sum beyond what 32 bits hold.
      if (keys.end - position > spec_.reach) keys.end = position + spec_.reach;
    }
    if (!spec_.blocks.empty()) AddBits(position, keys);
    if (keys.begin >= keys.end) keys = {};
    return keys;
  }

  // Brings both ends to keys that are seen.
  void AddBits(int32_t position, AttentionRowKeys& keys) const {
    const int64_t row = position / spec_.query_block - first_row_;
    keys.bits = static_cast<int32_t>(first_bits_ + row * spec_.row_words);
    keys.key_shift = std::countr_zero(static_cast<uint32_t>(spec_.key_block));
    while (keys.begin < keys.end && !mask_.BitOf(keys, keys.begin)) {
      const int64_t next = ((int64_t{keys.begin} >> keys.key_shift) + 1)
                           << keys.key_shift;
      keys.begin = static_cast<int32_t>(std::min<int64_t>(next, keys.end));
    }
    while (keys.begin < keys.end && !mask_.BitOf(keys, keys.end - 1)) {
      keys.end = (keys.end - 1) >> keys.key_shift << keys.key_shift;
    }
  }

  const AttentionDesc& desc_;
  const AttentionMaskSpec& spec_;
  const AttentionSequence& sequence_;
  AttentionMask& mask_;
  int64_t first_bits_ = 0;
  int64_t first_row_ = 0;  // of the bitmap
  size_t document_ = 0;    // the first that begins behind the query
};

enum class Seen { kNone, kSome, kAll };

// Of keys [begin, end), not empty, by the bits alone.
Seen SeenByBits(const AttentionMask& mask, const AttentionRowKeys& row,
                int64_t begin, int64_t end) {
  if (row.bits < 0) return Seen::kAll;
  const int64_t first = begin >> row.key_shift;
  const int64_t last = (end - 1) >> row.key_shift;
  bool any = false;
  bool all = true;
  for (int64_t word = first / 32; word <= last / 32; ++word) {
    uint32_t of = ~uint32_t{0};
    if (word == first / 32) of &= ~uint32_t{0} << first % 32;
    if (word == last / 32) of &= ~uint32_t{0} >> (31 - last % 32);
    const uint32_t bits = mask.bits[static_cast<size_t>(row.bits + word)] & of;
    any = any || bits != 0;
    all = all && bits == of;
  }
  return all ? Seen::kAll : any ? Seen::kSome : Seen::kNone;
}

bool SeesAny(const AttentionMask& mask, const AttentionRowKeys& row,
             int64_t begin, int64_t end) {
  begin = std::max<int64_t>(begin, row.begin);
  end = std::min<int64_t>(end, row.end);
  return begin < end && SeenByBits(mask, row, begin, end) != Seen::kNone;
}

// Rows one after another that have the same bits.
struct Group {
  AttentionRowKeys row;  // one of them
  int64_t first;
  int64_t count;
  int64_t all_begin;  // keys that lie within all rows' bounds
  int64_t all_end;
};

std::vector<Group> GroupRows(const AttentionMask& mask, int64_t first,
                             int64_t count) {
  std::vector<Group> groups;
  for (int64_t i = first; i < first + count; ++i) {
    const AttentionRowKeys& row = mask.rows[static_cast<size_t>(i)];
    if (groups.empty() || groups.back().row.bits != row.bits) {
      groups.push_back({row, i, 0, 0, kMost});
    }
    Group& group = groups.back();
    ++group.count;
    group.all_begin = std::max<int64_t>(group.all_begin, row.begin);
    group.all_end = std::min<int64_t>(group.all_end, row.end);
  }
  return groups;
}

Seen SeenByGroup(const AttentionMask& mask, const Group& group, int64_t begin,
                 int64_t end) {
  if (begin >= group.all_begin && end <= group.all_end) {
    return SeenByBits(mask, group.row, begin, end);
  }
  return SeesAny(mask, group.first, group.count, begin, end) ? Seen::kSome
                                                             : Seen::kNone;
}

Seen SeenByAll(const AttentionMask& mask, const std::vector<Group>& groups,
               int64_t begin, int64_t end) {
  Seen seen = Seen::kNone;
  for (size_t i = 0; i < groups.size(); ++i) {
    const Seen here = SeenByGroup(mask, groups[i], begin, end);
    if (here == Seen::kSome || (i > 0 && here != seen)) return Seen::kSome;
    seen = here;
  }
  return seen;
}

}  // namespace

absl::StatusOr<AttentionMask> CompileAttentionMask(
    const AttentionDesc& desc, absl::Span<const AttentionSequence> sequences,
    absl::Span<const AttentionMaskSpec> specs) {
  if (specs.size() != sequences.size()) {
    return absl::InvalidArgumentError(FormattedString(
        "attention mask: %d descriptions; expected one for each of %d "
        "sequences",
        specs.size(), sequences.size()));
  }
  AttentionMask mask;
  size_t rows = 0;
  int64_t words = 1;
  for (size_t i = 0; i < specs.size(); ++i) {
    INLAY_RETURN_IF_ERROR(CheckSpec(specs[i], sequences[i]));
    words += static_cast<int64_t>(specs[i].blocks.size());
    INLAY_RETURN_IF_ERROR(
        CheckRange("attention mask", "words of all blocks", words, 1, kMost));
    rows = std::max(
        rows, static_cast<size_t>(sequences[i].q_begin + sequences[i].q_len));
  }
  mask.rows.resize(rows);
  for (size_t i = 0; i < specs.size(); ++i) {
    Compiler(desc, specs[i], sequences[i], mask).Run();
  }
  // Kernels read the word behind the one that they need.
  if (!mask.bits.empty()) mask.bits.push_back(0);
  return mask;
}

bool SeesAny(const AttentionMask& mask, int64_t first, int64_t count,
             int64_t begin, int64_t end) {
  for (int64_t i = first; i < first + count; ++i) {
    if (SeesAny(mask, mask.rows[static_cast<size_t>(i)], begin, end)) {
      return true;
    }
  }
  return false;
}

int64_t MaxAttentionKeyRuns(const AttentionMask& mask, int64_t first,
                            int64_t count, int64_t kv_len, int64_t block_keys) {
  for (int64_t i = first; i < first + count; ++i) {
    if (mask.rows[static_cast<size_t>(i)].bits >= 0) {
      return (kv_len + block_keys - 1) / block_keys;
    }
  }
  // What queries one after another see has no holes: some, all, some.
  return 3;
}

int64_t ListAttentionKeyRuns(const AttentionMask& mask, int64_t first,
                             int64_t count, int64_t block_keys,
                             AttentionKeyRun* runs, int32_t& blocks) {
  const std::vector<Group> groups = GroupRows(mask, first, count);
  int64_t begin = kMost;
  int64_t end = 0;
  for (int64_t i = first; i < first + count; ++i) {
    const AttentionRowKeys& row = mask.rows[static_cast<size_t>(i)];
    if (row.begin == row.end) continue;
    begin = std::min<int64_t>(begin, row.begin);
    end = std::max<int64_t>(end, row.end);
  }
  int64_t num_runs = 0;
  Seen before = Seen::kNone;
  blocks = 0;
  for (int64_t n = (end - 1) / block_keys; end > 0 && n >= begin / block_keys;
       --n) {
    const Seen seen =
        SeenByAll(mask, groups, n * block_keys, (n + 1) * block_keys);
    if (seen != Seen::kNone) {
      if (seen != before) runs[num_runs++] = {static_cast<int32_t>(n), 0};
      runs[num_runs - 1].count += seen == Seen::kAll ? 1 : -1;
      ++blocks;
    }
    before = seen;
  }
  return num_runs;
}

void FillAlibiSlopes(int num_heads, float* slopes) {
  const auto power =
      static_cast<int>(std::bit_floor(static_cast<unsigned>(num_heads)));
  for (int i = 0; i < num_heads; ++i) {
    const double exponent = i < power ? -8.0 * (i + 1) / power
                                      : -4.0 * (2 * (i - power) + 1) / power;
    slopes[i] = static_cast<float>(std::exp2(exponent));
  }
}

}  // namespace inlay
