// Merges out of scores (gguf_tokenizer.h).
#include <algorithm>
#include <cstdint>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "core/formats/gguf_tokenizer.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

// Bytes compared in all: every prefix and suffix of every piece is looked up.
// The largest vocabularies (256k pieces) need some 50 million.
constexpr uint64_t kMaxWork = uint64_t{1} << 29;

// Merges, and the text of all of them. The largest vocabularies have some
// 600,000 with 10 MB; one takes some 200 bytes of memory.
constexpr size_t kMaxMerges = size_t{1} << 20;
constexpr uint64_t kMaxMergeBytes = uint64_t{64} << 20;

struct Merge {
  double score;
  int32_t left;
  int32_t right;
  int32_t left_runes;
  int32_t right_runes;
};

bool IsContinuation(char c) { return (c & 0xc0) == 0x80; }

// What text can be made of.
bool Merges(GgufTokenType type) {
  return type == GgufTokenType::kNormal || type == GgufTokenType::kUndefined ||
         type == GgufTokenType::kUserDefined;
}

using Index = absl::flat_hash_map<std::string_view, int32_t>;

void AddCuts(std::string_view piece, double score, const Index& index,
             std::vector<Merge>* merges) {
  const auto runes = static_cast<int32_t>(std::count_if(
      piece.begin(), piece.end(), [](char c) { return !IsContinuation(c); }));
  const auto first = static_cast<ptrdiff_t>(merges->size());
  int32_t left_runes = 1;
  for (size_t cut = 1; cut < piece.size(); ++cut) {
    if (IsContinuation(piece[cut])) continue;
    const auto left = index.find(piece.substr(0, cut));
    if (left != index.end()) {
      const auto right = index.find(piece.substr(cut));
      if (right != index.end()) {
        merges->push_back({score, left->second, right->second, left_runes,
                           runes - left_runes});
      }
    }
    ++left_runes;
  }
  std::sort(merges->begin() + first, merges->end(),
            [](const Merge& a, const Merge& b) {
              return a.left != b.left ? a.left < b.left : a.right < b.right;
            });
}

}  // namespace

absl::StatusOr<Json> GgufScoreMerges(const GgufVocab& vocab,
                                     const std::vector<std::string>& texts) {
  // In its constructor, an eighth of it free: one that finds no memory to grow
  // is lost.
  Index index(texts.size() + texts.size() / 7 + 1);
  uint64_t work = 0;
  for (size_t id = 0; id < texts.size(); ++id) {
    if (!Merges(vocab.types[id])) continue;
    index.emplace(texts[id], static_cast<int32_t>(id));
    work += uint64_t{texts[id].size()} * texts[id].size();
    if (work > kMaxWork) {
      return absl::ResourceExhaustedError(FormattedString(
          "key \"tokenizer.ggml.tokens\": the pieces up to %d are too long to "
          "find their merges (squares of lengths: %d, allowed: %d)",
          id, work, kMaxWork));
    }
  }
  std::vector<Merge> merges;
  uint64_t merge_bytes = 0;
  for (size_t id = 0; id < texts.size(); ++id) {
    if (!Merges(vocab.types[id])) continue;
    const size_t before = merges.size();
    // The converter overwrites these scores; trained, they are 0.
    const bool is_normal = vocab.types[id] != GgufTokenType::kUserDefined;
    AddCuts(texts[id], is_normal ? vocab.scores[id] : 0.0, index, &merges);
    merge_bytes += uint64_t{texts[id].size()} * (merges.size() - before);
    if (merges.size() > kMaxMerges || merge_bytes > kMaxMergeBytes) {
      return absl::ResourceExhaustedError(FormattedString(
          "key \"tokenizer.ggml.tokens\": the pieces up to %d have %d merges "
          "of %d bytes, allowed: %d of %d",
          id, merges.size(), merge_bytes, kMaxMerges, kMaxMergeBytes));
    }
  }
  std::stable_sort(merges.begin(), merges.end(),
                   [](const Merge& a, const Merge& b) {
                     if (a.score != b.score) return a.score > b.score;
                     if (a.left_runes != b.left_runes) {
                       return a.left_runes > b.left_runes;
                     }
                     return a.right_runes > b.right_runes;
                   });
  Json list = Json::array();
  for (const Merge& merge : merges) {
    Json pair = Json::array();
    pair.push_back(texts[static_cast<size_t>(merge.left)]);
    pair.push_back(texts[static_cast<size_t>(merge.right)]);
    list.push_back(std::move(pair));
  }
  return list;
}

}  // namespace inlay
