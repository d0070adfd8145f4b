// What layouts say: as files that other tools wrote do, and of what no such
// file is at hand of: types, and layers that stay plain.
#include "core/quantize/checkpoint_layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "core/formats/model_files.h"
#include "core/formats/safetensors_source.h"
#include "core/quantize/group_scheme.h"
#include "kernels/cpu_float.h"
#include "kernels/quant/fit.h"
#include "kernels/quant/quant.h"
#include "tests/core/quantize/quantized_files.h"
#include "tests/support/paths/paths.h"

namespace inlay {
namespace {

Json GoldenSettings(const char* golden) {
  const auto files = OpenModelFiles(TestData() + "/quantized/" + golden, {});
  EXPECT_TRUE(files.ok()) << files.status();
  return files.ok() ? files->config["quantization_config"] : Json();
}

// Weights as where inputs have one scale too, inputs as where weights have one
// a row: both are held against other tools' files (checkpoint_test.cc).
TEST(CheckpointLayoutTest, OneScaleAndInputsByTheToken) {
  const auto layout =
      MakeCheckpointLayout(*FindCheckpointType("w8a8_fp8_tensor"));
  const auto parts = layout->Parts(256, 512, DType::kBF16);
  auto with_inputs =
      MakeCheckpointLayout(*FindCheckpointType("w8a8_fp8_static"))
          ->Parts(256, 512, DType::kBF16);
  ASSERT_EQ(with_inputs.back().suffix, ".input_scale");
  with_inputs.pop_back();
  ASSERT_EQ(parts.size(), with_inputs.size());
  for (size_t i = 0; i < parts.size(); ++i) {
    EXPECT_EQ(parts[i].suffix, with_inputs[i].suffix);
    EXPECT_EQ(parts[i].dtype, with_inputs[i].dtype);
    EXPECT_EQ(parts[i].shape, with_inputs[i].shape);
  }
  Json wanted = GoldenSettings("ct_fp8_tensor");
  const Json by_token = GoldenSettings("ct_fp8_channel");
  const char* group = "group_0";
  const char* inputs = "input_activations";
  wanted["config_groups"][group][inputs] =
      by_token["config_groups"][group][inputs];
  EXPECT_EQ(layout->Config({{"lm_head"}, false, DType::kBF16}), wanted);
}

// As compressed-tensors' FP8_BLOCK has it: of 128 x 128 the last rows may be
// fewer, and inputs have a scale for each 128 of a token.
TEST(CheckpointLayoutTest, BlocksOfE4M3) {
  const auto layout =
      MakeCheckpointLayout(*FindCheckpointType("w8a8_fp8_block"));
  const auto parts = layout->Parts(576, 384, DType::kBF16);
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts[0].suffix, ".weight");
  EXPECT_EQ(parts[0].shape, (std::vector<int64_t>{576, 384}));
  EXPECT_EQ(parts[1].suffix, ".weight_scale");
  EXPECT_EQ(parts[1].dtype, DType::kBF16);
  EXPECT_EQ(parts[1].shape, (std::vector<int64_t>{5, 3}));

