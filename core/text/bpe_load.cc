// From the "model" object of a tokenizer.json to a BpeModel.
#include <algorithm>

#include "core/text/bpe.h"
#include "core/text/byte_alphabet.h"
#include "core/text/tokenizer_spec.h"
#include "core/text/utf8.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr size_t kMaxMerges = 16 << 20;

struct MergeText {
  std::string_view left;
  std::string_view right;
};

// "a b" in older files, ["a", "b"] in newer ones, where tokens hold spaces.
absl::StatusOr<MergeText> ParseMerge(const Json& merge, size_t rank) {
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() &&
      merge[1].is_string()) {
    return MergeText{merge[0].get_ref<const std::string&>(),
                     merge[1].get_ref<const std::string&>()};
  }
  if (merge.is_string()) {
    const std::string_view text = merge.get_ref<const std::string&>();
    const size_t space = text.find(' ');
    if (space != std::string_view::npos &&
        text.find(' ', space + 1) == std::string_view::npos) {
      return MergeText{text.substr(0, space), text.substr(space + 1)};
    }
  }
  return absl::InvalidArgumentError(FormattedString(
      "BPE: merge %d is neither \"left right\" nor [\"left\", \"right\"]",
      rank));
}

absl::StatusOr<int32_t> IdOf(const Vocabulary& vocabulary,
                             std::string_view token, size_t rank) {
  const std::optional<int32_t> id = vocabulary.TokenToId(token);
  if (id) return *id;
  return absl::InvalidArgumentError(
      FormattedString("BPE: \"%s\" of merge %d is not in the vocabulary",
                      token.substr(0, 80), rank));
}

absl::StatusOr<MergeTable> ReadMerges(const Json& list,
                                      const Vocabulary& vocabulary,
                                      size_t prefix_bytes,
                                      MergeBounds* bounds) {
  if (list.size() > kMaxMerges) {
    return absl::ResourceExhaustedError(FormattedString(
        "BPE: %d merges, at most %d allowed", list.size(), kMaxMerges));
  }
  MergeTable table(list.size());
  uint32_t rank = 0;
  std::string merged;
  for (const Json& item : list) {
    const bool is_version =
        rank == 0 && item.is_string() &&
        item.get_ref<const std::string&>().starts_with("#version");
    if (is_version) continue;
    INLAY_ASSIGN_OR_RETURN(const MergeText merge, ParseMerge(item, rank));
    INLAY_ASSIGN_OR_RETURN(const int32_t left,
                           IdOf(vocabulary, merge.left, rank));
    INLAY_ASSIGN_OR_RETURN(const int32_t right,
                           IdOf(vocabulary, merge.right, rank));
    // The right one continues a word, the merged one may start it.
    const size_t cut = std::min(prefix_bytes, merge.right.size());
    merged.assign(merge.left).append(merge.right.substr(cut));
    INLAY_ASSIGN_OR_RETURN(const int32_t id, IdOf(vocabulary, merged, rank));
    table.Set(left, right, {rank, id});
    // No symbol is empty.
    if (!merge.left.empty() && !merge.right.empty()) {
      bounds->Join(RuneBefore(merge.left, merge.left.size()).code,
                   RuneAt(merge.right, 0).code);
    }
    ++rank;
  }
  return table;
}

absl::Status CheckDropout(const Json& model) {
  const Json* dropout = JsonFind(model, "dropout");
  if (dropout == nullptr || (dropout->is_number() && *dropout == 0)) {
    return absl::OkStatus();
  }
  return absl::UnimplementedError(FormattedString(
      "BPE \"dropout\" is %s, allowed: null or 0 (encoding is deterministic)",
      ShownJson(*dropout)));
}

absl::StatusOr<BpeModel::Options> ReadOptions(const Json& model,
                                              const Vocabulary& vocabulary) {
  BpeModel::Options options;
  INLAY_RETURN_IF_ERROR(CheckDropout(model));
  INLAY_ASSIGN_OR_RETURN(options.fuse_unk, JsonBool(model, "fuse_unk", false));
  INLAY_ASSIGN_OR_RETURN(options.byte_fallback,
                         JsonBool(model, "byte_fallback", false));
  INLAY_ASSIGN_OR_RETURN(options.ignore_merges,
                         JsonBool(model, "ignore_merges", false));
  INLAY_ASSIGN_OR_RETURN(options.continuing_subword_prefix,
                         JsonString(model, "continuing_subword_prefix", ""));
  INLAY_ASSIGN_OR_RETURN(options.end_of_word_suffix,
                         JsonString(model, "end_of_word_suffix", ""));
  constexpr size_t kMaxAffixBytes = 64;
  if (options.continuing_subword_prefix.size() > kMaxAffixBytes ||
      options.end_of_word_suffix.size() > kMaxAffixBytes) {
    return absl::InvalidArgumentError(FormattedString(
        "BPE: an affix above %d bytes is no affix", kMaxAffixBytes));
  }
  if (JsonFind(model, "unk_token") != nullptr) {
    INLAY_ASSIGN_OR_RETURN(const std::string unk,
                           JsonString(model, "unk_token", ""));
    // Byte-level files name tokens that the vocabulary lacks; nothing is ever
    // unknown to them.
    options.unk_id = vocabulary.TokenToId(unk);
  }
  return options;
}

bool SpellsEveryByte(const Vocabulary& vocabulary) {
  for (int byte = 0; byte < 256; ++byte) {
    std::string spelled;
    AppendRune(ByteToAlphabet(static_cast<uint8_t>(byte)), &spelled);
    if (!vocabulary.TokenToId(spelled)) return false;
  }
  return true;
}

}  // namespace

absl::StatusOr<std::unique_ptr<BpeModel>> BpeModel::Create(
    const Json& model, bool wants_raw_bytes) {
  INLAY_ASSIGN_OR_RETURN(Vocabulary vocabulary,
                         Vocabulary::Create(JsonFind(model, "vocab")));
  INLAY_ASSIGN_OR_RETURN(Options options, ReadOptions(model, vocabulary));
  INLAY_ASSIGN_OR_RETURN(const Json* list, SpecArray(model, "merges"));
  MergeBounds bounds(std::min(list->size(), kMaxMerges));
  INLAY_ASSIGN_OR_RETURN(
      MergeTable merges,
      ReadMerges(*list, vocabulary, options.continuing_subword_prefix.size(),
                 &bounds));
  // A byte that no token spells takes the way of characters, where it may be
  // unknown; without an unknown token it is dropped on either way.
  const bool simple = !options.unk_id && !options.byte_fallback;
  options.raw_bytes = wants_raw_bytes &&
                      options.continuing_subword_prefix.empty() &&
                      options.end_of_word_suffix.empty() &&
                      (simple || SpellsEveryByte(vocabulary));
  return std::unique_ptr<BpeModel>(
      new BpeModel(std::move(vocabulary), std::move(merges), std::move(bounds),
                   std::move(options)));
}

}  // namespace inlay
