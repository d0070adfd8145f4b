#include "core/formats/gguf_config_writer.h"

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "core/formats/exaone_config.h"
#include "core/formats/gguf_baichuan.h"
#include "core/formats/gguf_cohere_moe.h"
#include "core/formats/gguf_deci.h"
#include "core/formats/gguf_deepseek4.h"
#include "core/formats/gguf_deepseek_ocr.h"
#include "core/formats/gguf_encoder.h"
#include "core/formats/gguf_experts_writer.h"
#include "core/formats/gguf_family_checks.h"
#include "core/formats/gguf_family_defaults.h"
#include "core/formats/gguf_gemma3n.h"
#include "core/formats/gguf_gemma_writer.h"
#include "core/formats/gguf_gpt.h"
#include "core/formats/gguf_granite.h"
#include "core/formats/gguf_grove.h"
#include "core/formats/gguf_key_writer.h"
#include "core/formats/gguf_laguna.h"
#include "core/formats/gguf_latent_writer.h"
#include "core/formats/gguf_linear_writer.h"
#include "core/formats/gguf_llama4.h"
#include "core/formats/gguf_minicpm.h"
#include "core/formats/gguf_minimax.h"
#include "core/formats/gguf_muse.h"
#include "core/formats/gguf_openelm.h"
#include "core/formats/gguf_rope_writer.h"
#include "core/formats/gguf_rwkv.h"
#include "core/formats/gguf_selective.h"
#include "core/formats/gguf_sizes.h"
#include "core/formats/gguf_smallthinker.h"
#include "core/formats/gguf_step.h"
#include "core/formats/gguf_windows.h"
#include "core/formats/gguf_xielu.h"
#include "core/formats/ntk_alpha.h"
#include "core/formats/openelm_config.h"
#include "core/formats/qwen_config.h"
#include "core/formats/smallthinker_config.h"
#include "core/formats/step_config.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

bool IsList(const Json* value) { return value != nullptr && value->is_array(); }

class ConfigWriter {
 public:
  ConfigWriter(const Json& config, const GgufArch& arch,
               const GgufShapeOf& shape_of, GgufWriter* writer)
      : config_(config),
        arch_(arch),
        shape_of_(shape_of),
        defaults_(GgufDefaultsOf(arch.model_type)),
        keys_(config, arch, writer) {}

  absl::StatusOr<GgufConfigTensors> Write() {
    INLAY_RETURN_IF_ERROR(
        keys_.writer().SetString("general.architecture", arch_.name));
    if (IsGgufBert(arch_.name)) {
      INLAY_RETURN_IF_ERROR(SetGgufBert(keys_, arch_.architecture, &tensors_));
      return std::move(tensors_);
    }
    INLAY_RETURN_IF_ERROR(SetGgufDirection(keys_));
    if (arch_.name == "gpt2") {
      INLAY_RETURN_IF_ERROR(WriteGpt2());
    } else if (arch_.name == "mamba2") {
      INLAY_RETURN_IF_ERROR(SetGgufMamba2(keys_));
    } else if (arch_.name == "mamba") {
      INLAY_RETURN_IF_ERROR(SetGgufMamba(keys_));
    } else if (arch_.name == "rwkv7") {
      INLAY_RETURN_IF_ERROR(SetGgufRwkv7(keys_));
    } else if (IsGgufGpt(arch_.name)) {
      INLAY_RETURN_IF_ERROR(SetGgufGpt(keys_, &tensors_));
    } else if (arch_.name == "gemma4") {
      INLAY_RETURN_IF_ERROR(SetGgufGemma4(keys_, &tensors_));
    } else {
      INLAY_RETURN_IF_ERROR(WriteRotary());
      INLAY_RETURN_IF_ERROR(WriteFamily());
      INLAY_RETURN_IF_ERROR(SetGgufExperts(keys_));
    }
    return std::move(tensors_);
  }

 private:
  // Its files say "llama".
  bool IsMistral() const {
    const Json* list = JsonFind(config_, "architectures");
    if (list != nullptr && list->is_array() && !list->empty()) {
      return list->front() == "MistralForCausalLM";
    }
    const Json* type = JsonFind(config_, "model_type");
    return type != nullptr && *type == "mistral";
  }

