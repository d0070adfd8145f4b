// A GGUF file written as llama.cpp's converter writes it, of a checkpoint in
// tests/data/models, for its goldens.
#ifndef INLAY_TESTS_CORE_MODEL_WRITTEN_GGUF_H_
#define INLAY_TESTS_CORE_MODEL_WRITTEN_GGUF_H_

#include <unistd.h>

#include <filesystem>
#include <limits>
#include <map>
#include <numbers>
#include <optional>
#include <string>
#include <vector>

#include "core/formats/gguf_gpt.h"
#include "tests/core/model/gguf_golden.h"
#include "tests/core/model/laguna_gguf.h"
#include "tests/core/model/muse_gguf.h"
#include "tests/support/gguf_from_published.h"

namespace inlay {

// Weights are in the formats that the checkpoints have.
class WrittenGguf : public GgufGoldenModel {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }

  absl::Status Write(const ModelFiles& published, const std::string& name,
                     bool is_old = false) {
    INLAY_ASSIGN_OR_RETURN(const GgufArch* arch, FindGgufArch(name));
    INLAY_ASSIGN_OR_RETURN(GgufWriter writer, GgufWriter::Create(path_));
    const Json config = WithConvertersNames(published.config, name);
    const auto number = [&](const char* key) {
      return config[key].get<uint32_t>();
    };
    const auto key = [&](const char* rest) { return name + "." + rest; };
    // Llama 4's files have the dense layers' width here.
    const char* width = "intermediate_size";
    for (const char* other :
         {"intermediate_size_mlp", "prefix_dense_intermediate_size"}) {
      if (config.contains(other)) width = other;
    }
    // Their files have more layers, which predict further tokens.
    const uint32_t predictors = name == "glm4moe" ? 1
                                : name == "mimo2" ? kMimoPredictors
                                                  : 0;
    std::vector<absl::Status> all = {
        writer.SetString("general.architecture", name),
        writer.SetU32(key("block_count"),
                      number("num_hidden_layers") + predictors),
        writer.SetU32(key("embedding_length"), number("hidden_size")),
        writer.SetU32(key("context_length"),
                      number(config.contains("model_max_length")
                                 ? "model_max_length"
                                 : "max_position_embeddings")),
    };
    // Laguna's has one a layer.
    if (name != "laguna") {
      all.push_back(writer.SetU32(key("attention.head_count"),
                                  number("num_attention_heads")));
    }
    // Models of nothing but experts have no such width.
    if (predictors > 0) {
      all.push_back(writer.SetU32(key("nextn_predict_layers"), predictors));
    }
    if (name == "nemotron_h_moe") {
      std::vector<int32_t> widths;
      const std::string kinds = config["hybrid_override_pattern"];
      for (const char kind : kinds) {
        widths.push_back(kind == 'E'   ? config["moe_intermediate_size"]
                         : kind == '-' ? config[width]
                                       : Json(0));
      }
      all.push_back(writer.SetI32s(key("feed_forward_length"), widths));
    } else if (name == "gemma3n") {
      SetGemma3n(config, &writer, &all);
    } else if (config.contains(width) && !config[width].is_null()) {
      // LFM2's is adjusted.
      const int64_t size =
          name == "lfm2"
              ? published.weights->Find("model.layers.0.feed_forward.w1.weight")
                    ->shape[0]
              : number(width);
      all.push_back(writer.SetU32(key("feed_forward_length"),
                                  static_cast<uint32_t>(size)));
    }
    if (config.contains("head_dim") && !config.contains("kv_lora_rank")) {
      all.push_back(
          writer.SetU32(key("attention.key_length"), number("head_dim")));
    }
    if (!sections_.empty()) {
      all.push_back(writer.SetI32s(key("rope.dimension_sections"), sections_));
    }
    SetOptional(config, name, &writer, &all);
    if (name == "mimo2") SetMimo(config, &writer, &all);
    if (name == "laguna") SetLagunaKeys(config, &writer, &all);
    if (name == "apertus") SetXielu(*published.weights, &writer, &all);
    SetExperts(config, name, &writer, &all);
    const LatentShape latent = SetLatent(config, name, is_old, &writer, &all);
    for (const absl::Status& status : all) INLAY_RETURN_IF_ERROR(status);
    INLAY_ASSIGN_OR_RETURN(
        auto tensors,
        GgufTensorsFrom(*published.weights, *arch,
                        static_cast<int>(number("num_hidden_layers")),
                        number("num_attention_heads"),
                        config.value("num_key_value_heads", int64_t{0}), latent,
                        SetLinear(config, name, is_old, &writer), is_old));
    int64_t parts = 0;
    for (const GgufTensorData& tensor : tensors) parts += tensor.parts;
    const size_t keys = name == "apertus" ? 4 * number("num_hidden_layers") : 0;
    EXPECT_EQ(parts + static_cast<int64_t>(keys),
              published.weights->weights().size());
    if (auto factors = Llama3Factors(config)) {
      tensors.push_back(*std::move(factors));
    }
    if (name == "phimoe") AddLongRope(config, &tensors);
    if (name == "muse-glimmer") AddMuseNorms(config, &tensors);
    if (name == "glm4moe") {
      const std::string last = std::to_string(number("num_hidden_layers"));
      tensors.push_back({"blk." + last + ".nextn.eh_proj.weight",
                         DType::kF32,
                         {1, 1},
                         std::string(4, 0)});
    }
    if (round_latent_) RoundLatent(store_rounded_, &tensors);
    return WriteGgufTensors(tensors, &writer);
  }

