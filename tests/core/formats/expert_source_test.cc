// Tensors that hold all experts of a layer, taken apart: values against what
// the layouts say, in pieces of any size, and what contradicts itself.
#include "core/formats/expert_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "tests/support/memory_weights.h"

namespace inlay {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kExperts = 3;
constexpr int64_t kHidden = 64;
constexpr int64_t kWidth = 32;
constexpr char kPrefix[] = "model.layers.0.mlp.experts.";

Json Config(const std::string& type) { return {{"model_type", type}}; }

std::vector<uint16_t> Numbers(int64_t count) {
  std::vector<uint16_t> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<uint16_t>(i);
  }
  return values;
}

std::shared_ptr<MemoryWeights> WithBf16(
    bool mapped,
    const std::vector<std::pair<std::string, std::vector<int64_t>>>& tensors) {
  auto weights = std::make_shared<MemoryWeights>(mapped);
  for (const auto& [name, shape] : tensors) {
    int64_t count = 1;
    for (const int64_t side : shape) count *= side;
    weights->Add(name, DType::kBF16, shape, Numbers(count).data());
  }
  return weights;
}

std::vector<std::byte> ReadIn(const WeightSource& source,
                              const WeightInfo& info, size_t piece) {
  std::vector<std::byte> bytes(info.bytes);
  for (size_t at = 0; at < bytes.size(); at += piece) {
    const size_t count = std::min(piece, bytes.size() - at);
    EXPECT_TRUE(
        source.Read(info, at, absl::MakeSpan(bytes).subspan(at, count)).ok());
  }
  return bytes;
}

// The 16-bit elements of a tensor, the same whatever the pieces.
std::vector<uint16_t> Read16(const WeightSource& source,
                             const std::string& name) {
  const WeightInfo* info = source.Find(name);
  EXPECT_NE(info, nullptr) << name;
  if (info == nullptr) return {};
  const std::vector<std::byte> whole = ReadIn(source, *info, info->bytes);
  for (const size_t piece : {1, 7, 130}) {
    EXPECT_TRUE(ReadIn(source, *info, piece) == whole) << name << piece;
  }
  if (const std::byte* mapped = source.Mapped(*info)) {
    EXPECT_EQ(std::memcmp(mapped, whole.data(), whole.size()), 0) << name;
  }
  std::vector<uint16_t> values(whole.size() / 2);
  std::memcpy(values.data(), whole.data(), whole.size());
  return values;
}

std::string Expert(int64_t e, const std::string& part) {
  return kPrefix + std::to_string(e) + "." + part;
}

TEST(ExpertSourceTest, FusedRowsStayMapped) {
  for (const bool mapped : {false, true}) {
    const auto stored = WithBf16(
        mapped,
        {{std::string(kPrefix) + "gate_up_proj",
          {kExperts, 2 * kWidth, kHidden}},
         {std::string(kPrefix) + "down_proj", {kExperts, kHidden, kWidth}},
         {"model.norm.weight", {kHidden}}});
    const auto source = PresentExperts(Config("qwen3_moe"), stored);
    ASSERT_TRUE(source.ok()) << source.status();
    EXPECT_EQ((*source)->weights().size(), 3 * kExperts + 1);
    for (int64_t e = 0; e < kExperts; ++e) {
      const auto first = [&](const std::string& part) {
        const std::string name = Expert(e, part + ".weight");
        const WeightInfo* info = (*source)->Find(name);
        EXPECT_EQ((*source)->Mapped(*info) != nullptr, mapped);
        const std::vector<uint16_t> values = Read16(**source, name);
        for (size_t i = 1; i < values.size(); ++i) {
          EXPECT_EQ(values[i], static_cast<uint16_t>(values[0] + i));
        }
        return int64_t{values[0]};
      };
      EXPECT_EQ(first("gate_proj"), 2 * e * kWidth * kHidden);
      EXPECT_EQ(first("up_proj"), (2 * e + 1) * kWidth * kHidden);
      EXPECT_EQ(first("down_proj"), e * kWidth * kHidden);
    }
    EXPECT_EQ((*source)->Find(Expert(0, "up_proj.weight"))->shape,
              (std::vector<int64_t>{kWidth, kHidden}));
    EXPECT_EQ((*source)->Find(Expert(2, "down_proj.weight"))->shape,
              (std::vector<int64_t>{kHidden, kWidth}));
    EXPECT_NE((*source)->Find("model.norm.weight"), nullptr);
  }
}

