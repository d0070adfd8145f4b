// Gemma 4 and the families with Mamba 2 mixers through GGUF against the
// reference's outputs. Files are written here as llama.cpp's converter writes
// them (conversion/gemma.py, granite.py, falcon_h1.py, mamba.py), with all the
// keys that it sets and the arithmetic that it does.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "tests/core/model/gguf_golden.h"
#include "tests/core/model/hybrid_gguf.h"
#include "tests/support/gguf_from_published.h"

namespace inlay {
namespace {

// --- Gemma 4.

void SetGemma4(const Json& config, Keys& keys) {
  const auto layers = config["num_hidden_layers"].get<size_t>();
  const auto shared = config["num_kv_shared_layers"].get<size_t>();
  const auto width = config["intermediate_size"].get<uint32_t>();
  std::vector<bool> slides;
  std::vector<uint32_t> widths, heads;
  for (size_t i = 0; i < layers; ++i) {
    const bool doubles =
        config["use_double_wide_mlp"].get<bool>() && i >= layers - shared;
    slides.push_back(config["layer_types"][i] == "sliding_attention");
    widths.push_back(doubles ? 2 * width : width);
    const Json& global = config["num_global_key_value_heads"];
    const Json& own = config["num_key_value_heads"];
    heads.push_back((slides[i] || global.is_null() ? own : global).get<int>());
  }
  const Json& ropes = config["rope_parameters"];
  keys.U32("attention.head_count", config["num_attention_heads"]);
  keys.U32s("attention.head_count_kv", heads);
  keys.U32s("feed_forward_length", widths);
  keys.U32("attention.shared_kv_layers", shared);
  keys.U32("embedding_length_per_layer_input",
           config["hidden_size_per_layer_input"]);
  keys.U32("attention.sliding_window", config["sliding_window"]);
  keys.Flags("attention.sliding_window_pattern", slides);
  keys.U32("attention.key_length", config["global_head_dim"]);
  keys.U32("attention.value_length", config["global_head_dim"]);
  keys.U32("attention.key_length_swa", config["head_dim"]);
  keys.U32("attention.value_length_swa", config["head_dim"]);
  keys.U32("rope.dimension_count", config["global_head_dim"]);
  keys.U32("rope.dimension_count_swa", config["head_dim"]);
  keys.F32("rope.freq_base", ropes["full_attention"]["rope_theta"]);
  keys.F32("rope.freq_base_swa", ropes["sliding_attention"]["rope_theta"]);
  keys.F32("final_logit_softcapping", config["final_logit_softcapping"]);
  if (config["num_experts"].is_null()) return;
  keys.U32("expert_count", config["num_experts"]);
  keys.U32("expert_used_count", config["top_k_experts"]);
  keys.U32("expert_feed_forward_length", config["moe_intermediate_size"]);
}

// A quarter of the pairs rotates.
std::vector<float> Gemma4Factors(const Json& config) {
  const auto pairs = config["global_head_dim"].get<size_t>() / 2;
  std::vector<float> factors(pairs, 1e30f);
  std::fill_n(factors.begin(), pairs / 4, 1.0f);
  return factors;
}

class Gemma4Gguf : public HybridGguf {};

TEST_P(Gemma4Gguf, Goldens) {
  const ModelFiles published = Open(GetParam(), "config.json");
  AddFactors(Gemma4Factors(published.config));
  CheckFile(Write("gemma4", published.config, *published.weights,
                  [&](Keys& keys) { SetGemma4(published.config, keys); }));
}

// Experts fused, and keys that nobody reads in a layer that shares others'.
TEST_P(Gemma4Gguf, GoldensOfPublishedFiles) {
  const ModelFiles published = Open(GetParam(), "config.json");
  AddFactors(Gemma4Factors(published.config));
  fuses_experts_ = true;
  if (published.config["num_kv_shared_layers"] != 0) {
    const auto last = published.config["num_hidden_layers"].get<int>() - 1;
    extra_.push_back({"blk." + std::to_string(last) + ".attn_k.weight",
                      DType::kF32,
                      {64, 64},
                      std::string(64 * 64 * sizeof(float), '\0')});
    extra_.push_back(extra_.back());
    extra_.back().name = "blk." + std::to_string(last) + ".attn_v.weight";
  }
  CheckFile(Write("gemma4", published.config, *published.weights,
                  [&](Keys& keys) { SetGemma4(published.config, keys); }));
}

// What config.json has no words for.
TEST_P(Gemma4Gguf, OthersAreErrors) {
  const ModelFiles published = Open(GetParam(), "config.json");
  const auto layers = published.config["num_hidden_layers"].get<size_t>();
  std::vector<uint32_t> widths(layers, 32), heads(layers, 1), few(1, 1);
  widths.front() = 64;
  heads.back() = 0;
  const std::pair<std::function<void(Keys&)>, absl::StatusCode> cases[] = {
      {[&](Keys& keys) { keys.U32s("feed_forward_length", widths); },
       absl::StatusCode::kUnimplemented},
      {[&](Keys& keys) { keys.U32s("attention.head_count_kv", heads); },
       absl::StatusCode::kInvalidArgument},
      {[&](Keys& keys) { keys.U32s("attention.head_count_kv", few); },
       absl::StatusCode::kInvalidArgument},
      {[&](Keys& keys) { keys.U32("attention.shared_kv_layers", layers); },
       absl::StatusCode::kInvalidArgument},
      {[](Keys& keys) { keys.U32("attention.sliding_window_pattern", 2); },
       absl::StatusCode::kInvalidArgument},
      {[](Keys& keys) { keys.U32("attention.sliding_window", 0); },
       absl::StatusCode::kInvalidArgument},
      {[](Keys& keys) { keys.U32("rope.dimension_count_swa", 16); },
       absl::StatusCode::kUnimplemented}};
  AddFactors(Gemma4Factors(published.config));
  for (size_t i = 0; i < std::size(cases); ++i) {
    SCOPED_TRACE(i);
    ASSERT_TRUE(
        Write("gemma4", published.config, *published.weights, [&](Keys& keys) {
          cases[i].first(keys);
          SetGemma4(published.config, keys);
        }).ok());
    EXPECT_EQ(OpenModelFiles(path_, {}).status().code(), cases[i].second);
  }
  // Factors of other ropes.
  extra_.clear();
  std::vector<float> factors = Gemma4Factors(published.config);
  factors.back() = 2.0f;
  AddFactors(factors);
  ASSERT_TRUE(
      Write("gemma4", published.config, *published.weights, [&](Keys& keys) {
        SetGemma4(published.config, keys);
      }).ok());
  EXPECT_EQ(OpenModelFiles(path_, {}).status().code(),
            absl::StatusCode::kUnimplemented);
}

INSTANTIATE_TEST_SUITE_P(Models, Gemma4Gguf,
                         ::testing::Values("gemma4_text", "gemma4_moe_text"),
                         [](const auto& info) {
                           return std::string(info.param);
                         });

// --- Mamba 2 mixers.

void SetMixer(const Json& heads, const Json& head_dim, const Json& groups,
              const Json& state, const Json& taps, Keys& keys) {
  keys.U32("ssm.time_step_rank", heads);
  keys.U32("ssm.inner_size", heads.get<int>() * head_dim.get<int>());
  keys.U32("ssm.group_count", groups);
  keys.U32("ssm.state_size", state);
  keys.U32("ssm.conv_kernel", taps);
}

void SetMixer(const Json& config, Keys& keys) {
  SetMixer(config["mamba_n_heads"], config["mamba_d_head"],
           config["mamba_n_groups"], config["mamba_d_state"],
           config["mamba_d_conv"], keys);
}

class MixerGguf : public HybridGguf {
 protected:
  absl::Status WriteFamily(const std::function<void(Keys&)>& change = {}) {
    const ModelFiles published = Open(GetParam(), "config.json");
    const std::string name = GetParam();
    const auto with = [&](const std::function<void(Keys&)>& set) {
      return [&, set](Keys& keys) {
        if (change) change(keys);
        set(keys);
      };
    };
    const Json& config = published.config;
    if (name == "mamba2") {
      return Write("mamba2", config, *published.weights, with([&](Keys& keys) {
                     keys.U32("feed_forward_length", 0);
                     keys.U32("attention.head_count", 0);
                     SetMixer(config["num_heads"], config["head_dim"],
                              config["n_groups"], config["state_size"],
                              config["conv_kernel"], keys);
                   }));
    }
    return name == "falcon_h1" ? WriteFalcon(published, with)
                               : WriteGranite(published, with);
  }

