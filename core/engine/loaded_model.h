// LoadedModel: everything one model brings: network, tokenizer, chat template,
// generation defaults. Knows nothing of sessions or scheduling.
#ifndef INLAY_CORE_ENGINE_LOADED_MODEL_H_
#define INLAY_CORE_ENGINE_LOADED_MODEL_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/engine/fingerprint.h"
#include "core/engine/log.h"
#include "core/formats/classification_config.h"
#include "core/formats/model_files.h"
#include "core/model/model.h"
#include "core/text/template/chat_template.h"
#include "core/text/tokenizer.h"
#include "kernels/block_selection/block_selection.h"
#include "memory/device/device.h"
#include "memory/file_ops.h"

namespace inlay {

enum class LoadStage : uint8_t { kConfig, kTokenizer, kWeights, kReady };

struct ModelOptions {
  bool vocab_only = false;
  bool batch_invariant = false;  // the engine's
  WeightAccess weights = WeightAccess::kMap;
  std::optional<DType> kv_dtype;  // none: as ModelLoadOptions
  int kv_block_size = 16;
  int64_t max_context = 0;       // 0: the model's own
  uint64_t kv_budget_bytes = 0;  // 0: chosen (model_runner.cc)
  // Tiers below the KV cache; 0: none. The disk's needs the host's.
  uint64_t host_cache_bytes = 0;
  std::string disk_cache_folder;
  uint64_t disk_cache_bytes = 0;
  const FileOps* disk_cache_ops = nullptr;  // as KvTierOptions::file_ops
  std::string kernels;            // "op=row,op=row": forced kernel rows
  std::string attention_pattern;  // as ParseAttentionPattern() takes it
  BlockSelectionOptions block_selection;
  uint64_t expert_device_bytes = 0;  // as ModelLoadOptions
  // Returns false to cancel. May be empty.
  std::function<bool(LoadStage stage, float fraction)> progress;
};

// A chat template, and what it was asked once.
struct LoadedTemplate {
  ChatTemplate parsed;
  // It prints a user's text in a list of parts alone.
  bool parts_alone = false;
};

// Renders it for a probe or two, with the tokens of `chat`.
LoadedTemplate AskTemplate(ChatTemplate parsed, const ChatFormat& chat);

// Immutable after loading, but for the weights that Unload() drops.
struct LoadedModel {
  // Null when vocab_only. Only the stepping thread may follow it: Close() drops
  // it. Everyone else reads the copies of what it says.
  std::unique_ptr<Model> model;
  ModelInfo info;
  KvLayout kv_layout;
  std::unique_ptr<Tokenizer> tokenizer;  // null when the model has none
  ChatFormat chat;
  absl::StatusOr<LoadedTemplate> chat_template =
      absl::UnimplementedError("the model has no chat template");
  std::vector<std::pair<std::string, LoadedTemplate>> named_templates;
  GenerationDefaults generation;
  EmbeddingDefaults embedding;
  ClassificationDefaults classification;  // of a model with labels
  int64_t max_context = 0;
  uint64_t mapped_bytes = 0;
  // Whether saved KV and saved tokens still mean the same (fingerprint.h). Made
  // while loading: files may be replaced later.
  ModelFingerprint fingerprint;
  uint64_t vocabulary = 0;

  // UNIMPLEMENTED when there is none.
  absl::StatusOr<const Tokenizer*> RequireTokenizer() const;
  // Of a vector as `embedding` says; 0: that is not supported.
  int64_t embedding_size() const {
    if (!embedding.unsupported.empty()) return 0;
    return embedding.dense.empty() ? info.hidden_size : info.pooled_width;
  }
};

// CANCELLED when `options.progress` says so; otherwise the first error of the
// parts, which name files and fields. A directory without a tokenizer loads.
absl::StatusOr<std::unique_ptr<LoadedModel>> LoadModelFromPath(
    const std::string& path, const ModelOptions& options, Device& device,
    const Log& log);

// What `path` holds, as JSON (core/model/inspect.h), without loading weights.
absl::StatusOr<std::string> InspectPath(const std::string& path);

// Renders a conversation as transformers' apply_chat_template does. `json` is
// an object with "messages" and whatever else the template reads; "template",
// "bos_token", "eos_token" and "now" in it override the model's, and with
// "template" there `model` may be null. "template" may also be the name of one
// of the model's. With `prompt_for_answer`, "add_generation_prompt" is true
// unless set. With "continue_final_message" the text ends where the last
// message does (chat_continuation.h). Contents that are strings become lists of
// one part for a model's template that prints a user's text in such a list
// alone.
absl::StatusOr<std::string> RenderChat(const LoadedModel* model,
                                       std::string_view json,
                                       bool prompt_for_answer);

}  // namespace inlay

#endif  // INLAY_CORE_ENGINE_LOADED_MODEL_H_
