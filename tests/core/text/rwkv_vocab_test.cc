// RWKV's list of tokens as tokenizer.json: what its lines mean, what it gives
// of texts, and what is refused.
#include "core/text/rwkv_vocab.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "core/text/tokenizer.h"

namespace inlay {
namespace {

using ::testing::HasSubstr;
using Ids = std::vector<int32_t>;

struct ListedToken {
  std::string literal;
  std::string bytes;
};

// As in the published list: what is no UTF-8 alone as bytes, the rest as
// strings, in the quotes that repr() takes.
const std::vector<ListedToken>& LongTokens() {
  static const auto* const tokens =
      new std::vector<ListedToken>{{R"('\n\n')", "\n\n"},
                                   {R"('\r\n')", "\r\n"},
                                   {R"(' \t')", " \t"},
                                   {R"("it's")", "it's"},
                                   {R"('say "')", "say \""},
                                   {R"('"\'s')", "\"'s"},
                                   {R"('\\n')", "\\n"},
                                   {"'the'", "the"},
                                   {"' the'", " the"},
                                   {"'there'", "there"},
                                   {"'  '", "  "},
                                   {R"(b'\xe4\xb8')", "\xE4\xB8"},
                                   {"'\xE4\xB8\xAD'", "\xE4\xB8\xAD"},
                                   {R"(b'\xad\xe6')", "\xAD\xE6"},
                                   {R"('\x85')", "\xC2\x85"},
                                   {R"('\u3000')", "\xE3\x80\x80"},
                                   {R"('\U000e0001')", "\xF3\xA0\x80\x81"},
                                   {R"(b"'\xff")", "'\xFF"},
                                   {"'<|rwkv'", "<|rwkv"}};
  return *tokens;
}

// Ids from 1: single bytes, then those.
std::string RwkvFile(const std::string& end_of_line = "\n") {
  std::string list;
  int id = 0;
  const auto add = [&](const std::string& literal, size_t size) {
    list += std::to_string(++id) + " " + literal + " " + std::to_string(size) +
            end_of_line;
  };
  for (int byte = 0; byte < 256; ++byte) {
    char literal[16];
    const bool plain = byte >= 0x20 && byte < 0x7F && byte != '\\';
    std::snprintf(literal, sizeof(literal),
                  byte >= 0x80   ? R"(b'\x%02x')"
                  : byte == '\'' ? R"("%c")"
                  : byte == '\\' ? R"('\%c')"
                  : plain        ? "'%c'"
                                 : R"('\x%02x')",
                  byte);
    add(literal, 1);
  }
  for (const ListedToken& token : LongTokens()) {
    add(token.literal, token.bytes.size());
  }
  return list;
}

std::vector<std::string> TokensById() {
  std::vector<std::string> bytes = {""};
  for (int byte = 0; byte < 256; ++byte) {
    bytes.emplace_back(1, static_cast<char>(byte));
  }
  for (const ListedToken& token : LongTokens()) bytes.push_back(token.bytes);
  return bytes;
}

// The longest token at each place.
Ids LongestTokens(std::string text) {
  const std::vector<std::string> bytes = TokensById();
  Ids ids;
  while (!text.empty()) {
    size_t best = 0;
    for (size_t id = 1; id < bytes.size(); ++id) {
      if (text.starts_with(bytes[id]) &&
          bytes[id].size() > bytes[best].size()) {
        best = id;
      }
    }
    ids.push_back(static_cast<int32_t>(best));
    text.erase(0, bytes[best].size());
  }
  return ids;
}

class RwkvFolder : public ::testing::Test {
 protected:
  RwkvFolder()
      : folder_(::testing::TempDir() + "rwkv_vocab_" +
                std::to_string(getpid())) {
    std::filesystem::create_directories(folder_);
  }
  ~RwkvFolder() override { std::filesystem::remove_all(folder_); }

  void Write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ + "/" + name, std::ios::binary) << text;
  }
  absl::StatusOr<std::unique_ptr<Tokenizer>> With(const std::string& list) {
    Write(std::string(kRwkvVocabFile), list);
    return LoadTokenizer(folder_);
  }

  const std::string folder_;
};

Ids IdsOf(const Tokenizer& tokenizer, const std::string& text) {
  Ids ids;
  EXPECT_TRUE(tokenizer.Encode(text, {}, &ids).ok()) << text;
  return ids;
}

TEST_F(RwkvFolder, LongestTokensOfBytes) {
  for (const char* end_of_line : {"\n", "\r\n"}) {
    const auto tokenizer = With(RwkvFile(end_of_line));
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    EXPECT_EQ((*tokenizer)->vocab_size(), 257 + 19);
    for (const std::string text :
         {"", "there", " there it's", "say \"'s\\n\\", "\n\n\n \t\r\n    x",
          "\xE4\xB8\xAD\xE6\x96\x87\xE4\xB8\x80\xE4\xB9\x80",
          "\xC2\x85\xE3\x80\x80\xF3\xA0\x80\x81\xF3\xA0\x80\x82",
          "<|rwkv_tokenizer_end_of_tex"}) {
      const Ids ids = IdsOf(**tokenizer, text);
      EXPECT_EQ(ids, LongestTokens(text)) << text;
      EXPECT_EQ((*tokenizer)->Decode(ids, {}), text);
    }
    const std::vector<std::string> bytes = TokensById();
    for (size_t id = 1; id < bytes.size(); ++id) {
      EXPECT_EQ((*tokenizer)->TokenBytes(static_cast<int32_t>(id)), bytes[id]);
    }
  }
}

// Token 0, and what other files of the folder add.
TEST_F(RwkvFolder, SpecialTokens) {
  const std::string end = "<|rwkv_tokenizer_end_of_text|>";
  auto tokenizer = With(RwkvFile());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_TRUE((*tokenizer)->IsSpecial(0));
  EXPECT_EQ(IdsOf(**tokenizer, end + "the"), (Ids{0, 264}));
  Write("added_tokens.json", R"({"<|rwkv_tokenizer_end_of_text|>": 0})");
  Write("tokenizer_config.json", R"({"tokenizer_class": "RwkvTokenizer",
      "bos_token": "<|rwkv_tokenizer_end_of_text|>"})");
  tokenizer = LoadTokenizer(folder_);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_TRUE((*tokenizer)->IsSpecial(0));
  EXPECT_EQ(IdsOf(**tokenizer, "the" + end), (Ids{264, 0}));
  Write("tokenizer_config.json", R"({"added_tokens_decoder": {
      "276": {"content": "<user>", "special": true}}})");
  tokenizer = LoadTokenizer(folder_);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ(IdsOf(**tokenizer, "the<user>" + end), (Ids{264, 276, 0}));
}

