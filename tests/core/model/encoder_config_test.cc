// What encoders' factories take from config.json: what is refused by name, and
// keys by their older and newer names.
#include "tests/core/model/encoder_config.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/formats/model_files.h"
#include "core/formats/rope_config.h"
#include "core/model/load_model.h"
#include "memory/device/device.h"
#include "tests/support/memory_weights.h"
#include "tests/support/paths/paths.h"

namespace inlay {
namespace {

using ::inlay::testing::EncoderConfigTest;

constexpr auto kBadEncoder = absl::StatusCode::kInvalidArgument;
constexpr auto kNoSuchEncoder = absl::StatusCode::kUnimplemented;

TEST_F(EncoderConfigTest, RefusesByName) {
  const struct {
    const char* model;
    const char* key;
    Json value;
    absl::StatusCode code;
  } cases[] = {
      {"modernbert_labels", "local_attention", -1, kBadEncoder},
      {"modernbert_labels", "global_attn_every_n_layers", 0, kBadEncoder},
      {"modernbert_labels", "norm_eps", "x", kBadEncoder},
      {"modernbert_labels", "classifier_pooling", "max", kNoSuchEncoder},
      {"modernbert_labels", "classifier_activation", "mish", kNoSuchEncoder},
      {"modernbert_labels", "num_attention_heads", 5, kBadEncoder},
      {"modernbert_labels", "layer_types", {"full_attention"}, kBadEncoder},
      {"modernbert_labels",
       "rope_scaling",
       {{"rope_type", "linear"}, {"factor", 2.0}},
       kNoSuchEncoder},
      {"electra_labels", "embedding_size", 48, kNoSuchEncoder},
      {"electra_labels", "is_decoder", true, kNoSuchEncoder},
      {"electra_labels", "num_attention_heads", 5, kBadEncoder},
      {"distilbert_labels", "n_heads", 5, kBadEncoder},
      {"distilbert_labels", "dim", int64_t{1} << 40, kBadEncoder},
      {"distilbert_labels", "activation", "mish", kNoSuchEncoder},
      {"nomic_bert", "prenorm", true, kNoSuchEncoder},
      {"nomic_bert", "qkv_proj_bias", true, kNoSuchEncoder},
      {"nomic_bert", "rotary_emb_fraction", 0.5, kNoSuchEncoder},
      {"nomic_bert", "moe_every_n_layers", 2, kNoSuchEncoder},
      {"nomic_bert", "rotary_emb_scale_base", 512, kNoSuchEncoder},
      {"nomic_bert", "scale_attn_weights", false, kNoSuchEncoder},
      {"nomic_bert_moe", "num_experts", nullptr, kBadEncoder},
      {"nomic_bert_moe", "num_experts", 5000, kBadEncoder},
      {"nomic_bert_moe", "moe_top_k", nullptr, kBadEncoder},
      {"nomic_bert_moe", "moe_top_k", 5, kBadEncoder},
      {"nomic_bert_moe", "num_shared_experts", 1, kNoSuchEncoder},
      {"nomic_bert_moe", "expert_choice_router", true, kNoSuchEncoder},
      {"nomic_bert_moe", "moe_normalize_expert_weights", true, kNoSuchEncoder},
      {"nomic_bert_moe", "ffn_div", 2, kNoSuchEncoder},
      {"nomic_bert_moe", "activation_function", "gelu_new", kNoSuchEncoder},
      {"nomic_bert", "activation_function", "mish", kNoSuchEncoder},
      {"nomic_bert", "head_dim", 8, kNoSuchEncoder},
      {"gte_labels", "position_embedding_type", "absolute", kNoSuchEncoder},
      {"gte_labels", "logn_attention_scale", true, kNoSuchEncoder},
      {"gte_labels", "pack_qkv", false, kNoSuchEncoder},
      {"gte_labels", "layer_norm_type", "rms_norm", kNoSuchEncoder},
      {"gte_labels", "num_attention_heads", 5, kBadEncoder},
      {"gte_labels", "hidden_act", "mish", kNoSuchEncoder},
      {"gte_labels",
       "rope_scaling",
       {{"type", "ntk"}, {"factor", 8.0}, {"mixed_b", 0.6}},
       kNoSuchEncoder},
      {"jina_embeddings_v3", "position_embedding_type", "alibi",
       kNoSuchEncoder},
      {"jina_embeddings_v3", "is_decoder", true, kNoSuchEncoder},
      {"eurobert", "hidden_act", "mish", kNoSuchEncoder},
      {"eurobert", "num_key_value_heads", 3, kBadEncoder},
      {"mpnet_labels", "relative_attention_num_buckets", 31, kNoSuchEncoder},
      {"mpnet_labels", "relative_attention_num_buckets", 0, kBadEncoder},
      {"mpnet_labels", "max_position_embeddings", 2, kBadEncoder},
      {"mpnet_labels", "hidden_act", "mish", kNoSuchEncoder},
      {"mpnet_labels", "num_attention_heads", 5, kBadEncoder},
      {"deberta_v3_labels", "conv_kernel_size", 3, kNoSuchEncoder},
      {"deberta_v3_labels", "pos_att_type", "c2p|p2p", kNoSuchEncoder},
      {"deberta_v3_labels", "pos_att_type", {"c2p", 1}, kNoSuchEncoder},
      {"deberta_v3_labels", "pos_att_type", 3, kBadEncoder},
      {"deberta_v3_labels", "norm_rel_ebd", "batch_norm", kNoSuchEncoder},
      {"deberta_v3_labels", "attention_head_size", 8, kNoSuchEncoder},
      {"deberta_v3_labels", "embedding_size", 16, kNoSuchEncoder},
      {"deberta_v3_labels", "position_buckets", 5, kNoSuchEncoder},
      {"deberta_v3_labels", "position_buckets", -2, kBadEncoder},
      {"deberta_v3_labels", "position_buckets", 5000, kBadEncoder},
      {"deberta_v3_labels", "position_buckets", 126, kBadEncoder},
      {"deberta_v3_labels", "max_relative_positions", 9, kBadEncoder},
      {"deberta_v3_labels", "max_relative_positions", 4097, kNoSuchEncoder},
      {"deberta_v3_labels", "pooler_hidden_act", "mish", kNoSuchEncoder},
      {"deberta_v3_labels", "pooler_hidden_size", 48, kNoSuchEncoder},
      {"deberta_v3_labels", "share_att_key", 1, kBadEncoder},
      {"deberta_v3_labels", "relative_attention", "yes", kBadEncoder},
      {"deberta_v3_labels", "position_biased_input", 0, kBadEncoder},
      {"deberta_v3_labels", "num_attention_heads", 5, kBadEncoder},
      {"deberta_v3_labels", "is_decoder", true, kNoSuchEncoder},
      {"deberta_v2", "max_relative_positions", 5000, kNoSuchEncoder},
      {"deberta_labels", "position_buckets", 16, kNoSuchEncoder},
      {"deberta_labels", "norm_rel_ebd", "layer_norm", kNoSuchEncoder},
      {"deberta_labels", "share_att_key", true, kNoSuchEncoder},
      {"deberta_labels", "talking_head", true, kNoSuchEncoder},
      {"deberta_labels", "max_relative_positions", 5000, kNoSuchEncoder},
      {"albert_labels", "embedding_size", 48, kNoSuchEncoder},
      {"albert_labels", "num_hidden_groups", 0, kBadEncoder},
      {"albert_labels", "inner_group_num", 1000000, kBadEncoder},
      {"albert_labels", "num_attention_heads", 5, kBadEncoder},
      {"roberta_prelayernorm_labels", "is_decoder", true, kNoSuchEncoder},
      {"roberta_prelayernorm_labels", "pad_token_id", 81, kBadEncoder},
      {"xlm_roberta_xl_labels", "pad_token_id", 81, kBadEncoder},
      {"xlm_roberta_xl_labels", "hidden_act", "mish", kNoSuchEncoder},
      {"megatron_bert_labels", "is_decoder", true, kNoSuchEncoder},
      {"megatron_bert_labels", "num_attention_heads", 5, kBadEncoder},
      {"data2vec_text_labels", "is_decoder", true, kNoSuchEncoder},
      {"data2vec_text_labels", "pad_token_id", 81, kBadEncoder},
      {"rembert_labels", "input_embedding_size", 33, kNoSuchEncoder},
      {"rembert_labels", "input_embedding_size", 0, kBadEncoder},
      {"rembert_labels", "is_decoder", true, kNoSuchEncoder},
      {"roformer_labels", "embedding_size", 33, kNoSuchEncoder},
      {"roformer_labels", "rotary_value", true, kNoSuchEncoder},
      {"roformer_labels", "rotary_value", 1, kBadEncoder},
      {"roformer_labels", "is_decoder", true, kNoSuchEncoder},
      {"roformer_labels", "hidden_act", "mish", kNoSuchEncoder},
      {"ernie_labels", "task_type_vocab_size", 0, kBadEncoder},
      {"ernie_labels", "use_task_id", "yes", kBadEncoder},
      {"gemma3_embedding", "sliding_window", 1, kNoSuchEncoder},
      {"gemma3_embedding", "use_bidirectional_attention", 3, kBadEncoder},
      {"gemma3_embedding", "is_causal", "no", kBadEncoder},
  };
  for (const auto& [model, key, value, code] : cases) {
    const auto spec = Describe(model, {{key, value}});
    EXPECT_EQ(spec.status().code(), code) << key << " " << spec.status();
    // By the usual names of these.
    const std::string own = key;
    if (own == "n_heads" || own == "dim" || own == "activation_function") {
      continue;
    }
    EXPECT_NE(spec.status().message().find(key), std::string::npos)
        << key << " " << spec.status();
  }
}

// Whoever read the modules.
TEST_F(EncoderConfigTest, DenseModulesFollowEachOther) {
  auto files = OpenModelFiles(TestData() + "/models/gemma3_embedding", {});
  ASSERT_TRUE(files.ok()) << files.status();
  files->weights = nullptr;
  files->random = RandomWeights{};
  const auto device = *CreateCpuDevice(1, 0);
  ASSERT_EQ(files->embedding.dense.size(), 2u);
  EXPECT_TRUE(DescribeDecoder(*files, *device).ok());
  for (size_t i = 0; i < 2; ++i) {
    ModelFiles changed = *files;
    changed.embedding.dense[i].inputs = 65536;
    const absl::Status status = DescribeDecoder(changed, *device).status();
    EXPECT_EQ(status.code(), kBadEncoder) << status;
    EXPECT_NE(status.message().find(changed.embedding.dense[i].folder),
              std::string::npos)
        << status;
  }
}

TEST_F(EncoderConfigTest, NullIsNotCausal) {
  for (const char* keys :
       {R"({"is_causal": null})", R"({"is_causal": false})"}) {
    const auto both = Describe("llama3", Json::object(), keys);
    ASSERT_TRUE(both.ok()) << both.status();
    EXPECT_TRUE(both->is_encoder) << keys;
    EXPECT_FALSE(Attention(*both, 0).causal) << keys;
  }
  const auto causal = Describe("llama3", Json::object());
  ASSERT_TRUE(causal.ok()) << causal.status();
  EXPECT_FALSE(causal->is_encoder);
}

// Which of the two ropes counts would be for all layers here.
TEST_F(EncoderConfigTest, ModernBertsBothRopes) {
  Json config = {{"model_type", "modernbert"},
                 {"rope_parameters", {{"full_attention", Json::object()}}},
                 {"rope_scaling", {{"rope_type", "linear"}, {"factor", 2.0}}}};
  KeepOneRope(&config);
  EXPECT_TRUE(config.contains("rope_scaling"));
  config["rope_scaling"] = Json::object();
  KeepOneRope(&config);
  EXPECT_FALSE(config.contains("rope_scaling"));
}

// By a factor f: a base f times as large, all divided by f^(2/16) besides.
TEST_F(EncoderConfigTest, NtkOfGte) {
  const auto spec = Describe("gte_labels", Json::object());
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->ropes[0].theta, 160000.0);
  EXPECT_EQ(spec->ropes[0].scaling, RopeScaling::kLinear);
  EXPECT_DOUBLE_EQ(spec->ropes[0].factor, std::pow(8.0, 0.125));
}

// transformers 5.24 keeps the published names of tensors under its own name of
// the family; files that have that name's are read, too.
TEST_F(EncoderConfigTest, NamesOfGte) {
  auto files = OpenModelFiles(TestData() + "/models/gte_labels", {});
  ASSERT_TRUE(files.ok()) << files.status();
  files->config["model_type"] = "gte";
  files->config["architectures"] = {"GteForSequenceClassification"};
  const auto device = *CreateCpuDevice(1, 0);
  const auto model = LoadModel(*files, *device, {});
  EXPECT_TRUE(model.ok()) << model.status();
  const auto spec = DescribeDecoder(*files, *device);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->embedding, "new.embeddings.word_embeddings.weight");
  ASSERT_TRUE(spec->classifier.has_value());