  absl::Status WriteGpt2() {
    INLAY_RETURN_IF_ERROR(keys_.CheckActivation(
        "activation_function", {"gelu_new", "gelu_pytorch_tanh"}));
    INLAY_RETURN_IF_ERROR(keys_.Expect("scale_attn_weights", true));
    INLAY_RETURN_IF_ERROR(
        keys_.Expect("scale_attn_by_inverse_layer_idx", false));
    INLAY_RETURN_IF_ERROR(keys_.CopySize("n_layer", "block_count").status());
    INLAY_ASSIGN_OR_RETURN(const int64_t hidden,
                           keys_.CopySize("n_embd", "embedding_length"));
    INLAY_RETURN_IF_ERROR(
        keys_.CopySize("n_positions", "context_length").status());
    INLAY_ASSIGN_OR_RETURN(tensors_.heads.query,
                           keys_.CopySize("n_head", "attention.head_count"));
    tensors_.heads.key = tensors_.heads.query;
    INLAY_RETURN_IF_ERROR(
        keys_.CopySize("n_inner", "feed_forward_length", 4 * hidden).status());
    return keys_.CopyNumber("layer_norm_epsilon",
                            "attention.layer_norm_epsilon", 1e-5);
  }

  int64_t DefaultKvHeads() const {
    const bool all = (arch_.model_type == "llama" && !IsMistral()) ||
                     arch_.name == "phi3" || arch_.name == "gptneox" ||
                     arch_.name == "olmoe" || arch_.name == "granitemoe" ||
                     arch_.name == "command-r" || arch_.name == "jais2" ||
                     arch_.name == "apertus" || arch_.name == "cohere2moe" ||
                     arch_.name == "baichuan" ||
                     arch_.name == "deepseek2-ocr" || arch_.name == "qwen" ||
                     arch_.name == "arctic" || arch_.name == "plm" ||
                     arch_.model_type == "granitemoe_swa" ||
                     arch_.name.starts_with("hunyuan");
    return all ? tensors_.heads.query : 0;
  }

  // Kimi's, and Command R's, where it is longer than the other.
  const char* PositionsKey() const {
    if (arch_.name == "command-r" && keys_.Has("model_max_length")) {
      return "model_max_length";
    }
    if (arch_.name == "baichuan") {
      return keys_.AnyOf({"max_position_embeddings", "model_max_length"});
    }
    return keys_.Named("max_position_embeddings", "model_max_length");
  }

