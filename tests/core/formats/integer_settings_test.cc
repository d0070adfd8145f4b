// Settings of GPTQ's, AWQ's and AutoRound's files for some of their layers:
// what they mean, and what is refused.
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "tests/core/formats/format_test_util.h"
#include "tests/core/formats/integer_checkpoints.h"

namespace inlay {
namespace {

constexpr const char* kPlace = "config.json: quantization_config's ";

// Layers of other settings than those of all.
TEST(IntegerSettings, LayersAreWhatTheirTensorsSay) {
  const GptqCase cases[] = {
      {4, 128, false, false, 32, 256, "u4_g128"},
      {8, 32, false, false, 32, 256, "i8_g32"},
      {2, 64, false, false, 32, 256, "u4_g32"},
      {3, 128, false, true, 32, 256, "u4_g128"},
      {4, -1, false, false, 32, 512, "u4_g128"},
      {4, 32, false, false, 32, 32, "u4_g32"},  // groups of all: the same
  };
  const Json dynamic = {
      {"-:.*gate.*", Json::object()},
      {"+:.*down_proj.*", {{"bits", 8}, {"group_size", 32}, {"sym", true}}},
      {R"(.*\.(3|4)\..*)", {{"bits", 2}, {"group_size", 64}}},
      {".*up.*", {{"bits", 3}, {"desc_act", true}}},
      {"lm_head", {{"group_size", -1}}}};
  Json extra = dynamic;
  extra.erase("-:.*gate.*");
  extra["model.layers.0.mlp.gate"] = {{"bits", 16}, {"data_type", "float"}};
  uint32_t seed = 1;
  for (const GptqCase& c : cases) {
    SCOPED_TRACE(::testing::Message() << "case " << seed);
    Checkpoint checkpoint = MakeGptq(c, seed++, true);
    checkpoint.config = {{"quant_method", "gptq"},
                         {"bits", 4},
                         {"group_size", 128},
                         {"lm_head", true},
                         {"dynamic", dynamic},
                         {"meta", {{"quantizer", {"gptqmodel:2.0.0"}}}}};
    CheckLayer(checkpoint, c.dtype, c.scattered);
    checkpoint.config = {{"quant_method", "auto-round"},
                         {"bits", 4},
                         {"group_size", 128},
                         {"data_type", "int"},
                         {"packing_format", "auto_round:auto_gptq"},
                         {"block_name_to_quantize",
                          Json::array({Json::array({"model.layers"})})},
                         {"extra_config", extra}};
    CheckLayer(checkpoint, c.dtype, c.scattered);
    // Settings that no layer of the file is of.
    checkpoint.config["bits"] = 7;
    checkpoint.config["group_size"] = 256;
    checkpoint.config.erase("extra_config");
    EXPECT_FALSE(OpenQuantized(checkpoint.config, checkpoint.weights).ok());
  }
}

// The number of groups alone does not say which columns are of one.
TEST(IntegerSettings, GroupsThatTensorsDoNotTellApart) {
  Checkpoint checkpoint =
      MakeGptq({4, 128, false, false, 32, 192, ""}, 1, true, false);
  CheckLayer(checkpoint, "u4_g32", false);
  checkpoint.config["dynamic"] = {{"x", {{"group_size", 96}}}};
  ExpectError(OpenQuantized(checkpoint.config, checkpoint.weights).status(),
              kUnsupported,
              "layer \"l\" has 2 groups of its k = 192 columns, which may be "
              "of 128 or of 96");
  // Listed column by column, they do.
  checkpoint = MakeGptq({4, 128, false, false, 32, 192, ""}, 1, true);
  checkpoint.config["dynamic"] = {{"x", {{"group_size", 96}}}};
  CheckLayer(checkpoint, "u4_g32", false);
}

TEST(IntegerSettings, AutoRoundPackings) {
  const std::pair<const char*, bool> gptq[] = {
      {"auto_round:auto_gptq", false},
      {"auto_round:gptq", false},
      {"auto_round:auto_gptq:exllamav2", false},
      {"auto", false},
      {"auto_round", true},
      {"auto_round:gptqmodel", true},
      {"auto_round:exllamav2", true},
      {"auto_round:tritonv2", true}};
  for (const auto& [name, v2] : gptq) {
    for (const bool first : {false, true}) {
      SCOPED_TRACE(name);
      Checkpoint checkpoint =
          MakeGptq({4, 32, v2, false, 32, 64, ""}, 5, true, false);
      checkpoint.config = {
          {"quant_method", first ? "intel/auto-round" : "auto-round"},
          {"bits", 4},
          {"group_size", 32},
          {first ? "backend" : "packing_format", name}};
      CheckLayer(checkpoint, "u4_g32", false);
    }
  }
  Checkpoint awq = MakeAwq(32, 16, 64, 2);
  for (const char* name : {"auto_round:auto_awq", "auto_round:awq"}) {
    awq.config = {{"quant_method", "auto-round"},
                  {"bits", 4},
                  {"group_size", 128},
                  {"packing_format", name},
                  {"extra_config", {{"l", {{"group_size", 32}}}}}};
    CheckLayer(awq, "u4_g32", false);
  }
}

TEST(IntegerSettings, AutoRoundRefuses) {
  Checkpoint checkpoint = MakeGptq({4, 32, false, false, 32, 64, ""}, 5, true);
  const Json good = {{"quant_method", "auto-round"},
                     {"bits", 4},
                     {"group_size", 32},
                     {"packing_format", "auto_round:auto_gptq"}};
  const auto open = [&](const Json& config) {
    return OpenQuantized(config, checkpoint.weights).status();
  };
  EXPECT_TRUE(open(good).ok());
  const struct {
    const char* key;
    Json value;
    absl::StatusCode code;
    std::string text;
  } cases[] = {
      {"packing_format", "auto_round:llm_compressor_nvfp4_e5m3", kUnsupported,
       "packing_format is \"auto_round:llm_compressor_nvfp4_e5m3\"; supported: "
       "auto_round, "},
      {"packing_format", "auto_round:fp8:x", kUnsupported, "fp8:x"},
      {"packing_format", "mlx", kUnsupported, "mlx"},
      {"packing_format", "auto_round:auto_gptq:x", kUnsupported, "gptq:x"},
      {"packing_format", 3, kInvalid, "packing_format"},
      {"bits", 9, kUnsupported, "bits is \"9\"; supported: 2, 3, 4, 5"},
      {"bits", 16, kUnsupported, "bits is \"16\""},
      {"bits", "4", kInvalid, "bits"},
      {"group_size", 0, kInvalid, "group_size"},
      {"sym", 1, kInvalid, "sym"},
      {"data_type", "mx_fp", kUnsupported, "data_type is \"mx_fp\""},
      {"act_bits", 8, kUnsupported, "act_bits is \"8\""},
      {"super_bits", 6, kUnsupported, "super_bits is \"6\""},
      {"rotation_config", {{"a", 1}}, kUnsupported, "rotation_config"},
      {"spinquant_config", {{"a", 1}}, kUnsupported, "spinquant_config"},
      {"block_name_to_quantize", 3, kInvalid, "block_name_to_quantize"},
      {"block_name_to_quantize", Json::array({3}), kInvalid, "names of blocks"},
      {"modules_to_not_convert", 3, kInvalid, "modules_to_not_convert"},
      {"extra_config", Json::array(), kInvalid, "extra_config"},
      {"extra_config", {{"x", 3}}, kInvalid, "extra_config: \"x\" is"},
      {"extra_config",
       {{"x", {{"bits", 1}}}},
       kUnsupported,
       std::string(kPlace) + "extra_config: \"x\"'s bits is \"1\""},
      {"extra_config",
       {{"x", {{"bits", "4"}}}},
       kInvalid,
       std::string(kPlace) + "extra_config: \"x\": \"bits\""},
      {"extra_config",
       {{"x", {{"group_size", -2}}}},
       kInvalid,
       "extra_config: \"x\": \"group_size\""},
      {"extra_config", {{"x", {{"sym", 2}}}}, kInvalid, "\"x\": \"sym\""},
      {"extra_config",
       {{"x", {{"data_type", "fp"}, {"bits", 8}}}},
       kUnsupported,
       "\"x\"'s data_type is \"fp\""},
      {"extra_config",
       {{"x", {{"act_bits", 4}}}},
       kUnsupported,
       "\"x\"'s act_bits is \"4\""},
  };
  for (const auto& [key, value, code, text] : cases) {
    SCOPED_TRACE(key + DumpJson(value));
    Json config = good;
    config[key] = value;
    ExpectError(open(config), code, text);
  }
  // AWQ's fields are of 4 bits.
  Json awq = good;
  awq["packing_format"] = "auto_round:auto_awq";
  awq["bits"] = 8;
  ExpectError(open(awq), kUnsupported, "bits is \"8\"; supported: 4");
}

// What AutoRound itself packs: packings_test.cc.
TEST(IntegerSettings, AutoRoundFloats) {
  const auto zeros = [](const std::vector<Change>& tensors) {
    auto weights = std::make_shared<MemoryWeights>(true);
    const std::vector<float> values(1 << 12, 0.5f);
    for (const Change& tensor : tensors) {
      weights->Add(tensor.name, *tensor.dtype, tensor.shape, values.data());
    }
    return weights;
  };
  const auto mixed = zeros({{"a.weight_packed", DType::kU8, {4, 32}},
                            {"a.weight_scale", DType::kU8, {4, 2}},
                            {"b.weight", DType::kF8E4M3, {4, 64}},
                            {"b.weight_scale", DType::kU8, {4, 2}},
                            {"c.weight", DType::kF32, {4, 64}}});
  const Json mx = {{"quant_method", "auto-round"},
                   {"bits", 4},
                   {"group_size", 32},
                   {"data_type", "mx_fp"},
                   {"act_bits", 4},
                   {"packing_format", "auto_round:llm_compressor"},
                   {"extra_config",
                    {{"b", {{"bits", 8}, {"data_type", "mx_fp_rceil"}}},
                     {"c", {{"bits", 16}, {"data_type", "float"}}}}}};
  const auto opened = OpenQuantized(mx, mixed);
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ((*opened)->Find("a.weight")->dtype, DType::kMXFP4);
  EXPECT_EQ((*opened)->Find("b.weight")->dtype, DType::kF8_G32);
  EXPECT_EQ((*opened)->Find("b.weight")->input_codes, InputCodes::kNone);
  EXPECT_EQ((*opened)->weights().size(), 3u);
  const auto refuses = [](Json config, const char* key, const Json& value,
                          const auto& weights, absl::StatusCode code,
                          const std::string& text) {
    config[key] = value;
    ExpectError(OpenQuantized(config, weights).status(), code, text);
  };
  refuses(mx, "data_type", "int", mixed, kUnsupported, "data_type is \"int\"");
  refuses(mx, "rotation_config", {{"a", 1}}, mixed, kUnsupported,
          "rotation_config");
  refuses(mx, "extra_config", {{"b", {{"data_type", "int"}}}}, mixed,
          kUnsupported, "extra_config: \"b\"'s data_type");
  refuses(mx, "sym", true,
          zeros({{"b.weight", DType::kF8E4M3, {4, 64}},
                 {"b.weight_scale", DType::kF32, {4, 2}}}),
          kInvalid, "b.weight_scale");
  const auto channels = zeros({{"l.weight", DType::kF8E4M3, {4, 64}},
                               {"l.weight_scale", DType::kBF16, {4}},
                               {"m.weight", DType::kF8E4M3, {4, 64}},
                               {"m.weight_scale", DType::kBF16, {1}},
                               {"m.input_scale", DType::kBF16, {1}}});
  Json fp8 = {{"quant_method", "auto-round"},
              {"bits", 8},
              {"group_size", -1},
              {"data_type", "fp"},
              {"act_bits", 8},
              {"fmt", "e4m3"},
              {"packing_format", "auto_round:fp8_static"}};
  const auto input_codes = [&](const auto& weights) {
    const auto source = OpenQuantized(fp8, weights);
    EXPECT_TRUE(source.ok()) << source.status();
    const WeightInfo* l = source.ok() ? (*source)->Find("l.weight") : nullptr;
    EXPECT_TRUE(l != nullptr && l->dtype == DType::kF8_G32);
    return l == nullptr ? InputCodes::kInt8 : l->input_codes;
  };
  EXPECT_EQ(input_codes(channels), InputCodes::kFp8);
  refuses(fp8, "group_size", 128, channels, kUnsupported,
          "group_size is \"128\"");
  refuses(fp8, "group_size", Json::array({2, 32}), channels,
          absl::StatusCode::kNotFound, "l.weight_scale_inv");
  refuses(fp8, "fmt", "e5m2", channels, kUnsupported, "fmt is \"e5m2\"");
  refuses(fp8, "data_type", "fp8_e5m2", channels, kUnsupported, "fp8_e5m2");
  fp8.erase("packing_format");  // weights alone
  fp8["act_bits"] = 16;
  EXPECT_EQ(input_codes(channels), InputCodes::kNone);
  fp8["group_size"] = Json::array({2, 32});
  EXPECT_EQ(input_codes(zeros({{"l.weight", DType::kF8E4M3, {4, 64}},
                               {"l.weight_scale_inv", DType::kBF16, {2, 2}}})),
            InputCodes::kNone);
}

TEST(IntegerSettings, GptqRefuses) {
  Checkpoint checkpoint = MakeGptq({4, 32, false, false, 32, 64, ""}, 5, true);
  const auto open = [&](const std::string& key, const Json& value) {
    Json config = checkpoint.config;
    config[key] = value;
    return OpenQuantized(config, checkpoint.weights).status();
  };
  EXPECT_TRUE(open("meta", {{"a", 1}}).ok());
  EXPECT_TRUE(open("adapter", nullptr).ok());
  EXPECT_TRUE(open("format", "gptq").ok());
  const std::string rule = std::string(kPlace) + "dynamic: \"+:.*up.*\"'s ";
  ExpectError(open("dynamic", {{"+:.*up.*", {{"bits", 5}}}}), kUnsupported,
              rule + "bits is \"5\"; supported: 2, 3, 4, 8");
  ExpectError(open("dynamic", {{"+:.*up.*", {{"adapter", {{"rank", 8}}}}}}),
              kUnsupported, rule + "adapter is");
  ExpectError(open("dynamic", {{".*up.*", true}}), kInvalid,
              "dynamic: \".*up.*\" is");
  ExpectError(open("dynamic", {{".*up.*", {{"desc_act", 3}}}}), kInvalid,
              "dynamic: \".*up.*\": \"desc_act\"");
  for (const char* key : {"adapter", "rotation"}) {
    ExpectError(open(key, "hadamard"), kUnsupported, key);
  }
  for (const char* format : {"marlin", "gptq_p", "bitblas"}) {
    ExpectError(open("checkpoint_format", format), kUnsupported, format);
    ExpectError(open("format", format), kUnsupported, format);
  }
  for (const int bits : {1, 5, 6, 7, 9}) {
    ExpectError(open("bits", bits), kUnsupported, "supported: 2, 3, 4, 8");
  }
}

// Words of gemv along the inputs, whose zero points are padded.
Checkpoint MakeGemv(int64_t group, int64_t n, int64_t k, int64_t words,
                    uint32_t seed) {
  Draw draw(seed);
  Checkpoint out{{{"quant_method", "awq"},
                  {"bits", 4},
                  {"group_size", group},
                  {"version", "GEMV"}},
                 std::make_shared<MemoryWeights>(seed % 2 == 0),
                 n,
                 k,
                 {}};
  const int64_t own = group < 0 ? k : group;
  const auto at = [](int64_t i) { return static_cast<size_t>(i); };
  const auto codes = draw.Ints(n * k, 0, 15);
  const auto zeros = draw.Ints(n * words * 8, 0, 15);
  const auto scales = draw.Scales(n * words * 8);
  AddStream(*out.weights, "l.qweight", n, k, 4, false,
            [&](int64_t o, int64_t i) { return codes[at(o * k + i)]; });
  AddStream(*out.weights, "l.qzeros", n, words * 8, 4, false,
            [&](int64_t o, int64_t g) { return zeros[at(o * words * 8 + g)]; });
  AddFloats(*out.weights, "l.scales", DType::kF16, {n, words * 8}, scales);
  for (int64_t o = 0; o < n; ++o) {
    for (int64_t i = 0; i < k; ++i) {
      const size_t g = at(o * words * 8 + i / own);
      out.dense.push_back(double{scales[g]} *
                          (codes[at(o * k + i)] - zeros[g]));
    }
  }
  return out;
}

TEST(IntegerSettings, AwqGemv) {
  CheckLayer(MakeGemv(128, 5, 256, 1, 1), "u4_g128", false);
  CheckLayer(MakeGemv(128, 3, 1152, 2, 2), "u4_g128", false);
  CheckLayer(MakeGemv(64, 4, 192, 2, 3), "u4_g32", false);
  CheckLayer(MakeGemv(32, 4, 96, 4, 4), "u4_g32", false);
  CheckLayer(MakeGemv(32, 2, 1056, 8, 5), "u4_g32", false);
  CheckLayer(MakeGemv(-1, 4, 160, 1, 6), "u4_g32", false);
  Checkpoint checkpoint = MakeGemv(64, 4, 192, 2, 8);
  checkpoint.config["group_size"] = 128;
  ExpectError(OpenQuantized(checkpoint.config, checkpoint.weights).status(),
              kInvalid,
              "layer \"l\" has k = 192 columns, which are not whole groups of "
              "128");
  checkpoint.config["dynamic"] = {{"l", {{"group_size", 64}}}};
  CheckLayer(checkpoint, "u4_g32", false);
  checkpoint.config["group_size"] = 64;
  const std::pair<Change, const char*> changes[] = {
      {{"l.qzeros", DType::kI32, {4, 1}}, "[4, 2]"},
      {{"l.scales", DType::kF32, {4, 3}}, "[4, 16]"},
      {{"l.scales", DType::kI32, {4, 16}}, "i32"},
      {{"l.qweight", DType::kI32, {4, 0}}, "0"},
      {{"l.qweight", DType::kI32, {96}}, "two dimensions"}};
  for (const auto& [change, text] : changes) {
    const auto weights = Changed(*checkpoint.weights, change);
    ExpectError(OpenQuantized(checkpoint.config, weights).status(), kInvalid,
                text);
  }
}

TEST(IntegerSettings, AwqLayoutsAreNamed) {
  Checkpoint checkpoint = MakeAwq(32, 16, 64, 2);
  const auto open = [&](const std::string& key, const Json& value) {
    Json config = checkpoint.config;
    config[key] = value;
    return OpenQuantized(config, checkpoint.weights).status();
  };
  // Symmetric ones have their zero points all the same.
  EXPECT_TRUE(open("zero_point", false).ok());
  EXPECT_TRUE(open("format", "gemm").ok());
  EXPECT_TRUE(open("checkpoint_format", "gemm").ok());
  for (const char* key : {"version", "checkpoint_format", "format"}) {
    for (const char* layout : {"gemv_fast", "marlin", "exllama", "llm-awq"}) {
      ExpectError(
          open(key, layout), kUnsupported,
          std::string(key) + " is \"" + layout + "\"; supported: gemm, gemv");
    }
  }
  ExpectError(open("backend", "llm-awq"), kUnsupported, "llm-awq");
  ExpectError(open("bits", 8), kUnsupported, "bits is \"8\"; supported: 4");
  ExpectError(open("zero_point", 3), kInvalid, "zero_point");
  ExpectError(open("rotation", "random"), kUnsupported, "rotation");
}

}  // namespace
}  // namespace inlay
