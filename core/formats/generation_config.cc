#include "core/formats/generation_config.h"

#include <algorithm>
#include <utility>

#include "core/formats/describe.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr char kGenerationFile[] = "generation_config.json";
constexpr char kConfigFile[] = "config.json";
constexpr size_t kMaxEosIds = 1024;

// One of the documents that may hold token ids, in the order they are asked.
struct Document {
  const Json* json;
  std::string_view file;
};

absl::StatusOr<int32_t> TokenId(const Json& object, std::string_view key,
                                int64_t min) {
  INLAY_ASSIGN_OR_RETURN(const int64_t id,
                         JsonInt(object, key, 0, min, INT32_MAX));
  return static_cast<int32_t>(id);
}

absl::StatusOr<std::vector<int32_t>> EosIds(const Json& object) {
  const Json& value = *JsonFind(object, "eos_token_id");
  std::vector<int32_t> ids;
  if (!value.is_array()) {
    INLAY_ASSIGN_OR_RETURN(const int32_t id,
                           TokenId(object, "eos_token_id", 0));
    ids.push_back(id);
    return ids;
  }
  if (value.size() > kMaxEosIds) {
    return absl::InvalidArgumentError(
        FormattedString("\"eos_token_id\" lists %d ids, at most %d allowed",
                        value.size(), kMaxEosIds));
  }
  for (const Json& item : value) {
    // JsonInt reads a null as absent; in a list it is as wrong as a string.
    if (item.is_null()) {
      return absl::InvalidArgumentError(
          "\"eos_token_id\" lists a null, allowed: integers");
    }
    INLAY_ASSIGN_OR_RETURN(
        const int32_t id,
        TokenId(Json{{"eos_token_id", item}}, "eos_token_id", 0));
    if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
  }
  return ids;
}

absl::Status ReadTokenIds(const Document& document, GenerationDefaults* out) {
  const Json& object = *document.json;
  if (out->eos_ids.empty() && JsonFind(object, "eos_token_id") != nullptr) {
    auto ids = EosIds(object);
    if (!ids.ok()) return InFile(document.file, ids.status());
    out->eos_ids = *std::move(ids);
  }
  if (!out->bos_id.has_value() && JsonFind(object, "bos_token_id") != nullptr) {
    const auto id = TokenId(object, "bos_token_id", 0);
    if (!id.ok()) return InFile(document.file, id.status());
    out->bos_id = *id;
  }
  if (!out->pad_id.has_value() && JsonFind(object, "pad_token_id") != nullptr) {
    // -1 is how some published Llama checkpoints say that there is none.
    const auto id = TokenId(object, "pad_token_id", -1);
    if (!id.ok()) return InFile(document.file, id.status());
    if (*id >= 0) out->pad_id = *id;
  }
  return absl::OkStatus();
}

absl::Status ReadNumber(const Json& object, std::string_view key, double max,
                        std::optional<double>* out) {
  if (JsonFind(object, key) == nullptr) return absl::OkStatus();
  INLAY_ASSIGN_OR_RETURN(*out, JsonNumber(object, key, 0, 0, max));
  return absl::OkStatus();
}

absl::Status ReadInteger(const Json& object, std::string_view key, int64_t min,
                         std::optional<int64_t>* out) {
  if (JsonFind(object, key) == nullptr) return absl::OkStatus();
  INLAY_ASSIGN_OR_RETURN(*out, JsonInt(object, key, 0, min, INT32_MAX));
  return absl::OkStatus();
}

absl::Status ReadSampling(const Json& object, GenerationDefaults* out) {
  if (JsonFind(object, "do_sample") != nullptr) {
    INLAY_ASSIGN_OR_RETURN(out->do_sample,
                           JsonBool(object, "do_sample", false));
  }
  INLAY_RETURN_IF_ERROR(
      ReadNumber(object, "temperature", 1e6, &out->temperature));
  INLAY_RETURN_IF_ERROR(ReadNumber(object, "top_p", 1, &out->top_p));
  INLAY_RETURN_IF_ERROR(ReadNumber(object, "min_p", 1, &out->min_p));
  INLAY_RETURN_IF_ERROR(
      ReadNumber(object, "repetition_penalty", 1e6, &out->repetition_penalty));
  if (out->repetition_penalty == 0.0) {
    return absl::InvalidArgumentError(
        "\"repetition_penalty\" is 0, allowed: a number above 0");
  }
  // Both 0 and -1 are used for "off".
  INLAY_RETURN_IF_ERROR(ReadInteger(object, "top_k", -1, &out->top_k));
  if (out->top_k == -1) out->top_k = 0;
  return ReadInteger(object, "max_new_tokens", 0, &out->max_new_tokens);
}

}  // namespace

absl::StatusOr<GenerationDefaults> InterpretGenerationDefaults(
    const Json& generation, const Json& config) {
  GenerationDefaults defaults;
  const absl::Status sampling = ReadSampling(generation, &defaults);
  if (!sampling.ok()) return InFile(kGenerationFile, sampling);

  const Json* text_config = JsonFind(config, "text_config");
  const Json absent;
  const Document documents[] = {
      {&generation, kGenerationFile},
      {&config, kConfigFile},
      {text_config == nullptr ? &absent : text_config,
       "config.json, \"text_config\""},
  };
  for (const Document& document : documents) {
    INLAY_RETURN_IF_ERROR(ReadTokenIds(document, &defaults));
  }
  return defaults;
}

}  // namespace inlay
