#include "core/formats/gguf_config_writer.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_format.h"
#include "core/formats/gguf_rope_writer.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr int64_t kMaxSize = int64_t{1} << 28;

class ConfigWriter {
 public:
  ConfigWriter(const Json& config, const GgufArch& arch, GgufWriter* writer)
      : config_(config), arch_(arch), writer_(*writer) {}

  absl::StatusOr<GgufConfigTensors> Write() {
    INLAY_RETURN_IF_ERROR(
        writer_.SetString("general.architecture", arch_.name));
    if (arch_.name == "gpt2") {
      INLAY_RETURN_IF_ERROR(WriteGpt2());
    } else {
      INLAY_RETURN_IF_ERROR(WriteRotary());
      INLAY_RETURN_IF_ERROR(WriteFamily());
    }
    return std::move(tensors_);
  }

 private:
  std::string Key(std::string_view name) const {
    return absl::StrFormat("%s.%s", arch_.name, name);
  }
  bool Has(const char* key) const { return JsonFind(config_, key) != nullptr; }
  bool IsNull(const char* key) const {
    const auto found = config_.find(key);
    return found != config_.end() && found->is_null();
  }
  // Its files say "llama".
  bool IsMistral() const {
    const Json* list = JsonFind(config_, "architectures");
    if (list != nullptr && list->is_array() && !list->empty()) {
      return list->front() == "MistralForCausalLM";
    }
    const Json* type = JsonFind(config_, "model_type");
    return type != nullptr && *type == "mistral";
  }
  absl::Status SetF32(const char* key, double value) {
    return writer_.SetF32(Key(key), static_cast<float>(value));
  }