  auto renamed = std::make_shared<MemoryWeights>(true);
  for (const WeightInfo& info : files->weights->weights()) {
    const std::string& name = info.name;
    const bool is_of_network = name.starts_with("new.");
    std::vector<std::byte> bytes(info.bytes);
    ASSERT_TRUE(files->weights->Read(info, 0, absl::MakeSpan(bytes)).ok());
    renamed->Add(is_of_network ? "gte" + name.substr(3) : name, info.dtype,
                 info.shape, bytes.data());
  }
  files->weights = renamed;
  const auto own = LoadModel(*files, *device, {});
  EXPECT_TRUE(own.ok()) << own.status();
}

// As in BERT's first checkpoints.
TEST_F(EncoderConfigTest, NormsOfTensorFlow) {
  auto files = OpenModelFiles(TestData() + "/models/bert_labels", {});
  ASSERT_TRUE(files.ok()) << files.status();
  auto renamed = std::make_shared<MemoryWeights>(true);
  int norms = 0;
  for (const WeightInfo& info : files->weights->weights()) {
    std::string name = info.name;
    for (const auto& [from, to] :
         {std::pair{std::string("LayerNorm.weight"), "LayerNorm.gamma"},
          std::pair{std::string("LayerNorm.bias"), "LayerNorm.beta"}}) {
      if (!name.ends_with(from)) continue;
      name = name.substr(0, name.size() - from.size()) + to;
      ++norms;
    }
    std::vector<std::byte> bytes(info.bytes);
    ASSERT_TRUE(files->weights->Read(info, 0, absl::MakeSpan(bytes)).ok());
    renamed->Add(name, info.dtype, info.shape, bytes.data());
  }
  EXPECT_EQ(norms, 6);
  files->weights = renamed;
  const auto device = *CreateCpuDevice(1, 0);
  const auto model = LoadModel(*files, *device, {});
  EXPECT_TRUE(model.ok()) << model.status();
}

