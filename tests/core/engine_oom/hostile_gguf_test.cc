// GGUF files made to cost much: each is read, or refused with a typed error, in
// little time and with memory that the file's size bounds. In this program
// because it counts what is allocated.
#include <gtest/gtest.h>
#include <time.h>

#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/formats/gguf_model.h"
#include "tests/core/engine_oom/failing_new.h"
#include "tests/core/formats/format_test_util.h"
#include "tests/core/formats/gguf_bytes.h"
#include "tests/support/sanitized.h"

namespace inlay {
namespace {

using absl::StatusCode;

// The readers use one thread; a clock of the wall would count other programs.
double CpuSeconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) +
         1e-9 * static_cast<double>(now.tv_nsec);
}

// A llama of one layer, hidden 8.
GgufParts SmallLlama(uint64_t vocab) {
  GgufParts parts;
  parts.entries = {StringEntry("general.architecture", "llama"),
                   U32Entry("llama.block_count", 1),
                   U32Entry("llama.embedding_length", 8),
                   U32Entry("llama.context_length", 64),
                   U32Entry("llama.feed_forward_length", 16),
                   U32Entry("llama.attention.head_count", 2),
                   Entry("llama.attention.layer_norm_rms_epsilon",
                         GgufType::kF32, Raw(1e-5f))};
  parts.infos = {Info("token_embd.weight", {8, vocab}, 0, 0)};
  parts.data_bytes = vocab * 32;
  return parts;
}

GgufParts WithPieces(const char* model, const std::vector<std::string>& pieces,
                     bool scores) {
  GgufParts parts = SmallLlama(pieces.size());
  std::string list, zeros;
  for (const std::string& piece : pieces) {
    list += RawString(piece);
    zeros += Raw(0.0f);
  }
  parts.entries.push_back(StringEntry("tokenizer.ggml.model", model));
  parts.entries.push_back(ArrayEntry("tokenizer.ggml.tokens", GgufType::kString,
                                     pieces.size(), list));
  if (scores) {
    parts.entries.push_back(ArrayEntry("tokenizer.ggml.scores", GgufType::kF32,
                                       pieces.size(), zeros));
  }
  return parts;
}

// Of all lengths up to `most`, from an alphabet of two.
std::vector<std::string> AllWords(int most) {
  std::vector<std::string> words;
  for (int length = 1; length <= most; ++length) {
    for (uint32_t bits = 0; bits < 1u << length; ++bits) {
      std::string word;
      for (int i = 0; i < length; ++i) word += bits >> i & 1 ? 'a' : 'b';
      words.push_back(std::move(word));
    }
  }
  return words;
}

std::vector<std::string> Numbered(const std::string& prefix, int count) {
  std::vector<std::string> words;
  for (int i = 0; i < count; ++i) words.push_back(prefix + std::to_string(i));
  return words;
}

// Experts of one element each, in `layers` layers.
GgufParts TinyExperts(int layers) {
  constexpr uint64_t kExperts = 4096;
  GgufParts parts = SmallLlama(5);
  parts.entries[1] =
      U32Entry("llama.block_count", static_cast<uint32_t>(layers));
  parts.entries.push_back(U32Entry("llama.expert_count", kExperts));
  parts.entries.push_back(U32Entry("llama.expert_used_count", 1));
  for (int layer = 0; layer < layers; ++layer) {
    for (const char* name : {"gate", "up", "down"}) {
      parts.infos.push_back(
          Info("blk." + std::to_string(layer) + ".ffn_" + name + "_exps.weight",
               {1, 1, kExperts}, 0, parts.data_bytes));
      parts.data_bytes += kExperts * sizeof(float);
    }
  }
  return parts;
}

// For each there are some hundred bytes of objects to four or eight of the
// file's; what is wrong must not cost more than what is right.
constexpr int64_t kBytesAByte = 128;
constexpr int64_t kBytes = int64_t{16} << 20;
// Less than a second; on a busy machine the slowest took half of it.
constexpr double kSeconds = 0.9;
constexpr double kSecondsSanitized = 20;

struct HostileFile {
  const char* what;
  StatusCode code;
  std::function<GgufParts()> make;
};

