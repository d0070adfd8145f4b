// Tokenizers of pieces (SentencePiece, Unigram, WordPiece) written as GGUF's
// lists and read from the lists alone: the ids of the original libraries.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>

#include "core/formats/gguf_files.h"
#include "core/formats/gguf_tokenizer.h"
#include "core/formats/gguf_tokenizer_writer.h"
#include "core/quantize/quantize.h"
#include "core/text/sentencepiece_document.h"
#include "core/text/sentencepiece_model.h"
#include "core/text/tokenizer.h"
#include "memory/status.h"
#include "tests/support/paths/paths.h"

namespace inlay {
namespace {

using Ids = std::vector<int32_t>;
constexpr int64_t kRows = 2010;  // more than any of them has tokens
constexpr char kSpace[] = "\xE2\x96\x81";

std::string ReadText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string Folder(const std::string& name) {
  return TestData() + "/tokenizers/" + name;
}

Json ReadJson(const std::string& path) {
  auto json = ParseJson(ReadText(path), path);
  EXPECT_TRUE(json.ok()) << json.status();
  return json.ok() ? *json : Json();
}

Json ReadModel(const std::string& name) {
  auto document =
      SentencePieceDocument(ReadText(Folder(name) + "/tokenizer.model"));
  EXPECT_TRUE(document.ok()) << document.status();
  return document.ok() ? *document : Json();
}

class PieceTokenizer : public ::testing::Test {
 protected:
  ~PieceTokenizer() override { std::filesystem::remove(path_); }

  absl::Status Write(const Json& tokenizer, int64_t rows = kRows) {
    INLAY_ASSIGN_OR_RETURN(GgufWriter writer, GgufWriter::Create(path_));
    INLAY_RETURN_IF_ERROR(SetGgufTokenizer(tokenizer, {}, rows, &writer));
    return writer.Commit();
  }

  // What the lists say, without the original that may go along.
  absl::StatusOr<std::unique_ptr<Tokenizer>> Read(std::string* model) {
    INLAY_ASSIGN_OR_RETURN(const auto files,
                           OpenGgufFiles(path_, WeightAccess::kRead));
    INLAY_ASSIGN_OR_RETURN(const auto vocab, ReadGgufVocab(files.header()));
    *model = vocab->model;
    EXPECT_EQ(vocab->tokens.size(), static_cast<size_t>(kRows));
    INLAY_ASSIGN_OR_RETURN(const Json json, GgufTokenizerJson(*vocab));
    return MakeTokenizerFromDocument(json);
  }

  std::unique_ptr<Tokenizer> WriteAndRead(const Json& document,
                                          const std::string& model) {
    const absl::Status written = Write(document);
    EXPECT_TRUE(written.ok()) << written;
    std::string got;
    auto tokenizer = Read(&got);
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
    EXPECT_EQ(got, model);
    return tokenizer.ok() ? *std::move(tokenizer) : nullptr;
  }

