// Normal forms of rows of marks that no writing has: as the library makes them,
// in time that follows from their length alone.
#include <gtest/gtest.h>
#include <utf8proc.h>

#include <cstdlib>
#include <random>
#include <string>

#include "core/text/normalizer_unicode.h"
#include "core/text/utf8.h"

namespace inlay {
namespace {

struct Form {
  NormalForm form;
  utf8proc_uint8_t* (*make)(const utf8proc_uint8_t*);
};
constexpr Form kForms[] = {{NormalForm::kNfc, utf8proc_NFC},
                           {NormalForm::kNfd, utf8proc_NFD},
                           {NormalForm::kNfkc, utf8proc_NFKC},
                           {NormalForm::kNfkd, utf8proc_NFKD}};

std::string Made(const Form& form, const std::string& text) {
  utf8proc_uint8_t* made =
      form.make(reinterpret_cast<const utf8proc_uint8_t*>(text.c_str()));
  EXPECT_NE(made, nullptr);
  std::string out(reinterpret_cast<const char*>(made));
  std::free(made);
  return out;
}

TEST(NormalFormTest, RowsOfMarksAreAsTheLibraryMakesThem) {
  // Of several classes; one of two marks; of no class, and yet marks, the last
  // two by compatibility; letters and a syllable that take marks in.
  constexpr uint32_t kMarks[] = {0x301,   0x323, 0x345, 0x344,  0x5B0, 0xF71,
                                 0xF73,   0xF75, 0xF81, 0x3099, 0x302, 0x308,
                                 0x1D165, 0x327, 0x334, 0xFF9E, 0xFF9F};
  constexpr uint32_t kStarts[] = {'a', 0xEA, 0x1EA1, 0x304B, 0xAC00, 0xFB4B};
  std::mt19937 rng(1);
  for (int turn = 0; turn < 200; ++turn) {
    std::string text;
    const unsigned rows = rng() % 3;
    for (unsigned row = 0; row <= rows; ++row) {
      if (rng() % 4 != 0)
        AppendRune(kStarts[rng() % std::size(kStarts)], &text);
      // Rows on both sides of where they are put in order first.
      const unsigned marks = rng() % 2 == 0 ? rng() % 8 : 50 + rng() % 100;
      for (unsigned i = 0; i < marks; ++i) {
        AppendRune(kMarks[rng() % std::size(kMarks)], &text);
      }
    }
    for (const Form& form : kForms) {
      std::string got = text;
      ASSERT_TRUE(ToNormalForm(form.form, &got).ok());
      ASSERT_EQ(got, Made(form, text)) << "turn " << turn;
    }
  }
}

// By exchanging neighbours this would take some hours.
TEST(NormalFormTest, LongRowsOfMarksTakeLinearTime) {
  constexpr int kPairs = 500'000;
  std::string text = "a", below, above;
  for (int i = 0; i < kPairs; ++i) {
    text += "\u0301\u0323";
    below += "\u0323";
    above += "\u0301";
  }
  std::string decomposed = text;
  ASSERT_TRUE(ToNormalForm(NormalForm::kNfd, &decomposed).ok());
  EXPECT_TRUE(decomposed == "a" + below + above);
  ASSERT_TRUE(ToNormalForm(NormalForm::kNfkc, &text).ok());
  EXPECT_TRUE(text == "\u1EA1" + below.substr(2) + above);
  // Marks by compatibility alone, in turn with one that comes after them.
  std::string halfwidth, voiced, dots;
  for (int i = 0; i < kPairs; ++i) {
    halfwidth += "\u0323\uFF9E";
    voiced += "\u3099";
    dots += "\u0323";
  }
  ASSERT_TRUE(ToNormalForm(NormalForm::kNfkd, &halfwidth).ok());
  EXPECT_TRUE(halfwidth == voiced + dots);
}

}  // namespace
}  // namespace inlay
