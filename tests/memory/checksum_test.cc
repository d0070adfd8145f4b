#include "memory/checksum.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string_view>
#include <vector>

namespace inlay {
namespace {

using Bytes = std::vector<std::byte>;

absl::Span<const std::byte> AsBytes(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

// Byte i is first + i * step.
Bytes Ramp(size_t size, int first, int step) {
  Bytes bytes(size);
  for (size_t i = 0; i < size; ++i) {
    bytes[i] = static_cast<std::byte>(first + static_cast<int>(i) * step);
  }
  return bytes;
}

// The definition, a bit at a time.
uint32_t CrcBitwise(absl::Span<const std::byte> bytes) {
  uint32_t crc = ~0u;
  for (const std::byte byte : bytes) {
    crc ^= std::to_integer<uint32_t>(byte);
    for (int i = 0; i < 8; ++i) {
      crc = (crc >> 1) ^ ((crc & 1u) * 0x82F63B78u);
    }
  }
  return ~crc;
}

TEST(Crc32cTest, KnownAnswers) {
  // RFC 3720, appendix B.4.
  const std::vector<std::pair<Bytes, uint32_t>> known = {
      {{}, 0},
      {Ramp(32, 0, 0), 0x8A9136AAu},
      {Ramp(32, 255, 0), 0x62A8AB43u},
      {Ramp(32, 0, 1), 0x46DD794Eu},
      {Ramp(32, 31, -1), 0x113FDB5Cu},
  };
  for (const auto& [bytes, crc] : known) {
    EXPECT_EQ(Crc32c(bytes), crc);
    EXPECT_EQ(Crc32cPortable(bytes), crc);
  }
  EXPECT_EQ(Crc32c(AsBytes("123456789")), 0xE3069283u);
  EXPECT_EQ(Crc32cPortable(AsBytes("123456789")), 0xE3069283u);
}

TEST(Crc32cTest, EveryLengthAlignmentAndSplit) {
  const Bytes bytes = Ramp(128, 11, 37);
  for (size_t begin = 0; begin < 9; ++begin) {
    for (size_t size = 0; size + begin <= 80; ++size) {
      const auto part = absl::MakeConstSpan(bytes).subspan(begin, size);
      const uint32_t want = CrcBitwise(part);
      ASSERT_EQ(Crc32c(part), want) << begin << " " << size;
      ASSERT_EQ(Crc32cPortable(part), want) << begin << " " << size;
      const size_t cut = size / 3;
      ASSERT_EQ(Crc32c(part.subspan(cut), Crc32c(part.subspan(0, cut))), want);
      ASSERT_EQ(Crc32cPortable(part.subspan(cut),
                               Crc32cPortable(part.subspan(0, cut))),
                want);
    }
  }
}

TEST(Crc32cTest, EveryByteChangeShows) {
  Bytes bytes = Ramp(40, 3, 11);
  const uint32_t want = Crc32c(bytes);
  for (std::byte& byte : bytes) {
    const std::byte good = byte;
    for (int flip = 1; flip < 256; ++flip) {
      byte = good ^ static_cast<std::byte>(flip);
      ASSERT_NE(Crc32c(bytes), want);
    }
    byte = good;
  }
}

TEST(Hash64Test, KnownAnswers) {
  // Computed with the reference implementation (python-xxhash).
  struct Answer {
    size_t size;
    uint64_t seed_0;
    uint64_t seed_1;  // seed 0x9e3779b97f4a7c15
  };
  const std::vector<Answer> known = {
      {0, 0xef46db3751d8e999u, 0xc4349fc93c010000u},
      {1, 0x1f25c8d0bc1f4bb6u, 0x79826bcd749d267au},
      {3, 0x31d2363f52e564c9u, 0x78efd77575e26575u},
      {4, 0x9bb64b7d66ee9fdau, 0x6f0a6c97d68bf353u},
      {7, 0x9a7b149959ce60d8u, 0xd97ede93c9d66a0du},
      {8, 0xdab99d95c6f90092u, 0xa2f1e28437a78a1bu},
      {15, 0x1b47cb8243cc8e32u, 0xe2ec50a544faec61u},
      {31, 0xa2aa5f33cc4a6119u, 0x755437271d1d0a84u},
      {32, 0x23c3c17ef790fd97u, 0xbf624b932c090428u},
      {33, 0x50a7cfc7ba588784u, 0x7aceaf1e9d34ea35u},
      {63, 0x5e3e54b431c7493cu, 0x2c8ddce5c85d0d9du},
      {64, 0x0eb64b3ef6eeb01fu, 0x4af341f14e3a6fc9u},
      {100, 0xa61f8d4c170fe531u, 0xf6d8f65c625abb4fu},
      {200, 0xa6cb3c09bc829b24u, 0x17e5f0aa6728f859u},
  };
  const Bytes bytes = Ramp(200, 3, 7);
  for (const Answer& answer : known) {
    const auto part = absl::MakeConstSpan(bytes).subspan(0, answer.size);
    EXPECT_EQ(Hash64(part), answer.seed_0) << answer.size;
    EXPECT_EQ(Hash64(part, 0x9e3779b97f4a7c15u), answer.seed_1) << answer.size;
  }
  EXPECT_EQ(Hash64(AsBytes("abc")), 0x44bc2cf5ad770999u);
}

}  // namespace
}  // namespace inlay