// JinaEmbeddingsV3Config's where config.json is silent, not BERT's.
TEST_F(EncoderConfigTest, DefaultsOfJina) {
  const auto spec =
      Describe("jina_embeddings_v3", {{"hidden_size", nullptr},
                                      {"num_hidden_layers", nullptr},
                                      {"num_attention_heads", nullptr},
                                      {"intermediate_size", nullptr},
                                      {"layer_norm_eps", nullptr},
                                      {"vocab_size", nullptr},
                                      {"rope_parameters", nullptr}});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->hidden_size, 1024);
  EXPECT_EQ(spec->vocab_size, 250002);
  ASSERT_EQ(spec->layers.size(), 24u);
  EXPECT_EQ(Attention(*spec, 0).num_heads, 16);
  EXPECT_EQ(std::get<MlpSpec>(spec->layers[0].blocks[1].part).input[0].n, 4096);
  EXPECT_EQ(spec->embedding_norm.epsilon, 1e-5f);
  EXPECT_EQ(spec->ropes[0].theta, 20000.0);
}

TEST_F(EncoderConfigTest, EuroBertsLabels) {
  const Json labels = {{"architectures", {"EuroBertForSequenceClassification"}},
                       {"id2label", {{"0", "no"}, {"1", "yes"}}}};
  for (const char* pooling : {"bos", "mean", "late"}) {
    Json changes = labels;
    changes["clf_pooling"] = pooling;
    const auto spec = Describe("eurobert", changes);
    if (std::string(pooling) == "late") {
      EXPECT_EQ(spec.status().code(), kNoSuchEncoder) << spec.status();
      continue;
    }
    ASSERT_TRUE(spec.ok()) << spec.status();
    ASSERT_TRUE(spec->classifier.has_value());
    EXPECT_EQ(spec->classifier->of_mean, std::string(pooling) == "mean");
    EXPECT_EQ(spec->classifier->output.n, 2);
  }
}