  absl::Status WriteRotary() {
    INLAY_RETURN_IF_ERROR(
        keys_.CopySize("num_hidden_layers", "block_count").status());
    INLAY_ASSIGN_OR_RETURN(const int64_t hidden,
                           keys_.CopySize("hidden_size", "embedding_length"));
    INLAY_ASSIGN_OR_RETURN(const int64_t positions,
                           keys_.CopySize(PositionsKey(), "context_length"));
    INLAY_RETURN_IF_ERROR(WriteWidth());
    INLAY_RETURN_IF_ERROR(WriteVocabulary());
    const bool is_openelm = arch_.name == "openelm";
    const bool has_lists = arch_.name == "deci" || is_openelm;
    INLAY_ASSIGN_OR_RETURN(
        tensors_.heads.query,
        arch_.name == "laguna" || arch_.name == "step35" || has_lists
            ? keys_.Size("num_attention_heads")
            : keys_.CopySize("num_attention_heads", "attention.head_count"));
    if (has_lists) {
      INLAY_ASSIGN_OR_RETURN(tensors_.heads, is_openelm
                                                 ? SetGgufOpenElmLayers(keys_)
                                                 : SetGgufDeciLayers(keys_));
    } else if (arch_.name == "laguna") {
      INLAY_RETURN_IF_ERROR(SetGgufLagunaHeads(keys_));
    }
    if (arch_.name == "step35") {
      INLAY_RETURN_IF_ERROR(SetGgufStepHeads(keys_));
    }
    if (!has_lists) INLAY_RETURN_IF_ERROR(WriteKvHeads());
    INLAY_RETURN_IF_ERROR(WriteEpsilon());
    if (keys_.Has("kv_lora_rank")) {
      return SetGgufLatent(keys_, positions, &tensors_);
    }
    const int64_t default_dim = defaults_.head_dim != 0
                                    ? defaults_.head_dim
                                    : hidden / tensors_.heads.query;
    INLAY_ASSIGN_OR_RETURN(
        head_dim_,
        keys_.CopySize("head_dim", "attention.key_length", default_dim));
    INLAY_ASSIGN_OR_RETURN(
        const int64_t value_dim,
        arch_.name == "mimo2" ? keys_.Size("v_head_dim", 128) : head_dim_);
    INLAY_RETURN_IF_ERROR(keys_.SetU32("attention.value_length", value_dim));
    GgufRopeShape shape{head_dim_, positions, defaults_.theta,
                        defaults_.partial};
    shape.truncates = arch_.name != "gpt-oss";
    shape.keeps_magnitude = arch_.name == "mistral3";
    shape.has_mscales = arch_.name == "phimoe";
    shape.stores_whole_heads = arch_.name == "step35";
    if (arch_.name == "minimax-m2") {
      INLAY_ASSIGN_OR_RETURN(const int64_t rotary,
                             keys_.Size("rotary_dim", head_dim_));
      shape.partial =
          static_cast<double>(rotary) / static_cast<double>(head_dim_);
    }
    if (arch_.name == "gptneox") {
      INLAY_ASSIGN_OR_RETURN(
          shape.theta, JsonNumber(config_, "rotary_emb_base", 1e4, 1.0, 1e15));
      INLAY_ASSIGN_OR_RETURN(shape.partial,
                             JsonNumber(config_, "rotary_pct", 0.25, 0.0, 1.0));
    }
    if (arch_.name == "deepseek4") {
      INLAY_RETURN_IF_ERROR(SetGgufDeepseek4(keys_, hidden));
      INLAY_ASSIGN_OR_RETURN(const Json own,
                             WithDeepseek4Rope(config_, head_dim_));
      return SetGgufRope(own, "deepseek4", shape, &keys_.writer(), &tensors_);
    }
    INLAY_ASSIGN_OR_RETURN(
        const Json config,
        arch_.name.starts_with("hunyuan") ? WithoutNtkAlpha(config_, head_dim_)
        : arch_.model_type.starts_with("internlm") ? WithoutDynamicRope(config_)
        : arch_.name == "mellum"                   ? WithMellumRopes(config_)
        : arch_.name == "laguna"                   ? WithLagunaRopes(config_)
        : arch_.name == "granite_swa"              ? WithGraniteBase(config_)
                                                   : config_);
    return SetGgufRope(config, std::string(arch_.name), shape, &keys_.writer(),
                       &tensors_);
  }

  // Of the MLPs; where all layers have experts there may be none.
  absl::Status WriteWidth() {
    constexpr char kWidth[] = "feed_forward_length";
    if (arch_.name.starts_with("nemotron_h") || arch_.name == "deci" ||
        arch_.name == "openelm") {
      return absl::OkStatus();
    }
    if (arch_.name == "lfm2") {  // config.json's is before it is adjusted
      const std::vector<int64_t>* up = shape_of_("blk.0.ffn_up.weight");
      if (up != nullptr) return keys_.SetU32(kWidth, up->front());
    }
    const char* from = "intermediate_size";
    if (arch_.name == "llama4") from = "intermediate_size_mlp";
    if (arch_.name == "minimax-m3") {
      return keys_.CopySize("dense_intermediate_size", kWidth, 12288).status();
    }
    if (arch_.name == "cohere2moe") {
      from =
          keys_.AnyOf({"prefix_dense_intermediate_size", "intermediate_size"});
    }
    const bool is_granite =
        arch_.name == "granitehybrid" || arch_.name == "granitemoe";
    if (is_granite && !HasGgufExperts(config_)) {
      from = "shared_intermediate_size";
    }
    if (IsList(JsonFind(config_, from))) {
      std::vector<uint32_t> widths;
      for (const Json& width : *JsonFind(config_, from)) {
        const Json one = {{from, width}};
        INLAY_ASSIGN_OR_RETURN(const int64_t size, NeededGgufSize(one, from));
        widths.push_back(static_cast<uint32_t>(size));
      }
      return keys_.SetU32s(kWidth, widths);
    }
    if (!keys_.Has(from) && keys_.Has("moe_intermediate_size")) {
      return absl::OkStatus();
    }
    return keys_.CopySize(from, kWidth).status();
  }

