// Files of tests/data/gguf that llama.cpp's converter made of checkpoints in
// tests/data/models, beside those that QuantizeModel writes of the same: keys,
// tensors and logits; and what is read of the converter's with one key changed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <ostream>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/formats/gguf_files.h"
#include "core/formats/stored_tensor.h"
#include "core/model/load_model.h"
#include "core/quantize/quantize.h"
#include "memory/mapped_file.h"
#include "tests/core/model/golden_models.h"
#include "tests/core/quantize/family_files.h"
#include "tests/support/gguf_from_published.h"
#include "tests/support/paths/paths.h"

namespace inlay {
namespace {

struct ConverterFile {
  const char* model;
  const char* changes = "{}";  // of config.json, which the converter had
  // Keys that one of the two files lacks, without their architecture.
  std::set<std::string> one_sided = {};

  friend void PrintTo(const ConverterFile& row, std::ostream* out) {
    *out << row.model;
  }
};

std::string ConvertedPath(const std::string& model) {
  return TestData() + "/gguf/" + model + ".gguf";
}

// Values of a key, whatever integers they are stored as.
std::vector<double> ValuesOf(const GgufValue& value) {
  std::vector<double> all;
  for (size_t i = 0; i < value.count; ++i) {
    const std::byte* at = value.data.data();
    const auto as = [&](auto number) {
      std::memcpy(&number, at + i * sizeof(number), sizeof(number));
      return static_cast<double>(number);
    };
    switch (value.type) {
      case GgufType::kU32:
        all.push_back(as(uint32_t{0}));
        break;
      case GgufType::kI32:
        all.push_back(as(int32_t{0}));
        break;
      case GgufType::kF32:
        all.push_back(as(float{0}));
        break;
      case GgufType::kBool:
        all.push_back(as(uint8_t{0}));
        break;
      default:
        ADD_FAILURE() << "a type that no such key has";
    }
  }
  return all;
}

std::map<std::string, std::vector<double>> KeysOf(const GgufFiles& files,
                                                  const std::string& arch) {
  std::map<std::string, std::vector<double>> keys;
  for (const auto& [key, value] : files.header().entries) {
    if (!key.starts_with(arch + ".")) continue;
    keys[std::string(key.substr(arch.size() + 1))] = ValuesOf(value);
  }
  return keys;
}

std::vector<float> FloatsOf(const WeightSource& source,
                            const WeightInfo& info) {
  const auto bytes = BytesOf(source, info);
  EXPECT_TRUE(bytes.ok()) << bytes.status();
  std::vector<float> values(bytes->size() / RowBytes(info.dtype, 1));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = FloatFrom(*bytes, info.dtype, i);
  }
  return values;
}

class ConverterFiles : public ::testing::TestWithParam<ConverterFile> {
 protected:
  ModelFiles Folder() {
    ModelFiles folder = Open(GetParam().model, "config.json");
    const Json changes = *ParseJson(GetParam().changes, "changes");
    for (const auto& [key, value] : changes.items()) {
      folder.config[key] = value;
    }
    return folder;
  }

  std::vector<float> Logits(const ModelFiles& files) {
    std::vector<float> all;
    const auto model = LoadModel(files, *device_, {});
    EXPECT_TRUE(model.ok()) << model.status();
    if (!model.ok()) return all;
    ModelHarness harness(**model, *device_, 64);
    std::vector<int> tokens;
    for (int i = 0; i < 48; ++i) tokens.push_back(3 + i * 37 % 100);
    const auto logits = harness.Run(harness.AddSequence(64), tokens, 64);
    EXPECT_TRUE(logits.ok()) << logits.status();
    if (!logits.ok()) return all;
    for (const auto& row : *logits) {
      all.insert(all.end(), row.begin(), row.end());
    }
    return all;
  }

