// Two checksums for two questions. Knows nothing of what the bytes mean.
//
// Crc32c: are stored bytes still what was written? A cyclic code finds every
// damage confined to 32 consecutive bits for certain, others all but once in
// 2^32, and x86 has an instruction for this polynomial. Source: Castagnoli et
// al., 1993; parameters and test vectors in RFC 3720, appendix B.4.
//
// Hash64: are two contents the same, among many? 64 well mixed bits, several
// times as fast without special instructions. Source: XXH64 as specified in
// the "xxHash fast digest algorithm" document, version 0.1.1.
//
// Neither withstands someone who makes collisions on purpose.
#ifndef INLAY_MEMORY_CHECKSUM_H_
#define INLAY_MEMORY_CHECKSUM_H_

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"

namespace inlay {

// Crc32c(b, Crc32c(a)) is the checksum of a followed by b.
uint32_t Crc32c(absl::Span<const std::byte> bytes, uint32_t previous = 0);

// The same without special instructions: for machines that have none, and
// tests.
uint32_t Crc32cPortable(absl::Span<const std::byte> bytes,
                        uint32_t previous = 0);

// The same in every process and on every machine.
uint64_t Hash64(absl::Span<const std::byte> bytes, uint64_t seed = 0);

}  // namespace inlay

#endif  // INLAY_MEMORY_CHECKSUM_H_
