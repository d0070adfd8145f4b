// Tensors that hold q, k and v head by head, taken apart.
#include "core/formats/head_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "tests/support/memory_weights.h"

namespace inlay {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kHeads = 3;
constexpr int64_t kHeadDim = 4;
constexpr int64_t kInputs = 5;
constexpr int64_t kRows = 3 * kHeads * kHeadDim;
constexpr char kLayer[] = "gpt_neox.layers.0.attention.";

Json HeadsConfig() {
  return {{"model_type", "gpt_neox"}, {"num_attention_heads", kHeads}};
}

std::shared_ptr<MemoryWeights> Stored(bool mapped) {
  std::vector<uint16_t> numbers(kRows * kInputs);
  std::iota(numbers.begin(), numbers.end(), uint16_t{0});
  auto weights = std::make_shared<MemoryWeights>(mapped);
  const std::string name = std::string(kLayer) + "query_key_value";
  weights->Add(name + ".weight", DType::kBF16, {kRows, kInputs},
               numbers.data());
  weights->Add(name + ".bias", DType::kBF16, {kRows}, numbers.data());
  weights->Add(std::string(kLayer) + "dense.weight", DType::kBF16, {2, 2},
               numbers.data());
  return weights;
}

// The elements of a tensor, read in pieces of so many bytes.
std::vector<uint16_t> ReadPieces(const WeightSource& source,
                                 const WeightInfo& info, size_t piece) {
  std::vector<uint16_t> values(info.bytes / 2);
  const auto bytes =
      absl::MakeSpan(reinterpret_cast<std::byte*>(values.data()), info.bytes);
  for (size_t at = 0; at < bytes.size(); at += piece) {
    EXPECT_TRUE(source.Read(info, at, bytes.subspan(at, piece)).ok());
  }
  return values;
}

TEST(HeadSourceTest, PartsAreTheRowsOfTheirHeads) {
  for (const bool mapped : {false, true}) {
    const auto source = PresentHeads(HeadsConfig(), Stored(mapped));
    ASSERT_TRUE(source.ok()) << source.status();
    EXPECT_EQ((*source)->weights().size(), 7u);
    EXPECT_NE((*source)->Find(std::string(kLayer) + "dense.weight"), nullptr);
    int64_t part = 0;
    for (const char* name : {"q_proj", "k_proj", "v_proj"}) {
      SCOPED_TRACE(name);
      const WeightInfo* weight =
          (*source)->Find(std::string(kLayer) + name + ".weight");
      const WeightInfo* bias =
          (*source)->Find(std::string(kLayer) + name + ".bias");
      ASSERT_TRUE(weight != nullptr && bias != nullptr);
      EXPECT_EQ(weight->shape,
                (std::vector<int64_t>{kHeads * kHeadDim, kInputs}));
      EXPECT_EQ(bias->shape, (std::vector<int64_t>{kHeads * kHeadDim}));
      EXPECT_EQ((*source)->Mapped(*weight), nullptr);
      for (const size_t piece : {2, 6, 34, 1000}) {
        const auto rows = ReadPieces(**source, *weight, piece);
        const auto biases = ReadPieces(**source, *bias, piece);
        for (int64_t i = 0; i < kHeads * kHeadDim; ++i) {
          const int64_t row =
              i / kHeadDim * 3 * kHeadDim + part * kHeadDim + i % kHeadDim;
          EXPECT_EQ(biases[static_cast<size_t>(i)], row);
          for (int64_t j = 0; j < kInputs; ++j) {
            ASSERT_EQ(rows[static_cast<size_t>(i * kInputs + j)],
                      row * kInputs + j);
          }
        }
      }
      ++part;
    }
  }
}

// All parts read the same inputs.
TEST(HeadSourceTest, EachPartHasTheOrderOfItsColumns) {
  const std::string name = std::string(kLayer) + "query_key_value";
  const std::vector<int32_t> order = {3, 0, 4, 1, 2};
  const auto stored = Stored(true);
  stored->Add(name + ".input_permutation", DType::kI32, {kInputs},
              order.data());
  const auto source = PresentHeads(HeadsConfig(), stored);
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_EQ((*source)->Find(name + ".input_permutation"), nullptr);
  for (const char* part : {"q_proj", "k_proj", "v_proj"}) {
    const WeightInfo* info =
        (*source)->Find(std::string(kLayer) + part + ".input_permutation");
    ASSERT_NE(info, nullptr) << part;
    EXPECT_EQ(info->shape, std::vector<int64_t>{kInputs});
    std::vector<int32_t> got(order.size());
    EXPECT_TRUE(
        (*source)
            ->Read(*info, 0,
                   absl::MakeSpan(reinterpret_cast<std::byte*>(got.data()),
                                  info->bytes))
            .ok());
    EXPECT_EQ(got, order);
  }
  for (const bool is_float : {false, true}) {
    const auto bad = Stored(true);
    bad->Add(name + ".input_permutation", is_float ? DType::kF32 : DType::kI32,
             is_float ? std::vector<int64_t>{kInputs} : std::vector<int64_t>{},
             order.data());
    const auto refused = PresentHeads(HeadsConfig(), bad);
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(refused.status().message()),
                HasSubstr(name + ".input_permutation"));
  }
}

