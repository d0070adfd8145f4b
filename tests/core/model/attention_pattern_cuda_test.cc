// Models whose attention goes by a pattern on a GPU: what they do on the CPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <string>

#include "tests/core/model/golden_models.h"
#include "tests/support/paths/paths.h"

namespace inlay {
namespace {

constexpr int64_t kLength = 300;
constexpr const char* kPatterns[] = {
    "block=16,window=48,global=16",
    "block=16,window=32,random=48,seed=5",
    "block=32,stride=96",
    "block=16,dilated=96,dilation=32,global=32",
    "segment=128",
    "block=16,segment=64,global=64,context=208"};

using Logits = ModelHarness::Logits;

// The largest difference over the deviation of all of `want`.
double Error(const Logits& got, const Logits& want) {
  double mean = 0, square = 0, count = 0, worst = 0;
  for (size_t t = 0; t < want.size(); ++t) {
    for (size_t i = 0; i < want[t].size(); ++i) {
      mean += want[t][i];
      square += double{want[t][i]} * want[t][i];
      ++count;
      const double off = std::abs(double{got[t][i]} - want[t][i]);
      // A NaN is as wrong as can be.
      worst = off <= worst ? worst : off;
    }
  }
  mean /= count;
  return worst / std::sqrt(square / count - mean * mean);
}

class CudaPatternTest : public testing::Test {
 protected:
  void SetUp() override {
    auto device = CreateCudaDevice(0, 0);
    if (!device.ok()) GTEST_SKIP() << "needs a GPU: " << device.status();
    gpu_ = *std::move(device);
    std::mt19937 rng(3);
    for (int64_t i = 0; i < kLength; ++i) {
      tokens_.push_back(static_cast<int32_t>(rng() % 4096));
    }
  }

  // `wide`: weights as float32, and so everything else.
  std::unique_ptr<Model> Pocket(Device& device, const char* pattern, bool wide,
                                ModelLoadOptions options = {}) {
    auto files = OpenModelFiles(SourceDir() + "/examples/models/pocket-7m", {});
    EXPECT_TRUE(files.ok()) << files.status();
    if (wide) files->weights = Widened(*files->weights);
    options.attention_pattern = *ParseAttentionPattern(pattern);
    auto model = LoadModel(*files, device, options);
    EXPECT_TRUE(model.ok()) << model.status();
    return *std::move(model);
  }
  Logits Run(const Model& model, Device& device, int64_t chunk = 1 << 20) {
    ModelHarness harness(model, device, kLength);
    auto logits = harness.Run(harness.AddSequence(kLength), tokens_, chunk);
    EXPECT_TRUE(logits.ok()) << logits.status();
    return *std::move(logits);
  }
  Logits OnGpu(const char* pattern, bool wide, int64_t chunk = 1 << 20) {
    return Run(*Pocket(*gpu_, pattern, wide), *gpu_, chunk);
  }
  Logits OnCpu(const char* pattern) {
    return Run(*Pocket(*cpu_, pattern, false), *cpu_);
  }

  std::unique_ptr<Device> cpu_ = *CreateCpuDevice(2, 0);
  std::unique_ptr<Device> gpu_;
  std::vector<int32_t> tokens_;
};

TEST_F(CudaPatternTest, TheLogitsOfTheCpu) {
  const Logits dense = OnCpu("");
  // In 16 bits attention is another kernel, and errors are the model's: as
  // independent as two draws, of which one may well be some times the other.
  const double narrow = Error(OnGpu("", false), dense);
  EXPECT_LT(Error(OnGpu("", true), dense), kTolerance);
  for (const char* pattern : kPatterns) {
    SCOPED_TRACE(pattern);
    const Logits want = OnCpu(pattern);
    EXPECT_GT(Error(want, dense), 0.1);
    for (const int64_t chunk : {300, 77, 23, 1}) {
      SCOPED_TRACE(chunk);
      EXPECT_LT(Error(OnGpu(pattern, true, chunk), want), kTolerance);
      EXPECT_LT(Error(OnGpu(pattern, false, chunk), want), 3 * narrow);
    }
  }
}

TEST_F(CudaPatternTest, ShowingEverythingIsDense) {
  const Logits dense = OnGpu("", true);
  EXPECT_LT(Error(OnGpu("window=320", true), dense), kTolerance);
  EXPECT_LT(Error(OnGpu("block=16,segment=304", true), dense), kTolerance);
}

// Beside a shorter one, in steps of their own sizes.
TEST_F(CudaPatternTest, BatchedAsAlone) {
  for (const bool wide : {true, false}) {
    ModelLoadOptions options;
    options.batch_invariant = true;
    const auto model = Pocket(*gpu_, kPatterns[1], wide, options);
    const Logits whole = Run(*model, *gpu_);
    for (const int64_t chunk : {1, 7, 100}) {
      EXPECT_TRUE(Run(*model, *gpu_, chunk) == whole)
          << wide << " chunks of " << chunk;
    }
    ModelHarness harness(*model, *gpu_, 2 * kLength);
    const int first = harness.AddSequence(kLength);
    const int second = harness.AddSequence(kLength);
    const auto tokens = absl::MakeConstSpan(tokens_);
    for (size_t at = 0; at < 150; at += 50) {
      const auto logits =
          harness.Forward({{{first, tokens.subspan(2 * at, 100)},
                            {second, tokens.subspan(at, 50)}}});
      ASSERT_TRUE(logits.ok()) << logits.status();
      for (size_t i = 0; i < 100; ++i) {
        ASSERT_EQ((*logits)[i], whole[2 * at + i]) << 2 * at + i;
      }
      for (size_t i = 0; i < 50; ++i) {
        ASSERT_EQ((*logits)[100 + i], whole[at + i]) << at + i;
      }
    }
  }
}

// Layers with windows keep their own; those without take the pattern. Of an
// encoder, tokens ahead are seen too.
TEST_F(CudaPatternTest, OtherModels) {
  struct LastLayer : LayerObserver {
    void OnLayer(int, TensorView hidden) override {
      const auto* data = hidden.row<float>(0);
      values = {{data, data + hidden.elements()}};
    }
    Logits values;
  };
  for (const char* name : {"gemma2", "bert"}) {
    const ModelFiles files = Open(name, "config.json");
    ModelLoadOptions options;
    options.attention_pattern = *ParseAttentionPattern("block=16,window=32");
    std::vector<Logits> both;
    for (Device* device : {gpu_.get(), cpu_.get()}) {
      ModelFiles wide = files;
      if (device == gpu_.get()) wide.weights = Widened(*files.weights);
      const auto model = LoadModel(wide, *device, options);
      ASSERT_TRUE(model.ok()) << model.status();
      std::vector<int32_t> tokens = tokens_;
      tokens.resize(100);
      for (int32_t& token : tokens) {
        token %= static_cast<int32_t>((*model)->info().vocab_size);
      }
      ModelHarness harness(**model, *device, kLength);
      LastLayer last;
      const ModelHarness::Chunk chunk{harness.AddSequence(kLength), tokens};
      static_cast<void>(harness.Forward({&chunk, 1}, &last));
      both.push_back(last.values);
    }
    ASSERT_FALSE(both[0].empty() || both[1].empty()) << name;
    EXPECT_LT(Error(both[0], both[1]), kTolerance) << name;
  }
}

}  // namespace
}  // namespace inlay
