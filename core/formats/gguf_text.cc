#include "core/formats/gguf_text.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "core/formats/describe.h"
#include "core/formats/gguf_metadata.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr std::string_view kGgufTemplateKey = "tokenizer.chat_template";
constexpr size_t kMaxGgufTemplateBytes = size_t{4} << 20;
constexpr size_t kMaxNamedTemplates = 256;

// In the templates of the families that load here.
constexpr std::string_view kEnds[] = {
    "<|eot_id|>",    "<|eom_id|>",      "<|im_end|>",    "<|end|>",
    "<|endoftext|>", "<|end_of_text|>", "<end_of_turn>",
};

void AddEnd(int32_t id, GenerationDefaults* defaults) {
  auto& ids = defaults->eos_ids;
  if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
}

absl::StatusOr<std::string> ReadTemplate(const GgufHeader& header,
                                         std::string_view key) {
  INLAY_ASSIGN_OR_RETURN(const auto found, GgufString(header, key));
  std::string text = found.value_or("");
  if (text.size() <= kMaxGgufTemplateBytes) return text;
  return absl::ResourceExhaustedError(
      FormattedString("key %s: a template of %d bytes, at most %d allowed",
                      Quoted(key), text.size(), kMaxGgufTemplateBytes));
}

}  // namespace

GenerationDefaults GgufGenerationDefaults(const GgufVocab& vocab) {
  GenerationDefaults defaults;
  defaults.bos_id = vocab.bos_id;
  defaults.pad_id = vocab.pad_id;
  for (const auto& id : {vocab.eos_id, vocab.eot_id, vocab.eom_id}) {
    if (id.has_value()) AddEnd(*id, &defaults);
  }
  for (size_t i = 0; i < vocab.tokens.size(); ++i) {
    const auto id = static_cast<int32_t>(i);
    const bool is_added = vocab.type(id) == GgufTokenType::kControl ||
                          vocab.type(id) == GgufTokenType::kUserDefined;
    if (is_added && std::find(std::begin(kEnds), std::end(kEnds),
                              vocab.token(id)) != std::end(kEnds)) {
      AddEnd(id, &defaults);
    }
  }
  return defaults;
}

absl::StatusOr<ChatFormat> ReadGgufChatFormat(const GgufHeader& header,
                                              const GgufVocab& vocab) {
  ChatFormat chat;
  if (vocab.bos_id.has_value()) chat.bos_token = vocab.token(*vocab.bos_id);
  if (vocab.eos_id.has_value()) chat.eos_token = vocab.token(*vocab.eos_id);
  for (const GgufEntry& entry : header.entries) {
    if (!entry.key.starts_with(kGgufTemplateKey)) continue;
    const std::string_view rest = entry.key.substr(kGgufTemplateKey.size());
    if (!rest.empty() && rest[0] != '.') continue;
    INLAY_ASSIGN_OR_RETURN(std::string text, ReadTemplate(header, entry.key));
    if (rest.empty()) {
      chat.chat_template = std::move(text);
      continue;
    }
    if (chat.named_templates.size() == kMaxNamedTemplates) {
      return absl::ResourceExhaustedError(FormattedString(
          "more than %d named chat templates", kMaxNamedTemplates));
    }
    chat.named_templates.emplace_back(rest.substr(1), std::move(text));
  }
  return chat;
}

}  // namespace inlay