  Json wanted = GoldenSettings("ct_fp8_channel");
  Json& group = wanted["config_groups"]["group_0"];
  group["weights"]["strategy"] = "block";
  group["weights"]["block_structure"] = {128, 128};
  group["input_activations"]["strategy"] = "group";
  group["input_activations"]["group_size"] = 128;
  EXPECT_EQ(layout->Config({{"lm_head"}, false, DType::kBF16}), wanted);
}

struct Sized {
  std::string name;
  int64_t n, k;
};
const std::vector<Sized> kLlama = {
    {"model.layers.0.self_attn.q_proj", 256, 256},
    {"model.layers.0.mlp.down_proj", 256, 512}};

// Names, types and shapes of a layer's tensors, and the settings, are those of
// files that other tools wrote.
TEST(CheckpointLayoutTest, LayoutsAreThoseOfOtherTools) {
  const struct {
    const char* golden;
    const char* type;
    std::vector<std::string> differ;  // settings
    DType stored = DType::kBF16;
    std::vector<Sized> layers = kLlama;
  } cases[] = {
      {"awq_int4", "awq_g128", {"modules_to_not_convert"}},
      {"gptq_int4_actorder",
       "u4_g128",
       {"desc_act", "static_groups", "true_sequential"}},
      {"gptq_int4", "u4_g128_sym", {"true_sequential"}},
      {"ct_int8_w8a8", "w8a8_int8", {}},
      {"ct_fp8_channel", "w8a8_fp8", {}},
      {"ct_fp8_tensor", "w8a8_fp8_static", {}},
      {"ct_w4a16", "w4a16_g128", {}},
      {"bnb_fp4",
       "fp4",
       {"llm_int8_skip_modules"},
       DType::kF32,
       {{"model.layers.0.self_attn.q_proj", 128, 128},
        {"model.layers.0.mlp.down_proj", 128, 192}}},
      {"bnb_nf4_gpt2",
       "nf4",
       {"llm_int8_skip_modules"},
       DType::kF32,
       {{"transformer.h.0.attn.c_attn", 384, 128}}},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.golden);
    const std::string folder = TestData() + "/quantized/" + c.golden;
    const auto layout = MakeCheckpointLayout(*FindCheckpointType(c.type));
    const auto raw = OpenSafetensors(folder, WeightAccess::kMap);
    ASSERT_TRUE(raw.ok()) << raw.status();
    for (const auto& [name, n, k] : c.layers) {
      size_t parts = 0;
      for (const WeightInfo& info : (*raw)->weights()) {
        parts +=
            info.name.starts_with(name + ".") && !info.name.ends_with(".bias")
                ? 1
                : 0;
      }
      const auto wanted = layout->Parts(n, k, c.stored);
      EXPECT_EQ(parts, wanted.size());
      for (const LayerPart& part : wanted) {
        const WeightInfo* info = (*raw)->Find(name + part.suffix);
        ASSERT_NE(info, nullptr) << part.suffix;
        EXPECT_EQ(info->dtype, part.dtype) << part.suffix;
        EXPECT_EQ(info->shape, part.shape) << part.suffix;
      }
    }
    const auto files = OpenModelFiles(folder, {});
    ASSERT_TRUE(files.ok()) << files.status();
    const Json& golden = files->config["quantization_config"];
    const Json ours = layout->Config({{"lm_head"}, false, c.stored});
    for (const auto& [key, value] : ours.items()) {
      EXPECT_TRUE(golden.contains(key)) << key;
      if (std::find(c.differ.begin(), c.differ.end(), key) == c.differ.end()) {
        EXPECT_EQ(golden.value(key, Json("missing")), value) << key;
      }
    }
  }
}

