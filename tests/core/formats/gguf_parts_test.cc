// Tensors of GGUF files that hold others in another order: what is presented
// row by row, by names and values made here.
#include "core/formats/gguf_parts.h"

#include <gtest/gtest.h>

#include <numeric>

#include "core/formats/gguf_arch.h"
#include "tests/support/memory_weights.h"

namespace inlay {
namespace {

constexpr char kAttention[] = "model.layers.0.linear_attn.";

// Rows of `columns` elements, element j of row i being 100 i + j.
std::vector<float> Rows(int64_t rows, int64_t columns) {
  std::vector<float> values;
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      values.push_back(static_cast<float>(100 * i + j));
    }
  }
  return values;
}

template <typename T>
std::vector<T> ValuesOf(const WeightSource& source, const std::string& name) {
  const WeightInfo* info = source.Find(name);
  if (info == nullptr) return {};
  std::vector<T> values(info->bytes / sizeof(T));
  EXPECT_TRUE(
      source
          .Read(*info, 0,
                absl::MakeSpan(reinterpret_cast<std::byte*>(values.data()),
                               info->bytes))
          .ok());
  return values;
}

std::vector<int> RowNumbers(const std::vector<float>& values, int64_t columns) {
  std::vector<int> rows;
  for (size_t i = 0; i < values.size(); i += static_cast<size_t>(columns)) {
    rows.push_back(static_cast<int>(values[i]) / 100);
  }
  return rows;
}

// 2 key heads of 3, 4 value heads of 2.
Json LinearConfig() {
  return {{"model_type", "qwen3_5_text"},
          {"linear_num_key_heads", 2},
          {"linear_num_value_heads", 4},
          {"linear_key_head_dim", 3},
          {"linear_value_head_dim", 2}};
}

TEST(GgufParts, HeadsTurnBack) {
  auto weights = std::make_shared<MemoryWeights>(true);
  const std::string turned = std::string(kAttention) + "turned.";
  weights->Add(turned + "in_proj_qkv.weight", DType::kF32, {20, 5},
               Rows(20, 5).data());
  weights->Add(turned + "in_proj_z.weight", DType::kF32, {8, 5},
               Rows(8, 5).data());
  weights->Add(turned + "in_proj_a.weight", DType::kF32, {4, 5},
               Rows(4, 5).data());
  weights->Add(turned + "A_log", DType::kF32, {4}, Rows(4, 1).data());
  weights->Add(turned + "out_proj.weight", DType::kF32, {3, 8},
               Rows(3, 8).data());
  const auto parts = PresentGgufParts(LinearConfig(), weights);
  ASSERT_TRUE(parts.ok()) << parts.status();
  const auto rows = [&](const char* name, int64_t columns) {
    return RowNumbers(ValuesOf<float>(**parts, std::string(kAttention) + name),
                      columns);
  };
  EXPECT_EQ(rows("in_proj_qkv.weight", 5),
            (std::vector<int>{0,  1,  2,  3,  4,  5,  6,  7,  8,  9,
                              10, 11, 12, 13, 16, 17, 14, 15, 18, 19}));
  EXPECT_EQ(rows("in_proj_z.weight", 5),
            (std::vector<int>{0, 1, 4, 5, 2, 3, 6, 7}));
  EXPECT_EQ(rows("in_proj_a.weight", 5), (std::vector<int>{0, 2, 1, 3}));
  EXPECT_EQ(rows("A_log", 1), (std::vector<int>{0, 2, 1, 3}));
  const std::vector<float> output =
      ValuesOf<float>(**parts, std::string(kAttention) + "out_proj.weight");
  EXPECT_EQ(std::vector<float>(output.begin() + 8, output.begin() + 16),
            (std::vector<float>{100, 101, 104, 105, 102, 103, 106, 107}));
}