// Where transformers' float32 logarithms put them, too.
TEST_F(EncoderConfigTest, BucketsOfMpnet) {
  const auto spec = Describe("mpnet_labels", Json::object());
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->position_offset, 2);
  EXPECT_EQ(spec->max_positions, 110);
  EXPECT_EQ(spec->num_segments, 0);
  // The first distances of buckets 8 to 15.
  constexpr int kFirst[] = {8, 12, 16, 23, 32, 46, 64, 91};
  for (const LayerSpec& layer : spec->layers) {
    const auto& bias =
        std::get<AttentionSpec>(layer.blocks[0].part).distance_bias;
    ASSERT_TRUE(bias.has_value());
    EXPECT_EQ(bias->rows, 32);
    ASSERT_GE(bias->row_of.reach(), 91);
    for (int distance = 0; distance <= bias->row_of.reach(); ++distance) {
      const auto larger = std::ranges::count_if(
          kFirst, [&](int first) { return distance >= first; });
      const int bucket = distance < 8 ? distance : 7 + static_cast<int>(larger);
      const auto middle = static_cast<size_t>(bias->row_of.reach());
      const auto offset = static_cast<size_t>(distance);
      EXPECT_EQ(bias->row_of.rows()[middle - offset], bucket) << distance;
      if (distance == 0) continue;
      EXPECT_EQ(bias->row_of.rows()[middle + offset], 16 + bucket) << distance;
    }
  }
}

