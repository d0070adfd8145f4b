// T5's encoder: what its factory takes from config.json and what it refuses, by
// name; buckets of distances; checkpoints with a decoder, and the names that
// their embedding has; GGUF files of both of llama.cpp's architectures.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/formats/model_files.h"
#include "core/model/load_model.h"
#include "memory/device/device.h"
#include "tests/core/model/hybrid_gguf.h"
#include "tests/support/memory_weights.h"
#include "tests/support/paths/paths.h"

namespace inlay {
namespace {

ModelFiles OpenT5(const std::string& name) {
  auto files = OpenModelFiles(TestData() + "/models/" + name, {});
  EXPECT_TRUE(files.ok()) << files.status();
  return files.ok() ? *std::move(files) : ModelFiles();
}

// `changes`: of config.json; null removes a key. Sizes may be other ones.
absl::StatusOr<DecoderSpec> DescribeT5(const std::string& name,
                                       const Json& changes) {
  ModelFiles files = OpenT5(name);
  for (const auto& [key, value] : changes.items()) {
    files.config.erase(key);
    if (!value.is_null()) files.config[key] = value;
  }
  files.embedding.dense.clear();
  files.weights = nullptr;
  files.random = RandomWeights{};
  const auto device = *CreateCpuDevice(1, 0);
  return DescribeDecoder(files, *device);
}

const AttentionSpec& T5AttentionOf(const DecoderSpec& spec, size_t layer) {
  return std::get<AttentionSpec>(spec.layers[layer].blocks[0].part);
}

const MlpSpec& T5MlpOf(const DecoderSpec& spec, size_t layer) {
  return std::get<MlpSpec>(spec.layers[layer].blocks[1].part);
}

TEST(T5Config, RefusesByName) {
  constexpr auto kBad = absl::StatusCode::kInvalidArgument;
  constexpr auto kNoSuch = absl::StatusCode::kUnimplemented;
  const struct {
    const char* key;
    Json value;
    absl::StatusCode code;
  } cases[] = {
      {"d_model", 0, kBad},
      {"d_model", int64_t{1} << 40, kBad},
      {"d_ff", "x", kBad},
      {"num_layers", 0, kBad},
      {"num_layers", 1 << 20, kBad},
      {"num_heads", -1, kBad},
      {"d_kv", 1 << 20, kBad},
      {"n_positions", 0, kBad},
      {"vocab_size", 1.5, kBad},
      {"layer_norm_epsilon", 2.0, kBad},
      {"feed_forward_proj", "gelu-gated", kBad},
      {"feed_forward_proj", "gated-gelu-new", kBad},
      {"feed_forward_proj", 3, kBad},
      {"feed_forward_proj", "gated-mish", kNoSuch},
      {"dense_act_fn", "mish", kNoSuch},
      {"is_gated_act", "yes", kBad},
      {"is_decoder", true, kNoSuch},
      {"relative_attention_num_buckets", 3, kNoSuch},
      {"relative_attention_num_buckets", 0, kBad},
      {"relative_attention_max_distance", 8, kNoSuch},
      {"relative_attention_max_distance", -1, kBad},
  };
  for (const char* model : {"t5_encoder", "umt5_encoder"}) {
    for (const auto& [key, value, code] : cases) {
      Json changes = {{key, value}};
      if (std::string_view(key) != "relative_attention_num_buckets") {
        changes["relative_attention_num_buckets"] = 32;
      }
      const absl::Status status = DescribeT5(model, changes).status();
      EXPECT_EQ(status.code(), code) << model << " " << key << " " << status;
      // Sizes by the names that other families have as well.
      const std::string own = key;
      if (own == "d_model" || own == "d_kv" || own.starts_with("num_")) {
        continue;
      }
      EXPECT_NE(status.message().find(key), std::string::npos) << status;
    }
  }
}

// The first distances of buckets, where transformers' float32 logarithms put
// them; further keys have the last one.
TEST(T5Config, Buckets) {
  const struct {
    const char* model;
    int half;
    std::vector<int> first;
  } cases[] = {
      {"t5_encoder",
       16,
       {0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 23, 32, 46, 64, 91}},
      {"umt5_encoder", 6, {0, 1, 2, 3, 7, 15}},
  };
  for (const auto& [model, half, first] : cases) {
    SCOPED_TRACE(model);
    const auto spec = DescribeT5(model, Json::object());
    ASSERT_TRUE(spec.ok()) << spec.status();
    const auto& bias = T5AttentionOf(*spec, 0).distance_bias;
    ASSERT_TRUE(bias.has_value());
    EXPECT_EQ(bias->rows, 2 * half);
    ASSERT_EQ(bias->row_of.reach(), first.back());
    for (int distance = 0; distance <= bias->row_of.reach(); ++distance) {
      const int bucket = static_cast<int>(std::ranges::count_if(
                             first, [&](int at) { return distance >= at; })) -
                         1;
      const auto middle = static_cast<size_t>(bias->row_of.reach());
      const auto offset = static_cast<size_t>(distance);
      EXPECT_EQ(bias->row_of.rows()[middle - offset], bucket) << distance;
      if (distance == 0) continue;
      EXPECT_EQ(bias->row_of.rows()[middle + offset], half + bucket)
          << distance;
    }
  }
}

// One for all layers, or (UMT5) one of each.
TEST(T5Config, Tables) {
  for (const auto& [model, second] :
       {std::pair{"t5_encoder", "0"}, std::pair{"umt5_encoder", "1"}}) {
    const auto spec = DescribeT5(model, Json::object());
    ASSERT_TRUE(spec.ok()) << spec.status();
    ASSERT_EQ(spec->layers.size(), 2u);
    EXPECT_EQ(T5AttentionOf(*spec, 1).distance_bias->table,
              std::string("encoder.block.") + second +
                  ".layer.0.SelfAttention.relative_attention_bias.weight");
    EXPECT_EQ(T5AttentionOf(*spec, 1).scale, 1.0f);
    EXPECT_FALSE(T5AttentionOf(*spec, 1).causal);
  }
}

// What kernels have room for, and no more than sequences reach.
TEST(T5Config, Reach) {
  const auto reach = [](int64_t distance, int64_t positions) {
    const auto spec =
        DescribeT5("t5_encoder", {{"relative_attention_max_distance", distance},
                                  {"n_positions", positions}});
    if (!spec.ok()) {
      EXPECT_TRUE(absl::IsUnimplemented(spec.status())) << spec.status();
      EXPECT_NE(spec.status().message().find("relative_attention_max_distance"),
                std::string::npos)
          << spec.status();
      return -1;
    }
    EXPECT_EQ(spec->max_positions, positions);
    return T5AttentionOf(*spec, 0).distance_bias->row_of.reach();
  };
  EXPECT_EQ(reach(128, 4096), 91);
  EXPECT_EQ(reach(128, 50), 49);
  EXPECT_EQ(reach(128, 1), 0);
  EXPECT_EQ(reach(2000, 1024), 1003);
  EXPECT_EQ(reach(4000, 1024), 1023);
  EXPECT_EQ(reach(4000, 1025), -1);
}

// As config classes of the three have them.
TEST(T5Config, Defaults) {
  const Json nothing = {{"vocab_size", nullptr},
                        {"d_model", nullptr},
                        {"d_kv", nullptr},
                        {"d_ff", nullptr},
                        {"num_layers", nullptr},
                        {"num_heads", nullptr},
                        {"feed_forward_proj", nullptr},
                        {"n_positions", nullptr},
                        {"relative_attention_num_buckets", nullptr},
                        {"relative_attention_max_distance", nullptr}};
  for (const auto& [model, vocab, width, layers, heads, gated] :
       {std::tuple{"t5_encoder", 32128, 2048, 6u, 8, false},
        std::tuple{"mt5_encoder", 250112, 1024, 8u, 6, true},
        std::tuple{"umt5_encoder", 250112, 1024, 8u, 6, true}}) {
    SCOPED_TRACE(model);
    const auto spec = DescribeT5(model, nothing);
    ASSERT_TRUE(spec.ok()) << spec.status();
    EXPECT_EQ(spec->vocab_size, vocab);
    EXPECT_EQ(spec->hidden_size, 512);
    EXPECT_EQ(spec->max_positions, 512);
    ASSERT_EQ(spec->layers.size(), layers);
    EXPECT_EQ(T5AttentionOf(*spec, 0).num_heads, heads);
    EXPECT_EQ(T5AttentionOf(*spec, 0).head_dim, 64);
    EXPECT_EQ(T5AttentionOf(*spec, 0).distance_bias->rows, 32);
    const MlpSpec& mlp = T5MlpOf(*spec, 0);
    EXPECT_EQ(mlp.width, width);
    EXPECT_EQ(mlp.gated, gated);
    EXPECT_EQ(mlp.activation,
              gated ? Activation::kGeluTanh : Activation::kRelu);
  }
}

// What transformers saves beside feed_forward_proj overrides it; sizes have
// other families' names, too.
TEST(T5Config, Names) {
  const struct {
    Json changes;
    bool gated;
    Activation activation;
  } cases[] = {
      {{{"feed_forward_proj", "gated-silu"}}, true, Activation::kSilu},
      {{{"feed_forward_proj", "gelu"}}, false, Activation::kGelu},
      {{{"feed_forward_proj", "gated-gelu"}}, true, Activation::kGeluTanh},
      {{{"is_gated_act", true}}, true, Activation::kRelu},
      {{{"dense_act_fn", "silu"}}, false, Activation::kSilu},
      {{{"feed_forward_proj", "gated-gelu"}, {"dense_act_fn", "gelu"}},
       true,
       Activation::kGelu},
  };
  for (const auto& [changes, gated, activation] : cases) {
    const auto spec = DescribeT5("t5_encoder", changes);
    ASSERT_TRUE(spec.ok()) << spec.status();
    EXPECT_EQ(T5MlpOf(*spec, 0).gated, gated) << changes;
    EXPECT_EQ(T5MlpOf(*spec, 0).activation, activation) << changes;
    EXPECT_EQ(T5MlpOf(*spec, 0).input.size(), gated ? 2u : 1u);
  }
  const auto usual = DescribeT5("t5_encoder", {{"d_model", nullptr},
                                               {"d_kv", nullptr},
                                               {"num_layers", nullptr},
                                               {"num_heads", nullptr},
                                               {"hidden_size", 40},
                                               {"head_dim", 24},
                                               {"num_hidden_layers", 3},
                                               {"num_attention_heads", 5}});
  ASSERT_TRUE(usual.ok()) << usual.status();
  EXPECT_EQ(usual->hidden_size, 40);
  EXPECT_EQ(usual->layers.size(), 3u);
  EXPECT_EQ(T5AttentionOf(*usual, 0).num_heads, 5);
  EXPECT_EQ(T5AttentionOf(*usual, 0).head_dim, 24);
}

// With a decoder, which may be of another size, and under each name of the
// embedding; by every name of the classes.
TEST(T5Checkpoints, EncodersOfWholeModels) {
  const auto device = *CreateCpuDevice(1, 0);
  const float ones[4] = {1.0f, 1.0f, 1.0f, 1.0f};
  const auto plan = PlanModel(OpenT5("t5_encoder"), *device, {});
  ASSERT_TRUE(plan.ok()) << plan.status();
  for (const char* embedding : {"shared.weight", "encoder.embed_tokens.weight",
                                "decoder.embed_tokens.weight"}) {
    for (const char* architecture :
         {"T5Model", "T5ForConditionalGeneration", "T5WithLMHeadModel"}) {
      ModelFiles files = OpenT5("t5_encoder");
      files.config["architectures"] = {architecture};
      const auto whole =
          Changed(*files.weights, [&](std::string* name, auto*, auto*) {
            if (*name == "shared.weight") *name = embedding;
          });
      for (const char* more :
           {"decoder.block.0.layer.0.SelfAttention.q.weight",
            "decoder.final_layer_norm.weight", "lm_head.weight"}) {
        whole->Add(more, DType::kF32, {2, 2}, ones);
      }
      files.weights = whole;
      const auto model = LoadModel(files, *device, {});
      ASSERT_TRUE(model.ok()) << embedding << " " << model.status();
      EXPECT_EQ((*model)->info().num_parameters,
                (*plan)->info().num_parameters);
      const auto spec = DescribeDecoder(files, *device);
      ASSERT_TRUE(spec.ok()) << spec.status();
      EXPECT_EQ(spec->embedding, embedding);
    }
  }
}

// Where several names have different ones, the encoder has its own.
TEST(T5Checkpoints, SeveralEmbeddings) {
  const auto device = *CreateCpuDevice(1, 0);
  ModelFiles files = OpenT5("t5_encoder");
  const std::vector<float> other(64 * 32, 0.5f);
  const auto both = Changed(*files.weights, [](auto*, auto*, auto*) {});
  both->Add("decoder.embed_tokens.weight", DType::kF32, {64, 32}, other.data());
  files.weights = both;
  EXPECT_EQ(DescribeDecoder(files, *device)->embedding, "shared.weight");
  both->Add("encoder.embed_tokens.weight", DType::kF32, {64, 32}, other.data());
  EXPECT_EQ(DescribeDecoder(files, *device)->embedding,
            "encoder.embed_tokens.weight");
}

// A gated checkpoint is no other one, whatever config.json says.
TEST(T5Checkpoints, GatesAreNotLeftOut) {
  const auto device = *CreateCpuDevice(1, 0);
  ModelFiles files = OpenT5("mt5_encoder");
  files.config["feed_forward_proj"] = "relu";
  const absl::Status status = LoadModel(files, *device, {}).status();
  EXPECT_TRUE(absl::IsNotFound(status)) << status;
  EXPECT_NE(status.message().find("DenseReluDense.wi.weight"),
            std::string::npos)
      << status;
}

class T5Gguf : public ::testing::Test {
 protected:
  using SetKeys = std::function<void(Keys*)>;
  void TearDown() override { std::filesystem::remove(path_); }