// Blocks wider than a head stay where they are.
TEST(GgufParts, WideBlocksGetAPermutation) {
  auto weights = std::make_shared<MemoryWeights>(true);
  const std::string name = std::string(kAttention) + "turned.out_proj.weight";
  Json config = LinearConfig();
  config["linear_value_head_dim"] = 16;
  std::vector<char> blocks(RowBytes(DType::kQ8_0, 3 * 64));
  std::iota(blocks.begin(), blocks.end(), 0);
  weights->Add(name, DType::kQ8_0, {3, 64}, blocks.data());
  const auto parts = PresentGgufParts(config, weights);
  ASSERT_TRUE(parts.ok()) << parts.status();
  EXPECT_EQ(
      ValuesOf<char>(**parts, std::string(kAttention) + "out_proj.weight"),
      blocks);
  const std::vector<int32_t> inputs = ValuesOf<int32_t>(
      **parts, std::string(kAttention) + "out_proj.input_permutation");
  ASSERT_EQ(inputs.size(), 64u);
  for (int i = 0; i < 64; ++i) {
    constexpr int kHeads[] = {0, 2, 1, 3};
    EXPECT_EQ(inputs[static_cast<size_t>(i)], kHeads[i / 16] * 16 + i % 16);
  }
}

TEST(GgufParts, BAndAComeApart) {
  auto weights = std::make_shared<MemoryWeights>(true);
  weights->Add(std::string(kAttention) + "in_proj_ba.weight", DType::kF32,
               {8, 2}, Rows(8, 2).data());
  Json config = LinearConfig();
  config["model_type"] = "qwen3_5_moe_text";
  const auto parts = PresentGgufParts(config, weights);
  ASSERT_TRUE(parts.ok()) << parts.status();
  const auto rows = [&](const char* name) {
    return RowNumbers(ValuesOf<float>(**parts, std::string(kAttention) + name),
                      2);
  };
  EXPECT_EQ(rows("in_proj_b.weight"), (std::vector<int>{0, 1, 4, 5}));
  EXPECT_EQ(rows("in_proj_a.weight"), (std::vector<int>{2, 3, 6, 7}));
}

TEST(GgufParts, RefusesOtherShapes) {
  for (const auto& [name, rows] : {std::pair{"turned.in_proj_qkv.weight", 19},
                                   std::pair{"turned.in_proj_z.weight", 7},
                                   std::pair{"in_proj_ba.weight", 9}}) {
    auto weights = std::make_shared<MemoryWeights>(true);
    weights->Add(std::string(kAttention) + name, DType::kF32, {rows, 2},
                 Rows(rows, 2).data());
    EXPECT_EQ(PresentGgufParts(LinearConfig(), weights).status().code(),
              absl::StatusCode::kInvalidArgument)
        << name;
  }
  auto weights = std::make_shared<MemoryWeights>(true);
  weights->Add("gpt_neox.layers.0.attention.qkv_proj.weight", DType::kF32,
               {7, 2}, Rows(7, 2).data());
  EXPECT_EQ(
      PresentGgufParts({{"model_type", "gpt_neox"}}, weights).status().code(),
      absl::StatusCode::kInvalidArgument);
  Json config = LinearConfig();
  config["linear_num_key_heads"] = 3;
  EXPECT_EQ(PresentGgufParts(config, weights).status().code(),
            absl::StatusCode::kInvalidArgument);
}

// 3 heads that share 1 of keys, 2 rows each; StarCoder's stay together.
TEST(GgufParts, JoinedHeadsComeApart) {
  auto weights = std::make_shared<MemoryWeights>(true);
  weights->Add("h.0.query_key_value.weight", DType::kF32, {10, 5},
               Rows(10, 5).data());
  weights->Add("h.0.query_key_value.bias", DType::kF32, {10},
               Rows(10, 1).data());
  weights->Add("h.0.c_attn.weight", DType::kF32, {10, 5}, Rows(10, 5).data());
  const Json heads = {{"num_attention_heads", 3}, {"num_key_value_heads", 1}};
  Json falcon = heads;
  falcon["model_type"] = "falcon";
  const auto parts = PresentGgufParts(falcon, weights);
  ASSERT_TRUE(parts.ok()) << parts.status();
  for (const auto& [name, rows] :
       {std::pair<std::string, std::vector<int>>{"q_proj", {0, 1, 2, 3, 4, 5}},
        {"k_proj", {6, 7}},
        {"v_proj", {8, 9}}}) {
    EXPECT_EQ(
        RowNumbers(ValuesOf<float>(**parts, "h.0." + name + ".weight"), 5),
        rows);
    EXPECT_EQ(RowNumbers(ValuesOf<float>(**parts, "h.0." + name + ".bias"), 1),
              rows);
  }
  Json starcoder = heads;
  starcoder["model_type"] = "gpt_bigcode";
  starcoder["multi_query"] = true;
  EXPECT_EQ(*PresentGgufParts(starcoder, weights), weights);
  starcoder["multi_query"] = false;
  const auto apart = PresentGgufParts(starcoder, weights);
  ASSERT_TRUE(apart.ok()) << apart.status();
  EXPECT_EQ((*apart)->Find("h.0.c_attn.weight"), nullptr);
  EXPECT_NE((*apart)->Find("h.0.k_proj.weight"), nullptr);
  falcon["num_attention_heads"] = 2;
  falcon["num_key_value_heads"] = 2;
  EXPECT_TRUE(
      absl::IsInvalidArgument(PresentGgufParts(falcon, weights).status()));
}

