// Every family against the reference's outputs: whole prompts, chunked, paged
// by different blocks, batched with others, decoded greedily.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>

#include "kernels/activation/activation.h"
#include "kernels/activation/sparse_gate.h"
#include "kernels/activation/xielu.h"
#include "kernels/altup/altup.h"
#include "kernels/attention/attention.h"
#include "kernels/columns/columns.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/embedding/embedding.h"
#include "kernels/gated_norm/gated_norm.h"
#include "kernels/gemm/gemm.h"
#include "kernels/hyper_connection/hyper_connection.h"
#include "kernels/indexer/indexer.h"
#include "kernels/kv_write/kv_write.h"
#include "kernels/layer_norm/layer_norm.h"
#include "kernels/linear_attention/linear_attention.h"
#include "kernels/linear_attention/rg_lru.h"
#include "kernels/linear_attention/selective_scan.h"
#include "kernels/linear_attention/short_conv.h"
#include "kernels/linear_attention/state_gates.h"
#include "kernels/linear_attention/wkv7.h"
#include "kernels/moe/combine.h"
#include "kernels/moe/expert_linear.h"
#include "kernels/rms_norm/rms_norm.h"
#include "kernels/rope/rope.h"
#include "tests/core/model/golden_models.h"

namespace inlay {
namespace {

template <typename Table>
void ForceWhereThere(const char* op, const Table& table,
                     const std::string& name, ModelLoadOptions& options) {
  for (const auto& row : table) {
    if (row.name == name) options.forced_kernels[op] = name;
  }
}

// Forces the row named `name` in every op that has one.
ModelLoadOptions Forced(const std::string& name) {
  ModelLoadOptions options;
  ForceWhereThere("activation", ActivationTable(), name, options);
  ForceWhereThere("altup_correct", AltUpCorrectTable(), name, options);
  ForceWhereThere("altup_predict", AltUpPredictTable(), name, options);
  ForceWhereThere("attention", AttentionTable(), name, options);
  ForceWhereThere("elementwise", ElementwiseTable(), name, options);
  ForceWhereThere("columns", ColumnsTable(), name, options);
  ForceWhereThere("embedding", EmbeddingTable(), name, options);
  ForceWhereThere("gated_norm", GatedNormTable(), name, options);
  ForceWhereThere("expert_linear", ExpertLinearTable(), name, options);
  ForceWhereThere("gemm", GemmTable(), name, options);
  ForceWhereThere("hyper_mix", HyperMixTable(), name, options);
  ForceWhereThere("hyper_spread", HyperSpreadTable(), name, options);
  ForceWhereThere("indexer", IndexerTable(), name, options);
  ForceWhereThere("kv_write", KvWriteTable(), name, options);
  ForceWhereThere("layer_norm", LayerNormTable(), name, options);
  ForceWhereThere("linear_attention", LinearAttentionTable(), name, options);
  ForceWhereThere("moe_combine", MoeCombineTable(), name, options);
  ForceWhereThere("rms_norm", RmsNormTable(), name, options);
  ForceWhereThere("rope", RopeTable(), name, options);
  ForceWhereThere("selective_scan", SelectiveScanTable(), name, options);
  ForceWhereThere("rg_lru", RgLruTable(), name, options);
  ForceWhereThere("short_conv", ShortConvTable(), name, options);
  ForceWhereThere("sparse_gate", SparseGateTable(), name, options);
  ForceWhereThere("state_gates", StateGatesTable(), name, options);
  ForceWhereThere("wkv7", Wkv7Table(), name, options);
  ForceWhereThere("xielu", XieluTable(), name, options);
  return options;
}

TEST_P(GoldenModel, WholePromptAndGreedy) {
  for (const std::string row : {"", "cpu_scalar"}) {
    const auto model = Load(Forced(row));
    ASSERT_NE(model, nullptr);
    double worst = 0;
    for (const GoldenCase& golden : cases_) {
      SCOPED_TRACE(golden.name + " " + row);
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
      const auto greedy =
          harness.Greedy(sequence, logits->back(), kGreedySteps);
      ASSERT_TRUE(greedy.ok()) << greedy.status();
      EXPECT_EQ(*greedy, golden.greedy);
    }
    RecordProperty(row.empty() ? "max_error" : "max_error_" + row,
                   std::to_string(worst));
    std::printf("%-18s %-10s max error / logit_std %.2e\n", GetParam(),
                row.empty() ? "default" : row.c_str(), worst);
  }
}

TEST_P(GoldenModel, BothConfigSpellingsAgree) {
  const auto published = Load({});
  const auto newer = Load({}, "config_v5.json");
  ASSERT_TRUE(published != nullptr && newer != nullptr);
  EXPECT_EQ(published->info().max_positions, newer->info().max_positions);
  EXPECT_EQ(RunWhole(*published), RunWhole(*newer));
}

// Chunks and blocks change nothing, to the last bit.
TEST_P(GoldenModel, ChunksAndBlocksAreExact) {
  const auto model = Load({});
  ASSERT_NE(model, nullptr);
  const auto whole = RunWhole(*model);
  for (const int block_size : {16, 32}) {
    ModelLoadOptions options;
    options.kv_block_size = block_size;
    const auto paged = Load(options);
    ASSERT_NE(paged, nullptr);
    for (const int64_t chunk : {1, 5, 16, 64}) {
      SCOPED_TRACE(::testing::Message()
                   << "chunk " << chunk << " block " << block_size);
      ModelHarness harness(*paged, *device_, total_);
      const int sequence = harness.AddSequence(FinalLength(cases_.back()));
      const auto logits = harness.Run(sequence, cases_.back().input_ids, chunk);
      ASSERT_TRUE(logits.ok()) << logits.status();
      EXPECT_LT(GoldenError(cases_.back(), *logits), kTolerance);
      EXPECT_TRUE(*logits == whole.back());
    }
  }
}

// What is wanted of the last layer changes no bit of it: a prompt without
// logits, one with few, alone and beside others.
TEST_P(GoldenModel, FewLogitsAreThoseOfAll) {
  const auto model = Load({});
  ASSERT_NE(model, nullptr);
  const auto whole = RunWhole(*model);
  const auto check = [&](size_t begin, size_t end, int64_t wanted) {
    SCOPED_TRACE(::testing::Message() << cases_[begin].name << ", "
                                      << end - begin << " of them, " << wanted);
    ModelHarness harness(*model, *device_, total_);
    std::vector<ModelHarness::Chunk> first, rest;
    for (size_t i = begin; i < end; ++i) {
      const int sequence = harness.AddSequence(FinalLength(cases_[i]));
      const auto tokens = absl::MakeConstSpan(cases_[i].input_ids);
      const size_t half = tokens.size() / 2;
      first.push_back({sequence, tokens.subspan(0, half), 0});
      rest.push_back({sequence, tokens.subspan(half), wanted});
    }
    auto logits = harness.Forward(first);
    ASSERT_TRUE(logits.ok()) << logits.status();
    EXPECT_TRUE(logits->empty());
    logits = harness.Forward(rest);
    ASSERT_TRUE(logits.ok()) << logits.status();
    auto got = logits->begin();
    for (size_t i = begin; i < end; ++i) {
      const auto tokens = static_cast<int64_t>(rest[i - begin].tokens.size());
      for (int64_t left = std::min(wanted, tokens); left > 0; --left, ++got) {
        ASSERT_NE(got, logits->end());
        EXPECT_TRUE(*got == *(whole[i].end() - left)) << cases_[i].name;
      }
    }
    EXPECT_EQ(got, logits->end());
  };
  for (const int64_t wanted : {1, 3}) {
    check(0, cases_.size(), wanted);
    for (size_t i = 0; i < cases_.size(); ++i) check(i, i + 1, wanted);
  }
}

// The same where sequences of a step differ: none of a chunk's logits are
// wanted, all, the last ones or a single token's; later steps read the keys and
// values that each left.
TEST_P(GoldenModel, LogitsThatAreWantedBesideOthers) {
  const auto model = Load({});
  ASSERT_NE(model, nullptr);
  const auto whole = RunWhole(*model);
  const size_t sizes[] = {19, 1, 7, 30, 2};
  const int64_t wants[] = {0, 1, 0, -1, 2, 1};
  for (size_t start = 0; start < std::size(wants); ++start) {
    ModelHarness harness(*model, *device_, total_);
    std::vector<size_t> done(cases_.size());
    for (const GoldenCase& golden : cases_) {
      harness.AddSequence(FinalLength(golden));
    }
    for (size_t step = start;; ++step) {
      std::vector<ModelHarness::Chunk> chunks;
      std::vector<std::vector<float>> want;
      for (size_t i = 0; i < cases_.size(); ++i) {
        const auto tokens = absl::MakeConstSpan(cases_[i].input_ids)
                                .subspan(done[i], sizes[(step + 3 * i) % 5]);
        if (tokens.empty()) continue;
        const int64_t wanted = wants[(step + i) % 6];
        chunks.push_back({static_cast<int>(i), tokens, wanted});
        done[i] += tokens.size();
        const size_t count =
            wanted < 0 ? tokens.size()
                       : std::min(tokens.size(), static_cast<size_t>(wanted));
        for (size_t at = done[i] - count; at < done[i]; ++at) {
          want.push_back(whole[i][at]);
        }
      }
      if (chunks.empty()) break;
      const auto logits = harness.Forward(chunks);
      ASSERT_TRUE(logits.ok()) << logits.status();
      EXPECT_TRUE(*logits == want) << "from " << start << ", step " << step;
    }
  }
}

// In a ragged batch of prefills and decodes, each sequence's logits are those
// it has alone, to the last bit.
TEST_P(GoldenModel, BatchInvariant) {
  const auto model = Load({});
  ASSERT_NE(model, nullptr);
  const auto whole = RunWhole(*model);
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
                            .subspan(got[i].size(), steps[i]);
      if (!rest.empty()) chunks.push_back({static_cast<int>(i), rest});
    }
    if (chunks.empty()) break;
    const auto logits = harness.Forward(chunks);
    ASSERT_TRUE(logits.ok()) << logits.status();
    auto next = logits->begin();
    for (const ModelHarness::Chunk& chunk : chunks) {
      auto& mine = got[static_cast<size_t>(chunk.sequence)];
      mine.insert(mine.end(), next,
                  next + static_cast<ptrdiff_t>(chunk.tokens.size()));
      next += static_cast<ptrdiff_t>(chunk.tokens.size());
    }
  }
  for (size_t i = 0; i < cases_.size(); ++i) {
    EXPECT_TRUE(got[i] == whole[i]) << cases_[i].name;
  }
}

