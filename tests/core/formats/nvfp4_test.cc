// NVFP4 checkpoints of ModelOpt and compressed-tensors: blocks against the
// layouts' definitions, and what the methods refuse.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "absl/strings/str_format.h"
#include "core/formats/model_files.h"
#include "core/formats/quantized_source.h"
#include "tests/core/formats/format_test_util.h"
#include "tests/core/formats/quantized_test_util.h"
#include "tests/support/memory_weights.h"
#include "tests/support/nvfp4_tensors.h"

namespace inlay {
namespace {

using absl::StatusCode;
using ::testing::HasSubstr;
using ::testing::Not;

Json ModelOptSettings() {
  return {{"quant_method", "modelopt"},
          {"quant_algo", "NVFP4"},
          {"ignore", {"lm_head"}}};
}

Json Nvfp4Settings() {
  return {{"quant_method", "compressed-tensors"},
          {"format", "nvfp4-pack-quantized"},
          {"config_groups",
           {{"group_0",
             {{"targets", {"Linear"}},
              {"input_activations",
               {{"num_bits", 4},
                {"type", "float"},
                {"strategy", "tensor_group"},
                {"dynamic", "local"}}},
              {"weights",
               {{"num_bits", 4},
                {"type", "float"},
                {"strategy", "tensor_group"},
                {"group_size", 16},
                {"symmetric", true}}}}}}}};
}

Json SettingsOf(bool is_modelopt) {
  return is_modelopt ? ModelOptSettings() : Nvfp4Settings();
}

Nvfp4Matrix Drawn(int64_t rows, int64_t cols) {
  std::mt19937 rng(3);
  std::normal_distribution<float> normal(0.0f, 0.05f);
  std::vector<float> values(static_cast<size_t>(rows * cols));
  for (float& value : values) value = normal(rng);
  return Nvfp4Matrix::Round(values, cols, 0x1.8p-14f);
}

// Of nvfp4_f32.
std::string BlocksOf(const Nvfp4Matrix& matrix, bool is_modelopt) {
  const std::string blocks = matrix.GgufBlocks();
  const float factor =
      is_modelopt ? matrix.factor : 1.0f / (1.0f / matrix.factor);
  std::string wanted;
  for (size_t at = 0; at < blocks.size(); at += 36) {
    wanted.append(reinterpret_cast<const char*>(&factor), 4);
    wanted.append(blocks, at, 36);
  }
  return wanted;
}

TEST(Nvfp4Checkpoint, LayersBecomeBlocks) {
  for (const bool is_modelopt : {true, false}) {
    for (const bool mapped : {true, false}) {
      const Nvfp4Matrix matrix = Drawn(5, 192);
      auto stored = std::make_shared<MemoryWeights>(mapped);
      matrix.AddTo(*stored, "l", is_modelopt);
      const float norm[3] = {1, 2, 3};
      stored->Add("norm.weight", DType::kF32, {3}, norm);
      const auto opened = OpenQuantized(SettingsOf(is_modelopt), stored);
      ASSERT_TRUE(opened.ok()) << opened.status();
      const WeightSource& source = **opened;
      ASSERT_EQ(source.weights().size(), 2u);
      const WeightInfo* info = source.Find("l.weight");
      ASSERT_NE(info, nullptr);
      EXPECT_EQ(info->dtype, DType::kNVFP4_F32);
      EXPECT_EQ(info->shape, (std::vector<int64_t>{5, 192}));
      EXPECT_EQ(info->input_codes, InputCodes::kNone);
      EXPECT_EQ(source.Mapped(*info), nullptr);
      const std::string wanted = BlocksOf(matrix, is_modelopt);
      ASSERT_EQ(info->bytes, wanted.size());
      for (const size_t piece : {1, 7, 40, 121, 10000}) {
        std::string bytes(wanted.size(), '\0');
        for (size_t at = 0; at < bytes.size(); at += piece) {
          const size_t count = std::min(piece, bytes.size() - at);
          ASSERT_TRUE(
              source
                  .Read(*info, at,
                        absl::MakeSpan(reinterpret_cast<std::byte*>(&bytes[at]),
                                       count))
                  .ok());
        }
        EXPECT_EQ(bytes, wanted) << piece;
      }
    }
  }
}

// e4m3 has a sign, which the blocks' scales have not: codes take it. NaN, which
// is 0 there, stays.
TEST(Nvfp4Checkpoint, ScalesMayBeNegative) {
  Nvfp4Matrix matrix = Drawn(3, 128);
  matrix.scales[1] = 0x7f;
  matrix.scales[3] = 0x7f;
  Nvfp4Matrix negative = matrix;
  for (size_t i = 0; i < matrix.scales.size(); i += 3) {
    negative.scales[i] |= 0x80;
    for (size_t j = 16 * i; j < 16 * i + 16; ++j) negative.codes[j] ^= 8;
  }
  for (const bool is_modelopt : {true, false}) {
    auto stored = std::make_shared<MemoryWeights>(true);
    negative.AddTo(*stored, "l", is_modelopt);
    const auto opened = OpenQuantized(SettingsOf(is_modelopt), stored);
    ASSERT_TRUE(opened.ok()) << opened.status();
    const WeightInfo& info = *(*opened)->Find("l.weight");
    std::string bytes(info.bytes, '\0');
    ASSERT_TRUE(
        (*opened)
            ->Read(info, 0,
                   absl::MakeSpan(reinterpret_cast<std::byte*>(bytes.data()),
                                  bytes.size()))
            .ok());
    EXPECT_EQ(bytes, BlocksOf(matrix, is_modelopt));
  }
}

absl::Status OpenWrong(bool is_modelopt, const Change& change) {
  MemoryWeights good(true);
  Drawn(4, 64).AddTo(good, "l", is_modelopt);
  return OpenQuantized(SettingsOf(is_modelopt), Changed(good, change)).status();
}

TEST(Nvfp4Checkpoint, WrongTensorsAreNamed) {
  for (const bool is_modelopt : {true, false}) {
    const std::string codes = is_modelopt ? "l.weight" : "l.weight_packed";
    const std::string factor =
        is_modelopt ? "l.weight_scale_2" : "l.weight_global_scale";
    const auto open = [&](const Change& change) {
      return OpenWrong(is_modelopt, change);
    };
    EXPECT_TRUE(open({"other", DType::kF32, {1}}).ok());
    EXPECT_TRUE(open({factor, DType::kF32, {}}).ok());
    if (is_modelopt) {
      ExpectError(open({codes}), StatusCode::kNotFound, codes);
    } else {
      ExpectError(open({factor}), StatusCode::kNotFound, factor);
    }
    ExpectError(open({"l.weight_scale"}), StatusCode::kNotFound,
                "l.weight_scale");
    ExpectError(open({codes, DType::kI8, {4, 32}}),
                StatusCode::kInvalidArgument, "is i8; allowed: u8");
    ExpectError(open({codes, DType::kU8, {4, 2, 16}}),
                StatusCode::kInvalidArgument, "two dimensions");
    ExpectError(open({codes, DType::kU8, {0, 32}}),
                StatusCode::kInvalidArgument, "no dimension may be 0");
    ExpectError(open({codes, DType::kU8, {4, 24}}), StatusCode::kUnimplemented,
                "k = 48 columns in NVFP4; supported are multiples of 64");
    ExpectError(open({codes, DType::kU8, {4, 64}}),
                StatusCode::kInvalidArgument, "l.weight_scale");
    ExpectError(open({"l.weight_scale", DType::kF8E4M3, {3, 4}}),
                StatusCode::kInvalidArgument, "ask for [4, 4]");
    ExpectError(open({"l.weight_scale", DType::kF32, {4, 4}}),
                StatusCode::kInvalidArgument, "allowed: f8_e4m3");
    ExpectError(open({factor, DType::kF32, {2}}), StatusCode::kInvalidArgument,
                factor);
    ExpectError(open({factor, DType::kBF16, {1}}), StatusCode::kInvalidArgument,
                "is bf16; allowed: f32");
    for (const float bad : {INFINITY, -INFINITY, std::nanf("")}) {
      ExpectError(open({factor, DType::kF32, {1}, bad}),
                  StatusCode::kInvalidArgument, "it must be finite");
    }
    for (const float bad : {0.0f, -0.0f, -1.0f, 1e-42f}) {
      const absl::Status status = open({factor, DType::kF32, {1}, bad});
      EXPECT_EQ(status.ok(), is_modelopt) << bad;
      if (!is_modelopt) {
        ExpectError(status, StatusCode::kInvalidArgument, "more than 0");
      }
    }
  }
}

TEST(Nvfp4Checkpoint, OtherSettingsAreRefused) {
  const auto open = [](const Json& config) {
    return OpenQuantized(config, std::make_shared<MemoryWeights>(true))
        .status();
  };
  Json config = ModelOptSettings();
  EXPECT_TRUE(open(config).ok());
  config["quant_algo"] = "W4A16_NVFP4";
  EXPECT_TRUE(open(config).ok());
  config["quant_algo"] = "MXFP8";
  ExpectError(open(config), StatusCode::kUnimplemented,
              "quant_algo is \"MXFP8\"; supported: FP8, ");
  config["quant_algo"] = 4;
  ExpectError(open(config), StatusCode::kInvalidArgument, "quant_algo");
  config = ModelOptSettings();
  config["group_size"] = 32;
  ExpectError(open(config), StatusCode::kUnimplemented, "group_size is \"32\"");
  config = ModelOptSettings();
  config["exclude_modules"] = "lm_head";
  EXPECT_FALSE(open(config).ok());
  // Of weights, whatever they are.
  config = ModelOptSettings();
  config.erase("quant_algo");
  config["config_groups"] = Json::object();
  ExpectError(open(config), StatusCode::kUnimplemented, "quant_algo is \"\"");

  const auto with = [](const char* key, const Json& value) {
    Json settings = Nvfp4Settings();
    settings["config_groups"]["group_0"]["weights"][key] = value;
    return settings;
  };
  EXPECT_TRUE(open(Nvfp4Settings()).ok());
  ExpectError(open(with("num_bits", 8)), StatusCode::kUnimplemented,
              "num_bits is \"8\"");
  ExpectError(open(with("group_size", 32)), StatusCode::kUnimplemented,
              "groups of 32");
  ExpectError(open(with("strategy", "group")), StatusCode::kUnimplemented,
              "is \"group, groups of 16\"");
  ExpectError(open(with("symmetric", false)), StatusCode::kUnimplemented,
              "not symmetric");
  ExpectError(open(with("type", "int")), StatusCode::kUnimplemented,
              "nvfp4-pack-quantized of type int");
  for (const Json& order :
       {Json(), Json("weight"), Json("static"), Json(false)}) {
    EXPECT_TRUE(open(with("actorder", order)).ok()) << order;
  }
  for (const Json& order : {Json("group"), Json("dynamic"), Json(true)}) {
    ExpectError(open(with("actorder", order)), StatusCode::kUnimplemented,
                "actorder is \"group\"; supported: null, weight for "
                "nvfp4-pack-quantized");
  }
  ExpectError(open(with("actorder", "columns")), StatusCode::kUnimplemented,
              "actorder");
}

// What llm_ptq writes of plain weights with a KV cache in e4m3.
TEST(Nvfp4Checkpoint, KvCacheAlone) {
  auto stored = std::make_shared<MemoryWeights>(true);
  const float norm[3] = {1, 2, 3};
  stored->Add("norm.weight", DType::kF32, {3}, norm);
  Json config = {{"quant_method", "modelopt"},
                 {"ignore", Json::array()},
                 {"kv_cache_scheme",
                  {{"dynamic", false}, {"num_bits", 8}, {"type", "float"}}}};
  for (const bool is_null : {false, true}) {
    if (is_null) config["quant_algo"] = nullptr;
    const auto opened = OpenQuantized(config, stored);
    ASSERT_TRUE(opened.ok()) << opened.status();
    ASSERT_EQ((*opened)->weights().size(), 1u);
    EXPECT_EQ((*opened)->weights()[0].dtype, DType::kF32);
  }
}

// A layer of ModelOpt's.
std::string LayerFile() {
  return SafetensorsFile(R"({"l.weight":{"dtype":"U8","shape":[2,32],)"
                         R"("data_offsets":[0,64]},)"
                         R"("l.weight_scale":{"dtype":"F8_E4M3",)"
                         R"("shape":[2,4],"data_offsets":[64,72]},)"
                         R"("l.weight_scale_2":{"dtype":"F32",)"
                         R"("shape":[],"data_offsets":[72,76]}})",
                         76);
}

// What earlier versions of ModelOpt write beside config.json.
TEST(Nvfp4Checkpoint, SettingsBesideTheConfig) {
  TempFolder folder;
  folder.Write("config.json", R"({"model_type": "llama"})");
  folder.Write("model.safetensors", LayerFile());
  const auto settings = [&](const std::string& text) {
    folder.Write("hf_quant_config.json", text);
    return OpenModelFiles(folder.path(), {});
  };
  const auto opened = settings(
      R"({"producer": {"name": "modelopt"}, "quantization": {"quant_algo":
          "NVFP4", "kv_cache_quant_algo": "FP8", "group_size": 16,
          "exclude_modules": ["lm_head"]}})");
  ASSERT_TRUE(opened.ok()) << opened.status();
  ASSERT_EQ(opened->weights->weights().size(), 1u);
  EXPECT_EQ(opened->weights->weights()[0].dtype, DType::kNVFP4_F32);
  EXPECT_EQ(opened->config["quantization_config"]["quant_algo"], "NVFP4");
  EXPECT_EQ(opened->config["model_type"], "llama");
  // The KV cache's alone.
  const auto plain = settings(
      R"({"quantization": {"quant_algo": null, "kv_cache_quant_algo": "FP8"}})");
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_EQ(plain->weights->weights().size(), 3u);
  EXPECT_FALSE(plain->config.contains("quantization_config"));
  EXPECT_TRUE(settings(R"({"quantization": null})").ok());
  const std::string place =
      folder.path() + "/hf_quant_config.json: quantization";
  for (const char* wrong : {"\"NVFP4\"", "[]", "false", "4"}) {
    ExpectError(
        settings(absl::StrFormat(R"({"quantization": %s})", wrong)).status(),
        StatusCode::kInvalidArgument, place + " is ");
  }
  const std::pair<const char*, StatusCode> refused[] = {
      {R"("quant_algo": "MXFP8")", StatusCode::kUnimplemented},
      {R"("quant_algo": "NVFP4", "group_size": 32)",
       StatusCode::kUnimplemented},
      {R"("quant_algo": "NVFP4", "exclude_modules": 3)",
       StatusCode::kInvalidArgument}};
  for (const auto& [keys, code] : refused) {
    const absl::Status status =
        settings(absl::StrFormat(R"({"quantization": {%s}})", keys)).status();
    ExpectError(status, code, "hf_quant_config.json: quantization's ");
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr("/config.json")))
        << status;
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr(" config.json")))
        << status;
  }
  EXPECT_FALSE(settings("{").ok());
  EXPECT_FALSE(settings("[]").ok());
}

TEST(Nvfp4Checkpoint, SettingsOfTheConfigWin) {
  TempFolder folder;
  folder.Write("model.safetensors", LayerFile());
  const auto open = [&](const char* own, const char* beside) {
    folder.Write(
        "config.json",
        absl::StrFormat(R"({"quantization_config": {"quant_method": "modelopt",
                            "quant_algo": "%s"}})",
                        own));
    folder.Write(
        "hf_quant_config.json",
        absl::StrFormat(R"({"quantization": {"quant_algo": "%s"}})", beside));
    return OpenModelFiles(folder.path(), {}).status();
  };
  EXPECT_TRUE(open("NVFP4", "MXFP8").ok());
  ExpectError(
      open("MXFP8", "NVFP4"), StatusCode::kUnimplemented,
      folder.path() +
          ": config.json: quantization_config's quant_algo is \"MXFP8\"");
}

}  // namespace
}  // namespace inlay