  // Where the converter does it; others have the tokens alone.
  absl::Status WriteVocabulary() {
    for (const std::string_view arch :
         {"deepseek2", "deepseek2-ocr", "deepseek32", "glm-dsa", "kimi-linear",
          "lfm2", "lfm2moe", "minicpm3", "falcon-h1", "exaone-moe", "mistral4",
          "cohere2moe", "laguna", "deci", "granite_swa", "bailingmoe", "arctic",
          "plm"}) {
      if (arch_.name == arch)
        return keys_.CopyCount("vocab_size", "vocab_size");
    }
    return absl::OkStatus();
  }

  // Of all layers; of each where some have none; latent attention caches one
  // row for all heads.
  absl::Status WriteKvHeads() {
    constexpr char kHeads[] = "attention.head_count_kv";
    if (arch_.name == "mimo2") return SetGgufMimoHeads(keys_);
    const bool is_latent = keys_.Has("kv_lora_rank") && arch_.name != "plm";
    if (is_latent) {
      tensors_.heads.key = 1;
    } else {
      INLAY_ASSIGN_OR_RETURN(
          tensors_.heads.key,
          keys_.Size("num_key_value_heads", DefaultKvHeads()));
    }
    INLAY_ASSIGN_OR_RETURN(const std::vector<bool> attends,
                           GgufAttendingLayers(keys_));
    if (attends.empty()) return keys_.SetU32(kHeads, tensors_.heads.key);
    std::vector<uint32_t> heads;
    for (const bool attending : attends) {
      heads.push_back(attending ? static_cast<uint32_t>(tensors_.heads.key)
                                : 0);
    }
    return keys_.SetU32s(kHeads, heads);
  }

  absl::Status WriteEpsilon() {
    if (arch_.name == "olmo") {  // fixed
      return keys_.writer().SetF32("olmo.attention.layer_norm_epsilon", 1e-5f);
    }
    const char* from = "rms_norm_eps";
    if (arch_.name == "starcoder2") from = "norm_epsilon";
    const bool is_mimo = arch_.name == "mimo2" && !keys_.Has(from);
    if (is_mimo) from = "layernorm_epsilon";
    if (arch_.name == "cohere2" || arch_.name == "command-r" ||
        arch_.name == "gptneox" || arch_.name == "phi2" ||
        arch_.name == "stablelm" || arch_.name == "jais2" ||
        (arch_.name == "cohere2moe" && !keys_.Has("rms_norm_eps"))) {
      from = "layer_norm_eps";
    }
    const bool is_lfm2 = arch_.name.starts_with("lfm2");
    if (is_lfm2 || arch_.name == "nemotron") from = "norm_eps";
    if (arch_.name.starts_with("nemotron_h")) from = "layer_norm_epsilon";
    // Orion's are LayerNorms, whatever the key says.
    const bool is_rms = arch_.name != "orion" &&
                        (from == std::string_view("rms_norm_eps") || is_lfm2 ||
                         is_mimo || arch_.name.starts_with("nemotron_h"));
    return keys_.CopyNumber(from,
                            is_rms ? "attention.layer_norm_rms_epsilon"
                                   : "attention.layer_norm_epsilon",
                            defaults_.epsilon);
  }

