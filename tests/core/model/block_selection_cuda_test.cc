// Models that select blocks of keys on a GPU: what they do on the CPU, as far
// as scores that nearly tie leave it to be the same; and the same bits however
// a sequence is computed.
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

const std::string kPocket = SourceDir() + "/examples/models/pocket-7m";
constexpr int64_t kLength = 300;
constexpr BlockMethod kMethods[] = {BlockMethod::kBounds, BlockMethod::kKMeans,
                                    BlockMethod::kLsh};
constexpr DType kKvTypes[] = {DType::kF32, DType::kF16,    DType::kBF16,
                              DType::kI8,  DType::kF8E4M3, DType::kKvQ4};

using Logits = ModelHarness::Logits;

struct Difference {
  double most;       // over the deviation of all that is wanted
  double root_mean;  // of squares, likewise
  double greedy;     // the share of tokens with the same best
};

// Of tokens from `first` to `end`.
Difference Compare(const Logits& got, const Logits& want, size_t first,
                   size_t end) {
  double mean = 0, square = 0, count = 0, most = 0, errors = 0, same = 0;
  for (size_t t = first; t < end; ++t) {
    for (size_t i = 0; i < want[t].size(); ++i) {
      mean += want[t][i];
      square += double{want[t][i]} * want[t][i];
      ++count;
      const double off = std::abs(double{got[t][i]} - want[t][i]);
      // A NaN is as wrong as can be.
      most = off <= most ? most : off;
      errors += off * off;
    }
    const auto best = [](const std::vector<float>& x) {
      return std::max_element(x.begin(), x.end()) - x.begin();
    };
    same += best(got[t]) == best(want[t]) ? 1 : 0;
  }
  mean /= count;
  const double deviation = std::sqrt(square / count - mean * mean);
  return {most / deviation, std::sqrt(errors / count) / deviation,
          same / static_cast<double>(end - first)};
}

class CudaBlockSelectionTest : public ::testing::Test {
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

  static ModelLoadOptions Selecting(BlockMethod method, int64_t tokens) {
    ModelLoadOptions options;
    options.block_selection = {method, tokens};
    return options;
  }
  // `wide`: weights as float32, and so everything else.
  std::unique_ptr<Model> Load(const std::string& path, Device& device,
                              const ModelLoadOptions& options, bool wide) {
    auto files = OpenModelFiles(path, {});
    EXPECT_TRUE(files.ok()) << files.status();
    if (wide) files->weights = Widened(*files->weights);
    auto model = LoadModel(*files, device, options);
    EXPECT_TRUE(model.ok()) << model.status();
    return *std::move(model);
  }
  Logits Run(const Model& model, Device& device, int64_t chunk = 1 << 20) {
    ModelHarness harness(model, device, kLength + 256);
    auto logits = harness.Run(harness.AddSequence(kLength), tokens_, chunk);
    EXPECT_TRUE(logits.ok()) << logits.status();
    return *std::move(logits);
  }
  Logits OnGpu(const ModelLoadOptions& options, bool wide,
               int64_t chunk = 1 << 20) {
    return Run(*Load(kPocket, *gpu_, options, wide), *gpu_, chunk);
  }
  Logits OnCpu(const ModelLoadOptions& options) {
    return Run(*Load(kPocket, *cpu_, options, false), *cpu_);
  }

  std::unique_ptr<Device> cpu_ = *CreateCpuDevice(2, 0);
  std::unique_ptr<Device> gpu_;
  std::vector<int32_t> tokens_;
};

// While a query has no more blocks than are selected.
TEST_F(CudaBlockSelectionTest, ASelectionOfEverythingIsDense) {
  const Logits dense = OnCpu({});
  const Logits narrow = OnGpu({}, false);
  const double of_narrow = Compare(narrow, dense, 0, kLength).most;
  for (const BlockMethod method : kMethods) {
    SCOPED_TRACE(static_cast<int>(method));
    const ModelLoadOptions all = Selecting(method, 304);
    EXPECT_LT(Compare(OnGpu(all, true), dense, 0, kLength).most, kTolerance);
    EXPECT_LT(Compare(OnGpu(all, false), dense, 0, kLength).most,
              3 * of_narrow);
    const ModelLoadOptions some = Selecting(method, 128);
    const Logits got = OnGpu(some, true);
    EXPECT_LT(Compare(got, dense, 0, 128).most, kTolerance);
    EXPECT_GT(Compare(got, dense, 128, kLength).most, 0.1);
  }
}

