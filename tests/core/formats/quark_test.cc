// AMD Quark's settings, and FBGEMM's FP8: what layers become, and what is
// refused. (Quark's own layers: packings_test.cc.)
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/core/formats/format_test_util.h"
#include "tests/core/formats/quantized_test_util.h"

namespace inlay {
namespace {

Json Weight(const char* dtype, const char* qscheme) {
  return {{"dtype", dtype}, {"qscheme", qscheme}, {"is_dynamic", false}};
}

Json Mxfp4Weight() {
  Json weight = Weight("fp4", "per_group");
  weight["group_size"] = 32;
  weight["ch_axis"] = -1;
  weight["scale_format"] = "e8m0";
  return weight;
}

Json Int4Weight(const char* dtype, int group_size) {
  Json weight = Weight(dtype, "per_group");
  weight["group_size"] = group_size;
  weight["ch_axis"] = 1;
  return weight;
}

Json QuarkSettings(const Json& weight) {
  return {{"quant_method", "quark"},
          {"global_quant_config", {{"weight", weight}}},
          {"exclude", {"lm_head"}},
          {"export",
           {{"weight_format", "real_quantized"}, {"pack_method", "reorder"}}}};
}

// Zeros.
void AddZeros(MemoryWeights& weights, const std::string& name, DType dtype,
              std::vector<int64_t> shape) {
  const std::vector<uint64_t> zeros(1 << 12, 0);
  weights.Add(name, dtype, std::move(shape), zeros.data());
}

// A layer of each type, and one that is plain.
std::shared_ptr<MemoryWeights> MixedQuark() {
  auto weights = std::make_shared<MemoryWeights>(true);
  AddZeros(*weights, "a.weight", DType::kF8E4M3, {4, 64});
  AddZeros(*weights, "a.weight_scale", DType::kF32, {});
  AddZeros(*weights, "a.input_scale", DType::kF32, {});
  AddZeros(*weights, "a.output_scale", DType::kF32, {});
  AddZeros(*weights, "b.weight", DType::kI8, {4, 64});
  AddZeros(*weights, "b.weight_scale", DType::kF32, {4});
  AddZeros(*weights, "b.weight_zero_point", DType::kI8, {4});
  AddZeros(*weights, "c.weight", DType::kU8, {4, 64});
  AddZeros(*weights, "c.weight_scale", DType::kU8, {4, 4});
  AddZeros(*weights, "d.weight", DType::kI32, {64, 1});
  AddZeros(*weights, "d.weight_scale", DType::kF32, {2, 8});
  AddZeros(*weights, "d.weight_zero_point", DType::kI32, {2, 1});
  AddZeros(*weights, "e.weight", DType::kF32, {4, 4});
  AddZeros(*weights, "f.weight", DType::kF8E4M3, {4, 64});
  AddZeros(*weights, "f.weight_scale", DType::kF32, {4});
  return weights;
}

Json MixedQuarkSettings() {
  Json config = QuarkSettings(Weight("fp8_e4m3", "per_tensor"));
  config["global_quant_config"]["input_tensors"] =
      Weight("fp8_e4m3", "per_tensor");
  config["layer_quant_config"] = {
      {"*b", {{"weight", Weight("int8", "per_channel")}}},
      {"*c", {{"weight", Mxfp4Weight()}, {"input_tensors", Mxfp4Weight()}}},
      {"*d", {{"weight", Int4Weight("uint4", 32)}}},
      {"*e", {{"weight", nullptr}}},
      {"*f", {{"weight", Weight("fp8_e4m3", "per_channel")}}}};
  return config;
}

TEST(Quark, EachLayerIsWhatItsTensorsSay) {
  const auto opened = OpenQuantized(MixedQuarkSettings(), MixedQuark());
  ASSERT_TRUE(opened.ok()) << opened.status();
  std::vector<std::string> seen;
  for (const WeightInfo& info : (*opened)->weights()) {
    seen.push_back(info.name + " " + std::string(DTypeName(info.dtype)));
    EXPECT_EQ(info.input_codes,
              info.name == "a.weight" ? InputCodes::kFp8 : InputCodes::kNone)
        << info.name;
  }
  EXPECT_EQ(seen, (std::vector<std::string>{
                      "a.weight f8_g32", "b.weight i8_g32", "c.weight mxfp4",
                      "d.weight u4_g32", "e.weight f32", "f.weight f8_g32"}));
}

TEST(Quark, InputsThatKernelsMayRound) {
  auto weights = std::make_shared<MemoryWeights>(true);
  AddZeros(*weights, "b.weight", DType::kI8, {4, 64});
  AddZeros(*weights, "b.weight_scale", DType::kF32, {4});
  const auto codes = [&](const Json& inputs, const Json& others) {
    Json config = QuarkSettings(Weight("int8", "per_channel"));
    config["global_quant_config"]["input_tensors"] = inputs;
    if (!others.is_null()) {
      config["layer_quant_config"]["x"] = config["global_quant_config"];
      config["layer_quant_config"]["x"]["input_tensors"] = others;
    }
    const auto opened = OpenQuantized(config, weights);
    EXPECT_TRUE(opened.ok()) << opened.status();
    const WeightInfo* weight =
        opened.ok() ? (*opened)->Find("b.weight") : nullptr;
    return weight == nullptr ? InputCodes::kFp8 : weight->input_codes;
  };
  Json by_token = Weight("int8", "per_channel");
  by_token["is_dynamic"] = true;
  by_token["symmetric"] = true;
  EXPECT_EQ(codes(by_token, nullptr), InputCodes::kInt8);
  EXPECT_EQ(codes(by_token, by_token), InputCodes::kInt8);
  // Only names would tell whose inputs are rounded.
  EXPECT_EQ(codes(by_token, Weight("int8", "per_tensor")), InputCodes::kNone);
  Json skewed = by_token;
  skewed["symmetric"] = false;
  EXPECT_EQ(codes(skewed, nullptr), InputCodes::kNone);
  EXPECT_EQ(codes(Weight("int8", "per_tensor"), nullptr), InputCodes::kNone);
}

TEST(Quark, OthersAreRefused) {
  const struct {
    const char* key;  // of the weights
    Json value;
    absl::StatusCode code;
    std::string text;
  } weights[] = {
      {"dtype", "mx", kUnsupported,
       "global_quant_config's dtype is \"mx\"; supported: fp4, fp8_e4m3, int4, "
       "int8, uint4"},
      {"dtype", "fp6_e2m3", kUnsupported, "fp6_e2m3"},
      {"dtype", 4, kInvalid, "dtype"},
      {"qscheme", "per_group", kUnsupported, "qscheme is \"per_group\""},
      {"is_dynamic", true, kUnsupported, "is_dynamic"},
  };
  for (const auto& [key, value, code, text] : weights) {
    SCOPED_TRACE(text);
    Json weight = Weight("fp8_e4m3", "per_tensor");
    weight[key] = value;
    ExpectError(OpenQuantized(QuarkSettings(weight), MixedQuark()).status(),
                code, text);
  }
  const auto refuses = [](Json weight, const char* key, const Json& value,
                          const std::string& text) {
    weight[key] = value;
    ExpectError(OpenQuantized(QuarkSettings(weight), MixedQuark()).status(),
                kUnsupported, text);
  };
  refuses(Weight("fp8_e4m3", "per_channel"), "ch_axis", 1, "ch_axis is \"1\"");
  refuses(Mxfp4Weight(), "scale_format", "e4m3", "e8m0 of groups of 32");
  refuses(Mxfp4Weight(), "group_size", 16, "e8m0 of groups of 16");
  refuses(Mxfp4Weight(), "ch_axis", 0, "ch_axis is \"0\"");
  refuses(Mxfp4Weight(), "qscheme", "per_tensor", "qscheme is");
  refuses(Int4Weight("int4", 32), "zero_point_type", "float32",
          "zero_point_type is \"float32\"");
  refuses(Int4Weight("int4", 32), "scale_format", "e5m3", "scale_format");
  const struct {
    const char* key;
    Json value;
    absl::StatusCode code;
    std::string text;
  } wholes[] = {
      {"exclude", 3, kInvalid, "exclude"},
      {"global_quant_config", 3, kInvalid, "global_quant_config is number"},
      {"global_quant_config",
       {{"weight", Json::array({Mxfp4Weight()})}},
       kUnsupported,
       "one spec"},
      {"global_quant_config",
       {{"bias", Weight("int8", "per_tensor")}},
       kUnsupported,
       "global_quant_config's bias"},
      {"layer_quant_config", 3, kInvalid, "layer_quant_config"},
      {"layer_quant_config",
       {{"*x", {{"weight", Weight("int2", "per_group")}}}},
       kUnsupported,
       "layer_quant_config: \"*x\"'s dtype is \"int2\""},
      {"layer_type_quant_config",
       {{"Linear", {{"weight", Weight("int2", "per_group")}}}},
       kUnsupported,
       "layer_type_quant_config: \"Linear\"'s dtype"},
      {"export",
       {{"weight_format", "fake_quantized"}},
       kUnsupported,
       "export: weight_format is \"fake_quantized\""},
      {"export", {{"pack_method", "x"}}, kUnsupported, "export: pack_method"},
      {"algo_config", 3, kInvalid, "algo_config"},
      {"algo_config",
       Json::array({{{"name", "rotation"}, {"r1", true}, {"r4", true}}}),
       kUnsupported, "algo_config's r4"},
      {"algo_config",
       Json::array({{{"name", "rotation"}, {"online_r1_rotation", true}}}),
       kUnsupported, "online_r1_rotation"},
      {"pre_quant_opt_config",
       {{"name", "quarot"}, {"r3", true}},
       kUnsupported,
       "pre_quant_opt_config's r3"},
  };
  for (const auto& [key, value, code, text] : wholes) {
    SCOPED_TRACE(text);
    Json config = MixedQuarkSettings();
    config[key] = value;
    ExpectError(OpenQuantized(config, MixedQuark()).status(), code, text);
  }
  Json turned = MixedQuarkSettings();
  turned["algo_config"] = Json::array(
      {{{"name", "rotation"}, {"r1", true}, {"r3", false}, {"r4", false}}});
  EXPECT_TRUE(OpenQuantized(turned, MixedQuark()).ok());
  const auto weights_turned = MixedQuark();
  AddZeros(*weights_turned, "a.input_rotation", DType::kI8, {4, 4});
  ExpectError(OpenQuantized(MixedQuarkSettings(), weights_turned).status(),
              kUnsupported, "a.input_rotation");
}

TEST(Quark, TensorsThatFitNoneOrSeveral) {
  // No config of the file is of these types.
  ExpectError(
      OpenQuantized(QuarkSettings(Weight("int8", "per_channel")), MixedQuark())
          .status(),
      kInvalid, "layer \"a\" has weights of type f8_e4m3, which no config");
  const auto open = [](const Json& d, const Change& change) {
    Json config = MixedQuarkSettings();
    if (!d.is_null()) config["layer_quant_config"]["*z"] = {{"weight", d}};
    return OpenQuantized(config, Changed(*MixedQuark(), change)).status();
  };
  const Change none = {"none"};
  EXPECT_TRUE(open(nullptr, none).ok());
  EXPECT_TRUE(open(Int4Weight("uint4", 64), none).ok());
  // Two's complement or not: the tensors do not tell.
  ExpectError(open(Int4Weight("int4", 32), none), kUnsupported,
              "layer \"d\" fits several");
  ExpectError(open(nullptr, {"a.weight_scale", DType::kF32, {3}}), kInvalid,
              "a.weight_scale");
  ExpectError(open(nullptr, {"b.weight_scale", DType::kF32, {3}}), kInvalid,
              "b.weight_scale");
  ExpectError(open(nullptr, {"b.weight_zero_point", DType::kI8, {3}}), kInvalid,
              "b.weight_zero_point");
  ExpectError(open(nullptr, {"b.weight_zero_point", DType::kF32, {4}}),
              kInvalid, "b.weight_zero_point");
  ExpectError(open(nullptr, {"c.weight_scale", DType::kU8, {4, 2}}), kInvalid,
              "c.weight_scale");
  ExpectError(open(nullptr, {"d.weight_scale", DType::kF32, {4, 8}}), kInvalid,
              "d.weight_scale");
  ExpectError(open(nullptr, {"d.weight_zero_point"}),
              absl::StatusCode::kNotFound, "d.weight_zero_point");
  ExpectError(open(nullptr, {"a.input_scale", DType::kF32, {3}}), kInvalid,
              "a.input_scale");
}

// Fields in their outputs' order, and a zero point of each sign.
TEST(Quark, Int4BitByBit) {
  for (const bool in_order : {false, true}) {
    const auto weights = std::make_shared<MemoryWeights>(true);
    std::vector<uint32_t> codes(32, 0);
    codes[17] = 0x76543210;
    const uint32_t zeros = 0xfedcba98;
    const std::vector<float> scales(8, 1.0f);
    weights->Add("l.weight", DType::kI32, {32, 1}, codes.data());
    weights->Add("l.weight_zero_point", DType::kI32, {1, 1}, &zeros);
    weights->Add("l.weight_scale", DType::kF32, {1, 8}, scales.data());
    for (const bool is_signed : {false, true}) {
      Json config = QuarkSettings(Int4Weight(is_signed ? "int4" : "uint4", 32));
      config["export"]["pack_method"] = in_order ? "order" : "reorder";
      const auto source = OpenQuantized(config, weights);
      ASSERT_TRUE(source.ok()) << source.status();
      const WeightInfo& info = *(*source)->Find("l.weight");
      const auto values = DecodeBlocks(info.dtype, ReadAllOf(**source, info));
      for (int field = 0; field < 8; ++field) {
        const int output = in_order ? field : (field * 2) % 8 + field / 4;
        // Zero points are 8 to 15, or -8 to -1.
        const int zero = 8 + field - (is_signed ? 16 : 0);
        EXPECT_EQ(values[static_cast<size_t>(output * 32 + 17)],
                  static_cast<float>(field - zero));
        EXPECT_EQ(values[static_cast<size_t>(output * 32)],
                  static_cast<float>(-zero));
      }
    }
  }
}

Checkpoint MakeFbgemm(uint32_t seed) {
  Draw draw(seed);
  Checkpoint out{{{"quant_method", "fbgemm_fp8"},
                  {"activation_scale_ub", 1200.0},
                  {"modules_to_not_convert", {"lm_head"}}},
                 std::make_shared<MemoryWeights>(true),
                 6,
                 128,
                 {}};
  std::vector<uint8_t> codes;
  for (const int code : draw.Ints(6 * 128, 0, 255)) {
    codes.push_back(static_cast<uint8_t>((code & 127) == 127 ? 0 : code));
  }
  const std::vector<float> scales = draw.Scales(6);
  out.weights->Add("l.weight", DType::kF8E4M3, {6, 128}, codes.data());
  out.weights->Add("l.weight_scale", DType::kF32, {6, 1}, scales.data());
  for (size_t i = 0; i < codes.size(); ++i) {
    out.dense.push_back(double{scales[i / 128]} *
                        double{F8E4M3ToF32(codes[i])});
  }
  return out;
}

TEST(FbgemmFp8, LayersBecomeBlocks) {
  Checkpoint checkpoint = MakeFbgemm(1);
  CheckLayer(checkpoint, "f8_g128", false);
  const float bound = 1200.0f;
  checkpoint.weights->Add("l.input_scale_ub", DType::kF32, {1}, &bound);
  CheckLayer(checkpoint, "f8_g128", false);
  const auto opened = OpenQuantized(checkpoint.config, checkpoint.weights);
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ((*opened)->Find("l.weight")->input_codes, InputCodes::kFp8);
  const auto open = [&](const Change& change) {
    return OpenQuantized(checkpoint.config,
                         Changed(*checkpoint.weights, change))
        .status();
  };
  ExpectError(open({"l.weight_scale"}), absl::StatusCode::kNotFound,
              "l.weight_scale");
  ExpectError(open({"l.weight_scale", DType::kF32, {1}}), kInvalid, "[6, 1]");
  ExpectError(open({"l.weight", DType::kF8E4M3, {6, 40}}), kUnsupported,
              "k = 40");
  for (const Json& bad : {Json("x"), Json(-1)}) {
    Json config = checkpoint.config;
    config["activation_scale_ub"] = bad;
    ExpectError(OpenQuantized(config, checkpoint.weights).status(), kInvalid,
                "activation_scale_ub");
  }
  Json config = checkpoint.config;
  config["modules_to_not_convert"] = 3;
  ExpectError(OpenQuantized(config, checkpoint.weights).status(), kInvalid,
              "modules_to_not_convert");
}

}  // namespace
}  // namespace inlay