  absl::Status WriteFamily() {
    if (arch_.name.starts_with("gemma")) {
      INLAY_RETURN_IF_ERROR(
          keys_.CheckActivation("hidden_activation", {"gelu_pytorch_tanh"}));
      if (arch_.name == "gemma3n") return SetGgufGemma3n(keys_);
      return arch_.name == "gemma" ? absl::OkStatus() : WriteGemma();
    }
    if (arch_.name == "starcoder2") {
      INLAY_RETURN_IF_ERROR(keys_.CheckActivation(
          "hidden_act", {"gelu_pytorch_tanh", "gelu_new"}));
      return WriteWindow(0);
    }
    if (arch_.name == "gptneox") return WriteNeox();
    if (arch_.name == "arcee" || arch_.name == "nemotron" ||
        arch_.name == "jais2") {
      return keys_.CheckActivation("hidden_act", {"relu2"});
    }
    if (arch_.name == "apertus") {
      INLAY_RETURN_IF_ERROR(keys_.Expect("hidden_act", "xielu"));
      if (!keys_.Has("rope_parameters") && !keys_.Has("rope_scaling")) {
        return keys_.Size("rope_parameters").status();
      }
      return SetGgufXielu(config_, &keys_.writer());
    }
    if (arch_.name == "phi2") {
      INLAY_RETURN_IF_ERROR(keys_.Expect("qk_layernorm", false));
      return keys_.CheckActivation("hidden_act",
                                   {"gelu_new", "gelu_pytorch_tanh"});
    }
    if (arch_.name.starts_with("nemotron_h")) {
      INLAY_RETURN_IF_ERROR(keys_.CheckActivation("mlp_hidden_act", {"relu2"}));
      return SetGgufRecurrent(keys_, head_dim_);
    }
    if (arch_.name == "minimax-m3") return SetGgufMiniMaxM3(keys_);
    if (arch_.name == "plm") return CheckGgufPlm(keys_);
    if (arch_.name == "smallthinker") return SetGgufSmallThinker(keys_);
    INLAY_RETURN_IF_ERROR(
        keys_.CheckActivation("hidden_act", {"silu", "swish"}));
    INLAY_RETURN_IF_ERROR(SetGgufRecurrent(keys_, head_dim_));
    if (arch_.name == "deepseek32" || arch_.name == "glm-dsa") {
      return SetGgufIndexer(keys_);
    }
    if (arch_.name == "gpt-oss") return WriteGptOss();
    if (arch_.name == "llama4") return SetGgufLlama4(keys_);
    if (arch_.name.starts_with("granite")) return SetGgufGranite(keys_);
    if (arch_.name == "minimax-01") return SetGgufMiniMax01(keys_);
    if (arch_.name == "minicpm") return SetGgufMiniCpm(keys_);
    if (arch_.name == "baichuan") return SetGgufBaichuan(keys_);
    if (arch_.name == "qwen") return CheckGgufQwen(keys_);
    if (arch_.name == "grovemoe") return SetGgufGrove(keys_);
    if (arch_.name == "arctic") return CheckGgufArctic(keys_);
    if (arch_.name == "smollm3") return CheckGgufSmolLm3(keys_);
    if (arch_.name == "minicpm3") return CheckGgufMiniCpm3(keys_);
    if (arch_.name == "mistral3") return WriteMinistral();
    if (arch_.name == "dots1") return keys_.Expect("sliding_window", Json());
    if (arch_.name == "muse-glimmer") {
      return SetGgufMuse(keys_, head_dim_, &tensors_);
    }
    if (arch_.name == "deepseek2-ocr") {
      return CheckGgufDeepseekOcr(keys_, tensors_.heads);
    }
    if (arch_.name == "command-r") {
      return keys_.CopyNumber("logit_scale", "logit_scale", 0.0625);
    }
    if (arch_.name == "afmoe") return WriteAfmoe();
    if (arch_.name == "cohere2moe") return SetGgufCohereMoe(keys_);
    if (arch_.name == "mimo2") return SetGgufMimo(keys_);
    if (arch_.name == "mellum") return SetGgufMellum(keys_);
    if (arch_.name == "laguna") return SetGgufLaguna(keys_, head_dim_);
    if (arch_.name == "step35") return SetGgufStep(keys_);
    if (arch_.name == "hy_v3") return keys_.Expect("attention_bias", false);
    if (arch_.name == "bailingmoe") return CheckGgufBailing(keys_);
    if (arch_.name == "bailingmoe2") return CheckGgufSarvam(keys_);
    if (arch_.name == "phimoe") {
      INLAY_RETURN_IF_ERROR(keys_.Expect("router_jitter_noise", 0.01));
      return WriteWindow(0);
    }
    if (arch_.name == "stablelm") {
      INLAY_ASSIGN_OR_RETURN(const bool parallel,
                             JsonBool(config_, "use_parallel_residual", false));
      return keys_.SetBool("use_parallel_residual", parallel);
    }
    if (arch_.name == "olmo") {
      if (keys_.Has("clip_qkv")) {
        INLAY_RETURN_IF_ERROR(
            keys_.CopyNumber("clip_qkv", "attention.clamp_kqv", 0.0));
      }
      return keys_.Expect("attention_bias", false);
    }
    if (arch_.name == "olmoe") {
      INLAY_RETURN_IF_ERROR(keys_.Expect("clip_qkv", Json()));
      return keys_.Expect("attention_bias", false);
    }
    if (arch_.name == "ernie4_5-moe") return keys_.Expect("use_bias", false);
    if (arch_.name == "cohere2" || arch_.name.starts_with("exaone")) {
      if (arch_.name == "cohere2") {
        INLAY_RETURN_IF_ERROR(
            keys_.CopyNumber("logit_scale", "logit_scale", 0.0625));
      }
      const bool is_full = keys_.IsNull("sliding_window");
      if (is_full && arch_.name == "exaone-moe") {
        return keys_.NotSaid("sliding_window", Json());
      }
      INLAY_RETURN_IF_ERROR(WriteWindow(4096));
      return is_full ? absl::OkStatus() : WritePattern();
    }
    if (arch_.name.starts_with("qwen")) {
      return keys_.Expect("use_sliding_window", false);
    }
    if (arch_.model_type == "olmo3") {
      INLAY_RETURN_IF_ERROR(WriteWindow(4096));
      return WritePattern();
    }
    const bool is_mistral = IsMistral() || arch_.model_type == "mixtral";
    if (arch_.model_type == "mixtral") return CheckMixtral();
    if (arch_.name != "phi3" && !is_mistral) return absl::OkStatus();
    return WriteWindow(is_mistral ? 4096 : 0);
  }