  // A size that config.json must have, unless there is a fallback.
  absl::StatusOr<int64_t> Size(const char* from, int64_t fallback = 0) const {
    if (!Has(from) && fallback == 0) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "config.json: %s is missing: a GGUF file needs it", from));
    }
    return JsonInt(config_, from, fallback, 1, kMaxSize);
  }
  absl::StatusOr<int64_t> CopySize(const char* from, const char* to,
                                   int64_t fallback = 0) {
    INLAY_ASSIGN_OR_RETURN(const int64_t size, Size(from, fallback));
    INLAY_RETURN_IF_ERROR(writer_.SetU32(Key(to), static_cast<uint32_t>(size)));
    return size;
  }
  absl::Status CopyNumber(const char* from, const char* to, double fallback) {
    INLAY_ASSIGN_OR_RETURN(const double value,
                           JsonNumber(config_, from, fallback, 0.0, 1e15));
    return SetF32(to, value);
  }

  // The one activation that files of the architecture stand for.
  absl::Status CheckActivation(const char* key,
                               std::initializer_list<const char*> allowed) {
    INLAY_ASSIGN_OR_RETURN(const std::string name,
                           JsonString(config_, key, *allowed.begin()));
    if (std::find(allowed.begin(), allowed.end(), name) != allowed.end()) {
      return absl::OkStatus();
    }
    return absl::UnimplementedError(absl::StrFormat(
        "config.json: %s is \"%s\", allowed in a GGUF file of \"%s\": \"%s\"",
        key, name, arch_.name, *allowed.begin()));
  }
  absl::Status Refuse(const char* key, bool refused) {
    INLAY_ASSIGN_OR_RETURN(const bool value, JsonBool(config_, key, !refused));
    if (value != refused) return absl::OkStatus();
    return absl::UnimplementedError(
        absl::StrFormat("config.json: %s is %s, which a GGUF file of \"%s\" "
                        "cannot say",
                        key, refused ? "true" : "false", arch_.name));
  }

  absl::Status WriteGpt2() {
    INLAY_RETURN_IF_ERROR(CheckActivation("activation_function",
                                          {"gelu_new", "gelu_pytorch_tanh"}));
    INLAY_RETURN_IF_ERROR(Refuse("scale_attn_weights", false));
    INLAY_RETURN_IF_ERROR(Refuse("scale_attn_by_inverse_layer_idx", true));
    INLAY_RETURN_IF_ERROR(CopySize("n_layer", "block_count").status());
    INLAY_ASSIGN_OR_RETURN(const int64_t hidden,
                           CopySize("n_embd", "embedding_length"));
    INLAY_RETURN_IF_ERROR(CopySize("n_positions", "context_length").status());
    INLAY_ASSIGN_OR_RETURN(tensors_.heads.query,
                           CopySize("n_head", "attention.head_count"));
    tensors_.heads.key = tensors_.heads.query;
    INLAY_RETURN_IF_ERROR(
        CopySize("n_inner", "feed_forward_length", 4 * hidden).status());
    return CopyNumber("layer_norm_epsilon", "attention.layer_norm_epsilon",
                      1e-5);
  }

  // What families assume; 0: config.json must say it.
  int64_t DefaultHeadDim(int64_t hidden) const {
    if (arch_.name.starts_with("gemma")) return 256;
    if (arch_.name == "qwen3" || arch_.name == "glm4") return 128;
    return hidden / tensors_.heads.query;
  }
  int64_t DefaultKvHeads() const {
    const bool all =
        (arch_.name == "llama" && !IsMistral()) || arch_.name == "phi3";
    return all ? tensors_.heads.query : 0;
  }

  absl::Status WriteRotary() {
    INLAY_RETURN_IF_ERROR(
        CopySize("num_hidden_layers", "block_count").status());
    INLAY_ASSIGN_OR_RETURN(const int64_t hidden,
                           CopySize("hidden_size", "embedding_length"));
    INLAY_ASSIGN_OR_RETURN(
        const int64_t positions,
        CopySize("max_position_embeddings", "context_length"));
    INLAY_RETURN_IF_ERROR(
        CopySize("intermediate_size", "feed_forward_length").status());
    INLAY_ASSIGN_OR_RETURN(
        tensors_.heads.query,
        CopySize("num_attention_heads", "attention.head_count"));
    INLAY_ASSIGN_OR_RETURN(
        tensors_.heads.key,
        CopySize("num_key_value_heads", "attention.head_count_kv",
                 DefaultKvHeads()));
    INLAY_RETURN_IF_ERROR(WriteEpsilon());
    INLAY_ASSIGN_OR_RETURN(
        const int64_t head_dim,
        CopySize("head_dim", "attention.key_length", DefaultHeadDim(hidden)));
    INLAY_RETURN_IF_ERROR(writer_.SetU32(Key("attention.value_length"),
                                         static_cast<uint32_t>(head_dim)));
    const double theta = arch_.name == "gemma3"    ? 1e6
                         : arch_.name == "smollm3" ? 2e6
                                                   : 10000.0;
    const double partial = arch_.name == "glm4" ? 0.5 : 1.0;
    return SetGgufRope(config_, std::string(arch_.name),
                       {head_dim, positions, theta, partial}, &writer_,
                       &tensors_);
  }

  absl::Status WriteEpsilon() {
    if (arch_.name == "starcoder2" || arch_.name == "cohere2") {
      return CopyNumber(
          arch_.name == "cohere2" ? "layer_norm_eps" : "norm_epsilon",
          "attention.layer_norm_epsilon", 1e-5);
    }
    const bool is_larger = arch_.name == "phi3" || arch_.name == "olmo2" ||
                           arch_.name == "exaone4";
    return CopyNumber("rms_norm_eps", "attention.layer_norm_rms_epsilon",
                      arch_.name == "glm4" ? 1.5625e-7
                      : is_larger          ? 1e-5
                                           : 1e-6);
  }

  absl::Status WriteFamily() {
    if (arch_.name.starts_with("gemma")) {
      INLAY_RETURN_IF_ERROR(
          CheckActivation("hidden_activation", {"gelu_pytorch_tanh"}));
      return arch_.name == "gemma" ? absl::OkStatus() : WriteGemma();
    }
    if (arch_.name == "starcoder2") {
      INLAY_RETURN_IF_ERROR(
          CheckActivation("hidden_act", {"gelu_pytorch_tanh", "gelu_new"}));
      return WriteWindow(0);
    }
    INLAY_RETURN_IF_ERROR(CheckActivation("hidden_act", {"silu", "swish"}));
    if (arch_.name == "granite") return WriteGranite();
    if (arch_.name == "smollm3") return CheckSmolLm3();
    if (arch_.name == "cohere2" || arch_.name == "exaone4") {
      if (arch_.name == "cohere2") {
        INLAY_RETURN_IF_ERROR(CopyNumber("logit_scale", "logit_scale", 0.0625));
      }
      INLAY_RETURN_IF_ERROR(WriteWindow(4096));
      return IsNull("sliding_window") ? absl::OkStatus() : WritePattern();
    }
    if (arch_.name.starts_with("qwen")) {
      return Refuse("use_sliding_window", true);
    }
    const bool is_mistral = IsMistral();
    if (arch_.name != "phi3" && !is_mistral) return absl::OkStatus();
    return WriteWindow(is_mistral ? 4096 : 0);
  }

  absl::Status WriteGranite() {
    for (const auto& [from, to] :
         {std::pair{"attention_multiplier", "attention.scale"},
          std::pair{"embedding_multiplier", "embedding_scale"},
          std::pair{"residual_multiplier", "residual_scale"},
          std::pair{"logits_scaling", "logit_scale"}}) {
      INLAY_RETURN_IF_ERROR(CopyNumber(from, to, 1.0));
    }
    return absl::OkStatus();
  }

  // Every fourth layer has no rope, and none a window.
  absl::Status CheckSmolLm3() {
    INLAY_RETURN_IF_ERROR(Refuse("use_sliding_window", true));
    INLAY_ASSIGN_OR_RETURN(
        const int64_t interval,
        JsonInt(config_, "no_rope_layer_interval", 4, 1, kMaxSize));
    const Json* list = JsonFind(config_, "no_rope_layers");
    bool is_usual = list != nullptr || interval == 4;
    for (size_t i = 0; list != nullptr && i < list->size(); ++i) {
      is_usual &= list->is_array() && (*list)[i] == ((i + 1) % 4 != 0 ? 1 : 0);
    }
    if (is_usual) return absl::OkStatus();
    return absl::UnimplementedError(
        "config.json: no_rope_layers are not every fourth, which a GGUF file "
        "of \"smollm3\" cannot say");
  }

  // `fallback`: where config.json is silent; 0: none.
  absl::Status WriteWindow(int64_t fallback) {
    if (IsNull("sliding_window")) return absl::OkStatus();
    if (!Has("sliding_window") && fallback == 0) return absl::OkStatus();
    return CopySize("sliding_window", "attention.sliding_window", fallback)
        .status();
  }

  // A cap that config.json may switch off by null, where the format has no way
  // to say so for a family that has one by default.
  absl::Status WriteSoftcap(const char* key, double fallback) {
    if (IsNull(key) && fallback > 0.0) {
      return absl::UnimplementedError(absl::StrFormat(
          "config.json: %s is null, which a GGUF file of \"%s\" cannot say",
          key, arch_.name));
    }
    if (!Has(key) && fallback == 0.0) return absl::OkStatus();
    return CopyNumber(key, key, fallback);
  }

  absl::Status WriteGemma() {
    const bool is_gemma2 = arch_.name == "gemma2";
    INLAY_ASSIGN_OR_RETURN(
        const double scalar,
        JsonNumber(config_, "query_pre_attn_scalar", 256.0, 1e-6, 1e9));
    INLAY_RETURN_IF_ERROR(SetF32("attention.scale", 1.0 / std::sqrt(scalar)));
    if (is_gemma2 && IsNull("sliding_window")) {
      return absl::UnimplementedError(
          "config.json: sliding_window is null, which a GGUF file of "
          "\"gemma2\" cannot say");
    }
    INLAY_RETURN_IF_ERROR(WriteWindow(4096));
    INLAY_RETURN_IF_ERROR(
        WriteSoftcap("attn_logit_softcapping", is_gemma2 ? 50.0 : 0.0));
    INLAY_RETURN_IF_ERROR(
        WriteSoftcap("final_logit_softcapping", is_gemma2 ? 30.0 : 0.0));
    // A file without a window has no layers with one.
    return IsNull("sliding_window") ? absl::OkStatus() : WritePattern();
  }

  absl::Status WritePattern() {
    const std::string key = Key("attention.sliding_window_pattern");
    const Json* types = JsonFind(config_, "layer_types");
    if (types == nullptr || !types->is_array()) {
      for (const char* name :
           {"sliding_window_pattern", "_sliding_window_pattern"}) {
        if (!Has(name)) continue;
        return CopySize(name, "attention.sliding_window_pattern").status();
      }
      return absl::OkStatus();
    }
    std::vector<std::byte> slides;
    for (const Json& type : *types) {
      slides.push_back(std::byte{type == "sliding_attention"});
    }
    return writer_.Set(key, {GgufType::kBool, true, slides.size(), slides});
  }

  const Json& config_;
  const GgufArch& arch_;
  GgufWriter& writer_;
  GgufConfigTensors tensors_;
};

}  // namespace

absl::StatusOr<GgufConfigTensors> SetGgufConfig(const Json& config,
                                                const GgufArch& arch,
                                                GgufWriter* writer) {
  return ConfigWriter(config, arch, writer).Write();
}

}  // namespace inlay
