#include "core/engine/fingerprint.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tests/support/engine_harness.h"
#include "tests/support/memory_weights.h"

namespace inlay {
namespace {

// Two tensors, one sampled, one small enough to be read whole.
struct Tensors {
  std::string large_name = "large";
  std::vector<int64_t> large_shape = {100, 1000};
  std::vector<uint16_t> large = std::vector<uint16_t>(100'000, 3);
  std::vector<uint16_t> small = std::vector<uint16_t>(4096, 5);
  DType dtype = DType::kBF16;
  bool mapped = true;
};

ModelFiles FilesOf(const Tensors& tensors, Json config) {
  auto weights = std::make_shared<MemoryWeights>(tensors.mapped);
  weights->Add(tensors.large_name, tensors.dtype, tensors.large_shape,
               tensors.large.data());
  weights->Add("small", DType::kBF16, {4096}, tensors.small.data());
  ModelFiles files;
  files.config = std::move(config);
  files.weights = std::move(weights);
  return files;
}

std::string Print(const ModelFiles& files) {
  const auto print = FingerprintModel(files);
  EXPECT_TRUE(print.ok()) << print.status();
  return std::to_string(print->high) + " " + std::to_string(print->low);
}

const Json kConfig = {{"architectures", {"X"}}, {"rope_theta", 10000.0}};

TEST(FingerprintTest, EverythingThatDecidesKvChangesIt) {
  const Tensors base;
  std::set<std::string> prints = {Print(FilesOf(base, kConfig))};
  size_t want = 1;
  const auto expect_new = [&](const ModelFiles& files, const char* what) {
    prints.insert(Print(files));
    EXPECT_EQ(prints.size(), ++want) << what;
  };
  Json config = kConfig;
  config["rope_theta"] = 500000.0;
  expect_new(FilesOf(base, config), "config");
  Tensors changed = base;
  changed.large_name = "larger";
  expect_new(FilesOf(changed, kConfig), "name");
  changed = base;
  changed.large_shape = {1000, 100};
  expect_new(FilesOf(changed, kConfig), "shape");
  changed = base;
  changed.large_shape = {100'000};
  expect_new(FilesOf(changed, kConfig), "rank");
  changed = base;
  changed.dtype = DType::kF16;
  expect_new(FilesOf(changed, kConfig), "dtype");
  for (const size_t at :
       {size_t{0}, size_t{2047}, size_t{100'000 - 2048}, size_t{99'999}}) {
    changed = base;
    changed.large[at] ^= 1;
    expect_new(FilesOf(changed, kConfig), "an edge of a large tensor");
  }
  for (size_t at = 0; at < 4096; at += 455) {
    changed = base;
    changed.small[at] ^= 1;
    expect_new(FilesOf(changed, kConfig), "a small tensor");
  }
  // Every run of a 64th of the tensor is looked into.
  for (size_t run = 3; run < 64; run += 20) {
    changed = base;
    for (size_t i = 0; i < 100'000 / 64; ++i) {
      changed.large[run * 100'000 / 64 + i] ^= 1;
    }
    expect_new(FilesOf(changed, kConfig), "the middle of a large tensor");
  }
}

TEST(FingerprintTest, WhatDoesNotMatterDoesNot) {
  Tensors tensors;
  const std::string want = Print(FilesOf(tensors, kConfig));
  EXPECT_EQ(Print(FilesOf(tensors, kConfig)), want);
  tensors.mapped = false;
  EXPECT_EQ(Print(FilesOf(tensors, kConfig)), want);
  Json config = kConfig;
  config["_name_or_path"] = "/home/someone";
  config["transformers_version"] = "4.0";
  EXPECT_EQ(Print(FilesOf(tensors, config)), want);
}

TEST(FingerprintTest, RandomModels) {
  ModelFiles files;
  files.config = kConfig;
  std::set<std::string> prints;
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    for (const uint64_t seed : {0, 1}) {
      files.random = RandomWeights{dtype, seed};
      prints.insert(Print(files));
      EXPECT_EQ(prints.count(Print(files)), 1u);
    }
  }
  EXPECT_EQ(prints.size(), 4u);
}

TEST(FingerprintTest, ModelsOnDisk) {
  std::set<std::string> prints;
  const std::vector<std::string> names = {"llama2", "llama3", "llama_bf16",
                                          "qwen2", "qwen3"};
  for (const std::string& name : names) {
    std::set<std::string> same;
    for (const WeightAccess access :
         {WeightAccess::kMap, WeightAccess::kRead}) {
      const auto files =
          OpenModelFiles(::inlay::testing::GoldenModel(name), {access, false});
      ASSERT_TRUE(files.ok()) << files.status();
      same.insert(Print(*files));
    }
    const auto at = FingerprintModelAt(::inlay::testing::GoldenModel(name));
    ASSERT_TRUE(at.ok()) << at.status();
    same.insert(std::to_string(at->high) + " " + std::to_string(at->low));
    EXPECT_EQ(same.size(), 1u);
    prints.insert(*same.begin());
  }
  EXPECT_EQ(prints.size(), names.size());
  EXPECT_TRUE(absl::IsNotFound(FingerprintModelAt("/no/model").status()));
}

TEST(FingerprintTest, KvLayouts) {
  const std::vector<KvLayout> layouts = {
      KvLayout({{2, 8}, {1, 16}}, DType::kF16, 16),
      KvLayout({{1, 16}, {2, 8}}, DType::kF16, 16),
      KvLayout({{2, 8}, {2, 8}}, DType::kF16, 16),
      KvLayout({{2, 8}, {1, 16}}, DType::kBF16, 16),
      KvLayout({{2, 8}, {1, 16}}, DType::kF16, 32),
      KvLayout({{2, 8}}, DType::kF16, 16),
  };
  std::set<uint64_t> hashes;
  std::set<uint64_t> prints;
  for (const KvLayout& layout : layouts) {
    hashes.insert(HashKvLayout(layout));
    prints.insert(FingerprintKv({1, 2}, layout).high);
    prints.insert(FingerprintKv({1, 3}, layout).high);
  }
  EXPECT_EQ(hashes.size(), layouts.size());
  EXPECT_EQ(prints.size(), 2 * layouts.size());
}

std::string TokenizerJson(const std::string& vocab, bool special) {
  return R"({"model":{"type":"WordLevel","unk_token":"a","vocab":)" + vocab +
         R"(},"added_tokens":[{"id":2,"content":"<s>","special":)" +
         (special ? "true" : "false") + "}]}";
}

TEST(FingerprintTest, Vocabularies) {
  EXPECT_EQ(FingerprintVocabulary(nullptr), 0u);
  std::set<uint64_t> prints;
  const std::vector<std::string> documents = {
      TokenizerJson(R"({"a":0,"b":1})", true),
      TokenizerJson(R"({"b":0,"a":1})", true),
      TokenizerJson(R"({"a":0,"c":1})", true),
      TokenizerJson(R"({"a":0,"b":1})", false),
      TokenizerJson(R"({"a":0,"b":1,"c":3})", true),
  };
  for (const std::string& document : documents) {
    const auto tokenizer = MakeTokenizerFromJson(document);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    const uint64_t print = FingerprintVocabulary(tokenizer->get());
    EXPECT_NE(print, 0u);
    prints.insert(print);
    const auto again = MakeTokenizerFromJson(document + "\n");
    EXPECT_EQ(FingerprintVocabulary(again->get()), print);
  }
  EXPECT_EQ(prints.size(), documents.size());
}

}  // namespace
}  // namespace inlay
