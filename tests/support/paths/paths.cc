#include "tests/support/paths/paths.h"

#include <cstdlib>

namespace inlay {

const std::string& SourceDir() {
  static const std::string* const directory = [] {
    const char* given = std::getenv("INLAY_SOURCE_DIR");
    return new std::string(given != nullptr ? given : INLAY_BUILT_FROM);
  }();
  return *directory;
}

const std::string& TestData() {
  static const std::string* const directory =
      new std::string(SourceDir() + "/tests/data");
  return *directory;
}

}  // namespace inlay
