// Status macros: how errors travel inside the library. Owns nothing; knows
// nothing above absl::Status.
#ifndef INLAY_MEMORY_STATUS_H_
#define INLAY_MEMORY_STATUS_H_

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define INLAY_CONCAT_INNER_(a, b) a##b
#define INLAY_CONCAT_(a, b) INLAY_CONCAT_INNER_(a, b)

namespace inlay {

// The allocator returned null. absl has no code for it; inside the library it
// travels as kAlreadyExists, which nothing else uses (api/status.def).
inline absl::Status OutOfMemoryError(const std::string& message) {
  return absl::AlreadyExistsError(message);
}

// The system refused to read or write a file: kPermissionDenied, likewise.
inline absl::Status IoError(const std::string& message) {
  return absl::PermissionDeniedError(message);
}

// A model produced NaN or infinity: kDataLoss, likewise.
inline absl::Status NumericError(const std::string& message) {
  return absl::DataLossError(message);
}

// The device failed and every later call on it will: kAborted, likewise.
inline absl::Status DeviceLostError(const std::string& message) {
  return absl::AbortedError(message);
}

// What a handle names is gone, or never was: kUnauthenticated, likewise.
inline absl::Status InvalidHandleError(const std::string& message) {
  return absl::UnauthenticatedError(message);
}

}  // namespace inlay

// Evaluates an absl::Status expression once and returns it from the enclosing
// function if it is an error.
#define INLAY_RETURN_IF_ERROR(expr)        \
  do {                                     \
    ::absl::Status inlay_status_ = (expr); \
    if (!inlay_status_.ok()) [[unlikely]]  \
      return inlay_status_;                \
  } while (false)

// INLAY_ASSIGN_OR_RETURN(auto x, MakeX()): moves the value out of a StatusOr,
// or returns its status.
#define INLAY_ASSIGN_OR_RETURN(lhs, expr)                                     \
  INLAY_ASSIGN_OR_RETURN_IMPL_(INLAY_CONCAT_(inlay_statusor_, __LINE__), lhs, \
                               expr)
#define INLAY_ASSIGN_OR_RETURN_IMPL_(tmp, lhs, expr) \
  auto tmp = (expr);                                 \
  if (!tmp.ok()) [[unlikely]]                        \
    return std::move(tmp).status();                  \
  lhs = std::move(tmp).value()

// Guards our own bugs in debug builds, never input: a release build keeps only
// the unevaluated expression.
#ifdef NDEBUG
#define INLAY_DCHECK(cond) static_cast<void>(sizeof((cond) ? 1 : 0))
#else
#include <cassert>
#define INLAY_DCHECK(cond) assert(cond)
#endif

#endif  // INLAY_MEMORY_STATUS_H_
