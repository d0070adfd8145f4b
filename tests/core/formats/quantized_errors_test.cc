// What the quantisation methods refuse: settings, and tensors of hostile files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "core/formats/quantized_source.h"
#include "tests/core/formats/format_test_util.h"
#include "tests/support/memory_weights.h"

namespace inlay {
namespace {

using ::testing::HasSubstr;

struct StoredSpec {
  DType dtype;
  std::vector<int64_t> shape;
};
using StoredSpecs = std::map<std::string, StoredSpec>;

// Zeros; of "shape" tensors the two values.
absl::Status OpenSpecs(const Json& config, const StoredSpecs& specs,
                       std::vector<int64_t> shape_values = {4, 32}) {
  const auto weights = std::make_shared<MemoryWeights>(true);
  for (const auto& [name, spec] : specs) {
    uint64_t elements = 1;
    for (const int64_t dim : spec.shape) {
      elements *= static_cast<uint64_t>(dim);
    }
    std::vector<std::byte> bytes(RowBytes(spec.dtype, elements) + 16);
    if (name.ends_with("weight_shape")) {
      std::memcpy(bytes.data(), shape_values.data(),
                  shape_values.size() * sizeof(int64_t));
    }
    weights->Add(name, spec.dtype, spec.shape, bytes.data());
  }
  return OpenQuantized(config, weights).status();
}

const Json& GptqSettings() {
  static const Json& config =
      *new Json{{"quant_method", "gptq"}, {"bits", 4}, {"group_size", 32}};
  return config;
}

StoredSpecs GptqTensors() {
  return {{"l.qweight", {DType::kI32, {8, 8}}},
          {"l.qzeros", {DType::kI32, {2, 1}}},
          {"l.scales", {DType::kF16, {2, 8}}},
          {"l.g_idx", {DType::kI32, {64}}}};
}

Json CtSettings(const std::string& format = "pack-quantized") {
  return {{"quant_method", "compressed-tensors"},
          {"format", format},
          {"config_groups",
           {{"g",
             {{"targets", {"Linear"}},
              {"weights",
               {{"num_bits", format == "pack-quantized" ? 4 : 8},
                {"type", format == "float-quantized" ? "float" : "int"},
                {"symmetric", true},
                {"strategy", "channel"}}}}}}}};
}

StoredSpecs CtPacked() {
  return {{"l.weight_packed", {DType::kI32, {4, 4}}},
          {"l.weight_shape", {DType::kI64, {2}}},
          {"l.weight_scale", {DType::kBF16, {4, 1}}}};
}

StoredSpecs Fp8Blocks() {
  return {{"l.weight", {DType::kF8E4M3, {4, 64}}},
          {"l.weight_scale_inv", {DType::kF32, {2, 2}}}};
}

Json Fp8Settings() {
  return {{"quant_method", "fp8"}, {"weight_block_size", {2, 32}}};
}

TEST(QuantizedErrors, Methods) {
  for (const char* method : {"hqq", "spqr", ""}) {
    const absl::Status status = OpenSpecs({{"quant_method", method}}, {});
    ExpectError(status, kUnsupported, method);
    ExpectError(status, kUnsupported,
                "auto-round, awq, bitnet, bitsandbytes, compressed-tensors, "
                "fbgemm_fp8, fp8, gptq, modelopt, mxfp4, quark, torchao");
  }
  // Without experts there is nothing to present.
  EXPECT_TRUE(OpenSpecs({{"quant_method", "mxfp4"}}, {}).ok());
  ExpectError(
      OpenSpecs({{"quant_method", "mxfp4"}, {"modules_to_not_convert", 3}}, {}),
      kInvalid, "modules_to_not_convert");
  ExpectError(OpenSpecs({{"quant_method", 4}}, {}), kInvalid, "quant_method");
  ExpectError(OpenSpecs("gptq", {}), kInvalid, "must be an object");
}

TEST(QuantizedErrors, GptqAndAwqSettings) {
  const struct {
    const char* key;
    Json value;
    absl::StatusCode code;
  } gptq[] = {
      {"bits", 5, kUnsupported},
      {"bits", 3, kInvalid},  // the tensors disagree
      {"bits", nullptr, kUnsupported},
      {"bits", "4", kInvalid},
      {"group_size", 0, kInvalid},
      {"group_size", -2, kInvalid},
      {"group_size", 24, kInvalid},  // the scales disagree
      {"checkpoint_format", "marlin", kUnsupported},
      {"pack_dtype", "int16", kUnsupported},
      {"is_marlin_format", true, kUnsupported},
      {"desc_act", 1, kInvalid},
      {"sym", "yes", kInvalid},
      {"dynamic", Json::array(), kInvalid},
      {"dynamic", {{"+:.*down.*", {{"bits", 6}}}}, kUnsupported},
  };
  EXPECT_TRUE(OpenSpecs(GptqSettings(), GptqTensors()).ok());
  for (const auto& [key, value, code] : gptq) {
    SCOPED_TRACE(key + DumpJson(value));
    Json config = GptqSettings();
    config[key] = value;
    EXPECT_EQ(OpenSpecs(config, GptqTensors()).code(), code);
  }
  Json skipped = GptqSettings();
  skipped["dynamic"] = {{"-:.*gate.*", Json::object()}};
  EXPECT_TRUE(OpenSpecs(skipped, GptqTensors()).ok());
  const Json awq = {{"quant_method", "awq"}};
  EXPECT_TRUE(OpenSpecs(awq, {}).ok());
  const std::pair<const char*, Json> others[] = {
      {"bits", 8}, {"version", "gemv_fast"}, {"backend", "llm-awq"}};
  for (const auto& [key, value] : others) {
    Json config = awq;
    config[key] = value;
    ExpectError(OpenSpecs(config, {}), kUnsupported, key);
  }
  Json names = awq;
  names["modules_to_not_convert"] = {1};
  ExpectError(OpenSpecs(names, {}), kInvalid, "modules_to_not_convert");
}

TEST(QuantizedErrors, GptqTensors) {
  const struct {
    const char* name;
    StoredSpec spec;
    const char* text;
  } cases[] = {
      {"l.qweight", {DType::kI64, {8, 8}}, "l.qweight"},
      {"l.qweight", {DType::kI32, {8, 8, 1}}, "two dimensions"},
      {"l.qweight", {DType::kI32, {64}}, "two dimensions"},
      {"l.qweight", {DType::kI32, {0, 8}}, "0"},
      {"l.qweight", {DType::kI32, {8, 0}}, "0"},
      {"l.qweight", {DType::kI32, {8, 12}}, "multiple of 8"},
      {"l.qweight", {DType::kI32, {12, 8}}, "[3, 8]"},
      {"l.qzeros", {DType::kI32, {2, 2}}, "l.qzeros"},
      {"l.qzeros", {DType::kI32, {1, 1}}, "[2, 1]"},
      {"l.qzeros", {DType::kF32, {2, 1}}, "f32"},
      {"l.scales", {DType::kF16, {8, 2}}, "[2, 8]"},
      {"l.scales", {DType::kI32, {2, 8}}, "f16, bf16, f32"},
      {"l.g_idx", {DType::kI32, {63}}, "[64]"},
      {"l.g_idx", {DType::kI32, {8, 8}}, "[64]"},
      {"l.g_idx", {DType::kI64, {64}}, "i64"},
  };
  for (const auto& [name, spec, text] : cases) {
    StoredSpecs tensors = GptqTensors();
    tensors[name] = spec;
    ExpectError(OpenSpecs(GptqSettings(), tensors), kInvalid, text);
  }
  for (const char* name : {"l.qzeros", "l.scales"}) {
    StoredSpecs tensors = GptqTensors();
    tensors.erase(name);
    ExpectError(OpenSpecs(GptqSettings(), tensors), kMissing, name);
  }
  StoredSpecs tensors = GptqTensors();
  tensors.erase("l.g_idx");
  EXPECT_TRUE(OpenSpecs(GptqSettings(), tensors).ok());
  Json act_order = GptqSettings();
  act_order["desc_act"] = true;
  ExpectError(OpenSpecs(act_order, tensors), kMissing, "l.g_idx");
  tensors["l.weight"] = {DType::kF32, {8, 64}};
  ExpectError(OpenSpecs(GptqSettings(), tensors), kInvalid, "l.weight");
  // No block of ours fits.
  Json small = GptqSettings();
  small["group_size"] = 16;
  ExpectError(OpenSpecs(small, {{"l.qweight", {DType::kI32, {8, 8}}},
                                {"l.qzeros", {DType::kI32, {4, 1}}},
                                {"l.scales", {DType::kF16, {4, 8}}}}),
              kUnsupported, "groups of 16 of its k = 64");
}

TEST(QuantizedErrors, GroupIndex) {
  for (const auto& [value, code] :
       {std::pair{-1, kInvalid}, {2, kInvalid}, {1, kUnsupported}}) {
    const auto weights = std::make_shared<MemoryWeights>(true);
    const std::vector<int32_t> zeros(8 * 8, 0);
    weights->Add("l.qweight", DType::kI32, {8, 8}, zeros.data());
    weights->Add("l.qzeros", DType::kI32, {2, 1}, zeros.data());
    weights->Add("l.scales", DType::kF16, {2, 8}, zeros.data());
    std::vector<int32_t> index(64, 0);
    index[5] = value;  // 1: groups of 63 and 1
    weights->Add("l.g_idx", DType::kI32, {64}, index.data());
    ExpectError(OpenQuantized(GptqSettings(), weights).status(), code, "\"l\"");
  }
}

TEST(QuantizedErrors, CompressedTensorsSettings) {
  using Edit = std::function<void(Json&, Json&)>;  // whole, weights
  const struct {
    Edit edit;
    absl::StatusCode code;
    const char* text;
  } cases[] = {
      {[](Json& c, Json&) { c["format"] = "marlin-24"; }, kUnsupported,
       "marlin-24"},
      {[](Json& c, Json&) { c["format"] = "float-quantized"; }, kUnsupported,
       "float-quantized of type int"},
      {[](Json& c, Json&) { c["quantization_status"] = "frozen"; },
       kUnsupported, "frozen"},
      {[](Json& c, Json&) {
         c["sparsity_config"] = {{"format", "sparse-24"}};
       },
       kUnsupported, "sparse-24"},
      {[](Json& c, Json&) {
         c["transform_config"] = {{"r1", 1}};
       },
       kUnsupported, "transform_config"},
      {[](Json& c, Json&) { c["ignore"] = "lm_head"; }, kInvalid, "ignore"},
      {[](Json& c, Json&) { c["config_groups"] = Json::array(); }, kInvalid,
       "config_groups"},
      {[](Json& c, Json&) { c["config_groups"] = Json::object(); }, kInvalid,
       "one group or more"},
      {[](Json& c, Json&) { c["config_groups"]["g"] = "W4A16"; }, kInvalid,
       "objects"},
      {[](Json& c, Json&) { c["config_groups"]["g"]["targets"] = 3; }, kInvalid,
       "targets"},
      {[](Json& c, Json&) { c["config_groups"]["g"]["weights"] = 3; }, kInvalid,
       "weights"},
      {[](Json&, Json& w) { w["num_bits"] = 3; }, kUnsupported, "num_bits"},
      {[](Json&, Json& w) { w["type"] = "posit"; }, kUnsupported, "posit"},
      {[](Json&, Json& w) { w["strategy"] = "token"; }, kUnsupported, "token"},
      {[](Json&, Json& w) { w["strategy"] = "block"; }, kInvalid,
       "block_structure"},
      {[](Json&, Json& w) {
         w["strategy"] = "block";
         w["block_structure"] = {0, 128};
       },
       kInvalid, "block_structure"},
      {[](Json&, Json& w) { w["actorder"] = 3; }, kUnsupported, "actorder"},
      {[](Json&, Json& w) {
         w["strategy"] = "group";
         w["group_size"] = 32;
         w["actorder"] = "group";
       },
       kMissing, "weight_g_idx"},
      {[](Json&, Json& w) { w["symmetric"] = false; }, kMissing,
       "weight_zero_point"},
  };
  EXPECT_TRUE(OpenSpecs(CtSettings(), CtPacked()).ok());
  for (const auto& [edit, code, text] : cases) {
    SCOPED_TRACE(text);
    Json config = CtSettings();
    Json weights = config["config_groups"]["g"]["weights"];
    edit(config, weights);
    Json& group = config["config_groups"];
    if (group.is_object() && group.contains("g") && group["g"].is_object() &&
        group["g"]["weights"].is_object()) {
      group["g"]["weights"] = weights;
    }
    ExpectError(OpenSpecs(config, CtPacked()), code, text);
  }
  Json float_zero = CtSettings("float-quantized");
  float_zero["config_groups"]["g"]["weights"]["symmetric"] = false;
  ExpectError(OpenSpecs(float_zero, {}), kUnsupported, "symmetric");
}

TEST(QuantizedErrors, CompressedTensorsTensors) {
  const struct {
    const char* name;
    StoredSpec spec;
    const char* text;
  } cases[] = {
      {"l.weight_packed", {DType::kI32, {4, 5}}, "[4, 4]"},
      {"l.weight_packed", {DType::kU8, {4, 4}}, "u8"},
      {"l.weight_shape", {DType::kI64, {3}}, "[2]"},
      {"l.weight_shape", {DType::kF32, {2}}, "f32"},
      {"l.weight_scale", {DType::kBF16, {4, 2}}, "[4, 1]"},
      {"l.weight_scale", {DType::kBF16, {1}}, "[4, 1]"},
      {"l.weight_scale", {DType::kI8, {4, 1}}, "i8"},
      {"l.weight_zero_point", {DType::kI32, {4, 1}}, "[1, 1]"},
      {"l.weight_zero_point", {DType::kI8, {1, 1}}, "[4, 1]"},
      {"l.weight_zero_point", {DType::kF32, {4, 1}}, "f32"},
      {"l.input_scale", {DType::kF32, {3}}, "input_scale"},
      {"l.input_scale", {DType::kI8, {1}}, "input_scale"},
      {"l.weight", {DType::kF32, {4, 32}}, "l.weight"},
  };
  for (const auto& [name, spec, text] : cases) {
    SCOPED_TRACE(name);
    StoredSpecs tensors = CtPacked();
    tensors[name] = spec;
    ExpectError(OpenSpecs(CtSettings(), tensors), kInvalid, text);
  }
  const std::vector<int64_t> sizes[] = {
      {0, 32},         {4, 0},         {-4, 32},
      {4, -32},        {4, 40},        {5, 32},
      {INT64_MAX, 32}, {4, INT64_MAX}, {INT64_MIN, INT64_MIN}};
  for (const std::vector<int64_t>& size : sizes) {
    ExpectError(OpenSpecs(CtSettings(), CtPacked(), size), kInvalid, "l");
  }
  // 25 to 31 columns fill as many words as 32; no block does.
  ExpectError(OpenSpecs(CtSettings(), CtPacked(), {4, 31}), kUnsupported,
              "k = 31");
  StoredSpecs no_scale = CtPacked();
  no_scale.erase("l.weight_scale");
  ExpectError(OpenSpecs(CtSettings(), no_scale), kMissing, "l.weight_scale");
  // Codes of a type that no config group has.
  ExpectError(
      OpenSpecs(CtSettings(), {{"l.weight", {DType::kI8, {4, 32}}},
                               {"l.weight_scale", {DType::kF32, {4, 1}}}}),
      kMissing, "l.weight_packed");
  // Packed zero points belong to packed codes.
  ExpectError(OpenSpecs(CtSettings("int-quantized"),
                        {{"l.weight", {DType::kI8, {4, 32}}},
                         {"l.weight_scale", {DType::kF32, {4, 1}}},
                         {"l.weight_zero_point", {DType::kI32, {1, 1}}}}),
              kUnsupported, "packed zero points");
}

// Cells that no block of ours fits are named, whatever the codes.
TEST(QuantizedErrors, CompressedTensorsCells) {
  for (const char* format :
       {"pack-quantized", "int-quantized", "float-quantized"}) {
    SCOPED_TRACE(format);
    const bool packed = std::strcmp(format, "pack-quantized") == 0;
    const DType code =
        std::strcmp(format, "int-quantized") == 0 ? DType::kI8 : DType::kF8E4M3;
    const auto tensors = [&](std::vector<int64_t> scales) {
      StoredSpecs specs = {{"l.weight_scale", {DType::kF32, scales}}};
      if (packed) {
        specs["l.weight_packed"] = {DType::kI32, {4, 12}};
        specs["l.weight_shape"] = {DType::kI64, {2}};
      } else {
        specs["l.weight"] = {code, {4, 96}};
      }
      return specs;
    };
    const auto open = [&](const char* strategy, const char* key,
                          const Json& size, std::vector<int64_t> scales) {
      Json config = CtSettings(format);
      Json& weights = config["config_groups"]["g"]["weights"];
      weights["strategy"] = strategy;
      weights[key] = size;
      return OpenSpecs(config, tensors(std::move(scales)), {4, 96});
    };
    EXPECT_TRUE(open("block", "block_structure", {2, 32}, {2, 3}).ok());
    EXPECT_TRUE(open("group", "group_size", 32, {4, 3}).ok());
    ExpectError(open("block", "block_structure", {2, 48}, {2, 2}), kUnsupported,
                "\"l\" is quantised in groups of 48");
    ExpectError(open("group", "group_size", 48, {4, 2}), kUnsupported,
                "\"l\" is quantised in groups of 48");
    ExpectError(open("block", "block_structure", {2, 32}, {4, 3}), kInvalid,
                "[2, 3]");
    ExpectError(open("group", "group_size", 32, {2, 3}), kInvalid, "[4, 3]");
    for (const char* strategy : {"tensor_group", "attn_head"}) {
      ExpectError(open(strategy, "group_size", 16, {4, 6}), kUnsupported,
                  strategy);
    }
  }
  // Packed zero points lie along the outputs, a row of scales each.
  Json block = CtSettings();
  Json& weights = block["config_groups"]["g"]["weights"];
  weights["strategy"] = "block";
  weights["block_structure"] = {2, 32};
  weights["symmetric"] = false;
  StoredSpecs packed = CtPacked();
  packed["l.weight_scale"] = {DType::kBF16, {2, 1}};
  packed["l.weight_zero_point"] = {DType::kI32, {1, 1}};
  ExpectError(OpenSpecs(block, packed), kUnsupported, "packed zero points");
}

// Each layer is decoded by the group its tensors fit.
TEST(QuantizedErrors, SeveralConfigGroups) {
  Json config = CtSettings();
  config["format"] = "mixed-precision";
  config["config_groups"]["g"]["format"] = "pack-quantized";
  config["config_groups"]["h"] =
      CtSettings("float-quantized")["config_groups"]["g"];
  config["config_groups"]["h"]["format"] = "float-quantized";
  StoredSpecs tensors = CtPacked();
  tensors["m.weight"] = {DType::kF8E4M3, {4, 32}};
  tensors["m.weight_scale"] = {DType::kF32, {4, 1}};
  EXPECT_TRUE(OpenSpecs(config, tensors).ok());
  tensors["m.weight_scale"] = {DType::kF32, {4, 2}};
  EXPECT_FALSE(OpenSpecs(config, tensors).ok());
}

TEST(QuantizedErrors, Fp8) {
  EXPECT_TRUE(OpenSpecs(Fp8Settings(), Fp8Blocks()).ok());
  const std::pair<const char*, Json> settings[] = {
      {"fmt", "e5m2"},
      {"activation_scheme", "token"},
      {"scale_fmt", "e5m3"},
      {"expert_dtype", "fp6"}};
  for (const auto& [key, value] : settings) {
    Json config = Fp8Settings();
    config[key] = value;
    ExpectError(OpenSpecs(config, {}), kUnsupported, key);
  }
  for (const Json& block :
       {Json(128), Json{128}, Json{-1, 128}, Json{128, 0}, Json{128, 1.5},
        Json{128, UINT64_MAX}, Json{128, 128, 128}}) {
    Json config = Fp8Settings();
    config["weight_block_size"] = block;
    ExpectError(OpenSpecs(config, {}), kInvalid, "weight_block_size");
  }
  const struct {
    const char* name;
    StoredSpec spec;
    const char* text;
  } cases[] = {
      {"l.weight", {DType::kF8E4M3, {4, 64, 1}}, "two dimensions"},
      {"l.weight", {DType::kF8E4M3, {0, 64}}, "0"},
      {"l.weight_scale_inv", {DType::kF32, {2, 1}}, "[2, 2]"},
      {"l.weight_scale_inv", {DType::kF32, {1}}, "[2, 2]"},
      {"l.weight_scale_inv", {DType::kI8, {2, 2}}, "i8"},
      {"l.weight_scale_inv", {DType::kU8, {2, 1}}, "[2, 2]"},
      {"l.input_scale", {DType::kF32, {2}}, "input_scale"},
  };
  for (const auto& [name, spec, text] : cases) {
    StoredSpecs tensors = Fp8Blocks();
    tensors[name] = spec;
    ExpectError(OpenSpecs(Fp8Settings(), tensors), kInvalid, text);
  }
  StoredSpecs no_scale = Fp8Blocks();
  no_scale.erase("l.weight_scale_inv");
  ExpectError(OpenSpecs(Fp8Settings(), no_scale), kMissing,
              "l.weight_scale_inv");
  ExpectError(OpenSpecs({{"quant_method", "fp8"}}, no_scale), kMissing,
              "l.weight_scale");
}

TEST(QuantizedErrors, Fp4Experts) {
  const StoredSpecs good = {{"l.weight", {DType::kI8, {4, 32}}},
                            {"l.scale", {DType::kU8, {4, 2}}}};
  EXPECT_TRUE(OpenSpecs(Fp8Settings(), good).ok());
  const struct {
    const char* name;
    StoredSpec spec;
    absl::StatusCode code;
    const char* text;
  } cases[] = {
      {"l.weight", {DType::kI8, {4, 32, 1}}, kInvalid, "two dimensions"},
      {"l.weight", {DType::kI8, {4, 24}}, kUnsupported, "multiples of 32"},
      {"l.scale", {DType::kU8, {4, 1}}, kInvalid, "[4, 2]"},
      {"l.scale", {DType::kU8, {8}}, kInvalid, "two dimensions"},
      {"l.scale", {DType::kF32, {4, 2}}, kInvalid, "f32"},
  };
  for (const auto& [name, spec, code, text] : cases) {
    StoredSpecs tensors = good;
    tensors[name] = spec;
    ExpectError(OpenSpecs(Fp8Settings(), tensors), code, text);
  }
  // Other tensors of bytes are left alone, without a layer's scales.
  StoredSpecs others = good;
  others["visual.table.weight"] = {DType::kI8, {4, 8}};
  others["head.weight"] = {DType::kI8, {4, 8}};
  others["head.weight_scale"] = {DType::kF32, {4}};
  others["mask.weight"] = {DType::kU8, {16}};
  others["mask.scale"] = {DType::kF32, {1}};
  EXPECT_TRUE(OpenSpecs(Fp8Settings(), others).ok());
  // Where there are no blocks, a tensor's scale has its usual name first.
  EXPECT_TRUE(OpenSpecs({{"quant_method", "fp8"}},
                        {{"l.weight", {DType::kF8E4M3, {4, 64}}},
                         {"l.weight_scale", {DType::kF32, {1}}},
                         {"l.scale", {DType::kF32, {128}}}})
                  .ok());
}

// One layout each: settings that say another are refused.
TEST(QuantizedErrors, MxOfCompressedTensors) {
  const auto settings = [](const char* format, int bits) -> Json {
    const Json weights = {{"num_bits", bits},
                          {"type", "float"},
                          {"strategy", "group"},
                          {"group_size", 32}};
    return {{"quant_method", "compressed-tensors"},
            {"format", format},
            {"config_groups", {{"g", {{"weights", weights}}}}}};
  };
  const StoredSpecs mxfp4 = {{"l.weight_packed", {DType::kU8, {4, 32}}},
                             {"l.weight_scale", {DType::kU8, {4, 2}}}};
  const StoredSpecs mxfp8 = {{"l.weight", {DType::kF8E4M3, {4, 64}}},
                             {"l.weight_scale", {DType::kU8, {4, 2}}}};
  for (const bool is_fp4 : {true, false}) {
    const Json good = settings(
        is_fp4 ? "mxfp4-pack-quantized" : "mxfp8-quantized", is_fp4 ? 4 : 8);
    const StoredSpecs& tensors = is_fp4 ? mxfp4 : mxfp8;
    EXPECT_TRUE(OpenSpecs(good, tensors).ok());
    const std::pair<const char*, Json> changes[] = {
        {"num_bits", 6},      {"strategy", "channel"}, {"group_size", 16},
        {"symmetric", false}, {"actorder", "group"},   {"type", "int"}};
    for (const auto& [key, value] : changes) {
      Json config = good;
      config["config_groups"]["g"]["weights"][key] = value;
      EXPECT_EQ(OpenSpecs(config, tensors).code(), kUnsupported) << key;
    }
    StoredSpecs floats = tensors;
    floats["l.weight_scale"] = {DType::kF32, {4, 2}};
    ExpectError(OpenSpecs(good, floats), kInvalid, "f32");
  }
}

}  // namespace
}  // namespace inlay