TEST(ExpertSourceTest, GptOssTakesTurnsAndLiesInputsByOutputs) {
  for (const bool mapped : {false, true}) {
    const auto stored = WithBf16(
        mapped,
        {{std::string(kPrefix) + "gate_up_proj",
          {kExperts, kHidden, 2 * kWidth}},
         {std::string(kPrefix) + "gate_up_proj_bias", {kExperts, 2 * kWidth}},
         {std::string(kPrefix) + "down_proj", {kExperts, kWidth, kHidden}},
         {std::string(kPrefix) + "down_proj_bias", {kExperts, kHidden}}});
    const auto source = PresentExperts(Config("gpt_oss"), stored);
    ASSERT_TRUE(source.ok()) << source.status();
    for (int64_t e = 0; e < kExperts; ++e) {
      for (int64_t part = 0; part < 2; ++part) {
        const std::string name = part == 0 ? "gate_proj" : "up_proj";
        const auto w = Read16(**source, Expert(e, name + ".weight"));
        const auto bias = Read16(**source, Expert(e, name + ".bias"));
        ASSERT_EQ(w.size(), kWidth * kHidden);
        ASSERT_EQ(bias.size(), kWidth);
        for (int64_t i = 0; i < kWidth; ++i) {
          EXPECT_EQ(bias[static_cast<size_t>(i)],
                    e * 2 * kWidth + 2 * i + part);
          for (int64_t j = 0; j < kHidden; ++j) {
            EXPECT_EQ(w[static_cast<size_t>(i * kHidden + j)],
                      (e * kHidden + j) * 2 * kWidth + 2 * i + part);
          }
        }
      }
      const auto down = Read16(**source, Expert(e, "down_proj.weight"));
      ASSERT_EQ(down.size(), kWidth * kHidden);
      for (int64_t i = 0; i < kHidden; ++i) {
        for (int64_t j = 0; j < kWidth; ++j) {
          EXPECT_EQ(down[static_cast<size_t>(i * kWidth + j)],
                    (e * kWidth + j) * kHidden + i);
        }
      }
      EXPECT_EQ(Read16(**source, Expert(e, "down_proj.bias"))[5],
                e * kHidden + 5);
    }
  }
}

// Published files have inputs by outputs, what transformers 5 writes outputs by
// inputs.
TEST(ExpertSourceTest, Qwen3VlLiesEitherWay) {
  Json config = Config("qwen3_moe");
  for (const bool by_inputs : {false, true}) {
    std::vector<int64_t> gate_up = {kExperts, 2 * kWidth, kHidden + 1};
    std::vector<int64_t> down = {kExperts, kHidden + 1, kWidth};
    config["hidden_size"] = kHidden + 1;  // 2 * kWidth is kHidden
    if (by_inputs) {
      std::swap(gate_up[1], gate_up[2]);
      std::swap(down[1], down[2]);
    }
    const auto stored =
        WithBf16(true, {{std::string(kPrefix) + "gate_up_proj", gate_up},
                        {std::string(kPrefix) + "down_proj", down}});
    const auto source = PresentExperts(config, stored, "qwen3_vl_moe_text");
    ASSERT_TRUE(source.ok()) << source.status();
    const std::string up = Expert(1, "up_proj.weight");
    const std::string out = Expert(1, "down_proj.weight");
    EXPECT_EQ((*source)->Find(up)->shape,
              (std::vector<int64_t>{kWidth, kHidden + 1}));
    EXPECT_EQ((*source)->Find(out)->shape,
              (std::vector<int64_t>{kHidden + 1, kWidth}));
    // Row 1, column 2.
    const int64_t rows = kHidden + 1;
    EXPECT_EQ(Read16(**source, up)[rows + 2],
              by_inputs ? (rows + 2) * 2 * kWidth + kWidth + 1
                        : (2 * kWidth + kWidth + 1) * rows + 2);
    EXPECT_EQ(Read16(**source, out)[kWidth + 2],
              by_inputs ? (kWidth + 2) * rows + 1 : (rows + 1) * kWidth + 2);
  }
}

