#include "core/engine/loaded_model.h"

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

#include "absl/strings/str_join.h"
#include "core/model/inspect.h"
#include "core/model/load_model.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

absl::Status Report(const ModelOptions& options, LoadStage stage,
                    float fraction) {
  if (options.progress && !options.progress(stage, fraction)) {
    return absl::CancelledError("the progress callback cancelled the load");
  }
  return absl::OkStatus();
}

// "op=row,op=row" as inlay_model_options.kernels has it.
absl::StatusOr<std::map<std::string, std::string, std::less<>>>
ParseForcedKernels(std::string_view text) {
  std::map<std::string, std::string, std::less<>> forced;
  while (!text.empty()) {
    const std::string_view entry = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), entry.size() + 1));
    const size_t equals = entry.find('=');
    if (equals == std::string_view::npos || equals == 0) {
      return absl::InvalidArgumentError(FormattedString(
          "kernels has the entry \"%s\", allowed: op=row, for example "
          "gemm=cpu_scalar",
          entry));
    }
    forced.emplace(entry.substr(0, equals), entry.substr(equals + 1));
  }
  return forced;
}

uint64_t MappedBytes(const WeightSource* source) {
  uint64_t bytes = 0;
  if (source == nullptr) return bytes;
  for (const WeightInfo& weight : source->weights()) {
    if (source->Mapped(weight) != nullptr) bytes += weight.bytes;
  }
  return bytes;
}

// Where neither generation_config.json nor config.json says which tokens begin
// and end texts, those that the tokenizer's files name do, as in files that
// llama.cpp's converter makes: else nothing would stop. (transformers takes a
// constant of the family there, whatever the vocabulary has for it.)
void AddNamedTokens(LoadedModel& loaded) {
  if (loaded.tokenizer == nullptr) return;
  GenerationDefaults& ids = loaded.generation;
  const auto find = [&](const std::string& text) {
    return text.empty() ? std::nullopt : loaded.tokenizer->TokenToId(text);
  };
  if (!ids.bos_id.has_value()) ids.bos_id = find(loaded.chat.bos_token);
  if (!ids.eos_ids.empty()) return;
  const auto eos = find(loaded.chat.eos_token);
  if (eos.has_value()) ids.eos_ids.push_back(*eos);
}