  // A file of `arch` as the converter writes it; said first, `keys` count.
  absl::StatusOr<ModelFiles> Written(const std::string& model,
                                     const std::string& arch,
                                     const SetKeys& set_keys) {
    const ModelFiles published = OpenT5(model);
    const Json& config = published.config;
    INLAY_ASSIGN_OR_RETURN(const GgufArch* row, FindGgufArch(arch));
    INLAY_ASSIGN_OR_RETURN(GgufWriter writer, GgufWriter::Create(path_));
    INLAY_RETURN_IF_ERROR(writer.SetString("general.architecture", arch));
    Keys keys(arch, &writer);
    set_keys(&keys);
    keys.U32("context_length", config.value("n_positions", 512));
    keys.U32("embedding_length", config["d_model"]);
    keys.U32("feed_forward_length", config["d_ff"]);
    keys.U32("block_count", config["num_layers"]);
    keys.U32("attention.head_count", config["num_heads"]);
    keys.U32("attention.key_length", config["d_kv"]);
    keys.U32("attention.value_length", config["d_kv"]);
    keys.F32("attention.layer_norm_epsilon", config["layer_norm_epsilon"]);
    keys.F32("attention.layer_norm_rms_epsilon", config["layer_norm_epsilon"]);
    keys.U32("attention.relative_buckets_count",
             config["relative_attention_num_buckets"]);
    INLAY_ASSIGN_OR_RETURN(
        auto tensors, GgufTensorsFrom(*published.weights, *row,
                                      config["num_layers"].get<int>(), 1, 1));
    if (arch == "t5") {
      keys.U32("decoder_block_count", 1);
      keys.U32("decoder_start_token_id", 0);
      for (const char* name : {"dec.blk.0.attn_q.weight",
                               "dec.output_norm.weight", "output.weight"}) {
        tensors.push_back({name, DType::kF32, {2, 2}, std::string(16, '\0')});
      }
    }
    INLAY_RETURN_IF_ERROR(WriteGgufTensors(tensors, &writer));
    return OpenModelFiles(path_, {});
  }

