// KvBlockKey: names KV blocks by content. Pure functions of tokens; knows no
// pool and no index. Source: the chained block hashes of vLLM's automatic
// prefix caching; mixing as in SipHash (Aumasson and Bernstein, 2012).
#ifndef INLAY_MEMORY_KV_BLOCK_KEY_H_
#define INLAY_MEMORY_KV_BLOCK_KEY_H_

#include <cstdint>
#include <utility>

#include "absl/types/span.h"

namespace inlay {

// Names a block by all tokens up to its end. 128 bits of a chained hash; the
// same in every process and on every machine, so that it can name blocks on
// disk. Not a cryptographic hash: compare the tokens before using a block.
struct KvBlockKey {
  uint64_t high = 0;
  uint64_t low = 0;

  bool operator==(const KvBlockKey&) const = default;
  template <typename H>
  friend H AbslHashValue(H state, const KvBlockKey& key) {
    return H::combine(std::move(state), key.high, key.low);
  }
};

// The key before the first block. Sequences of different salts share nothing.
KvBlockKey RootKey(uint64_t salt);
// The key of the block that follows `parent` and holds `tokens`, a full block
// or the beginning of one.
KvBlockKey ChainKey(const KvBlockKey& parent, absl::Span<const int32_t> tokens);

}  // namespace inlay

#endif  // INLAY_MEMORY_KV_BLOCK_KEY_H_
