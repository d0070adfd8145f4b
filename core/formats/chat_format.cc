#include "core/formats/chat_format.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <system_error>
#include <utility>

#include "core/formats/describe.h"
#include "core/json/python_json.h"
#include "memory/file_ops.h"
#include "memory/formatted_string.h"
#include "memory/mapped_file.h"
#include "memory/status.h"

namespace inlay {
namespace {

namespace fs = std::filesystem;
using Templates = std::map<std::string, std::string>;

constexpr char kDefaultName[] = "default";
constexpr char kTemplateKey[] = "chat_template";
constexpr uint64_t kMaxTemplateBytes = uint64_t{4} << 20;
constexpr size_t kMaxTemplates = 256;
constexpr size_t kMaxTokens = 1024;
// A folder may hold other files; beyond this it is no folder of templates.
constexpr int kMaxFolderEntries = 4096;

absl::Status BadTemplate(std::string_view file, std::string_view got) {
  return absl::InvalidArgumentError(
      FormattedString("%s: \"%s\" %s, allowed: a string or a list of "
                      "{\"name\": string, \"template\": string}",
                      file, kTemplateKey, got));
}

// The templates of one document.
absl::Status AddTemplates(const Json& document, std::string_view file,
                          Templates* templates) {
  const Json* value = JsonFind(document, kTemplateKey);
  if (value == nullptr) return absl::OkStatus();
  if (value->is_string()) {
    templates->emplace(kDefaultName, value->get_ref<const std::string&>());
    return absl::OkStatus();
  }
  if (!value->is_array()) {
    return BadTemplate(file, FormattedString("is %s", value->type_name()));
  }
  if (value->size() > kMaxTemplates) {
    return absl::ResourceExhaustedError(
        FormattedString("%s: %d chat templates, at most %d allowed", file,
                        value->size(), kMaxTemplates));
  }
  for (const Json& item : *value) {
    const Json* name = JsonFind(item, "name");
    const Json* text = JsonFind(item, "template");
    if (name == nullptr || !name->is_string() || text == nullptr ||
        !text->is_string()) {
      return BadTemplate(file, "has an element of another form");
    }
    // As in Python's dict, the last of equal names wins.
    templates->insert_or_assign(name->get_ref<const std::string&>(),
                                text->get_ref<const std::string&>());
  }
  return absl::OkStatus();
}

struct Place {
  const Json* document;
  std::string_view file;
};

// Empty where it is null.
absl::StatusOr<std::string> TokenText(const Place& place,
                                      const std::string& key) {
  const Json* value = JsonFind(*place.document, key);
  if (value == nullptr) return std::string();
  // Added tokens are written as objects: {"content": "<s>", ...}.
  if (value->is_object()) value = JsonFind(*value, "content");
  if (value == nullptr || !value->is_string()) {
    return absl::InvalidArgumentError(FormattedString(
        "%s: \"%s\" is %s, allowed: a string, {\"content\": string} or null",
        place.file, key,
        value == nullptr ? "an object without \"content\""
                         : value->type_name()));
  }
  return value->get<std::string>();
}

// A token's text by its name: of the first place that mentions it.
class TokenTexts {
 public:
  // A map beside a tokenizer_config.json that lists its added tokens is older
  // than that; otherwise it is the last word.
  explicit TokenTexts(const ChatDocuments& documents)
      : places_{{&documents.special_tokens_map, "special_tokens_map.json"},
                {&documents.tokenizer_config, "tokenizer_config.json"}} {
    if (JsonFind(documents.tokenizer_config, "added_tokens_decoder") !=
        nullptr) {
      std::swap(places_[0], places_[1]);
    }
  }

  absl::StatusOr<std::string> Find(const std::string& key) const {
    for (const Place& place : places_) {
      if (!place.document->is_object() || !place.document->contains(key)) {
        continue;
      }
      return TokenText(place, key);
    }
    return std::string();
  }