// Rounding K and V to a format with unit roundoff u changes each by a relative
// error of root mean square at most u / sqrt(3). `sensitivity` says how far the
// logits move when all weights (those that make K and V among them) change by
// 3e-7 in the same sense, so the same error at this size moves them by
// sensitivity * (u / sqrt(3)) / 3e-7. The keys and values are a part of what
// the weights make, which leaves room for the largest of several draws.
// i8 errs by at most half a step of 1/127 of the row's largest magnitude, which
// is at most sqrt(head_dim) times the row's root mean square: u is
// sqrt(head_dim) / 254.
TEST_P(GoldenModel, NarrowKvRoundsAsPredicted) {
  const auto exact = Load({});
  ASSERT_NE(exact, nullptr);
  const auto whole = RunWhole(*exact);
  if (exact->info().kv_layers.empty()) GTEST_SKIP() << "it has no KV";
  const double head_dim = exact->info().kv_layers.front().head_dim;
  const bool has_experts = HasExperts(Files("config.json"));
  const std::pair<DType, double> formats[] = {
      {DType::kF16, 0x1p-11},
      {DType::kBF16, 0x1p-8},
      {DType::kI8, std::sqrt(head_dim) / 254},
      {DType::kF8E4M3, 0x1p-4}};
  for (const auto& [dtype, roundoff] : formats) {
    ModelLoadOptions options;
    options.kv_dtype = dtype;
    const auto model = Load(options);
    ASSERT_NE(model, nullptr);
    const auto logits = RunWhole(*model);
    // In 8 bits a token may go to another expert (PositionsWithin); in 16 too
    // where one rounded row is what all heads' keys and values are made of.
    const bool may_route =
        has_experts && (roundoff > 0x1p-8 || IsLatent(GetParam()));
    PositionsWithin positions;
    double worst = 0;
    for (size_t i = 0; i < cases_.size(); ++i) {
      const double bound =
          cases_[i].sensitivity * roundoff / std::sqrt(3.0) / 3e-7;
      const double error = GoldenError(cases_[i], logits[i]);
      positions.Add(cases_[i], logits[i], bound);
      if (!may_route) {
        EXPECT_LT(error, bound) << cases_[i].name;
      }
      worst = std::max(worst, error);
    }
    EXPECT_GE(positions.share(), kMostPositions);
    EXPECT_FALSE(logits.back() == whole.back()) << "nothing was rounded";
    std::printf("%-18s KV %-4s max error / logit_std %.2e\n", GetParam(),
                std::string(DTypeName(dtype)).c_str(), worst);
  }
}