  FamilyFiles files_;
  std::unique_ptr<Device> device_ = *CreateCpuDevice(2, 0);
};

TEST_P(ConverterFiles, HaveOurKeys) {
  const auto theirs = OpenGgufFiles(ConvertedPath(GetParam().model), {});
  ASSERT_TRUE(theirs.ok()) << theirs.status();
  const auto ours = OpenGgufFiles(files_.Write(Folder(), "f32"), {});
  ASSERT_TRUE(ours.ok()) << ours.status();
  const auto arch = FindGgufArchOf(Folder().config);
  ASSERT_TRUE(arch.ok()) << arch.status();
  auto wanted = KeysOf(*theirs, std::string((*arch)->name));
  auto got = KeysOf(*ours, std::string((*arch)->name));
  for (const std::string& key : GetParam().one_sided) {
    EXPECT_NE(wanted.erase(key), got.erase(key)) << key;
  }
  EXPECT_EQ(got, wanted);
}

TEST_P(ConverterFiles, HaveOurTensorsAndLogits) {
  const ModelFiles folder = Folder();
  const ModelFiles ours = files_.OpenFile(files_.Write(folder, "f32"));
  const ModelFiles theirs =
      FamilyFiles::OpenFile(ConvertedPath(GetParam().model));
  ASSERT_NE(ours.weights, nullptr);
  ASSERT_NE(theirs.weights, nullptr);
  for (const WeightInfo& info : theirs.weights->weights()) {
    SCOPED_TRACE(info.name);
    const WeightInfo* own = ours.weights->Find(info.name);
    ASSERT_NE(own, nullptr);
    EXPECT_EQ(own->shape, info.shape);
    EXPECT_EQ(FloatsOf(*ours.weights, *own), FloatsOf(*theirs.weights, info));
  }
  for (const WeightInfo& info : ours.weights->weights()) {
    // Of a tied one, which llama.cpp wants and the converter leaves out.
    if (info.name == "lm_head.weight") continue;
    EXPECT_NE(theirs.weights->Find(info.name), nullptr) << info.name;
  }
  const std::vector<float> wanted = Logits(folder);
  ASSERT_FALSE(wanted.empty());
  double square = 0;
  for (const float value : wanted) square += double{value} * value;
  const auto most = static_cast<float>(
      kTolerance * std::sqrt(square / static_cast<double>(wanted.size())));
  for (const ModelFiles* files : {&ours, &theirs}) {
    EXPECT_THAT(Logits(*files),
                ::testing::Pointwise(::testing::FloatNear(most), wanted));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, ConverterFiles,
    ::testing::Values(
        ConverterFile{"nemotron_nas"},
        ConverterFile{"granite_swa",
                      "{}",
                      {"attention.key_length", "attention.value_length"}},
        ConverterFile{"granitemoe_swa",
                      R"({"rope_theta": 50000.0, "layer_rope_theta": null})",
                      {"attention.key_length", "attention.value_length"}},
        ConverterFile{"minimax_m3", "{}", {"vocab_size"}},
        // The converter has the epsilon under LayerNorms' key, where its own
        // loader does not look.
        ConverterFile{"qwen",
                      "{}",
                      {"attention.head_count_kv", "attention.key_length",
                       "attention.value_length", "rope.dimension_count",
                       "attention.layer_norm_epsilon",
                       "attention.layer_norm_rms_epsilon", "vocab_size"}},
        ConverterFile{
            "smallthinker", "{}", {"rope.dimension_count", "vocab_size"}},
        ConverterFile{"bailing_moe",
                      "{}",
                      {"attention.key_length", "attention.value_length"}},
        ConverterFile{"openelm", "{}", {"vocab_size"}},
        ConverterFile{
            "grove_moe", "{}", {"rope.dimension_count", "vocab_size"}},
        ConverterFile{
            "arctic", "{}", {"attention.key_length", "attention.value_length"}},
        ConverterFile{"plm"}, ConverterFile{"rwkv7", "{}", {"vocab_size"}}),
    [](const auto& info) { return std::string(info.param.model); });

// Types and bits of all tensors, those too that nothing of ours reads:
// llama.cpp wants a mix of values in RWKV-7's first layer, and small matrices
// wide.
TEST(ConverterFilesOfRwkv, HaveOurTensors) {
  const FamilyFiles files;
  const auto theirs = OpenGgufFiles(ConvertedPath("rwkv7"), {});
  ASSERT_TRUE(theirs.ok()) << theirs.status();
  const auto ours =
      OpenGgufFiles(files.Write(Open("rwkv7", "config.json"), "bf16"), {});
  ASSERT_TRUE(ours.ok()) << ours.status();
  EXPECT_EQ(ours->header().tensors.size(), theirs->header().tensors.size());
  const auto read = [](const GgufFiles& file, const GgufTensor& tensor) {
    std::string bytes(tensor.info.bytes, '\0');
    EXPECT_TRUE(
        file.files.front()
            .Read(tensor.offset,
                  absl::MakeSpan(reinterpret_cast<std::byte*>(bytes.data()),
                                 bytes.size()))
            .ok());
    return bytes;
  };
  for (const GgufTensor& tensor : theirs->header().tensors) {
    SCOPED_TRACE(tensor.info.name);
    const GgufTensor* own = ours->FindTensor(tensor.info.name);
    ASSERT_NE(own, nullptr);
    EXPECT_EQ(own->info.shape, tensor.info.shape);
    ASSERT_EQ(own->info.dtype, tensor.info.dtype);
    EXPECT_EQ(read(*ours, *own), read(*theirs, tensor));
  }
}

// One number of a key of the converter's file becomes another; without it the
// key goes by another name.
struct Changed {
  const char* model;
  const char* key;
  size_t at;
  std::optional<float> value;  // in the type that the key has
  absl::StatusCode code;
  const char* named;  // key that the message has
};

// Models that are too large for the folder: a file of ours.
std::string FileOf(const std::string& model, const FamilyFiles& files) {
  const std::string path = ConvertedPath(model);
  if (std::filesystem::exists(path)) return path;
  ModelFiles folder = Open(model.c_str(), "config.json");
  for (const std::string sum : {"full_attn", "linear_attn", "mlp"}) {
    if (model != "minimax") break;
    folder.config[sum + "_alpha_factor"] = 2.5;
    folder.config[sum + "_beta_factor"] = 1.0;
  }
  return files.Write(folder, "f32");
}

std::string WithKeyChanged(const Changed& row, const FamilyFiles& files) {
  std::string bytes = *ReadWholeFile(FileOf(row.model, files), 16 << 20);
  const auto header = ParseGgufHeader(
      {reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()},
      bytes.size());
  EXPECT_TRUE(header.ok()) << header.status();
  const GgufValue* value = header->Find(row.key);
  EXPECT_NE(value, nullptr) << row.key;
  if (value == nullptr) return bytes;
  const auto data = static_cast<size_t>(
      reinterpret_cast<const char*>(value->data.data()) - bytes.data());
  if (!row.value.has_value()) {
    // Behind its length, which tells it from longer ones.
    const uint64_t length = std::strlen(row.key);
    std::string stored(reinterpret_cast<const char*>(&length), sizeof(length));
    stored += row.key;
    bytes[bytes.find(stored) + sizeof(length)] = 'x';
    return bytes;
  }
  EXPECT_LT(row.at, value->count);
  const auto put = [&](auto number) {
    std::memcpy(bytes.data() + data + row.at * sizeof(number), &number,
                sizeof(number));
  };
  if (value->type == GgufType::kF32) {
    put(*row.value);
  } else if (value->type == GgufType::kBool) {
    put(static_cast<uint8_t>(*row.value));
  } else {
    put(static_cast<int32_t>(*row.value));
  }
  return bytes;
}

TEST(ConverterFilesErrors, NameTheKey) {
  constexpr auto kBadKey = absl::StatusCode::kInvalidArgument;
  constexpr auto kUnknown = absl::StatusCode::kUnimplemented;
  const Changed rows[] = {
      {"nemotron_nas", "deci.attention.head_count", 0, 4.0f, kUnknown,
       "deci.attention.head_count"},
      {"nemotron_nas", "deci.attention.head_count_kv", 0, 0.0f, kUnknown,
       "deci.attention.head_count_kv"},
      {"nemotron_nas", "deci.attention.head_count_kv", 1, 1.0f, kBadKey,
       "deci.attention.head_count_kv"},
      {"nemotron_nas", "deci.attention.head_count_kv", 3, -1.0f, kBadKey,
       "deci.attention.head_count_kv"},
      {"nemotron_nas",
       "deci.feed_forward_length",
       0,
       {},
       kBadKey,
       "deci.feed_forward_length"},
      {"nemotron_nas",
       "deci.attention.head_count",
       0,
       {},
       kBadKey,
       "deci.attention.head_count"},
      {"granite_swa", "granite_swa.attention.sliding_window", 0, 0.0f, kBadKey,
       "granite_swa.attention.sliding_window"},
      {"granite_swa",
       "granite_swa.attention.sliding_window_pattern",
       0,
       {},
       kBadKey,
       "granite_swa.attention.sliding_window_pattern"},
      {"minimax", "minimax-01.residual_scale", 0, 0.0f, kBadKey,
       "minimax-01.residual_scale"},
      {"minimax",
       "minimax-01.residual_scale",
       0,
       {},
       kBadKey,
       "minimax-01.residual_scale"},
      {"deepseek_v4", "deepseek4.expert_gating_func", 0, 2.0f, kUnknown,
       "deepseek4.expert_gating_func"},
      {"deepseek_v4",
       "deepseek4.expert_weights_norm",
       0,
       {},
       kUnknown,
       "deepseek4.expert_weights_norm"},
      {"deepseek_v4", "deepseek4.swiglu_clamp_exp", 1, 3.0f, kUnknown,
       "deepseek4.swiglu_clamp_exp"},
      {"deepseek_v4", "deepseek4.swiglu_clamp_shexp", 2, 3.0f, kUnknown,
       "deepseek4.swiglu_clamp_shexp"},
      {"deepseek_v4",
       "deepseek4.swiglu_clamp_exp",
       0,
       {},
       kUnknown,
       "deepseek4.swiglu_clamp_exp"},
      {"deepseek_v4",
       "deepseek4.attention.compress_ratios",
       0,
       {},
       kBadKey,
       "deepseek4.attention.compress_ratios"},
      {"deepseek_v4", "deepseek4.attention.output_group_count", 0, 5.0f,
       kBadKey, "deepseek4.attention.output_group_count"},
      {"rwkv7", "rwkv7.attention.layer_norm_epsilon", 0, 1e-5f, kUnknown,
       "rwkv7.attention.layer_norm_epsilon"},
      {"rwkv7", "rwkv7.wkv.head_size", 0, 0.0f, kBadKey, "rwkv7.wkv.head_size"},
      {"rwkv7",
       "rwkv7.attention.gate_lora_rank",
       0,
       {},
       kBadKey,
       "rwkv7.attention.gate_lora_rank"},
      {"rwkv7",
       "rwkv7.attention.layer_norm_epsilon",
       0,
       {},
       kBadKey,
       "rwkv7.attention.layer_norm_epsilon"},
      {"deepseek_v4",
       "deepseek4.hyper_connection.count",
       0,
       {},
       kBadKey,
       "deepseek4.hyper_connection.count"},
      {"deepseek_v4",
       "deepseek4.hyper_connection.epsilon",
       0,
       {},
       kBadKey,
       "deepseek4.hyper_connection.epsilon"},
      {"deepseek_v4",
       "deepseek4.hash_layer_count",
       0,
       {},
       kBadKey,
       "deepseek4.hash_layer_count"},
      {"minimax_m3", "minimax-m3.expert_gating_func", 0, 1.0f, kUnknown,
       "minimax-m3.expert_gating_func"},
      {"minimax_m3", "minimax-m3.expert_weights_norm", 0, 0.0f, kUnknown,
       "minimax-m3.expert_weights_norm"},
      {"minimax_m3",
       "minimax-m3.expert_shared_count",
       0,
       {},
       kBadKey,
       "minimax-m3.expert_shared_count"},
      {"minimax_m3", "minimax-m3.expert_shared_count", 0, 2e8f, kBadKey,
       "minimax-m3.expert_shared_count"},
      {"minimax_m3", "minimax-m3.leading_dense_block_count", 0, 3.0f, kBadKey,
       "minimax-m3.leading_dense_block_count"},
      {"minimax_m3",
       "minimax-m3.attention.indexer.top_k",
       0,
       {},
       kBadKey,
       "minimax-m3.attention.indexer.top_k"},
  };
  const FamilyFiles files;
  for (const Changed& row : rows) {
    SCOPED_TRACE(::testing::Message()
                 << row.key << ' ' << row.value.value_or(-1));
    const std::string path = files.Path("changed");
    std::ofstream(path, std::ios::binary) << WithKeyChanged(row, files);
    const absl::Status status = OpenModelFiles(path, {}).status();
    EXPECT_EQ(status.code(), row.code) << status;
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(row.named));
  }
}

// What changes a key without an error changes what is read.
TEST(ConverterFilesConfig, SaysWhatKeysSay) {
  const FamilyFiles files;
  const auto read = [&](const Changed& row) {
    const std::string path = files.Path("read");
    std::ofstream(path, std::ios::binary) << WithKeyChanged(row, files);
    return FamilyFiles::OpenFile(path).config;
  };
  constexpr auto kFine = absl::StatusCode::kOk;
  const Json swa =
      read({"granite_swa", "granite_swa.rope.freq_base", 0, 64.0f, kFine, ""});
  EXPECT_EQ(swa["layer_rope_theta"], Json({64.0, 0}));
  EXPECT_EQ(swa["layer_types"], Json({"sliding_attention", "full_attention"}));
  EXPECT_EQ(read({"granite_swa", "granite_swa.attention.rope_pattern", 1, 1.0f,
                  kFine, ""})["layer_rope_theta"],
            Json({5e4, 5e4}));
  const Json without = read(
      {"granite_swa", "granite_swa.attention.rope_pattern", 0, {}, kFine, ""});
  EXPECT_FALSE(without.contains("layer_rope_theta"));
  const Json moe =
      read({"granitemoe_swa", "granite_swa.expert_shared_feed_forward_length",
            0, 0.0f, kFine, ""});
  EXPECT_EQ(moe["shared_intermediate_size"], 0);
  EXPECT_EQ(moe["model_type"], "granitemoe_swa");
  const Json m3 = read({"minimax_m3", "minimax-m3.leading_dense_block_count", 0,
                        0.0f, kFine, ""});
  EXPECT_EQ(m3["mlp_layer_types"], Json({"sparse", "sparse"}));
  EXPECT_EQ(m3["layer_types"],
            Json({"minimax_m3_sparse", "minimax_m3_sparse"}));
  EXPECT_EQ(read({"minimax_m3", "minimax-m3.expert_shared_count", 0, 3.0f,
                  kFine, ""})["shared_intermediate_size"],
            24);
  EXPECT_EQ(read({"minimax_m3", "minimax-m3.expert_weights_scale", 0, 0.0f,
                  kFine, ""})["routed_scaling_factor"],
            1.0);
  EXPECT_EQ(read({"minimax_m3", "minimax-m3.attention.indexer.block_size", 0,
                  8.0f, kFine, ""})["index_block_size"],
            8);
  // Every eighth is full where the file does not say.
  const Json lightning = read(
      {"minimax", "minimax-01.attention.recurrent_layers", 0, {}, kFine, ""});
  for (const Json& type : lightning["layer_types"]) {
    EXPECT_EQ(type, "linear_attention");
  }
  EXPECT_EQ(read({"minimax", "minimax-01.attention.recurrent_layers", 1, 0.0f,
                  kFine, ""})["layer_types"],
            Json({"linear_attention", "full_attention", "full_attention",
                  "linear_attention"}));
  EXPECT_EQ(read({"minimax", "minimax-01.residual_scale", 0, 3.0f, kFine,
                  ""})["linear_attn_alpha_factor"],
            3.0);
  EXPECT_EQ(read({"deepseek_v4", "deepseek4.attention.compress_ratios", 1,
                  128.0f, kFine, ""})["compress_ratios"],
            Json({0, 128, 128}));
  EXPECT_EQ(read({"deepseek_v4", "deepseek4.expert_weights_norm", 0, 0.0f,
                  kFine, ""})["norm_topk_prob"],
            false);
  EXPECT_EQ(read({"deepseek_v4", "deepseek4.attention.compress_rope_freq_base",
                  0, 99.0f, kFine, ""})["compress_rope_theta"],
            99.0);
  // Shared experts have the others' limit where they have none of their own.
  EXPECT_EQ(read({"deepseek_v4",
                  "deepseek4.swiglu_clamp_shexp",
                  0,
                  {},
                  kFine,
                  ""})["swiglu_limit"],
            2.0);
  EXPECT_EQ(read({"deepseek_v4",
                  "deepseek4.rope.dimension_count",
                  0,
                  {},
                  kFine,
                  ""})["qk_rope_head_dim"],
            32);
  const Json deci =
      read({"nemotron_nas", "deci.feed_forward_length", 2, 512.0f, kFine, ""});
  EXPECT_FALSE(deci.contains("num_key_value_heads_per_layer"));
  EXPECT_EQ(deci["block_configs"][0]["attention"]["n_heads_in_group"], 2);
  EXPECT_EQ(deci["block_configs"][1]["attention"]["no_op"], true);
  EXPECT_EQ(deci["block_configs"][3]["attention"]["n_heads_in_group"], 1);
  EXPECT_EQ(deci["block_configs"][2]["ffn"]["ffn_mult"], 36.0);
  const Json odd =
      read({"nemotron_nas", "deci.feed_forward_length", 2, 255.0f, kFine, ""});
  EXPECT_EQ(odd["block_configs"][2]["ffn"]["intermediate_size"], 255);
}

}  // namespace
}  // namespace inlay