// tokenizer.json says more.
TEST_F(RwkvFolder, IsReadLast) {
  Write("tokenizer.json", "{}");
  const auto tokenizer = With(RwkvFile());
  EXPECT_EQ(tokenizer.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(tokenizer.status().message()),
              HasSubstr("tokenizer.json"));
}

TEST_F(RwkvFolder, RefusedLines) {
  for (const char* line : {"276",
                           "276 'new'",
                           "'new' 3",
                           "276  3",
                           "x 'new' 3",
                           "0 'new' 3",
                           "-1 'new' 3",
                           "262144 'new' 3",
                           "99999999999 'new' 3",
                           "276 'new' 4",
                           "276 'new' x",
                           "276 new 3",
                           "276 'new\" 3",
                           "276 'new 3",
                           "276 '' 0",
                           "276 b'' 0",
                           "276 ' 1",
                           "276 r'new' 3",
                           "276 'n'w' 3",
                           R"(276 'ne\' 3)",
                           R"(276 'ne\q' 3)",
                           R"(276 'ne\x4' 3)",
                           R"(276 'ne\xg1' 3)",
                           R"(276 'ne\x+1' 3)",
                           R"(276 '\ud800' 3)",
                           R"(276 '\U00110000' 4)",
                           R"(276 '\u30' 3)",
                           R"(276 b'\u3000' 3)",
                           "276 b'\xC3\xA9' 2",
                           R"(276 '\N{BULLET}' 3)",
                           "276 'the' 3",
                           "1 'new' 3",
                           "276 b'the' 3"}) {
    const auto tokenizer = With(RwkvFile() + line);
    EXPECT_EQ(tokenizer.status().code(), absl::StatusCode::kInvalidArgument)
        << line;
    EXPECT_THAT(std::string(tokenizer.status().message()),
                HasSubstr("rwkv_vocab_v20230424.txt: line 276"))
        << line;
  }
  // The same line as it should be.
  EXPECT_TRUE(With(RwkvFile() + "276 'new' 3").ok());
}

TEST_F(RwkvFolder, RefusedLists) {
  const std::string whole = RwkvFile();
  const std::string line = "98 'a' 1\n";
  const size_t at = whole.find(line);
  ASSERT_NE(at, whole.npos);
  std::string lacking = whole;
  auto tokenizer = With(lacking.erase(at, line.size()));
  EXPECT_EQ(tokenizer.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(tokenizer.status().message()), HasSubstr("byte 97"));
  EXPECT_EQ(With("").status().code(), absl::StatusCode::kInvalidArgument);
  const std::string empty_lines(kMaxRwkvVocabBytes + 1, '\n');
  tokenizer = With(empty_lines);
  EXPECT_EQ(tokenizer.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(RwkvVocabDocument(empty_lines).status().code(),
            absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace inlay
