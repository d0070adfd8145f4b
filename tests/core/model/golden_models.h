// The golden models of tests/data/models and how they are run: what the tests
// of each device share.
#ifndef INLAY_TESTS_CORE_MODEL_GOLDEN_MODELS_H_
#define INLAY_TESTS_CORE_MODEL_GOLDEN_MODELS_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/formats/model_files.h"
#include "core/json/python_json.h"
#include "core/model/load_model.h"
#include "tests/support/golden.h"
#include "tests/support/memory_weights.h"
#include "tests/support/model_harness.h"
#include "tests/support/model_names.h"
#include "tests/support/paths/paths.h"

namespace inlay {

// Of the standard deviation of the logits; the project's bound for float32.
inline constexpr double kTolerance = 1e-4;
inline constexpr int kGreedySteps = 20;

// Every decoder, and gpt2 as the oldest files store it (BareGpt2).
inline std::vector<const char*> AllGoldenModels() {
  std::vector<const char*> names(std::begin(kDecoderNames),
                                 std::end(kDecoderNames));
  names.push_back("gpt2_bare");
  return names;
}

inline bool IsLatent(const std::string& model) {
  return model.starts_with("deepseek_v") || model == "glm_moe_dsa" ||
         model == "glm4_moe_lite" || model == "minicpm3" ||
         model == "mistral4" || model == "axk2" || model == "plm";
}

// All matrices and vectors in float32, exactly.
inline std::shared_ptr<const WeightSource> Widened(const WeightSource& source) {
  auto wide = std::make_shared<MemoryWeights>(true);
  for (const WeightInfo& info : source.weights()) {
    std::vector<std::byte> stored(info.bytes);
    EXPECT_TRUE(source.Read(info, 0, absl::MakeSpan(stored)).ok());
    const std::byte* bytes = stored.data();
    if (info.dtype != DType::kBF16) {
      wide->Add(info, bytes);
      continue;
    }
    std::vector<float> values(info.bytes / 2);
    for (size_t i = 0; i < values.size(); ++i) {
      uint16_t bits;
      std::memcpy(&bits, bytes + 2 * i, sizeof(bits));
      values[i] = BF16ToF32(bits);
    }
    WeightInfo widened = info;
    widened.dtype = DType::kF32;
    wide->Add(std::move(widened), values.data());
  }
  return wide;
}

// All matrices and vectors of float32 rounded to bf16.
inline std::shared_ptr<const WeightSource> Narrowed(
    const WeightSource& source) {
  auto narrow = std::make_shared<MemoryWeights>(true);
  for (const WeightInfo& info : source.weights()) {
    std::vector<std::byte> stored(info.bytes);
    EXPECT_TRUE(source.Read(info, 0, absl::MakeSpan(stored)).ok());
    if (info.dtype != DType::kF32) {
      narrow->Add(info, stored.data());
      continue;
    }
    std::vector<uint16_t> values(info.bytes / sizeof(float));
    for (size_t i = 0; i < values.size(); ++i) {
      float value;
      std::memcpy(&value, stored.data() + sizeof(value) * i, sizeof(value));
      values[i] = F32ToBF16(value);
    }
    WeightInfo narrowed = info;
    narrowed.dtype = DType::kBF16;
    narrow->Add(std::move(narrowed), values.data());
  }
  return narrow;
}

// What is rounded to bf16, unit roundoff u = 2^-8, so often for each matrix:
// before it and after it where layers hand on bf16, and its elements where they
// were not bf16. `sensitivity` says how far logits move when all weights change
// by 3e-7; independent errors of root mean square u / sqrt(3) in what the
// matrices read and make move them like as large errors of the matrices.
inline double Bf16Tolerance(const GoldenCase& golden, int roundings) {
  return golden.sensitivity * std::sqrt(static_cast<double>(roundings)) *
         0x1p-8 / std::sqrt(3.0) / 3e-7;
}

// "gpt2_bare" is gpt2 as the oldest files store it: names without prefix and
// the masks beside the weights.
inline std::shared_ptr<const WeightSource> BareGpt2(const WeightSource& gpt2) {
  auto bare = std::make_shared<MemoryWeights>(true);
  const std::string prefix = "transformer.";
  for (const WeightInfo& info : gpt2.weights()) {
    bare->Add(info.name.substr(prefix.size()), info.dtype, info.shape,
              gpt2.Mapped(info));
  }
  const std::vector<float> mask(64 * 64, 1.0f);
  bare->Add("h.0.attn.bias", DType::kF32, {1, 1, 64, 64}, mask.data());
  return bare;
}

inline std::string Directory(const std::string& model) {
  return TestData() + "/models/" + (model == "gpt2_bare" ? "gpt2" : model);
}

inline ModelFiles Open(const std::string& model,
                       const std::string& config_name) {
  auto files = OpenModelFiles(Directory(model), {});
  EXPECT_TRUE(files.ok()) << files.status();
  if (!files.ok()) return {};
  std::ifstream file(Directory(model) + "/" + config_name);
  std::stringstream text;
  text << file.rdbuf();
  auto config = ParsePythonJson(text.str(), config_name);
  EXPECT_TRUE(config.ok()) << config.status();
  files->config = *config;
  if (model == "gpt2_bare") files->weights = BareGpt2(*files->weights);
  return *std::move(files);
}

inline std::unique_ptr<Device> Cpu(int threads = 2) {
  return *CreateCpuDevice(threads, 0);
}

// What a model's config.json with `changes` describes, of any weights; keys
// that are null in these are not there.
inline DecoderSpec SpecOf(const char* model, const char* changes,
                          const char* config = "config.json") {
  const auto device = Cpu(1);
  ModelFiles files = Open(model, config);
  files.config.merge_patch(*ParseJson(changes, "changes"));
  files.random = RandomWeights{};
  auto spec = DescribeDecoder(files, *device);
  EXPECT_TRUE(spec.ok()) << spec.status();
  return spec.ok() ? *std::move(spec) : DecoderSpec();
}

inline const AttentionSpec& AttentionAt(const DecoderSpec& spec, size_t layer) {
  return std::get<AttentionSpec>(spec.layers[layer].blocks[0].part);
}

// Logits of all tokens, fed in chunks of so many.
inline ModelHarness::Logits RunChunks(const Model& model, Device& device,
                                      absl::Span<const int32_t> tokens,
                                      int64_t chunk) {
  ModelHarness harness(model, device, 1024);
  auto logits = harness.Run(harness.AddSequence(512), tokens, chunk);
  EXPECT_TRUE(logits.ok()) << logits.status();
  return logits.ok() ? *std::move(logits) : ModelHarness::Logits();
}

// The same, loaded here, on as many threads as the chunk makes it.
inline ModelHarness::Logits RunChunks(const ModelFiles& files,
                                      const ModelLoadOptions& options,
                                      absl::Span<const int32_t> tokens,
                                      int64_t chunk) {
  const auto device = Cpu(1 + static_cast<int>(chunk % 3));
  const auto model = LoadModel(files, *device, options);
  EXPECT_TRUE(model.ok()) << model.status();
  if (!model.ok()) return {};
  return RunChunks(**model, *device, tokens, chunk);
}

// The share of tokens whose logits are nearer than `tolerance` times the
// standard deviation of the last ones wanted.
inline double ShareWithin(const ModelHarness::Logits& got,
                          const ModelHarness::Logits& want, double tolerance) {
  const auto count = static_cast<double>(want.back().size());
  double mean = 0, square = 0;
  for (const float logit : want.back()) mean += logit / count;
  for (const float logit : want.back()) {
    square += (logit - mean) * (logit - mean) / count;
  }
  double within = 0;
  for (size_t t = 0; t < want.size(); ++t) {
    double worst = 0;
    for (size_t i = 0; i < want[t].size(); ++i) {
      worst = std::max(worst, std::fabs(double{got[t][i]} - want[t][i]));
    }
    within += worst < tolerance * std::sqrt(square) ? 1 : 0;
  }
  return within / static_cast<double>(want.size());
}

// Keeps the last token's residual stream after each layer.
class LastToken : public LayerObserver {
 public:
  void OnLayer(int layer, TensorView hidden) override {
    layers.resize(std::max(layers.size(), static_cast<size_t>(layer) + 1));
    const float* row = hidden.row<const float>(hidden.rows() - 1);
    layers[static_cast<size_t>(layer)].assign(row, row + hidden.cols());
  }
  std::vector<std::vector<float>> layers;
};

// Which layer goes wrong first, relative to that layer's root mean square.
inline void CheckLayers(const GoldenCase& golden, const LastToken& got) {
  ASSERT_EQ(got.layers.size(), golden.layer_outputs.size());
  for (size_t layer = 0; layer < got.layers.size(); ++layer) {
    const std::vector<float>& want = golden.layer_outputs[layer];
    double square = 0, worst = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      square += double{want[i]} * want[i];
      worst =
          std::max(worst, std::fabs(double{want[i]} - got.layers[layer][i]));
    }
    const double rms = std::sqrt(square / static_cast<double>(want.size()));
    ASSERT_LT(worst / rms, kTolerance) << "first wrong layer: " << layer;
  }
}

