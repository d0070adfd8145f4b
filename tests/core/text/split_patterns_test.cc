// The hand-written splitters against PCRE2 with the same pattern, on random
// text that mixes what the patterns tell apart.
#include "core/text/split_patterns.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "core/text/unicode_class.h"
#include "core/text/utf8.h"

namespace inlay {
namespace {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint32_t Below(uint32_t limit) {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<uint32_t>(state_ >> 33) % limit;
  }

 private:
  uint64_t state_;
};

bool MatchesWhole(const Regex& regex, uint32_t code) {
  std::string text;
  AppendRune(code, &text);
  std::vector<Match> matches;
  EXPECT_TRUE(regex.FindAll(text, &matches).ok());
  return !matches.empty();
}

// PCRE2 and utf8proc know different versions of Unicode: code points that they
// class differently are left out.
class ClassAgreement {
 public:
  ClassAgreement() {
    constexpr struct {
      const char* pattern;
      uint16_t mask;
    } kRows[] = {{"[\\p{Lu}\\p{Lt}]", kUpper},
                 {"\\p{Ll}", kLower},
                 {"[\\p{Lm}\\p{Lo}]", kCaseless},
                 {"\\p{M}", kMark},
                 {"\\p{N}", kNumber},
                 {"\\p{P}", kPunct},
                 {"\\p{S}", kSymbol},
                 {"\\s", kSpace}};
    for (const auto& row : kRows) {
      rows_.push_back({*Regex::Create(row.pattern), row.mask});
    }
  }
  bool Agree(uint32_t code) const {
    for (const auto& [regex, mask] : rows_) {
      if (MatchesWhole(regex, code) != ((RuneClass(code) & mask) != 0)) {
        return false;
      }
    }
    return true;
  }

