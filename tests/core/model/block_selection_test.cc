// Selection of blocks by content in models: when it is dense attention, chunks,
// batches and blocks of the cache, which families take it, what the cache
// keeps.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <utility>

#include "tests/core/model/golden_models.h"
#include "tests/support/paths/paths.h"

namespace inlay {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kPromptLength = 300;
constexpr BlockMethod kMethods[] = {BlockMethod::kBounds, BlockMethod::kKMeans,
                                    BlockMethod::kLsh};

class BlockSelectionModelTest : public ::testing::Test {
 protected:
  BlockSelectionModelTest() : device_(*CreateCpuDevice(2, 0)) {
    std::mt19937 rng(3);
    for (int64_t i = 0; i < kPromptLength; ++i) {
      tokens_.push_back(static_cast<int32_t>(rng() % 512));
    }
  }

  static ModelLoadOptions Selecting(BlockMethod method, int64_t tokens) {
    ModelLoadOptions options;
    options.block_selection = {method, tokens};
    return options;
  }
  absl::StatusOr<std::unique_ptr<Model>> Load(const std::string& path,
                                              const ModelLoadOptions& options) {
    auto files = OpenModelFiles(path, {});
    EXPECT_TRUE(files.ok()) << files.status();
    return LoadModel(*files, *device_, options);
  }
  // Two layers of four heads, two KV heads.
  std::unique_ptr<Model> Llama(const ModelLoadOptions& options) {
    auto model = Load(Directory("llama3"), options);
    EXPECT_TRUE(model.ok()) << model.status();
    return *std::move(model);
  }
  std::unique_ptr<Model> Pocket(const ModelLoadOptions& options) {
    auto model = Load(SourceDir() + "/examples/models/pocket-7m", options);
    EXPECT_TRUE(model.ok()) << model.status();
    return *std::move(model);
  }
  ModelHarness::Logits Run(const Model& model, absl::Span<const int32_t> tokens,
                           int64_t chunk = 1 << 20) {
    ModelHarness harness(model, *device_, kPromptLength + 256);
    auto logits =
        harness.Run(harness.AddSequence(kPromptLength), tokens, chunk);
    EXPECT_TRUE(logits.ok()) << logits.status();
    return logits.ok() ? *std::move(logits) : ModelHarness::Logits();
  }

  std::unique_ptr<Device> device_;
  std::vector<int32_t> tokens_;
};

// As long as a query has no more blocks than are selected, the bits are those
// of dense attention, and no longer.
TEST_F(BlockSelectionModelTest, ASelectionOfEverythingIsDense) {
  const auto dense = Run(*Llama({}), tokens_);
  for (const BlockMethod method : kMethods) {
    for (const int64_t tokens : {64, 128, 304, 100000 / 16 * 16}) {
      SCOPED_TRACE(::testing::Message()
                   << static_cast<int>(method) << " of " << tokens);
      const auto got = Run(*Llama(Selecting(method, tokens)), tokens_);
      ASSERT_EQ(got.size(), dense.size());
      const auto same = static_cast<size_t>(std::min(tokens, kPromptLength));
      for (size_t i = 0; i < same; ++i) ASSERT_EQ(got[i], dense[i]) << i;
      if (tokens < kPromptLength) {
        EXPECT_NE(got.back(), dense.back());
      }
    }
  }
}

TEST_F(BlockSelectionModelTest, ChunkedAndBatchedAsWhole) {
  for (const BlockMethod method : kMethods) {
    const auto model = Llama(Selecting(method, 80));
    const auto whole = Run(*model, tokens_);
    for (const int64_t chunk : {1, 7, 64, 100}) {
      EXPECT_TRUE(Run(*model, tokens_, chunk) == whole)
          << static_cast<int>(method) << " in chunks of " << chunk;
    }
    // Beside a shorter one, in steps of their own sizes.
    ModelHarness harness(*model, *device_, 2 * kPromptLength + 64);
    const int first = harness.AddSequence(kPromptLength);
    const int second = harness.AddSequence(kPromptLength);
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

// In whatever format keys are, and however large the cache's blocks.
TEST_F(BlockSelectionModelTest, BlocksOfTheCacheChangeNothing) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kI8,
                            DType::kF8E4M3, DType::kKvQ4}) {
    for (const BlockMethod method : kMethods) {
      ModelLoadOptions options = Selecting(method, 80);
      options.kv_dtype = dtype;
      const auto want = Run(*Llama(options), tokens_);
      for (const int block : {32, 128}) {
        options.kv_block_size = block;
        EXPECT_TRUE(Run(*Llama(options), tokens_, 37) == want)
            << DTypeName(dtype) << " method " << static_cast<int>(method)
            << " in blocks of " << block;
      }
    }
  }
}

