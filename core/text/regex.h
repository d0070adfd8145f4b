// Regex: a compiled pattern behind PCRE2, bounded in steps, memory and time.
// Patterns are written for Oniguruma's Ruby syntax, as tokenizer files are.
#ifndef INLAY_CORE_TEXT_REGEX_H_
#define INLAY_CORE_TEXT_REGEX_H_

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace inlay {

struct Match {
  size_t begin;
  size_t end;
};

// Immutable: any number of threads may match at once.
class Regex {
 public:
  // INVALID_ARGUMENT with PCRE2's words when the pattern does not compile,
  // UNIMPLEMENTED for syntax that PCRE2 would read differently, and
  // RESOURCE_EXHAUSTED above 64 KiB of pattern.
  static absl::StatusOr<Regex> Create(std::string_view pattern);

  // Appends the leftmost matches that do not overlap, an empty one only where
  // no match just ended. `text` is valid UTF-8. RESOURCE_EXHAUSTED when the
  // matching backtracks beyond its limits.
  absl::Status FindAll(std::string_view text,
                       std::vector<Match>* matches) const;

 private:
  struct Code;
  explicit Regex(std::shared_ptr<const Code> code) : code_(std::move(code)) {}

  std::shared_ptr<const Code> code_;
};

// The pattern with the classes that PCRE2 defines otherwise spelled out
// (\s, \w, \h), and + and ? behind repetitions; UNIMPLEMENTED for nested or
// intersected character classes.
absl::StatusOr<std::string> TranslateRegex(std::string_view pattern);

}  // namespace inlay

#endif  // INLAY_CORE_TEXT_REGEX_H_
