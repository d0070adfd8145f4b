// TorchAO's settings: what layers become, and what is refused. (Its own layers:
// packings_test.cc.)
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/core/formats/format_test_util.h"
#include "tests/core/formats/quantized_test_util.h"

namespace inlay {
namespace {

Json AoConfig(const char* type, const Json& data = Json::object()) {
  return {{"_type", type}, {"_version", 2}, {"_data", data}};
}

Json AoSettings(const Json& config) {
  return {{"quant_method", "torchao"}, {"quant_type", {{"default", config}}}};
}

Json AoName(const char* type, const char* name) {
  return {{"_type", type}, {"_data", name}};
}

Json Intx(const char* dtype) {
  return AoConfig("IntxWeightOnlyConfig",
                  {{"weight_dtype", AoName("torch.dtype", dtype)}});
}

Json ByName(const Json& configs) {
  return AoConfig("FqnToConfig", {{"fqn_to_config", configs}});
}

void AddFilled(MemoryWeights& weights, const std::string& name, DType dtype,
               std::vector<int64_t> shape, uint8_t byte = 0) {
  const std::vector<uint8_t> bytes(1 << 12, byte);
  weights.Add(name, dtype, std::move(shape), bytes.data());
}

// A layer of each class, and one that is plain.
std::shared_ptr<MemoryWeights> MixedTorchAo() {
  auto weights = std::make_shared<MemoryWeights>(true);
  AddFilled(*weights, "a._weight_qdata", DType::kF8E4M3, {4, 64});
  AddFilled(*weights, "a._weight_scale", DType::kF32, {1, 1});
  AddFilled(*weights, "b._weight_qdata", DType::kI8, {4, 64});
  AddFilled(*weights, "b._weight_scale", DType::kF32, {4, 1});
  AddFilled(*weights, "b._weight_act_quant_scale", DType::kF32, {1, 1});
  AddFilled(*weights, "c._weight_qdata", DType::kI8, {4, 64});
  AddFilled(*weights, "c._weight_scale", DType::kBF16, {2, 64});
  // Not the same shape: an int4 layer of 4 x 128.
  AddFilled(*weights, "d._weight_qdata", DType::kI8, {4, 64});
  AddFilled(*weights, "d._weight_scale", DType::kBF16, {1, 4});
  AddFilled(*weights, "d._weight_zero_point", DType::kBF16, {1, 4});
  AddFilled(*weights, "e.weight", DType::kF32, {4, 4});
  return weights;
}

Json AllConfigs() {
  return {{"a", AoConfig("Float8DynamicActivationFloat8WeightConfig")},
          {"b", AoConfig("Int8WeightOnlyConfig")},
          {"d", AoConfig("Int4WeightOnlyConfig",
                         {{"int4_packing_format",
                           AoName("Int4PackingFormat", "PLAIN")}})},
          {"re:.*e", nullptr}};
}

std::vector<std::string> Presented(const Json& settings,
                                   std::shared_ptr<MemoryWeights> weights) {
  const auto opened = OpenQuantized(settings, std::move(weights));
  EXPECT_TRUE(opened.ok()) << opened.status();
  std::vector<std::string> seen;
  if (!opened.ok()) return seen;
  for (const WeightInfo& info : (*opened)->weights()) {
    seen.push_back(info.name + " " + std::string(DTypeName(info.dtype)));
  }
  return seen;
}

TEST(TorchAo, EachLayerIsWhatItsTensorsSay) {
  auto weights = MixedTorchAo();
  // Groups of one column have no block.
  ExpectError(OpenQuantized(AoSettings(ByName(AllConfigs())), weights).status(),
              kUnsupported, "groups of 1 of its k = 64");
  weights = Changed(*weights, {"c._weight_scale", DType::kBF16, {2, 2}});
  EXPECT_EQ(Presented(AoSettings(ByName(AllConfigs())), weights),
            (std::vector<std::string>{"a.weight f8_g32", "b.weight i8_g32",
                                      "c.weight i8_g32", "d.weight u4_g128",
                                      "e.weight f32"}));
}

TEST(TorchAo, FewBitsAreU4WhereNothingElseIsBytes) {
  auto weights = std::make_shared<MemoryWeights>(true);
  AddFilled(*weights, "c._weight_qdata", DType::kI8, {4, 64}, 0xf9);  // -7
  AddFilled(*weights, "c._weight_scale", DType::kBF16, {4, 2});
  AddFilled(*weights, "c._weight_zero_point", DType::kI8, {4, 2});
  const auto dtypes = [&](const Json& config) {
    return Presented(AoSettings(config), weights);
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(dtypes(Intx("int4")), Names{"c.weight u4_g32"});
  EXPECT_EQ(dtypes(Intx("int1")), Names{"c.weight u4_g32"});
  EXPECT_EQ(dtypes(Intx("int5")), Names{"c.weight i8_g32"});
  EXPECT_EQ(dtypes(ByName({{"c", Intx("int3")}, {"d", Intx("int4")}})),
            Names{"c.weight u4_g32"});
  EXPECT_EQ(dtypes(ByName({{"c", Intx("int3")}, {"d", Intx("int8")}})),
            Names{"c.weight i8_g32"});
  EXPECT_EQ(dtypes(AoConfig("GPTQConfig", {{"base_config", Intx("int4")}})),
            Names{"c.weight u4_g32"});
  // Codes that need more bits than that.
  auto wide = std::make_shared<MemoryWeights>(true);
  for (const WeightInfo& info : weights->weights()) {
    wide->Add(info, weights->Mapped(info));
  }
  AddFilled(*wide, "d._weight_qdata", DType::kI8, {4, 64}, 8);
  AddFilled(*wide, "d._weight_scale", DType::kBF16, {4, 2});
  const auto opened = OpenQuantized(AoSettings(Intx("int4")), wide);
  ASSERT_TRUE(opened.ok()) << opened.status();
  std::vector<std::byte> bytes(64);
  EXPECT_TRUE((*opened)
                  ->Read(*(*opened)->Find("c.weight"), 0,
                         absl::MakeSpan(bytes).first(24))
                  .ok());
  ExpectError((*opened)->Read(*(*opened)->Find("d.weight"), 0,
                              absl::MakeSpan(bytes).first(24)),
              kInvalid, "\"d._weight_qdata\" has code 8");
}

TEST(TorchAo, InputsThatKernelsMayRound) {
  auto weights = std::make_shared<MemoryWeights>(true);
  AddFilled(*weights, "b._weight_qdata", DType::kI8, {4, 64});
  AddFilled(*weights, "b._weight_scale", DType::kF32, {4, 1});
  const auto codes = [&](const Json& config) {
    const auto opened = OpenQuantized(AoSettings(config), weights);
    EXPECT_TRUE(opened.ok()) << opened.status();
    return opened.ok() ? (*opened)->Find("b.weight")->input_codes
                       : InputCodes::kFp8;
  };
  constexpr char kDynamic[] = "Int8DynamicActivationInt8WeightConfig";
  EXPECT_EQ(codes(AoConfig(kDynamic)), InputCodes::kInt8);
  EXPECT_EQ(codes(AoConfig("Int8WeightOnlyConfig")), InputCodes::kNone);
  EXPECT_EQ(codes(AoConfig("Int8StaticActivationInt8WeightConfig")),
            InputCodes::kNone);
  EXPECT_EQ(codes(AoConfig(kDynamic, {{"act_mapping_type",
                                       AoName("MappingType", "ASYMMETRIC")}})),
            InputCodes::kNone);
  EXPECT_EQ(codes(AoConfig(kDynamic, {{"weight_only_decode", true}})),
            InputCodes::kNone);
  EXPECT_EQ(codes(AoConfig(kDynamic, {{"granularity", AoConfig("PerTensor")}})),
            InputCodes::kNone);
  // Only names would tell whose inputs are rounded.
  EXPECT_EQ(codes(ByName({{"b", AoConfig(kDynamic)},
                          {"c", AoConfig("Int8WeightOnlyConfig")}})),
            InputCodes::kNone);
  const auto fp8 = OpenQuantized(
      AoSettings(ByName(AllConfigs())),
      Changed(*MixedTorchAo(), {"c._weight_scale", DType::kBF16, {2, 2}}));
  ASSERT_TRUE(fp8.ok()) << fp8.status();
  EXPECT_EQ((*fp8)->Find("a.weight")->input_codes, InputCodes::kFp8);
}

TEST(TorchAo, OtherSettingsAreRefused) {
  Json nested = AoConfig("Int8WeightOnlyConfig");
  for (int i = 0; i < 6; ++i) nested = ByName({{"a", nested}});
  const struct {
    Json settings;
    absl::StatusCode code;
    std::string text;
  } cases[] = {
      {{{"quant_method", "torchao"}}, kInvalid, "quant_type is \"null\""},
      {{{"quant_method", "torchao"}, {"quant_type", "int4_weight_only"}},
       kInvalid,
       "int4_weight_only"},
      {AoSettings("int8"), kInvalid, "must be an object"},
      {AoSettings(AoConfig("UIntxWeightOnlyConfig")), kUnsupported,
       "_type is \"UIntxWeightOnlyConfig\"; supported: Float8Dynamic"},
      {AoSettings(AoConfig("Int8WeightOnlyConfig", 3)), kInvalid, "_data"},
      {AoSettings(
           AoConfig("Int4WeightOnlyConfig",
                    {{"int4_packing_format",
                      AoName("Int4PackingFormat", "TILE_PACKED_TO_4D")}})),
       kUnsupported, "int4_packing_format is \"TILE_PACKED_TO_4D\""},
      {AoSettings(AoConfig("Float8DynamicActivationInt4WeightConfig")),
       kUnsupported, "int4_packing_format is \"preshuffled\""},
      {AoSettings(Intx("uint4")), kUnsupported, "weight_dtype is \"uint4\""},
      {AoSettings(AoConfig("GPTQConfig")), kInvalid, "base_config is null"},
      {AoSettings(ByName({{"a", 5}})), kInvalid, "fqn_to_config: \"a\" is"},
      {AoSettings(ByName(3)), kInvalid, "fqn_to_config is \"3\""},
      {AoSettings(nested), kInvalid, "at most 4 deep"},
  };
  for (const auto& [settings, code, text] : cases) {
    SCOPED_TRACE(text);
    ExpectError(
        OpenQuantized(settings, std::make_shared<MemoryWeights>(true)).status(),
        code, text);
  }
}

TEST(TorchAo, TensorsThatDoNotFit) {
  const Json settings = AoSettings(ByName(AllConfigs()));
  const auto good =
      Changed(*MixedTorchAo(), {"c._weight_scale", DType::kBF16, {2, 2}});
  ASSERT_TRUE(OpenQuantized(settings, good).ok());
  const struct {
    Change change;
    absl::StatusCode code;
    std::string text;
  } cases[] = {
      {{"a._weight_scale", {}, {}},
       absl::StatusCode::kNotFound,
       "\"a._weight_scale\" is missing"},
      {{"a._weight_scale", DType::kI8, {1, 1}}, kInvalid, "a._weight_scale"},
      {{"b._weight_scale", DType::kF32, {3, 1}},
       kInvalid,
       "has 3 scales along 4"},
      {{"b._weight_zero_point", DType::kI8, {2, 1}},
       kInvalid,
       "b._weight_zero_point"},
      {{"d._weight_scale", DType::kBF16, {3, 4}},
       kInvalid,
       "scales of 3 groups"},
      {{"d._weight_zero_point", DType::kBF16, {1, 3}},
       kInvalid,
       "d._weight_zero_point"},
      {{"d._weight_qdata", DType::kI32, {4, 16}}, kInvalid, "d._weight_qdata"},
      {{"b._weight_act_pre_scale", DType::kF32, {64}},
       kUnsupported,
       "inputs are multiplied"},
      {{"f._gate_up_proj_qdata", DType::kI8, {2, 4, 64}},
       kUnsupported,
       "\"f._gate_up_proj_qdata\" is quantised"},
  };
  for (const auto& [change, code, text] : cases) {
    SCOPED_TRACE(text);
    ExpectError(OpenQuantized(settings, Changed(*good, change)).status(), code,
                text);
  }
  // Layers of a class that no config has.
  for (const char* name : {"a", "b", "d"}) {
    SCOPED_TRACE(name);
    Json configs = AllConfigs();
    configs.erase(name);
    ExpectError(OpenQuantized(AoSettings(ByName(configs)), good).status(),
                kInvalid, "which no config of");
  }
}

}  // namespace
}  // namespace inlay