  // A file of "llama" with a window is Mistral's.
  absl::Status CheckMixtral() {
    const Json* window = JsonFind(config_, "sliding_window");
    if (window == nullptr) return absl::OkStatus();
    return absl::UnimplementedError(FormattedString(
        "config.json: sliding_window is %s, which a GGUF file of Mixtral "
        "cannot say",
        ShownJson(*window)));
  }

  absl::Status WriteNeox() {
    INLAY_RETURN_IF_ERROR(keys_.CheckActivation("hidden_act", {"gelu"}));
    INLAY_ASSIGN_OR_RETURN(const bool parallel,
                           JsonBool(config_, "use_parallel_residual", true));
    return keys_.SetBool("use_parallel_residual", parallel);
  }

  // A window on every other layer, beginning with the first.
  absl::Status WriteGptOss() {
    INLAY_RETURN_IF_ERROR(keys_.Expect("attention_bias", true));
    INLAY_RETURN_IF_ERROR(keys_.Expect("swiglu_limit", 7.0));
    const Json* types = JsonFind(config_, "layer_types");
    for (size_t i = 0; IsList(types) && i < types->size(); ++i) {
      const bool slides = (*types)[i] == "sliding_attention";
      if (slides == (i % 2 == 0)) continue;
      return absl::UnimplementedError(
          "config.json: layer_types do not take turns, which a GGUF file of "
          "\"gpt-oss\" cannot say");
    }
    return WriteWindow(128);
  }

  // Files have scaled embeddings, and every fourth layer is full.
  absl::Status WriteAfmoe() {
    INLAY_ASSIGN_OR_RETURN(const bool scales,
                           JsonBool(config_, "mup_enabled", false));
    if (!scales) return keys_.NotSaid("mup_enabled", scales);
    const Json* types = JsonFind(config_, "layer_types");
    if (types == nullptr) {
      INLAY_RETURN_IF_ERROR(keys_.Expect("global_attn_every_n_layers", 4));
    }
    for (size_t i = 0; IsList(types) && i < types->size(); ++i) {
      const bool is_full = (*types)[i] == "full_attention";
      if (is_full != ((i + 1) % 4 == 0)) {
        return keys_.NotSaid("layer_types", *types);
      }
    }
    return WriteWindow(1024);
  }