// Thousands of layers do not have thousands of lists.
TEST_F(EncoderConfigTest, LayersShareRowsOfDistances) {
  for (const char* model : {"mpnet_labels", "deberta_v3_labels"}) {
    const auto spec = Describe(model, Json::object());
    ASSERT_TRUE(spec.ok()) << spec.status();
    const auto rows = [&](int layer) {
      const AttentionSpec& attention = Attention(*spec, layer);
      return attention.distance_bias.has_value()
                 ? attention.distance_bias->row_of.rows().data()
                 : attention.relative->row_of.rows().data();
    };
    ASSERT_GE(spec->layers.size(), 2u);
    EXPECT_EQ(rows(0), rows(1)) << model;
  }
}

// A table may have more rows than there are buckets.
TEST_F(EncoderConfigTest, DefaultsOfMpnet) {
  const auto spec =
      Describe("mpnet_labels", {{"vocab_size", nullptr},
                                {"max_position_embeddings", nullptr},
                                {"relative_attention_num_buckets", 48}});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->vocab_size, 30527);
  EXPECT_EQ(spec->max_positions, 510);
  EXPECT_EQ(Attention(*spec, 1).distance_bias->rows, 48);
}

// Which group a layer is of, as transformers divides.
TEST_F(EncoderConfigTest, GroupsOfAlbert) {
  const auto names = [](const DecoderSpec& spec) {
    std::string all;
    for (const LayerSpec& layer : spec.layers) {
      const std::string& name =
          std::get<AttentionSpec>(layer.blocks[0].part).output.name;
      for (const char c : name) {
        if (c >= '0' && c <= '9') all += c;
      }
      all += ' ';
    }
    return all;
  };
  const struct {
    int layers, groups, inner;
    const char* want;
  } cases[] = {{3, 2, 1, "00 00 10 "},
               {4, 2, 2, "00 01 00 01 10 11 10 11 "},
               {2, 5, 1, "00 20 "},
               {1, 1, 3, "00 01 02 "}};
  for (const auto& [layers, groups, inner, want] : cases) {
    const auto spec = Describe("albert_labels", {{"num_hidden_layers", layers},
                                                 {"num_hidden_groups", groups},
                                                 {"inner_group_num", inner}});
    ASSERT_TRUE(spec.ok()) << spec.status();
    EXPECT_TRUE(spec->shares_layers);
    EXPECT_EQ(names(*spec), want);
  }
  EXPECT_FALSE(Describe("bert_labels", Json::object())->shares_layers);
}