// Codes and zero points of int4 with these, against the blocks: outputs that
// are no whole words of zero points, groups of several blocks.
TEST(CheckpointLayoutTest, PackedZeroPoints) {
  constexpr int64_t kN = 19, kK = 192, kGroup = 64;
  const BlockCodec& codec = *FindBlockCodec(DType::kU4_G32);
  std::mt19937 rng(5);
  std::normal_distribution<float> normal;
  std::vector<std::byte> rows;
  std::vector<float> want;
  for (int64_t row = 0; row < kN; ++row) {
    std::vector<float> x(kK);
    for (int64_t i = 0; i < kK; ++i) {
      const auto shift = static_cast<float>((row + i / kGroup) % 5 - 2);
      x[static_cast<size_t>(i)] = normal(rng) + shift;
    }
    std::vector<std::byte> blocks(RowBytes(DType::kU4_G32, kK));
    EncodeInGroups({codec.grid, kGroup, false, DType::kBF16}, x.data(), nullptr,
                   kK, blocks.data());
    codec.decode(blocks.data(), kK / 32, x.data());
    rows.insert(rows.end(), blocks.begin(), blocks.end());
    want.insert(want.end(), x.begin(), x.end());
  }
  const auto layout =
      MakeCheckpointLayout(*FindCheckpointType("w4a16_g64_asym"));
  const auto parts = layout->Parts(kN, kK, DType::kBF16);
  const auto bytes =
      layout->Convert({rows, DType::kU4_G32, kN, kK}, DType::kBF16);
  ASSERT_EQ(parts.size(), 4u);
  ASSERT_EQ(bytes.size(), 4u);
  EXPECT_EQ(parts[0].shape, (std::vector<int64_t>{kN, kK / 8}));
  EXPECT_EQ(parts[1].dtype, DType::kBF16);
  EXPECT_EQ(parts[3].suffix, ".weight_zero_point");
  EXPECT_EQ(parts[3].shape, (std::vector<int64_t>{3, 3}));
  int64_t shape[2] = {};
  ASSERT_EQ(bytes[2].size(), sizeof(shape));
  std::memcpy(shape, bytes[2].data(), sizeof(shape));
  EXPECT_EQ(shape[0], kN);
  EXPECT_EQ(shape[1], kK);
  const auto nibble = [](const std::vector<std::byte>& words, int64_t word,
                         int64_t field) {
    return static_cast<int>(words[static_cast<size_t>(4 * word + field / 2)] >>
                            (field % 2 * 4)) &
           15;
  };
  int zeros = 0;
  for (int64_t i = 0; i < kN * kK; ++i) {
    const int64_t row = i / kK, group = i % kK / kGroup;
    const int code = nibble(bytes[0], i / 8, i % 8);
    const int zero = nibble(bytes[3], row / 8 * 3 + group, row % 8);
    zeros |= 1 << zero;
    uint16_t scale = 0;
    std::memcpy(&scale, bytes[1].data() + 2 * (row * 3 + group), sizeof(scale));
    // One rounding of the zero point's product, of 16 steps at most.
    ASSERT_NEAR(BF16ToF32(scale) * static_cast<float>(code - zero),
                want[static_cast<size_t>(i)], 0x1p-19f * BF16ToF32(scale))
        << i;
  }
  EXPECT_GT(std::popcount(static_cast<uint32_t>(zeros)), 4);
  Json symmetric = GoldenSettings("ct_w4a16");
  Json& weights = symmetric["config_groups"]["group_0"]["weights"];
  weights["symmetric"] = false;
  weights["group_size"] = 64;
  EXPECT_EQ(layout->Config({{"lm_head"}, false, DType::kBF16}), symmetric);
  weights["actorder"] = "weight";
  EXPECT_EQ(layout->Config({{"lm_head"}, true, DType::kBF16}), symmetric);
  weights["strategy"] = "channel";
  weights["group_size"] = nullptr;
  weights["actorder"] = nullptr;
  EXPECT_EQ(MakeCheckpointLayout(*FindCheckpointType("w4a16_channel_asym"))
                ->Config({{"lm_head"}, true, DType::kBF16}),
            symmetric);
  EXPECT_EQ(layout->ScaleType(DType::kF16), DType::kF16);
  EXPECT_EQ(layout->ScaleType(DType::kF32), DType::kF32);
}

// What bitsandbytes says of a layer beside its codes, byte for byte; codes and
// scales of the blocks that were given.
TEST(CheckpointLayoutTest, LevelsAsBitsandbytesHasThem) {
  const struct {
    const char* golden;
    const char* type;
    DType dtype;
    Sized layer;
  } cases[] = {
      {"bnb_fp4",
       "fp4",
       DType::kBNB_FP4,
       {"model.layers.0.mlp.down_proj", 128, 192}},
      {"bnb_nf4_gpt2",
       "nf4",
       DType::kNF4,
       {"transformer.h.0.attn.c_attn", 384, 128}},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.golden);
    const std::string folder = TestData() + "/quantized/" + c.golden;
    const auto read = OpenModelFiles(folder, {});
    ASSERT_TRUE(read.ok()) << read.status();
    const auto raw = OpenSafetensors(folder, WeightAccess::kMap);
    ASSERT_TRUE(raw.ok()) << raw.status();
    const auto bytes_of = [](const WeightSource& source,
                             const std::string& name) {
      const WeightInfo* info = source.Find(name);
      std::vector<std::byte> bytes(info == nullptr ? 0 : info->bytes);
      EXPECT_TRUE(info != nullptr &&
                  source.Read(*info, 0, absl::MakeSpan(bytes)).ok())
          << name;
      return bytes;
    };
    const auto blocks = bytes_of(*read->weights, c.layer.name + ".weight");
    ASSERT_EQ(read->weights->Find(c.layer.name + ".weight")->dtype, c.dtype);
    const auto layout = MakeCheckpointLayout(*FindCheckpointType(c.type));
    const auto parts = layout->Parts(c.layer.n, c.layer.k, DType::kF32);
    const auto bytes =
        layout->Convert({blocks, c.dtype, c.layer.n, c.layer.k}, DType::kF32);
    ASSERT_EQ(bytes.size(), parts.size());
    for (size_t i = 0; i < parts.size(); ++i) {
      EXPECT_TRUE(bytes[i] == bytes_of(**raw, c.layer.name + parts[i].suffix))
          << parts[i].suffix;
    }
  }
}

