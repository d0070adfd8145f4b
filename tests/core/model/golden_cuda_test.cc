// Every family on a GPU: against the reference's outputs, and against the CPU.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tests/core/model/golden_models.h"

namespace inlay {
namespace {

class CudaGoldenModel : public GoldenModel {
 protected:
  std::unique_ptr<Device> MakeDevice() override {
    auto device = CreateCudaDevice(0, 0);
    return device.ok() ? *std::move(device) : nullptr;
  }
  ModelFiles Files(const std::string& config) override {
    ModelFiles files = Open(GetParam(), config);
    if (widen_) files.weights = Widened(*files.weights);
    if (narrow_) files.weights = Narrowed(*files.weights);
    return files;
  }

  // Computed in float32 throughout; otherwise in the type of the weights.
  bool widen_ = true;
  bool narrow_ = false;  // all in bf16
};

TEST_P(CudaGoldenModel, WholePromptAndGreedy) {
  const auto model = Load({});
  ASSERT_NE(model, nullptr);
  double worst = 0;
  for (const GoldenCase& golden : cases_) {
    SCOPED_TRACE(golden.name);
    ModelHarness harness(*model, *device_, FinalLength(golden));
    const int sequence = harness.AddSequence(FinalLength(golden));
    LastToken observer;
    const auto logits =
        harness.Run(sequence, golden.input_ids, 1 << 20, &observer);
    ASSERT_TRUE(logits.ok()) << logits.status();
    if (!golden.layer_outputs.empty()) CheckLayers(golden, observer);
    const double error = GoldenError(golden, *logits);
    EXPECT_LT(error, kTolerance);
    worst = std::max(worst, error);
    const auto greedy = harness.Greedy(sequence, logits->back(), kGreedySteps);
    ASSERT_TRUE(greedy.ok()) << greedy.status();
    EXPECT_EQ(*greedy, golden.greedy);
  }
  std::printf("%-18s cuda f32  max error / logit_std %.2e\n", GetParam(),
              worst);
}

TEST_P(CudaGoldenModel, NarrowWeightsRoundAsPredicted) {
  widen_ = false;
  auto model = Load({});
  ASSERT_NE(model, nullptr);
  // Before and after a matrix; of files in float32 the matrix, too.
  int roundings = 2;
  if (model->info().hidden_dtype == DType::kF32) {
    narrow_ = true;
    ++roundings;
    model = Load({});
    ASSERT_NE(model, nullptr);
  }
  ASSERT_EQ(model->info().hidden_dtype, DType::kBF16);
  const bool has_experts = HasExperts(Files("config.json"));
  PositionsWithin positions;
  double worst = 0, limit = 0;
  for (const GoldenCase& golden : cases_) {
    for (const int64_t chunk : {1 << 20, 5, 1}) {
      ModelHarness harness(*model, *device_, FinalLength(golden));
      const int sequence = harness.AddSequence(FinalLength(golden));
      const auto logits = harness.Run(sequence, golden.input_ids, chunk);
      ASSERT_TRUE(logits.ok()) << logits.status();
      const double error = GoldenError(golden, *logits);
      const double tolerance = Bf16Tolerance(golden, roundings);
      positions.Add(golden, *logits, tolerance);
      if (!has_experts) {
        EXPECT_LT(error, tolerance) << golden.name << " in chunks of " << chunk;
      }
      if (error > worst) limit = tolerance;
      worst = std::max(worst, error);
    }
  }
  EXPECT_GE(positions.share(), kMostPositions);
  std::printf(
      "%-18s cuda bf16 max error / logit_std %.2e, limit %.2e, %.0f %% "
      "within\n",
      GetParam(), worst, limit, 100 * positions.share());
}

// Chunks, blocks and what else is in the batch: other kernels and other sums,
// within the same tolerance of the reference.
TEST_P(CudaGoldenModel, ChunksAndBlocks) {
  // llama4_text's chunks of 32 positions must be whole blocks.
  for (const int block_size :
       {16, std::string_view(GetParam()) == "llama4_text" ? 32 : 64}) {
    ModelLoadOptions options;
    options.kv_block_size = block_size;
    const auto model = Load(options);
    ASSERT_NE(model, nullptr);
    for (const int64_t chunk : {1, 5, 64}) {
      SCOPED_TRACE(testing::Message()
                   << "chunk " << chunk << " block " << block_size);
      ModelHarness harness(*model, *device_, total_);
      const int sequence = harness.AddSequence(FinalLength(cases_.back()));
      const auto logits = harness.Run(sequence, cases_.back().input_ids, chunk);
      ASSERT_TRUE(logits.ok()) << logits.status();
      EXPECT_LT(GoldenError(cases_.back(), *logits), kTolerance);
    }
  }
}

TEST_P(CudaGoldenModel, FewLogits) {
  const auto model = Load({});
  ASSERT_NE(model, nullptr);
  const auto check = [&](size_t begin, size_t end) {
    ModelHarness harness(*model, *device_, total_);
    std::vector<ModelHarness::Chunk> first, rest;
    for (size_t i = begin; i < end; ++i) {
      const int sequence = harness.AddSequence(FinalLength(cases_[i]));
      const auto tokens = absl::MakeConstSpan(cases_[i].input_ids);
      const size_t half = tokens.size() / 2;
      first.push_back({sequence, tokens.subspan(0, half), 0});
      rest.push_back({sequence, tokens.subspan(half), 1});
    }
    auto logits = harness.Forward(first);
    ASSERT_TRUE(logits.ok()) << logits.status();
    logits = harness.Forward(rest);
    ASSERT_TRUE(logits.ok()) << logits.status();
    ASSERT_EQ(logits->size(), end - begin);
    for (size_t i = begin; i < end; ++i) {
      GoldenCase last = cases_[i];
      last.positions = {cases_[i].positions.back()};
      last.logits = {cases_[i].logits.back()};
      const size_t tokens = last.input_ids.size();
      ASSERT_EQ(last.positions[0] + 1, static_cast<int64_t>(tokens));
      ModelHarness::Logits at(tokens);
      at.back() = (*logits)[i - begin];
      EXPECT_LT(GoldenError(last, at), kTolerance)
          << last.name << ", " << end - begin << " of them";
    }
  };
  check(0, cases_.size());
  for (size_t i = 0; i < cases_.size(); ++i) check(i, i + 1);
}

// Of several sequences, whose wanted tokens lie apart: where batches must not
// matter, to the bit what they are where all are wanted.
TEST_P(CudaGoldenModel, FewLogitsOfSeveralAreInvariant) {
  ModelLoadOptions options;
  options.batch_invariant = true;
  for (const bool widen : {true, false}) {
    widen_ = widen;
    const auto model = Load(options);
    ASSERT_NE(model, nullptr);
    // Of each second half.
    const auto run = [&](int64_t before, int64_t wanted) {
      ModelHarness harness(*model, *device_, total_);
      std::vector<ModelHarness::Chunk> first, rest;
      for (const GoldenCase& golden : cases_) {
        const int sequence = harness.AddSequence(FinalLength(golden));
        const auto tokens = absl::MakeConstSpan(golden.input_ids);
        const size_t half = tokens.size() / 2;
        first.push_back({sequence, tokens.subspan(0, half), before});
        rest.push_back({sequence, tokens.subspan(half), wanted});
      }
      const auto ignored = harness.Forward(first);
      EXPECT_TRUE(ignored.ok()) << ignored.status();
      auto logits = harness.Forward(rest);
      EXPECT_TRUE(logits.ok()) << logits.status();
      return logits.ok() ? *std::move(logits) : ModelHarness::Logits();
    };
    const ModelHarness::Logits all = run(-1, -1);
    // Again and again: whether keys are read before they are written is a
    // matter of time.
    for (int again = 0; again < 6; ++again) {
      const ModelHarness::Logits few = run(0, 1);
      ASSERT_EQ(few.size(), cases_.size());
      size_t end = 0;
      for (size_t i = 0; i < cases_.size(); ++i) {
        const size_t tokens = cases_[i].input_ids.size();
        end += tokens - tokens / 2;
        ASSERT_LE(end, all.size());
        EXPECT_TRUE(few[i] == all[end - 1])
            << cases_[i].name << ", widened " << widen;
      }
    }
  }
}

TEST_P(CudaGoldenModel, RaggedBatches) {
  const auto model = Load({});
  ASSERT_NE(model, nullptr);
  ModelHarness harness(*model, *device_, total_);
  const size_t steps[] = {1, 2, 4, 13};
  std::vector<ModelHarness::Logits> got(cases_.size());
  for (const GoldenCase& golden : cases_) {
    harness.AddSequence(FinalLength(golden));
  }
  while (true) {
    std::vector<ModelHarness::Chunk> chunks;
    for (size_t i = 0; i < cases_.size(); ++i) {
      const auto rest = absl::MakeConstSpan(cases_[i].input_ids)
                            .subspan(got[i].size(), steps[i % 4]);
      if (!rest.empty()) chunks.push_back({static_cast<int>(i), rest});
    }
    if (chunks.empty()) break;
    const auto logits = harness.Forward(chunks);
    ASSERT_TRUE(logits.ok()) << logits.status();
    auto next = logits->begin();
    for (const ModelHarness::Chunk& chunk : chunks) {
      auto& mine = got[static_cast<size_t>(chunk.sequence)];
      const auto count = static_cast<ptrdiff_t>(chunk.tokens.size());
      mine.insert(mine.end(), next, next + count);
      next += count;
    }
  }
  for (size_t i = 0; i < cases_.size(); ++i) {
    EXPECT_LT(GoldenError(cases_[i], got[i]), kTolerance) << cases_[i].name;
  }
}

// Fused ops have the bits of those they stand for, in steps of as many tokens
// as kernels of ours take: q, k and v side by side are another matrix for
// cuBLAS. But for decode_attention, which cuts keys otherwise, linear_chain,
// which rounds after other steps, and moe_router, which adds up squares and
// products in another order.
TEST_P(CudaGoldenModel, FusedOpsChangeNothing) {
  const GoldenCase& golden = cases_.back();
  for (const bool widen : {true, false}) {
    widen_ = widen;
    for (const int64_t chunk : {1, 3, 8}) {
      std::vector<ModelHarness::Logits> both;
      for (const bool fused : {true, false}) {
        ModelLoadOptions options;
        options.fused = fused;
        options.forced_kernels["decode_attention"] = "apart";
        options.forced_kernels["linear_chain"] = "apart";
        options.forced_kernels["moe_router"] = "apart";
        const auto model = Load(options);
        ASSERT_NE(model, nullptr);
        ModelHarness harness(*model, *device_, FinalLength(golden));
        const int sequence = harness.AddSequence(FinalLength(golden));
        auto logits = harness.Run(sequence, golden.input_ids, chunk);
        ASSERT_TRUE(logits.ok()) << logits.status();
        both.push_back(*std::move(logits));
      }
      EXPECT_TRUE(both[0] == both[1])
          << "widened " << widen << " chunk " << chunk;
    }
  }
}

// Each format of the cache rounds on the GPU as it does on the CPU.
TEST_P(CudaGoldenModel, KvFormatsAgreeWithTheCpu) {
  const auto cpu = *CreateCpuDevice(2, 0);
  const GoldenCase& golden = cases_.back();
  for (const DType dtype :
       {DType::kF16, DType::kBF16, DType::kI8, DType::kF8E4M3, DType::kKvQ4}) {
    ModelLoadOptions options;
    options.kv_dtype = dtype;
    std::vector<ModelHarness::Logits> both;
    for (Device* device : {device_.get(), cpu.get()}) {
      auto model = LoadModel(Files("config.json"), *device, options);
      ASSERT_TRUE(model.ok()) << model.status();
      ModelHarness harness(**model, *device, FinalLength(golden));
      const int sequence = harness.AddSequence(FinalLength(golden));
      auto logits = harness.Run(sequence, golden.input_ids, 1 << 20);
      ASSERT_TRUE(logits.ok()) << logits.status();
      both.push_back(*std::move(logits));
    }
    // What both share of the rounding cancels; an element near the middle of
    // two codes may go either way, which moves a row by a step of its codes.
    const double gpu = GoldenError(golden, both[0]);
    const double host = GoldenError(golden, both[1]);
    EXPECT_LT(gpu, 2 * host + kTolerance) << DTypeName(dtype);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, CudaGoldenModel,
                         testing::ValuesIn(AllGoldenModels()),
                         [](const auto& info) {
                           return std::string(info.param);
                         });

}  // namespace
}  // namespace inlay