absl::Status LoadText(const ModelFiles& files, const Log& log,
                      LoadedModel& loaded) {
  loaded.chat = files.chat;
  loaded.generation = files.generation;
  loaded.embedding = files.embedding;
  if (!files.tokenizer.is_null()) {
    INLAY_ASSIGN_OR_RETURN(loaded.tokenizer,
                           MakeTokenizerFromDocument(files.tokenizer));
  } else if (!files.directory.empty()) {
    auto tokenizer = LoadTokenizer(files.directory);
    if (tokenizer.ok()) {
      loaded.tokenizer = *std::move(tokenizer);
    } else if (!absl::IsNotFound(tokenizer.status())) {
      return tokenizer.status();
    } else {
      log(LogLevel::kInfo, "no tokenizer: only token ids work with this model");
    }
  }
  AddNamedTokens(loaded);
  // A template that does not parse must not keep the model from generating:
  // rendering reports it.
  if (!loaded.chat.chat_template.empty()) {
    auto parsed = ChatTemplate::Parse(loaded.chat.chat_template);
    if (parsed.ok()) {
      loaded.chat_template = AskTemplate(*std::move(parsed), loaded.chat);
    } else {
      log(LogLevel::kWarning,
          FormattedString("the chat template cannot be used: %s",
                          parsed.status().message()));
      loaded.chat_template = std::move(parsed).status();
    }
  }
  for (const auto& [name, source] : loaded.chat.named_templates) {
    auto parsed = ChatTemplate::Parse(source);
    if (parsed.ok()) {
      loaded.named_templates.emplace_back(
          name, AskTemplate(*std::move(parsed), loaded.chat));
    }
  }
  if (loaded.chat.chat_template.empty() && !loaded.named_templates.empty()) {
    loaded.chat_template = absl::UnimplementedError(FormattedString(
        "the model has no default chat template; \"template\" may name one of "
        "its others: %s",
        absl::StrJoin(loaded.named_templates, ", ",
                      [](std::string* out, const auto& named) {
                        out->append(named.first);
                      })));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<const Tokenizer*> LoadedModel::RequireTokenizer() const {
  if (tokenizer == nullptr) {
    return absl::UnimplementedError(
        "the model has no tokenizer (no tokenizer.json or tokenizer.model in "
        "its directory, no spiece.model of a T5Tokenizer that "
        "tokenizer_config.json names, no rwkv_vocab_v20230424.txt, no "
        "tokenizer.ggml.model in its GGUF file): give token ids instead of "
        "text");
  }
  return tokenizer.get();
}

absl::StatusOr<std::unique_ptr<LoadedModel>> LoadModelFromPath(
    const std::string& path, const ModelOptions& options, Device& device,
    const Log& log) {
  INLAY_RETURN_IF_ERROR(Report(options, LoadStage::kConfig, 0.0f));
  ModelFilesOptions files_options;
  files_options.access = options.weights;
  files_options.vocab_only = options.vocab_only;
  auto loaded = std::make_unique<LoadedModel>();
  INLAY_ASSIGN_OR_RETURN(const ModelFiles files,
                         OpenModelFiles(path, files_options));
  INLAY_RETURN_IF_ERROR(Report(options, LoadStage::kTokenizer, 0.0f));
  INLAY_RETURN_IF_ERROR(LoadText(files, log, *loaded));
  if (options.vocab_only) return loaded;

  ModelLoadOptions load;
  load.kv_dtype = options.kv_dtype;
  load.kv_block_size = options.kv_block_size;
  load.batch_invariant = options.batch_invariant;
  INLAY_ASSIGN_OR_RETURN(load.attention_pattern,
                         ParseAttentionPattern(options.attention_pattern));
  load.block_selection = options.block_selection;
  load.expert_device_bytes = options.expert_device_bytes;
  INLAY_ASSIGN_OR_RETURN(load.forced_kernels,
                         ParseForcedKernels(options.kernels));
  load.progress = [&options](uint64_t done, uint64_t total) {
    const double fraction =
        total == 0 ? 1.0
                   : static_cast<double>(done) / static_cast<double>(total);
    return Report(options, LoadStage::kWeights, static_cast<float>(fraction))
        .ok();
  };
  INLAY_ASSIGN_OR_RETURN(loaded->model, LoadModel(files, device, load));
  INLAY_ASSIGN_OR_RETURN(const ModelFingerprint model,
                         FingerprintModelAt(path));
  // One of the two at most.
  loaded->fingerprint = WithAttentionPattern(
      model, load.block_selection.any()
                 ? FormatBlockSelection(load.block_selection)
                 : FormatAttentionPattern(load.attention_pattern));
  loaded->vocabulary = FingerprintVocabulary(loaded->tokenizer.get());
  loaded->info = loaded->model->info();
  if (loaded->info.num_labels > 0) {
    INLAY_ASSIGN_OR_RETURN(loaded->classification,
                           ReadClassificationDefaults(files.config));
  }
  loaded->kv_layout = loaded->model->kv_layout();
  loaded->max_context = loaded->info.max_positions;
  if (options.max_context > 0) {
    loaded->max_context = std::min(loaded->max_context, options.max_context);
  }
  if (device.host_addressable()) {
    loaded->mapped_bytes = MappedBytes(files.weights.get());
  }
  const ModelInfo& info = loaded->info;
  log(LogLevel::kInfo,
      FormattedString(
          "loaded %s: %s, %d parameters, %d bytes of weights, %d of "
          "them mapped",
          path, info.architecture, info.num_parameters, info.weight_bytes,
          loaded->mapped_bytes));
  if (info.experts.slots > 0) {
    log(LogLevel::kInfo,
        FormattedString("%d experts of each layer on the device, %d bytes; %d "
                        "bytes of experts in host memory",
                        info.experts.slots, info.experts.device_bytes,
                        info.experts.host_bytes));
  }
  return loaded;
}

absl::StatusOr<std::string> InspectPath(const std::string& path) {
  INLAY_ASSIGN_OR_RETURN(const ModelFiles files, OpenModelFiles(path, {}));
  INLAY_ASSIGN_OR_RETURN(const std::unique_ptr<Device> device,
                         CreateCpuDevice(1, 0));
  return InspectModel(files, *device, {});
}

}  // namespace inlay
