// Whether a sanitizer watches the tests. What takes long then may try fewer
// pairs or seeds: they prove the arithmetic, which other builds do, and every
// case of every list still runs.
#ifndef INLAY_TESTS_SUPPORT_SANITIZED_H_
#define INLAY_TESTS_SUPPORT_SANITIZED_H_

#include <cstddef>

namespace inlay::testing {

// Known when linked: objects of tests serve builds of the library with
// sanitizers and without (INLAY_TESTS_FROM).
extern const bool kSanitized;

// How many seeds or rounds to try of those that others do.
inline int FewerWhenSanitized(int count) {
  return kSanitized ? (count + 3) / 4 : count;
}

// Whether case `i` of a list is tried with case `j` of one of `count`: each
// with each; or, sanitized, each with one, in turn.
inline bool TriedWith(size_t i, size_t j, size_t count) {
  return !kSanitized || i % count == j;
}

}  // namespace inlay::testing

#endif  // INLAY_TESTS_SUPPORT_SANITIZED_H_
