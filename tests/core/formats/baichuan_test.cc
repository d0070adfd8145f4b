// Which of Baichuan's networks config.json and GGUF files are of, and heads
// whose rows are normalised.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "core/formats/baichuan_config.h"
#include "core/formats/gguf_arch.h"
#include "core/formats/gguf_config.h"
#include "core/formats/gguf_files.h"
#include "core/formats/gguf_writer.h"
#include "core/formats/head_source.h"
#include "core/formats/norm_head_source.h"
#include "tests/support/memory_weights.h"

namespace inlay {
namespace {

using ::testing::HasSubstr;

TEST(BaichuanTest, PositionsOfPublishedModels) {
  const struct {
    const char* name;
    int64_t width;
    bool alibi;
  } models[] = {{"BaiChuanForCausalLM", 4096, false},
                {"BaichuanForCausalLM", 4096, false},
                {"BaichuanForCausalLM", 5120, true},
                {"BaiChuanForCausalLM", 64, false}};
  for (const auto& [name, width, alibi] : models) {
    Json config = {{"architectures", {name}}, {"hidden_size", width}};
    EXPECT_EQ(*BaichuanHasAlibi(config), alibi) << name << width;
    config["position_embedding"] = alibi ? "rope" : "alibi";
    EXPECT_EQ(*BaichuanHasAlibi(config), !alibi) << name << width;
  }
  const absl::Status status =
      BaichuanHasAlibi({{"position_embedding", "learned"}}).status();
  EXPECT_TRUE(absl::IsUnimplemented(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("position_embedding"));
}

TEST(BaichuanTest, HeadsOfPublishedModels) {
  EXPECT_TRUE(*BaichuanHasNormHead({{"vocab_size", 125696}}));
  EXPECT_FALSE(*BaichuanHasNormHead({{"vocab_size", 64000}}));
  EXPECT_FALSE(*BaichuanHasNormHead(Json::object()));
  EXPECT_FALSE(
      *BaichuanHasNormHead({{"vocab_size", 125696}, {"norm_head", false}}));
  EXPECT_TRUE(*BaichuanHasNormHead({{"vocab_size", 9}, {"norm_head", true}}));
}

constexpr int64_t kHeadColumns = 3;

std::shared_ptr<const WeightSource> Heads(DType dtype,
                                          const std::vector<float>& values) {
  auto weights = std::make_shared<MemoryWeights>(true);
  const auto rows = static_cast<int64_t>(values.size()) / kHeadColumns;
  std::vector<uint16_t> bits;
  for (const float value : values) {
    bits.push_back(dtype == DType::kF16 ? F32ToF16(value) : F32ToBF16(value));
  }
  for (const char* name : {"lm_head.weight", "model.embed_tokens.weight"}) {
    weights->Add(name, dtype, {rows, kHeadColumns},
                 dtype == DType::kF32 ? static_cast<const void*>(values.data())
                                      : bits.data());
  }
  return weights;
}

float At(DType dtype, const std::vector<std::byte>& bytes, size_t i) {
  if (dtype == DType::kF32) {
    float value;
    std::memcpy(&value, bytes.data() + 4 * i, 4);
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, bytes.data() + 2 * i, 2);
  return dtype == DType::kF16 ? F16ToF32(bits) : BF16ToF32(bits);
}

TEST(NormHeadSourceTest, RowsHaveLengthOne) {
  const Json config = {{"model_type", "baichuan"}, {"norm_head", true}};
  const std::vector<float> rows = {3, 0, 4, -2, 2, 1, 0, 0, 0, 0.5f, 0, 0};
  const std::vector<float> wanted = {
      0.6f, 0, 0.8f, -2.0f / 3, 2.0f / 3, 1.0f / 3, 0, 0, 0, 1, 0, 0};
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    SCOPED_TRACE(DTypeName(dtype));
    const auto stored = Heads(dtype, rows);
    const auto source = PresentNormHead(config, stored);
    ASSERT_TRUE(source.ok()) << source.status();
    const WeightInfo* head = (*source)->Find("lm_head.weight");
    const WeightInfo* other = (*source)->Find("model.embed_tokens.weight");
    ASSERT_TRUE(head != nullptr && other != nullptr);
    EXPECT_EQ((*source)->Mapped(*head), nullptr);
    EXPECT_NE((*source)->Mapped(*other), nullptr);
    for (const size_t piece : {size_t{1}, size_t{5}, size_t{7}, head->bytes}) {
      std::vector<std::byte> bytes(head->bytes);
      for (size_t at = 0; at < bytes.size(); at += piece) {
        ASSERT_TRUE(
            (*source)
                ->Read(*head, at, absl::MakeSpan(bytes).subspan(at, piece))
                .ok());
      }
      const float unit = dtype == DType::kF32   ? 0x1p-23f
                         : dtype == DType::kF16 ? 0x1p-11f
                                                : 0x1p-8f;
      for (size_t i = 0; i < wanted.size(); ++i) {
        EXPECT_NEAR(At(dtype, bytes, i), wanted[i], unit * std::fabs(wanted[i]))
            << i;
      }
    }
    std::vector<std::byte> same(other->bytes);
    ASSERT_TRUE((*source)->Read(*other, 0, absl::MakeSpan(same)).ok());
    EXPECT_EQ(At(dtype, same, 2), 4.0f);
  }
}

// Ling 1's: columns of lengths 5, 2 and 0.
TEST(NormHeadSourceTest, ColumnsHaveLengthOne) {
  const Json config = {{"model_type", "bailing_moe"}, {"norm_head", true}};
  const std::vector<float> rows = {3, -2, 0, 4, 0, 0};
  const std::vector<float> wanted = {0.6f, -1, 0, 0.8f, 0, 0};
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    SCOPED_TRACE(DTypeName(dtype));
    const auto source = PresentNormHead(config, Heads(dtype, rows));
    ASSERT_TRUE(source.ok()) << source.status();
    const WeightInfo* head = (*source)->Find("lm_head.weight");
    ASSERT_NE(head, nullptr);
    for (const size_t piece : {size_t{5}, head->bytes}) {
      std::vector<std::byte> bytes(head->bytes);
      for (size_t at = 0; at < bytes.size(); at += piece) {
        ASSERT_TRUE(
            (*source)
                ->Read(*head, at, absl::MakeSpan(bytes).subspan(at, piece))
                .ok());
      }
      // And 1e-7 that is added to each length.
      const float unit = dtype == DType::kF32 ? 0x1p-22f : 0x1p-8f;
      for (size_t i = 0; i < wanted.size(); ++i) {
        EXPECT_NEAR(At(dtype, bytes, i), wanted[i], unit) << i;
      }
    }
  }
  auto empty = std::make_shared<MemoryWeights>(true);
  empty->Add("lm_head.weight", DType::kF32, {0, int64_t{1} << 60}, nullptr);
  EXPECT_EQ(PresentNormHead(config, empty).status().code(),
            absl::StatusCode::kUnimplemented);
}

TEST(NormHeadSourceTest, OthersPassThrough) {
  const auto stored = Heads(DType::kF32, {3, 0, 4});
  for (const Json& config :
       {Json{{"model_type", "baichuan"}, {"vocab_size", 64000}},
        Json{{"model_type", "bailing_moe"}, {"norm_head", false}},
        Json{{"model_type", "llama"}, {"norm_head", true}}, Json::object()}) {
    EXPECT_EQ(*PresentNormHead(config, stored), stored) << config;
  }
  auto codes = std::make_shared<MemoryWeights>(true);
  const std::vector<std::byte> bytes(34);
  codes->Add("lm_head.weight", DType::kQ8_0, {1, 32}, bytes.data());
  const absl::Status status =
      PresentNormHead({{"model_type", "baichuan"}, {"norm_head", true}}, codes)
          .status();
  EXPECT_TRUE(absl::IsUnimplemented(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("lm_head.weight"));
}

// Thirds, one after another; of JinaBERT's for code the gate comes last.
TEST(HeadSourceTest, BaichuansAndJinasParts) {
  const std::vector<float> numbers = {0, 1, 2, 3, 4, 5};
  auto weights = std::make_shared<MemoryWeights>(true);
  weights->Add("a.W_pack.weight", DType::kF32, {6, 1}, numbers.data());
  weights->Add("b.mlp.up_gated_layer.weight", DType::kF32, {6, 1},
               numbers.data());
  const auto first = [](const WeightSource& source, const char* name) {
    const WeightInfo* info = source.Find(name);
    EXPECT_NE(info, nullptr) << name;
    float value = -1.0f;
    if (info == nullptr) return value;
    EXPECT_TRUE(
        source
            .Read(*info, 0,
                  absl::MakeSpan(reinterpret_cast<std::byte*>(&value), 4))
            .ok());
    return value;
  };
  const auto packed = PresentHeads({{"model_type", "baichuan"}}, weights);
  ASSERT_TRUE(packed.ok()) << packed.status();
  EXPECT_EQ(first(**packed, "a.q_proj.weight"), 0.0f);
  EXPECT_EQ(first(**packed, "a.k_proj.weight"), 2.0f);
  EXPECT_EQ(first(**packed, "a.v_proj.weight"), 4.0f);
  EXPECT_NE((*packed)->Find("b.mlp.up_gated_layer.weight"), nullptr);
  const auto gated = PresentHeads({{"model_type", "bert"}}, weights);
  ASSERT_TRUE(gated.ok()) << gated.status();
  EXPECT_EQ(first(**gated, "b.mlp.up_layer.weight"), 0.0f);
  EXPECT_EQ(first(**gated, "b.mlp.gate_layer.weight"), 3.0f);
}

// As llama.cpp's converter writes them: no key says which positions they have.
class BaichuanGguf : public ::testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }

