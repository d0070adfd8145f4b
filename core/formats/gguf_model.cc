#include "core/formats/gguf_model.h"

#include <optional>
#include <utility>

#include "core/formats/describe.h"
#include "core/formats/expert_source.h"
#include "core/formats/gguf_arch.h"
#include "core/formats/gguf_config.h"
#include "core/formats/gguf_encoder.h"
#include "core/formats/gguf_files.h"
#include "core/formats/gguf_metadata.h"
#include "core/formats/gguf_parts.h"
#include "core/formats/gguf_source.h"
#include "core/formats/gguf_text.h"
#include "core/formats/gguf_tokenizer.h"
#include "core/formats/gguf_vocab.h"
#include "core/formats/group_source.h"
#include "core/formats/head_source.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

absl::Status ReadText(const GgufHeader& header, ModelFiles* model) {
  INLAY_ASSIGN_OR_RETURN(const std::optional<GgufVocab> vocab,
                         ReadGgufVocab(header));
  if (!vocab.has_value()) return absl::OkStatus();
  model->generation = GgufGenerationDefaults(*vocab);
  INLAY_ASSIGN_OR_RETURN(model->chat, ReadGgufChatFormat(header, *vocab));
  // Some files carry the original.
  INLAY_ASSIGN_OR_RETURN(const std::optional<std::string> original,
                         GgufString(header, "tokenizer.huggingface.json"));
  if (original.has_value()) {
    INLAY_ASSIGN_OR_RETURN(model->tokenizer,
                           ParseJson(*original, "tokenizer.huggingface.json"));
    return absl::OkStatus();
  }
  INLAY_ASSIGN_OR_RETURN(model->tokenizer, GgufTokenizerJson(*vocab));
  return absl::OkStatus();
}

// A vocabulary may be smaller than the embedding, never larger.
absl::Status CheckVocabulary(const GgufHeader& header, const Json& config) {
  const GgufValue* tokens = header.Find("tokenizer.ggml.tokens");
  const auto rows = config["vocab_size"].get<uint64_t>();
  if (tokens == nullptr || tokens->count <= rows) return absl::OkStatus();
  return absl::InvalidArgumentError(FormattedString(
      "key \"tokenizer.ggml.tokens\": %d tokens, but \"token_embd.weight\" has "
      "%d rows",
      tokens->count, rows));
}

absl::Status ReadModel(const ModelFilesOptions& options, GgufFiles files,
                       ModelFiles* model) {
  const GgufHeader& header = files.header();
  INLAY_RETURN_IF_ERROR(ReadText(header, model));
  if (options.vocab_only) return absl::OkStatus();
  constexpr std::string_view kArch = "general.architecture";
  INLAY_ASSIGN_OR_RETURN(const auto name, GgufString(header, kArch));
  if (!name.has_value()) {
    return absl::InvalidArgumentError(
        FormattedString("key \"%s\" is missing", kArch));
  }
  INLAY_ASSIGN_OR_RETURN(const GgufArch* arch, FindGgufArch(*name));
  INLAY_ASSIGN_OR_RETURN(GgufConfig config, ReadGgufConfig(files, *arch));
  INLAY_RETURN_IF_ERROR(CheckVocabulary(header, config.json));
  model->config = std::move(config.json);
  INLAY_ASSIGN_OR_RETURN(
      model->embedding,
      ReadGgufEmbedding(files, GgufArchKeys(header, arch->name)));
  INLAY_ASSIGN_OR_RETURN(
      auto stored,
      MakeGgufSource(std::move(files), *arch, config.heads, config.layers));
  if (arch->name == "openelm") {  // by layers, which parts do not know
    INLAY_ASSIGN_OR_RETURN(stored,
                           PresentHeads(model->config, std::move(stored)));
  }
  INLAY_ASSIGN_OR_RETURN(stored,
                         PresentGgufParts(model->config, std::move(stored)));
  INLAY_ASSIGN_OR_RETURN(stored,
                         PresentGroups(model->config, std::move(stored)));
  INLAY_ASSIGN_OR_RETURN(model->weights,
                         PresentExperts(model->config, std::move(stored)));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ModelFiles> OpenGgufModel(const std::string& path,
                                         const ModelFilesOptions& options) {
  INLAY_ASSIGN_OR_RETURN(GgufFiles files, OpenGgufFiles(path, options.access));
  ModelFiles model;
  const absl::Status status = ReadModel(options, std::move(files), &model);
  if (!status.ok()) return InFile(path, status);
  return model;
}

}  // namespace inlay
