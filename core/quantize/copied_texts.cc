#include "core/quantize/copied_texts.h"

#include <cstddef>
#include <filesystem>
#include <system_error>

#include "absl/types/span.h"
#include "core/json/json.h"
#include "core/json/python_json.h"
#include "memory/durable_file.h"
#include "memory/file_ops.h"
#include "memory/mapped_file.h"
#include "memory/status.h"

namespace inlay {
namespace {

namespace fs = std::filesystem;

// Of whichever reader: what Inlay does not read, other engines do.
constexpr const char* kTokenizerFiles[] = {"tokenizer.json",
                                           "tokenizer.model",
                                           "tokenizer_config.json",
                                           "special_tokens_map.json",
                                           "vocab.json",
                                           "vocab.txt",
                                           "merges.txt",
                                           "added_tokens.json",
                                           "spiece.model",
                                           "sentencepiece.bpe.model",
                                           "chat_template.jinja",
                                           "chat_template.json",
                                           "processor_config.json"};
constexpr const char* kOtherFiles[] = {"generation_config.json", "modules.json",
                                       "config_sentence_transformers.json",
                                       "sentence_bert_config.json"};

// True: there was such a file.
absl::StatusOr<bool> Copy(const fs::path& from, const fs::path& to,
                          const fs::path& name) {
  const std::string source = (from / name).string();
  if (!IsRegularFile(source)) return false;
  INLAY_ASSIGN_OR_RETURN(const FileReader file, FileReader::Open(source));
  std::string text(file.size(), '\0');
  INLAY_RETURN_IF_ERROR(file.ReadAt(
      0,
      absl::MakeSpan(reinterpret_cast<std::byte*>(text.data()), text.size())));
  const fs::path target = to / name;
  std::error_code error;  // writing says more of it
  fs::create_directories(target.parent_path(), error);
  INLAY_RETURN_IF_ERROR(WriteTextFile(target.string(), text));
  return true;
}

absl::Status CopyTemplates(const fs::path& from, const fs::path& to) {
  const fs::path folder = "additional_chat_templates";
  const std::string source = (from / folder).string();
  if (!IsDirectory(source)) return absl::OkStatus();
  std::error_code error;
  for (fs::directory_iterator it(source, error), end; !error && it != end;
       it.increment(error)) {
    if (it->path().extension() != ".jinja") continue;
    INLAY_RETURN_IF_ERROR(
        Copy(from, to, folder / it->path().filename()).status());
  }
  if (error) return FileError(error.value(), "list", source);
  return absl::OkStatus();
}

// Pooling and the like: folders with a config.json. Theirs are small; dense
// layers, which have weights, are none that a model here has.
absl::Status CopyModules(const fs::path& from, const fs::path& to) {
  const std::string list = (from / "modules.json").string();
  if (!IsRegularFile(list)) return absl::OkStatus();
  INLAY_ASSIGN_OR_RETURN(const std::string text,
                         ReadWholeFile(list, kMaxConfigBytes));
  INLAY_ASSIGN_OR_RETURN(const Json modules, ParseJson(text, list));
  for (const Json& module : modules) {
    INLAY_ASSIGN_OR_RETURN(const std::string path,
                           JsonString(module, "path", ""));
    // Empty: the model itself. Others are refused where they are read.
    if (path.empty() || path[0] == '.' || path.find('/') != std::string::npos) {
      continue;
    }
    INLAY_RETURN_IF_ERROR(
        Copy(from, to, fs::path(path) / "config.json").status());
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status WriteTextFile(const std::string& path, std::string_view text) {
  INLAY_ASSIGN_OR_RETURN(DurableFile file,
                         DurableFile::Create(path, FileReaders::kUmask));
  INLAY_RETURN_IF_ERROR(file.Append(absl::MakeConstSpan(
      reinterpret_cast<const std::byte*>(text.data()), text.size())));
  return file.Commit();
}

absl::StatusOr<bool> CopyTexts(const std::string& from, const std::string& to,
                               bool tokenizer) {
  for (const char* name : kOtherFiles) {
    INLAY_RETURN_IF_ERROR(Copy(from, to, name).status());
  }
  INLAY_RETURN_IF_ERROR(CopyModules(from, to));
  bool found = false;
  if (!tokenizer) return found;
  for (const char* name : kTokenizerFiles) {
    INLAY_ASSIGN_OR_RETURN(const bool copied, Copy(from, to, name));
    found = found || copied;
  }
  INLAY_RETURN_IF_ERROR(CopyTemplates(from, to));
  return found;
}

}  // namespace inlay
