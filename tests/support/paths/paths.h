// Where the tests' files lie. One object knows it, so that a compiler cache
// serves all others in any clone.
#ifndef INLAY_TESTS_SUPPORT_PATHS_PATHS_H_
#define INLAY_TESTS_SUPPORT_PATHS_PATHS_H_

#include <string>

namespace inlay {

// The repository's root, without a slash at its end: the environment's
// INLAY_SOURCE_DIR, for programs that were built elsewhere, or where the
// sources were when this was compiled.
const std::string& SourceDir();

// tests/data there.
const std::string& TestData();

}  // namespace inlay

#endif  // INLAY_TESTS_SUPPORT_PATHS_PATHS_H_