class PlainLayersTest : public QuantizedFiles {};

// Readers of GPTQ's layout take every linear layer for one of the type unless
// they are told.
TEST_F(PlainLayersTest, GptqFoldersNameThem) {
  QuantizeOptions options = Options("u4_g128", QuantizeMethod::kNearest);
  options.calibration_sequences.clear();
  const std::string folder = folder_ + "/model";
  const auto settings = [&] {
    const auto report = QuantizePath(Golden("llama_bf16"), options, folder);
    EXPECT_TRUE(report.ok()) << report.status();
    const auto files = OpenModelFiles(folder, {});
    EXPECT_TRUE(files.ok()) << files.status();
    return files.ok() ? files->config["quantization_config"] : Json();
  };
  const Json all = settings();
  EXPECT_FALSE(all.contains("dynamic"));
  EXPECT_FALSE(all.contains("modules_in_block_to_quantize"));

  options.tensor_types = {"*layers.1.mlp.down_proj*=bf16"};
  const Json some = settings();
  Json pattern;
  pattern["-:model\\.layers\\.1\\.mlp\\.down_proj$"] = Json::object();
  EXPECT_EQ(some["dynamic"], pattern);
  const Json& named = some["modules_in_block_to_quantize"];
  ASSERT_EQ(named.size(), 1u);
  const auto names = [&](const char* name) {
    return std::count(named[0].begin(), named[0].end(), Json(name));
  };
  EXPECT_EQ(names("model.layers.0.mlp.down_proj"), 1);
  EXPECT_EQ(names("model.layers.1.mlp.up_proj"), 1);
  EXPECT_EQ(names("model.layers.1.mlp.down_proj"), 0);
}

// bitsandbytes' blocks of 64: apertus has rows of 32, which keep their type and
// are named, and of 64, which are what the format's encoder makes of them.
TEST_F(PlainLayersTest, BitsandbytesFoldersNameThem) {
  const auto source = OpenModelFiles(Golden("apertus"), {});
  ASSERT_TRUE(source.ok()) << source.status();
  QuantizeOptions options = Options("nf4", QuantizeMethod::kNearest);
  options.calibration_sequences.clear();
  const std::string folder = folder_ + "/model";
  const auto report = QuantizeModel(*source, options, folder);
  ASSERT_TRUE(report.ok()) << report.status();
  const auto files = OpenModelFiles(folder, {});
  ASSERT_TRUE(files.ok()) << files.status();
  std::vector<std::string> kept;
  int blocks = 0;
  for (const QuantizedTensor& tensor : report->tensors) {
    if (!tensor.name.ends_with("_proj.weight")) continue;
    SCOPED_TRACE(tensor.name);
    const bool whole = tensor.shape[1] % 64 == 0;
    EXPECT_EQ(tensor.to, whole ? DType::kNF4 : tensor.from);
    if (!whole) {
      kept.push_back(tensor.name.substr(0, tensor.name.rfind('.')));
      continue;
    }
    ++blocks;
    const auto count = static_cast<size_t>(tensor.shape[0] * tensor.shape[1]);
    std::vector<float> values(count);
    const WeightInfo& from = *source->weights->Find(tensor.name);
    std::vector<std::byte> stored(from.bytes);
    ASSERT_TRUE(source->weights->Read(from, 0, absl::MakeSpan(stored)).ok());
    for (size_t i = 0; i < count; ++i) {
      values[i] = LoadFloat(from.dtype, stored.data(), static_cast<int64_t>(i));
    }
    const WeightInfo& to = *files->weights->Find(tensor.name);
    ASSERT_EQ(to.dtype, DType::kNF4);
    std::vector<std::byte> got(to.bytes), want(to.bytes);
    ASSERT_TRUE(files->weights->Read(to, 0, absl::MakeSpan(got)).ok());
    FindBlockCodec(DType::kNF4)
        ->encode(values.data(), static_cast<int64_t>(count / 64), want.data());
    EXPECT_TRUE(got == want);
  }
  EXPECT_EQ(blocks, 2);
  EXPECT_FALSE(kept.empty());
  kept.push_back("lm_head");
  const Json& settings = files->config["quantization_config"];
  EXPECT_EQ(settings["llm_int8_skip_modules"], Json(kept));
  EXPECT_EQ(settings["bnb_4bit_compute_dtype"], "bfloat16");
}

}  // namespace
}  // namespace inlay
