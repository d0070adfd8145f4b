#include "memory/checksum.h"

#include <array>
#include <bit>

#include "memory/little_endian.h"

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace inlay {
namespace {

// The Castagnoli polynomial 0x1EDC6F41, bits reversed.
constexpr uint32_t kPolynomial = 0x82F63B78u;

// kTables[k][b]: what byte b contributes when k further bytes follow it, so
// that eight bytes take eight independent look-ups ("slicing by 8", Kounavis
// and Berry, 2005).
constexpr std::array<std::array<uint32_t, 256>, 8> MakeTables() {
  std::array<std::array<uint32_t, 256>, 8> tables = {};
  for (uint32_t b = 0; b < 256; ++b) {
    uint32_t crc = b;
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc >> 1) ^ ((crc & 1u) != 0 ? kPolynomial : 0u);
    }
    tables[0][b] = crc;
  }
  for (size_t k = 1; k < 8; ++k) {
    for (size_t b = 0; b < 256; ++b) {
      const uint32_t shorter = tables[k - 1][b];
      tables[k][b] = (shorter >> 8) ^ tables[0][shorter & 0xffu];
    }
  }
  return tables;
}
constexpr std::array<std::array<uint32_t, 256>, 8> kTables = MakeTables();

uint32_t UpdatePortable(uint32_t crc, const std::byte* data, size_t size) {
  for (; size >= 8; size -= 8, data += 8) {
    const uint64_t word = LoadLittleEndian<uint64_t>(data) ^ crc;
    crc = 0;
    for (size_t i = 0; i < 8; ++i) {
      crc ^= kTables[7 - i][(word >> (8 * i)) & 0xffu];
    }
  }
  for (; size > 0; --size, ++data) {
    crc = (crc >> 8) ^
          kTables[0][(crc ^ std::to_integer<uint32_t>(*data)) & 0xffu];
  }
  return crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) uint32_t UpdateSse42(uint32_t crc,
                                                       const std::byte* data,
                                                       size_t size) {
  uint64_t wide = crc;
  for (; size >= 8; size -= 8, data += 8) {
    wide = _mm_crc32_u64(wide, LoadLittleEndian<uint64_t>(data));
  }
  crc = static_cast<uint32_t>(wide);
  for (; size > 0; --size, ++data) {
    crc = _mm_crc32_u8(crc, std::to_integer<uint8_t>(*data));
  }
  return crc;
}
#endif

// The five primes of the specification.
constexpr uint64_t kPrime1 = 0x9E3779B185EBCA87u;
constexpr uint64_t kPrime2 = 0xC2B2AE3D27D4EB4Fu;
constexpr uint64_t kPrime3 = 0x165667B19E3779F9u;
constexpr uint64_t kPrime4 = 0x85EBCA77C2B2AE63u;
constexpr uint64_t kPrime5 = 0x27D4EB2F165667C5u;

uint64_t Round(uint64_t lane, uint64_t input) {
  return std::rotl(lane + input * kPrime2, 31) * kPrime1;
}

uint64_t MergeLane(uint64_t hash, uint64_t lane) {
  return (hash ^ Round(0, lane)) * kPrime1 + kPrime4;
}

// Takes the whole stripes of 32 bytes from the front of `bytes`.
uint64_t HashStripes(absl::Span<const std::byte>* bytes, uint64_t seed) {
  std::array<uint64_t, 4> lanes = {seed + kPrime1 + kPrime2, seed + kPrime2,
                                   seed, seed - kPrime1};
  for (; bytes->size() >= 32; bytes->remove_prefix(32)) {
    for (size_t i = 0; i < 4; ++i) {
      lanes[i] =
          Round(lanes[i], LoadLittleEndian<uint64_t>(bytes->data() + 8 * i));
    }
  }
  uint64_t hash = std::rotl(lanes[0], 1) + std::rotl(lanes[1], 7) +
                  std::rotl(lanes[2], 12) + std::rotl(lanes[3], 18);
  for (const uint64_t lane : lanes) hash = MergeLane(hash, lane);
  return hash;
}

}  // namespace

uint32_t Crc32cPortable(absl::Span<const std::byte> bytes, uint32_t previous) {
  return ~UpdatePortable(~previous, bytes.data(), bytes.size());
}

uint32_t Crc32c(absl::Span<const std::byte> bytes, uint32_t previous) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("sse4.2")) {
    return ~UpdateSse42(~previous, bytes.data(), bytes.size());
  }
#endif
  return Crc32cPortable(bytes, previous);
}

uint64_t Hash64(absl::Span<const std::byte> bytes, uint64_t seed) {
  const uint64_t size = bytes.size();
  uint64_t hash = size >= 32 ? HashStripes(&bytes, seed) : seed + kPrime5;
  hash += size;
  for (; bytes.size() >= 8; bytes.remove_prefix(8)) {
    hash ^= Round(0, LoadLittleEndian<uint64_t>(bytes.data()));
    hash = std::rotl(hash, 27) * kPrime1 + kPrime4;
  }
  if (bytes.size() >= 4) {
    hash ^= LoadLittleEndian<uint32_t>(bytes.data()) * kPrime1;
    hash = std::rotl(hash, 23) * kPrime2 + kPrime3;
    bytes.remove_prefix(4);
  }
  for (const std::byte byte : bytes) {
    hash ^= std::to_integer<uint64_t>(byte) * kPrime5;
    hash = std::rotl(hash, 11) * kPrime1;
  }
  hash = (hash ^ (hash >> 33)) * kPrime2;
  hash = (hash ^ (hash >> 29)) * kPrime3;
  return hash ^ (hash >> 32);
}

}  // namespace inlay