// Of one column: rows are their own numbers.
std::vector<uint16_t> RowsOf(const Json& config, std::string_view fused,
                             const char* part, int64_t count) {
  std::vector<uint16_t> rows(static_cast<size_t>(count));
  std::iota(rows.begin(), rows.end(), uint16_t{0});
  auto stored = std::make_shared<MemoryWeights>(true);
  stored->Add("h.0." + std::string(fused) + ".weight", DType::kBF16, {count, 1},
              rows.data());
  const auto source = PresentHeads(config, stored);
  EXPECT_TRUE(source.ok()) << source.status();
  if (!source.ok()) return {};
  const WeightInfo* info =
      (*source)->Find("h.0." + std::string(part) + ".weight");
  EXPECT_NE(info, nullptr) << part;
  return info == nullptr ? std::vector<uint16_t>()
                         : ReadPieces(**source, *info, 2);
}

// Two heads of queries for each of keys, of two rows.
TEST(HeadSourceTest, GroupsOfQueries) {
  const Json config = {{"model_type", "falcon"},
                       {"new_decoder_architecture", true},
                       {"num_attention_heads", 4},
                       {"num_kv_heads", 2}};
  const auto rows = [&](const char* part) {
    return RowsOf(config, "query_key_value", part, 16);
  };
  EXPECT_THAT(rows("q_proj"), ElementsAre(0, 1, 2, 3, 8, 9, 10, 11));
  EXPECT_THAT(rows("k_proj"), ElementsAre(4, 5, 12, 13));
  EXPECT_THAT(rows("v_proj"), ElementsAre(6, 7, 14, 15));
}

// All queries, all keys, all values: two heads of queries, one of keys.
TEST(HeadSourceTest, OneGroupOfLings) {
  for (const char* type : {"sarvam_moe", "bailing_moe", "bailing_moe_v2"}) {
    SCOPED_TRACE(type);
    const Json config = {{"model_type", type},
                         {"num_attention_heads", 2},
                         {"num_key_value_heads", 1}};
    const auto rows = [&](const char* part) {
      return RowsOf(config, "query_key_value", part, 8);
    };
    EXPECT_THAT(rows("q_proj"), ElementsAre(0, 1, 2, 3));
    EXPECT_THAT(rows("k_proj"), ElementsAre(4, 5));
    EXPECT_THAT(rows("v_proj"), ElementsAre(6, 7));
  }
}

// A head of keys after another: two of queries, one of keys, one of values.
TEST(HeadSourceTest, GroupsOfInternLm2) {
  const Json config = {{"model_type", "internlm2"},
                       {"num_attention_heads", 4},
                       {"num_key_value_heads", 2}};
  const auto rows = [&](const char* part) {
    return RowsOf(config, "wqkv", part, 8);
  };
  EXPECT_THAT(rows("q_proj"), ElementsAre(0, 1, 4, 5));
  EXPECT_THAT(rows("k_proj"), ElementsAre(2, 6));
  EXPECT_THAT(rows("v_proj"), ElementsAre(3, 7));
}

// Layers with heads of their own; gates and ups in one matrix.
TEST(HeadSourceTest, LayersOfOpenElm) {
  const Json config = {{"model_type", "openelm"},
                       {"head_dim", 2},
                       {"model_dim", 2},
                       {"num_transformer_layers", 2},
                       {"num_query_heads", {1, 2}},
                       {"num_kv_heads", {1, 1}},
                       {"ffn_multipliers", {1, 1}}};
  std::vector<uint16_t> numbers(16);
  std::iota(numbers.begin(), numbers.end(), uint16_t{0});
  auto weights = std::make_shared<MemoryWeights>(true);
  const std::string layers = "transformer.layers.";
  weights->Add(layers + "0.attn.qkv_proj.weight", DType::kBF16, {6, 1},
               numbers.data());
  weights->Add(layers + "1.attn.qkv_proj.weight", DType::kBF16, {8, 1},
               numbers.data());
  weights->Add(layers + "1.ffn.proj_1.weight", DType::kBF16, {4, 1},
               numbers.data());
  const auto source = PresentHeads(config, weights);
  ASSERT_TRUE(source.ok()) << source.status();
  const auto rows = [&](const std::string& name) {
    const WeightInfo* info = (*source)->Find(layers + name + ".weight");
    return info == nullptr ? std::vector<uint16_t>()
                           : ReadPieces(**source, *info, 2);
  };
  EXPECT_THAT(rows("0.attn.q_proj"), ElementsAre(0, 1));
  EXPECT_THAT(rows("0.attn.v_proj"), ElementsAre(4, 5));
  EXPECT_THAT(rows("1.attn.q_proj"), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(rows("1.attn.k_proj"), ElementsAre(4, 5));
  EXPECT_THAT(rows("1.ffn.gate_proj"), ElementsAre(0, 1));
  EXPECT_THAT(rows("1.ffn.up_proj"), ElementsAre(2, 3));
  EXPECT_EQ((*source)->weights().size(), 8u);
  // Of no layer, of another count of rows.
  for (const auto& [name, count] :
       {std::pair{"2.attn.qkv_proj.weight", int64_t{8}},
        std::pair{"x.attn.qkv_proj.weight", int64_t{8}},
        std::pair{"0.attn.qkv_proj.weight", int64_t{8}}}) {
    auto wrong = std::make_shared<MemoryWeights>(true);
    wrong->Add(layers + name, DType::kBF16, {count, 1}, numbers.data());
    const absl::Status status = PresentHeads(config, wrong).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(name));
  }
}

