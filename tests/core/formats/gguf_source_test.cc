// GGUF files as models: shards, tensors, keys and their errors.
#include "core/formats/gguf_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "core/formats/gguf_config.h"
#include "core/formats/gguf_model.h"
#include "tests/core/formats/format_test_util.h"
#include "tests/core/formats/gguf_bytes.h"

namespace inlay {
namespace {

using absl::StatusCode;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string F32Entry(std::string_view key, float value) {
  return Entry(key, GgufType::kF32, Raw(value));
}

// A llama of one layer: 2 heads of 4, hidden 8, 5 tokens without a tokenizer.
GgufParts Llama() {
  GgufParts parts;
  parts.entries = {StringEntry("general.architecture", "llama"),
                   U32Entry("llama.block_count", 1),
                   U32Entry("llama.embedding_length", 8),
                   U32Entry("llama.context_length", 64),
                   U32Entry("llama.feed_forward_length", 16),
                   U32Entry("llama.attention.head_count", 2),
                   U32Entry("llama.attention.head_count_kv", 1),
                   F32Entry("llama.attention.layer_norm_rms_epsilon", 1e-5f)};
  parts.infos = {Info("token_embd.weight", {8, 5}, 0, 0),
                 Info("blk.0.attn_q.weight", {8, 8}, 0, 160),
                 Info("blk.0.attn_q.bias", {8}, 0, 416),
                 Info("blk.0.attn_k.weight", {8, 4}, 0, 448)};
  parts.data_bytes = 576;
  return parts;
}

absl::StatusOr<ModelFiles> OpenParts(const TempFolder& folder,
                                     const GgufParts& parts,
                                     ModelFilesOptions options = {}) {
  return OpenModelFiles(folder.Write("m.gguf", GgufBytes(parts)), options);
}

void ExpectBad(const GgufParts& parts, const std::string& says,
               StatusCode code = StatusCode::kInvalidArgument) {
  TempFolder folder;
  const absl::Status status = OpenParts(folder, parts).status();
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(says));
  EXPECT_THAT(std::string(status.message()), HasSubstr("m.gguf"));
}

TEST(GgufSource, RowsOfHeadsGoBackToTheirPlaces) {
  for (const WeightAccess access : {WeightAccess::kMap, WeightAccess::kRead}) {
    TempFolder folder;
    const auto files = OpenParts(folder, Llama(), {.access = access});
    ASSERT_TRUE(files.ok()) << files.status();
    const WeightSource& weights = *files->weights;
    const WeightInfo* q =
        weights.Find("model.layers.0.self_attn.q_proj.weight");
    ASSERT_NE(q, nullptr);
    EXPECT_THAT(q->shape, ElementsAre(8, 8));
    EXPECT_EQ(weights.Mapped(*q), nullptr);
    std::string rows(q->bytes, '\0');
    ASSERT_TRUE(
        weights
            .Read(*q, 0,
                  absl::MakeSpan(reinterpret_cast<std::byte*>(rows.data()),
                                 rows.size()))
            .ok());
    // Published row r of a head of 4 lies at 0, 2, 1, 3.
    const int stored[] = {0, 2, 1, 3, 4, 6, 5, 7};
    for (int row = 0; row < 8; ++row) {
      for (int i = 0; i < 32; ++i) {
        ASSERT_EQ(rows[static_cast<size_t>(row * 32 + i)],
                  static_cast<char>(160 + stored[row] * 32 + i));
      }
    }
    const WeightInfo* embedding = weights.Find("model.embed_tokens.weight");
    ASSERT_NE(embedding, nullptr);
    EXPECT_EQ(weights.Mapped(*embedding) != nullptr,
              access == WeightAccess::kMap);
    std::byte bytes[8];
    EXPECT_EQ(weights.Read(*q, q->bytes - 4, bytes).code(),
              StatusCode::kOutOfRange);
    EXPECT_EQ(weights.Read({"none", DType::kF32, {}, 0}, 0, bytes).code(),
              StatusCode::kNotFound);
  }
}

TEST(GgufSource, ConfigFollowsTheKeys) {
  TempFolder folder;
  const auto files = OpenParts(folder, Llama());
  ASSERT_TRUE(files.ok()) << files.status();
  const Json& config = files->config;
  EXPECT_EQ(config["architectures"], Json::array({"LlamaForCausalLM"}));
  EXPECT_EQ(config["vocab_size"], 5);
  EXPECT_EQ(config["num_key_value_heads"], 1);
  EXPECT_EQ(config["head_dim"], 4);
  EXPECT_EQ(config["tie_word_embeddings"], true);
  EXPECT_EQ(config["rope_theta"], 10000.0);
  EXPECT_TRUE(files->tokenizer.is_null());
  GgufParts parts = Llama();
  parts.entries.push_back(U32Entry("llama.attention.sliding_window", 7));
  parts.entries.push_back(U32Entry("llama.rope.dimension_count", 2));
  parts.entries.push_back(StringEntry("llama.rope.scaling.type", "yarn"));
  parts.entries.push_back(F32Entry("llama.rope.scaling.factor", 4.0f));
  const auto windowed = OpenParts(folder, parts);
  ASSERT_TRUE(windowed.ok()) << windowed.status();
  EXPECT_EQ(windowed->config["architectures"],
            Json::array({"MistralForCausalLM"}));
  EXPECT_EQ(windowed->config["sliding_window"], 7);
  EXPECT_EQ(windowed->config["rope_scaling"]["rope_type"], "yarn");
  EXPECT_EQ(static_cast<int>(
                windowed->config["partial_rotary_factor"].get<double>() * 4),
            2);
}

TEST(GgufSource, WrongKeysAreNamed) {
  const size_t count = Llama().entries.size();
  for (size_t i = 0; i + 2 < count; ++i) {  // two have defaults
    GgufParts parts = Llama();
    parts.entries.erase(parts.entries.begin() + static_cast<ptrdiff_t>(i));
    ExpectBad(parts, "is missing");
  }
  const auto with = [](const std::string& key, const std::string& entry) {
    GgufParts parts = Llama();
    std::erase_if(parts.entries, [&](const std::string& own) {
      return own.find(key) != std::string::npos;
    });
    parts.entries.push_back(entry);
    return parts;
  };
  ExpectBad(with("architecture", StringEntry("general.architecture", "xyz")),
            "\"xyz\", allowed: llama, qwen2", StatusCode::kUnimplemented);
  ExpectBad(with("architecture", U32Entry("general.architecture", 1)),
            "allowed: string");
  const std::string heads = "llama.attention.head_count";
  ExpectBad(with("head_count", U32Entry(heads, 0)), "0, allowed: 1");
  ExpectBad(with("head_count", StringEntry(heads, "2")), "an integer");
  ExpectBad(with("head_count",
                 ArrayEntry(heads, GgufType::kU32, 2, Raw(2u) + Raw(2u))),
            "one for each of 1 layers");
  ExpectBad(with("block_count", U32Entry("llama.block_count", 1u << 30)),
            "allowed: 1 to 4096");
  ExpectBad(with("none", U32Entry("llama.expert_count", 8)),
            "expert_used_count");
  ExpectBad(with("none", F32Entry("llama.rope.freq_base",
                                  std::numeric_limits<float>::infinity())),
            "finite");
  // Of a fourth row of positions.
  ExpectBad(
      with("none", ArrayEntry("llama.rope.dimension_sections", GgufType::kU32,
                              4, Raw(1u) + Raw(1u) + Raw(0u) + Raw(2u))),
      "has 2 at 3", StatusCode::kUnimplemented);
  // GLM-4V's.
  GgufParts glm = Llama();
  for (std::string& entry : glm.entries) {
    for (size_t at; (at = entry.find("llama")) != entry.npos;) {
      entry.replace(at, 5, "glm4");
      entry[at - 8] = static_cast<char>(entry[at - 8] - 1);
    }
  }
  glm.entries.push_back(ArrayEntry("glm4.rope.dimension_sections",
                                   GgufType::kU32, 3,
                                   Raw(8u) + Raw(12u) + Raw(12u)));
  ExpectBad(glm, "GLM-4 without vision", StatusCode::kUnimplemented);
  ExpectBad(with("none", StringEntry("llama.rope.scaling.type", "odd")),
            "\"odd\"", StatusCode::kUnimplemented);
  ExpectBad(with("none", StringEntry("llama.rope.scaling.type", "\xff")),
            "UTF-8");
}

// Of GLM-5, one layer, without tensors of layers.
GgufParts Sparse() {
  const std::pair<const char*, uint32_t> numbers[] = {
      {"block_count", 1},
      {"embedding_length", 8},
      {"context_length", 64},
      {"feed_forward_length", 16},
      {"attention.head_count", 2},
      {"attention.head_count_kv", 1},
      {"attention.kv_lora_rank", 4},
      {"attention.q_lora_rank", 4},
      {"attention.key_length_mla", 4},
      {"attention.value_length_mla", 4},
      {"rope.dimension_count", 2},
      {"attention.indexer.head_count", 2},
      {"attention.indexer.key_length", 4},
      {"attention.indexer.top_k", 16}};
  GgufParts parts;
  parts.entries = {StringEntry("general.architecture", "glm-dsa")};
  for (const auto& [key, number] : numbers) {
    parts.entries.push_back(U32Entry(std::string("glm-dsa.") + key, number));
  }
  parts.infos = {Info("token_embd.weight", {8, 5}, 0, 0)};
  parts.data_bytes = 160;
  return parts;
}

TEST(GgufSource, WrongKeysOfIndexersAreNamed) {
  TempFolder folder;
  const auto files = OpenParts(folder, Sparse());
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_EQ(files->config["index_topk"], 16);
  for (const char* name : {"head_count", "key_length", "top_k"}) {
    const std::string key = std::string("attention.indexer.") + name;
    GgufParts parts = Sparse();
    std::erase_if(parts.entries, [&](const std::string& entry) {
      return entry.find(key) != std::string::npos;
    });
    ExpectBad(parts, key + "\" is missing");
    parts.entries.push_back(U32Entry("glm-dsa." + key, 0));
    ExpectBad(parts, "0, allowed: 1");
  }
  const std::string types = "glm-dsa.attention.indexer.types";
  GgufParts parts = Sparse();
  parts.entries.push_back(U32Entry(types, 1));
  ExpectBad(parts, "a bool for each of 1 layers");
  parts.entries.back() = ArrayEntry(types, GgufType::kBool, 0, "");
  ExpectBad(parts, "a bool for each of 1 layers");
}

// Mistral's large models are DeepSeek's but for that.
TEST(GgufSource, ScaledQueriesOfLatentAttentionAreRefused) {
  GgufParts parts = Sparse();
  const std::string key = "glm-dsa.attention.temperature_scale";
  parts.entries.push_back(F32Entry(key, 0.1f));
  ExpectBad(parts, key + " is 0.1, allowed: 0", StatusCode::kUnimplemented);
  TempFolder folder;
  parts.entries.back() = F32Entry(key, 0.0f);
  EXPECT_TRUE(OpenParts(folder, parts).ok());
}

// Of activations, which are not rounded.
TEST(GgufSource, InputScalesAreNoWeights) {
  GgufParts parts = Llama();
  parts.infos.push_back(Info("blk.0.attn_k.input_scale", {1}, 0, 576));
  parts.data_bytes = 608;
  TempFolder folder;
  const auto files = OpenParts(folder, parts);
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_EQ(files->weights->weights().size(), 4u);
}

TEST(GgufSource, WrongTensorsAreNamed) {
  GgufParts parts = Llama();
  parts.infos[3] = Info("blk.0.attn_odd.weight", {8, 4}, 0, 448);
  ExpectBad(parts, "blk.0.attn_odd.weight", StatusCode::kUnimplemented);
  parts = Llama();
  parts.infos[1] = Info("blk.0.attn_q.weight", {8, 7}, 0, 160);
  ExpectBad(parts, "7 rows");
  parts = Llama();
  parts.infos.erase(parts.infos.begin());
  ExpectBad(parts, "token_embd.weight");
  parts = Llama();
  parts.infos[3] = Info("rope_freqs.weight", {8, 4}, 0, 448);
  ExpectBad(parts, "a vector of f32");
}

// "m-0000I-of-00002.gguf": the second half of the tensors in the second file.
std::string Shard(int index, int no, int count, int tensors) {
  GgufParts parts = Llama();
  if (index == 1) parts.entries.clear();
  const auto u16 = [](int value) { return Raw(static_cast<uint16_t>(value)); };
  parts.entries.push_back(Entry("split.no", GgufType::kU16, u16(no)));
  parts.entries.push_back(Entry("split.count", GgufType::kU16, u16(count)));
  parts.entries.push_back(Entry("split.tensors.count", GgufType::kI32,
                                Raw(static_cast<int32_t>(tensors))));
  const auto middle = parts.infos.begin() + 2;
  if (index == 0) {
    parts.infos.erase(middle, parts.infos.end());
  } else {
    parts.infos.erase(parts.infos.begin(), middle);
  }
  return GgufBytes(parts);
}

TEST(GgufSource, Shards) {
  for (const WeightAccess access : {WeightAccess::kMap, WeightAccess::kRead}) {
    TempFolder folder;
    const std::string path =
        folder.Write("m-00001-of-00002.gguf", Shard(0, 0, 2, 4));
    EXPECT_EQ(OpenModelFiles(path, {}).status().code(), StatusCode::kNotFound);
    folder.Write("m-00002-of-00002.gguf", Shard(1, 1, 2, 4));
    const auto files = OpenModelFiles(path, {.access = access});
    ASSERT_TRUE(files.ok()) << files.status();
    EXPECT_EQ(files->weights->weights().size(), 4u);
    const auto code = [&](const std::string& name) {
      return OpenModelFiles(name, {.access = access}).status().code();
    };
    EXPECT_EQ(code(folder.path() + "/m-00002-of-00002.gguf"),
              StatusCode::kInvalidArgument)
        << "the first is to be opened";
    EXPECT_EQ(code(folder.Write("other.gguf", Shard(0, 0, 2, 4))),
              StatusCode::kInvalidArgument);
    for (const auto& [no, count] : {std::pair(0, 2), {1, 3}}) {
      folder.Write("m-00002-of-00002.gguf", Shard(1, no, count, 4));
      EXPECT_EQ(code(path), StatusCode::kInvalidArgument);
    }
    folder.Write("m-00002-of-00002.gguf", Shard(0, 1, 2, 4));
    EXPECT_EQ(code(path), StatusCode::kInvalidArgument) << "tensors twice";
    folder.Write("m-00002-of-00002.gguf", Shard(1, 1, 2, 4));
    folder.Write("m-00001-of-00002.gguf", Shard(0, 0, 2, 5));
    EXPECT_EQ(code(path), StatusCode::kInvalidArgument) << "a tensor missing";
  }
}

// A header longer than what is read first.
TEST(GgufSource, LongHeaders) {
  GgufParts parts = Llama();
  parts.entries.push_back(StringEntry("comment", std::string(5 << 20, 'x')));
  TempFolder folder;
  const auto files = OpenParts(folder, parts, {.access = WeightAccess::kRead});
  EXPECT_TRUE(files.ok()) << files.status();
}

// --- Tokenizers.

GgufParts WithTokens(const std::string& model, int tokens) {
  GgufParts parts = Llama();
  parts.entries.push_back(StringEntry("tokenizer.ggml.model", model));
  std::string list;
  for (int i = 0; i < tokens; ++i) {
    list += RawString(std::string(1, static_cast<char>('a' + i)));
  }
  parts.entries.push_back(ArrayEntry("tokenizer.ggml.tokens", GgufType::kString,
                                     static_cast<uint64_t>(tokens), list));
  return parts;
}

TEST(GgufTokens, ListsMustFit) {
  TempFolder folder;
  EXPECT_TRUE(OpenParts(folder, WithTokens("gpt2", 5)).ok());
  ExpectBad(WithTokens("gpt2", 6), "6 tokens");
  ExpectBad(WithTokens("odd", 5), "\"odd\", allowed: \"gpt2\"",
            StatusCode::kUnimplemented);
  ExpectBad(WithTokens("llama", 5), "scores");
  const auto with = [](const std::string& entry) {
    GgufParts parts = WithTokens("gpt2", 5);
    parts.entries.push_back(entry);
    return parts;
  };
  ExpectBad(
      with(ArrayEntry("tokenizer.ggml.token_type", GgufType::kI32, 1, Raw(1))),
      "1 values, allowed: 5");
  ExpectBad(with(ArrayEntry("tokenizer.ggml.token_type", GgufType::kI8, 5,
                            std::string(5, '\7'))),
            "the type 7 of token 0");
  ExpectBad(
      with(ArrayEntry("tokenizer.ggml.scores", GgufType::kF32, 1, Raw(1.0f))),
      "1 values, allowed: 5");
  for (const char* id : {"bos", "eos", "eot", "padding", "unknown"}) {
    const std::string key = std::string("tokenizer.ggml.") + id + "_token_id";
    ExpectBad(with(U32Entry(key, 5)), "5, allowed: 0 to 4");
    ExpectBad(with(U32Entry(key, 0xffffffffu)), "allowed: 0 to 4");
  }
  ExpectBad(with(StringEntry("tokenizer.ggml.pre", "odd")),
            "\"odd\", allowed: default, gpt-2", StatusCode::kUnimplemented);
  ExpectBad(with(Entry("tokenizer.ggml.add_bos_token", GgufType::kBool,
                       std::string(1, '\1'))),
            "without an id");
  GgufParts twice = WithTokens("gpt2", 1);
  twice.entries.back() = ArrayEntry("tokenizer.ggml.tokens", GgufType::kString,
                                    2, RawString("a") + RawString("a"));
  ExpectBad(twice, "tokens 0 and 1 are both \"a\"");
}

TEST(GgufTokens, LongPiecesAreRefusedInTime) {
  GgufParts parts = WithTokens("llama", 1);
  parts.entries.back() = ArrayEntry("tokenizer.ggml.tokens", GgufType::kString,
                                    1, RawString(std::string(1 << 20, 'a')));
  parts.entries.push_back(
      ArrayEntry("tokenizer.ggml.scores", GgufType::kF32, 1, Raw(0.0f)));
  ExpectBad(parts, "too long", StatusCode::kResourceExhausted);
}

// Each cut of each piece is a merge: a small file, many bytes.
TEST(GgufTokens, ManyMergesAreRefused) {
  constexpr uint64_t kPieces = 600;
  std::string pieces, scores;
  for (uint64_t i = 1; i <= kPieces; ++i) {
    pieces += RawString(std::string(i, 'a'));
    scores += Raw(0.0f);
  }
  GgufParts parts = WithTokens("llama", 1);
  parts.entries.back() =
      ArrayEntry("tokenizer.ggml.tokens", GgufType::kString, kPieces, pieces);
  parts.entries.push_back(
      ArrayEntry("tokenizer.ggml.scores", GgufType::kF32, kPieces, scores));
  ExpectBad(parts, "merges of", StatusCode::kResourceExhausted);
}

TEST(GgufTokens, TemplatesAndIds) {
  GgufParts parts = WithTokens("gpt2", 5);
  parts.entries.push_back(U32Entry("tokenizer.ggml.bos_token_id", 0));
  parts.entries.push_back(U32Entry("tokenizer.ggml.eos_token_id", 1));
  parts.entries.push_back(U32Entry("tokenizer.ggml.eot_token_id", 2));
  parts.entries.push_back(U32Entry("tokenizer.ggml.padding_token_id", 3));
  parts.entries.push_back(StringEntry("tokenizer.chat_template", "T"));
  parts.entries.push_back(StringEntry("tokenizer.chat_template.tool_use", "U"));
  parts.entries.push_back(StringEntry("tokenizer.chat_templates", "no"));
  for (const bool vocab_only : {false, true}) {
    TempFolder folder;
    const auto files = OpenParts(folder, parts, {.vocab_only = vocab_only});
    ASSERT_TRUE(files.ok()) << files.status();
    EXPECT_THAT(files->generation.eos_ids, ElementsAre(1, 2));
    EXPECT_EQ(files->generation.bos_id, 0);
    EXPECT_EQ(files->generation.pad_id, 3);
    EXPECT_EQ(files->chat.chat_template, "T");
    EXPECT_THAT(files->chat.named_templates,
                ElementsAre(::testing::Pair("tool_use", "U")));
    EXPECT_EQ(files->chat.bos_token, "a");
    EXPECT_EQ(files->chat.eos_token, "b");
    EXPECT_EQ(files->weights == nullptr, vocab_only);
    EXPECT_EQ(files->tokenizer["model"]["vocab"].size(), 5u);
  }
}

}  // namespace
}  // namespace inlay
