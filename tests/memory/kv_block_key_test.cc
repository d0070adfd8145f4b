// Keys of KV blocks.
#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "memory/kv/block_key.h"

namespace inlay {
namespace {

using Tokens = std::vector<int32_t>;

TEST(KvBlockKeyTest, IsTheSameEverywhere) {
  // Names blocks on disk: a change of these is a change of format.
  EXPECT_EQ(RootKey(0), (KvBlockKey{0x2C83966B02714AC9, 0xAF23B11BDE4E1E03}));
  EXPECT_EQ(ChainKey(RootKey(0), Tokens{1, 2, 3}),
            (KvBlockKey{0x20FB8842E6AE30B6, 0x9C8DF7A07A525BD9}));
}

TEST(KvBlockKeyTest, TellsApart) {
  std::set<std::pair<uint64_t, uint64_t>> keys;
  int count = 0;
  const auto add = [&](const KvBlockKey& key) {
    keys.insert({key.high, key.low});
    ++count;
  };
  add(KvBlockKey{});
  for (uint64_t salt : {0u, 1u, 2u}) {
    const KvBlockKey root = RootKey(salt);
    add(root);
    for (int length = 0; length <= 5; ++length)
      add(ChainKey(root, Tokens(length)));
    add(ChainKey(root, Tokens{1}));
    add(ChainKey(root, Tokens{0, 1}));
    add(ChainKey(root, Tokens{1, 0}));
    add(ChainKey(root, Tokens{-1, 0}));
    add(ChainKey(root, Tokens{-1}));
    add(ChainKey(ChainKey(root, Tokens{1}), Tokens{0}));
  }
  EXPECT_EQ(keys.size(), static_cast<size_t>(count));
  // Every bit of the output depends on every token.
  const KvBlockKey base = ChainKey(RootKey(0), Tokens(16));
  for (int i = 0; i < 16; ++i) {
    for (int bit = 0; bit < 32; ++bit) {
      Tokens tokens(16);
      tokens[static_cast<size_t>(i)] = static_cast<int32_t>(1u << bit);
      const KvBlockKey key = ChainKey(RootKey(0), tokens);
      const int changed = __builtin_popcountll(key.high ^ base.high) +
                          __builtin_popcountll(key.low ^ base.low);
      EXPECT_GT(changed, 32) << i << " " << bit;
      EXPECT_LT(changed, 96) << i << " " << bit;
    }
  }
}

}  // namespace
}  // namespace inlay