// Where two blocks' scores are nearer to each other than float32 sums of two
// devices, one of them may be selected here and the other there, and what
// follows differs by what the two are to the query: some of what sparsity
// itself changes, in a few layers and heads.
TEST_F(CudaBlockSelectionTest, TheLogitsOfTheCpu) {
  const Logits dense = OnCpu({});
  for (const BlockMethod method : kMethods) {
    for (const int64_t tokens : {80, 160}) {
      SCOPED_TRACE(::testing::Message()
                   << static_cast<int>(method) << " of " << tokens);
      const ModelLoadOptions options = Selecting(method, tokens);
      const Logits want = OnCpu(options);
      const auto first = static_cast<size_t>(tokens);
      const Difference sparse = Compare(want, dense, first, kLength);
      for (const int64_t chunk : {300, 77, 1}) {
        SCOPED_TRACE(chunk);
        const Logits got = OnGpu(options, true, chunk);
        EXPECT_LT(Compare(got, want, 0, first).most, kTolerance);
        const Difference difference = Compare(got, want, first, kLength);
        EXPECT_LT(difference.root_mean, 0.1 * sparse.root_mean);
        EXPECT_GT(difference.greedy, 0.95);
      }
    }
  }
}

// In any chunks and beside others, in every format of the cache and with large
// blocks of it.
TEST_F(CudaBlockSelectionTest, ChunkedAndBatchedAsWhole) {
  for (const BlockMethod method : kMethods) {
    for (const DType kv : kKvTypes) {
      const bool wide = kv == DType::kF32;
      SCOPED_TRACE(::testing::Message()
                   << static_cast<int>(method) << " " << DTypeName(kv));
      ModelLoadOptions options = Selecting(method, 80);
      options.batch_invariant = true;
      options.kv_dtype = kv;
      options.kv_block_size = 64;
      const auto large = Load(kPocket, *gpu_, options, wide);
      options.kv_block_size = 16;
      const auto model = Load(kPocket, *gpu_, options, wide);
      const Logits whole = Run(*model, *gpu_);
      EXPECT_TRUE(Run(*large, *gpu_, 33) == whole);
      for (const int64_t chunk : {1, 7, 100}) {
        EXPECT_TRUE(Run(*model, *gpu_, chunk) == whole)
            << "in chunks of " << chunk;
      }
      ModelHarness harness(*model, *gpu_, 2 * kLength + 64);
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
}

// Layers with windows, or without rotation, beside those that select; heads of
// other sizes.
TEST_F(CudaBlockSelectionTest, OtherFamilies) {
  for (const std::string name : {"llama3", "gemma2", "gemma3_text", "qwen3",
                                 "phi3", "gpt_oss", "falcon_h1"}) {
    SCOPED_TRACE(name);
    const std::string path = Directory(name);
    auto files = OpenModelFiles(path, {});
    ASSERT_TRUE(files.ok()) << files.status();
    ModelLoadOptions options = Selecting(BlockMethod::kBounds, 64);
    options.batch_invariant = true;
    const auto on_cpu = LoadModel(*files, *cpu_, options);
    const auto on_gpu = LoadModel(*files, *gpu_, options);
    ASSERT_EQ(on_cpu.status().code(), on_gpu.status().code())
        << on_gpu.status();
    if (!on_cpu.ok()) continue;
    for (int32_t& token : tokens_) {
      token %= static_cast<int32_t>((*on_cpu)->info().vocab_size);
    }
    const auto length = static_cast<size_t>(
        std::min<int64_t>(kLength, (*on_cpu)->info().max_positions));
    const std::vector<int32_t> all = tokens_;
    tokens_.resize(length);
    const Logits whole = Run(**on_gpu, *gpu_);
    const Logits chunked = Run(**on_gpu, *gpu_, 23);
    // Recurrent layers go token by token where batches must not matter, and an
    // expert's sums are the same whatever other rows it gets.
    EXPECT_TRUE(chunked == whole);
    const Logits want = Run(**on_cpu, *cpu_);
    // Narrow weights: what their rounding does, and near ties besides.
    EXPECT_LT(Compare(whole, want, 0, std::min<size_t>(64, length)).root_mean,
              0.1);
    tokens_ = all;
  }
}

}  // namespace
}  // namespace inlay
