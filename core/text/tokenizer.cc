// What all tokenizers share, and the choice of file.
#include "core/text/tokenizer.h"

#include <filesystem>
#include <utility>

#include "core/json/json.h"
#include "core/json/python_json.h"
#include "core/text/configured_tokens.h"
#include "core/text/rwkv_vocab.h"
#include "core/text/sentencepiece_document.h"
#include "core/text/sentencepiece_model.h"
#include "core/text/t5_tokenizer.h"
#include "core/text/tokenizer_json.h"
#include "memory/formatted_string.h"
#include "memory/mapped_file.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr uint64_t kMaxFileBytes = uint64_t{256} << 20;

// NOT_FOUND when there is none.
absl::StatusOr<std::string> ReadFile(const std::filesystem::path& path) {
  return ReadWholeFile(path.string(), kMaxFileBytes);
}

absl::Status Named(const std::filesystem::path& path, absl::Status status) {
  if (status.ok()) return status;
  return absl::Status(
      status.code(),
      FormattedString("%s: %s", path.string(), std::string(status.message())));
}

// As Python's writer leaves it; null where there is none.
absl::StatusOr<Json> ReadOptional(const std::filesystem::path& path) {
  return ReadOptionalPythonJson(path.string());
}

// A tokenizer's file, with what lies beside it.
struct TokenizerFiles {
  std::filesystem::path path;
  Json json;           // tokenizer.json; null: it is
  std::string pieces;  // tokenizer.model
  SentencePieceOptions options;

  absl::Status Named(const absl::Status& status) const {
    return inlay::Named(path, status);
  }
};

// T5's, under the name that it has for pieces. NOT_FOUND when there is none.
absl::Status ReadT5(const std::filesystem::path& folder, const Json& config,
                    TokenizerFiles* files) {
  files->path = folder / "spiece.model";
  const auto bytes = ReadFile(files->path);
  if (!bytes.ok()) return bytes.status();
  auto document = T5TokenizerDocument(*bytes, config);
  if (!document.ok()) return files->Named(document.status());
  files->json = *std::move(document);
  return absl::OkStatus();
}

// RWKV's list of tokens. NOT_FOUND when there is none.
absl::Status ReadRwkv(const std::filesystem::path& folder,
                      TokenizerFiles* files) {
  files->path = folder / kRwkvVocabFile;
  const auto list = ReadWholeFile(files->path.string(), kMaxRwkvVocabBytes);
  if (!list.ok()) return list.status();
  auto document = RwkvVocabDocument(*list);
  if (!document.ok()) return files->Named(document.status());
  files->json = *std::move(document);
  return absl::OkStatus();
}

absl::Status ReadPieces(const std::filesystem::path& folder, const Json& config,
                        const std::vector<Json>& tokens,
                        TokenizerFiles* files) {
  files->path = folder / "tokenizer.model";
  auto bytes = ReadFile(files->path);
  if (absl::IsNotFound(bytes.status())) {
    return absl::NotFoundError(FormattedString(
        "%s: neither tokenizer.json nor tokenizer.model is there",
        folder.string()));
  }
  INLAY_RETURN_IF_ERROR(bytes.status());
  bytes = ConfiguredSentencePiece(*std::move(bytes), config, tokens);
  if (!bytes.ok()) {
    return Named(folder / "tokenizer_config.json", bytes.status());
  }
  files->pieces = *std::move(bytes);
  files->options.control_in_text = !config.is_null() || !tokens.empty();
  INLAY_ASSIGN_OR_RETURN(const bool legacy, JsonBool(config, "legacy", true));
  files->options.prefix_once = !legacy;
  return absl::OkStatus();
}

absl::StatusOr<TokenizerFiles> ReadTokenizerFiles(const std::string& dir) {
  const std::filesystem::path folder(dir);
  INLAY_ASSIGN_OR_RETURN(const Json config,
                         ReadOptional(folder / "tokenizer_config.json"));
  INLAY_ASSIGN_OR_RETURN(const Json added,
                         ReadOptional(folder / "added_tokens.json"));
  const auto tokens = ReadConfiguredTokens(config, added);
  if (!tokens.ok()) return Named(folder, tokens.status());
  TokenizerFiles files;
  files.path = folder / "tokenizer.json";
  const auto text = ReadFile(files.path);
  if (absl::IsNotFound(text.status())) {
    const absl::Status other = IsT5Tokenizer(config)
                                   ? ReadT5(folder, config, &files)
                                   : ReadRwkv(folder, &files);
    if (absl::IsNotFound(other)) {
      INLAY_RETURN_IF_ERROR(ReadPieces(folder, config, *tokens, &files));
      return files;
    }
    INLAY_RETURN_IF_ERROR(other);
  } else {
    INLAY_RETURN_IF_ERROR(text.status());
    auto json = ParseJson(*text, "tokenizer.json");
    if (!json.ok()) return files.Named(json.status());
    files.json = *std::move(json);
  }
  AddConfiguredTokens(*tokens, &files.json);
  return files;
}

}  // namespace

std::string Tokenizer::Decode(absl::Span<const int32_t> ids,
                              const DecodeOptions& options) const {
  const std::unique_ptr<DecodeStream> stream = StartDecode(options);
  std::string text;
  for (const int32_t id : ids) stream->Push(id, &text);
  stream->Finish(&text);
  return text;
}

absl::StatusOr<std::unique_ptr<Tokenizer>> MakeTokenizerFromJson(
    std::string_view json) {
  INLAY_ASSIGN_OR_RETURN(const Json file, ParseJson(json, "tokenizer.json"));
  return MakeTokenizerFromDocument(file);
}

absl::StatusOr<std::unique_ptr<Tokenizer>> MakeTokenizerFromDocument(
    const Json& file) {
  if (IsSentencePieceDocument(file)) return MakeSentencePieceFromDocument(file);
  return JsonTokenizer::Create(file);
}

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizer(
    const std::string& dir) {
  INLAY_ASSIGN_OR_RETURN(const TokenizerFiles files, ReadTokenizerFiles(dir));
  auto tokenizer = files.json.is_null()
                       ? MakeSentencePieceTokenizer(files.pieces, files.options)
                       : MakeTokenizerFromDocument(files.json);
  if (tokenizer.ok()) return tokenizer;
  return files.Named(tokenizer.status());
}

absl::StatusOr<Json> ReadTokenizerDocument(const std::string& dir) {
  INLAY_ASSIGN_OR_RETURN(TokenizerFiles files, ReadTokenizerFiles(dir));
  if (!files.json.is_null()) return std::move(files.json);
  auto document = SentencePieceDocument(files.pieces);
  if (document.ok()) return document;
  return files.Named(document.status());
}

}  // namespace inlay