  // Queries are scaled by their position.
  absl::Status WriteMinistral() {
    const Json* rope = JsonFind(config_, "rope_parameters");
    if (rope == nullptr) rope = JsonFind(config_, "rope_scaling");
    if (rope == nullptr) return keys_.Size("rope_parameters").status();
    INLAY_ASSIGN_OR_RETURN(
        const double beta,
        JsonNumber(*rope, "llama_4_scaling_beta", 0.0, -1e6, 1e6));
    INLAY_RETURN_IF_ERROR(keys_.SetF32("attention.temperature_scale", beta));
    return WriteWindow(0);
  }

  // `fallback`: where config.json is silent; 0: none.
  absl::Status WriteWindow(int64_t fallback) {
    if (keys_.IsNull("sliding_window")) return absl::OkStatus();
    if (!keys_.Has("sliding_window") && fallback == 0) return absl::OkStatus();
    return keys_
        .CopySize("sliding_window", "attention.sliding_window", fallback)
        .status();
  }

  // A cap that config.json may switch off by null, where the format has no way
  // to say so for a family that has one by default.
  absl::Status WriteSoftcap(const char* key, double fallback) {
    if (keys_.IsNull(key) && fallback > 0.0) {
      return absl::UnimplementedError(FormattedString(
          "config.json: %s is null, which a GGUF file of \"%s\" cannot say",
          key, arch_.name));
    }
    if (!keys_.Has(key) && fallback == 0.0) return absl::OkStatus();
    return keys_.CopyNumber(key, key, fallback);
  }

  absl::Status WriteGemma() {
    const bool is_gemma2 = arch_.name == "gemma2";
    INLAY_ASSIGN_OR_RETURN(
        const double scalar,
        JsonNumber(config_, "query_pre_attn_scalar", 256.0, 1e-6, 1e9));
    INLAY_RETURN_IF_ERROR(
        keys_.SetF32("attention.scale", 1.0 / std::sqrt(scalar)));
    if (is_gemma2 && keys_.IsNull("sliding_window")) {
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
    return keys_.IsNull("sliding_window") ? absl::OkStatus() : WritePattern();
  }

  absl::Status WritePattern() {
    constexpr char kPattern[] = "attention.sliding_window_pattern";
    const Json* types = JsonFind(config_, "layer_types");
    if (types == nullptr || !types->is_array()) {
      for (const char* name :
           {"sliding_window_pattern", "_sliding_window_pattern"}) {
        if (!keys_.Has(name)) continue;
        return keys_.CopySize(name, kPattern).status();
      }
      return absl::OkStatus();
    }
    std::vector<bool> slides;
    for (const Json& type : *types) {
      slides.push_back(type == "sliding_attention");
    }
    return keys_.SetBools(kPattern, slides);
  }

  const Json& config_;
  const GgufArch& arch_;
  const GgufShapeOf& shape_of_;
  const GgufFamilyDefaults defaults_;
  GgufKeyWriter keys_;
  int64_t head_dim_ = 0;  // of attention; 0 where it is latent
  GgufConfigTensors tensors_;
};

// With the usual names of what a family has names of its own for.
absl::StatusOr<Json> WithUsualKeys(const Json& config, std::string_view arch) {
  if (arch == "exaone") return WithUsualExaoneNames(config);
  if (arch == "step35") return WithUsualStepNames(config);
  if (arch == "qwen") return WithUsualQwenNames(config);
  if (arch == "openelm") return WithUsualOpenElmNames(config);
  if (arch == "smallthinker") return WithUsualSmallThinkerNames(config);
  return config;
}

}  // namespace

absl::StatusOr<GgufConfigTensors> SetGgufConfig(const Json& config,
                                                const GgufArch& arch,
                                                const GgufShapeOf& shape_of,
                                                GgufWriter* writer) {
  INLAY_ASSIGN_OR_RETURN(const Json usual, WithUsualKeys(config, arch.name));
  return ConfigWriter(usual, arch, shape_of, writer).Write();
}

}  // namespace inlay