  void SetOptional(const Json& config, const std::string& arch,
                   GgufWriter* writer, std::vector<absl::Status>* all) {
    const auto set = [&](const char* from, const char* to, bool inverse) {
      if (!config.contains(from) || config[from].is_null()) return;
      const double value = config[from].get<double>();
      all->push_back(writer->SetF32(
          arch + "." + to,
          static_cast<float>(inverse ? 1.0 / std::sqrt(value) : value)));
    };
    set("query_pre_attn_scalar", "attention.scale", true);
    set("attn_logit_softcapping", "attn_logit_softcapping", false);
    set("final_logit_softcapping", "final_logit_softcapping", false);
    set("rope_local_base_freq", "rope.freq_base_swa", false);
    set("rope_theta", "rope.freq_base", false);
    set("rms_norm_eps", "attention.layer_norm_rms_epsilon", false);
    set("norm_eps",
        arch == "nemotron" ? "attention.layer_norm_epsilon"
                           : "attention.layer_norm_rms_epsilon",
        false);
    if (arch == "mpt") {
      all->push_back(writer->SetF32(arch + ".attention.max_alibi_bias", 8.0f));
    }
    set("clip_qkv", "attention.clamp_kqv", false);
    set("output_multiplier", "logit_scale", false);
    if (IsGgufGpt(arch)) {
      set("layer_norm_epsilon", "attention.layer_norm_epsilon", false);
    }
    set("logit_scale", "logit_scale", false);
    set("layer_norm_eps", "attention.layer_norm_epsilon", false);
    const auto set_int = [&](const char* from, const char* to) {
      if (!config.contains(from) || config[from].is_null()) return;
      all->push_back(
          writer->SetU32(arch + "." + to, config[from].get<uint32_t>()));
    };
    set_int("sliding_window", "attention.sliding_window");
    if (arch != "exaone-moe" && arch != "cohere2moe") {
      set_int("sliding_window_pattern", "attention.sliding_window_pattern");
    }
    const bool has_pattern = arch == "olmo2" || arch == "exaone-moe" ||
                             arch == "gemma3n" || arch == "cohere2moe" ||
                             arch == "mellum" || arch == "muse-glimmer";
    if (has_pattern && config.contains("layer_types")) {
      std::string slides;
      for (const Json& type : config["layer_types"]) {
        slides.push_back(type == "sliding_attention" ? 1 : 0);
      }
      all->push_back(
          writer->Set(arch + ".attention.sliding_window_pattern",
                      {GgufType::kBool,
                       true,
                       slides.size(),
                       {reinterpret_cast<const std::byte*>(slides.data()),
                        slides.size()}}));
    }
    // Latent attention caches one row for all heads.
    if (arch.starts_with("lfm2") || arch == "kimi-linear" ||
        arch == "nemotron_h_moe") {
      SetLayers(config, arch, writer, all);
    } else if (config.contains("kv_lora_rank")) {
      all->push_back(writer->SetU32(arch + ".attention.head_count_kv", 1));
    } else if (arch != "mimo2") {
      set_int("num_key_value_heads", "attention.head_count_kv");
    }
    const char* partial =
        config.contains("rotary_pct") ? "rotary_pct" : "partial_rotary_factor";
    const Json rope = config.value("rope_parameters", Json::object());
    if (rope.contains("rope_theta")) {
      all->push_back(writer->SetF32(arch + ".rope.freq_base",
                                    rope["rope_theta"].get<float>()));
    }
    if (rope.contains("partial_rotary_factor")) {
      all->push_back(writer->SetU32(
          arch + ".rope.dimension_count",
          static_cast<uint32_t>(config["head_dim"].get<double>() *
                                rope["partial_rotary_factor"].get<double>())));
    }
    if (config.contains(partial) && !config.contains("kv_lora_rank")) {
      const double head_dim = config.value(
          "head_dim", config["hidden_size"].get<double>() /
                          config["num_attention_heads"].get<double>());
      all->push_back(writer->SetU32(
          arch + ".rope.dimension_count",
          static_cast<uint32_t>(head_dim * config[partial].get<double>())));
    }
    SetScaling(config, arch, writer, all);
  }