// FP8: a scale an expert (Mistral 4's files), or one a block, which lie as the
// codes do.
TEST(ExpertSourceTest, ScalesOfFp8) {
  constexpr int64_t kOdd = kHidden + 8;
  Json config = Config("qwen3_moe");
  config["hidden_size"] = kOdd;
  config["quantization_config"] = {{"weight_block_size", {8, 8}}};
  const std::vector<float> numbers = [] {
    std::vector<float> values(kExperts * kOdd * kWidth);
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<float>(i);
    return values;
  }();
  const auto value = [](const WeightSource& source, const std::string& name,
                        size_t at) {
    float number = -1;
    const WeightInfo* info = source.Find(name);
    EXPECT_NE(info, nullptr) << name;
    if (info == nullptr) return number;
    EXPECT_TRUE(source
                    .Read(*info, at * sizeof(number),
                          absl::MakeSpan(reinterpret_cast<std::byte*>(&number),
                                         sizeof(number)))
                    .ok());
    return number;
  };
  const auto present = [&](bool by_inputs, std::vector<int64_t> gate_up,
                           std::vector<int64_t> scales) {
    if (by_inputs) std::swap(gate_up[1], gate_up[2]);
    if (by_inputs) std::swap(scales[1], scales[2]);
    auto stored = std::make_shared<MemoryWeights>(true);
    const std::string name = std::string(kPrefix) + "gate_up_proj";
    stored->Add(name, DType::kF8E4M3, gate_up, numbers.data());
    stored->Add(name + "_scale_inv", DType::kF32, scales, numbers.data());
    return PresentExperts(config, stored, "qwen3_vl_moe_text");
  };
  for (const bool by_inputs : {false, true}) {
    const auto whole =
        present(by_inputs, {kExperts, 2 * kWidth, kOdd}, {kExperts, 1, 1});
    ASSERT_TRUE(whole.ok()) << whole.status();
    for (const char* part : {"gate_proj", "up_proj"}) {
      const std::string layer = Expert(2, part);
      EXPECT_EQ((*whole)->Find(layer + ".weight")->dtype, DType::kF8E4M3);
      EXPECT_EQ(value(**whole, layer + ".weight_scale_inv", 0), 2.0f);
    }
    // 4 blocks of rows each, 9 of columns.
    const auto blocks =
        present(by_inputs, {kExperts, 2 * kWidth, kOdd}, {kExperts, 8, 9});
    ASSERT_TRUE(blocks.ok()) << blocks.status();
    const std::string up = Expert(1, "up_proj.weight_scale_inv");
    EXPECT_EQ((*blocks)->Find(up)->shape, (std::vector<int64_t>{4, 9}));
    EXPECT_EQ(value(**blocks, up, 2 * 9 + 3),
              by_inputs ? (9 + 3) * 8 + 4 + 2 : (8 + 4 + 2) * 9 + 3);
  }
  // A block that holds rows of both; scales of nothing.
  EXPECT_THAT(
      present(false, {kExperts, 24, kOdd}, {kExperts, 4, 9}).status().message(),
      HasSubstr("some of gate's and of up's"));
  EXPECT_FALSE(present(false, {kExperts, 2 * kWidth, kOdd}, {1, 8, 9}).ok());
  auto alone = std::make_shared<MemoryWeights>(true);
  alone->Add(std::string(kPrefix) + "down_proj_scale_inv", DType::kF32,
             {kExperts, 1, 1}, numbers.data());
  EXPECT_TRUE(
      absl::IsNotFound(PresentExperts(Config("mistral4"), alone).status()));
}

