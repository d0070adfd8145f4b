// ModelFiles: everything a model path names, opened and validated but not yet
// interpreted: configuration, weights, where the tokenizer lies, generation
// defaults, the chat template. Knows nothing of architectures or kernels.
#ifndef INLAY_CORE_FORMATS_MODEL_FILES_H_
#define INLAY_CORE_FORMATS_MODEL_FILES_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "core/formats/embedding_config.h"
#include "core/formats/tensor_override.h"
#include "core/formats/weight_source.h"
#include "core/json/json.h"
#include "memory/dtype.h"

namespace inlay {

// generation_config.json, with config.json as the fallback for the token ids.
// Absent fields stay empty.
struct GenerationDefaults {
  std::vector<int32_t> eos_ids;
  std::optional<int32_t> bos_id;
  std::optional<int32_t> pad_id;
  std::optional<bool> do_sample;
  std::optional<double> temperature;
  std::optional<int64_t> top_k;
  std::optional<double> top_p;
  std::optional<double> min_p;
  std::optional<double> repetition_penalty;
  std::optional<int64_t> max_new_tokens;
};

// tokenizer_config.json (and chat_template.jinja / chat_template.json /
// additional named templates).
struct ChatFormat {
  std::string
      chat_template;  // the default template; empty when the model has none
  std::vector<std::pair<std::string, std::string>>
      named_templates;    // "tool_use", ...
  std::string bos_token;  // empty: undefined for the template
  std::string eos_token;
  // What else templates see: pad_token, ..., and those of a model's own.
  std::vector<std::pair<std::string, std::string>> other_tokens;
};

enum class WeightAccess : uint8_t {
  kMap,   // map the files: pages are shared and read on demand; truncating a
          // mapped file kills the process (SIGBUS)
  kRead,  // never map: every tensor is read into memory the engine owns
};

struct ModelFilesOptions {
  WeightAccess access = WeightAccess::kMap;
  bool vocab_only = false;  // do not open weights; a directory with only a
                            // tokenizer is enough
};

// The draw a "random:" path asks for.
struct RandomWeights {
  // Of a matrix: the last override that matches, or `dtype`.
  DType DTypeOf(std::string_view name) const;

  DType dtype = DType::kBF16;
  uint64_t seed = 0;
  std::vector<TensorOverride> overrides = {};
};

struct ModelFiles {
  std::string directory;  // where tokenizer files lie; empty when there is none
  Json tokenizer;  // a tokenizer.json made from the model's own file (GGUF);
                   // null: there is none but in `directory`
  Json config;  // config.json, or its text model's (text_model.h); ModelOpt's
                // settings from beside it; null: vocab_only, there is none
  std::shared_ptr<const WeightSource>
      weights;                          // null when vocab_only or random
  std::optional<RandomWeights> random;  // set for "random:" paths
  GenerationDefaults generation;
  ChatFormat chat;
  EmbeddingDefaults embedding;
};

// `path`: a Hugging Face directory; a GGUF file, or the first of a split model
// (NAME-00001-of-0000N.gguf); or
// "random:CONFIG_DIR[?dtype=NAME][&seed=N][&PATTERN=NAME]...": weights drawn at
// load time in the shapes the architecture asks for, of a format's name, or of
// another where a pattern with `*` or `?` matches a matrix's; then `weights` is
// null and `random` describes the draw. NOT_FOUND when a needed file is missing
// (named), INVALID_ARGUMENT when one is malformed, UNIMPLEMENTED for other
// formats.
absl::StatusOr<ModelFiles> OpenModelFiles(const std::string& path,
                                          const ModelFilesOptions& options);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_MODEL_FILES_H_