  void SetExperts(const Json& config, const std::string& arch,
                  GgufWriter* writer, std::vector<absl::Status>* all) {
    for (const auto& [from, to] :
         {std::pair{"num_experts", "expert_count"},
          {"num_local_experts", "expert_count"},
          {"n_routed_experts", "expert_count"},
          {"moe_num_experts", "expert_count"},
          {"moe_k", "expert_used_count"},
          {"moe_num_shared_experts", "expert_shared_count"},
          {"moe_layer_start_index", "leading_dense_block_count"},
          {"moe_layer_interval", "interleave_moe_layer_step"},
          {"num_dense_layers", "leading_dense_block_count"},
          {"num_experts_per_tok", "expert_used_count"},
          {"num_experts_per_token", "expert_used_count"},
          {"num_shared_experts", "expert_shared_count"},
          {"moe_intermediate_size", "expert_feed_forward_length"},
          {"shared_expert_intermediate_size",
           "expert_shared_feed_forward_length"},
          {"n_shared_experts", "expert_shared_count"},
          {"first_k_dense_replace", "leading_dense_block_count"},
          {"n_group", "expert_group_count"},
          {"topk_group", "expert_group_used_count"},
          {"interleave_moe_layer_step", "interleave_moe_layer_step"}}) {
      if (!config.contains(from)) continue;
      all->push_back(
          writer->SetU32(arch + "." + to, config[from].get<uint32_t>()));
    }
    if (arch == "llama4" || arch == "minimax-m2") {
      all->push_back(
          writer->SetU32(arch + ".expert_feed_forward_length",
                         config["intermediate_size"].get<uint32_t>()));
    }
    if (arch == "afmoe") {
      all->push_back(writer->SetF32(arch + ".expert_weights_scale",
                                    config["route_scale"].get<float>()));
    }
    if (config.contains("routed_scaling_factor")) {
      all->push_back(
          writer->SetF32(arch + ".expert_weights_scale",
                         config["routed_scaling_factor"].get<float>()));
    }
    SetShared(config, arch, writer, all);
    if (config.value("norm_topk_prob", false) || arch == "hy_v3") {
      all->push_back(writer->Set(arch + ".expert_weights_norm", Bool(true)));
    }
  }

  // Of Cohere 2 and Hy3, and what Youtu's files have in experts' place.
  static void SetShared(const Json& config, const std::string& arch,
                        GgufWriter* writer, std::vector<absl::Status>* all) {
    const auto set = [&](const char* key, const Json& value) {
      all->push_back(writer->SetU32(arch + "." + key, value.get<uint32_t>()));
    };
    if (config["model_type"] == "youtu") {
      set("leading_dense_block_count", config["num_hidden_layers"]);
      set("expert_feed_forward_length", config["intermediate_size"]);
      set("expert_shared_count", 0);
    }
    if (arch == "bailingmoe2") set("expert_gating_func", 2);
    if (arch != "cohere2moe" && arch != "hy_v3") return;
    const Json& width =
        config[arch == "hy_v3" ? "moe_intermediate_size" : "intermediate_size"];
    set("expert_gating_func", 2);
    set("expert_shared_feed_forward_length",
        config["num_shared_experts"].get<uint32_t>() * width.get<uint32_t>());
    if (arch == "cohere2moe") return set("expert_feed_forward_length", width);
    all->push_back(
        writer->SetF32(arch + ".expert_weights_scale",
                       config["router_scaling_factor"].get<float>()));
  }

