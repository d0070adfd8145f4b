// Whether a sanitizer watches the tests. What takes long then may try fewer
// pairs or seeds: they prove the arithmetic, which other builds do, and every
// case of every list still runs.
#ifndef INLAY_TESTS_SUPPORT_SANITIZED_H_
#define INLAY_TESTS_SUPPORT_SANITIZED_H_

#include <cstddef>

namespace inlay::testing {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#elif defined(__has_feature)
inline constexpr bool kSanitized =
    __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
inline constexpr bool kSanitized = false;
#endif

// How many seeds or rounds to try of those that others do.
constexpr int FewerWhenSanitized(int count) {
  return kSanitized ? (count + 3) / 4 : count;
}

// Whether case `i` of a list is tried with case `j` of one of `count`: each
// with each; or, sanitized, each with one, in turn.
constexpr bool TriedWith(size_t i, size_t j, size_t count) {
  return !kSanitized || i % count == j;
}

}  // namespace inlay::testing

#endif  // INLAY_TESTS_SUPPORT_SANITIZED_H_
