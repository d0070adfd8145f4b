// What all tokenizers share, and the choice of file.
#include "core/text/tokenizer.h"

#include <filesystem>
#include <utility>

#include "core/json/json.h"
#include "core/text/sentencepiece_document.h"
#include "core/text/sentencepiece_model.h"
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

// tokenizer_config.json; null where there is none.
absl::StatusOr<Json> ReadTokenizerConfig(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "tokenizer_config.json";
  const absl::StatusOr<std::string> text = ReadFile(path);
  if (absl::IsNotFound(text.status())) return Json();
  INLAY_RETURN_IF_ERROR(text.status());
  return ParseJson(*text, path.string());
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
  const std::filesystem::path folder(dir);
  absl::StatusOr<std::string> bytes = ReadFile(folder / "tokenizer.json");
  if (bytes.ok()) {
    auto tokenizer = MakeTokenizerFromJson(*bytes);
    if (tokenizer.ok()) return tokenizer;
    return Named(folder / "tokenizer.json", tokenizer.status());
  }
  if (!absl::IsNotFound(bytes.status())) return bytes.status();
  bytes = ReadFile(folder / "tokenizer.model");
  if (absl::IsNotFound(bytes.status())) {
    return absl::NotFoundError(FormattedString(
        "%s: neither tokenizer.json nor tokenizer.model is there", dir));
  }
  INLAY_RETURN_IF_ERROR(bytes.status());
  INLAY_ASSIGN_OR_RETURN(const Json config, ReadTokenizerConfig(folder));
  bytes = ConfiguredSentencePiece(*std::move(bytes), config);
  if (!bytes.ok()) {
    return Named(folder / "tokenizer_config.json", bytes.status());
  }
  auto tokenizer = MakeSentencePieceTokenizer(*bytes);
  if (tokenizer.ok()) return tokenizer;
  return Named(folder / "tokenizer.model", tokenizer.status());
}

}  // namespace inlay
