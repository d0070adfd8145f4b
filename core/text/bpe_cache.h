// BpeCache: the ids of words seen earlier in the same call. Direct-mapped and
// of fixed size; a collision forgets the older word.
#ifndef INLAY_CORE_TEXT_BPE_CACHE_H_
#define INLAY_CORE_TEXT_BPE_CACHE_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "absl/types/span.h"

namespace inlay {

class BpeCache {
 public:
  // Large enough for the vocabulary of ordinary text, not so large that it
  // falls out of the second-level cache; nothing for a text so short that
  // clearing costs more than it saves.
  explicit BpeCache(size_t text_bytes) {
    if (text_bytes < kMinTextBytes) return;
    size_t num = kMinEntries;
    while (num < kMaxEntries && num * kBytesPerEntry < text_bytes) num *= 2;
    entries_.resize(num);
  }

  // The ids of `word`, whose hash is `hash`; empty when it is not there.
  absl::Span<const int32_t> Find(std::string_view word, size_t hash) const {
    if (entries_.empty()) return {};
    const Entry& entry = entries_[Index(hash)];
    if (entry.length != word.size() || word.empty() ||
        std::memcmp(entry.word, word.data(), word.size()) != 0) {
      return {};
    }
    return {entry.ids, entry.num_ids};
  }

  void Insert(std::string_view word, size_t hash,
              absl::Span<const int32_t> ids) {
    if (entries_.empty() || word.size() > kMaxWordBytes || ids.empty() ||
        ids.size() > kMaxIds) {
      return;
    }
    Entry& entry = entries_[Index(hash)];
    entry.length = static_cast<uint8_t>(word.size());
    entry.num_ids = static_cast<uint8_t>(ids.size());
    std::memcpy(entry.word, word.data(), word.size());
    std::copy(ids.begin(), ids.end(), entry.ids);
  }

 private:
  static constexpr size_t kMinTextBytes = 2048;
  static constexpr size_t kMinEntries = 64;
  static constexpr size_t kMaxEntries = 8192;
  static constexpr size_t kBytesPerEntry = 64;
  static constexpr size_t kMaxWordBytes = 22;
  static constexpr size_t kMaxIds = 10;
  struct Entry {  // one cache line
    uint8_t length = 0;
    uint8_t num_ids = 0;
    char word[kMaxWordBytes];
    int32_t ids[kMaxIds];
  };
  static_assert(sizeof(Entry) == 64);

  size_t Index(size_t hash) const { return hash & (entries_.size() - 1); }

  std::vector<Entry> entries_;
};

}  // namespace inlay

#endif  // INLAY_CORE_TEXT_BPE_CACHE_H_