 private:
  std::vector<std::pair<Regex, uint16_t>> rows_;
};

// Code points of every class, most of them where the patterns' borders are.
std::vector<uint32_t> Alphabet() {
  std::vector<uint32_t> codes;
  for (uint32_t c = 1; c < 0x250; ++c) codes.push_back(c);
  for (const uint32_t c :
       {0x17Fu,   0x212Au,  0x130u,   0x1C5u,   0x2B0u,   0x300u,   0x301u,
        0x20DDu,  0x3A3u,   0x416u,   0x5D0u,   0x627u,   0x64Bu,   0x660u,
        0x903u,   0x915u,   0xE01u,   0x10D0u,  0x13A0u,  0x180Eu,  0x1680u,
        0x2000u,  0x2028u,  0x2029u,  0x200Bu,  0x200Du,  0x2160u,  0x2460u,
        0x24B6u,  0x20ACu,  0x2014u,  0x2019u,  0x3000u,  0x3001u,  0x3041u,
        0x30A2u,  0x30FBu,  0x30FFu,  0x3040u,  0x3100u,  0x4E00u,  0x9FA5u,
        0x9FA6u,  0xAC00u,  0xE000u,  0xFEFFu,  0xFF10u,  0xFFFDu,  0xFFFFu,
        0x10000u, 0x10400u, 0x10428u, 0x1D400u, 0x1D7CEu, 0x1F600u, 0x1F1E6u,
        0x1F3FBu, 0xE0100u, 0x20000u, 0x378u,   0x530u,   0x10FFFFu}) {
    codes.push_back(c);
  }
  const ClassAgreement agreement;
  std::erase_if(codes, [&](uint32_t c) { return !agreement.Agree(c); });
  return codes;
}

std::string RandomText(const std::vector<uint32_t>& alphabet, Random* random) {
  constexpr std::string_view kSnippets[] = {" ",
                                            "  ",
                                            "\n",
                                            "\r\n",
                                            "\t",
                                            "'s",
                                            "'S",
                                            "'ll",
                                            "'LL",
                                            "'re",
                                            "'vE",
                                            "'",
                                            "'m",
                                            "'\u017F",
                                            "the",
                                            "The",
                                            "THE",
                                            "x",
                                            "1",
                                            "1234",
                                            "!",
                                            "...",
                                            "/",
                                            "$",
                                            "_",
                                            "\u00A0",
                                            "\u3000",
                                            "\u4E2D\u6587",
                                            "\u30AB\u306A",
                                            "\u00E9",
                                            "e\u0301",
                                            "\u0301",
                                            "\u01C5",
                                            "\u02B0",
                                            "   \n "};
  std::string text;
  const uint32_t length = 1 + random->Below(24);
  for (uint32_t i = 0; i < length; ++i) {
    if (random->Below(3) == 0) {
      AppendRune(
          alphabet[random->Below(static_cast<uint32_t>(alphabet.size()))],
          &text);
    } else {
      text += kSnippets[random->Below(std::size(kSnippets))];
    }
  }
  return text;
}

class SplitPatterns : public ::testing::TestWithParam<SplitPattern> {};

TEST_P(SplitPatterns, EqualPcre2OnRandomText) {
  const std::string_view pattern = SplitPatternRegex(GetParam());
  ASSERT_EQ(RecogniseSplitPattern(pattern), GetParam());
  const auto regex = Regex::Create(pattern);
  ASSERT_TRUE(regex.ok()) << regex.status();
  const std::vector<uint32_t> alphabet = Alphabet();
  ASSERT_GT(alphabet.size(), 600u);
  Random random(7);
  std::vector<Match> expected;
  std::vector<Match> found;
  for (int round = 0; round < 20000; ++round) {
    const std::string text = RandomText(alphabet, &random);
    expected.clear();
    found.clear();
    ASSERT_TRUE(regex->FindAll(text, &expected).ok());
    FindSplits(GetParam(), text, &found);
    ASSERT_EQ(found.size(), expected.size()) << ::testing::PrintToString(text);
    for (size_t i = 0; i < found.size(); ++i) {
      ASSERT_EQ(found[i].begin, expected[i].begin)
          << ::testing::PrintToString(text);
      ASSERT_EQ(found[i].end, expected[i].end)
          << ::testing::PrintToString(text);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, SplitPatterns,
                         ::testing::Values(SplitPattern::kGpt2,
                                           SplitPattern::kLlama3,
                                           SplitPattern::kQwen2,
                                           SplitPattern::kO200k,
                                           SplitPattern::kDeepSeekNumbers,
                                           SplitPattern::kDeepSeekCjk,
                                           SplitPattern::kDeepSeekWords));

TEST(RegexTest, ReadsClassesAsOnigurumaDoes) {
  EXPECT_EQ(*TranslateRegex("\\s"), "[\\t-\\r\\x{85}\\p{Z}]");
  EXPECT_EQ(*TranslateRegex("[^\\s\\p{L}]"), "[^\\t-\\r\\x{85}\\p{Z}\\p{L}]");
  EXPECT_EQ(*TranslateRegex("[]\\]a]"), "[]\\]a]");
  EXPECT_TRUE(absl::IsUnimplemented(TranslateRegex("[a&&b]").status()));
  EXPECT_TRUE(absl::IsUnimplemented(TranslateRegex("[a[b]]").status()));
  EXPECT_TRUE(absl::IsUnimplemented(TranslateRegex("[a\\S]").status()));
  EXPECT_TRUE(absl::IsInvalidArgument(Regex::Create("(a").status()));
  // The Mongolian vowel separator was once a space.
  EXPECT_FALSE(MatchesWhole(*Regex::Create("\\s"), 0x180E));
  EXPECT_TRUE(MatchesWhole(*Regex::Create("\\s"), 0x85));
  EXPECT_TRUE(MatchesWhole(*Regex::Create("\\w"), 0x301));
}

// The second repetition is one in Oniguruma (doc/RE: possessive and lazy ones
// of {n} are other syntaxes' than Ruby's).
TEST(RegexTest, RepeatsRepetitionsAsOnigurumaDoes) {
  for (const auto& [pattern, wanted] :
       {std::pair{"\\p{Nd}{3}+\\z", "(?:\\p{Nd}{3})+\\z"},
        {"x(a[b)]){2}+c", "x(?:(a[b)]){2})+c"},
        {"(x[\\s]{1,2}+)", "(x(?:[\\t-\\r\\x{85}\\p{Z}]{1,2})+)"},
        {"x\u00e9{2}?", "x(?:\u00e9{2})?"},
        {"\\\\{2,}+", "(?:\\\\{2,})+"},
        {"a{1,2}?b++\\x{41}+{x}+", "a{1,2}?b++\\x{41}+{x}+"},
        {"x\\x612{2}?", "x\\x61(?:2{2})?"},
        {"x\\x61{2}?", "x(?:\\x61{2})?"},
        {"x\\xg{2}?", "x\\x(?:g{2})?"},
        {"x\\141{2}+", "x(?:\\141{2})+"},
        {"x\\1418{2}+", "x\\141(?:8{2})+"},
        {"x\\cA{2}+", "x(?:\\cA{2})+"},
        {"(?<n>x)\\k<n>{2}+", "(?<n>x)(?:\\k<n>{2})+"},
        {"(?<n>x)\\g'n'{2}?", "(?<n>x)(?:\\g'n'{2})?"},
        {"[\\k<]>]{2}+", "[\\k<]>(?:]{2})+"},
        {"\\k<n{2}+", "\\k<(?:n{2})+"},
        {"a{,3}b{,2}+c{,4}?d{,}", "a{0,3}(?:b{0,2})+c{0,4}?d{,}"}}) {
    EXPECT_EQ(*TranslateRegex(pattern), wanted);
  }
  for (const auto& [pattern, text] : {std::pair{"\\A\\x61{2}?b\\z", "b"},
                                      {"\\A\\141{2}+b\\z", "aaaab"},
                                      {"\\A\\cA{2}+b\\z", "\1\1\1\1b"},
                                      {"\\A(?<n>a)\\k<n>{2}+b\\z", "aaaaab"},
                                      {"\\A(?<n>a)\\g<n>{2}?b\\z", "ab"},
                                      {"\\Aa{,2}b\\z", "aab"}}) {
    const auto repeats = Regex::Create(pattern);
    ASSERT_TRUE(repeats.ok()) << pattern << repeats.status();
    std::vector<Match> found;
    ASSERT_TRUE(repeats->FindAll(text, &found).ok());
    EXPECT_EQ(found.size(), 1u) << pattern;
  }
  // Of a tokenizer that cuts numbers into threes from their ends on.
  const auto regex = Regex::Create("\\A\\p{Nd}{1,2}(?=\\p{Nd}{3}+\\z)");
  ASSERT_TRUE(regex.ok()) << regex.status();
  std::vector<Match> matches;
  ASSERT_TRUE(regex->FindAll("12345678", &matches).ok());
  ASSERT_EQ(matches.size(), 1u);
  EXPECT_EQ(matches[0].end, 2u);
}

TEST(RegexTest, EmptyMatchesAdvance) {
  const auto regex = Regex::Create("x*");
  std::vector<Match> matches;
  ASSERT_TRUE(regex->FindAll("axx\u00E9", &matches).ok());
  ASSERT_EQ(matches.size(), 3u);
  EXPECT_EQ(matches[0].begin, 0u);
  EXPECT_EQ(matches[1].begin, 1u);
  EXPECT_EQ(matches[1].end, 3u);
  EXPECT_EQ(matches[2].begin, 5u);
}

}  // namespace
}  // namespace inlay
