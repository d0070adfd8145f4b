// Text to an encoder's vector, tokenizer and all: against the reference's
// vectors of the ids that the text stands for.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/examples/subprocess.h"

namespace inlay {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

class ModelFolder {
 public:
  explicit ModelFolder(const std::string& copied)
      : path_(fs::path(::testing::TempDir()) / "inlay_embed_XXXXXX") {
    std::string name = path_.string();
    if (mkdtemp(name.data()) == nullptr) std::abort();
    path_ = name;
    fs::copy(
        copied, path_,
        fs::copy_options::recursive | fs::copy_options::overwrite_existing);
  }
  ~ModelFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  void Write(const std::string& name, const std::string& text) const {
    std::ofstream(path_ / name, std::ios::binary) << text;
  }
  std::string path() const { return path_.string(); }

 private:
  fs::path path_;
};

// Three letters for each id: no piece begins another.
std::string Letters(int id) {
  return {static_cast<char>('a' + id / 100),
          static_cast<char>('a' + id / 10 % 10),
          static_cast<char>('a' + id % 10)};
}

// A text of words and pieces that WordPiece makes `ids` of, and that tokenizer:
// the first id is [CLS], the last [SEP], odd ones go on with a word.
struct WordPieces {
  explicit WordPieces(const std::vector<int>& ids) {
    constexpr int kVocabulary = 320;
    std::vector<std::string> pieces(kVocabulary);
    for (int id = 0; id < kVocabulary; ++id) {
      pieces[static_cast<size_t>(id)] =
          (id % 2 == 0 || id == ids[1] ? "" : "##") + Letters(id);
    }
    const auto name = [&](int id) -> std::string& {
      return pieces[static_cast<size_t>(id)];
    };
    for (size_t i = 1; i + 1 < ids.size(); ++i) {
      std::string piece = name(ids[i]);
      const bool begins = piece[0] != '#';
      if (!begins) piece = piece.substr(2);
      // What the normaliser takes back.
      if (i % 3 == 0) piece[2] = static_cast<char>(piece[2] - 'a' + 'A');
      if (i % 5 == 0 && piece[0] == 'a') piece.replace(0, 1, "\u00e1");
      text += (begins && i > 1 ? " " : "") + piece;
    }
    name(ids.front()) = "[CLS]";
    name(ids.back()) = "[SEP]";
    for (const char* special : {"[UNK]", "[PAD]"}) {
      for (int id = 0; id < kVocabulary; ++id) {
        if (std::find(ids.begin(), ids.end(), id) != ids.end() ||
            name(id)[0] == '[') {
          continue;
        }
        name(id) = special;
        break;
      }
    }
    json vocabulary, added = json::array();
    for (int id = 0; id < kVocabulary; ++id) {
      vocabulary[name(id)] = id;
      if (name(id)[0] != '[') continue;
      added.push_back({{"id", id},
                       {"content", name(id)},
                       {"single_word", false},
                       {"lstrip", false},
                       {"rstrip", false},
                       {"normalized", false},
                       {"special", true}});
    }
    const auto special = [&](int id) {
      return json{{"id", name(id)}, {"ids", {id}}, {"tokens", {name(id)}}};
    };
    const json cls = {{"SpecialToken", {{"id", "[CLS]"}, {"type_id", 0}}}};
    const json sep = {{"SpecialToken", {{"id", "[SEP]"}, {"type_id", 0}}}};
    const json sequence = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
    const json second = {{"Sequence", {{"id", "B"}, {"type_id", 1}}}};
    tokenizer = {
        {"version", "1.0"},
        {"truncation", nullptr},
        {"padding", nullptr},
        {"added_tokens", added},
        {"normalizer",
         {{"type", "BertNormalizer"},
          {"clean_text", true},
          {"handle_chinese_chars", true},
          {"strip_accents", nullptr},
          {"lowercase", true}}},
        {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
        {"post_processor",
         {{"type", "TemplateProcessing"},
          {"single", {cls, sequence, sep}},
          {"pair", {cls, sequence, sep, second, sep}},
          {"special_tokens",
           {{"[CLS]", special(ids.front())}, {"[SEP]", special(ids.back())}}}}},
        {"decoder",
         {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}}},
        {"model",
         {{"type", "WordPiece"},
          {"unk_token", "[UNK]"},
          {"continuing_subword_prefix", "##"},
          {"max_input_chars_per_word", 100},
          {"vocab", vocabulary}}}};
  }

  std::string text;
  json tokenizer;
};

void ExpectNear(const json& got, const json& want, double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_NEAR(got[i].get<double>(), want[i].get<double>(), tolerance) << i;
  }
}

// In float32: 1e-4 of the states' deviation, as everywhere.
TEST(EmbedTest, TextOfAnEncoderEqualsTheReference) {
  const std::string bert = DataPath("models/bert");
  const ModelFolder model(bert);
  const json golden = json::parse(ReadText(bert + "/golden.json"));
  int checked = 0;
  for (const json& one : golden["cases"]) {
    const auto ids = one["input_ids"].get<std::vector<int>>();
    const auto types = one["token_type_ids"].get<std::vector<int>>();
    // [CLS] and [SEP] at least, of one text.
    if (ids.size() < 3 || std::count(types.begin(), types.end(), 0) <
                              static_cast<std::ptrdiff_t>(types.size())) {
      continue;
    }
    SCOPED_TRACE(one["name"].get<std::string>());
    const WordPieces pieces(ids);
    model.Write("tokenizer.json", pieces.tokenizer.dump());
    EXPECT_EQ(
        Inlay({"tokenize", model.path()}, json(pieces.text).dump()).JsonLine(),
        one["input_ids"])
        << pieces.text;
    const double tolerance = 1e-4 * one["hidden_std"].get<double>();
    const auto embed = [&](std::vector<std::string> how) {
      how.insert(how.begin(), {"embed", model.path(), "--text", pieces.text});
      how.push_back("--json");
      const Ran ran = Inlay(how);
      EXPECT_EQ(ran.status, 0) << ran.err;
      return ran.JsonLine();
    };
    // modules.json asks for the mean, normalised.
    ExpectNear(embed({}), one["mean_pooled_normalised"], tolerance);
    ExpectNear(embed({"--pooling", "cls"}), one["cls"], tolerance);
    ExpectNear(embed({"--pooling", "last"}), one["last_hidden_state"].back(),
               tolerance);
    ++checked;
  }
  EXPECT_GE(checked, 2);
}

}  // namespace
}  // namespace inlay
