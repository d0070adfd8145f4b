// Where a block may be moved to: by what a pool tells anyone.
#ifndef INLAY_TESTS_MEMORY_FREE_BLOCK_H_
#define INLAY_TESTS_MEMORY_FREE_BLOCK_H_

#include <cstdint>
#include <vector>

#include "memory/kv/block_pool.h"

namespace inlay {

// A free block whose id is `least` or above, the one freed last; -1: there is
// none. Leaves the pool as it was, but for peak_used().
inline int32_t FreeBlockFrom(KvBlockPool& pool, int32_t least) {
  const std::vector<int32_t> all = *pool.Allocate(pool.num_free());
  int32_t found = -1;
  // From the back, so that they are handed out in the same order again.
  for (auto id = all.rbegin(); id != all.rend(); ++id) {
    if (*id >= least) found = *id;
    pool.Unref(*id);
  }
  return found;
}

}  // namespace inlay

#endif  // INLAY_TESTS_MEMORY_FREE_BLOCK_H_
