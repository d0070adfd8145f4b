// Caught: exceptions of dependencies and of the C++ library as statuses.
#ifndef INLAY_MEMORY_CAUGHT_H_
#define INLAY_MEMORY_CAUGHT_H_

#include <exception>
#include <new>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace inlay {

// Without a message, where there is no memory for one: a bare code needs none.
inline absl::Status StatusOf(absl::StatusCode code,
                             absl::string_view message) noexcept {
  try {
    return absl::Status(code, message);
  } catch (...) {
    return absl::Status(code, "");
  }
}

// Runs what may throw (memory running out) where nothing above would catch, or
// where more than an exception is owed: a plan to commit, a status.
template <typename Part>
absl::Status Caught(Part&& part) noexcept {
  try {
    return part();
  } catch (const std::bad_alloc&) {
    return StatusOf(absl::StatusCode::kAlreadyExists, "out of memory");
  } catch (const std::exception& exception) {
    return StatusOf(absl::StatusCode::kInternal, exception.what());
  } catch (...) {
    return StatusOf(absl::StatusCode::kInternal,
                    "an exception of unknown type");
  }
}

}  // namespace inlay

#endif  // INLAY_MEMORY_CAUGHT_H_