  // Lists go on for the layers that predict further tokens.
  static void SetMimo(const Json& config, GgufWriter* writer,
                      std::vector<absl::Status>* all) {
    std::vector<int32_t> windows = config["hybrid_layer_pattern"];
    windows.resize(windows.size() + kMimoPredictors, 1);
    std::vector<int32_t> heads;
    for (const int32_t window : windows) {
      heads.push_back(
          config[window == 1 ? "swa_num_key_value_heads" : "kv_heads"]);
    }
    all->push_back(writer->SetI32s("mimo2.attention.head_count_kv", heads));
    all->push_back(
        writer->SetI32s("mimo2.attention.sliding_window_pattern", windows));
    all->push_back(writer->SetU32("mimo2.attention.value_length",
                                  config["v_head_dim"].get<uint32_t>()));
    all->push_back(
        writer->SetF32("mimo2.attention.value_scale",
                       config["attention_value_scale"].get<float>()));
    all->push_back(writer->SetF32("mimo2.rope.freq_base_swa",
                                  config["swa_rope_theta"].get<float>()));
  }

  // config.json with names that all families' keys are written by.
  static Json WithConvertersNames(const Json& published,
                                  const std::string& arch) {
    Json config = WithUsualNames(published, arch);
    // Of dynamic scaling files say nothing.
    if (config["model_type"] == "internlm3") config.erase("rope_scaling");
    if (arch == "mimo2") {
      config["rms_norm_eps"] = config["layernorm_epsilon"];
      config["kv_heads"] = config["num_key_value_heads"];
    }
    if (arch == "mellum" || arch == "laguna") SpreadRopes(&config);
    return config;
  }

  static void SetGemma3n(const Json& config, GgufWriter* writer,
                         std::vector<absl::Status>* all) {
    const auto set = [&](const char* key, const char* from) {
      all->push_back(writer->SetU32(std::string("gemma3n.") + key,
                                    config[from].get<uint32_t>()));
    };
    set("altup.active_idx", "altup_active_idx");
    set("altup.num_inputs", "altup_num_inputs");
    set("embedding_length_per_layer_input", "hidden_size_per_layer_input");
    set("attention.shared_kv_layers", "num_kv_shared_layers");
    const auto widths = config["intermediate_size"];
    all->push_back(writer->SetU32("gemma3n.feed_forward_length", widths[0]));
    // scipy.stats.norm.ppf of 0.8, 0 and 0.5.
    EXPECT_EQ(config["activation_sparsity_pattern"], Json({0.8, 0.0, 0.5}));
    all->push_back(writer->SetF32s(
        "gemma3n.activation_sparsity_scale",
        std::vector<float>{0.8416212335729143f,
                           -std::numeric_limits<float>::infinity(), 0.0f}));
  }

  // Tensors of each layer that files have as keys.
  static void SetXielu(const WeightSource& weights, GgufWriter* writer,
                       std::vector<absl::Status>* all) {
    for (const char* part : {"alpha_p", "alpha_n", "beta", "eps"}) {
      std::vector<float> values;
      for (int i = 0;; ++i) {
        const WeightInfo* info = weights.Find(
            "model.layers." + std::to_string(i) + ".mlp.act_fn." + part);
        if (info == nullptr) break;
        values.push_back(FloatFrom(*BytesOf(weights, *info), info->dtype, 0));
      }
      all->push_back(writer->SetF32s(std::string("xielu.") + part, values));
    }
  }

  // `is_old`: before the two matrices of the latent came apart.
  static LatentShape SetLatent(const Json& config, const std::string& arch,
                               bool is_old, GgufWriter* writer,
                               std::vector<absl::Status>* all) {
    if (!config.contains("kv_lora_rank")) return {};
    const auto size = [&](const char* key) {
      return config[key].get<uint32_t>();
    };
    const auto set = [&](const char* key, uint32_t value) {
      all->push_back(writer->SetU32(arch + "." + key, value));
    };
    const uint32_t rank = size("kv_lora_rank");
    const uint32_t rope = size("qk_rope_head_dim");
    const uint32_t key = size("qk_nope_head_dim");
    const uint32_t value = size("v_head_dim");
    set("attention.kv_lora_rank", rank);
    if (!config["q_lora_rank"].is_null()) {
      set("attention.q_lora_rank", size("q_lora_rank"));
    }
    set("rope.dimension_count", rope);
    set("attention.key_length", is_old ? key + rope : rank + rope);
    set("attention.value_length", is_old ? value : rank);
    // Where it is missing the correction tells.
    if ((config.value("scoring_func", "") == "sigmoid" && !is_old) ||
        config.contains("moe_router_activation_func")) {
      set("expert_gating_func", 2);
    }
    if (config.contains("index_topk")) {
      set("attention.indexer.head_count", size("index_n_heads"));
      set("attention.indexer.key_length", size("index_head_dim"));
      set("attention.indexer.top_k", size("index_topk"));
    }
    if (config.contains("indexer_types")) {
      std::vector<std::byte> full;
      for (const Json& type : config["indexer_types"]) {
        full.push_back(std::byte{type == "full"});
      }
      all->push_back(writer->Set(arch + ".attention.indexer.types",
                                 {GgufType::kBool, true, full.size(), full}));
    }
    const Json scaling = config.value("rope_scaling", Json());
    if (scaling.is_object() && scaling.contains("mscale_all_dim")) {
      all->push_back(
          writer->SetF32(arch + ".rope.scaling.yarn_log_multiplier",
                         0.1f * scaling["mscale_all_dim"].get<float>()));
    }
    if (is_old) return {};
    set("attention.key_length_mla", key + rope);
    set("attention.value_length_mla", value);
    return {key, value};
  }

