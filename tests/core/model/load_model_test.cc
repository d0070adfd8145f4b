#include "core/model/load_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/model/inspect.h"
#include "kernels/moe/routing.h"
#include "tests/support/memory_weights.h"
#include "tests/support/model_harness.h"
#include "tests/support/paths/paths.h"

namespace inlay {
namespace {

using ::testing::HasSubstr;

Json SmallLlama() {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"vocab_size", 40},
          {"hidden_size", 32},
          {"intermediate_size", 48},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"max_position_embeddings", 32}};
}

ModelFiles Random(const Json& config, DType dtype = DType::kF32,
                  uint64_t seed = 3) {
  ModelFiles files;
  files.config = config;
  files.random = RandomWeights{dtype, seed};
  return files;
}

std::vector<int32_t> Tokens(int count) {
  std::vector<int32_t> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back((i * 7 + 3) % 40);
  return tokens;
}

class LoadModelTest : public ::testing::Test {
 protected:
  ModelHarness::Logits Run(const Model& model, int count, int64_t final_length,
                           int64_t chunk) {
    ModelHarness harness(model, *device_, 128);
    const int sequence = harness.AddSequence(final_length);
    auto logits = harness.Run(sequence, Tokens(count), chunk);
    EXPECT_TRUE(logits.ok()) << logits.status();
    return logits.ok() ? *std::move(logits) : ModelHarness::Logits();
  }
  std::unique_ptr<Model> Load(const ModelFiles& files) {
    auto model = LoadModel(files, *device_, {});
    EXPECT_TRUE(model.ok()) << model.status();
    return model.ok() ? *std::move(model) : nullptr;
  }

  std::unique_ptr<Device> device_ = *CreateCpuDevice(2, 0);
};

TEST_F(LoadModelTest, RandomModelsRun) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    const auto model = Load(Random(SmallLlama(), dtype));
    ASSERT_NE(model, nullptr);
    const auto logits = Run(*model, 20, 20, 7);
    for (const auto& row : logits) {
      for (const float value : row) ASSERT_TRUE(std::isfinite(value));
    }
    EXPECT_EQ(logits, Run(*Load(Random(SmallLlama(), dtype)), 20, 20, 20));
    EXPECT_NE(logits, Run(*Load(Random(SmallLlama(), dtype, 4)), 20, 20, 7));
  }
}

TEST_F(LoadModelTest, CountsWhatItHolds) {
  const auto model = Load(Random(SmallLlama(), DType::kBF16));
  const ModelInfo& info = model->info();
  // Two tables, and per layer q, k, v, o, three of the MLP and two norms.
  const uint64_t table = 40 * 32;
  const uint64_t layer = 32 * 32 * 2 + 32 * 16 * 2 + 3 * 32 * 48;
  const uint64_t norms = 5 * 32;
  EXPECT_EQ(info.num_parameters, 2 * table + 2 * layer + norms);
  EXPECT_EQ(info.weight_bytes, 2 * (2 * table + 2 * layer) + 4 * norms);
  EXPECT_EQ(info.weight_bytes_per_token, info.weight_bytes - 2 * table);
  EXPECT_GE(device_->memory_use().by_class[0], info.weight_bytes);
}

// Drawn as all weights are; a decode step reads the experts of one token.
TEST_F(LoadModelTest, MixturesOfExperts) {
  Json config = SmallLlama();
  config["architectures"] = {"Qwen2MoeForCausalLM"};
  config["num_experts"] = 6;
  config["num_experts_per_tok"] = 2;
  config["moe_intermediate_size"] = 16;
  config["shared_expert_intermediate_size"] = 24;
  config["mlp_only_layers"] = {1};
  const auto model = Load(Random(config, DType::kBF16));
  ASSERT_NE(model, nullptr);
  const uint64_t table = 40 * 32;
  const uint64_t attention = 32 * 32 * 2 + 32 * 16 * 2;
  const uint64_t expert = 3 * 32 * 16;
  const uint64_t shared = 3 * 32 * 24 + 32;
  const uint64_t matrices =
      2 * table + 2 * attention + 3 * 32 * 48 + 6 * expert + 6 * 32 + shared;
  const uint64_t vectors = 5 * 32 + 2 * (32 + 16 + 16);
  const ModelInfo& info = model->info();
  EXPECT_EQ(info.num_parameters, matrices + vectors);
  EXPECT_EQ(info.weight_bytes, 2 * matrices + 4 * vectors);
  EXPECT_EQ(info.weight_bytes_per_token,
            info.weight_bytes - 2 * table - 2 * 4 * expert);
  const auto logits = Run(*model, 20, 20, 7);
  for (const auto& row : logits) {
    for (const float value : row) ASSERT_TRUE(std::isfinite(value));
  }
  EXPECT_EQ(logits, Run(*Load(Random(config, DType::kBF16)), 20, 20, 20));

  const auto refused = [&](const char* key, const Json& value) {
    Json bad = config;
    bad[key] = value;
    const auto status = PlanModel(Random(bad), *device_, {}).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(key));
  };
  refused("num_experts", 0);
  refused("num_experts", kMaxExperts + 1);
  refused("num_experts_per_tok", 7);
  refused("mlp_only_layers", {2});
  refused("decoder_sparse_step", 0);
  refused("moe_intermediate_size", 0);
}

