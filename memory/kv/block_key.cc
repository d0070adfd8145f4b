// SipHash-2-4 with 128 bits of output over 64-bit words, the parent's key in
// the place of the secret one. Add, rotate and xor only: every step is a
// permutation of the state, so there are no inputs that a multiplication by
// zero would make equal.
#include "memory/kv/block_key.h"

#include <bit>

namespace inlay {
namespace {

class Mixer {
 public:
  explicit Mixer(const KvBlockKey& key)
      : v0_(kPi0 ^ key.high),
        v1_(kPi1 ^ key.low),
        v2_(kPi2 ^ key.high),
        v3_(kPi3 ^ key.low) {}

  void Add(uint64_t word) {
    v3_ ^= word;
    Round();
    Round();
    v0_ ^= word;
  }

  KvBlockKey Finish() {
    v2_ ^= 0xEE;
    const uint64_t high = FourRounds();
    v1_ ^= 0xDD;
    return {high, FourRounds()};
  }

 private:
  // The first 256 bits of the fraction of pi: nothing up the sleeve.
  static constexpr uint64_t kPi0 = 0x243F6A8885A308D3;
  static constexpr uint64_t kPi1 = 0x13198A2E03707344;
  static constexpr uint64_t kPi2 = 0xA4093822299F31D0;
  static constexpr uint64_t kPi3 = 0x082EFA98EC4E6C89;

  void Round() {
    v0_ += v1_;
    v2_ += v3_;
    v1_ = std::rotl(v1_, 13) ^ v0_;
    v3_ = std::rotl(v3_, 16) ^ v2_;
    v0_ = std::rotl(v0_, 32);
    v2_ += v1_;
    v0_ += v3_;
    v1_ = std::rotl(v1_, 17) ^ v2_;
    v3_ = std::rotl(v3_, 21) ^ v0_;
    v2_ = std::rotl(v2_, 32);
  }
  uint64_t FourRounds() {
    for (int i = 0; i < 4; ++i) Round();
    return v0_ ^ v1_ ^ v2_ ^ v3_;
  }

  uint64_t v0_, v1_, v2_, v3_;
};

// What the last word says, so that no root is a chained key, and no tokens are
// the beginning of others.
constexpr uint64_t kRoot = 1;
constexpr uint64_t kChained = 2;

}  // namespace

KvBlockKey RootKey(uint64_t salt) {
  Mixer mixer(KvBlockKey{});
  mixer.Add(salt);
  mixer.Add(kRoot);
  return mixer.Finish();
}

KvBlockKey ChainKey(const KvBlockKey& parent,
                    absl::Span<const int32_t> tokens) {
  Mixer mixer(parent);
  const auto word = [&](size_t i) { return uint64_t{uint32_t(tokens[i])}; };
  size_t i = 0;
  for (; i + 1 < tokens.size(); i += 2) mixer.Add(word(i) | word(i + 1) << 32);
  if (i < tokens.size()) mixer.Add(word(i));
  mixer.Add(uint64_t{tokens.size()} << 8 | kChained);
  return mixer.Finish();
}

}  // namespace inlay
