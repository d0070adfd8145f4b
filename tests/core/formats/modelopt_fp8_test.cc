// ModelOpt's checkpoints in e4m3, and those of several algorithms: blocks
// against the layouts' definitions, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <optional>

#include "absl/strings/str_format.h"
#include "core/formats/model_files.h"
#include "tests/core/formats/format_test_util.h"
#include "tests/core/formats/quantized_test_util.h"
#include "tests/support/nvfp4_tensors.h"

namespace inlay {
namespace {

using absl::StatusCode;
using ::testing::HasSubstr;

Json Settings(const std::string& algorithm) {
  return {{"quant_method", "modelopt"},
          {"quant_algo", algorithm},
          {"ignore", {"lm_head"}}};
}

struct Fp8Case {
  std::string algorithm;
  int64_t rows, columns;  // of a scale; 0: all
  int64_t n, k;
  std::vector<int64_t> scale_shape;
  std::string dtype;
  std::string scale = ".weight_scale";
};

// Adds a layer; what it stands for.
std::vector<double> AddLayer(MemoryWeights& weights, const std::string& layer,
                             const Fp8Case& c, uint32_t seed) {
  Draw draw(seed);
  const int64_t rows = c.rows == 0 ? c.n : c.rows;
  const int64_t columns = c.columns == 0 ? c.k : c.columns;
  const int64_t across = (c.k - 1) / columns + 1;
  std::vector<uint8_t> codes;
  for (const int code : draw.Ints(c.n * c.k, 0, 255)) {
    codes.push_back(static_cast<uint8_t>((code & 127) == 127 ? 0 : code));
  }
  const std::vector<float> scales =
      draw.Scales(((c.n - 1) / rows + 1) * across);
  weights.Add(layer + ".weight", DType::kF8E4M3, {c.n, c.k}, codes.data());
  weights.Add(layer + c.scale, DType::kF32, c.scale_shape, scales.data());
  std::vector<double> dense;
  for (int64_t o = 0; o < c.n; ++o) {
    for (int64_t i = 0; i < c.k; ++i) {
      const int64_t cell = o / rows * across + i / columns;
      dense.push_back(
          double{scales[static_cast<size_t>(cell)]} *
          double{F8E4M3ToF32(codes[static_cast<size_t>(o * c.k + i)])});
    }
  }
  return dense;
}

Checkpoint MakeModelOpt(const Fp8Case& c, uint32_t seed) {
  Checkpoint out{Settings(c.algorithm),
                 std::make_shared<MemoryWeights>(seed % 2 == 0),
                 c.n,
                 c.k,
                 {}};
  out.dense = AddLayer(*out.weights, "l", c, seed);
  return out;
}

const Fp8Case kTensor = {"FP8", 0, 0, 5, 128, {}, "f8_g128"};
const Fp8Case kChannels = {
    "FP8_PER_CHANNEL_PER_TOKEN", 1, 0, 5, 160, {5}, "f8_g32"};
const Fp8Case kBlocks = {"FP8_PB_WO", 128,          128,      256,
                         384,         {2, 1, 3, 1}, "f8_g128"};

TEST(ModelOptFp8, LayersBecomeBlocks) {
  const Fp8Case cases[] = {
      kTensor,
      {"FP8", 0, 0, 3, 96, {1}, "f8_g32"},
      {"fp8", 0, 0, 1, 32, {1, 1}, "f8_g32"},
      kChannels,
      {"FP8_PER_CHANNEL_PER_TOKEN", 1, 0, 7, 256, {7, 1}, "f8_g128"},
      {"FP8_PER_CHANNEL_PER_TOKEN", 1, 0, 1, 256, {1}, "f8_g128"},
      kBlocks,
      {"fp8_pb_wo", 128, 128, 150, 448, {2, 1, 4, 1}, "f8_g32"},
      {"FP8_PB_WO", 128, 128, 150, 448, {2, 4}, "f8_g32"},
      {"FP8_PB_WO", 128, 128, 64, 128, {1, 1, 1, 1}, "f8_g128"},
      {"FP8_PB_WO", 128, 128, 130, 256, {2, 2}, "f8_g128", ".weight_scale_inv"},
  };
  uint32_t seed = 1;
  for (const Fp8Case& c : cases) {
    SCOPED_TRACE(::testing::Message() << "case " << seed - 1);
    Checkpoint checkpoint = MakeModelOpt(c, seed++);
    CheckLayer(checkpoint, c.dtype, false);
    const float scale = 0.5f;
    checkpoint.weights->Add("l.input_scale", DType::kF32, {}, &scale);
    CheckLayer(checkpoint, c.dtype, false);
  }
}

TEST(ModelOptFp8, InputCodesAreToldOf) {
  const auto told = [](const Fp8Case& c, bool has_scale) {
    const Checkpoint checkpoint = MakeModelOpt(c, 1);
    const float scale = 0.5f;
    if (has_scale) {
      checkpoint.weights->Add("l.input_scale", DType::kF32, {1}, &scale);
    }
    const auto opened = OpenQuantized(checkpoint.config, checkpoint.weights);
    EXPECT_TRUE(opened.ok()) << opened.status();
    return opened.ok() ? (*opened)->Find("l.weight")->input_codes
                       : InputCodes::kInt8;
  };
  EXPECT_EQ(told(kTensor, true), InputCodes::kFp8);
  EXPECT_EQ(told(kTensor, false), InputCodes::kNone);
  EXPECT_EQ(told(kChannels, false), InputCodes::kFp8);
  EXPECT_EQ(told(kBlocks, false), InputCodes::kNone);
}

absl::Status OpenChanged(const Fp8Case& c, const Change& change) {
  const Checkpoint good = MakeModelOpt(c, 2);
  return OpenQuantized(good.config, Changed(*good.weights, change)).status();
}

TEST(ModelOptFp8, WrongTensorsAreNamed) {
  for (const Fp8Case& c : {kTensor, kChannels, kBlocks}) {
    SCOPED_TRACE(c.algorithm);
    const auto open = [&](const Change& change) {
      return OpenChanged(c, change);
    };
    EXPECT_TRUE(open({"other", DType::kF32, {1}}).ok());
    ExpectError(open({"l.weight_scale"}), StatusCode::kNotFound,
                "l.weight_scale");
    ExpectError(open({"l.weight", DType::kF8E4M3, {2, 2, 32}}), kInvalid,
                "two dimensions");
    ExpectError(open({"l.weight", DType::kF8E4M3, {0, 32}}), kInvalid,
                "no dimension may be 0");
    ExpectError(open({"l.weight_scale", DType::kF32, {3, 7}}), kInvalid,
                "l.weight_scale");
    ExpectError(open({"l.weight_scale", DType::kF32, {1, 2, 3, 1}}), kInvalid,
                "l.weight_scale");
    ExpectError(open({"l.weight_scale", DType::kF32, {2, 1, 3, 1, 1}}),
                kInvalid, "l.weight_scale");
    ExpectError(open({"l.weight_scale", DType::kF8E4M3, c.scale_shape}),
                kInvalid, "is f8_e4m3; allowed: f16, bf16, f32");
    ExpectError(open({"l.input_scale", DType::kF32, {3}}), kInvalid,
                "l.input_scale");
    for (const float bad : {INFINITY, -INFINITY, std::nanf("")}) {
      ExpectError(open({"l.weight_scale", DType::kF32, c.scale_shape, bad}),
                  kInvalid, "scales must be finite");
    }
  }
  // Each has a shape of its own.
  ExpectError(OpenChanged(kTensor, {"l.weight_scale", DType::kF32, {5}}),
              kInvalid, "ask for [1, 1]");
  ExpectError(OpenChanged(kChannels, {"l.weight_scale", DType::kF32, {1}}),
              kInvalid, "ask for [5, 1]");
  ExpectError(OpenChanged(kBlocks, {"l.weight_scale", DType::kF32, {256}}),
              kInvalid, "ask for [2, 3]");
  ExpectError(OpenChanged(kTensor, {"l.weight", DType::kF8E4M3, {5, 40}}),
              StatusCode::kUnimplemented, "k = 40");
}

// One layer of each algorithm, and a plain one.
std::shared_ptr<MemoryWeights> MixedWeights() {
  auto weights = std::make_shared<MemoryWeights>(true);
  AddLayer(*weights, "a", kTensor, 1);
  AddLayer(*weights, "b", kChannels, 2);
  AddLayer(*weights, "c", kBlocks, 3);
  Nvfp4Matrix::Round(std::vector<float>(4 * 64, 0.5f), 64, 0x1p-10f)
      .AddTo(*weights, "d", true);
  const std::vector<float> plain(6, 1.0f);
  weights->Add("e.weight", DType::kF32, {2, 3}, plain.data());
  return weights;
}

Json MixedSettings() {
  Json config = Settings("MIXED_PRECISION");
  config["quantized_layers"] = {
      {"a", {{"quant_algo", "FP8"}}},
      {"b", {{"quant_algo", "FP8_PER_CHANNEL_PER_TOKEN"}}},
      {"c", {{"quant_algo", "fp8_pb_wo"}}},
      {"d", {{"quant_algo", "NVFP4"}, {"group_size", 16}}},
      {"mtp.x", {{"quant_algo", "W4A16_NVFP4"}, {"group_size", 16}}}};
  return config;
}

void CheckMixed(const Json& config) {
  const auto opened = OpenQuantized(config, MixedWeights());
  ASSERT_TRUE(opened.ok()) << opened.status();
  std::vector<std::string> seen;
  for (const WeightInfo& info : (*opened)->weights()) {
    seen.push_back(info.name + " " + std::string(DTypeName(info.dtype)));
  }
  EXPECT_EQ(seen, (std::vector<std::string>{
                      "a.weight f8_g128", "b.weight f8_g32", "c.weight f8_g128",
                      "d.weight nvfp4_f32", "e.weight f32"}));
  const std::pair<const char*, Fp8Case> layers[] = {
      {"a", kTensor}, {"b", kChannels}, {"c", kBlocks}};
  uint32_t seed = 1;
  for (const auto& [layer, c] : layers) {
    MemoryWeights alone(true);
    const std::vector<double> dense = AddLayer(alone, layer, c, seed++);
    const WeightInfo& info = *(*opened)->Find(std::string(layer) + ".weight");
    const std::vector<float> values =
        DecodeBlocks(info.dtype, ReadAllOf(**opened, info));
    ASSERT_EQ(values.size(), dense.size());
    for (size_t i = 0; i < values.size(); ++i) ASSERT_EQ(values[i], dense[i]);
  }
}

TEST(ModelOptMixed, EachLayerByItsAlgorithm) {
  CheckMixed(MixedSettings());
  // Modules are called otherwise than tensors.
  Json config = MixedSettings();
  Json renamed = Json::object();
  for (const auto& [name, own] : config["quantized_layers"].items()) {
    renamed["language_model." + name] = own;
  }
  config["quantized_layers"] = renamed;
  CheckMixed(config);
}

TEST(ModelOptMixed, OthersAreRefused) {
  const auto open = [](const char* layer, const Json& own) {
    Json config = MixedSettings();
    config["quantized_layers"][layer] = own;
    return OpenQuantized(config, MixedWeights()).status();
  };
  for (const char* other : {"W4A8_AWQ", "MIXED_PRECISION", "MXFP8", ""}) {
    const absl::Status status = open("model.x", {{"quant_algo", other}});
    ExpectError(status, StatusCode::kUnimplemented,
                absl::StrFormat("quantized_layers: \"model.x\": quant_algo is "
                                "\"%s\"; supported: FP8, ",
                                other));
  }
  ExpectError(open("x", {{"quant_algo", "NVFP4"}, {"group_size", 32}}),
              StatusCode::kUnimplemented, "\"x\": group_size is \"32\"");
  ExpectError(open("x", {{"quant_algo", "FP8_PB_WO"}, {"group_size", 64}}),
              StatusCode::kUnimplemented, "\"x\": group_size is \"64\"");
  ExpectError(open("x", {{"quant_algo", "NVFP4"}, {"pre_quant_scale", true}}),
              StatusCode::kUnimplemented, "\"x\": pre_quant_scale is \"true\"");
  ExpectError(open("x", {{"quant_algo", 3}}), StatusCode::kInvalidArgument,
              "quant_algo");
  ExpectError(open("x", "FP8"), StatusCode::kInvalidArgument,
              "quantized_layers: \"x\" is ");
  // Tensors of another algorithm than is said.
  ExpectError(open("c", {{"quant_algo", "FP8"}}), StatusCode::kInvalidArgument,
              "c.weight_scale");
  ExpectError(open("d", {{"quant_algo", "FP8"}}), StatusCode::kInvalidArgument,
              "d.weight");
  for (const Json& layers :
       {Json(), Json::object(), Json::array({"a"}), Json("a")}) {
    Json config = MixedSettings();
    config["quantized_layers"] = layers;
    ExpectError(OpenQuantized(config, MixedWeights()).status(),
                StatusCode::kInvalidArgument, "one layer or more");
  }
  // None of the algorithms fits.
  Json config = MixedSettings();
  config["quantized_layers"] = {{"d", {{"quant_algo", "NVFP4"}}},
                                {"c", {{"quant_algo", "FP8_PB_WO"}}}};
  ExpectError(OpenQuantized(config, MixedWeights()).status(),
              StatusCode::kInvalidArgument, "b.weight_scale");
}

class ModelOptFolder : public ::testing::Test {
 protected:
  ModelOptFolder() {
    folder_.Write(
        "model.safetensors",
        SafetensorsFile(R"({"l.weight":{"dtype":"F8_E4M3","shape":[2,32],)"
                        R"("data_offsets":[0,64]},)"
                        R"("l.weight_scale":{"dtype":"F32","shape":[],)"
                        R"("data_offsets":[64,68]}})",
                        68));
  }
  absl::StatusOr<ModelFiles> Open(const Json& own, const Json& beside) {
    Json config = {{"model_type", "llama"}};
    if (!own.is_null()) config["quantization_config"] = own;
    folder_.Write("config.json", DumpJson(config));
    folder_.Write("hf_quant_config.json",
                  DumpJson(Json{{"quantization", beside}}));
    return OpenModelFiles(folder_.path(), {});
  }