// Two heads of two rows, and a bias by a name of its own.
TEST(HeadSourceTest, RelativesOfNeox) {
  for (const char* type : {"persimmon", "gpt_neox_japanese"}) {
    SCOPED_TRACE(type);
    const Json config = {{"model_type", type}, {"num_attention_heads", 2}};
    const auto rows = [&](const char* part) {
      return RowsOf(config, "query_key_value", part, 12);
    };
    EXPECT_THAT(rows("q_proj"), ElementsAre(0, 1, 6, 7));
    EXPECT_THAT(rows("k_proj"), ElementsAre(2, 3, 8, 9));
    EXPECT_THAT(rows("v_proj"), ElementsAre(4, 5, 10, 11));
    const uint16_t numbers[] = {7, 8, 9};
    auto weights = std::make_shared<MemoryWeights>(true);
    weights->Add("h.0.attention.dense_bias", DType::kBF16, {3}, numbers);
    const auto source = PresentHeads(config, weights);
    ASSERT_TRUE(source.ok()) << source.status();
    const bool is_japanese = config["model_type"] == "gpt_neox_japanese";
    const WeightInfo* bias = (*source)->Find(
        is_japanese ? "h.0.attention.dense.bias" : "h.0.attention.dense_bias");
    ASSERT_NE(bias, nullptr);
    EXPECT_THAT(ReadPieces(**source, *bias, 2), ElementsAre(7, 8, 9));
    EXPECT_EQ((*source)->weights().size(), 1u);
    // 64 heads, or 32, where nothing says how many.
    const auto defaults =
        RowsOf({{"model_type", type}}, "query_key_value", "k_proj", 192);
    ASSERT_EQ(defaults.size(), 64u);
    EXPECT_EQ(defaults[0], is_japanese ? 2 : 1);
  }
}

// q, k and v, z, b and a: of one head of keys and two of values.
TEST(HeadSourceTest, InputsOfLaraMini) {
  const Json config = {{"model_type", "lara_mini"},
                       {"linear_num_key_heads", 1},
                       {"linear_num_value_heads", 2},
                       {"linear_key_head_dim", 1},
                       {"linear_value_head_dim", 2}};
  const auto rows = [&](const char* part) {
    return RowsOf(config, "linear_attn.in_proj", part, 14);
  };
  EXPECT_THAT(rows("linear_attn.in_proj_qkv"), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(rows("linear_attn.in_proj_z"), ElementsAre(6, 7, 8, 9));
  EXPECT_THAT(rows("linear_attn.in_proj_b"), ElementsAre(10, 11));
  EXPECT_THAT(rows("linear_attn.in_proj_a"), ElementsAre(12, 13));
  const uint16_t numbers[13] = {};
  auto weights = std::make_shared<MemoryWeights>(true);
  weights->Add("h.0.linear_attn.in_proj.weight", DType::kBF16, {13, 1},
               numbers);
  const auto status = PresentHeads(config, weights).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("must have 14 rows"));
}

// Head by head queries and gates.
TEST(HeadSourceTest, QueriesAndGatesOfAxK2) {
  const Json config = {{"model_type", "axk2"},
                       {"num_attention_heads", 2},
                       {"qk_nope_head_dim", 2},
                       {"qk_rope_head_dim", 1},
                       {"v_head_dim", 2}};
  const auto rows = [&](const char* part) {
    return RowsOf(config, "self_attn.q_b_proj", part, 10);
  };
  EXPECT_THAT(rows("self_attn.q_proj"), ElementsAre(0, 1, 2, 5, 6, 7));
  EXPECT_THAT(rows("self_attn.gate_proj"), ElementsAre(3, 4, 8, 9));
  const uint16_t numbers[5] = {};
  auto weights = std::make_shared<MemoryWeights>(true);
  weights->Add("h.0.self_attn.q_b_proj.weight", DType::kBF16, {5, 1}, numbers);
  const auto status = PresentHeads(config, weights).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("must have 10 rows"));
}