  // KV heads of layers with attention, 0 of others.
  static void SetLayers(const Json& config, const std::string& arch,
                        GgufWriter* writer, std::vector<absl::Status>* all) {
    const auto set = [&](const char* key, const Json& value) {
      all->push_back(writer->SetU32(arch + "." + key, value.get<uint32_t>()));
    };
    std::vector<uint32_t> heads(config["num_hidden_layers"].get<size_t>(), 0);
    if (arch.starts_with("lfm2")) {
      set("shortconv.l_cache", config["conv_L_cache"]);
      for (size_t i = 0; i < heads.size(); ++i) {
        if (config["layer_types"][i] == "conv") continue;
        heads[i] = config["num_key_value_heads"].get<uint32_t>();
      }
    } else if (arch == "nemotron_h_moe") {
      const std::string kinds = config["hybrid_override_pattern"];
      for (size_t i = 0; i < heads.size(); ++i) {
        if (kinds[i] != '*') continue;
        heads[i] = config["num_key_value_heads"].get<uint32_t>();
      }
      if (config.contains("moe_latent_size")) {
        set("moe_latent_size", config["moe_latent_size"]);
      }
      set("ssm.conv_kernel", config["conv_kernel"]);
      set("ssm.state_size", config["ssm_state_size"]);
      set("ssm.group_count", config["n_groups"]);
      set("ssm.time_step_rank", config["mamba_num_heads"]);
      set("ssm.inner_size", config["mamba_num_heads"].get<uint32_t>() *
                                config["mamba_head_dim"].get<uint32_t>());
      set("expert_shared_feed_forward_length",
          config["moe_shared_expert_intermediate_size"]);
      all->push_back(writer->SetF32(arch + ".attention.layer_norm_rms_epsilon",
                                    config["layer_norm_epsilon"].get<float>()));
    } else {
      const Json& linear = config["linear_attn_config"];
      set("ssm.conv_kernel", linear["short_conv_kernel_size"]);
      set("kda.head_dim", linear["head_dim"]);
      for (const Json& layer : linear["full_attn_layers"]) {
        heads[layer.get<size_t>() - 1] = 1;
      }
    }
    all->push_back(
        writer->Set(arch + ".attention.head_count_kv",
                    {GgufType::kU32,
                     true,
                     heads.size(),
                     {reinterpret_cast<const std::byte*>(heads.data()),
                      heads.size() * sizeof(uint32_t)}}));
  }

  static LinearShape SetLinear(const Json& config, const std::string& arch,
                               bool is_old, GgufWriter* writer) {
    if (!config.contains("linear_num_key_heads")) return {};
    const auto size = [&](const char* key) {
      return config[key].get<uint32_t>();
    };
    const LinearShape shape = {
        size("linear_num_key_heads"), size("linear_num_value_heads"),
        size("linear_key_head_dim"), size("linear_value_head_dim"), is_old};
    const std::pair<const char*, int64_t> sizes[] = {
        {"conv_kernel", size("linear_conv_kernel_dim")},
        {"state_size", shape.key_dim},
        {"group_count", shape.keys},
        {"time_step_rank", shape.values},
        {"inner_size", shape.values * shape.value_dim}};
    for (const auto& [key, value] : sizes) {
      EXPECT_TRUE(
          writer->SetU32(arch + ".ssm." + key, static_cast<uint32_t>(value))
              .ok());
    }
    EXPECT_TRUE(writer
                    ->SetU32(arch + ".full_attention_interval",
                             size("full_attention_interval"))
                    .ok());
    return shape;
  }