  TempFolder folder_;
};

TEST_F(ModelOptFolder, SettingsOfEitherFile) {
  const Json fp8 = {{"quant_algo", "FP8"},
                    {"kv_cache_quant_algo", "FP8"},
                    {"exclude_modules", {"lm_head"}}};
  const Json mixed = {{"quant_algo", "MIXED_PRECISION"},
                      {"quantized_layers", {{"l", {{"quant_algo", "FP8"}}}}}};
  const Json bare = Settings("MIXED_PRECISION");
  Json whole = bare;
  whole["quantized_layers"] = mixed["quantized_layers"];
  for (const auto& [own, beside] : {std::pair<Json, Json>{nullptr, fp8},
                                    {nullptr, mixed},
                                    {Settings("FP8"), nullptr},
                                    {whole, nullptr},
                                    {whole, {{"quant_algo", "MXFP8"}}},
                                    {bare, mixed}}) {
    const auto opened = Open(own, beside);
    ASSERT_TRUE(opened.ok()) << opened.status() << own << beside;
    ASSERT_EQ(opened->weights->weights().size(), 1u);
    EXPECT_EQ(opened->weights->weights()[0].dtype, DType::kF8_G32);
  }
  ExpectError(Open(bare, nullptr).status(), StatusCode::kInvalidArgument,
              "config.json: quantization_config's quantized_layers");
  Json other = mixed;
  other["quantized_layers"]["m"] = {{"quant_algo", "NVFP4_AWQ"}};
  ExpectError(Open(bare, other).status(), StatusCode::kUnimplemented,
              "hf_quant_config.json: quantization's quantized_layers: \"m\": "
              "quant_algo is \"NVFP4_AWQ\"");
}

// llm-compressor's of plain weights with a KV cache in e4m3.
TEST(CompressedTensorsPlain, KvCacheAlone) {
  auto stored = std::make_shared<MemoryWeights>(true);
  const float values[2] = {1, 2};
  stored->Add("l.weight", DType::kF32, {1, 2}, values);
  stored->Add("l.k_scale", DType::kF32, {1}, values);
  const Json good = {
      {"quant_method", "compressed-tensors"},
      {"format", "dense"},
      {"quantization_status", "frozen"},
      {"ignore", Json::array()},
      {"config_groups", Json::object()},
      {"kv_cache_scheme",
       {{"num_bits", 8}, {"type", "float"}, {"strategy", "tensor"}}}};
  for (const Json& groups : {Json::object(), Json()}) {
    Json config = good;
    config["config_groups"] = groups;
    const auto opened = OpenQuantized(config, stored);
    ASSERT_TRUE(opened.ok()) << opened.status();
    EXPECT_EQ((*opened)->weights().size(), 2u);
    EXPECT_EQ((*opened)->Find("l.weight")->dtype, DType::kF32);
  }
  const std::pair<const char*, Json> bad[] = {
      {"kv_cache_scheme", nullptr},
      {"config_groups", Json::array()},
      {"transform_config", {{"r3", 1}}},
      {"sparsity_config", {{"format", "sparse-24"}}}};
  for (const auto& [key, value] : bad) {
    Json config = good;
    config[key] = value;
    if (value.is_null()) config["quantization_status"] = "compressed";
    EXPECT_FALSE(OpenQuantized(config, stored).ok()) << key;
  }
}

}  // namespace
}  // namespace inlay