// Four shards, in each queries, values and keys.
TEST(HeadSourceTest, ShardsOfCodeGen) {
  const Json config = {{"model_type", "codegen"}};
  const auto rows = [&](const char* part) {
    return RowsOf(config, "qkv_proj", part, 24);
  };
  EXPECT_THAT(rows("q_proj"), ElementsAre(0, 1, 6, 7, 12, 13, 18, 19));
  EXPECT_THAT(rows("v_proj"), ElementsAre(2, 3, 8, 9, 14, 15, 20, 21));
  EXPECT_THAT(rows("k_proj"), ElementsAre(4, 5, 10, 11, 16, 17, 22, 23));
}

// Two parts, the gate last.
TEST(HeadSourceTest, GatesOfGte) {
  std::vector<uint16_t> numbers(4 * 2);
  std::iota(numbers.begin(), numbers.end(), uint16_t{0});
  for (const char* type : {"gte", "new"}) {
    auto weights = std::make_shared<MemoryWeights>(true);
    weights->Add("mlp.up_gate_proj.weight", DType::kBF16, {4, 2},
                 numbers.data());
    weights->Add("attention.qkv_proj.weight", DType::kBF16, {4, 2},
                 numbers.data());
    const auto source = PresentHeads({{"model_type", type}}, weights);
    ASSERT_TRUE(source.ok()) << source.status();
    ASSERT_EQ((*source)->weights().size(), 3u);
    const WeightInfo* up = (*source)->Find("mlp.up_proj.weight");
    const WeightInfo* gate = (*source)->Find("mlp.gate_proj.weight");
    ASSERT_TRUE(up != nullptr && gate != nullptr);
    EXPECT_THAT(gate->shape, ElementsAre(2, 2));
    EXPECT_THAT(ReadPieces(**source, *up, 2), ElementsAre(0, 1, 2, 3));
    EXPECT_THAT(ReadPieces(**source, *gate, 2), ElementsAre(4, 5, 6, 7));
  }
  auto odd = std::make_shared<MemoryWeights>(true);
  odd->Add("mlp.up_gate_proj.weight", DType::kBF16, {3, 2}, numbers.data());
  const auto status = PresentHeads({{"model_type", "gte"}}, odd).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
}

TEST(HeadSourceTest, OneOfTwoNamesOfHeads) {
  for (const char* key : {"n_head", "num_attention_heads"}) {
    const Json config = {
        {"model_type", "gpt_bigcode"}, {"multi_query", false}, {key, 2}};
    EXPECT_THAT(RowsOf(config, "c_attn", "k_proj", 6), ElementsAre(1, 4));
  }
}

// One head of keys: q, k and v lie one after another already.
TEST(HeadSourceTest, MultiQueryPassesThrough) {
  const auto stored = Stored(false);
  for (const char* type : {"falcon", "gpt_bigcode"}) {
    EXPECT_EQ(*PresentHeads({{"model_type", type}}, stored), stored);
  }
}

TEST(HeadSourceTest, GroupsThatDoNotDivide) {
  const Json config = {{"model_type", "falcon"},
                       {"new_decoder_architecture", true},
                       {"num_attention_heads", 4},
                       {"num_kv_heads", 3}};
  const auto status = PresentHeads(config, Stored(true)).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("num_kv_heads, 3"));
}

TEST(HeadSourceTest, OtherModelsPassThrough) {
  const auto stored = Stored(false);
  EXPECT_EQ(*PresentHeads({{"model_type", "llama"}}, stored), stored);
  EXPECT_EQ(*PresentHeads(Json::object(), stored), stored);
}

TEST(HeadSourceTest, WhatContradictsItself) {
  Json config = HeadsConfig();
  config["num_attention_heads"] = 5;
  const auto status = PresentHeads(config, Stored(true)).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("query_key_value.bias\" has shape [36]"));
  config["num_attention_heads"] = -1;
  EXPECT_TRUE(
      absl::IsInvalidArgument(PresentHeads(config, Stored(true)).status()));
  // A part that is there besides.
  auto twice = Stored(true);
  const uint16_t zero = 0;
  twice->Add(std::string(kLayer) + "q_proj.bias", DType::kBF16, {1}, &zero);
  EXPECT_TRUE(
      absl::IsInvalidArgument(PresentHeads(HeadsConfig(), twice).status()));
}

}  // namespace
}  // namespace inlay
