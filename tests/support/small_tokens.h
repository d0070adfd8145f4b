// RandomTokens for models of every golden vocabulary.
#ifndef INLAY_TESTS_SUPPORT_SMALL_TOKENS_H_
#define INLAY_TESTS_SUPPORT_SMALL_TOKENS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tests/support/engine_harness.h"

namespace inlay::testing {

// All below 112: the smallest vocabulary, bailing_hybrid's.
inline std::vector<int32_t> SmallTokens(uint32_t seed, size_t count) {
  std::vector<int32_t> tokens = RandomTokens(seed, count);
  for (int32_t& token : tokens) token %= 112;
  return tokens;
}

}  // namespace inlay::testing

#endif  // INLAY_TESTS_SUPPORT_SMALL_TOKENS_H_