// A token's row holds its own scales: chunks and blocks change nothing here
// either.
TEST_P(GoldenModel, QuantisedKvIsExactOverChunks) {
  for (const DType dtype : {DType::kI8, DType::kF8E4M3, DType::kKvQ4}) {
    ModelLoadOptions options;
    options.kv_dtype = dtype;
    const auto model = Load(options);
    options.kv_block_size = 32;
    const auto paged = Load(options);
    ASSERT_TRUE(model != nullptr && paged != nullptr);
    const GoldenCase& golden = cases_.back();
    const auto run = [&](const Model& with, int64_t chunk) {
      ModelHarness harness(with, *device_, total_);
      const int sequence = harness.AddSequence(FinalLength(golden));
      auto logits = harness.Run(sequence, golden.input_ids, chunk);
      EXPECT_TRUE(logits.ok()) << logits.status();
      return logits.ok() ? *std::move(logits) : ModelHarness::Logits();
    };
    const auto whole = run(*model, 1 << 20);
    for (const int64_t chunk : {1, 5, 16}) {
      EXPECT_TRUE(run(*paged, chunk) == whole)
          << DTypeName(dtype) << " in chunks of " << chunk;
    }
  }
}

// Of encoders those that are there in both.
TEST(EncoderGoldenTest, BothConfigSpellingsAgree) {
  const auto device = Cpu();
  const std::vector<int32_t> text = {2, 60, 7, 9, 33, 41, 3};
  int both = 0;
  for (const char* name : kEncoderNames) {
    if (!std::ifstream(Directory(name) + "/config_v5.json").good()) continue;
    SCOPED_TRACE(name);
    std::vector<ModelHarness::Logits> states;
    for (const char* config : {"config.json", "config_v5.json"}) {
      const auto model = LoadModel(Open(name, config), *device, {});
      ASSERT_TRUE(model.ok()) << model.status();
      states.push_back(RunChunks(**model, *device, text, 1 << 20));
    }
    EXPECT_EQ(states[0].size(), text.size());
    EXPECT_EQ(states[0], states[1]);
    ++both;
  }
  EXPECT_EQ(both, 2);
}

// Files in float32 with weights of bf16: what that does, and rounding the
// inputs of matrices in some rows.
TEST(NarrowedGoldenTest, RoundsAsPredicted) {
  const auto device = Cpu();
  for (const char* name : {"gpt2", "gpt2_bare", "gemma2", "llama2"}) {
    SCOPED_TRACE(name);
    ModelFiles files = Open(name, "config.json");
    files.weights = Narrowed(*files.weights);
    const auto model = LoadModel(files, *device, {});
    ASSERT_TRUE(model.ok()) << model.status();
    const GoldenCase golden = ReadGolden(Directory(name)).back();
    const double error = GoldenError(
        golden, RunChunks(**model, *device, golden.input_ids, 1 << 20));
    EXPECT_LT(error, Bf16Tolerance(golden, 2));
    EXPECT_GT(error, kTolerance) << "nothing was rounded";
  }
}

INSTANTIATE_TEST_SUITE_P(Models, GoldenModel,
                         ::testing::ValuesIn(AllGoldenModels()),
                         [](const auto& info) {
                           return std::string(info.param);
                         });

}  // namespace
}  // namespace inlay