  static GgufValue Bool(const bool& value) {
    static constexpr std::byte kBytes[] = {std::byte{0}, std::byte{1}};
    return {GgufType::kBool, false, 1, {&kBytes[value ? 1 : 0], 1}};
  }

  // What divides frequencies, as the converter's generate_extra_tensors().
  static std::optional<GgufTensorData> Llama3Factors(const Json& config) {
    const Json scaling = config.value("rope_scaling", Json());
    if (!scaling.is_object() || scaling.value("rope_type", "") != "llama3") {
      return std::nullopt;
    }
    const double dim = config.value(
        "head_dim", config["hidden_size"].get<double>() /
                        config["num_attention_heads"].get<double>());
    const double base = config["rope_theta"].get<double>();
    const double factor = scaling["factor"].get<double>();
    const double low = scaling["low_freq_factor"].get<double>();
    const double high = scaling["high_freq_factor"].get<double>();
    const double old =
        scaling["original_max_position_embeddings"].get<double>();
    GgufTensorData tensor{"rope_freqs.weight"};
    for (double i = 0; i < dim; i += 2) {
      const double wave = 2.0 * std::numbers::pi * std::pow(base, i / dim);
      const double smooth = (old / wave - low) / (high - low);
      const auto value = static_cast<float>(
          wave < old / high  ? 1.0
          : wave > old / low ? factor
                             : 1.0 / ((1.0 - smooth) / factor + smooth));
      tensor.bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
    }
    tensor.shape = {static_cast<int64_t>(dim / 2)};
    return tensor;
  }

  // The factors of short and of long sequences.
  static void AddLongRope(const Json& config,
                          std::vector<GgufTensorData>* tensors) {
    for (const char* length : {"short", "long"}) {
      GgufTensorData& tensor = tensors->emplace_back();
      tensor.name = std::string("rope_factors_") + length + ".weight";
      for (const Json& factor :
           config["rope_scaling"][std::string(length) + "_factor"]) {
        const auto value = factor.get<float>();
        tensor.bytes.append(reinterpret_cast<const char*>(&value),
                            sizeof(value));
        tensor.shape = {static_cast<int64_t>(tensor.bytes.size() / 4)};
      }
    }
  }

  void SetScaling(const Json& config, const std::string& arch,
                  GgufWriter* writer, std::vector<absl::Status>* all) {
    if (!config.contains("rope_scaling")) return;
    const Json& scaling = config["rope_scaling"];
    if (!scaling.is_object()) return;
    const std::string type = scaling.contains("rope_type")
                                 ? scaling["rope_type"].get<std::string>()
                                 : scaling["type"].get<std::string>();
    // Of llama3 the file has factors alone.
    if (type == "llama3") return;
    if (arch == "phimoe") {  // factors in tensors
      all->push_back(writer->SetF32(arch + ".rope.scaling.attn_factor",
                                    scaling["short_mscale"].get<float>()));
    }
    if (scaling.contains("attention_factor")) {
      all->push_back(writer->SetF32(arch + ".rope.scaling.yarn_attn_factor",
                                    scaling["attention_factor"].get<float>()));
    }
    for (const auto& [from, to] :
         {std::pair{"llama_4_scaling_beta", ".attention.temperature_scale"},
          {"mscale_all_dim", ".rope.scaling.yarn_log_multiplier"}}) {
      const bool is_temperature = from == std::string("llama_4_scaling_beta");
      if (arch != "mistral3" && !(is_temperature && arch == "mistral4")) break;
      all->push_back(writer->SetF32(arch + to, scaling[from].get<float>()));
    }
    all->push_back(writer->SetString(arch + ".rope.scaling.type", type));
    if (scaling.contains("factor"))
      all->push_back(writer->SetF32(arch + ".rope.scaling.factor",
                                    scaling["factor"].get<float>()));
    if (scaling.contains("original_max_position_embeddings")) {
      all->push_back(writer->SetU32(
          arch + ".rope.scaling.original_context_length",
          scaling["original_max_position_embeddings"].get<uint32_t>()));
    }
  }

  static constexpr uint32_t kMimoPredictors = 3;

  bool round_latent_ = false;
  bool store_rounded_ = false;
  std::vector<int32_t> sections_;  // of rope; none: no such key
  std::string path_ =
      ::testing::TempDir() + "written_" + std::to_string(getpid()) + ".gguf";
};

}  // namespace inlay

#endif  // INLAY_TESTS_CORE_MODEL_WRITTEN_GGUF_H_
