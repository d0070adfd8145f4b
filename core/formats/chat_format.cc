#include "core/formats/chat_format.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "core/formats/describe.h"
#include "core/formats/python_json.h"
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
// A folder may hold other files; beyond this it is no folder of templates.
constexpr int kMaxFolderEntries = 4096;

absl::Status BadTemplate(std::string_view file, std::string_view got) {
  return absl::InvalidArgumentError(
      FormattedString("%s: \"%s\" %s, allowed: a string or a list of "
                      "{\"name\": string, \"template\": string}",
                      file, kTemplateKey, got));
}

// Adds the templates of one document; those already there win over it.
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
  Templates own;
  for (const Json& item : *value) {
    const Json* name = JsonFind(item, "name");
    const Json* text = JsonFind(item, "template");
    if (name == nullptr || !name->is_string() || text == nullptr ||
        !text->is_string()) {
      return BadTemplate(file, "has an element of another form");
    }
    // As in Python's dict, the last of equal names wins.
    own.insert_or_assign(name->get_ref<const std::string&>(),
                         text->get_ref<const std::string&>());
  }
  templates->merge(own);
  return absl::OkStatus();
}

absl::StatusOr<std::string> TokenText(const ChatDocuments& documents,
                                      const char* key) {
  const std::pair<const Json*, std::string_view> places[] = {
      {&documents.tokenizer_config, "tokenizer_config.json"},
      {&documents.special_tokens_map, "special_tokens_map.json"}};
  for (const auto& [document, file] : places) {
    if (!document->is_object() || !document->contains(key)) continue;
    const Json* value = JsonFind(*document, key);
    if (value == nullptr) return std::string();
    // Added tokens are written as objects: {"content": "<s>", ...}.
    if (value->is_object()) value = JsonFind(*value, "content");
    if (value == nullptr || !value->is_string()) {
      return absl::InvalidArgumentError(FormattedString(
          "%s: \"%s\" is %s, allowed: a string, {\"content\": string} or null",
          file, key,
          value == nullptr ? "an object without \"content\""
                           : value->type_name()));
    }
    return value->get<std::string>();
  }
  return std::string();
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
  Templates templates = documents.files;
  INLAY_RETURN_IF_ERROR(AddTemplates(documents.tokenizer_config,
                                     "tokenizer_config.json", &templates));
  INLAY_RETURN_IF_ERROR(
      AddTemplates(documents.chat_template, "chat_template.json", &templates));
  ChatFormat chat;
  for (auto& [name, text] : templates) {
    if (name == kDefaultName) {
      chat.chat_template = std::move(text);
    } else {
      chat.named_templates.emplace_back(name, std::move(text));
    }
  }
  INLAY_ASSIGN_OR_RETURN(chat.bos_token, TokenText(documents, "bos_token"));
  INLAY_ASSIGN_OR_RETURN(chat.eos_token, TokenText(documents, "eos_token"));
  return chat;
}

absl::StatusOr<ChatFormat> ReadChatFormat(const std::string& directory) {
  ChatDocuments documents;
  const std::pair<const char*, Json*> files[] = {
      {"tokenizer_config.json", &documents.tokenizer_config},
      {"special_tokens_map.json", &documents.special_tokens_map},
      {"chat_template.json", &documents.chat_template}};
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