  absl::StatusOr<Json> Read(uint32_t layers, const float* bias = nullptr) {
    auto writer = GgufWriter::Create(path_);
    if (!writer.ok()) return writer.status();
    absl::Status status = writer->SetString("general.architecture", "baichuan");
    status.Update(writer->SetU32("baichuan.block_count", layers));
    for (const char* key : {"embedding_length", "context_length",
                            "feed_forward_length", "attention.head_count"}) {
      status.Update(writer->SetU32(std::string("baichuan.") + key, 2));
    }
    if (bias != nullptr) {
      status.Update(writer->SetF32("baichuan.attention.max_alibi_bias", *bias));
    }
    const std::vector<std::byte> bytes(16);
    status.Update(writer->AddTensor("token_embd.weight", DType::kF32, {2, 2}));
    status.Update(writer->StartData());
    status.Update(writer->Append(bytes));
    status.Update(writer->Commit());
    if (!status.ok()) return status;
    const auto files = OpenGgufFiles(path_, {});
    if (!files.ok()) return files.status();
    auto config = ReadGgufConfig(*files, **FindGgufArch("baichuan"));
    if (!config.ok()) return config.status();
    return config->json;
  }

  const std::string path_ =
      ::testing::TempDir() + "baichuan_" + std::to_string(getpid()) + ".gguf";
};

TEST_F(BaichuanGguf, PositionsByTheNumberOfLayers) {
  for (const uint32_t layers : {32u, 40u}) {
    const auto config = Read(layers);
    ASSERT_TRUE(config.ok()) << config.status();
    EXPECT_EQ((*config)["position_embedding"], layers == 32 ? "rope" : "alibi");
    EXPECT_EQ((*config)["norm_head"], false);
  }
  const absl::Status status = Read(24).status();
  EXPECT_TRUE(absl::IsUnimplemented(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("baichuan.block_count"));
}

TEST_F(BaichuanGguf, PositionsByTheirKey) {
  for (const float bias : {0.0f, 8.0f}) {
    const auto config = Read(40, &bias);
    ASSERT_TRUE(config.ok()) << config.status();
    EXPECT_EQ((*config)["position_embedding"], bias == 0 ? "rope" : "alibi");
  }
  const float other = 4.0f;
  const absl::Status status = Read(40, &other).status();
  EXPECT_TRUE(absl::IsUnimplemented(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("max_alibi_bias"));
}

}  // namespace
}  // namespace inlay
