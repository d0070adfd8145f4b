#include "core/quantize/copied_texts.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/types/span.h"
#include "core/json/json.h"
#include "core/json/python_json.h"
#include "memory/durable_file.h"
#include "memory/file_ops.h"
#include "memory/formatted_string.h"
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
                                           "rwkv_vocab_v20230424.txt",
                                           "sentencepiece.bpe.model",
                                           "chat_template.jinja",
                                           "chat_template.json",
                                           "processor_config.json"};
constexpr const char* kOtherFiles[] = {"generation_config.json", "modules.json",
                                       "config_sentence_transformers.json",
                                       "sentence_bert_config.json"};

// As much as a tokenizer's file is read of at most (core/text/tokenizer.cc);
// other readers' files are smaller.
constexpr uint64_t kMostBytes = uint64_t{256} << 20;
constexpr size_t kPieceBytes = size_t{1} << 20;

// Enters the file `name` of the folder if there is one: whether there was.
absl::StatusOr<bool> Find(const fs::path& from, const fs::path& name,
                          FoundTexts& texts) {
  const std::string path = (from / name).string();
  if (!IsRegularFile(path)) return false;
  INLAY_ASSIGN_OR_RETURN(const FileReader file, FileReader::Open(path));
  if (file.size() > kMostBytes) {
    return absl::ResourceExhaustedError(FormattedString(
        "%s, which is to be copied, has %d bytes, allowed: at most %d", path,
        file.size(), kMostBytes));
  }
  texts.names.push_back(name.string());
  return true;
}

absl::Status Copy(const fs::path& from, const fs::path& to,
                  const fs::path& name) {
  INLAY_ASSIGN_OR_RETURN(const FileReader source,
                         FileReader::Open((from / name).string()));
  const fs::path target = to / name;
  std::error_code error;  // writing says more of it
  fs::create_directories(target.parent_path(), error);
  INLAY_ASSIGN_OR_RETURN(
      DurableFile copy,
      DurableFile::Create(target.string(), FileReaders::kUmask));
  std::vector<std::byte> piece(
      static_cast<size_t>(std::min<uint64_t>(source.size(), kPieceBytes)));
  for (uint64_t at = 0; at < source.size(); at += piece.size()) {
    piece.resize(static_cast<size_t>(
        std::min<uint64_t>(source.size() - at, piece.size())));
    INLAY_RETURN_IF_ERROR(source.ReadAt(at, absl::MakeSpan(piece)));
    INLAY_RETURN_IF_ERROR(copy.Append(piece));
  }
  return copy.Commit();
}

absl::Status FindTemplates(const fs::path& from, FoundTexts& texts) {
  const fs::path folder = "additional_chat_templates";
  const std::string source = (from / folder).string();
  if (!IsDirectory(source)) return absl::OkStatus();
  std::error_code error;
  for (fs::directory_iterator it(source, error), end; !error && it != end;
       it.increment(error)) {
    if (it->path().extension() != ".jinja") continue;
    INLAY_RETURN_IF_ERROR(
        Find(from, folder / it->path().filename(), texts).status());
  }
  if (error) return FileError(error.value(), "list", source);
  return absl::OkStatus();
}

// Pooling and the like: folders with a config.json, and Dense modules' weights.
absl::Status FindModules(const fs::path& from, FoundTexts& texts) {
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
    for (const char* name : {"config.json", "model.safetensors"}) {
      INLAY_RETURN_IF_ERROR(Find(from, fs::path(path) / name, texts).status());
    }
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

absl::StatusOr<FoundTexts> FindTexts(const std::string& from, bool tokenizer) {
  FoundTexts texts;
  for (const char* name : kOtherFiles) {
    INLAY_RETURN_IF_ERROR(Find(from, name, texts).status());
  }
  INLAY_RETURN_IF_ERROR(FindModules(from, texts));
  if (!tokenizer) return texts;
  for (const char* name : kTokenizerFiles) {
    INLAY_ASSIGN_OR_RETURN(const bool found, Find(from, name, texts));
    texts.has_tokenizer = texts.has_tokenizer || found;
  }
  INLAY_RETURN_IF_ERROR(FindTemplates(from, texts));
  return texts;
}

absl::Status CopyTexts(const std::string& from, const std::string& to,
                       const FoundTexts& texts) {
  for (const std::string& name : texts.names) {
    INLAY_RETURN_IF_ERROR(Copy(from, to, name));
  }
  return absl::OkStatus();
}

}  // namespace inlay
