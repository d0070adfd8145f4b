// Any bytes as each of a model folder's JSON documents and as a model path: no
// crash, and what is accepted lies in the documented ranges.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "core/formats/chat_format.h"
#include "core/formats/generation_config.h"
#include "core/formats/model_path.h"
#include "core/formats/text_model.h"
#include "core/json/python_json.h"

namespace {

void Require(bool holds) {
  if (!holds) abort();
}

void CheckDefaults(const inlay::GenerationDefaults& defaults) {
  for (const int32_t id : defaults.eos_ids) Require(id >= 0);
  Require(defaults.bos_id.value_or(0) >= 0);
  Require(defaults.pad_id.value_or(0) >= 0);
  Require(defaults.temperature.value_or(0) >= 0);
  Require(defaults.top_k.value_or(0) >= 0);
  Require(defaults.top_p.value_or(0) >= 0 && defaults.top_p.value_or(0) <= 1);
  Require(defaults.min_p.value_or(0) >= 0 && defaults.min_p.value_or(0) <= 1);
  Require(defaults.repetition_penalty.value_or(1) > 0);
  Require(defaults.max_new_tokens.value_or(0) >= 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto path = inlay::ParseModelPath(text);
  Require(!path.ok() || !path->path.empty());

  const auto json = inlay::ParsePythonJson(text, "document");
  if (!json.ok()) return 0;
  Require(json->is_object());
  for (const auto& defaults :
       {inlay::InterpretGenerationDefaults(*json, inlay::Json()),
        inlay::InterpretGenerationDefaults(inlay::Json(), *json)}) {
    if (defaults.ok()) CheckDefaults(*defaults);
  }
  const auto inside = inlay::FindTextModel(*json);
  if (inside.ok() && inside->has_value()) {
    Require((*inside)->config.is_object() && inlay::WhyNoTextModel(*json).ok());
  }
  inlay::ChatDocuments documents;
  documents.tokenizer_config = *json;
  (void)inlay::InterpretChatFormat(documents);
  documents = {};
  documents.special_tokens_map = *json;
  documents.chat_template = *json;
  (void)inlay::InterpretChatFormat(documents);
  return 0;
}
