// A decode step reads the matrices of its token's experts and no others': with
// the others' pages out of reach it gives the same logits.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/core/model/golden_models.h"

namespace inlay {
namespace {

// A copy of another source, each tensor on pages of its own.
class PagedWeights : public WeightSource {
 public:
  explicit PagedWeights(const WeightSource& source)
      : infos_(source.weights().begin(), source.weights().end()) {
    for (const WeightInfo& info : infos_) {
      Pages& pages = pages_[info.name];
      const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
      pages.bytes = (info.bytes + page - 1) / page * page;
      void* const map = mmap(nullptr, pages.bytes, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (map == MAP_FAILED) std::abort();
      pages.data = static_cast<std::byte*>(map);
      EXPECT_TRUE(
          source.Read(info, 0, absl::MakeSpan(pages.data, info.bytes)).ok());
    }
  }
  ~PagedWeights() override {
    for (const auto& [name, pages] : pages_) munmap(pages.data, pages.bytes);
  }

  // Before the model is loaded.
  std::byte* data(const std::string& name) { return pages_.at(name).data; }
  // Whoever reads it is killed.
  void Forbid(const std::string& name) {
    const Pages& pages = pages_.at(name);
    ASSERT_EQ(mprotect(pages.data, pages.bytes, PROT_NONE), 0);
  }

  absl::Span<const WeightInfo> weights() const override { return infos_; }
  const std::byte* Mapped(const WeightInfo& info) const override {
    return pages_.at(info.name).data;
  }
  absl::Status Read(const WeightInfo& info, uint64_t offset,
                    absl::Span<std::byte> destination) const override {
    std::memcpy(destination.data(), pages_.at(info.name).data + offset,
                destination.size());
    return absl::OkStatus();
  }
  uint64_t LeavePages(FileRange) const override { return 0; }

 private:
  struct Pages {
    std::byte* data = nullptr;
    size_t bytes = 0;
  };
  std::vector<WeightInfo> infos_;
  std::map<std::string, Pages> pages_;
};

// Of "model.layers.0.mlp.experts.3.up_proj.weight" 3; -1: no expert's.
int ExpertOf(const std::string& name) {
  constexpr char kExperts[] = ".experts.";
  const size_t at = name.find(kExperts);
  return at == std::string::npos
             ? -1
             : std::atoi(name.c_str() + at + sizeof(kExperts) - 1);
}

class ActiveExperts : public ::testing::Test {
 protected:
  // Of models whose every token goes to the same `active` experts.
  void Check(const ModelFiles& files, const std::string& embedding,
             PagedWeights& weights, const std::vector<int>& active) {
    // As files have them; rows that pack them keep none of the pages.
    ModelLoadOptions options;
    options.forced_kernels["gemm"] = "cpu_simd";
    options.forced_kernels["expert_linear"] = "cpu_simd";
    // Threads do not follow into the processes that may be killed.
    const auto device = Cpu(1);
    const auto model = LoadModel(files, *device, options);
    ASSERT_TRUE(model.ok()) << model.status();
    const std::vector<int32_t> prompt = {5, 9, 2, 70, 31};
    const auto decode = [&] {
      ModelHarness harness(**model, *device, 8);
      const int sequence = harness.AddSequence(8);
      auto logits = harness.Run(sequence, prompt, 1);
      EXPECT_TRUE(logits.ok()) << logits.status();
      return logits.ok() ? *std::move(logits) : ModelHarness::Logits();
    };
    const auto want = decode();
    ASSERT_EQ(want.size(), prompt.size());
    uint64_t idle = 0;
    std::string one;  // that is read
    for (const WeightInfo& info : weights.weights()) {
      const int expert = ExpertOf(info.name);
      if (expert < 0) continue;
      if (std::find(active.begin(), active.end(), expert) != active.end()) {
        one = info.name;
        continue;
      }
      weights.Forbid(info.name);
      idle += info.bytes;
    }
    EXPECT_GT(idle, 0u);
    GTEST_FLAG_SET(death_test_style, "fast");
    EXPECT_EXIT(std::_Exit(decode() == want ? 0 : 1),
                ::testing::ExitedWithCode(0), "");
    // And that is what is accounted.
    const ModelInfo& info = (*model)->info();
    EXPECT_EQ(info.weight_bytes_per_token,
              info.weight_bytes - idle - weights.Find(embedding)->bytes);
    // Pages out of reach are noticed.
    weights.Forbid(one);
    EXPECT_DEATH(decode(), "");
  }
};

// Where all scores are equal, the experts of lower numbers are the better.
TEST_F(ActiveExperts, BySoftmax) {
  ModelFiles files = Open("qwen3_moe", "config.json");
  const auto weights = std::make_shared<PagedWeights>(*files.weights);
  for (const WeightInfo& info : weights->weights()) {
    if (info.name.ends_with(".mlp.gate.weight")) {
      std::memset(weights->data(info.name), 0, info.bytes);
    }
  }
  files.weights = weights;
  std::vector<int> active(files.config["num_experts_per_tok"].get<size_t>());
  for (size_t i = 0; i < active.size(); ++i) active[i] = static_cast<int>(i);
  Check(files, "model.embed_tokens.weight", *weights, active);
}

// By what is added to the scores for the choice.
TEST_F(ActiveExperts, ByCorrection) {
  ModelFiles files = Open("minimax_m2", "config.json");
  const auto weights = std::make_shared<PagedWeights>(*files.weights);
  std::vector<int> active = {1, 3};
  ASSERT_EQ(files.config["num_experts_per_tok"], 2);
  for (const WeightInfo& info : weights->weights()) {
    if (!info.name.ends_with(".e_score_correction_bias")) continue;
    ASSERT_EQ(info.dtype, DType::kF32);
    for (const int expert : active) {
      reinterpret_cast<float*>(weights->data(info.name))[expert] = 100;
    }
  }
  files.weights = weights;
  Check(files, "model.embed_tokens.weight", *weights, active);
}

}  // namespace
}  // namespace inlay
