#include "core/formats/gguf_tokenizer_writer.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/formats/describe.h"
#include "core/formats/gguf_pre_tokenizer.h"
#include "core/formats/gguf_token_lists.h"
#include "core/formats/gguf_vocab.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

absl::Status Bad(const std::string& message) {
  return absl::InvalidArgumentError("tokenizer.json: " + message);
}

using Lists = GgufTokenLists;

absl::Status ReadTokens(const Json& file, const Json& vocab, Lists* lists) {
  for (const auto& [text, id] : vocab.items()) {
    INLAY_RETURN_IF_ERROR(lists->Add(
        text, id,
        IsByteToken(text) ? GgufTokenType::kByte : GgufTokenType::kNormal));
  }
  return lists->AddAdded(file);
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
      return Bad(FormattedString("a merge is %s, allowed: two tokens",
                                 Quoted(ShownJson(merge))));
    }
    lists->merges.push_back(merge[0].get<std::string>() + " " +
                            merge[1].get<std::string>());
  }
  return absl::OkStatus();
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

absl::Status SetPieces(const Json& file, const Json& model, Lists* lists,
                       GgufWriter* writer) {
  INLAY_ASSIGN_OR_RETURN(const std::string unknown,
                         JsonString(model, "unk_token", ""));
  const auto unk = lists->Find(unknown);
  if (unk.has_value()) {
    lists->SetType(*unk, GgufTokenType::kUnknown);
    INLAY_RETURN_IF_ERROR(writer->SetU32("tokenizer.ggml.unknown_token_id",
                                         static_cast<uint32_t>(*unk)));
  }
  bool adds_space = false;
  for (const char* name : {"normalizer", "pre_tokenizer"}) {
    const Json* section = JsonFind(file, name);
    adds_space =
        adds_space || (section != nullptr && AddsSpaceInFront(*section));
  }
  INLAY_RETURN_IF_ERROR(writer->SetString("tokenizer.ggml.model", "llama"));
  INLAY_RETURN_IF_ERROR(writer->SetString("tokenizer.ggml.pre", "default"));
  INLAY_RETURN_IF_ERROR(
      writer->SetBool("tokenizer.ggml.add_space_prefix", adds_space));
  lists->scores = Scores(*lists);
  return absl::OkStatus();
}

absl::Status SetBytePair(const Json& file, const Json& model, Lists* lists,
                         GgufWriter* writer) {
  const Json* vocab = JsonFind(model, "vocab");
  if (vocab == nullptr || !vocab->is_object()) return Bad("no vocab");
  INLAY_RETURN_IF_ERROR(ReadTokens(file, *vocab, lists));
  INLAY_RETURN_IF_ERROR(ReadMerges(model, lists));
  INLAY_ASSIGN_OR_RETURN(const bool has_bytes,
                         JsonBool(model, "byte_fallback", false));
  return has_bytes ? SetPieces(file, model, lists, writer)
                   : SetByteLevel(file, model, *lists, writer);
}

// The items around a text ("single") or two ("pair"), from the first template
// there is.
const Json* FindTemplate(const Json& processor, const char* which) {
  const Json* single = JsonFind(processor, which);
  if (single != nullptr && single->is_array()) return single;
  const Json* steps = JsonFind(processor, "processors");
  if (steps == nullptr || !steps->is_array()) return nullptr;
  for (const Json& step : *steps) {
    const Json* found = FindTemplate(step, which);
    if (found != nullptr) return found;
  }
  return nullptr;
}

std::optional<int32_t> TemplateToken(const Json& item, const Lists& lists) {
  const Json* special = JsonFind(item, "SpecialToken");
  const Json* id = special == nullptr ? nullptr : JsonFind(*special, "id");
  if (id == nullptr || !id->is_string()) return std::nullopt;
  return lists.Find(id->get<std::string>());
}

// Tokens of the template between the two texts.
void ReadPair(const Json& items, Lists* lists) {
  int64_t count = 0;
  bool is_between = false;
  for (const Json& item : items) {
    if (JsonFind(item, "Sequence") != nullptr) {
      if (is_between) break;
      is_between = true;
    } else if (is_between) {
      ++count;
      lists->separator = TemplateToken(item, *lists);
    }
  }
  lists->num_between = count;
}

