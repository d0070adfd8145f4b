// Files that methods with calibration write of mixtures of experts, and of
// models that files hold in other tensors than they have.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "core/quantize/quantize.h"
#include "tests/core/quantize/expert_files.h"
#include "tests/support/sanitized.h"

namespace inlay {
namespace {

using ::inlay::testing::TriedWith;

constexpr const char* kMixtures[] = {
    "mixtral",          "qwen3_moe",        "gpt_oss",     "glm4_moe",
    "minimax_m2",       "granitemoehybrid", "deepseek_v2", "deepseek_v2_lite",
    "deepseek_v3",      "deepseek_v32",     "glm_moe_dsa", "qwen3_next",
    "qwen3_5_moe_text", "gemma4_moe_text",  "nemotron_h",  "kimi_linear",
    "lfm2_moe",         "ernie4_5_moe",     "granitemoe"};

class Mixtures : public ExpertsTest,
                 public ::testing::WithParamInterface<const char*> {};

// 8 bits change a little, whatever rounds them; scales that were not divided
// out where they are multiplied change all.
TEST_P(Mixtures, StayThemselves) {
  const ModelFiles files = Open(Golden(GetParam()));
  const TokenSequences tokens = Others(2);
  const Rows wanted = Run(files, tokens, nullptr);
  const Json& config = files.config;
  int top_k = 0;
  for (const char* key : {"num_experts_per_tok", "num_experts_per_token",
                          "top_k_experts", "moe_k"}) {
    if (config.contains(key)) top_k = config[key].get<int>();
  }
  ASSERT_GT(top_k, 0);
  // Of whole models, not derived: q8_0 errs by half a per cent a product, which
  // layers and changed choices of experts multiply; a wrong matrix moves logits
  // by their deviation. Methods change nothing but rounding, for better or, by
  // chance, for half as much worse.
  double nearest = 0;
  const auto* const place =
      std::find(std::begin(kMixtures), std::end(kMixtures), GetParam());
  for (const QuantizeMethod method :
       NearestAnd({QuantizeMethod::kImportance, QuantizeMethod::kGptq,
                   QuantizeMethod::kAwq, QuantizeMethod::kSmoothQuant},
                  static_cast<size_t>(place - kMixtures))) {
    SCOPED_TRACE(QuantizeMethodName(method));
    const auto report = QuantizeModel(files, Options("q8_0", method), Out());
    ASSERT_TRUE(report.ok()) << report.status();
    const double error = LogitsError(Out(), wanted, tokens);
    if (method == QuantizeMethod::kNearest) nearest = error;
    EXPECT_LT(nearest, 0.1);
    EXPECT_LT(error, 1.5 * nearest + 0.002);
    int stacks = 0;
    for (const QuantizedTensor& tensor : report->tensors) {
      if (tensor.method.expert_tokens.empty()) continue;
      ++stacks;
      EXPECT_TRUE(tensor.method.used);
      EXPECT_EQ(static_cast<int64_t>(tensor.method.expert_tokens.size()),
                tensor.shape[0]);
      int64_t sum = 0;
      for (const int64_t count : tensor.method.expert_tokens) sum += count;
      EXPECT_EQ(sum, top_k * report->calibration_tokens) << tensor.name;
    }
    EXPECT_EQ(stacks >= 2, method != QuantizeMethod::kNearest) << stacks;
    EXPECT_EQ(ToJson(*report).find("\"expert_tokens\":[") != std::string::npos,
              method != QuantizeMethod::kNearest);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Mixtures, ::testing::ValuesIn(kMixtures),
                         [](const auto& info) {
                           return std::string(info.param);
                         });

constexpr const char* kOtherForms[] = {
    "falcon_h1", "gpt_neox", "qwen3_5_text", "gemma4_text",
    "lfm2",      "mamba2",   "olmo3"};

// Files that hold other tensors than the model: fused, by halves, with factors,
// sorted; layers that read the keys and values of others.
class OtherForms : public ExpertsTest,
                   public ::testing::WithParamInterface<const char*> {};

TEST_P(OtherForms, StayThemselves) {
  const bool sorts = GetParam() == std::string("qwen3_5_text");
  ModelFiles files = Open((sorts ? "random:" : "") + Golden(GetParam()));
  // The golden has one key head, whose value heads lie as they are.
  if (sorts) {
    files.config["linear_num_key_heads"] = 2;
    files.config["linear_num_value_heads"] = 4;
  }
  const TokenSequences tokens = Others(2);
  const Rows wanted = Run(files, tokens, nullptr);
  double nearest = 0;  // bounds: as above
  const auto* const place =
      std::find(std::begin(kOtherForms), std::end(kOtherForms), GetParam());
  for (const QuantizeMethod method :
       NearestAnd({QuantizeMethod::kImportance, QuantizeMethod::kGptq,
                   QuantizeMethod::kAwq, QuantizeMethod::kSmoothQuant},
                  static_cast<size_t>(place - kOtherForms))) {
    SCOPED_TRACE(QuantizeMethodName(method));
    const auto report = QuantizeModel(files, Options("q8_0", method), Out());
    ASSERT_TRUE(report.ok()) << report.status();
    const double error = LogitsError(Out(), wanted, tokens);
    if (method == QuantizeMethod::kNearest) nearest = error;
    EXPECT_LT(nearest, 0.1);
    EXPECT_LT(error, 1.5 * nearest + 0.002);
    int used = 0;
    for (const QuantizedTensor& tensor : report->tensors) {
      used += tensor.method.used ? 1 : 0;
      if (sorts && tensor.gguf.ends_with(".ssm_out.weight")) {
        EXPECT_FALSE(tensor.method.used) << tensor.gguf;
      }
    }
    EXPECT_EQ(used >= 4, method != QuantizeMethod::kNearest) << used;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, OtherForms, ::testing::ValuesIn(kOtherForms),
                         [](const auto& info) {
                           return std::string(info.param);
                         });

// What has no room is collected again, and is the same.
TEST_F(ExpertsTest, RoomForHessiansChangesNothing) {
  // All; one expert; three gates or twelve downs.
  constexpr uint64_t kRooms[] = {kDefaultExpertBytes, 1,
                                 3 * 64 * 64 * sizeof(float)};
  size_t turn = 0;
  for (const auto& [method, act_order] :
       {std::pair{QuantizeMethod::kGptq, false},
        std::pair{QuantizeMethod::kGptq, true},
        std::pair{QuantizeMethod::kAwq, false}}) {
    std::string wanted;
    for (size_t i = 0; i < std::size(kRooms); ++i) {
      if (i > 0 && !TriedWith(turn, i - 1, std::size(kRooms) - 1)) continue;
      const uint64_t bytes = kRooms[i];
      QuantizeOptions options = Options("q4_0", method);
      options.calibration_sequences = Sequences(3, 20, 256);
      options.act_order = act_order;
      options.expert_bytes = bytes;
      uint64_t last = 0;
      options.progress = [&last](uint64_t done, uint64_t total) {
        EXPECT_LE(last, done);
        EXPECT_LE(done, total);
        last = done;
        return true;
      };
      const auto report = QuantizePath(Golden("glm4_moe"), options, Out());
      ASSERT_TRUE(report.ok()) << report.status();
      const std::string got = FileBytes(Out());
      if (wanted.empty()) wanted = got;
      EXPECT_TRUE(got == wanted) << QuantizeMethodName(method) << bytes;
    }
    ++turn;
  }
}

// Of two tokens most experts see nothing.
TEST_F(ExpertsTest, WithoutTokens) {
  const ModelFiles files = Open(Golden("qwen3_moe"));
  const TokenSequences tokens = Others(1);
  const Rows wanted = Run(files, tokens, nullptr);
  // Two tokens are few for others than experts too.
  QuantizeOptions options = Options("q4_0", QuantizeMethod::kNearest);
  options.tensor_types = {"*self_attn*=f32", "lm_head*=f32"};
  ASSERT_TRUE(QuantizeModel(files, options, Out()).ok());
  const double nearest = LogitsError(Out(), wanted, tokens);
  const std::string down = "model.layers.0.mlp.experts.";
  for (const QuantizeMethod method :
       {QuantizeMethod::kImportance, QuantizeMethod::kGptq,
        QuantizeMethod::kAwq, QuantizeMethod::kSmoothQuant}) {
    SCOPED_TRACE(QuantizeMethodName(method));
    options.method = method;
    options.calibration_sequences = {{7, 19}};
    const auto report = QuantizeModel(files, options, Out());
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_LT(LogitsError(Out(), wanted, tokens), 1.5 * nearest);
    bool has_stack = false;
    for (const QuantizedTensor& tensor : report->tensors) {
      if (tensor.gguf != "blk.0.ffn_down_exps.weight") continue;
      has_stack = true;
      const std::vector<int64_t>& counts = tensor.method.expert_tokens;
      ASSERT_EQ(counts.size(), 8u);
      const auto unseen = std::find(counts.begin(), counts.end(), 0);
      ASSERT_NE(unseen, counts.end());
      EXPECT_TRUE(std::isfinite(tensor.method.output_error));
      // Scales that divide up's rows multiply down's columns.
      if (method != QuantizeMethod::kGptq) continue;
      // All inputs alike: to nearest, with scales that fit all weights alike,
      // which cannot be worse.
      const std::string name =
          down + std::to_string(unseen - counts.begin()) + ".down_proj.weight";
      const std::vector<float> stored = Values(files, name);
      const Rows identity = [] {
        Rows rows(32, std::vector<float>(32));
        for (size_t i = 0; i < 32; ++i) rows[i][i] = 1;
        return rows;
      }();
      const double error =
          Energy(identity, Minus(Values(Open(Out()), name), stored));
      // q4_0's error of normal values is 0.086 of them (kernels/quant).
      EXPECT_LT(error, 0.1 * 0.1 * Energy(identity, stored));
    }
    EXPECT_TRUE(has_stack);
  }
}

TEST_F(ExpertsTest, CancellingWithinALayer) {
  for (const uint64_t bytes : {kDefaultExpertBytes, uint64_t{1}}) {
    QuantizeOptions options = Options("q4_0", QuantizeMethod::kGptq);
    options.expert_bytes = bytes;
    int calls = 0, stop = 1 << 30;
    options.progress = [&](uint64_t, uint64_t) { return ++calls < stop; };
    ASSERT_TRUE(QuantizePath(Golden("mixtral"), options, Out()).ok());
    std::filesystem::remove(Out());
    const int all = calls;
    // The first layer's first pass, later ones, and among the matrices.
    for (const int at : {2, all / 5, all / 3, all / 2, all - 1}) {
      calls = 0;
      stop = at;
      const auto report = QuantizePath(Golden("mixtral"), options, Out());
      EXPECT_EQ(report.status().code(), absl::StatusCode::kCancelled);
      EXPECT_EQ(calls, at);
      EXPECT_TRUE(std::filesystem::is_empty(folder_));
    }
  }
}

// The norm is divided by what routers' and gates' columns are multiplied by,
// powers of two: both in bf16 and without rounding.
TEST_F(ExpertsTest, RoutersSeeWhatTheySaw) {
  const std::string out = folder_ + "/model";
  for (const auto& [type, method] :
       {std::pair{"awq_g32", QuantizeMethod::kAwq},
        std::pair{"w8a8_int8", QuantizeMethod::kSmoothQuant}}) {
    SCOPED_TRACE(type);
    const ModelFiles files = WithOutliers("qwen2_moe");
    const auto report = QuantizeModel(files, Options(type, method), out);
    ASSERT_TRUE(report.ok()) << report.status();
    const ModelFiles rounded = Open(out);
    int changed = 0;
    for (const char* layer : {"model.layers.0.", "model.layers.2."}) {
      const std::string norm =
          std::string(layer) + "post_attention_layernorm.weight";
      ASSERT_EQ(rounded.weights->Find(norm)->dtype, DType::kBF16);
      const auto before = Values(files, norm), after = Values(rounded, norm);
      for (const char* small :
           {"mlp.gate.weight", "mlp.shared_expert_gate.weight"}) {
        const std::string name = std::string(layer) + small;
        ASSERT_EQ(rounded.weights->Find(name)->dtype, DType::kBF16);
        const auto stored = Values(files, name), got = Values(rounded, name);
        for (size_t i = 0; i < stored.size(); ++i) {
          const size_t channel = i % before.size();
          const float scale = before[channel] / after[channel];
          int exponent = 0;
          ASSERT_EQ(std::frexp(scale, &exponent), 0.5f);
          ASSERT_EQ(got[i], stored[i] * scale);
          changed += scale != 1.0f;
        }
      }
    }
    EXPECT_GT(changed, 100);
    std::filesystem::remove_all(out);
  }
}

// Folders that other engines read: what is written loads, and methods are no
// worse than rounding to nearest. One model of every type, the others of some.
TEST_F(ExpertsTest, Folders) {
  const std::string out = folder_ + "/model";
  const TokenSequences tokens = Others(4);
  const std::pair<const char*, std::vector<size_t>> cases[] = {
      {"qwen3_moe", {0, 1, 2, 3, 4}},
      {"gpt_oss", {1, 2, 3}},
      {"deepseek_v3", {0, 4}},
      {"deepseek_v4", {0, 2, 3}}};
  size_t turn = 0;
  for (const auto& [model, types] : cases) {
    SCOPED_TRACE(model);
    const Rows wanted = Run(Open(Golden(model)), tokens, nullptr);
    for (size_t i = 0; i < types.size(); ++i) {
      if (turn > 0 && !TriedWith(turn, i, types.size())) continue;
      const auto& [type, method] = kFolderTypes[types[i]];
      SCOPED_TRACE(type);
      double errors[2];
      for (const bool by_method : {false, true}) {
        const auto report = QuantizePath(
            Golden(model),
            Options(type, by_method ? method : QuantizeMethod::kNearest), out);
        ASSERT_TRUE(report.ok()) << report.status();
        errors[by_method ? 1 : 0] = LogitsError(out, wanted, tokens);
        int experts = 0;
        for (const QuantizedTensor& tensor : report->tensors) {
          experts += tensor.method.expert_tokens.empty() ? 0 : 1;
        }
        const bool calibrates =
            by_method || std::string(type).ends_with("_static");
        EXPECT_EQ(experts >= 24, calibrates) << experts;
        std::filesystem::remove_all(out);
      }
      // What SmoothQuant makes easier for inputs, which are not rounded here,
      // it makes harder for weights.
      EXPECT_LT(
          errors[1],
          (method == QuantizeMethod::kSmoothQuant ? 1.5 : 1.1) * errors[0]);
    }
    ++turn;
  }
}

// Other engines take every linear layer of a folder for a quantised one that
// its list does not name: routers and what weighs shared experts, heads by
// their names, what heads read through.
TEST_F(ExpertsTest, FoldersNameWhatStaysAsItIs) {
  const std::string out = folder_ + "/model";
  const std::pair<const char*, std::vector<std::string>> cases[] = {
      {"longcat_flash", {"lm_head", "model.layers.0.mlp.router.classifier"}},
      {"qwen2_moe",
       {"lm_head", "model.layers.0.mlp.gate",
        "model.layers.0.mlp.shared_expert_gate", "model.layers.2.mlp.gate",
        "model.layers.2.mlp.shared_expert_gate"}},
      {"gemma4_moe_text",
       {"lm_head", "model.layers.0.router.proj", "model.layers.1.router.proj"}},
      {"modernbert_decoder", {"lm_head", "lm_head.dense", "decoder"}},
      {"gpt_neox", {"lm_head", "embed_out"}}};
  for (const auto& [model, layers] : cases) {
    SCOPED_TRACE(model);
    const auto report = QuantizePath(
        Golden(model), Options("w8a8_int8", QuantizeMethod::kNearest), out);
    ASSERT_TRUE(report.ok()) << report.status();
    const ModelFiles files = Open(out);
    const Json& settings = files.config["quantization_config"];
    const auto named =
        settings["ignore"].template get<std::vector<std::string>>();
    for (const std::string& layer : layers) {
      EXPECT_EQ(std::count(named.begin(), named.end(), layer), 1) << layer;
    }
    // And nothing that is quantised.
    for (const QuantizedTensor& tensor : report->tensors) {
      if (tensor.to == tensor.from) continue;
      const std::string layer = tensor.name.substr(0, tensor.name.rfind('.'));
      EXPECT_EQ(std::count(named.begin(), named.end(), layer), 0) << layer;
    }
    std::filesystem::remove_all(out);
  }
}

}  // namespace
}  // namespace inlay