 private:
  using With = std::function<std::function<void(Keys&)>(
      const std::function<void(Keys&)>&)>;

  // The multipliers are in the weights.
  absl::Status WriteFalcon(const ModelFiles& published, const With& with) {
    const Json& config = published.config;
    const auto factor = [&](const char* key) {
      return config[key].get<float>();
    };
    const auto multiply = [&](std::string* name, std::vector<int64_t>* shape,
                              std::vector<float>* values) {
      const auto is = [&](const char* part) {
        return absl::StrContains(*name, part);
      };
      const float in = factor("attention_in_multiplier");
      const float by =
          is("down_proj")      ? config["mlp_multipliers"][1].get<float>()
          : is("gate_proj")    ? config["mlp_multipliers"][0].get<float>()
          : is("k_proj")       ? factor("key_multiplier") * in
          : is("q_proj")       ? in
          : is("v_proj")       ? in
          : is(".o_proj")      ? factor("attention_out_multiplier")
          : is("out_proj")     ? factor("ssm_out_multiplier")
          : is("in_proj")      ? factor("ssm_in_multiplier")
          : is("lm_head")      ? factor("lm_head_multiplier")
          : is("embed_tokens") ? factor("embedding_multiplier")
                               : 1.0f;
      for (float& value : *values) value *= by;
      if (!is("in_proj")) return;
      const auto inner = config["mamba_d_ssm"].get<int64_t>();
      const int64_t state = config["mamba_n_groups"].get<int64_t>() *
                            config["mamba_d_state"].get<int64_t>();
      const int64_t ends[] = {inner, 2 * inner, 2 * inner + state,
                              2 * inner + 2 * state, (*shape)[0]};
      int64_t row = 0;
      for (size_t part = 0; part < std::size(ends); ++part) {
        for (; row < ends[part]; ++row) {
          for (int64_t i = 0; i < (*shape)[1]; ++i) {
            (*values)[static_cast<size_t>(row * (*shape)[1] + i)] *=
                config["ssm_multipliers"][part].get<float>();
          }
        }
      }
    };
    return Write(
        "falcon-h1", config, *Changed(*published.weights, multiply),
        with([&](Keys& keys) {
          SetMixer(config, keys);
          const auto head_dim = config["hidden_size"].get<int>() /
                                config["num_attention_heads"].get<int>();
          keys.U32("feed_forward_length", config["intermediate_size"]);
          keys.U32("attention.head_count", config["num_attention_heads"]);
          keys.U32("attention.head_count_kv", config["num_key_value_heads"]);
          keys.U32("attention.key_length", head_dim);
          keys.U32("attention.value_length", head_dim);
          keys.F32("rope.freq_base", config["rope_theta"]);
        }));
  }