// Each once, whatever number of layers reads it, when planned and when loaded.
TEST_F(EncoderConfigTest, SharedWeightsOfAlbert) {
  auto files = OpenModelFiles(TestData() + "/models/albert_labels", {});
  ASSERT_TRUE(files.ok()) << files.status();
  const auto device = *CreateCpuDevice(1, 0);
  uint64_t stored = 0;
  for (const WeightInfo& info : files->weights->weights()) {
    stored += info.bytes;
  }
  const auto plan = PlanModel(*files, *device, {});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ((*plan)->info().weight_bytes, stored);
  const auto model = LoadModel(*files, *device, {});
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->info().weight_bytes, stored);
}

TEST_F(EncoderConfigTest, DefaultsOfXlmRobertaXl) {
  const auto spec =
      Describe("xlm_roberta_xl_labels", {{"hidden_size", nullptr},
                                         {"num_hidden_layers", nullptr},
                                         {"num_attention_heads", nullptr},
                                         {"intermediate_size", nullptr},
                                         {"max_position_embeddings", nullptr},
                                         {"type_vocab_size", nullptr},
                                         {"layer_norm_eps", nullptr},
                                         {"vocab_size", nullptr}});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->hidden_size, 2560);
  EXPECT_EQ(spec->vocab_size, 250880);
  EXPECT_EQ(spec->max_positions, 512);
  EXPECT_EQ(spec->num_segments, 1);
  ASSERT_EQ(spec->layers.size(), 36u);
  EXPECT_EQ(Attention(*spec, 0).num_heads, 32);
  EXPECT_EQ(spec->final_norm.epsilon, 1e-5f);
  EXPECT_EQ(spec->embedding_norm.kind, NormKind::kNone);
}

TEST_F(EncoderConfigTest, DefaultsOfMegatronBert) {
  const auto spec =
      Describe("megatron_bert_labels", {{"hidden_size", nullptr},
                                        {"num_hidden_layers", nullptr},
                                        {"num_attention_heads", nullptr},
                                        {"intermediate_size", nullptr},
                                        {"vocab_size", nullptr}});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->hidden_size, 1024);
  EXPECT_EQ(spec->vocab_size, 29056);
  ASSERT_EQ(spec->layers.size(), 24u);
  EXPECT_EQ(Attention(*spec, 0).num_heads, 16);
  EXPECT_EQ(spec->position_offset, 0);
}

TEST_F(EncoderConfigTest, DefaultsOfRemBert) {
  const auto spec =
      Describe("rembert_labels", {{"vocab_size", nullptr},
                                  {"hidden_size", nullptr},
                                  {"num_hidden_layers", nullptr},
                                  {"num_attention_heads", nullptr},
                                  {"intermediate_size", nullptr},
                                  {"input_embedding_size", nullptr}});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->hidden_size, 1152);
  EXPECT_EQ(spec->vocab_size, 250300);
  ASSERT_EQ(spec->layers.size(), 32u);
  EXPECT_EQ(Attention(*spec, 0).num_heads, 18);
  ASSERT_TRUE(spec->embedding_projection.has_value());
  EXPECT_EQ(spec->embedding_projection->width(), 256);
  // The layer is there where nothing is narrower, too.
  const auto wide = Describe("rembert_labels", {{"input_embedding_size", 32}});
  ASSERT_TRUE(wide.ok()) << wide.status();
  EXPECT_TRUE(wide->embedding_projection.has_value());
}

TEST_F(EncoderConfigTest, DefaultsOfRoFormer) {
  const auto spec =
      Describe("roformer_labels", {{"vocab_size", nullptr},
                                   {"max_position_embeddings", nullptr},
                                   {"embedding_size", nullptr}});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->vocab_size, 50000);
  EXPECT_EQ(spec->max_positions, 1536);
  EXPECT_FALSE(spec->embedding_projection.has_value());
  EXPECT_EQ(spec->ropes[0].theta, 10000.0);
  EXPECT_EQ(Attention(*spec, 0).rope_style, RopeStyle::kInterleaved);
}

// Positions are RoBERTa's.
TEST_F(EncoderConfigTest, PositionsOfData2Vec) {
  const auto spec = Describe("data2vec_text_labels", {{"pad_token_id", 5}});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->position_offset, 6);
  EXPECT_EQ(spec->max_positions, 76);
}

