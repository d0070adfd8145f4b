#include "core/formats/gguf_tokenizer_writer.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "absl/strings/str_format.h"
#include "core/formats/describe.h"
#include "core/formats/gguf_pre_tokenizer.h"
#include "core/formats/gguf_vocab.h"
#include "memory/status.h"

namespace inlay {
namespace {

absl::Status Bad(const std::string& message) {
  return absl::InvalidArgumentError("tokenizer.json: " + message);
}

// "<0x0A>": a byte that is no part of any piece.
bool IsByte(std::string_view token) {
  return token.size() == 6 && token.starts_with("<0x") && token.ends_with(">");
}

struct Lists {
  std::vector<std::string> tokens;
  std::vector<int32_t> types;
  std::vector<std::string> merges;  // "left right"
  std::unordered_map<std::string, int32_t> ids;

  std::optional<int32_t> Find(const std::string& token) const {
    const auto found = ids.find(token);
    if (found == ids.end()) return std::nullopt;
    return found->second;
  }
};

absl::Status AddToken(const std::string& text, const Json& id,
                      GgufTokenType type, Lists* lists) {
  const auto size = static_cast<int64_t>(lists->tokens.size());
  if (!id.is_number_integer() || id.get<int64_t>() < 0 ||
      id.get<int64_t>() >= size) {
    return Bad(absl::StrFormat("token %s has the id %s, allowed: 0 to %d",
                               Quoted(text), DumpJson(id), size - 1));
  }
  const auto at = id.get<size_t>();
  lists->tokens[at] = text;
  lists->types[at] = static_cast<int32_t>(type);
  lists->ids[text] = static_cast<int32_t>(at);
  return absl::OkStatus();
}

absl::Status ReadTokens(const Json& file, const Json& vocab, Lists* lists) {
  for (const auto& [text, id] : vocab.items()) {
    INLAY_RETURN_IF_ERROR(AddToken(
        text, id, IsByte(text) ? GgufTokenType::kByte : GgufTokenType::kNormal,
        lists));
  }
  const Json* added = JsonFind(file, "added_tokens");
  if (added == nullptr || !added->is_array()) return absl::OkStatus();
  for (const Json& token : *added) {
    const Json* id = JsonFind(token, "id");
    if (id == nullptr) return Bad("an added token has no id");
    INLAY_ASSIGN_OR_RETURN(const std::string text,
                           JsonString(token, "content", ""));
    INLAY_ASSIGN_OR_RETURN(const bool special,
                           JsonBool(token, "special", false));
    INLAY_RETURN_IF_ERROR(AddToken(
        text, *id,
        special ? GgufTokenType::kControl : GgufTokenType::kUserDefined,
        lists));
  }
  return absl::OkStatus();
}

absl::Status ReadMerges(const Json& model, Lists* lists) {
  const Json* merges = JsonFind(model, "merges");
  if (merges == nullptr || !merges->is_array()) return Bad("no merges");
  for (const Json& merge : *merges) {
    if (merge.is_string()) {
      lists->merges.push_back(merge.get<std::string>());
      continue;
    }
    if (!merge.is_array() || merge.size() != 2 || !merge[0].is_string() ||
        !merge[1].is_string()) {
      return Bad(absl::StrFormat("a merge is %s, allowed: two tokens",
                                 Quoted(DumpJson(merge))));
    }
    lists->merges.push_back(merge[0].get<std::string>() + " " +
                            merge[1].get<std::string>());
  }
  return absl::OkStatus();
}

absl::StatusOr<Lists> ReadLists(const Json& file, const Json& model,
                                int64_t vocab_size) {
  const Json* vocab = JsonFind(model, "vocab");
  if (vocab == nullptr || !vocab->is_object()) return Bad("no vocab");
  Lists lists;
  lists.tokens.resize(static_cast<size_t>(vocab_size));
  lists.types.assign(lists.tokens.size(),
                     static_cast<int32_t>(GgufTokenType::kUnused));
  INLAY_RETURN_IF_ERROR(ReadTokens(file, *vocab, &lists));
  for (size_t id = 0; id < lists.tokens.size(); ++id) {
    if (lists.tokens[id].empty()) {
      lists.tokens[id] = absl::StrFormat("[PAD%d]", id);
    }
  }
  INLAY_RETURN_IF_ERROR(ReadMerges(model, &lists));
  return lists;
}

absl::Status SetByteLevel(const Json& file, const Json& model,
                          const Lists& lists, GgufWriter* writer) {
  INLAY_ASSIGN_OR_RETURN(const bool ignore_merges,
                         JsonBool(model, "ignore_merges", false));
  const auto section = [&](const char* name) {
    const Json* found = JsonFind(file, name);
    return found == nullptr ? Json() : *found;
  };
  INLAY_ASSIGN_OR_RETURN(
      const std::string_view pre,
      NameGgufPreTokenizer(section("pre_tokenizer"), section("normalizer"),
                           ignore_merges));
  INLAY_RETURN_IF_ERROR(writer->SetString("tokenizer.ggml.model", "gpt2"));
  INLAY_RETURN_IF_ERROR(writer->SetString("tokenizer.ggml.pre", pre));
  return writer->SetStrings("tokenizer.ggml.merges", lists.merges);
}

// What is never made by a merge comes last.
std::vector<float> Scores(const Lists& lists) {
  std::vector<float> scores(lists.tokens.size(),
                            -static_cast<float>(lists.merges.size()));
  for (size_t i = lists.merges.size(); i-- > 0;) {
    const std::string& merge = lists.merges[i];
    const size_t space = merge.find(' ');
    if (space == merge.npos) continue;
    const auto made =
        lists.Find(merge.substr(0, space) + merge.substr(space + 1));
    if (!made.has_value()) continue;
    scores[static_cast<size_t>(*made)] = -static_cast<float>(i);
  }
  return scores;
}

// Whether a text gets a space in front: by the normalizer, or by "Metaspace".
bool AddsSpace(const Json& section) {
  const Json* type = JsonFind(section, "type");
  if (type == nullptr) return false;
  if (*type == "Prepend") return true;
  if (*type == "Metaspace") {
    const Json* scheme = JsonFind(section, "prepend_scheme");
    return scheme == nullptr || *scheme != "never";
  }
  for (const char* list : {"normalizers", "pretokenizers"}) {
    const Json* steps = JsonFind(section, list);
    if (steps == nullptr || !steps->is_array()) continue;
    if (std::any_of(steps->begin(), steps->end(), AddsSpace)) return true;
  }
  return false;
}

absl::Status SetPieces(const Json& file, const Json& model, Lists* lists,
                       GgufWriter* writer) {
  INLAY_ASSIGN_OR_RETURN(const std::string unknown,
                         JsonString(model, "unk_token", ""));
  const auto unk = lists->Find(unknown);
  if (unk.has_value()) {
    lists->types[static_cast<size_t>(*unk)] =
        static_cast<int32_t>(GgufTokenType::kUnknown);
    INLAY_RETURN_IF_ERROR(writer->SetU32("tokenizer.ggml.unknown_token_id",
                                         static_cast<uint32_t>(*unk)));
  }
  bool adds_space = false;
  for (const char* name : {"normalizer", "pre_tokenizer"}) {
    const Json* section = JsonFind(file, name);
    adds_space = adds_space || (section != nullptr && AddsSpace(*section));
  }
  INLAY_RETURN_IF_ERROR(writer->SetString("tokenizer.ggml.model", "llama"));
  INLAY_RETURN_IF_ERROR(writer->SetString("tokenizer.ggml.pre", "default"));
  INLAY_RETURN_IF_ERROR(
      writer->SetBool("tokenizer.ggml.add_space_prefix", adds_space));
  return writer->SetF32s("tokenizer.ggml.scores", Scores(*lists));
}

// The items around a text, from the last template there is.
const Json* SingleTemplate(const Json& processor) {
  const Json* single = JsonFind(processor, "single");
  if (single != nullptr && single->is_array()) return single;
  const Json* steps = JsonFind(processor, "processors");
  if (steps == nullptr || !steps->is_array()) return nullptr;
  for (const Json& step : *steps) {
    const Json* found = SingleTemplate(step);
    if (found != nullptr) return found;
  }
  return nullptr;
}

absl::Status SetSpecialIds(const Json& file, const ModelFiles& files,
                           const Lists& lists, GgufWriter* writer) {
  const auto set = [&](const char* key, int32_t id) {
    return writer->SetU32(key, static_cast<uint32_t>(id));
  };
  std::optional<int32_t> bos = lists.Find(files.chat.bos_token);
  if (!bos.has_value()) bos = files.generation.bos_id;
  std::vector<int32_t> ends = files.generation.eos_ids;
  // The template's comes first: readers show it there.
  const std::optional<int32_t> eos = lists.Find(files.chat.eos_token);
  if (eos.has_value()) {
    std::erase(ends, *eos);
    ends.insert(ends.begin(), *eos);
  }
  if (bos.has_value()) {
    INLAY_RETURN_IF_ERROR(set("tokenizer.ggml.bos_token_id", *bos));
  }
  // Further ones are known to readers by their text.
  constexpr const char* kEnds[] = {"tokenizer.ggml.eos_token_id",
                                   "tokenizer.ggml.eot_token_id",
                                   "tokenizer.ggml.eom_token_id"};
  for (size_t i = 0; i < std::min(ends.size(), std::size(kEnds)); ++i) {
    INLAY_RETURN_IF_ERROR(set(kEnds[i], ends[i]));
  }
  if (files.generation.pad_id.has_value()) {
    INLAY_RETURN_IF_ERROR(
        set("tokenizer.ggml.padding_token_id", *files.generation.pad_id));
  }
  const Json* processor = JsonFind(file, "post_processor");
  const Json* items =
      processor == nullptr ? nullptr : SingleTemplate(*processor);
  const bool has_items = items != nullptr && !items->empty();
  const auto adds = [&](bool front) {
    return has_items &&
           (front ? items->front() : items->back()).contains("SpecialToken");
  };
  INLAY_RETURN_IF_ERROR(writer->SetBool("tokenizer.ggml.add_bos_token",
                                        bos.has_value() && adds(true)));
  return writer->SetBool("tokenizer.ggml.add_eos_token",
                         !ends.empty() && adds(false));
}

absl::Status SetTemplates(const ChatFormat& chat, GgufWriter* writer) {
  if (!chat.chat_template.empty()) {
    INLAY_RETURN_IF_ERROR(
        writer->SetString("tokenizer.chat_template", chat.chat_template));
  }
  for (const auto& [name, text] : chat.named_templates) {
    if (name == "default" && !chat.chat_template.empty()) continue;
    INLAY_RETURN_IF_ERROR(
        writer->SetString("tokenizer.chat_template." + name, text));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status SetGgufTokenizer(const Json& tokenizer, const ModelFiles& files,
                              int64_t vocab_size, GgufWriter* writer) {
  const Json* model = JsonFind(tokenizer, "model");
  if (model == nullptr || !model->is_object()) return Bad("no model");
  INLAY_ASSIGN_OR_RETURN(const std::string type,
                         JsonString(*model, "type", "BPE"));
  if (type != "BPE") {
    return absl::UnimplementedError(absl::StrFormat(
        "tokenizer.json: a model of type %s cannot be written, allowed: BPE",
        Quoted(type)));
  }
  INLAY_ASSIGN_OR_RETURN(Lists lists, ReadLists(tokenizer, *model, vocab_size));
  INLAY_ASSIGN_OR_RETURN(const bool has_bytes,
                         JsonBool(*model, "byte_fallback", false));
  INLAY_RETURN_IF_ERROR(has_bytes
                            ? SetPieces(tokenizer, *model, &lists, writer)
                            : SetByteLevel(tokenizer, *model, lists, writer));
  INLAY_RETURN_IF_ERROR(
      writer->SetStrings("tokenizer.ggml.tokens", lists.tokens));
  INLAY_RETURN_IF_ERROR(
      writer->SetI32s("tokenizer.ggml.token_type", lists.types));
  INLAY_RETURN_IF_ERROR(SetSpecialIds(tokenizer, files, lists, writer));
  INLAY_RETURN_IF_ERROR(SetTemplates(files.chat, writer));
  return writer->SetString("tokenizer.huggingface.json", DumpJson(tokenizer));
}

}  // namespace inlay
