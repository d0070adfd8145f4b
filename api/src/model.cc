// The C ABI of models and text.
#include <cmath>
#include <utility>
#include <vector>

#include "api/src/shim.h"
#include "memory/formatted_string.h"

namespace inlay::api {
namespace {

absl::StatusOr<ModelOptions> ToModelOptions(
    const inlay_model_options& options) {
  INLAY_RETURN_IF_ERROR(CheckEnum(options.vocab_only, 1, "vocab_only"));
  INLAY_RETURN_IF_ERROR(
      CheckEnum(options.weights, INLAY_WEIGHTS_READ, "weights"));
  INLAY_RETURN_IF_ERROR(CheckEnum(options.kv_type, INLAY_KV_Q4, "kv_type"));
  INLAY_RETURN_IF_ERROR(CheckEnum(
      options.block_selection, INLAY_BLOCK_SELECTION_LSH, "block_selection"));
  ModelOptions result;
  result.vocab_only = options.vocab_only != 0;
  result.weights = options.weights == INLAY_WEIGHTS_MAP ? WeightAccess::kMap
                                                        : WeightAccess::kRead;
  constexpr DType kKvTypes[] = {DType::kF32,  DType::kF32, DType::kF16,
                                DType::kBF16, DType::kI8,  DType::kF8E4M3,
                                DType::kKvQ4};
  if (options.kv_type != INLAY_KV_AUTO) {
    result.kv_dtype = kKvTypes[options.kv_type];
  }
  const uint32_t block = options.kv_block_size;
  if (block != 0) {
    if (block < 8 || block > 256 || (block & (block - 1)) != 0) {
      return absl::InvalidArgumentError(FormattedString(
          "kv_block_size is %d, allowed: 0 (default) or a power of two from 8 "
          "to 256",
          block));
    }
    result.kv_block_size = static_cast<int>(block);
  }
  result.max_context = options.max_context;
  result.kv_budget_bytes = options.kv_budget_bytes;
  result.host_cache_bytes = options.host_cache_bytes;
  if (options.disk_cache_folder != nullptr) {
    if (options.host_cache_bytes == 0 || options.disk_cache_bytes == 0) {
      return absl::InvalidArgumentError(FormattedString(
          "disk_cache_folder is set: host_cache_bytes is %d and "
          "disk_cache_bytes %d, allowed: both above 0",
          options.host_cache_bytes, options.disk_cache_bytes));
    }
    result.disk_cache_folder = options.disk_cache_folder;
    result.disk_cache_bytes = options.disk_cache_bytes;
  }
  if (options.kernels != nullptr) result.kernels = options.kernels;
  if (options.attention_pattern != nullptr) {
    result.attention_pattern = options.attention_pattern;
  }
  constexpr BlockMethod kMethods[] = {BlockMethod::kNone, BlockMethod::kBounds,
                                      BlockMethod::kKMeans, BlockMethod::kLsh};
  result.block_selection.method = kMethods[options.block_selection];
  result.block_selection.tokens = options.selected_tokens;
  INLAY_RETURN_IF_ERROR(ValidateBlockSelectionOptions(result.block_selection));
  result.expert_device_bytes = options.expert_device_bytes;
  if (options.progress != nullptr) {
    result.progress = [progress = options.progress,
                       user = options.progress_user](LoadStage stage,
                                                     float fraction) {
      return progress(user, static_cast<int32_t>(stage), fraction) == 0;
    };
  }
  return result;
}

inlay_model_info ToModelInfo(const ModelHandle& handle) {
  inlay_model_info result;
  inlay_model_info_init(&result);
  const LoadedModel& loaded = *handle.loaded.model;
  if (handle.loaded.runner != nullptr) {
    const ModelInfo& info = loaded.info;
    result.num_layers = static_cast<uint32_t>(info.num_layers);
    info.architecture.copy(result.architecture,
                           sizeof(result.architecture) - 1);
    result.vocab_size = static_cast<uint64_t>(info.vocab_size);
    result.hidden_size = static_cast<uint64_t>(info.hidden_size);
    result.max_context = static_cast<uint64_t>(loaded.max_context);
    result.num_parameters = info.num_parameters;
    result.weight_bytes = info.weight_bytes;
    result.bytes_per_decode = info.weight_bytes_per_token;
    result.kv_bytes_per_token = loaded.kv_layout.bytes_per_token();
    result.kv_capacity_tokens =
        static_cast<uint64_t>(handle.loaded.runner->kv_capacity_tokens());
    result.embedding_size = static_cast<uint64_t>(loaded.embedding_size());
  } else if (loaded.tokenizer != nullptr) {
    result.vocab_size = static_cast<uint64_t>(loaded.tokenizer->vocab_size());
  }
  result.bos_token = loaded.generation.bos_id.value_or(-1);
  result.eos_token = loaded.generation.eos_ids.empty()
                         ? -1
                         : loaded.generation.eos_ids.front();
  result.has_tokenizer = loaded.tokenizer != nullptr ? 1 : 0;
  result.has_chat_template = loaded.chat_template.ok() ? 1 : 0;
  return result;
}

// A model handle of an engine that still lives.
absl::StatusOr<std::shared_ptr<ModelHandle>> GetModel(inlay_model* model) {
  INLAY_ASSIGN_OR_RETURN(auto handle, GetHandle<ModelHandle>(model));
  if (handle->engine->closed()) {
    return absl::UnavailableError("the engine was released");
  }
  return handle;
}

}  // namespace
}  // namespace inlay::api