// Of the stored positions of all cases, the share whose logits are nearer than
// tolerance(case), in every run. For mixtures of experts in narrow arithmetic:
// now and then a token goes to another expert than in float32, and its logits
// are then off by any amount.
class PositionsWithin {
 public:
  void Add(const GoldenCase& golden, const ModelHarness::Logits& logits,
           double tolerance) {
    for (size_t i = 0; i < golden.positions.size(); ++i) {
      GoldenCase one = golden;
      one.positions = {golden.positions[i]};
      one.logits = {golden.logits[i]};
      within_ += GoldenError(one, logits) < tolerance ? 1 : 0;
      ++all_;
    }
  }
  double share() const { return all_ == 0 ? 0.0 : within_ / all_; }

 private:
  double within_ = 0;
  int all_ = 0;
};
// Rounding to bf16 moves a router's logits by some hundredths of their
// deviation, so some hundredths of the choices change in each layer.
inline constexpr double kMostPositions = 0.7;

inline bool HasExperts(const ModelFiles& files) {
  for (const char* key : {"num_experts", "num_local_experts",
                          "n_routed_experts", "moe_num_experts"}) {
    if (JsonFind(files.config, key) != nullptr) return true;
  }
  return false;
}

class GoldenModel : public ::testing::TestWithParam<const char*> {
 protected:
  // Null: there is none.
  virtual std::unique_ptr<Device> MakeDevice() {
    return *CreateCpuDevice(2, 0);
  }

