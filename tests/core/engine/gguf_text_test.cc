// Text through GGUF: the ids of Hugging Face's tokenizers and of SentencePiece,
// and the model that ships, written as GGUF, against its folder.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "core/formats/gguf_pre_tokenizer.h"
#include "core/formats/gguf_tokenizer.h"
#include "core/text/pre_tokenizer.h"
#include "core/text/tokenizer.h"
#include "tests/support/engine_harness.h"
#include "tests/support/gguf_from_published.h"
#include "tests/support/paths/paths.h"

namespace inlay {
namespace {

using ::inlay::testing::EngineHarness;
using ::inlay::testing::Outcome;
using Ids = std::vector<int32_t>;

Json ReadJson(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  auto json = ParseJson(text.str(), path);
  EXPECT_TRUE(json.ok()) << json.status();
  return json.ok() ? *json : Json();
}

std::string Folder(const std::string& name) {
  return TestData() + "/tokenizers/" + name;
}

// The lists as the converter writes them; owns what a GgufVocab points into.
struct TokenLists {
  std::vector<std::string> tokens;
  std::vector<std::string> merges;
  std::vector<int32_t> types;
};

TokenLists ListsOf(const Json& file) {
  TokenLists lists;
  const Json& model = file["model"];
  size_t size = 0;
  for (const Json& id : model["vocab"]) {
    size = std::max(size, id.get<size_t>() + 1);
  }
  for (const Json& added : file["added_tokens"]) {
    size = std::max(size, added["id"].get<size_t>() + 1);
  }
  lists.tokens.resize(size);
  lists.types.assign(size, 1);
  for (const auto& [token, id] : model["vocab"].items()) {
    lists.tokens[id.get<size_t>()] = token;
  }
  for (const Json& added : file["added_tokens"]) {
    const auto id = added["id"].get<size_t>();
    lists.tokens[id] = added["content"];
    lists.types[id] = added["special"].get<bool>() ? 3 : 4;
  }
  for (const Json& merge : model["merges"]) {
    lists.merges.push_back(merge.is_string()
                               ? merge.get<std::string>()
                               : merge[0].get<std::string>() + " " +
                                     merge[1].get<std::string>());
  }
  return lists;
}

GgufVocab VocabOf(const TokenLists& lists, const std::string& pre) {
  GgufVocab vocab;
  vocab.model = "gpt2";
  vocab.pre = pre;
  vocab.tokens.assign(lists.tokens.begin(), lists.tokens.end());
  vocab.merges.assign(lists.merges.begin(), lists.merges.end());
  for (const int32_t type : lists.types) {
    vocab.types.push_back(static_cast<GgufTokenType>(type));
  }
  return vocab;
}

// The template of pairs, its items with spaces between them.
std::string PairOf(const Json& tokenizer) {
  std::string text;
  for (const Json& item : tokenizer["post_processor"]["pair"]) {
    for (const Json& inner : item) {
      if (!text.empty()) text += ' ';
      text += inner["id"].get<std::string>();
    }
  }
  return text;
}

// `unlike`: texts with it differ, "" for none.
void CheckCases(const GgufVocab& vocab, const std::string& name,
                bool parse_special, const std::string& unlike) {
  const auto json = GgufTokenizerJson(vocab);
  ASSERT_TRUE(json.ok()) << json.status();
  const auto tokenizer = MakeTokenizerFromDocument(*json);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const Json file = ReadJson(Folder(name) + "/cases.json");
  int checked = 0;
  for (const Json& item : file["cases"]) {
    const auto text = item["text"].get<std::string>();
    if (!unlike.empty() && text.find(unlike) != text.npos) continue;
    for (const bool add_special : {false, true}) {
      Ids ids;
      ASSERT_TRUE((*tokenizer)
                      ->Encode(text,
                               {.add_special = add_special,
                                .parse_special = parse_special},
                               &ids)
                      .ok());
      const char* key = add_special ? "ids_special" : "ids";
      EXPECT_EQ(ids, item[key].get<Ids>()) << item["text"] << " " << key;
    }
    ++checked;
  }
  EXPECT_GE(checked, 200);
}

TEST(GgufText, ByteLevelBpeGivesHuggingFacesIds) {
  const struct {
    const char* name;
    const char* pre;
    const char* bos;
    const char* unlike;
  } tokenizers[] = {
      // tokenizers gives added tokens the ids behind its vocabulary, which has
      // holes here, not those of the file.
      {"bbpe_llama3", "llama-bpe", "<|begin_of_text|>", "<|eot_id|>"},
      // Takes the space before it along, which GGUF cannot say.
      {"bbpe_gpt2", "gpt-2", "", "<mask>"},
      {"bbpe_qwen2", "qwen2", "", ""},
      {"bbpe_o200k", "gpt-4o", "", ""},
  };
  for (const auto& [name, pre, bos, unlike] : tokenizers) {
    SCOPED_TRACE(name);
    const TokenLists lists =
        ListsOf(ReadJson(Folder(name) + "/tokenizer.json"));
    GgufVocab vocab = VocabOf(lists, pre);
    for (size_t id = 0; id < lists.tokens.size(); ++id) {
      if (lists.tokens[id] == bos) vocab.bos_id = static_cast<int32_t>(id);
    }
    CheckCases(vocab, name, true, unlike);
  }
}

TEST(GgufText, DeepSeeksBpeGivesHuggingFacesIds) {
  const TokenLists lists =
      ListsOf(ReadJson(Folder("bbpe_deepseek_v3") + "/tokenizer.json"));
  GgufVocab vocab = VocabOf(lists, "deepseek-v3");
  vocab.bos_id = 1995;
  vocab.add_bos = true;
  CheckCases(vocab, "bbpe_deepseek_v3", true, "");
}

// Gemma 4's files have SentencePiece's spaces and bytes, and merges.
TEST(GgufText, GemmasBpeGivesHuggingFacesIds) {
  const Json file = ReadJson(Folder("spbpe_gemma") + "/tokenizer.json");
  TokenLists lists = ListsOf(file);
  for (size_t id = 0; id < lists.tokens.size(); ++id) {
    if (lists.tokens[id] == "<unk>") lists.types[id] = 2;
    if (lists.tokens[id].starts_with("<0x")) lists.types[id] = 6;
  }
  GgufVocab vocab = VocabOf(lists, "");
  vocab.model = "gemma4";
  vocab.add_space_prefix = false;
  vocab.add_bos = true;
  for (size_t id = 0; id < lists.tokens.size(); ++id) {
    if (lists.tokens[id] == "<s>") vocab.bos_id = static_cast<int32_t>(id);
  }
  CheckCases(vocab, "spbpe_gemma", true, "");
}

// Sarvam's files say so of tokenizers of the same kind, whose bytes they give
// no type.
TEST(GgufText, SarvamsBpeGivesHuggingFacesIds) {
  const TokenLists lists =
      ListsOf(ReadJson(Folder("spbpe_gemma") + "/tokenizer.json"));
  GgufVocab vocab = VocabOf(lists, "sarvam-moe");
  vocab.add_bos = true;
  for (size_t id = 0; id < lists.tokens.size(); ++id) {
    if (lists.tokens[id] == "<s>") vocab.bos_id = static_cast<int32_t>(id);
    if (lists.tokens[id] == "<unk>") vocab.unk_id = static_cast<int32_t>(id);
  }
  CheckCases(vocab, "spbpe_gemma", true, "");
  // As BPE has it where the file does not say.
  vocab.add_bos = std::nullopt;
  const auto json = GgufTokenizerJson(vocab);
  ASSERT_TRUE(json.ok()) << json.status();
  EXPECT_TRUE((*json)["post_processor"].is_null());
}

// Where the patterns of names cut.
TEST(GgufText, NamesCutAsTheirModels) {
  const struct {
    const char* name;
    std::vector<std::string> pieces;
  } rows[] = {
      {"roberta-bpe", {"It", "'", "S", " a", " 12", "!?", " ", " x"}},
      {"jina-v1-en", {"It", "'", "S", " a", " 12", "!?", " ", " x"}},
      {"jina-v2-code", {"It", "'", "S", " a", " 12", "!?", " ", " x"}},
      {"modern-bert", {"It", "'", "S", " a", " 12", "!?", " ", " x"}},
      {"hunyuan", {"It", "'S", " a", "!?\n\n", "1", "2", " ", "3"}},
      {"solar-open", {"It", "'S", " a", "!?\n\n", "1", "2", " ", "3"}},
      {"hunyuan-dense", {"(ab", " c", "123", "4", "\u6f22", "d", "?!\n", "e"}},
      {"mellum2", {"It", "'", "S", " a", " ", "1", "2", "!?"}},
      {"bailingmoe", {"It", "'S", " a", "!?\n\n", "x", "1", "2"}},
      {"bailingmoe2", {"It", "'S", " a", "!?\n\n", "x", "1", "2"}},
      {"laguna", {"It", "'S", " a", "!?", "\n\n", "  ", " x", "1", "2"}},
      {"laguna", {"a", "\r\n\r\n", " b", "\r", "c", "!", "\n", " ", "\n"}},
      {"afmoe",
       {"(ab", " c", "  ", "1", "234", "567", "x", "12", "345", " ", "123",
        "456", ".", "89", "\u6f22\u5b57", "\ud55c\uad6d", "x", "7"}},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.name);
    const auto found = FindGgufPreTokenizer(row.name);
    ASSERT_TRUE(found.ok()) << found.status();
    const auto cutter = MakePreTokenizer(found->pre_tokenizer, true);
    ASSERT_TRUE(cutter.ok()) << cutter.status();
    std::string text;
    for (const std::string& piece : row.pieces) text += piece;
    Pieces pieces;
    pieces.Reset(text, true);
    ASSERT_TRUE((*cutter)->Apply(&pieces).ok());
    std::vector<std::string> got;
    for (size_t i = 0; i < pieces.size(); ++i) got.emplace_back(pieces[i]);
    EXPECT_EQ(got, row.pieces);
    // A folder that cuts so is written under a name that is read as the same.
    const auto name = NameGgufPreTokenizer(
        found->pre_tokenizer, found->normalizer, found->ignore_merges);
    ASSERT_TRUE(name.ok()) << name.status();
    const auto again = FindGgufPreTokenizer(*name);
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(again->pre_tokenizer, found->pre_tokenizer);
    EXPECT_EQ(again->normalizer, found->normalizer);
  }
}

// Encoders' tokenizers: RoBERTa's are GPT-2's, with two separators between
// texts; ModernBERT's puts letters together first.
TEST(GgufText, EncodersAreLikeGpt2) {
  for (const char* name : {"roberta-bpe", "jina-v1-en", "jina-v2-code"}) {
    const auto found = FindGgufPreTokenizer(name);
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_TRUE(found->normalizer.is_null()) << name;
  }
  const auto modern = FindGgufPreTokenizer("modern-bert");
  ASSERT_TRUE(modern.ok()) << modern.status();
  EXPECT_EQ(modern->normalizer, Json({{"type", "NFC"}}));
  // A folder's of the same kind has that name.
  const auto name =
      NameGgufPreTokenizer(modern->pre_tokenizer, modern->normalizer, false);
  ASSERT_TRUE(name.ok()) << name.status();
  EXPECT_EQ(*name, "modern-bert");
  const TokenLists lists =
      ListsOf(ReadJson(Folder("bbpe_roberta") + "/tokenizer.json"));
  GgufVocab vocab = VocabOf(lists, "roberta-bpe");
  for (size_t id = 0; id < lists.tokens.size(); ++id) {
    if (lists.tokens[id] == "<s>") vocab.bos_id = static_cast<int32_t>(id);
    if (lists.tokens[id] == "</s>") vocab.eos_id = static_cast<int32_t>(id);
  }
  vocab.add_bos = true;
  vocab.add_eos = true;
  const auto json = GgufTokenizerJson(vocab);
  ASSERT_TRUE(json.ok()) << json.status();
  EXPECT_EQ(PairOf(*json), "<s> A </s> </s> B </s>");
}

// As Laguna's tokenizer.json has it: a run of line ends begins a piece.
TEST(GgufText, LagunaCutsAtLineEnds) {
  const auto split = [](const char* pattern, const char* behavior) {
    return Json{{"type", "Split"},
                {"pattern", {{"Regex", pattern}}},
                {"behavior", behavior},
                {"invert", false}};
  };
  const auto laguna = FindGgufPreTokenizer("laguna");
  const auto qwen = FindGgufPreTokenizer("qwen2");
  ASSERT_TRUE(laguna.ok() && qwen.ok()) << laguna.status();
  Json published = qwen->pre_tokenizer;
  Json& steps = published["pretokenizers"];
  steps.insert(steps.begin(),
               split(R"((?:\r?\n)+(?!\r?\n))", "MergedWithNext"));
  EXPECT_EQ(laguna->pre_tokenizer, published);
  const auto name = NameGgufPreTokenizer(published, Json(), false);
  ASSERT_TRUE(name.ok()) << name.status();
  EXPECT_EQ(*name, "laguna");
  steps[0]["behavior"] = "Isolated";
  EXPECT_TRUE(absl::IsUnimplemented(
      NameGgufPreTokenizer(published, Json(), false).status()));
}

// A second separator is RoBERTa's alone, whatever the file says.
TEST(GgufText, PairsOfWordPiece) {
  GgufVocab vocab;
  vocab.model = "bert";
  vocab.tokens = {"[UNK]", "[CLS]", "[SEP]", "\u2581a"};
  vocab.types = {GgufTokenType::kControl, GgufTokenType::kControl,
                 GgufTokenType::kControl, GgufTokenType::kNormal};
  vocab.unk_id = 0;
  vocab.cls_id = 1;
  vocab.sep_id = 2;
  for (const std::optional<bool> adds :
       {std::optional<bool>(), std::optional(false), std::optional(true)}) {
    vocab.add_sep = adds;
    const auto json = GgufTokenizerJson(vocab);
    ASSERT_TRUE(json.ok()) << json.status();
    EXPECT_EQ(PairOf(*json), "[CLS] A [SEP] B [SEP]");
  }
}

// Where Kimi K2's pattern cuts: every pair of neighbours within a piece merges,
// none across.
TEST(GgufText, KimiCutsAtChineseCharacters) {
  const std::vector<std::string> pieces = {"\xe6\xbc\xa2\xe5\xad\x97",
                                           "ABCde",
                                           " don't",
                                           " ",
                                           "123",
                                           "45",
                                           " ",
                                           "\xe6\xbc\xa2",
                                           "a",
                                           "!?\n",
                                           "x"};
  const auto pre = FindGgufPreTokenizer("kimi-k2");
  ASSERT_TRUE(pre.ok()) << pre.status();
  // A vocabulary of all prefixes of the whole text, in byte-level letters.
  std::string text;
  for (const std::string& piece : pieces) text += piece;
  TokenLists lists;
  const auto letter = [](unsigned char byte) {
    const bool is_plain =
        (byte > 0x20 && byte < 0x7f) || (byte >= 0xa1 && byte != 0xad);
    int shifted = 0;
    for (int other = 0; other < byte; ++other) {
      shifted +=
          !((other > 0x20 && other < 0x7f) || (other >= 0xa1 && other != 0xad));
    }
    const int rune = is_plain ? byte : 256 + shifted;
    std::string out;
    if (rune < 0x80) return out.append(1, static_cast<char>(rune));
    out.push_back(static_cast<char>(0xc0 | rune >> 6));
    out.push_back(static_cast<char>(0x80 | (rune & 0x3f)));
    return out;
  };
  const auto add = [&](const std::string& token) {
    if (std::find(lists.tokens.begin(), lists.tokens.end(), token) ==
        lists.tokens.end()) {
      lists.tokens.push_back(token);
    }
  };
  for (const char c : text) add(letter(static_cast<unsigned char>(c)));
  // From every place on, the rest of the text merges from the left.
  for (size_t first = 0; first < text.size(); ++first) {
    std::string left = letter(static_cast<unsigned char>(text[first]));
    for (size_t i = first + 1; i < text.size(); ++i) {
      const std::string right = letter(static_cast<unsigned char>(text[i]));
      const std::string merge = left + " " + right;
      if (std::find(lists.merges.begin(), lists.merges.end(), merge) ==
          lists.merges.end()) {
        lists.merges.push_back(merge);
      }
      left += right;
      add(left);
    }
  }
  lists.types.assign(lists.tokens.size(), 1);
  const auto json = GgufTokenizerJson(VocabOf(lists, "kimi-k2"));
  ASSERT_TRUE(json.ok()) << json.status();
  const auto tokenizer = MakeTokenizerFromDocument(*json);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  Ids wanted;
  for (const std::string& piece : pieces) {
    std::string token;
    for (const char c : piece) token += letter(static_cast<unsigned char>(c));
    const auto at = std::find(lists.tokens.begin(), lists.tokens.end(), token);
    ASSERT_NE(at, lists.tokens.end()) << piece;
    wanted.push_back(static_cast<int32_t>(at - lists.tokens.begin()));
  }
  Ids ids;
  ASSERT_TRUE((*tokenizer)->Encode(text, {.add_special = false}, &ids).ok());
  EXPECT_EQ(ids, wanted);
}

// tokenizer.model's pieces, read through the tokenizer that knows them.
TEST(GgufText, SentencePieceGivesItsIds) {
  std::ifstream file(TestData() + "/gguf/spm_bpe_scores.json");
  std::stringstream text;
  text << file.rdbuf();
  const auto pieces = ParseJson(text.str(), "spm_bpe_scores.json");
  ASSERT_TRUE(pieces.ok()) << pieces.status();
  GgufVocab vocab;
  vocab.model = "llama";
  for (const Json& piece : *pieces) {
    vocab.tokens.push_back(piece[0].get_ref<const std::string&>());
    vocab.scores.push_back(piece[1].get<double>());
    vocab.types.push_back(static_cast<GgufTokenType>(piece[2].get<int>()));
  }
  vocab.bos_id = 1;
  vocab.eos_id = 2;
  vocab.add_eos = true;
  CheckCases(vocab, "spm_bpe", false, "");
}

class PocketGguf : public ::testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }

  absl::Status Write() {
    const std::string folder = ::inlay::testing::PocketModel();
    INLAY_ASSIGN_OR_RETURN(const ModelFiles files, OpenModelFiles(folder, {}));
    INLAY_ASSIGN_OR_RETURN(const GgufArch* arch, FindGgufArch("llama"));
    const TokenLists lists = ListsOf(ReadJson(folder + "/tokenizer.json"));
    INLAY_ASSIGN_OR_RETURN(GgufWriter writer, GgufWriter::Create(path_));
    const Json& config = files.config;
    const auto number = [&](const char* key) {
      return config[key].get<uint32_t>();
    };
    for (const absl::Status& status :
         {writer.SetString("general.architecture", "llama"),
          writer.SetU32("llama.block_count", number("num_hidden_layers")),
          writer.SetU32("llama.embedding_length", number("hidden_size")),
          writer.SetU32("llama.context_length",
                        number("max_position_embeddings")),
          writer.SetU32("llama.feed_forward_length",
                        number("intermediate_size")),
          writer.SetU32("llama.attention.head_count",
                        number("num_attention_heads")),
          writer.SetU32("llama.attention.head_count_kv",
                        number("num_key_value_heads")),
          writer.SetU32("llama.attention.key_length", number("head_dim")),
          writer.SetF32("llama.attention.layer_norm_rms_epsilon",
                        config["rms_norm_eps"].get<float>()),
          writer.SetString("tokenizer.ggml.model", "gpt2"),
          writer.SetString("tokenizer.ggml.pre", "gpt-2"),
          writer.SetStrings("tokenizer.ggml.tokens", lists.tokens),
          writer.SetStrings("tokenizer.ggml.merges", lists.merges),
          writer.SetI32s("tokenizer.ggml.token_type", lists.types),
          writer.SetU32("tokenizer.ggml.bos_token_id", 0),
          writer.SetU32("tokenizer.ggml.eos_token_id", 1),
          writer.SetBool("tokenizer.ggml.add_bos_token", true),
          writer.SetString("tokenizer.chat_template",
                           files.chat.chat_template)}) {
      INLAY_RETURN_IF_ERROR(status);
    }
    INLAY_ASSIGN_OR_RETURN(
        const auto tensors,
        GgufTensorsFrom(*files.weights, *arch,
                        static_cast<int>(number("num_hidden_layers")),
                        number("num_attention_heads"),
                        number("num_key_value_heads")));
    return WriteGgufTensors(tensors, &writer);
  }

  std::string path_ =
      ::testing::TempDir() + "pocket_" + std::to_string(getpid()) + ".gguf";
};

TEST_F(PocketGguf, AnswersAsItsFolderDoes) {
  const absl::Status written = Write();
  ASSERT_TRUE(written.ok()) << written;
  EngineHarness folder(::inlay::testing::PocketModel());
  EngineHarness gguf(path_);
  ASSERT_TRUE(folder.ok() && gguf.ok());
  for (const char* prompt :
       {"946 - 73", "Tell a story about a fox and a lantern."}) {
    RequestOptions options;
    options.input = InputKind::kChat;
    options.text = std::string(R"({"messages":[{"role":"user","content":")") +
                   prompt + R"("}]})";
    const Outcome wanted = folder.RunAlone(options);
    const Outcome got = gguf.RunAlone(options);
    EXPECT_FALSE(wanted.text.empty());
    EXPECT_EQ(got.text, wanted.text);
    EXPECT_EQ(got.finish.reason, wanted.finish.reason);
    EXPECT_EQ(got.finish.stop_token, wanted.finish.stop_token);
  }
}

}  // namespace
}  // namespace inlay
