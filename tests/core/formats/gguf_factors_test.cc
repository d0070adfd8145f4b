// Factors beside the weights of GGUF files: values in blocks, in pieces of any
// size, and files that contradict themselves.
#include "core/formats/gguf_factors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "core/formats/model_files.h"
#include "tests/core/formats/format_test_util.h"
#include "tests/core/formats/gguf_bytes.h"
#include "tests/support/memory_weights.h"

namespace inlay {
namespace {

using absl::StatusCode;
using ::testing::HasSubstr;

constexpr uint32_t kF32 = 0;
constexpr uint32_t kQ8_0 = 8;
constexpr uint32_t kF16 = 1;
constexpr uint32_t kNvfp4 = 40;
constexpr char kKey[] = "model.layers.0.self_attn.k_proj.weight";

// A llama of one layer with 3 experts. What lies where in the data:
constexpr size_t kKeyAt = 1280;  // nvfp4 [4, 64]
constexpr size_t kKeyFactorAt = 1440;
constexpr size_t kUpAt = 1472;  // nvfp4 [3, 2, 64]
constexpr size_t kUpFactorsAt = 1696;

struct FactorParts {
  std::vector<std::string> entries = {
      StringEntry("general.architecture", "llama"),
      U32Entry("llama.block_count", 1),
      U32Entry("llama.embedding_length", 64),
      U32Entry("llama.context_length", 64),
      U32Entry("llama.feed_forward_length", 2),
      U32Entry("llama.attention.head_count", 16),
      U32Entry("llama.attention.head_count_kv", 1),
      U32Entry("llama.expert_count", 3),
      U32Entry("llama.expert_used_count", 2),
      Entry("llama.attention.layer_norm_rms_epsilon", GgufType::kF32,
            Raw(1e-5f))};
  std::string embedding = Info("token_embd.weight", {64, 5}, kF32, 0);
  std::string key = Info("blk.0.attn_k.weight", {64, 4}, kNvfp4, kKeyAt);
  std::string key_factor = Info("blk.0.attn_k.scale", {1}, kF32, kKeyFactorAt);
  std::string up = Info("blk.0.ffn_up_exps.weight", {64, 2, 3}, kNvfp4, kUpAt);
  std::string up_factors =
      Info("blk.0.ffn_up_exps.scale", {3}, kF32, kUpFactorsAt);
  std::string other;
  float factors[4] = {0.3f, 1.5f, -2.0f, 7e-5f};  // of key, of up