// e2m1, by the specification.
double Level(int code) {
  constexpr double kLevels[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  return kLevels[code & 7] * (code < 8 ? 1 : -1);
}

// Element i of blocks as kernels/quant/mxfp4/mxfp4.h has them: a scale of
// 2^(bits - 127), then bytes with elements i and 16 + i.
double Decoded(const std::vector<std::byte>& blocks, int64_t i) {
  const std::byte* block = blocks.data() + i / 32 * 17;
  const auto both = static_cast<int>(block[1 + i % 16]);
  return Level(i % 32 < 16 ? both & 15 : both >> 4) *
         std::ldexp(1.0, static_cast<int>(block[0]) - 127);
}

TEST(ExpertSourceTest, Mxfp4BlocksMeanTheSame) {
  std::mt19937 rng(1);
  std::vector<uint8_t> codes(kExperts * 2 * kWidth * kHidden / 2);
  for (uint8_t& code : codes) code = static_cast<uint8_t>(rng());
  std::vector<uint8_t> scales(codes.size() / 16);
  for (uint8_t& scale : scales) scale = static_cast<uint8_t>(120 + rng() % 16);
  for (const bool mapped : {false, true}) {
    auto stored = std::make_shared<MemoryWeights>(mapped);
    stored->Add(std::string(kPrefix) + "gate_up_proj_blocks", DType::kU8,
                {kExperts, 2 * kWidth, kHidden / 32, 16}, codes.data());
    stored->Add(std::string(kPrefix) + "gate_up_proj_scales", DType::kU8,
                {kExperts, 2 * kWidth, kHidden / 32}, scales.data());
    const auto source = PresentExperts(Config("gpt_oss"), stored);
    ASSERT_TRUE(source.ok()) << source.status();
    EXPECT_EQ((*source)->weights().size(), 2 * kExperts);
    for (int64_t e = 0; e < kExperts; ++e) {
      for (int64_t part = 0; part < 2; ++part) {
        const WeightInfo* info = (*source)->Find(
            Expert(e, part == 0 ? "gate_proj.weight" : "up_proj.weight"));
        ASSERT_NE(info, nullptr);
        EXPECT_EQ(info->dtype, DType::kMXFP4);
        const auto bytes = ReadIn(**source, *info, info->bytes);
        EXPECT_TRUE(ReadIn(**source, *info, 11) == bytes);
        for (int64_t i = 0; i < kWidth; ++i) {
          for (int64_t j = 0; j < kHidden; ++j) {
            const int64_t at = (e * 2 * kWidth + 2 * i + part) * kHidden + j;
            const int both = codes[static_cast<size_t>(at / 2)];
            const int code = j % 2 == 0 ? both & 15 : both >> 4;
            const double want =
                Level(code) *
                std::ldexp(1.0, scales[static_cast<size_t>(at / 32)] - 127);
            ASSERT_EQ(Decoded(bytes, i * kHidden + j), want);
          }
        }
      }
    }
  }
}

TEST(ExpertSourceTest, OthersPassThrough) {
  const auto stored =
      WithBf16(true, {{"model.layers.0.mlp.experts.0.gate_proj.weight", {4, 4}},
                      {"model.layers.0.mlp.gate.weight", {4, 4}}});
  const auto source = PresentExperts(Config("qwen3_moe"), stored);
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_EQ(*source, stored);
}

TEST(ExpertSourceTest, WhatContradictsItself) {
  const auto status = [](const std::string& type, auto... tensors) {
    return PresentExperts(Config(type), WithBf16(true, {tensors...})).status();
  };
  using Tensor = std::pair<std::string, std::vector<int64_t>>;
  const std::string gate_up = std::string(kPrefix) + "gate_up_proj";
  const std::string down = std::string(kPrefix) + "down_proj";
  for (const absl::Status& bad :
       {status("qwen3_moe", Tensor{gate_up, {3, 5, 4}}),
        status("qwen3_moe", Tensor{gate_up, {3, 4}}),
        status("qwen3_moe", Tensor{gate_up, {3, 0, 4}}),
        status("gpt_oss", Tensor{gate_up, {3, 4, 5}}),
        status("gpt_oss", Tensor{gate_up + "_bias", {3, 4, 2}}),
        status("gpt_oss", Tensor{down, {kMaxStoredExperts + 1, 1, 1}}),
        status("gpt_oss", Tensor{down + "_blocks", {3, 4, 1, 16}}),
        status("qwen3_moe", Tensor{down, {1, 4, 4}},
               Tensor{Expert(0, "down_proj.weight"), {4, 4}})}) {
    EXPECT_TRUE(absl::IsInvalidArgument(bad)) << bad;
    EXPECT_THAT(bad.message(), HasSubstr("experts")) << bad;
  }
  // Blocks without scales, scales without blocks, of other shapes.
  std::vector<uint8_t> bytes(1024);
  const auto mxfp4 = [&](std::vector<int64_t> blocks,
                         std::vector<int64_t> scales) {
    auto stored = std::make_shared<MemoryWeights>(true);
    if (!blocks.empty()) {
      stored->Add(down + "_blocks", DType::kU8, blocks, bytes.data());
    }
    if (!scales.empty()) {
      stored->Add(down + "_scales", DType::kU8, scales, bytes.data());
    }
    return PresentExperts(Config("gpt_oss"), stored).status();
  };
  EXPECT_TRUE(mxfp4({2, 4, 1, 16}, {2, 4, 1}).ok());
  EXPECT_TRUE(absl::IsNotFound(mxfp4({2, 4, 1, 16}, {})));
  EXPECT_TRUE(absl::IsNotFound(mxfp4({}, {2, 4, 1})));
  EXPECT_TRUE(absl::IsInvalidArgument(mxfp4({2, 4, 1, 16}, {2, 4, 2})));
  EXPECT_TRUE(absl::IsInvalidArgument(mxfp4({2, 4, 2, 8}, {2, 4, 2})));
}

// DBRX's: 3 experts' rows one after another; w2's lie inputs by outputs.
TEST(ExpertSource, DbrxsRowsComeApart) {
  constexpr char kMlp[] = "h.0.ffn.experts.mlp.";
  for (const bool mapped : {true, false}) {
    const auto weights = WithBf16(mapped, {{std::string(kMlp) + "w1", {6, 4}},
                                           {std::string(kMlp) + "w2", {6, 4}}});
    Json config = Config("dbrx");
    config["ffn_config"] = {{"moe_num_experts", 3}};
    const auto parts = PresentExperts(config, weights);
    ASSERT_TRUE(parts.ok()) << parts.status();
    EXPECT_EQ((*parts)->weights().size(), 6u);
    EXPECT_EQ(Read16(**parts, "h.0.ffn.experts.1.w1.weight"),
              (std::vector<uint16_t>{8, 9, 10, 11, 12, 13, 14, 15}));
    EXPECT_EQ(Read16(**parts, "h.0.ffn.experts.1.w2.weight"),
              (std::vector<uint16_t>{8, 12, 9, 13, 10, 14, 11, 15}));
    EXPECT_EQ((*parts)->Find("h.0.ffn.experts.1.w2.weight")->shape,
              (std::vector<int64_t>{4, 2}));
    config["ffn_config"] = {{"moe_num_experts", 4}};
    const absl::Status uneven = PresentExperts(config, weights).status();
    EXPECT_TRUE(absl::IsInvalidArgument(uneven)) << uneven;
    EXPECT_THAT(std::string(uneven.message()), HasSubstr("experts.mlp.w1"));
  }
}

// Aria's: 2 experts of width 2 over 3 inputs, inputs by outputs, gate's columns
// before up's.
TEST(ExpertSource, AriasMatrices) {
  const std::string mlp = "model.layers.0.mlp.experts.";
  for (const bool mapped : {true, false}) {
    const auto weights = WithBf16(mapped, {{mlp + "fc1.weight", {2, 3, 4}},
                                           {mlp + "fc2.weight", {2, 2, 3}}});
    const auto parts = PresentExperts(Config("aria_text"), weights);
    ASSERT_TRUE(parts.ok()) << parts.status();
    EXPECT_EQ((*parts)->weights().size(), 6u);
    EXPECT_EQ(Read16(**parts, mlp + "1.gate_proj.weight"),
              (std::vector<uint16_t>{12, 16, 20, 13, 17, 21}));
    EXPECT_EQ(Read16(**parts, mlp + "1.up_proj.weight"),
              (std::vector<uint16_t>{14, 18, 22, 15, 19, 23}));
    EXPECT_EQ(Read16(**parts, mlp + "1.down_proj.weight"),
              (std::vector<uint16_t>{6, 9, 7, 10, 8, 11}));
  }
}

// JetMoE's: 2 experts of width 1 over 2 inputs, gate's row before up's, and
// stacks of queries and outputs; of another family the MLPs' stay as they are.
TEST(ExpertSource, JetMoesStacks) {
  const std::string mlp = "model.layers.0.mlp.";
  const std::string heads = "model.layers.0.self_attention.experts.";
  const auto weights =
      WithBf16(true, {{mlp + "input_linear.weight", {2, 2, 2}},
                      {mlp + "output_linear.weight", {2, 2, 1}},
                      {heads + "input_linear.weight", {2, 3, 2}},
                      {heads + "bias", {2}}});
  const auto parts = PresentExperts(Config("jetmoe"), weights);
  ASSERT_TRUE(parts.ok()) << parts.status();
  EXPECT_EQ((*parts)->weights().size(), 9u);
  EXPECT_EQ(Read16(**parts, mlp + "experts.1.gate_proj.weight"),
            (std::vector<uint16_t>{4, 5}));
  EXPECT_EQ(Read16(**parts, mlp + "experts.1.up_proj.weight"),
            (std::vector<uint16_t>{6, 7}));
  EXPECT_EQ(Read16(**parts, mlp + "experts.1.down_proj.weight"),
            (std::vector<uint16_t>{2, 3}));
  EXPECT_EQ(Read16(**parts, heads + "1.input_linear.weight"),
            (std::vector<uint16_t>{6, 7, 8, 9, 10, 11}));
  EXPECT_NE((*parts)->Find(heads + "bias"), nullptr);
  const auto plain = PresentExperts(Config("llama"), weights);
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_NE((*plain)->Find(mlp + "input_linear.weight"), nullptr);
}

// Step 3.5's: a stack for each matrix, with FP8's numbers for blocks; of
// another family they stay as they are.
TEST(ExpertSource, StepsStacks) {
  const std::string moe = "model.layers.3.moe.";
  const auto weights =
      WithBf16(true, {{moe + "gate_proj.weight", {2, 1, 3}},
                      {moe + "up_proj.weight", {2, 1, 3}},
                      {moe + "down_proj.weight", {2, 3, 1}},
                      {moe + "down_proj.weight_scale_inv", {2, 1, 1}},
                      {moe + "gate.weight", {2, 3}},
                      {moe + "router_bias", {2}}});
  const auto parts = PresentExperts(Config("step3p5"), weights);
  ASSERT_TRUE(parts.ok()) << parts.status();
  EXPECT_EQ((*parts)->weights().size(), 10u);
  for (const char* part : {"gate_proj", "up_proj", "down_proj"}) {
    EXPECT_EQ(
        Read16(**parts, moe + "experts.1." + std::string(part) + ".weight"),
        (std::vector<uint16_t>{3, 4, 5}));
  }
  EXPECT_EQ(Read16(**parts, moe + "experts.1.down_proj.weight_scale_inv"),
            (std::vector<uint16_t>{1}));
  EXPECT_EQ((*parts)->Find(moe + "experts.0.down_proj.weight")->shape,
            (std::vector<int64_t>{3, 1}));
  EXPECT_NE((*parts)->Find(moe + "gate.weight"), nullptr);
  EXPECT_NE((*parts)->Find(moe + "router_bias"), nullptr);
  const auto plain = PresentExperts(Config("llama"), weights);
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_NE((*plain)->Find(moe + "gate_proj.weight"), nullptr);
}

// ERNIE 4.5 VL's corrections: text's are the first row.
TEST(ExpertSource, CorrectionsOfTwoRouters) {
  const std::string name = "mlp.moe_statics.e_score_correction_bias";
  const auto weights = WithBf16(true, {{name, {2, 3}}});
  const auto parts =
      PresentExperts(Config("ernie4_5_moe"), weights, "ernie4_5_vl_moe_text");
  ASSERT_TRUE(parts.ok()) << parts.status();
  EXPECT_EQ(Read16(**parts, name), (std::vector<uint16_t>{0, 1, 2}));
  EXPECT_EQ((*parts)->Find(name)->shape, (std::vector<int64_t>{1, 3}));
  const auto plain = PresentExperts(Config("ernie4_5_moe"), weights);
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_EQ((*plain)->Find(name)->shape, (std::vector<int64_t>{2, 3}));
}

}  // namespace
}  // namespace inlay
