// Character maps built by hand: both searches, and maps that lie.
#include "core/text/precompiled_charsmap.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

namespace inlay {
namespace {

void AppendUint32(uint32_t value, std::string* out) {
  for (int i = 0; i < 4; ++i) out->push_back(static_cast<char>(value >> 8 * i));
}

// A wasteful but simple double array: the children of each node get a block of
// 256 units of their own, the value in front of them.
class MapBuilder {
 public:
  MapBuilder() : units_(1) {}

  void Add(const std::string& key, const std::string& replacement) {
    size_t at = 0;
    for (const char c : key) {
      const auto byte = static_cast<unsigned char>(c);
      at = Block(at) ^ byte;
      units_[at] |= byte;
    }
    const size_t block = Block(at);
    units_[at] |= 1u << 8;
    units_[block] = 1u << 31 | static_cast<uint32_t>(replacements_.size());
    replacements_ += replacement + '\0';
  }

  std::vector<uint32_t>& units() { return units_; }

  std::string Bytes() const {
    std::string bytes;
    AppendUint32(static_cast<uint32_t>(4 * units_.size()), &bytes);
    for (const uint32_t unit : units_) AppendUint32(unit, &bytes);
    return bytes + replacements_;
  }

 private:
  size_t Block(size_t node) {
    const auto [it, added] = blocks_.try_emplace(node, units_.size());
    if (added) {
      it->second = (units_.size() + 255) / 256 * 256;
      units_.resize(it->second + 256);
      units_[node] |= static_cast<uint32_t>(node ^ it->second) << 10;
    }
    return it->second;
  }

  std::vector<uint32_t> units_;
  std::map<size_t, size_t> blocks_;
  std::string replacements_;
};

PrecompiledCharsMap MakeMap(const MapBuilder& builder) {
  auto map = PrecompiledCharsMap::Create(builder.Bytes());
  EXPECT_TRUE(map.ok()) << map.status();
  return *std::move(map);
}

std::string Longest(const PrecompiledCharsMap& map, std::string_view text) {
  std::string out = ">";
  map.NormalizeLongestPrefix(text, &out);
  return out;
}

std::string PerCluster(const PrecompiledCharsMap& map, std::string_view text) {
  std::string out = ">";
  map.Normalize(text, &out);
  return out;
}

TEST(PrecompiledCharsMap, LongestPrefix) {
  MapBuilder builder;
  builder.Add("a", "1");
  builder.Add("ab", "22");
  builder.Add("abcd", "");
  builder.Add("\u00e9", "e");
  const PrecompiledCharsMap map = MakeMap(builder);
  EXPECT_EQ(Longest(map, "xaabcabcd\u00e9\u00e8"), ">x122ce\u00e8");
  EXPECT_EQ(Longest(map, ""), ">");
  EXPECT_EQ(Longest(map, std::string("a\0b", 3)), std::string(">1\0b", 4));
  EXPECT_EQ(Longest(map, "b\xE2\x96q\xFF"), ">b\uFFFD\uFFFDq\uFFFD");
}

TEST(PrecompiledCharsMap, ClustersBelowSixBytesWholeThenCodePoints) {
  MapBuilder builder;
  builder.Add("e", "E");
  builder.Add("o\u0301", "\u00f3");
  builder.Add("\u0301", "'");
  builder.Add("a\u0301\u0302\u0303", "unseen");
  const PrecompiledCharsMap map = MakeMap(builder);
  // A key that only begins a cluster swallows all of it.
  EXPECT_EQ(PerCluster(map, "e\u0301."), ">E.");
  EXPECT_EQ(PerCluster(map, "o\u0301o"), ">\u00f3o");
  // Seven bytes: each code point alone.
  EXPECT_EQ(PerCluster(map, "e\u0301\u0301\u0301"), ">E'''");
  EXPECT_EQ(PerCluster(map, "a\u0301\u0302\u0303"), ">a'\u0302\u0303");
  EXPECT_EQ(PerCluster(map,
                       "\xFF"
                       "e\xCC"),
            ">\xFF"
            "E\xCC");
}

TEST(PrecompiledCharsMap, EmptyMapsNothing) {
  auto map = PrecompiledCharsMap::Create("");
  ASSERT_TRUE(map.ok());
  EXPECT_EQ(Longest(*map, "a\u0301"), ">a\u0301");
  EXPECT_EQ(PerCluster(*map, "a\u0301"), ">a\u0301");
}

TEST(PrecompiledCharsMapHostile, SizesThatDoNotFit) {
  MapBuilder builder;
  builder.Add("a", "1");
  const std::string good = builder.Bytes();
  for (const size_t size : {1u, 3u, 4u, 5u, 100u}) {
    EXPECT_FALSE(PrecompiledCharsMap::Create(good.substr(0, size)).ok())
        << size;
  }
  EXPECT_FALSE(PrecompiledCharsMap::Create(std::string(4, '\xFF')).ok());
  EXPECT_FALSE(PrecompiledCharsMap::Create(std::string(8, '\0')).ok());
  std::string odd = good;
  odd[0] = 3;
  EXPECT_FALSE(PrecompiledCharsMap::Create(odd).ok());
  EXPECT_FALSE(PrecompiledCharsMap::Create(good + "no NUL").ok());
  EXPECT_FALSE(PrecompiledCharsMap::Create(good + std::string(513, 'x') +
                                           std::string(1, '\0'))
                   .ok());
  EXPECT_TRUE(PrecompiledCharsMap::Create(good + std::string(512, 'x') +
                                          std::string(1, '\0'))
                  .ok());
}

TEST(PrecompiledCharsMapHostile, OffsetsAndValuesOutside) {
  MapBuilder builder;
  builder.Add("a", "1");
  builder.Add("bc", "2");
  for (size_t i = 0; i < builder.units().size(); ++i) {
    if (builder.units()[i] == 0) continue;
    for (const uint32_t bad : {0x7FFFFFFFu, 0xFFFFFFFFu, 0xFFFFFE00u}) {
      MapBuilder broken = builder;
      broken.units()[i] = (bad & ~0xFFu) | (broken.units()[i] & 0xFF);
      auto map = PrecompiledCharsMap::Create(broken.Bytes());
      if (!map.ok()) continue;
      Longest(*map, "abcabd\u00e9");
      PerCluster(*map, "abcabd\u00e9");
    }
  }
  // A value behind the last replacement is an empty one.
  MapBuilder beyond;
  beyond.Add("a", "1");
  for (uint32_t& unit : beyond.units()) {
    if (unit >> 31 != 0) unit = 1u << 31 | 1000;
  }
  EXPECT_EQ(Longest(MakeMap(beyond), "xay"), ">xy");
}

TEST(PrecompiledCharsMapHostile, ArrayThatLoops) {
  // Every unit leads to the block it lies in: "aaaa..." never ends.
  std::vector<uint32_t> units(256, 0);
  for (uint32_t i = 0; i < 256; ++i) units[i] = i << 10 | i;
  std::string bytes;
  AppendUint32(1024, &bytes);
  for (const uint32_t unit : units) AppendUint32(unit, &bytes);
  auto map = PrecompiledCharsMap::Create(bytes);
  ASSERT_TRUE(map.ok());
  const std::string text(1 << 20, 'a');
  EXPECT_EQ(Longest(*map, text), ">" + text);
}

}  // namespace
}  // namespace inlay