using namespace inlay::api;  // NOLINT: the shim's own names

void(inlay_model_options_init)(inlay_model_options* options) {
  inlay_model_options_init_sized(options, kFirstSize<inlay_model_options>);
}

void inlay_model_options_init_sized(inlay_model_options* options, size_t size) {
  inlay_model_options zero;
  InitStruct(&zero);
  InitSized(zero, options, size);
}

inlay_status inlay_model_load(inlay_engine* engine, const char* path,
                              const inlay_model_options* options,
                              inlay_model** model, inlay_error** error) {
  return Guard(error, [&]() -> absl::Status {
    INLAY_RETURN_IF_ERROR(CheckPointer(model, "model"));
    *model = nullptr;
    INLAY_ASSIGN_OR_RETURN(const auto handle, GetHandle<EngineHandle>(engine));
    INLAY_RETURN_IF_ERROR(CheckPointer(path, "path"));
    inlay_model_options read;
    inlay_model_options_init(&read);
    INLAY_RETURN_IF_ERROR(ReadOptions(options, "inlay_model_options", &read));
    INLAY_ASSIGN_OR_RETURN(const inlay::ModelOptions converted,
                           ToModelOptions(read));
    INLAY_ASSIGN_OR_RETURN(inlay::Engine::Loaded loaded,
                           handle->engine->Load(path, converted));
    *model = AddHandle(ModelHandle{handle->engine, std::move(loaded)});
    return absl::OkStatus();
  });
}

void inlay_model_release(inlay_model* model) {
  GuardVoid([&] {
    auto handle = TakeHandle<ModelHandle>(model);
    if (handle != nullptr) ReleaseAndWake(std::move(handle));
  });
}

void(inlay_model_info_init)(inlay_model_info* info) {
  inlay_model_info_init_sized(info, kFirstSize<inlay_model_info>);
}

void inlay_model_info_init_sized(inlay_model_info* info, size_t size) {
  inlay_model_info zero;
  InitStruct(&zero);
  InitSized(zero, info, size);
}

inlay_status inlay_model_get_info(inlay_model* model, inlay_model_info* info,
                                  inlay_error** error) {
  return Guard(error, [&]() -> absl::Status {
    INLAY_ASSIGN_OR_RETURN(const auto handle, GetModel(model));
    INLAY_RETURN_IF_ERROR(CheckResult(info, "inlay_model_info"));
    WriteResult(ToModelInfo(*handle), info);
    return absl::OkStatus();
  });
}

inlay_status inlay_model_inspect(const char* path, inlay_buffer** json,
                                 inlay_error** error) {
  return Guard(error, [&]() -> absl::Status {
    INLAY_RETURN_IF_ERROR(CheckPointer(json, "json"));
    *json = nullptr;
    INLAY_RETURN_IF_ERROR(CheckPointer(path, "path"));
    INLAY_ASSIGN_OR_RETURN(std::string text, inlay::InspectPath(path));
    *json = AddHandle(BufferHandle{std::move(text)});
    return absl::OkStatus();
  });
}

inlay_status inlay_model_tokenize(inlay_model* model, const char* text,
                                  size_t text_bytes, uint32_t flags,
                                  int32_t* tokens, size_t capacity,
                                  size_t* num_tokens, inlay_error** error) {
  return Guard(error, [&]() -> absl::Status {
    INLAY_RETURN_IF_ERROR(CheckPointer(num_tokens, "num_tokens"));
    *num_tokens = 0;
    INLAY_ASSIGN_OR_RETURN(const auto handle, GetModel(model));
    INLAY_RETURN_IF_ERROR(CheckInput(text, text_bytes, "text"));
    INLAY_RETURN_IF_ERROR(CheckArray(tokens, capacity, "tokens"));
    INLAY_RETURN_IF_ERROR(CheckTextFlags(flags, "flags"));
    INLAY_ASSIGN_OR_RETURN(const inlay::Tokenizer* tokenizer,
                           handle->loaded.model->RequireTokenizer());
    inlay::EncodeOptions encode;
    encode.add_special = (flags & INLAY_TEXT_ADD_SPECIAL) != 0;
    encode.parse_special = (flags & INLAY_TEXT_PARSE_SPECIAL) != 0;
    std::vector<int32_t> ids;
    INLAY_RETURN_IF_ERROR(
        tokenizer->Encode(std::string_view(text, text_bytes), encode, &ids));
    *num_tokens = ids.size();
    std::copy_n(ids.begin(), std::min(capacity, ids.size()), tokens);
    return absl::OkStatus();
  });
}

