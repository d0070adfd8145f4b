// Models whose attention goes by a pattern: what is shown counts and nothing
// else, chunked and batched as whole.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <random>

#include "tests/core/model/golden_models.h"
#include "tests/support/paths/paths.h"

namespace inlay {
namespace {

constexpr int64_t kLength = 300;

class PatternTest : public ::testing::Test {
 protected:
  PatternTest() : device_(*CreateCpuDevice(2, 0)) {
    std::mt19937 rng(3);
    for (int64_t i = 0; i < kLength; ++i) {
      tokens_.push_back(static_cast<int32_t>(rng() % 512));
    }
  }

  absl::StatusOr<std::unique_ptr<Model>> Load(const std::string& path,
                                              const char* pattern) {
    auto files = OpenModelFiles(path, {});
    EXPECT_TRUE(files.ok()) << files.status();
    ModelLoadOptions options;
    options.attention_pattern = *ParseAttentionPattern(pattern);
    return LoadModel(*files, *device_, options);
  }
  // Two layers of four heads, two KV heads.
  std::unique_ptr<Model> Llama(const char* pattern) {
    auto model = Load(Directory("llama3"), pattern);
    EXPECT_TRUE(model.ok()) << model.status();
    return *std::move(model);
  }
  std::unique_ptr<Model> Pocket(const char* pattern) {
    auto model = Load(SourceDir() + "/examples/models/pocket-7m", pattern);
    EXPECT_TRUE(model.ok()) << model.status();
    return *std::move(model);
  }
  ModelHarness::Logits Run(const Model& model, absl::Span<const int32_t> tokens,
                           int64_t chunk = 1 << 20) {
    ModelHarness harness(model, *device_, kLength);
    auto logits = harness.Run(harness.AddSequence(kLength), tokens, chunk);
    EXPECT_TRUE(logits.ok()) << logits.status();
    return *std::move(logits);
  }

  std::unique_ptr<Device> device_;
  std::vector<int32_t> tokens_;
};

TEST_F(PatternTest, ShowingEverythingIsDense) {
  const auto dense = Run(*Llama(""), tokens_);
  EXPECT_TRUE(Run(*Llama("window=320"), tokens_) == dense);
  EXPECT_TRUE(Run(*Llama("block=16,segment=304"), tokens_) == dense);
  EXPECT_FALSE(Run(*Llama("window=64"), tokens_) == dense);
}

// Rotations are relative: a segment alone is as it is in its place, but for the
// roundings of other angles, which float32 models bear within 1e-4 of their
// logits (golden_models.h).
TEST_F(PatternTest, SegmentsAreTextsOfTheirOwn) {
  constexpr int64_t kSegment = 96;
  const auto all = Run(*Pocket("block=32,segment=96"), tokens_);
  const auto dense = Pocket("");
  double worst = 0.0;
  for (int64_t begin = 0; begin < kLength; begin += kSegment) {
    const auto part = absl::MakeConstSpan(tokens_).subspan(
        static_cast<size_t>(begin), kSegment);
    const auto alone = Run(*dense, part);
    for (size_t i = 0; i < part.size(); ++i) {
      const auto& in_place = all[static_cast<size_t>(begin) + i];
      for (size_t j = 0; j < in_place.size(); ++j) {
        worst = std::max(worst, std::abs(double{in_place[j]} - alone[i][j]));
      }
    }
  }
  EXPECT_LT(worst, 10 * 1e-4) << "of logits of about 10";
}

// Star Attention: segments and the first of them up to the context's end, and
// everything from there on.
TEST_F(PatternTest, WhatFollowsTheContextSeesAllOfIt) {
  constexpr size_t kContext = 192;
  const auto segments = Llama("block=16,segment=48,global=48");
  const auto star = Llama("block=16,segment=48,global=48,context=192");
  const auto before = Run(*segments, tokens_);
  const auto whole = Run(*star, tokens_);
  for (const int64_t chunk : {1, 7, 100}) {
    EXPECT_TRUE(Run(*star, tokens_, chunk) == whole) << "chunks of " << chunk;
  }
  tokens_[60] ^= 1;  // of the second segment
  const auto other = Run(*segments, tokens_);
  const auto changed = Run(*star, tokens_);
  for (size_t i = 0; i < whole.size(); ++i) {
    SCOPED_TRACE(i);
    const bool own = i >= 60 && i < 96;
    EXPECT_EQ(whole[i] == before[i], i < kContext);
    EXPECT_EQ(changed[i] == whole[i], !own && i < kContext);
    if (!own && i < kContext) {
      EXPECT_EQ(other[i], before[i]);
    }
  }
}

TEST_F(PatternTest, ChunkedAndBatchedAsWhole) {
  const auto model =
      Llama("block=16,window=48,global=16,stride=96,random=32,seed=5");
  const auto whole = Run(*model, tokens_);
  for (const int64_t chunk : {1, 7, 64, 100}) {
    EXPECT_TRUE(Run(*model, tokens_, chunk) == whole) << "chunks of " << chunk;
  }
  // Beside a shorter one, in steps of their own sizes.
  ModelHarness harness(*model, *device_, 2 * kLength);
  const int first = harness.AddSequence(kLength);
  const int second = harness.AddSequence(kLength);
  const auto tokens = absl::MakeConstSpan(tokens_);
  for (size_t at = 0; at < 150; at += 50) {
    const auto logits = harness.Forward({{{first, tokens.subspan(2 * at, 100)},
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

// Of an encoder, those ahead too.
TEST_F(PatternTest, Encoders) {
  const auto dense = Load(Directory("bert"), "");
  const auto all = Load(Directory("bert"), "block=16,segment=1024");
  const auto near = Load(Directory("bert"), "block=16,window=16");
  ASSERT_TRUE(dense.ok() && all.ok() && near.ok());
  class Last : public LayerObserver {
   public:
    void OnLayer(int, TensorView hidden) override {
      const auto* data = hidden.row<float>(0);
      values.assign(data, data + hidden.elements());
    }
    std::vector<float> values;
  };
  const auto run = [&](const Model& model, size_t first, size_t count) {
    std::vector<int32_t> tokens;
    for (size_t i = first; i < first + count; ++i) {
      tokens.push_back(tokens_[i] %
                       static_cast<int32_t>(model.info().vocab_size));
    }
    ModelHarness harness(model, *device_, kLength);
    Last last;
    const ModelHarness::Chunk chunk{harness.AddSequence(kLength), tokens};
    static_cast<void>(harness.Forward({&chunk, 1}, &last));
    return last.values;
  };
  const auto whole = run(**dense, 0, 48);
  ASSERT_FALSE(whole.empty());
  EXPECT_EQ(run(**all, 0, 48), whole);
  // Its own block only: the first 16 do not know of the others.
  auto first = run(**near, 0, 48);
  const auto alone = run(**dense, 0, 16);
  first.resize(alone.size());
  EXPECT_EQ(first, alone);
  EXPECT_NE(
      std::vector<float>(whole.begin(),
                         whole.begin() + static_cast<ptrdiff_t>(alone.size())),
      alone);
}

TEST_F(PatternTest, RefusedWhereNoLayerTakesIt) {
  for (const char* name : {"mistral", "mamba2"}) {
    const auto model = Load(Directory(name), "window=64");
    EXPECT_EQ(model.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(model.status().message().find("attention_pattern: no layer"),
              std::string::npos)
        << name << ": " << model.status();
  }
  // Layers with windows keep them; the others take the pattern.
  EXPECT_TRUE(Load(Directory("gemma2"), "window=64").ok());
}

}  // namespace
}  // namespace inlay
