// BitNet's layers, packed and as floats that stand for them, as they come out
// of a source.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/core/formats/quantized_test_util.h"

namespace inlay {
namespace {

// `kind`: linear_class, whose scale multiplies, or divides.
Checkpoint MakeBitnet(const std::string& kind, int64_t n, int64_t k,
                      bool mapped) {
  Draw draw(static_cast<uint32_t>(n + k));
  Checkpoint out{{{"quant_method", "bitnet"},
                  {"linear_class", kind},
                  {"modules_to_not_convert", nullptr}},
                 std::make_shared<MemoryWeights>(mapped),
                 n,
                 k,
                 {}};
  const bool divides = kind == "bitlinear";
  const float scale = divides ? 0x1p6f : draw.Scales(1)[0];
  std::vector<uint8_t> packed(static_cast<size_t>(n / 4 * k), 0);
  for (int64_t o = 0; o < n; ++o) {
    for (int64_t i = 0; i < k; ++i) {
      const int code = draw.Int(0, 2);
      const auto at = static_cast<size_t>(o % (n / 4) * k + i);
      packed[at] |= static_cast<uint8_t>(code << (2 * (o / (n / 4))));
      out.dense.push_back((code - 1) *
                          (divides ? 1.0 / double{scale} : double{scale}));
    }
  }
  out.weights->Add("l.weight", DType::kU8, {n / 4, k}, packed.data());
  AddFloats(*out.weights, "l.weight_scale", DType::kBF16, {1}, {scale});
  return out;
}

TEST(BitnetTest, PackedLayers) {
  for (const char* kind : {"bitlinear", "autobitlinear"}) {
    for (const bool mapped : {false, true}) {
      SCOPED_TRACE(kind);
      CheckLayer(MakeBitnet(kind, 8, 64, mapped), "u4_g32", false);
      CheckLayer(MakeBitnet(kind, 12, 256, mapped), "u4_g128", false);
    }
  }
}

// Codes by hand: 0b10010100 is, from the low bits on, 0, 1, 1, 2.
TEST(BitnetTest, BitByBit) {
  auto weights = std::make_shared<MemoryWeights>(true);
  const std::vector<uint8_t> packed(32, 0b10010100);
  const float scale = 0.5f;
  weights->Add("l.weight", DType::kU8, {1, 32}, packed.data());
  weights->Add("l.weight_scale", DType::kF32, {1}, &scale);
  const Json config = {{"quant_method", "bitnet"},
                       {"linear_class", "autobitlinear"},
                       {"quantization_mode", "offline"}};
  const auto opened = OpenQuantized(config, weights);
  ASSERT_TRUE(opened.ok()) << opened.status();
  const WeightInfo* info = (*opened)->Find("l.weight");
  const auto values = DecodeBlocks(info->dtype, ReadAllOf(**opened, *info));
  const float wanted[] = {-0.5f, 0.0f, 0.0f, 0.5f};
  ASSERT_EQ(values.size(), 128u);
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(values[i], wanted[i / 32]) << i;
  }
}

// Floats that stand for ternary weights: of layers alone, each by the mean of
// its own magnitudes.
TEST(BitnetTest, OnlineLayers) {
  constexpr int64_t kRows = 6, kColumns = 96;
  Draw draw(3);
  std::vector<float> values;
  double sum = 0.0;
  for (int64_t i = 0; i < kRows * kColumns; ++i) {
    values.push_back(static_cast<float>(draw.Int(-99, 99)) * 0x1p-9f);
    sum += std::fabs(double{values.back()});
  }
  const double mean = sum / (kRows * kColumns);
  auto weights = std::make_shared<MemoryWeights>(true);
  const std::vector<int64_t> shape = {kRows, kColumns};
  for (const char* name :
       {"model.layers.0.q_proj.weight", "model.embed_tokens.weight"}) {
    AddFloats(*weights, name, DType::kBF16, shape, values);
  }
  AddFloats(*weights, "model.layers.0.norm.weight", DType::kBF16, {kColumns},
            {values.begin(), values.begin() + kColumns});
  Json config = {{"quant_method", "bitnet"},
                 {"linear_class", "autobitlinear"},
                 {"quantization_mode", "online"}};
  const auto opened = OpenQuantized(config, weights);
  ASSERT_TRUE(opened.ok()) << opened.status();
  const WeightSource& source = **opened;
  ASSERT_EQ(source.weights().size(), 3u);
  EXPECT_EQ(source.Find("model.embed_tokens.weight")->dtype, DType::kBF16);
  EXPECT_EQ(source.Find("model.layers.0.norm.weight")->dtype, DType::kBF16);
  const WeightInfo* info = source.Find("model.layers.0.q_proj.weight");
  EXPECT_EQ(info->shape, shape);
  const auto got = DecodeBlocks(info->dtype, ReadAllOf(source, *info));
  ASSERT_EQ(got.size(), values.size());
  int counts[3] = {};
  for (size_t i = 0; i < got.size(); ++i) {
    // No value lies where float32 could round otherwise.
    const double ratio = values[i] / mean;
    ASSERT_GT(std::fabs(std::fabs(ratio) - 0.5), 1e-5);
    const int code = ratio > 0.5 ? 1 : ratio < -0.5 ? -1 : 0;
    ++counts[code + 1];
    ASSERT_NEAR(got[i], code * mean, 4 * 0x1p-24 * mean) << i;
  }
  for (const int count : counts) EXPECT_GT(count, 0);
  config["modules_to_not_convert"] = {"lm_head"};
  EXPECT_TRUE(OpenQuantized(config, weights).ok());
  for (const Json& names :
       {Json::array({"model.layers.0.q_proj"}),
        Json::array({"lm_head", "q_proj"}), Json::array()}) {
    config["modules_to_not_convert"] = names;
    const absl::Status kept = OpenQuantized(config, weights).status();
    EXPECT_TRUE(absl::IsUnimplemented(kept)) << kept;
    EXPECT_NE(kept.message().find("modules_to_not_convert"), std::string::npos)
        << kept;
  }
}

// Experts are no layers of transformers' that it would convert.
TEST(BitnetTest, OnlineExpertsAreRefused) {
  auto weights = std::make_shared<MemoryWeights>(true);
  const std::vector<float> values(32 * 32, 0.5f);
  AddFloats(*weights, "model.layers.0.mlp.shared_experts.up_proj.weight",
            DType::kF32, {32, 32}, values);
  Json config = {{"quant_method", "bitnet"},
                 {"linear_class", "autobitlinear"},
                 {"quantization_mode", "online"}};
  EXPECT_TRUE(OpenQuantized(config, weights).ok());
  const std::string expert = "model.layers.0.mlp.experts.1.up_proj.weight";
  AddFloats(*weights, expert, DType::kF32, {32, 32}, values);
  const absl::Status status = OpenQuantized(config, weights).status();
  EXPECT_TRUE(absl::IsUnimplemented(status)) << status;
  for (const char* name : {"quantization_mode", expert.c_str()}) {
    EXPECT_NE(status.message().find(name), std::string::npos) << status;
  }
}

// As transformers saves a model of class "autobitlinear" that it has loaded.
TEST(BitnetTest, SavedAgainAsFloats) {
  std::vector<float> values;
  Draw draw(5);
  for (int i = 0; i < 4 * 64; ++i) {
    values.push_back(static_cast<float>(draw.Int(-1, 1)));
  }
  const Json config = {{"quant_method", "bitnet"},
                       {"linear_class", "autobitlinear"}};
  const auto weights_of = [&](std::vector<float> of) {
    auto weights = std::make_shared<MemoryWeights>(true);
    AddFloats(*weights, "l.weight", DType::kBF16, {4, 64}, of);
    AddFloats(*weights, "l.weight_scale", DType::kBF16, {1}, {0.75f});
    return weights;
  };
  const auto opened = OpenQuantized(config, weights_of(values));
  ASSERT_TRUE(opened.ok()) << opened.status();
  const WeightInfo* info = (*opened)->Find("l.weight");
  EXPECT_EQ(info->shape, (std::vector<int64_t>{4, 64}));
  const auto got = DecodeBlocks(info->dtype, ReadAllOf(**opened, *info));
  ASSERT_EQ(got.size(), values.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i], 0.75f * values[i]) << i;
  }
  // What is not ternary is said when it is read.
  for (const float other : {0.5f, 2.0f, NAN}) {
    values[100] = other;
    const auto wrong = OpenQuantized(config, weights_of(values));
    ASSERT_TRUE(wrong.ok()) << wrong.status();
    const WeightInfo* weight = (*wrong)->Find("l.weight");
    std::vector<std::byte> bytes(weight->bytes);
    const absl::Status status =
        (*wrong)->Read(*weight, 0, absl::MakeSpan(bytes));
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_NE(status.message().find("l.weight"), std::string::npos) << status;
  }
  // Class "bitlinear" has packed ones alone.
  EXPECT_FALSE(
      OpenQuantized({{"quant_method", "bitnet"}}, weights_of(values)).ok());
}