  const std::string path_ =
      ::testing::TempDir() + "t5_" + std::to_string(getpid()) + ".gguf";
};

// What the file says is what the folder says, and weights are the same.
TEST_F(T5Gguf, IsTheFolder) {
  const auto device = Cpu(1);
  for (const char* model : {"t5_encoder", "mt5_encoder", "umt5_encoder"}) {
    for (const char* arch : {"t5encoder", "t5"}) {
      SCOPED_TRACE(std::string(model) + " " + arch);
      const auto files = Written(model, arch, [](Keys*) {});
      ASSERT_TRUE(files.ok()) << files.status();
      const bool is_umt5 = std::string_view(model) == "umt5_encoder";
      EXPECT_EQ(files->config["model_type"], is_umt5 ? "umt5" : "t5");
      const auto loaded = LoadModel(*files, *device, {});
      ASSERT_TRUE(loaded.ok()) << loaded.status();
      const auto spec = DescribeDecoder(*files, *device);
      // llama.cpp knows one largest distance.
      const auto want =
          DescribeT5(model, {{"relative_attention_max_distance", nullptr}});
      ASSERT_TRUE(spec.ok() && want.ok()) << spec.status() << want.status();
      EXPECT_EQ(spec->vocab_size, want->vocab_size);
      EXPECT_EQ(spec->hidden_size, want->hidden_size);
      EXPECT_EQ(spec->max_positions, want->max_positions);
      ASSERT_EQ(spec->layers.size(), want->layers.size());
      const AttentionSpec& attention = T5AttentionOf(*spec, 0);
      EXPECT_EQ(attention.num_heads, T5AttentionOf(*want, 0).num_heads);
      EXPECT_EQ(attention.head_dim, T5AttentionOf(*want, 0).head_dim);
      EXPECT_EQ(attention.distance_bias->row_of.rows(),
                T5AttentionOf(*want, 0).distance_bias->row_of.rows());
      const size_t last = spec->layers.size() - 1;
      EXPECT_EQ(T5AttentionOf(*spec, last).distance_bias->table,
                T5AttentionOf(*want, last).distance_bias->table);
      EXPECT_EQ(T5MlpOf(*spec, 0).width, T5MlpOf(*want, 0).width);
      EXPECT_EQ(T5MlpOf(*spec, 0).gated, T5MlpOf(*want, 0).gated);
      EXPECT_EQ(T5MlpOf(*spec, 0).activation, T5MlpOf(*want, 0).activation);
      EXPECT_EQ(spec->final_norm.epsilon, want->final_norm.epsilon);
    }
  }
}

TEST_F(T5Gguf, Refusals) {
  const struct {
    SetKeys set;
    absl::StatusCode code;
    const char* said;
  } cases[] = {
      {[](Keys* keys) { keys->U32("attention.head_count_kv", 1); },
       absl::StatusCode::kUnimplemented, "as many of both"},
      {[](Keys* keys) { keys->Flag("attention.causal", true); },
       absl::StatusCode::kUnimplemented, "attention.causal"},
      {[](Keys* keys) { keys->U32("attention.value_length", 8); },
       absl::StatusCode::kUnimplemented, "one size"},
      {[](Keys* keys) { keys->U32("attention.relative_buckets_count", 0); },
       absl::StatusCode::kInvalidArgument, "relative_buckets_count"},
  };
  for (const auto& [set, code, said] : cases) {
    const absl::Status status =
        Written("t5_encoder", "t5encoder", set).status();
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_NE(status.message().find(said), std::string::npos) << status;
  }
}

}  // namespace
}  // namespace inlay