  std::string Bytes() const {
    GgufParts parts;
    parts.entries = entries;
    for (const std::string& info :
         {embedding, key, key_factor, up, up_factors, other}) {
      if (!info.empty()) parts.infos.push_back(info);
    }
    parts.data_bytes = 1760;
    std::string bytes = GgufBytes(parts);
    char* data = bytes.data() + bytes.size() - parts.data_bytes;
    std::memcpy(data + kKeyFactorAt, factors, 4);
    std::memcpy(data + kUpFactorsAt, factors + 1, 12);
    return bytes;
  }
};

absl::StatusOr<ModelFiles> OpenFactors(const TempFolder& folder,
                                       const FactorParts& parts,
                                       ModelFilesOptions options = {}) {
  return OpenModelFiles(folder.Write("m.gguf", parts.Bytes()), options);
}

void ExpectBadFactors(const FactorParts& parts, const std::string& says,
                      StatusCode code = StatusCode::kInvalidArgument) {
  TempFolder folder;
  const absl::Status status = OpenFactors(folder, parts).status();
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(says));
  EXPECT_THAT(std::string(status.message()), HasSubstr("m.gguf"));
}

std::string BytesIn(const WeightSource& source, const WeightInfo& info,
                    size_t piece) {
  std::string bytes(info.bytes, '\0');
  for (size_t at = 0; at < bytes.size(); at += piece) {
    const size_t count = std::min(piece, bytes.size() - at);
    const absl::Status status = source.Read(
        info, at,
        absl::MakeSpan(reinterpret_cast<std::byte*>(bytes.data() + at), count));
    EXPECT_TRUE(status.ok()) << status;
  }
  return bytes;
}

// The factor, then the 36 bytes that lie at `at` of the data.
std::string Block(float factor, size_t at) {
  std::string block = Raw(factor);
  for (size_t i = 0; i < 36; ++i) block.push_back(static_cast<char>(at + i));
  return block;
}

TEST(GgufFactors, GoIntoTheBlocks) {
  for (const WeightAccess access : {WeightAccess::kMap, WeightAccess::kRead}) {
    TempFolder folder;
    const FactorParts parts;
    const auto files = OpenFactors(folder, parts, {.access = access});
    ASSERT_TRUE(files.ok()) << files.status();
    const WeightSource& weights = *files->weights;
    EXPECT_EQ(weights.weights().size(), 5u);  // three experts apart
    std::string wanted[4];
    // Rows of the head's halves take turns.
    for (const size_t row : {0, 2, 1, 3}) {
      wanted[0] += Block(parts.factors[0], kKeyAt + row * 36);
    }
    std::string names[4] = {kKey};
    for (size_t e = 0; e < 3; ++e) {
      names[e + 1] = "model.layers.0.block_sparse_moe.experts." +
                     std::to_string(e) + ".w3.weight";
      for (size_t row = 0; row < 2; ++row) {
        wanted[e + 1] +=
            Block(parts.factors[e + 1], kUpAt + (2 * e + row) * 36);
      }
    }
    for (size_t i = 0; i < 4; ++i) {
      SCOPED_TRACE(names[i]);
      const WeightInfo* info = weights.Find(names[i]);
      ASSERT_NE(info, nullptr);
      EXPECT_EQ(info->dtype, DType::kNVFP4_F32);
      ASSERT_EQ(info->bytes, wanted[i].size());
      EXPECT_EQ(weights.Mapped(*info), nullptr);
      for (const size_t piece : {1, 3, 4, 39, 40, 41, 1000}) {
        EXPECT_EQ(BytesIn(weights, *info, piece), wanted[i]) << piece;
      }
      std::byte bytes[8];
      EXPECT_EQ(weights.Read(*info, info->bytes - 4, bytes).code(),
                StatusCode::kOutOfRange);
    }
    const WeightInfo* embedding = weights.Find("model.embed_tokens.weight");
    ASSERT_NE(embedding, nullptr);
    EXPECT_EQ(weights.Mapped(*embedding) != nullptr,
              access == WeightAccess::kMap);
  }
}

TEST(GgufFactors, WithoutOneBlocksStayAsTheyAre) {
  TempFolder folder;
  FactorParts parts;
  parts.up_factors = parts.key_factor = "";
  const auto files = OpenFactors(folder, parts);
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_EQ(files->weights->Find(kKey)->dtype, DType::kNVFP4);
  EXPECT_EQ(files->weights->Find(kKey)->bytes, 4 * 36u);
}

TEST(GgufFactors, AreOneWhereTheRestHasThem) {
  TempFolder folder;
  FactorParts parts;
  parts.up_factors = "";
  const auto files = OpenFactors(folder, parts);
  ASSERT_TRUE(files.ok()) << files.status();
  for (size_t e = 0; e < 3; ++e) {
    const WeightInfo* info =
        files->weights->Find("model.layers.0.block_sparse_moe.experts." +
                             std::to_string(e) + ".w3.weight");
    ASSERT_NE(info, nullptr);
    EXPECT_EQ(info->dtype, DType::kNVFP4_F32);
    EXPECT_EQ(BytesIn(*files->weights, *info, 80),
              Block(1.0f, kUpAt + 2 * e * 36) +
                  Block(1.0f, kUpAt + (2 * e + 1) * 36));
  }
}

TEST(GgufFactors, WrongOnesAreNamed) {
  FactorParts parts;
  parts.key = "";
  ExpectBadFactors(
      parts,
      "\"blk.0.attn_k.scale\": a factor of \"blk.0.attn_k.weight\", "
      "which is not there");
  parts = FactorParts();
  parts.other = Info(".scale", {1}, kF32, 1728);
  ExpectBadFactors(parts, "\".scale\": a factor of \".weight\"");
  parts = FactorParts();
  parts.key_factor = Info("blk.0.attn_k.scale", {2}, kF32, kKeyFactorAt);
  ExpectBadFactors(parts, "2 factors, allowed: 1, one for each matrix");
  parts.key_factor = Info("blk.0.attn_k.scale", {1, 1}, kF32, kKeyFactorAt);
  ExpectBadFactors(parts, "2 dimensions of f32, allowed: a vector of f32");
  parts.key_factor = Info("blk.0.attn_k.scale", {1}, kF16, kKeyFactorAt);
  ExpectBadFactors(parts, "1 dimensions of f16, allowed: a vector of f32");
  for (const uint64_t count : {1, 2, 4}) {
    parts = FactorParts();
    parts.up_factors =
        Info("blk.0.ffn_up_exps.scale", {count}, kF32, kUpFactorsAt);
    ExpectBadFactors(parts, "allowed: 3, one for each matrix of");
  }
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float bad : {infinity, -infinity, std::nanf("")}) {
    parts = FactorParts();
    parts.factors[3] = bad;
    ExpectBadFactors(parts, "\"blk.0.ffn_up_exps.scale\": factor 2 is");
    parts = FactorParts();
    parts.factors[0] = bad;
    ExpectBadFactors(parts, "\"blk.0.attn_k.scale\": factor 0 is");
  }
  // No other format has them.
  parts = FactorParts();
  parts.key = Info("blk.0.attn_k.weight", {64, 2}, kQ8_0, kKeyAt);
  ExpectBadFactors(parts,
                   "is stored as q8_0 with a factor beside it, allowed: nvfp4",
                   StatusCode::kUnimplemented);
  parts = FactorParts();
  parts.other = Info("token_embd.scale", {1}, kF32, 1728);
  ExpectBadFactors(parts, "is stored as f32 with a factor beside it",
                   StatusCode::kUnimplemented);
  parts = FactorParts();
  parts.up = Info("blk.0.odd.weight", {64, 2, 3}, kNvfp4, kUpAt);
  parts.up_factors = Info("blk.0.odd.scale", {3}, kF32, kUpFactorsAt);
  ExpectBadFactors(parts, "is none of the architecture \"llama\"",
                   StatusCode::kUnimplemented);
}

TEST(FactorSource, RefusesWhatDoesNotFit) {
  auto stored = std::make_shared<MemoryWeights>(true);
  const std::vector<std::byte> bytes(36 * 6);
  stored->Add("w", DType::kNVFP4, {3, 2, 64}, bytes.data());
  stored->Add("v", DType::kF32, {8}, bytes.data());
  const auto status = [&](std::vector<WeightFactors> factors) {
    return PresentFactors(stored, factors).status();
  };
  EXPECT_TRUE(status({}).ok());
  EXPECT_EQ(PresentFactors(stored, {})->get(), stored.get());
  EXPECT_TRUE(status({{"w", {1, 2, 3}}}).ok());
  EXPECT_EQ(status({{"none", {1}}}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status({{"w", {}}}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status({{"w", {1, 2, 3, 4}}}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status({{"w", {1}}, {"w", {1}}}).code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(status({{"v", {1}}}).code(), StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace inlay