  const std::string path_ =
      ::testing::TempDir() + "pieces_" + std::to_string(getpid()) + ".gguf";
};

Ids Encode(const Tokenizer& tokenizer, const std::string& text,
           bool add_special) {
  Ids ids;
  EXPECT_TRUE(tokenizer.Encode(text, {.add_special = add_special}, &ids).ok());
  return ids;
}

// The ids and texts that the original library gave.
void CheckCases(const Tokenizer& tokenizer, const std::string& name) {
  const Json cases = ReadJson(Folder(name) + "/cases.json");
  ASSERT_GE(cases["cases"].size(), 200u);
  for (const Json& item : cases["cases"]) {
    const auto text = item["text"].get<std::string>();
    EXPECT_EQ(Encode(tokenizer, text, true), item["ids_special"].get<Ids>())
        << text;
    const auto ids = item["ids"].get<Ids>();
    EXPECT_EQ(Encode(tokenizer, text, false), ids) << text;
    EXPECT_EQ(tokenizer.Decode(ids, {}), item["decoded"]) << text;
  }
}

constexpr const char* kHardTexts[] = {
    "",
    " ",
    "   both ends   ",
    "two  spaces   and more",
    "tab\tnewline\r\nnul",
    "\xE2\x96\x81 as text \xE2\x96\x81",
    "<s> </s> <unk> <pad> <0x41> [PAD2001] [CLS]",
    "\xF0\x9F\xA6\x8A\xF0\x9F\x8F\xBD \xEF\xBC\xA1\xEF\xBC\xA2 \xEF\xAC\x81n "
    "\xE2\x85\xA7",
    "e\xCC\x81 \xC3\xA9 \xED\x95\x9C\xEA\xB5\xAD\xEC\x96\xB4 "
    "\xE4\xB8\xAD\xE6\x96\x87 \xE0\xA4\x95\xE0\xA5\x8D\xE0\xA4\xB7",
    "bad \xFF\xC0 bytes",
};

TEST_F(PieceTokenizer, ModelsGiveTheirIds) {
  const struct {
    const char* name;
    const char* model;
  } tokenizers[] = {{"spm_bpe", "llama"},
                    {"spm_bpe_user_symbols", "llama"},
                    {"spm_unigram", "t5"},
                    {"spm_unigram_bytes", "t5"}};
  for (const auto& [name, model] : tokenizers) {
    SCOPED_TRACE(name);
    const auto tokenizer = WriteAndRead(ReadModel(name), model);
    ASSERT_NE(tokenizer, nullptr);
    CheckCases(*tokenizer, name);
    const auto original =
        MakeSentencePieceTokenizer(ReadText(Folder(name) + "/tokenizer.model"));
    ASSERT_TRUE(original.ok()) << original.status();
    ASSERT_EQ(tokenizer->vocab_size(), (*original)->vocab_size());
    for (const char* text : kHardTexts) {
      const Ids ids = Encode(**original, text, true);
      EXPECT_EQ(Encode(*tokenizer, text, true), ids) << text;
      EXPECT_EQ(tokenizer->Decode(ids, {}), (*original)->Decode(ids, {}));
    }
    for (int32_t id = 0; id < tokenizer->vocab_size(); ++id) {
      ASSERT_EQ(tokenizer->IdToToken(id), (*original)->IdToToken(id));
      ASSERT_EQ(tokenizer->IsSpecial(id), (*original)->IsSpecial(id));
      ASSERT_EQ(tokenizer->TokenBytes(id), (*original)->TokenBytes(id));
    }
  }
}

TEST_F(PieceTokenizer, ListsAreTheModels) {
  const Json document = ReadModel("spm_unigram");
  ASSERT_TRUE(Write(document).ok());
  const auto files = OpenGgufFiles(path_, WeightAccess::kRead);
  ASSERT_TRUE(files.ok()) << files.status();
  const auto vocab = ReadGgufVocab(files->header());
  ASSERT_TRUE(vocab.ok() && vocab->has_value()) << vocab.status();
  const Json& pieces = document["model"]["pieces"];
  for (size_t id = 0; id < pieces.size(); ++id) {
    ASSERT_EQ((*vocab)->tokens[id], pieces[id][0].get<std::string>());
    ASSERT_EQ((*vocab)->scores[id], pieces[id][1].get<double>());
    ASSERT_EQ(static_cast<int>((*vocab)->types[id]), pieces[id][2].get<int>());
  }
  for (size_t id = pieces.size(); id < static_cast<size_t>(kRows); ++id) {
    ASSERT_EQ((*vocab)->types[id], GgufTokenType::kUnused);
  }
  EXPECT_EQ((*vocab)->add_space_prefix, true);
  EXPECT_EQ((*vocab)->remove_extra_spaces, true);
  EXPECT_GT((*vocab)->charsmap.size(), 1000u);
  EXPECT_EQ((*vocab)->unk_id, 0);
  EXPECT_EQ((*vocab)->bos_id, 1);
  EXPECT_EQ((*vocab)->eos_id, 2);
  EXPECT_EQ((*vocab)->add_bos, true);
  EXPECT_EQ((*vocab)->add_eos, true);
  EXPECT_EQ(files->header().Find("tokenizer.huggingface.json"), nullptr);
}

// As transformers converts T5's and XLM-R's tokenizer.model: the lists say
// again what SentencePiece does.
Json PublishedUnigram(const std::string& name, bool splits) {
  const Json document = ReadModel(name);
  Json vocab = Json::array();
  Json added = Json::array();
  for (const Json& piece : document["model"]["pieces"]) {
    const size_t id = vocab.size();
    vocab.push_back({piece[0], piece[1]});
    if (piece[2] != 2 && piece[2] != 3) continue;
    added.push_back({{"id", id}, {"content", piece[0]}, {"special", true}});
  }
  const auto item = [](const char* token) {
    return Json{{"SpecialToken", {{"id", token}, {"type_id", 0}}}};
  };
  Json single = Json::array();
  single.push_back(item("<s>"));
  single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  single.push_back(item("</s>"));
  Json normalizers = Json::array();
  normalizers.push_back({{"type", "Precompiled"},
                         {"precompiled_charsmap",
                          document["normalizer"]["precompiled_charsmap"]}});
  Json cuts = Json::array();
  if (splits) {
    cuts.push_back({{"type", "WhitespaceSplit"}});
  } else {
    normalizers.push_back(
        {{"type", "Strip"}, {"strip_left", false}, {"strip_right", true}});
    normalizers.push_back({{"type", "Replace"},
                           {"pattern", {{"Regex", " {2,}"}}},
                           {"content", kSpace}});
  }
  cuts.push_back({{"type", "Metaspace"},
                  {"replacement", kSpace},
                  {"prepend_scheme", "always"}});
  return Json{
      {"added_tokens", added},
      {"normalizer", {{"type", "Sequence"}, {"normalizers", normalizers}}},
      {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", cuts}}},
      {"post_processor", {{"type", "TemplateProcessing"}, {"single", single}}},
      {"model", {{"type", "Unigram"}, {"unk_id", 0}, {"vocab", vocab}}}};
}

TEST_F(PieceTokenizer, UnigramOfTokenizerJsonGivesSentencePiecesIds) {
  for (const bool splits : {false, true}) {
    const auto tokenizer =
        WriteAndRead(PublishedUnigram("spm_unigram", splits), "t5");
    ASSERT_NE(tokenizer, nullptr);
    CheckCases(*tokenizer, "spm_unigram");
    const auto files = OpenGgufFiles(path_, WeightAccess::kRead);
    ASSERT_TRUE(files.ok()) << files.status();
    EXPECT_NE(files->header().Find("tokenizer.huggingface.json"), nullptr);
  }
}

TEST_F(PieceTokenizer, UnigramOfTokenizerJsonKeepsBytes) {
  Json file = ReadJson(Folder("unigram_bytefallback") + "/tokenizer.json");
  file["normalizer"] = nullptr;  // NFC
  const auto tokenizer = WriteAndRead(file, "t5");
  ASSERT_NE(tokenizer, nullptr);
  const auto original = MakeTokenizerFromDocument(file);
  ASSERT_TRUE(original.ok()) << original.status();
  int checked = 0;
  const Json cases =
      ReadJson(Folder("unigram_bytefallback") + "/cases.json")["cases"];
  for (const Json& item : cases) {
    const auto text = item["text"].get<std::string>();
    // Special tokens in text are tokens to tokenizers, text to SentencePiece;
    // Metaspace puts no space before another.
    if (text.find('<') != text.npos || text.starts_with(' ') ||
        text.starts_with(kSpace)) {
      continue;
    }
    EXPECT_EQ(Encode(*tokenizer, text, true), Encode(**original, text, true))
        << text;
    ++checked;
  }
  EXPECT_GE(checked, 150);
}

TEST_F(PieceTokenizer, WordPieceGivesHuggingFacesIds) {
  for (const char* name : {"wordpiece_cased", "wordpiece_uncased"}) {
    SCOPED_TRACE(name);
    const Json file = ReadJson(Folder(name) + "/tokenizer.json");
    const auto tokenizer = WriteAndRead(file, "bert");
    ASSERT_NE(tokenizer, nullptr);
    CheckCases(*tokenizer, name);
  }
}

// RWKV's: tokens as Python's repr() of bytes has them, without b and quotes,
// which escapes one kind of quotes where both are there.
std::vector<std::string> RwkvList() {
  std::vector<std::string> list = {"<s>",
                                   R"(\n\n)",
                                   R"(\n)",
                                   R"(\r\n)",
                                   R"( \t)",
                                   "'",
                                   R"(\\)",
                                   R"(\\n)",
                                   R"("\'s)",
                                   "the",
                                   " the",
                                   "there",
                                   "he",
                                   R"(\xe4\xb8)",
                                   R"(\xe4\xb8\xad)",
                                   R"(\xad\xe6)",
                                   R"(\xf0\x9f\xa6\x8a)",
                                   "<s",
                                   "0x41"};
  for (int byte = 0; byte < 256; ++byte) {
    if (byte == '\n' || byte == '\'' || byte == '\\')
      continue;  // there already
    char text[8];
    const bool plain = byte >= 0x20 && byte < 0x7F;
    std::snprintf(text, sizeof(text), plain ? "%c" : R"(\x%02x)", byte);
    list.push_back(byte == '\t' ? R"(\t)" : byte == '\r' ? R"(\r)" : text);
  }
  return list;
}

GgufVocab RwkvVocab(const std::vector<std::string>& list) {
  GgufVocab vocab;
  vocab.model = "rwkv";
  vocab.tokens.assign(list.begin(), list.end());
  vocab.types.assign(list.size(), GgufTokenType::kNormal);
  vocab.types[0] = GgufTokenType::kControl;
  return vocab;
}

// The longest token at each place.
Ids LongestMatches(const std::vector<std::string>& bytes, std::string text) {
  Ids ids;
  while (!text.empty()) {
    size_t best = 0;
    for (size_t id = 1; id < bytes.size(); ++id) {
      if (text.starts_with(bytes[id]) &&
          (best == 0 || bytes[id].size() > bytes[best].size())) {
        best = id;
      }
    }
    if (best == 0) return {};
    ids.push_back(static_cast<int32_t>(best));
    text.erase(0, bytes[best].size());
  }
  return ids;
}

TEST_F(PieceTokenizer, RwkvTakesTheLongestOfBytes) {
  const std::vector<std::string> list = RwkvList();
  // What they mean, written down apart.
  std::vector<std::string> bytes = {"",
                                    "\n\n",
                                    "\n",
                                    "\r\n",
                                    " \t",
                                    "'",
                                    "\\",
                                    "\\n",
                                    "\"'s",
                                    "the",
                                    " the",
                                    "there",
                                    "he",
                                    "\xE4\xB8",
                                    "\xE4\xB8\xAD",
                                    "\xAD\xE6",
                                    "\xF0\x9F\xA6\x8A",
                                    "<s",
                                    "0x41"};
  for (int byte = 0; byte < 256; ++byte) {
    if (byte == '\n' || byte == '\'' || byte == '\\') continue;
    bytes.emplace_back(1, static_cast<char>(byte));
  }
  ASSERT_EQ(list.size(), bytes.size());
  const auto document = GgufTokenizerJson(RwkvVocab(list));
  ASSERT_TRUE(document.ok()) << document.status();
  const auto direct = MakeTokenizerFromDocument(*document);
  ASSERT_TRUE(direct.ok()) << direct.status();
  const auto again = WriteAndRead(*document, "rwkv");
  ASSERT_NE(again, nullptr);
  const auto files = OpenGgufFiles(path_, WeightAccess::kRead);
  ASSERT_TRUE(files.ok()) << files.status();
  const auto written = ReadGgufVocab(files->header());
  ASSERT_TRUE(written.ok() && written->has_value()) << written.status();
  for (size_t id = 0; id < list.size(); ++id) {
    EXPECT_EQ((*written)->tokens[id], list[id]) << id;
  }
  for (const std::string text :
       {"", "the there then", "\n\n\nthe\r\n \t\"'s\\n'", "it's \\",
        "\xE4\xB8\xAD\xE6\x96\x87 \xE4\xB8\x80", "\xF0\x9F\xA6\x8A!", "0x41 <x",
        "e\xCC\x81 \xC3\xA9"}) {
    const Ids wanted = LongestMatches(bytes, text);
    EXPECT_EQ(Encode(**direct, text, true), wanted) << text;
    EXPECT_EQ(Encode(*again, text, true), wanted) << text;
    EXPECT_EQ((*direct)->Decode(wanted, {}), text);
  }
  EXPECT_EQ(Encode(**direct, "<s>the", true), (Ids{0, 9}));
}

TEST_F(PieceTokenizer, RwkvsListsThatCannotBe) {
  const auto status = [](size_t at, const char* token) {
    std::vector<std::string> list = RwkvList();
    list[at] = token;
    return GgufTokenizerJson(RwkvVocab(list)).status();
  };
  for (const char* token : {"\\", "a\\", "\\xa", "\\xag", "\\q", "\\x-1"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(status(1, token))) << token;
  }
  // Without a token for each byte a text could have no ids.
  EXPECT_TRUE(absl::IsInvalidArgument(status(RwkvList().size() - 1, "other")));
  Json cut = *GgufTokenizerJson(RwkvVocab(RwkvList()));
  cut["pre_tokenizer"]["use_regex"] = true;
  EXPECT_TRUE(absl::IsUnimplemented(Write(cut)));
}

Json TemplateOf(const char* const* items, size_t count) {
  Json made = Json::array();
  for (size_t i = 0; i < count; ++i) {
    const std::string item = items[i];
    const char* kind = item == "A" || item == "B" ? "Sequence" : "SpecialToken";
    made.push_back({{kind, {{"id", item}, {"type_id", 0}}}});
  }
  return made;
}

// What stands between two texts, as llama.cpp's server reads the keys: the
// first one's EOS, and a separator where add_sep_token says so.
TEST_F(PieceTokenizer, PairsKeepTheirSeparators) {
  const Json word_piece =
      ReadJson(Folder("wordpiece_uncased") + "/tokenizer.json");
  Json roberta = PublishedUnigram("spm_unigram", true);
  constexpr const char* kPair[] = {"<s>", "A", "</s>", "</s>", "B", "</s>"};
  roberta["post_processor"]["pair"] = TemplateOf(kPair, std::size(kPair));
  Json both = roberta;  // Gemma's, which has no separator
  constexpr const char* kBoth[] = {"<s>", "A", "</s>", "<s>", "B", "</s>"};
  both["post_processor"]["pair"] = TemplateOf(kBoth, std::size(kBoth));
  const struct {
    const Json* file;
    const char* model;
    bool adds;
    std::vector<int32_t> between;
  } cases[] = {{&word_piece, "bert", false, {3}},
               {&roberta, "t5", true, {2, 2}},
               {&both, "t5", false, {2}}};
  for (const auto& [file, model, adds, between] : cases) {
    const auto tokenizer = WriteAndRead(*file, model);
    ASSERT_NE(tokenizer, nullptr);
    const auto files = OpenGgufFiles(path_, WeightAccess::kRead);
    ASSERT_TRUE(files.ok()) << files.status();
    const auto vocab = ReadGgufVocab(files->header());
    ASSERT_TRUE(vocab.ok() && vocab->has_value()) << vocab.status();
    EXPECT_EQ((*vocab)->add_sep, adds);
    EXPECT_EQ((*vocab)->separator(),
              adds ? std::optional(between.back()) : std::nullopt);
    const Ids a = Encode(*tokenizer, "the rain", true);
    const Ids b = Encode(*tokenizer, "a bridge", true);
    Ids wanted(a.begin(), a.end() - 1);
    wanted.insert(wanted.end(), between.begin(), between.end());
    wanted.insert(wanted.end(), b.begin() + 1, b.end());
    Ids ids, types;
    ASSERT_TRUE(
        tokenizer->EncodePair("the rain", "a bridge", {}, &ids, &types).ok());
    EXPECT_EQ(ids, wanted);
  }
}

// A folder with a tokenizer.model and no tokenizer.json; then its file, again.
TEST_F(PieceTokenizer, QuantizedFolderKeepsItsTokenizer) {
  const std::string folder = path_ + ".folder";
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/config.json") << R"({
      "architectures": ["LlamaForCausalLM"], "model_type": "llama",
      "vocab_size": 2010, "hidden_size": 32, "intermediate_size": 32,
      "num_hidden_layers": 1, "num_attention_heads": 2,
      "num_key_value_heads": 2, "max_position_embeddings": 128,
      "rms_norm_eps": 1e-5, "tie_word_embeddings": true})";
  QuantizeOptions options;
  options.num_threads = 1;
  options.type = "f16";
  const std::string plain = folder + "/plain.gguf";
  auto report = QuantizePath("random:" + folder, options, plain);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_FALSE(report->has_tokenizer);
  const std::string again = folder + "/again.gguf";
  options.type = "q8_0";
  for (const char* name : {"spm_bpe", "spm_unigram"}) {
    SCOPED_TRACE(name);
    std::filesystem::copy_file(
        Folder(name) + "/tokenizer.model", folder + "/tokenizer.model",
        std::filesystem::copy_options::overwrite_existing);
    auto files = OpenModelFiles(plain, {});
    ASSERT_TRUE(files.ok()) << files.status();
    files->directory = folder;
    report = QuantizeModel(*files, options, path_);
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_TRUE(report->has_tokenizer);
    report = QuantizePath(path_, options, again);
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_TRUE(report->has_tokenizer);
    const auto original = LoadTokenizer(folder);
    ASSERT_TRUE(original.ok()) << original.status();
    for (const std::string& path : {path_, again}) {
      const auto written = OpenModelFiles(path, {});
      ASSERT_TRUE(written.ok()) << written.status();
      const auto tokenizer = MakeTokenizerFromDocument(written->tokenizer);
      ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
      for (const char* text : kHardTexts) {
        EXPECT_EQ(Encode(**tokenizer, text, true),
                  Encode(**original, text, true))
            << text;
      }
    }
  }
  std::ofstream(folder + "/tokenizer.model") << "no proto";
  auto files = OpenModelFiles(plain, {});
  ASSERT_TRUE(files.ok()) << files.status();
  files->directory = folder;
  const absl::Status bad = QuantizeModel(*files, options, path_).status();
  EXPECT_TRUE(absl::IsInvalidArgument(bad)) << bad;
  EXPECT_NE(bad.message().find("tokenizer.model"), bad.message().npos) << bad;
  std::filesystem::remove_all(folder);
}

TEST_F(PieceTokenizer, WhatHasNoKeyIsRefused) {
  const auto refused = [this](const std::string& says,
                              const std::function<void(Json&)>& change) {
    Json document = ReadModel("spm_bpe");
    change(document);
    const absl::Status status = Write(document);
    EXPECT_TRUE(absl::IsUnimplemented(status)) << status;
    EXPECT_NE(status.message().find(says), status.message().npos) << status;
  };
  refused("escape_whitespaces", [](Json& document) {
    document["normalizer"]["escape_whitespaces"] = false;
  });
  refused("treat_whitespace_as_suffix", [](Json& document) {
    document["model"]["treat_whitespace_as_suffix"] = true;
  });
  refused("unk_surface",
          [](Json& document) { document["model"]["unk_surface"] = "?"; });
  refused("denormalizer", [](Json& document) {
    document["denormalizer"] = {{"precompiled_charsmap", "AAAA"}};
  });
  const absl::Status nfkc =
      Write(ReadJson(Folder("unigram_nfkc") + "/tokenizer.json"));
  EXPECT_TRUE(absl::IsUnimplemented(nfkc)) << nfkc;
  EXPECT_NE(nfkc.message().find("NFKC"), nfkc.message().npos) << nfkc;
  Json words = ReadJson(Folder("wordpiece_cased") + "/tokenizer.json");
  words["normalizer"] = {{"type", "Lowercase"}};
  EXPECT_TRUE(absl::IsUnimplemented(Write(words)));
  words["model"]["type"] = "WordLevel";
  EXPECT_TRUE(absl::IsUnimplemented(Write(words)));
}

TEST_F(PieceTokenizer, MalformedOnesAreRefused) {
  EXPECT_TRUE(absl::IsInvalidArgument(Write(ReadModel("spm_bpe"), 100)));
  EXPECT_FALSE(SentencePieceDocument("no proto").ok());
  for (const char* row : {R"(["a", 1])", R"(["a", 1, 7])", R"(["a", 1, -1])",
                          R"(["a", 1e300, 1])", R"([1, 1, 1])", R"("a")",
                          R"(["a", 1, 99999999999])"}) {
    Json document = ReadModel("spm_bpe");
    document["model"]["pieces"][7] = *ParseJson(row, "row");
    EXPECT_TRUE(absl::IsInvalidArgument(Write(document))) << row;
    EXPECT_TRUE(
        absl::IsInvalidArgument(MakeTokenizerFromDocument(document).status()))
        << row;
  }
  Json document = ReadModel("spm_bpe");
  document["model"]["model_type"] = "CHAR";
  EXPECT_TRUE(
      absl::IsUnimplemented(MakeTokenizerFromDocument(document).status()));
  document["normalizer"]["precompiled_charsmap"] = "*";
  EXPECT_FALSE(Write(document).ok());
  EXPECT_FALSE(MakeTokenizerFromDocument(document).ok());
}

}  // namespace
}  // namespace inlay