// Every family either selects, and then chunks change nothing, or says why not.
TEST_F(BlockSelectionModelTest, Families) {
  int selecting = 0;
  for (const char* name : AllGoldenModels()) {
    SCOPED_TRACE(name);
    const std::string path = Directory(name);
    const auto dense = Load(path, {});
    ASSERT_TRUE(dense.ok()) << dense.status();
    const ModelInfo& info = (*dense)->info();
    const auto model = Load(path, Selecting(BlockMethod::kBounds, 64));
    // Of so small chunks: summaries make blocks of its other layers larger.
    if (std::string(name) == "llama4_text") {
      EXPECT_EQ(model.status().code(), absl::StatusCode::kInvalidArgument);
      continue;
    }
    if (!model.ok()) {
      EXPECT_EQ(model.status().code(), absl::StatusCode::kUnimplemented);
      EXPECT_THAT(std::string(model.status().message()),
                  HasSubstr("block_selection: no layer"));
      continue;
    }
    ++selecting;
    EXPECT_GT((*model)->info().kv_layers.size(), info.kv_layers.size());
    std::vector<int32_t> tokens;
    for (const int32_t token : tokens_) {
      tokens.push_back(token % static_cast<int32_t>(info.vocab_size));
    }
    tokens.resize(
        static_cast<size_t>(std::min<int64_t>(info.max_positions, 200)));
    const auto whole = Run(**model, tokens);
    EXPECT_TRUE(Run(**model, tokens, 23) == whole);
    const auto all = Run(**dense, tokens);
    ASSERT_EQ(all.size(), whole.size());
    for (size_t i = 0; i < std::min<size_t>(64, all.size()); ++i) {
      ASSERT_EQ(whole[i], all[i]) << i;
    }
    if (tokens.size() > 100) {
      EXPECT_NE(whole.back(), all.back());
    }
  }
  EXPECT_GE(selecting, 30);
  for (const char* name : {"mamba2", "deepseek_v3", "deepseek_v32", "bert",
                           "kimi_linear", "mistral"}) {
    EXPECT_EQ(
        Load(Directory(name), Selecting(BlockMethod::kLsh, 64)).status().code(),
        absl::StatusCode::kUnimplemented)
        << name;
  }
}

TEST_F(BlockSelectionModelTest, TheCacheHoldsSummariesBesides) {
  ModelLoadOptions options = Selecting(BlockMethod::kBounds, 64);
  options.kv_dtype = DType::kBF16;
  const auto model = Pocket(options);
  const KvLayout& layout = model->kv_layout();
  EXPECT_EQ(layout.num_groups(), 1u);
  ASSERT_EQ(layout.num_layers(), 16);
  // Two KV heads of 64, keys and values; an eighth of the keys' bytes.
  EXPECT_EQ(layout.bytes_per_token(), size_t{8} * 2 * (2 * 128 + 16));
  // One code of 128 bits a key and head.
  options.block_selection.method = BlockMethod::kLsh;
  EXPECT_EQ(Pocket(options)->kv_layout().bytes_per_token(),
            size_t{8} * 2 * (2 * 128 + 16));
}

TEST_F(BlockSelectionModelTest, OptionsThatMakeNoSense) {
  const std::string path = Directory("llama2");
  const auto refused = [&](const ModelLoadOptions& options, const char* why) {
    const absl::Status status = Load(path, options).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(why));
  };
  refused(Selecting(BlockMethod::kBounds, 48), "from 64 to 131072");
  refused(Selecting(BlockMethod::kBounds, 100), "multiple of 16");
  refused(Selecting(BlockMethod::kNone, 64), "without a method");
  ModelLoadOptions options = Selecting(BlockMethod::kKMeans, 64);
  options.kv_block_size = 8;
  refused(options, "kv_block_size is 8");
  options = Selecting(BlockMethod::kKMeans, 64);
  options.attention_pattern = *ParseAttentionPattern("window=64");
  refused(options, "one of the two");
}

}  // namespace
}  // namespace inlay