// Experts are one matrix product after another: they need one format.
TEST_F(LoadModelTest, ExpertsOfDifferentFormatsAreRefused) {
  auto files = OpenModelFiles(TestData() + "/models/qwen3_moe", {});
  ASSERT_TRUE(files.ok()) << files.status();
  auto changed = std::make_shared<MemoryWeights>(true);
  const std::string odd = "model.layers.1.mlp.experts.3.up_proj.weight";
  for (const WeightInfo& info : files->weights->weights()) {
    const bool other = info.name == odd;
    changed->Add(info.name, other ? DType::kF16 : info.dtype, info.shape,
                 files->weights->Mapped(info));
  }
  files->weights = changed;
  const auto status = LoadModel(*files, *device_, {}).status();
  EXPECT_TRUE(absl::IsUnimplemented(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(odd));
}

TEST_F(LoadModelTest, ProgressCountsUpAndCancels) {
  ModelLoadOptions options;
  uint64_t last = 0, total = 0;
  options.progress = [&](uint64_t done, uint64_t all) {
    EXPECT_GT(done, last);
    last = done;
    total = all;
    return true;
  };
  ASSERT_TRUE(LoadModel(Random(SmallLlama()), *device_, options).ok());
  EXPECT_EQ(last, total);
  options.progress = [](uint64_t done, uint64_t all) { return done < all / 2; };
  const auto cancelled = LoadModel(Random(SmallLlama()), *device_, options);
  EXPECT_EQ(cancelled.status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(device_->memory_use().total_bytes, 0u);
}

TEST_F(LoadModelTest, OverBudgetLeavesNothingBehind) {
  device_->set_budget(8192);
  const auto model = LoadModel(Random(SmallLlama()), *device_, {});
  EXPECT_EQ(model.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(device_->memory_use().total_bytes, 0u);
}

TEST_F(LoadModelTest, BadOptions) {
  ModelLoadOptions options;
  for (const int block_size : {0, -16, kMaxKvBlockSize + 1}) {
    options.kv_block_size = block_size;
    EXPECT_EQ(
        LoadModel(Random(SmallLlama()), *device_, options).status().code(),
        absl::StatusCode::kInvalidArgument);
  }
  options = {};
  options.kv_dtype = DType::kI32;
  EXPECT_EQ(LoadModel(Random(SmallLlama()), *device_, options).status().code(),
            absl::StatusCode::kUnimplemented);
  options = {};
  options.forced_kernels["gem"] = "cpu_scalar";
  EXPECT_EQ(LoadModel(Random(SmallLlama()), *device_, options).status().code(),
            absl::StatusCode::kInvalidArgument);
  options.forced_kernels = {{"gemm", "no_such_row"}};
  EXPECT_EQ(LoadModel(Random(SmallLlama()), *device_, options).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(
      LoadModel(Random(SmallLlama(), DType::kI8), *device_, {}).status().code(),
      absl::StatusCode::kUnimplemented);
}

TEST_F(LoadModelTest, MissingAndWronglyShapedTensors) {
  ModelFiles files;
  files.config = SmallLlama();
  EXPECT_EQ(LoadModel(files, *device_, {}).status().code(),
            absl::StatusCode::kInvalidArgument);
  const auto source = std::make_shared<MemoryWeights>(true);
  files.weights = source;
  auto status = LoadModel(files, *device_, {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("model.layers.0.input_layernorm.weight"));
  const std::vector<float> norm(31);
  source->Add("model.layers.0.input_layernorm.weight", DType::kF32, {31},
              norm.data());
  status = LoadModel(files, *device_, {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("[31]"));
}

// Another's weights, in files of 40 MiB.
class LargeFiles : public WeightSource {
 public:
  explicit LargeFiles(std::shared_ptr<const WeightSource> weights)
      : weights_(std::move(weights)) {}
  absl::Span<const WeightInfo> weights() const override {
    return weights_->weights();
  }
  const std::byte* Mapped(const WeightInfo& info) const override {
    return weights_->Mapped(info);
  }
  absl::Status Read(const WeightInfo& info, uint64_t offset,
                    absl::Span<std::byte> destination) const override {
    return weights_->Read(info, offset, destination);
  }
  uint64_t LeavePages(FileRange range) const override {
    left.push_back(range);
    return uint64_t{40} << 20;
  }

  mutable std::vector<FileRange> left;

 private:
  const std::shared_ptr<const WeightSource> weights_;
};

TEST_F(LoadModelTest, PagesLeaveInPieces) {
  ModelFiles files = *OpenModelFiles(TestData() + "/models/llama3", {});
  const auto source = std::make_shared<LargeFiles>(std::move(files.weights));
  files.weights = source;
  const auto model = Load(files);
  source->left.clear();
  uint64_t at = 0;
  EXPECT_TRUE(model->LeaveSomePages(&at));
  EXPECT_TRUE(model->LeaveSomePages(&at));
  EXPECT_FALSE(model->LeaveSomePages(&at));
  ASSERT_EQ(source->left.size(), 3u);
  uint64_t end = 0;
  for (const FileRange& range : source->left) {
    EXPECT_EQ(range.begin, end);
    EXPECT_GT(range.end, range.begin);
    end = range.end;
  }
  EXPECT_GE(end, uint64_t{40} << 20);
  at = 0;
  EXPECT_FALSE(Load(Random(SmallLlama()))->LeaveSomePages(&at));
}

TEST_F(LoadModelTest, ForwardRefusesASmallWorkspace) {
  const auto model = Load(Random(SmallLlama()));
  const auto stream = *device_->CreateStream();
  const int32_t token = 1;
  ForwardBatch batch;
  batch.tokens = absl::MakeConstSpan(&token, 1);
  std::vector<std::byte> workspace(model->WorkspaceBytes(1, 0) - 1);
  EXPECT_EQ(model->Forward(batch, absl::MakeSpan(workspace), *stream).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(model->Forward({}, {}, *stream).ok());
}

// A sequence turns its keys one way for life, chosen by the length it is to
// reach: however it is fed, the result is the same.
TEST_F(LoadModelTest, DynamicRopeDependsOnTheFinalLengthOnly) {
  Json config = SmallLlama();
  const auto plain = Load(Random(config));
  config["rope_scaling"] = {{"type", "dynamic"}, {"factor", 2.0}};
  const auto dynamic = Load(Random(config));
  ASSERT_EQ(dynamic->info().rope_threshold, 32);
  ASSERT_EQ(dynamic->info().max_positions, 64);
  EXPECT_EQ(Run(*dynamic, 20, 32, 20), Run(*plain, 20, 32, 20));
  EXPECT_NE(Run(*dynamic, 20, 33, 20), Run(*plain, 20, 33, 20));
  const auto whole = Run(*dynamic, 50, 60, 50);
  for (const int64_t chunk : {1, 7, 31}) {
    EXPECT_EQ(Run(*dynamic, 50, 60, chunk), whole);
    EXPECT_EQ(Run(*dynamic, 50, 50, chunk), whole);
  }
}

TEST_F(LoadModelTest, InspectDescribesAModel) {
  const auto files = OpenModelFiles(TestData() + "/models/gemma3_text", {});
  ASSERT_TRUE(files.ok()) << files.status();
  const auto text = InspectModel(*files, *device_, {});
  ASSERT_TRUE(text.ok()) << text.status();
  const auto json = ParseJson(*text, "inspect");
  ASSERT_TRUE(json.ok()) << json.status();
  EXPECT_EQ((*json)["architecture"], "Gemma3ForCausalLM");
  EXPECT_EQ((*json)["model_type"], "gemma3_text");
  EXPECT_EQ((*json)["supported"], true);
  EXPECT_EQ((*json)["config"]["hidden_size"], 64);
  // 4 layers, 2 heads of 32, keys and values in float32.
  EXPECT_EQ((*json)["kv"]["bytes_per_token"], 4 * 2 * 32 * 2 * 4);
  EXPECT_EQ((*json)["kv"]["layers"], Json::parse("[[2, 32, 4]]"));
  EXPECT_EQ((*json)["memory"]["kv_bytes_per_1k_tokens"],
            1024 * 4 * 2 * 32 * 2 * 4);
  const auto model = Load(*files);
  EXPECT_EQ((*json)["model"]["parameters"], model->info().num_parameters);
  EXPECT_EQ((*json)["memory"]["weights_bytes"], model->info().weight_bytes);
  EXPECT_EQ((*json)["memory"]["workspace_bytes"],
            model->WorkspaceBytes(512, 16));
  EXPECT_EQ((*json)["tensors"].size(), files->weights->weights().size());
  EXPECT_EQ((*json)["formats"]["bf16"]["bytes"], model->info().weight_bytes);
  EXPECT_EQ(device_->memory_use().by_class[1], 0u);
}

// Of a file with ever so many keys some are told, in no time that grows with
// their square.
TEST_F(LoadModelTest, InspectTellsSomeOfManyKeys) {
  Json config = {{"architectures", {"None"}}, {"model_type", "none"}};
  for (int i = 0; i < 100'000; ++i) config["key" + std::to_string(i)] = i;
  const auto text = InspectModel(Random(config), *device_, {});
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(ParseJson(*text, "text")->at("config").size(), kMaxOrderedMembers);
}

TEST_F(LoadModelTest, InspectDescribesWhatIsNotSupported) {
  Json config = SmallLlama();
  config["architectures"] = {"NoSuchModel"};
  const auto text = InspectModel(Random(config), *device_, {});
  ASSERT_TRUE(text.ok()) << text.status();
  const auto json = ParseJson(*text, "inspect");
  ASSERT_TRUE(json.ok()) << json.status();
  EXPECT_EQ((*json)["supported"], false);
  EXPECT_THAT((*json)["reason"].get<std::string>(), HasSubstr("NoSuchModel"));
  EXPECT_EQ(InspectModel(Random(Json::array()), *device_, {}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace inlay
