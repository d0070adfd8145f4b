// ChatFormat: the chat templates of a model folder and the token texts that
// they see. Knows nothing of the template language.
#ifndef INLAY_CORE_FORMATS_CHAT_FORMAT_H_
#define INLAY_CORE_FORMATS_CHAT_FORMAT_H_

#include <map>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "core/formats/model_files.h"
#include "core/json/json.h"

namespace inlay {

// What a folder holds about chatting; absent documents are null.
struct ChatDocuments {
  Json tokenizer_config;    // tokenizer_config.json
  Json special_tokens_map;  // special_tokens_map.json
  Json chat_template;       // chat_template.json
  Json processor_config;    // processor_config.json
  // Templates that are files of their own, by name: "default" is
  // chat_template.jinja, the others are additional_chat_templates/NAME.jinja.
  std::map<std::string, std::string> files;
};

// All templates are of the first place that has any: files of their own, then
// tokenizer_config.json, chat_template.json, processor_config.json. A token is
// as special_tokens_map.json has it, or as tokenizer_config.json where the
// other does not mention it or where that lists added_tokens_decoder; null
// means that it is undefined. As transformers 5 has it. INVALID_ARGUMENT naming
// document and key for a value of the wrong type.
absl::StatusOr<ChatFormat> InterpretChatFormat(const ChatDocuments& documents);

// Reads the documents in the folder `directory`; none of them need exist.
// RESOURCE_EXHAUSTED above a cap on sizes or on the number of templates.
absl::StatusOr<ChatFormat> ReadChatFormat(const std::string& directory);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_CHAT_FORMAT_H_