  void SetUp() override {
    device_ = MakeDevice();
    if (device_ == nullptr) GTEST_SKIP() << "needs a GPU";
    cases_ = ReadGolden(Directory(GetParam()));
    ASSERT_FALSE(cases_.empty());
    total_ = 0;
    for (const GoldenCase& golden : cases_) total_ += FinalLength(golden);
  }

  virtual ModelFiles Files(const std::string& config) {
    return Open(GetParam(), config);
  }

  static int64_t FinalLength(const GoldenCase& golden) {
    return static_cast<int64_t>(golden.input_ids.size()) + kGreedySteps;
  }

  std::unique_ptr<Model> Load(const ModelLoadOptions& options,
                              const std::string& config = "config.json") {
    auto model = LoadModel(Files(config), *device_, options);
    EXPECT_TRUE(model.ok()) << model.status();
    return model.ok() ? *std::move(model) : nullptr;
  }

  // Logits of every position of every case, each prompt alone in one Forward.
  std::vector<ModelHarness::Logits> RunWhole(const Model& model) {
    std::vector<ModelHarness::Logits> all;
    for (const GoldenCase& golden : cases_) {
      ModelHarness harness(model, *device_, FinalLength(golden));
      const int sequence = harness.AddSequence(FinalLength(golden));
      auto logits = harness.Run(sequence, golden.input_ids, 1 << 20);
      EXPECT_TRUE(logits.ok()) << logits.status();
      all.push_back(logits.ok() ? *std::move(logits) : ModelHarness::Logits());
    }
    return all;
  }

  std::unique_ptr<Device> device_;
  std::vector<GoldenCase> cases_;
  int64_t total_ = 0;
};

}  // namespace inlay

#endif  // INLAY_TESTS_CORE_MODEL_GOLDEN_MODELS_H_
