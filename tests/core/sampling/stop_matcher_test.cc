// StopMatcher against a search over the whole text, wherever the text is cut.
#include "core/sampling/stop_matcher.h"

#include <random>
#include <utility>

#include "gtest/gtest.h"

namespace inlay {
namespace {

StopMatcher MakeMatcher(std::vector<std::string> stops) {
  absl::StatusOr<StopMatcher> matcher = StopMatcher::Create(std::move(stops));
  EXPECT_TRUE(matcher.ok()) << matcher.status();
  return *std::move(matcher);
}

struct Expected {
  std::string text;
  int32_t stop_index = -1;
};

Expected NaiveMatch(const std::vector<std::string>& stops,
                    const std::string& text) {
  for (size_t end = 1; end <= text.size(); ++end) {
    int32_t found = -1;
    for (size_t i = 0; i < stops.size(); ++i) {
      const std::string& stop = stops[i];
      if (stop.size() > end ||
          text.compare(end - stop.size(), stop.size(), stop) != 0) {
        continue;
      }
      if (found < 0 || stop.size() > stops[found].size()) {
        found = static_cast<int32_t>(i);
      }
    }
    if (found >= 0) return {text.substr(0, end - stops[found].size()), found};
  }
  return {text, -1};
}

// The longest suffix of `text` that is a proper prefix of a stop.
size_t NaiveHold(const std::vector<std::string>& stops,
                 const std::string& text) {
  size_t hold = 0;
  for (const std::string& stop : stops) {
    for (size_t n = 1; n < stop.size() && n <= text.size(); ++n) {
      if (text.compare(text.size() - n, n, stop, 0, n) == 0) {
        hold = std::max(hold, n);
      }
    }
  }
  return hold;
}

TEST(StopMatcher, HoldsBackAndReleases) {
  StopMatcher matcher = MakeMatcher({"</end>"});
  EXPECT_EQ(matcher.Push("a<").text, "a");
  EXPECT_EQ(matcher.Push("b</e").text, "<b");
  EXPECT_EQ(matcher.Push("n").text, "");
  const StopResult result = matcher.Push("d>tail");
  EXPECT_EQ(result.text, "");
  EXPECT_EQ(result.stop_index, 0);
  EXPECT_EQ(matcher.Push("more").stop_index, 0);
  EXPECT_EQ(matcher.Push("more").text, "");
  EXPECT_EQ(matcher.Finish(), "");
  matcher.Reset();
  EXPECT_EQ(matcher.Push("x</").text, "x");
  EXPECT_EQ(matcher.Finish(), "</");
}

TEST(StopMatcher, FirstCompleteThenLongestThenFirstGiven) {
  EXPECT_EQ(MakeMatcher({"abc", "ab"}).Push("xabc").stop_index, 1);
  EXPECT_EQ(MakeMatcher({"c", "abc", "abc"}).Push("xabc").stop_index, 1);
  EXPECT_EQ(MakeMatcher({"c", "abc"}).Push("xabc").text, "x");
  EXPECT_EQ(MakeMatcher({"abcd", "bc"}).Push("abcd").text, "a");
}

TEST(StopMatcher, NoStopsPassThrough) {
  StopMatcher matcher = MakeMatcher({});
  EXPECT_EQ(matcher.Push(std::string_view("a\0b", 3)).text,
            std::string("a\0b", 3));
  EXPECT_EQ(matcher.Finish(), "");
}

TEST(StopMatcher, HoldsWholeUtf8Characters) {
  StopMatcher matcher = MakeMatcher({"\u00e9\u00e9"});
  EXPECT_EQ(matcher.Push("\u00e8").text, "\u00e8");
  EXPECT_EQ(matcher.Push("x\u00e9").text, "x");
  EXPECT_EQ(matcher.Push("\u00e8").text, "\u00e9\u00e8");
}

TEST(StopMatcher, EqualsNaiveSearchAtRandomCuts) {
  for (uint32_t seed = 0; seed < 4000; ++seed) {
    std::mt19937 rng(seed);
    const auto below = [&](uint32_t n) { return rng() % n; };
    // Two letters make borders and overlaps frequent; 0xff checks signedness.
    const auto random_text = [&](size_t size) {
      std::string text(size, 'a');
      for (char& c : text) c = below(2) != 0 ? 'a' : '\xff';
      return text;
    };
    std::vector<std::string> stops(1 + below(4));
    for (std::string& stop : stops) stop = random_text(1 + below(7));
    const std::string text = random_text(below(60));
    const Expected expected = NaiveMatch(stops, text);

    StopMatcher matcher = MakeMatcher(stops);
    std::string shown;
    StopResult result;
    for (size_t at = 0; at < text.size() && result.stop_index < 0;) {
      const size_t size = below(5);
      result = matcher.Push(std::string_view(text).substr(at, size));
      shown += result.text;
      at = std::min(text.size(), at + size);
      if (result.stop_index < 0) {
        ASSERT_EQ(at - shown.size(), NaiveHold(stops, text.substr(0, at)))
            << "seed " << seed;
      }
    }
    shown += matcher.Finish();
    ASSERT_EQ(shown, expected.text) << "seed " << seed;
    ASSERT_EQ(result.stop_index, expected.stop_index) << "seed " << seed;
  }
}

TEST(StopMatcher, WorstCaseIsLinear) {
  std::vector<std::string> stops(kMaxStops, std::string(kMaxStopBytes, 'a'));
  for (std::string& stop : stops) stop.back() = 'b';
  StopMatcher matcher = MakeMatcher(stops);
  size_t shown = 0;
  for (int i = 0; i < 20; ++i) {
    shown += matcher.Push(std::string(1000, 'a')).text.size();
  }
  EXPECT_EQ(shown, 20 * 1000 - (kMaxStopBytes - 1));
  EXPECT_EQ(matcher.Push("b").stop_index, 0);
}

TEST(StopMatcher, RefusesBadStops) {
  EXPECT_EQ(StopMatcher::Create({"a", ""}).status().message(),
            "stop string 1 has 0 bytes, allowed is 1 to 1024");
  EXPECT_EQ(StopMatcher::Create({std::string(1025, 'x')}).status().message(),
            "stop string 0 has 1025 bytes, allowed is 1 to 1024");
  EXPECT_EQ(
      StopMatcher::Create(std::vector<std::string>(65, "x")).status().message(),
      "65 stop strings, allowed are at most 64");
  EXPECT_TRUE(StopMatcher::Create({std::string(1024, 'x')}).ok());
}

}  // namespace
}  // namespace inlay