 private:
  Place places_[2];
};

// The names of tokens that only models of some kind have (image_token, ...).
// What is no text there is none.
void AddOwnTokens(const Json& tokenizer_config, ChatFormat* chat) {
  const auto add = [&](const std::string& name, const Json& value) {
    constexpr std::string_view kUsual[] = {
        "bos_token", "eos_token", "unk_token", "sep_token",
        "pad_token", "cls_token", "mask_token"};
    if (!name.ends_with("_token") || chat->other_tokens.size() >= kMaxTokens ||
        std::find(std::begin(kUsual), std::end(kUsual), name) !=
            std::end(kUsual)) {
      return;
    }
    const Json* text = value.is_object() ? JsonFind(value, "content") : &value;
    if (text == nullptr || !text->is_string()) return;
    chat->other_tokens.emplace_back(name, text->get<std::string>());
  };
  if (!tokenizer_config.is_object()) return;
  for (const auto& [name, value] : tokenizer_config.items()) add(name, value);
  const Json* extra = JsonFind(tokenizer_config, "extra_special_tokens");
  if (extra == nullptr || !extra->is_object()) return;
  for (const auto& [name, value] : extra->items()) add(name, value);
}

absl::Status ReadTokens(const ChatDocuments& documents, ChatFormat* chat) {
  const TokenTexts tokens(documents);
  INLAY_ASSIGN_OR_RETURN(chat->bos_token, tokens.Find("bos_token"));
  INLAY_ASSIGN_OR_RETURN(chat->eos_token, tokens.Find("eos_token"));
  for (const char* key :
       {"unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}) {
    INLAY_ASSIGN_OR_RETURN(std::string text, tokens.Find(key));
    if (!text.empty()) chat->other_tokens.emplace_back(key, std::move(text));
  }
  AddOwnTokens(documents.tokenizer_config, chat);
  return absl::OkStatus();
}

// chat_template.jinja and additional_chat_templates/*.jinja.
absl::StatusOr<Templates> ReadTemplateFiles(const std::string& directory) {
  Templates files;
  const auto main = ReadWholeFile(
      FormattedString("%s/chat_template.jinja", directory), kMaxTemplateBytes);
  if (main.ok()) {
    files.emplace(kDefaultName, *main);
  } else if (!absl::IsNotFound(main.status())) {
    return main.status();
  }
  const std::string folder =
      FormattedString("%s/additional_chat_templates", directory);
  if (!IsDirectory(folder)) return files;
  std::error_code error;
  int num_entries = 0;
  for (fs::directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    const fs::path& path = it->path();
    const bool is_template = path.extension() == ".jinja";
    if (++num_entries > kMaxFolderEntries ||
        (is_template && files.size() == kMaxTemplates)) {
      return absl::ResourceExhaustedError(
          FormattedString("%s: more than the %d templates (%d files) allowed",
                          folder, kMaxTemplates, kMaxFolderEntries));
    }
    if (!is_template) continue;
    INLAY_ASSIGN_OR_RETURN(std::string text,
                           ReadWholeFile(path.string(), kMaxTemplateBytes));
    files.emplace(path.stem().string(), std::move(text));
  }
  if (error) {
    return FileError(error.value(), "list", folder);
  }
  return files;
}

}  // namespace

absl::StatusOr<ChatFormat> InterpretChatFormat(const ChatDocuments& documents) {
  const Place places[] = {
      {&documents.tokenizer_config, "tokenizer_config.json"},
      {&documents.chat_template, "chat_template.json"},
      {&documents.processor_config, "processor_config.json"}};
  Templates templates = documents.files;
  for (const Place& place : places) {
    Templates own;
    INLAY_RETURN_IF_ERROR(AddTemplates(*place.document, place.file, &own));
    if (templates.empty()) templates = std::move(own);
  }
  ChatFormat chat;
  for (auto& [name, text] : templates) {
    if (name == kDefaultName) {
      chat.chat_template = std::move(text);
    } else {
      chat.named_templates.emplace_back(name, std::move(text));
    }
  }
  INLAY_RETURN_IF_ERROR(ReadTokens(documents, &chat));
  return chat;
}

absl::StatusOr<ChatFormat> ReadChatFormat(const std::string& directory) {
  ChatDocuments documents;
  const std::pair<const char*, Json*> files[] = {
      {"tokenizer_config.json", &documents.tokenizer_config},
      {"special_tokens_map.json", &documents.special_tokens_map},
      {"chat_template.json", &documents.chat_template},
      {"processor_config.json", &documents.processor_config}};
  for (const auto& [name, document] : files) {
    INLAY_ASSIGN_OR_RETURN(*document, ReadOptionalPythonJson(FormattedString(
                                          "%s/%s", directory, name)));
  }
  INLAY_ASSIGN_OR_RETURN(documents.files, ReadTemplateFiles(directory));
  const auto chat = InterpretChatFormat(documents);
  if (!chat.ok()) return InFile(directory, chat.status());
  return chat;
}

}  // namespace inlay
