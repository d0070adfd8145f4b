// Caught: exceptions of dependencies and of the C++ library as statuses.
#ifndef INLAY_CORE_ENGINE_CAUGHT_H_
#define INLAY_CORE_ENGINE_CAUGHT_H_

#include <exception>
#include <new>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace inlay {

// Without a message, where there is no memory for one: a bare code needs none.
inline absl::Status StatusOf(absl::StatusCode code, absl::string_view message) {
  try {
    return absl::Status(code, message);
  } catch (...) {
    return absl::Status(code, "");
  }
}

// Runs a part of a step whose exceptions (memory running out) must become the
// fault of the requests in it, not leave the plan uncommitted. Never throws.
template <typename Part>
absl::Status Caught(Part&& part) {
  try {
    return part();
  } catch (const std::bad_alloc&) {
    return StatusOf(absl::StatusCode::kAlreadyExists, "out of memory");
  } catch (const std::exception& exception) {
    return StatusOf(absl::StatusCode::kInternal, exception.what());
  }
}

}  // namespace inlay

#endif  // INLAY_CORE_ENGINE_CAUGHT_H_