// The tokens that the template puts at the ends of a text.
void ReadTemplate(const Json& file, Lists* lists) {
  const Json* processor = JsonFind(file, "post_processor");
  if (processor == nullptr) return;
  // RobertaProcessing, BertProcessing: [text, id] each.
  const auto named = [&](const Json* pair) -> std::optional<int32_t> {
    if (pair == nullptr || !pair->is_array() || pair->empty() ||
        !pair->front().is_string()) {
      return std::nullopt;
    }
    return lists->Find(pair->front().get<std::string>());
  };
  lists->front = named(JsonFind(*processor, "cls"));
  lists->back = named(JsonFind(*processor, "sep"));
  if (lists->back.has_value()) {
    const Json* type = JsonFind(*processor, "type");
    lists->num_between =
        type != nullptr && *type == "RobertaProcessing" ? 2 : 1;
    lists->separator = lists->back;
  }
  const Json* items = FindTemplate(*processor, "single");
  if (items == nullptr || items->empty()) return;
  lists->front = TemplateToken(items->front(), *lists);
  lists->back = TemplateToken(items->back(), *lists);
  const Json* pair = FindTemplate(*processor, "pair");
  if (pair != nullptr) ReadPair(*pair, lists);
}

// As readers have pairs: the first text's EOS, and then this.
absl::Status SetSeparator(const Lists& lists, GgufWriter* writer) {
  constexpr char kId[] = "tokenizer.ggml.seperator_token_id";  // sic
  if (!lists.num_between.has_value()) return absl::OkStatus();
  const bool adds = *lists.num_between > (lists.back.has_value() ? 1 : 0) &&
                    lists.separator.has_value() &&
                    lists.separator != lists.front;
  if (adds && !writer->Has(kId)) {
    INLAY_RETURN_IF_ERROR(
        writer->SetU32(kId, static_cast<uint32_t>(*lists.separator)));
  }
  return writer->SetBool("tokenizer.ggml.add_sep_token", adds);
}

absl::Status SetSpecialIds(const ModelFiles& files, const Lists& lists,
                           GgufWriter* writer) {
  const auto set = [&](const char* key, int32_t id) {
    return writer->SetU32(key, static_cast<uint32_t>(id));
  };
  // What is put around a text has to be what these keys name.
  std::optional<int32_t> bos = lists.front;
  if (!bos.has_value()) bos = lists.Find(files.chat.bos_token);
  if (!bos.has_value()) bos = files.generation.bos_id;
  std::vector<int32_t> ends = files.generation.eos_ids;
  const auto put_first = [&](std::optional<int32_t> eos) {
    if (!eos.has_value()) return;
    std::erase(ends, *eos);
    ends.insert(ends.begin(), *eos);
  };
  // The chat template's comes first: readers show it there.
  put_first(lists.Find(files.chat.eos_token));
  put_first(lists.back);
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
  INLAY_RETURN_IF_ERROR(
      writer->SetBool("tokenizer.ggml.add_bos_token", lists.front.has_value()));
  INLAY_RETURN_IF_ERROR(
      writer->SetBool("tokenizer.ggml.add_eos_token", lists.back.has_value()));
  return SetSeparator(lists, writer);
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
  Lists lists(vocab_size);
  if (type == "BPE") {
    INLAY_RETURN_IF_ERROR(SetBytePair(tokenizer, *model, &lists, writer));
  } else if (type == "Unigram") {
    INLAY_RETURN_IF_ERROR(SetGgufUnigram(tokenizer, *model, &lists, writer));
  } else if (type == "WordPiece") {
    INLAY_RETURN_IF_ERROR(SetGgufWordPiece(tokenizer, *model, &lists, writer));
  } else if (type == "SentencePiece") {
    INLAY_RETURN_IF_ERROR(
        SetGgufSentencePiece(tokenizer, *model, &lists, writer));
  } else {
    return absl::UnimplementedError(FormattedString(
        "tokenizer.json: a model of type %s has no name in GGUF, allowed: BPE, "
        "Unigram, WordPiece",
        Quoted(type)));
  }
  const bool has_json = type != "SentencePiece";
  if (has_json) ReadTemplate(tokenizer, &lists);
  INLAY_RETURN_IF_ERROR(SetSpecialIds(files, lists, writer));
  lists.NameUnused();
  INLAY_RETURN_IF_ERROR(
      writer->SetStrings("tokenizer.ggml.tokens", lists.tokens));
  INLAY_RETURN_IF_ERROR(
      writer->SetI32s("tokenizer.ggml.token_type", lists.types));
  if (!lists.scores.empty()) {
    INLAY_RETURN_IF_ERROR(
        writer->SetF32s("tokenizer.ggml.scores", lists.scores));
  }
  INLAY_RETURN_IF_ERROR(SetTemplates(files.chat, writer));
  if (!has_json) return absl::OkStatus();
  return writer->SetString("tokenizer.huggingface.json", DumpJson(tokenizer));
}

absl::Status SetNoGgufTokenizer(std::string_view arch, int64_t vocab_size,
                                GgufWriter* writer) {
  INLAY_RETURN_IF_ERROR(writer->SetString("tokenizer.ggml.model", "no_vocab"));
  const std::string key = std::string(arch) + ".vocab_size";
  if (writer->Has(key)) return absl::OkStatus();
  return writer->SetU32(key, static_cast<uint32_t>(vocab_size));
}

}  // namespace inlay