inlay_status inlay_model_detokenize(inlay_model* model, const int32_t* tokens,
                                    size_t num_tokens, uint32_t flags,
                                    inlay_buffer** text, inlay_error** error) {
  return Guard(error, [&]() -> absl::Status {
    INLAY_RETURN_IF_ERROR(CheckPointer(text, "text"));
    *text = nullptr;
    INLAY_ASSIGN_OR_RETURN(const auto handle, GetModel(model));
    INLAY_RETURN_IF_ERROR(CheckInput(tokens, num_tokens, "tokens"));
    INLAY_RETURN_IF_ERROR(CheckTextFlags(flags, "flags"));
    INLAY_ASSIGN_OR_RETURN(const inlay::Tokenizer* tokenizer,
                           handle->loaded.model->RequireTokenizer());
    const int32_t vocab = tokenizer->vocab_size();
    for (size_t i = 0; i < num_tokens; ++i) {
      if (tokens[i] < 0 || tokens[i] >= vocab) {
        return absl::InvalidArgumentError(inlay::FormattedString(
            "tokens[%d] is %d, allowed: 0 to %d", i, tokens[i], vocab - 1));
      }
    }
    inlay::DecodeOptions decode;
    decode.skip_special = (flags & INLAY_TEXT_SKIP_SPECIAL) != 0;
    *text = AddHandle(BufferHandle{
        tokenizer->Decode(absl::MakeConstSpan(tokens, num_tokens), decode)});
    return absl::OkStatus();
  });
}

inlay_status inlay_chat_render(inlay_model* model, const char* json,
                               size_t json_bytes, inlay_buffer** text,
                               inlay_error** error) {
  return Guard(error, [&]() -> absl::Status {
    INLAY_RETURN_IF_ERROR(CheckPointer(text, "text"));
    *text = nullptr;
    std::shared_ptr<ModelHandle> handle;
    if (model != nullptr) {
      INLAY_ASSIGN_OR_RETURN(handle, GetModel(model));
    }
    INLAY_RETURN_IF_ERROR(CheckPointer(json, "json"));
    INLAY_RETURN_IF_ERROR(CheckInput(json, json_bytes, "json"));
    INLAY_ASSIGN_OR_RETURN(
        std::string rendered,
        inlay::RenderChat(
            handle == nullptr ? nullptr : handle->loaded.model.get(),
            std::string_view(json, json_bytes), false));
    *text = AddHandle(BufferHandle{std::move(rendered)});
    return absl::OkStatus();
  });
}

void(inlay_request_options_init)(inlay_request_options* options) {
  inlay_request_options_init_sized(options, kFirstSize<inlay_request_options>);
}

void inlay_request_options_init_sized(inlay_request_options* options,
                                      size_t size) {
  inlay_request_options defaults;
  InitStruct(&defaults);
  defaults.text_flags = INLAY_TEXT_ADD_SPECIAL | INLAY_TEXT_PARSE_SPECIAL;
  defaults.max_tokens = -1;
  defaults.top_p = 1.0f;
  defaults.repetition_penalty = 1.0f;
  defaults.num_logprobs = -1;
  InitSized(defaults, options, size);
}

inlay_status inlay_model_request_options(inlay_model* model,
                                         inlay_request_options* options,
                                         inlay_error** error) {
  return Guard(error, [&]() -> absl::Status {
    INLAY_ASSIGN_OR_RETURN(const auto handle, GetModel(model));
    INLAY_RETURN_IF_ERROR(CheckResult(options, "inlay_request_options"));
    inlay_request_options result;
    inlay_request_options_init(&result);
    const inlay::GenerationDefaults& defaults =
        handle->loaded.model->generation;
    // transformers samples at temperature 1 unless told otherwise, and only
    // where do_sample says so.
    if (defaults.do_sample.value_or(false)) {
      result.temperature =
          static_cast<float>(defaults.temperature.value_or(1.0));
      result.top_k = static_cast<int32_t>(defaults.top_k.value_or(0));
      result.top_p = static_cast<float>(defaults.top_p.value_or(1.0));
      result.min_p = static_cast<float>(defaults.min_p.value_or(0.0));
    }
    result.repetition_penalty =
        static_cast<float>(defaults.repetition_penalty.value_or(1.0));
    if (defaults.max_new_tokens.has_value()) {
      result.max_tokens = static_cast<int32_t>(
          std::min<int64_t>(*defaults.max_new_tokens, INT32_MAX));
    }
    WriteResult(result, options);
    return absl::OkStatus();
  });
}