TEST(BitnetTest, ErrorsNameWhatIsWrong) {
  const Checkpoint good = MakeBitnet("autobitlinear", 8, 64, true);
  const auto status_of = [&](const char* key, const Json& value) {
    Json config = good.config;
    config[key] = value;
    return OpenQuantized(config, good.weights).status();
  };
  for (const auto& [key, value] :
       {std::pair<const char*, Json>{"linear_class", "linear"},
        {"quantization_mode", "later"},
        {"use_rms_norm", true}}) {
    const absl::Status status = status_of(key, value);
    EXPECT_TRUE(absl::IsUnimplemented(status)) << status;
    EXPECT_NE(status.message().find(key), std::string::npos) << status;
  }
  EXPECT_TRUE(absl::IsInvalidArgument(status_of("linear_class", 1)));
  const Change changes[] = {{"l.weight", DType::kI32, {2, 64}},
                            {"l.weight", std::nullopt, {}},
                            {"l.weight", DType::kU8, {2}},
                            {"l.weight_scale", DType::kF32, {2}},
                            {"l.weight_scale", DType::kF32, {1}, INFINITY},
                            {"l.weight_scale", DType::kI32, {1}}};
  for (const Change& change : changes) {
    const auto opened =
        OpenQuantized(good.config, Changed(*good.weights, change));
    EXPECT_FALSE(opened.ok()) << change.name;
    EXPECT_NE(opened.status().message().find("l.weight"), std::string::npos)
        << opened.status();
  }
}

}  // namespace
}  // namespace inlay