TEST_F(EncoderConfigTest, TasksOfErnie) {
  const auto spec = Describe("ernie_labels", Json::object());
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->num_tasks, 3);
  const auto without = Describe("ernie_labels", {{"use_task_id", nullptr}});
  ASSERT_TRUE(without.ok()) << without.status();
  EXPECT_EQ(without->task_embedding, "");
}

// So many positions before a token and as many behind, its own besides.
TEST_F(EncoderConfigTest, Windows) {
  for (const auto& [tokens, reach] :
       {std::pair{0, 1}, std::pair{1, 1}, std::pair{7, 4}, std::pair{16, 9}}) {
    const auto spec =
        Describe("modernbert_labels", {{"local_attention", tokens}});
    ASSERT_TRUE(spec.ok()) << spec.status();
    for (size_t layer = 0; layer < spec->layers.size(); ++layer) {
      EXPECT_FALSE(Attention(*spec, layer).causal);
      EXPECT_EQ(Attention(*spec, layer).window, layer % 3 == 0 ? 0 : reach);
    }
  }
  for (const auto& [tokens, reach] :
       {std::pair{2, 2}, std::pair{3, 2}, std::pair{512, 257}}) {
    const auto spec =
        Describe("gemma3_embedding", {{"sliding_window", tokens}});
    ASSERT_TRUE(spec.ok()) << spec.status();
    EXPECT_TRUE(spec->is_encoder);
    EXPECT_EQ(Attention(*spec, 0).window, reach);
    EXPECT_EQ(Attention(*spec, 2).window, 0);
  }
}

// As transformers 5 spells what published files have under older names.
TEST_F(EncoderConfigTest, NewerNames) {
  const auto published = Describe("modernbert_labels", Json::object());
  const auto newer =
      Describe("modernbert_labels",
               {{"global_rope_theta", nullptr},
                {"local_rope_theta", nullptr},
                {"global_attn_every_n_layers", nullptr},
                {"layer_types",
                 {"full_attention", "sliding_attention", "sliding_attention",
                  "full_attention"}},
                {"rope_parameters",
                 {{"full_attention",
                   {{"rope_type", "default"}, {"rope_theta", 160000.0}}},
                  {"sliding_attention",
                   {{"rope_type", "default"}, {"rope_theta", 10000.0}}}}}});
  ASSERT_TRUE(published.ok() && newer.ok()) << newer.status();
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(newer->ropes[i].theta, published->ropes[i].theta);
  }
  for (size_t layer = 0; layer < 4; ++layer) {
    EXPECT_EQ(Attention(*newer, layer).window,
              Attention(*published, layer).window);
  }
  // null is no default: local layers are like the others.
  const auto same = Describe("modernbert_labels", Json::object(),
                             R"({"local_rope_theta": null,
          "global_rope_theta": 80000.0})");
  ASSERT_TRUE(same.ok()) << same.status();
  EXPECT_EQ(same->ropes[0].theta, 80000.0);
  EXPECT_EQ(same->ropes[1].theta, 80000.0);
  const auto nomic = Describe(
      "nomic_bert",
      {{"n_embd", nullptr},
       {"n_layer", nullptr},
       {"n_head", nullptr},
       {"n_inner", nullptr},
       {"n_positions", nullptr},
       {"layer_norm_epsilon", nullptr},
       {"rotary_emb_base", nullptr},
       {"activation_function", nullptr},
       {"hidden_size", 32},
       {"num_hidden_layers", 2},
       {"num_attention_heads", 2},
       {"intermediate_size", 48},
       {"max_position_embeddings", 80},
       {"hidden_act", "silu"},
       {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 500.0}}}});
  ASSERT_TRUE(nomic.ok()) << nomic.status();
  EXPECT_EQ(nomic->ropes[0].theta, 500.0);
  EXPECT_EQ(nomic->max_positions, 80);
  // Stretched beyond what it was trained for by a rule of its own.
  const auto stretched =
      Describe("nomic_bert",
               {{"rotary_scaling_factor", 2}, {"max_trained_positions", 40}});
  ASSERT_TRUE(stretched.ok()) << stretched.status();
  EXPECT_EQ(stretched->max_positions, 40);
}

}  // namespace
}  // namespace inlay