TEST(GgufParts, NormsOfHeadsAndOfPartsGetTheirNames) {
  auto weights = std::make_shared<MemoryWeights>(true);
  weights->Add("a.norms.weight", DType::kF32, {3, 4}, Rows(3, 4).data());
  weights->Add("a.input_layernorm.weight", DType::kF32, {3}, Rows(3, 1).data());
  const auto parts =
      PresentGgufParts(Json{{"model_type", "stablelm"}}, weights);
  ASSERT_TRUE(parts.ok()) << parts.status();
  for (int head = 0; head < 3; ++head) {
    const std::string name = "a.norms." + std::to_string(head) + ".weight";
    ASSERT_NE((*parts)->Find(name), nullptr);
    EXPECT_EQ((*parts)->Find(name)->shape, std::vector<int64_t>{4});
    EXPECT_EQ(RowNumbers(ValuesOf<float>(**parts, name), 4),
              std::vector<int>{head});
  }
  const auto norms = PresentGgufParts(
      Json{{"model_type", "falcon"}, {"num_ln_in_parallel_attn", 2}}, weights);
  ASSERT_TRUE(norms.ok()) << norms.status();
  EXPECT_EQ(RowNumbers(ValuesOf<float>(**norms, "a.ln_mlp.weight"), 1),
            (std::vector<int>{0, 1, 2}));
  // Rows of vectors in blocks are none.
  auto blocks = std::make_shared<MemoryWeights>(true);
  const std::string bytes(34 * 4, 0);
  blocks->Add("a.norms.weight", DType::kQ8_0, {4, 32}, bytes.data());
  EXPECT_TRUE(absl::IsInvalidArgument(
      PresentGgufParts(Json{{"model_type", "stablelm"}}, blocks).status()));
  auto bias = std::make_shared<MemoryWeights>(true);
  bias->Add("h.query_key_value.bias", DType::kQ8_0, {96}, bytes.data());
  EXPECT_TRUE(absl::IsInvalidArgument(
      PresentGgufParts(Json{{"model_type", "bloom"}}, bias).status()));
}

// Gate and up as one tensor, which expert_source.h takes apart.
TEST(GgufParts, Mistral4sExpertsLieTogether) {
  const auto arch = FindGgufArch("mistral4");
  ASSERT_TRUE(arch.ok()) << arch.status();
  const auto name =
      PublishedTensorName(**arch, "blk.3.ffn_gate_up_exps.weight");
  ASSERT_TRUE(name.has_value());
  EXPECT_EQ(name->name, "model.layers.3.mlp.experts.gate_up_proj");
}

// Norms that a network would pass over are none of its tensors.
TEST(GgufParts, NormsOfHeadsAreCommandRs) {
  for (const auto& [name, has] :
       {std::pair{"command-r", true}, std::pair{"cohere2", false}}) {
    const auto arch = FindGgufArch(name);
    ASSERT_TRUE(arch.ok()) << arch.status();
    EXPECT_EQ(
        PublishedTensorName(**arch, "blk.0.attn_q_norm.weight").has_value(),
        has)
        << name;
  }
}

}  // namespace
}  // namespace inlay
