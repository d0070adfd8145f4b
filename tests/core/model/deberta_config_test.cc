// What DeBERTa's factory takes from config.json. What it refuses is in
// encoder_config_test.cc.
#include <cmath>
#include <utility>

#include "tests/core/model/encoder_config.h"

namespace inlay {
namespace {

class DebertaConfigTest : public ::inlay::testing::EncoderConfigTest {};

// Where transformers' float32 logarithms put them: the first distances of some
// of the buckets of deberta-v3-base.
TEST_F(DebertaConfigTest, Buckets) {
  const auto spec =
      Describe("deberta_v3_labels", {{"position_buckets", 256},
                                     {"max_relative_positions", -1},
                                     {"max_position_embeddings", 512}});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->max_positions, 512);
  EXPECT_TRUE(spec->position_embedding.empty());
  const auto& relative = Attention(*spec, 1).relative;
  ASSERT_TRUE(relative.has_value());
  EXPECT_EQ(relative->rows, 512);
  ASSERT_EQ(relative->row_of.reach(), 511);
  const auto row_of = [&](int distance) {
    return relative->row_of.rows()[static_cast<size_t>(511 + distance)];
  };
  for (int distance = -128; distance <= 128; ++distance) {
    EXPECT_EQ(row_of(distance), 256 + distance);
  }
  const std::pair<int, int> firsts[] = {{131, 131}, {132, 133}, {133, 134},
                                        {200, 278}, {251, 484}, {252, 490},
                                        {253, 495}, {254, 500}, {255, 506}};
  for (const auto& [bucket, first] : firsts) {
    EXPECT_EQ(row_of(first), 256 + bucket);
    EXPECT_EQ(row_of(-first), 256 - bucket);
    EXPECT_EQ(row_of(first - 1), 256 + bucket - 1);
    EXPECT_EQ(row_of(1 - first), 256 - bucket + 1);
  }
  EXPECT_EQ(row_of(511), 511);
  EXPECT_EQ(row_of(-511), 1);
}

// Positions beyond the reach of buckets, and beyond that of rows.
TEST_F(DebertaConfigTest, Reach) {
  const auto buckets = Describe("deberta_v3_labels", Json::object());
  ASSERT_TRUE(buckets.ok()) << buckets.status();
  const auto& relative = *Attention(*buckets, 0).relative;
  EXPECT_EQ(relative.rows, 32);
  ASSERT_EQ(relative.row_of.reach(), 64);
  EXPECT_EQ(relative.norm.kind, NormKind::kLayer);
  EXPECT_FALSE(relative.key.has_value() || relative.query.has_value());
  EXPECT_EQ(relative.row_of.rows()[64 + 63], 31);
  EXPECT_EQ(relative.row_of.rows()[64 - 63], 1);
  EXPECT_EQ(relative.row_of.rows().front(), 0);
  EXPECT_EQ(relative.row_of.rows().back(), 31);
  EXPECT_FLOAT_EQ(Attention(*buckets, 0).scale, 1.0f / std::sqrt(48.0f));

  const auto rows = Describe("deberta_v2", {{"pos_att_type", "P2C"}});
  ASSERT_TRUE(rows.ok()) << rows.status();
  const auto& exact = *Attention(*rows, 0).relative;
  EXPECT_EQ(exact.rows, 80);
  ASSERT_EQ(exact.row_of.reach(), 40);
  EXPECT_EQ(exact.row_of.rows()[40 + 39], 79);
  EXPECT_EQ(exact.row_of.rows().back(), 79);
  EXPECT_EQ(exact.row_of.rows()[40 - 39], 1);
  EXPECT_EQ(exact.row_of.rows().front(), 0);
  EXPECT_FALSE(exact.with_keys || exact.key.has_value());
  EXPECT_TRUE(exact.with_queries && exact.query.has_value());
  EXPECT_FLOAT_EQ(Attention(*rows, 0).scale, 1.0f / std::sqrt(32.0f));
  for (const char* key : {"pos_att_type", "relative_attention"}) {
    const auto plain = Describe("deberta_v2", {{key, nullptr}});
    ASSERT_TRUE(plain.ok()) << plain.status();
    EXPECT_FALSE(Attention(*plain, 0).relative.has_value()) << key;
  }
}

TEST_F(DebertaConfigTest, Defaults) {
  const auto spec =
      Describe("deberta_v2_labels", {{"vocab_size", nullptr},
                                     {"hidden_size", nullptr},
                                     {"num_hidden_layers", nullptr},
                                     {"num_attention_heads", nullptr},
                                     {"intermediate_size", nullptr},
                                     {"type_vocab_size", nullptr},
                                     {"max_position_embeddings", nullptr},
                                     {"layer_norm_eps", nullptr},
                                     {"pooler_hidden_act", nullptr}});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->vocab_size, 128100);
  EXPECT_EQ(spec->hidden_size, 1536);
  EXPECT_EQ(spec->max_positions, 512);
  EXPECT_EQ(spec->num_segments, 0);
  EXPECT_EQ(spec->embedding_norm.epsilon, 1e-7f);
  ASSERT_EQ(spec->layers.size(), 24u);
  EXPECT_EQ(Attention(*spec, 0).num_heads, 24);
  EXPECT_EQ(Attention(*spec, 0).relative->rows, 1024);
  EXPECT_EQ(std::get<MlpSpec>(spec->layers[0].blocks[1].part).width, 6144);
  ASSERT_TRUE(spec->classifier.has_value());
  EXPECT_EQ(spec->classifier->layers[0].activation, Activation::kGelu);
  EXPECT_FALSE(spec->classifier->layers[0].tanh);
}

TEST_F(DebertaConfigTest, DefaultsOfTheFirst) {
  const auto spec =
      Describe("deberta_labels", {{"vocab_size", nullptr},
                                  {"hidden_size", nullptr},
                                  {"num_hidden_layers", nullptr},
                                  {"num_attention_heads", nullptr},
                                  {"intermediate_size", nullptr}});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->vocab_size, 50265);
  EXPECT_EQ(spec->hidden_size, 768);
  ASSERT_EQ(spec->layers.size(), 12u);
  EXPECT_EQ(Attention(*spec, 0).num_heads, 12);
  EXPECT_EQ(std::get<MlpSpec>(spec->layers[0].blocks[1].part).width, 3072);
  EXPECT_TRUE(Attention(*spec, 0).qkv[0].bias);
  EXPECT_FALSE(Attention(*spec, 0).qkv[1].bias);
  ASSERT_TRUE(Attention(*spec, 0).relative.has_value());
  EXPECT_FALSE(Attention(*spec, 0).relative->key->bias);
  EXPECT_TRUE(Attention(*spec, 0).relative->query->bias);
}

}  // namespace
}  // namespace inlay