TEST(HostileGguf, LittleTimeAndMemory) {
  const std::vector<HostileFile> files = {
      {"many keys", StatusCode::kOk,
       [] {
         GgufParts parts = SmallLlama(5);
         for (const std::string& key : Numbered("k", 100'000)) {
           parts.entries.push_back(U32Entry(key, 1));
         }
         return parts;
       }},
      {"a key many times", StatusCode::kInvalidArgument,
       [] {
         GgufParts parts = SmallLlama(5);
         for (int i = 0; i < 100'000; ++i) {
           parts.entries.push_back(U32Entry("key", 1));
         }
         return parts;
       }},
      {"many tensors", StatusCode::kUnimplemented,
       [] {
         GgufParts parts = SmallLlama(5);
         for (const std::string& name : Numbered("t", 50'000)) {
           parts.infos.push_back(Info(name, {1}, 0, parts.data_bytes));
           parts.data_bytes += 32;
         }
         return parts;
       }},
      {"a tensor many times", StatusCode::kInvalidArgument,
       [] {
         GgufParts parts = SmallLlama(5);
         for (int i = 0; i < 50'000; ++i) {
           parts.infos.push_back(Info("t", {1}, 0, 0));
         }
         return parts;
       }},
      {"many empty strings", StatusCode::kInvalidArgument,
       [] {
         return WithPieces("gpt2", std::vector<std::string>(200'000), false);
       }},
      {"many tokens", StatusCode::kOk,
       [] { return WithPieces("gpt2", Numbered("t", 100'000), false); }},
      {"many tokens of SentencePiece", StatusCode::kOk,
       [] { return WithPieces("llama", Numbered("t", 100'000), true); }},
      {"many tokens of Unigram", StatusCode::kOk,
       [] { return WithPieces("t5", Numbered("t", 100'000), true); }},
      {"many tokens of WordPiece", StatusCode::kOk,
       [] { return WithPieces("bert", Numbered("t", 100'000), false); }},
      {"many merges in the file", StatusCode::kOk,
       [] {
         GgufParts parts = WithPieces("gpt2", {"a", "b"}, false);
         std::string list;
         for (int i = 0; i < 200'000; ++i) list += RawString("a b");
         parts.entries.push_back(ArrayEntry("tokenizer.ggml.merges",
                                            GgufType::kString, 200'000, list));
         return parts;
       }},
      {"a long piece", StatusCode::kResourceExhausted,
       [] { return WithPieces("llama", {std::string(1 << 20, 'a')}, true); }},
      {"the longest pieces", StatusCode::kOk,
       [] {
         std::vector<std::string> pieces;
         for (int i = 0; i < 8; ++i) {
           pieces.push_back(std::string(8191, 'a') + std::to_string(i));
         }
         return WithPieces("llama", pieces, true);
       }},
      {"each cut of each piece", StatusCode::kResourceExhausted,
       [] {
         std::vector<std::string> pieces;
         for (size_t i = 1; i <= 600; ++i) pieces.emplace_back(i, 'a');
         return WithPieces("llama", pieces, true);
       }},
      {"all words", StatusCode::kResourceExhausted,
       [] {
         std::vector<std::string> words = AllWords(17);
         words.resize(words.size() / 16 * 9);
         return WithPieces("llama", words, true);
       }},
      {"user-defined spaces", StatusCode::kResourceExhausted,
       [] {
         GgufParts parts =
             WithPieces("llama", {std::string(1 << 20, ' ')}, true);
         parts.entries.push_back(ArrayEntry("tokenizer.ggml.token_type",
                                            GgufType::kI32, 1, Raw(4)));
         return parts;
       }},
      {"a long template", StatusCode::kOk,
       [] {
         GgufParts parts = WithPieces("gpt2", {"a"}, false);
         parts.entries.push_back(
             StringEntry("tokenizer.chat_template", std::string(4 << 20, '{')));
         return parts;
       }},
      {"deep JSON", StatusCode::kResourceExhausted,
       [] {
         GgufParts parts = WithPieces("gpt2", {"a"}, false);
         parts.entries.push_back(StringEntry("tokenizer.huggingface.json",
                                             std::string(4 << 20, '[')));
         return parts;
       }},
      {"wide JSON", StatusCode::kOk,
       [] {
         GgufParts parts = WithPieces("gpt2", {"a"}, false);
         std::string list = "[[]";
         for (int i = 0; i < 500'000; ++i) list += ",[]";
         parts.entries.push_back(
             StringEntry("tokenizer.huggingface.json", list + "]"));
         return parts;
       }},
      {"a map of characters", StatusCode::kOk,
       [] {
         GgufParts parts = WithPieces("t5", {"a"}, true);
         parts.entries.push_back(
             ArrayEntry("tokenizer.ggml.precompiled_charsmap", GgufType::kU8,
                        4 << 20, std::string(4 << 20, '\xff')));
         return parts;
       }},
      {"many experts", StatusCode::kOk, [] { return TinyExperts(4); }},
      {"too many experts", StatusCode::kResourceExhausted,
       [] { return TinyExperts(60); }},
  };
  for (const HostileFile& file : files) {
    SCOPED_TRACE(file.what);
    const TempFolder folder;
    const std::string bytes = GgufBytes(file.make());
    const std::string path = folder.Write("m.gguf", bytes);
    FailingNew::StartPeak();
    const double start = CpuSeconds();
    const auto model = OpenGgufModel(path, {.access = WeightAccess::kMap});
    const double seconds = CpuSeconds() - start;
    const int64_t peak = FailingNew::peak_bytes();
    EXPECT_EQ(model.status().code(), file.code) << model.status();
    EXPECT_LT(seconds,
              ::inlay::testing::kSanitized ? kSecondsSanitized : kSeconds);
    EXPECT_LT(peak, kBytes + kBytesAByte * static_cast<int64_t>(bytes.size()));
    std::printf("%-30s %8zu KB: %6.1f ms, %8zu KB, %5.1f of the file\n",
                file.what, bytes.size() >> 10, 1e3 * seconds,
                static_cast<size_t>(peak) >> 10,
                static_cast<double>(peak) / static_cast<double>(bytes.size()));
  }
}

}  // namespace
}  // namespace inlay