  // Gate and up come apart.
  absl::Status WriteGranite(const ModelFiles& published, const With& with) {
    const Json& config = published.config;
    auto weights = Changed(*published.weights, [](auto...) {});
    auto apart = std::make_shared<MemoryWeights>(true);
    for (const WeightInfo& info : weights->weights()) {
      const std::string joined = "shared_mlp.input_linear.weight";
      const size_t at = info.name.find(joined);
      const std::byte* data = weights->Mapped(info);
      if (at == info.name.npos) {
        apart->Add(info.name, info.dtype, info.shape, data);
        continue;
      }
      const std::vector<int64_t> half = {info.shape[0] / 2, info.shape[1]};
      apart->Add(info.name.substr(0, at) + "shared_mlp.gate_proj.weight",
                 info.dtype, half, data);
      apart->Add(info.name.substr(0, at) + "shared_mlp.up_proj.weight",
                 info.dtype, half, data + info.bytes / 2);
    }
    return Write(
        "granitehybrid", config, *apart, with([&](Keys& keys) {
          SetMixer(config, keys);
          std::vector<uint32_t> heads;
          for (const Json& type : config["layer_types"]) {
            heads.push_back(type == "attention"
                                ? config["num_key_value_heads"].get<uint32_t>()
                                : 0);
          }
          keys.U32("feed_forward_length", config["intermediate_size"]);
          keys.U32("attention.head_count", config["num_attention_heads"]);
          keys.U32s("attention.head_count_kv", heads);
          keys.U32("expert_count", config["num_local_experts"]);
          keys.U32("expert_used_count", config["num_experts_per_tok"]);
          keys.U32("expert_shared_feed_forward_length",
                   config["shared_intermediate_size"]);
          keys.F32("attention.scale", config["attention_multiplier"]);
          keys.F32("embedding_scale", config["embedding_multiplier"]);
          keys.F32("residual_scale", config["residual_multiplier"]);
          keys.F32("logit_scale", config["logits_scaling"]);
          keys.F32("rope.freq_base", config["rope_theta"]);
          keys.U32("rope.dimension_count", 32);
          keys.Flag("rope.scaling.finetuned", false);
        }));
  }
};

TEST_P(MixerGguf, Goldens) { CheckFile(WriteFamily()); }

TEST_P(MixerGguf, WrongSizesAreErrors) {
  const std::pair<const char*, uint32_t> wrong[] = {
      {"ssm.time_step_rank", 0}, {"ssm.time_step_rank", 3},
      {"ssm.inner_size", 0},     {"ssm.group_count", 0},
      {"ssm.conv_kernel", 0},    {"ssm.state_size", 1u << 31}};
  for (const auto& [key, value] : wrong) {
    SCOPED_TRACE(key);
    const auto write = [&key = key, &value = value](Keys& keys) {
      keys.U32(key, value);
    };
    ASSERT_TRUE(WriteFamily(write).ok());
    EXPECT_EQ(OpenModelFiles(path_, {}).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

// Experts alone, as in Granite 3's mixtures.
class GraniteGguf : public MixerGguf {};

TEST_P(GraniteGguf, LoadsWithoutSharedExpert) {
  const absl::Status written = WriteFamily(
      [](Keys& keys) { keys.U32("expert_shared_feed_forward_length", 0); });
  ASSERT_TRUE(written.ok()) << written;
  const auto files = OpenModelFiles(path_, {});
  ASSERT_TRUE(files.ok()) << files.status();
  const auto model = LoadModel(*files, *device_, {});
  EXPECT_TRUE(model.ok()) << model.status();
}

INSTANTIATE_TEST_SUITE_P(Models, GraniteGguf,
                         ::testing::Values("granitemoehybrid"),
                         [](const auto& info) {
                           return std::string(info.param);
                         });

// Granite without experts may call itself granitemoe.
class DenseGraniteGguf : public HybridGguf {};

TEST_P(DenseGraniteGguf, Goldens) {
  const ModelFiles published = Open(GetParam(), "config.json");
  const Json& config = published.config;
  const auto set = [&](Keys& keys) {
    keys.U32("feed_forward_length", config["intermediate_size"]);
    keys.U32("attention.head_count", config["num_attention_heads"]);
    keys.U32("attention.head_count_kv", config["num_key_value_heads"]);
    keys.F32("attention.scale", config["attention_multiplier"]);
    keys.F32("embedding_scale", config["embedding_multiplier"]);
    keys.F32("residual_scale", config["residual_multiplier"]);
    keys.F32("logit_scale", config["logits_scaling"]);
    keys.F32("rope.freq_base", config["rope_theta"]);
  };
  CheckFile(Write("granitemoe", config, *published.weights, set, "granite"));
}

// No attention.scale, or 0: as usual, not 1 as where config.json lacks it.
TEST_P(DenseGraniteGguf, AttentionScaleMayBeMissing) {
  ModelFiles published = Open(GetParam(), "config.json");
  Json& config = published.config;
  const double head_dim = config["hidden_size"].get<double>() /
                          config["num_attention_heads"].get<double>();
  for (const char* name : {"granite", "granitemoe"}) {
    for (const bool is_zero : {false, true}) {
      const auto set = [&](Keys& keys) {
        keys.U32("feed_forward_length", config["intermediate_size"]);
        keys.U32("attention.head_count", config["num_attention_heads"]);
        keys.U32("attention.head_count_kv", config["num_key_value_heads"]);
        if (is_zero) keys.F32("attention.scale", 0.0f);
        keys.F32("logit_scale", config["logits_scaling"]);
      };
      const absl::Status written =
          Write(name, config, *published.weights, set, "granite");
      ASSERT_TRUE(written.ok()) << written;
      const auto files = OpenModelFiles(path_, {});
      ASSERT_TRUE(files.ok()) << files.status();
      EXPECT_DOUBLE_EQ(files->config["attention_multiplier"].get<double>(),
                       1.0 / std::sqrt(head_dim))
          << name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, DenseGraniteGguf, ::testing::Values("granite"),
                         [](const auto& info) {
                           return std::string(info.param);
                         });

// "ffn_norm", as the first files of Falcon H1 have it.
class FalconGguf : public MixerGguf {};

TEST_P(FalconGguf, GoldensByOldNames) {
  old_names_ = true;
  CheckFile(WriteFamily());
}

INSTANTIATE_TEST_SUITE_P(Models, FalconGguf, ::testing::Values("falcon_h1"),
                         [](const auto& info) {
                           return std::string(info.param);
                         });

INSTANTIATE_TEST_SUITE_P(Models, MixerGguf,
                         ::testing::Values("mamba2", "falcon_h1",
                                           "granitemoehybrid"),
                         [](const auto& info) {
                           return std::string(info.param);
                         });

}  // namespace
}  // namespace inlay
