// How a command, or a step of one, ended. Owns the exit statuses: 0 done (or
// the reader of stdout left), 1 failed, 2 called wrongly.
#ifndef INLAY_EXAMPLES_INLAY_OUTCOME_H_
#define INLAY_EXAMPLES_INLAY_OUTCOME_H_

#include <inlay/inlay.hpp>
#include <string>
#include <utility>

namespace inlay::cli {

class [[nodiscard]] Outcome {
 public:
  enum class Kind { kDone, kFailed, kUsage, kHelp, kReaderLeft };

  Outcome() = default;
  Outcome(const Error& error)  // NOLINT: implicit
      : Outcome(error.ok() ? Kind::kDone : Kind::kFailed,
                error.ok() ? std::string() : error.message()) {
    if (!error.ok()) status_ = error.name();
  }
  static Outcome Failed(std::string message) {
    return Outcome(Kind::kFailed, std::move(message));
  }
  // The command line is wrong: the usage text follows the message.
  static Outcome Usage(std::string message) {
    return Outcome(Kind::kUsage, std::move(message));
  }
  static Outcome Help() { return Outcome(Kind::kHelp, ""); }
  // Nobody reads stdout any more: no failure of ours, and nobody to tell.
  static Outcome ReaderLeft() { return Outcome(Kind::kReaderLeft, ""); }

  bool ok() const { return kind_ == Kind::kDone; }
  Kind kind() const { return kind_; }
  const std::string& message() const { return message_; }
  // "INLAY_NOT_FOUND" where the library said so, else "".
  const std::string& status() const { return status_; }
  int exit_status() const {
    return kind_ == Kind::kUsage ? 2 : kind_ == Kind::kFailed ? 1 : 0;
  }
  // "`what`: message", for a failure whose place the message does not name.
  Outcome In(const std::string& what) && {
    if (!ok()) message_ = what + ": " + message_;
    return std::move(*this);
  }

 private:
  Outcome(Kind kind, std::string message)
      : kind_(kind), message_(std::move(message)) {}

  Kind kind_ = Kind::kDone;
  std::string message_;
  std::string status_;
};

// Calls a C function: call(&error).
template <typename F>
Outcome Call(F&& call) {
  inlay_error* error = nullptr;
  const inlay_status status = call(&error);
  return Error(status, error);
}

inline std::string TakeBuffer(inlay_buffer* buffer) {
  std::string bytes(inlay_buffer_data(buffer), inlay_buffer_size(buffer));
  inlay_buffer_release(buffer);
  return bytes;
}

}  // namespace inlay::cli

#define CLI_RETURN_IF_FAILED(expression)              \
  do {                                                \
    ::inlay::cli::Outcome cli_outcome = (expression); \
    if (!cli_outcome.ok()) return cli_outcome;        \
  } while (false)

#endif  // INLAY_EXAMPLES_INLAY_OUTCOME_H_
