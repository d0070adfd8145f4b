// Experts in blocks that are lent to a model matrix by matrix: the same network
// as with all of them in float32, in less memory.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "core/quantize/overlay_weights.h"
#include "core/quantize/quantize.h"
#include "kernels/quant/quant.h"
#include "tests/core/quantize/expert_files.h"

namespace inlay {
namespace {

class LentExperts : public ExpertsTest {
 protected:
  using Matrices = std::map<std::string, OverlayWeights::Matrix>;
  // The experts in q4_0: as blocks, or what these stand for.
  Matrices Encoded(const ModelFiles& files, bool decodes) {
    Matrices matrices;
    const BlockCodec& codec = *FindBlockCodec(DType::kQ4_0);
    for (const WeightInfo& info : files.weights->weights()) {
      if (info.name.find(".experts.") == info.name.npos) continue;
      const std::vector<float> values = Values(files, info.name);
      const auto count = static_cast<int64_t>(values.size() / 32);
      OverlayWeights::Matrix& matrix = matrices[info.name];
      matrix.shape = info.shape;
      matrix.format = DType::kQ4_0;
      matrix.blocks.resize(RowBytes(DType::kQ4_0, values.size()));
      codec.encode(values.data(), count, matrix.blocks.data());
      if (!decodes) continue;
      matrix.values.resize(values.size());
      codec.decode(matrix.blocks.data(), count, matrix.values.data());
      matrix.blocks.clear();
    }
    return matrices;
  }
  Rows RunOver(ModelFiles files, std::shared_ptr<OverlayWeights> overlay,
               ExpertLender* lender, int64_t chunk) {
    files.weights = std::move(overlay);
    ModelLoadOptions options;
    options.fused = false;
    options.expert_lender = lender;
    const auto model = LoadModel(files, *device_, options);
    EXPECT_TRUE(model.ok()) << model.status();
    Rows all;
    if (!model.ok()) return all;
    ModelHarness harness(**model, *device_, 512);
    for (const auto& tokens : Sequences(2, 90, 256)) {
      const auto logits = harness.Run(harness.AddSequence(128), tokens, chunk);
      EXPECT_TRUE(logits.ok()) << logits.status();
      if (logits.ok()) all.insert(all.end(), logits->begin(), logits->end());
    }
    return all;
  }
};

// Prompts and single tokens go through different loops over experts.
TEST_F(LentExperts, GiveTheBitsOfThoseInMemory) {
  for (const char* model : {"qwen3_moe", "deepseek_v3"}) {
    SCOPED_TRACE(model);
    const ModelFiles files = Open(Golden(model));
    for (const int64_t chunk : {90, 7, 1}) {
      const Rows wanted = RunOver(files,
                                  std::make_shared<OverlayWeights>(
                                      files.weights, Encoded(files, true), 0),
                                  nullptr, chunk);
      // None kept; a few; all.
      for (const uint64_t bytes : {0, 100000, 1 << 30}) {
        const auto overlay = std::make_shared<OverlayWeights>(
            files.weights, Encoded(files, false), bytes);
        EXPECT_EQ(RunOver(files, overlay, overlay.get(), chunk), wanted)
            << bytes;
      }
    }
  }
}

TEST_F(LentExperts, KeepWhatHasRoom) {
  const ModelFiles files = Open(Golden("qwen3_moe"));
  const std::string first = "model.layers.0.mlp.experts.";
  const auto name = [&](int expert) {
    return first + std::to_string(expert) + ".gate_proj.weight";
  };
  const uint64_t one = 32 * 64 * sizeof(float);
  // Three have room: two that are kept and the one that changes.
  OverlayWeights overlay(files.weights, Encoded(files, false), 3 * one);
  std::vector<const std::byte*> lent;
  for (int expert = 0; expert < 5; ++expert) {
    const WeightInfo& info = *overlay.Find(name(expert));
    EXPECT_EQ(info.dtype, DType::kF32);
    EXPECT_EQ(info.bytes, one);
    EXPECT_TRUE(overlay.Lends(info));
    EXPECT_EQ(overlay.Mapped(info), nullptr);
    std::vector<std::byte> bytes(info.bytes);
    EXPECT_TRUE(
        absl::IsInvalidArgument(overlay.Read(info, 0, absl::MakeSpan(bytes))));
    const auto matrix = overlay.Lend(info, *stream_);
    ASSERT_TRUE(matrix.ok());
    lent.push_back(*matrix);
  }
  EXPECT_NE(lent[0], lent[1]);
  EXPECT_NE(lent[1], lent[2]);
  EXPECT_EQ(lent[2], lent[3]);
  EXPECT_EQ(lent[2], lent[4]);
  EXPECT_EQ(*overlay.Lend(*overlay.Find(name(0)), *stream_), lent[0]);
  const WeightInfo& other = *overlay.Find("model.layers.0.mlp.gate.weight");
  EXPECT_FALSE(overlay.Lends(other));
  EXPECT_NE(overlay.Mapped(other), nullptr);
}

// GPTQ's layers read what those before them give as they are written.
TEST_F(LentExperts, FilesAreTheSameWhateverHasRoom) {
  const std::string out = folder_ + "/model";
  for (const char* type : {"q4_k_m", "q4_0", "u4_g32"}) {
    SCOPED_TRACE(type);
    const bool is_folder = std::string(type) == "u4_g32";
    std::string wanted;
    for (const uint64_t bytes : {kDefaultExpertBytes, uint64_t{1},
                                 uint64_t{40 * 64 * 32 * sizeof(float)}}) {
      QuantizeOptions options = Options(type, QuantizeMethod::kGptq);
      options.expert_bytes = bytes;
      const auto report = QuantizePath(Golden("qwen3_moe"), options, out);
      ASSERT_TRUE(report.ok()) << report.status();
      const std::string got =
          FileBytes(is_folder ? out + "/model.safetensors" : out);
      EXPECT_GT(got.size(), 1000u);
      if (wanted.empty()) wanted = got;
      EXPECT_TRUE(got == wanted) << bytes;
      std::filesystem::remove_all(out);
    }
  }
}

}  // namespace
}  // namespace inlay
