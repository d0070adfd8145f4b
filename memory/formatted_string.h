// FormattedString: absl::StrFormat for a library that outlives its memory.
// absl's appends to its string in a destructor, from which std::bad_alloc ends
// the process; here it comes out of the call, as from any other.
#ifndef INLAY_MEMORY_FORMATTED_STRING_H_
#define INLAY_MEMORY_FORMATTED_STRING_H_

#include <exception>
#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"

namespace inlay {

class FormattedStringSink {
 public:
  std::string Take() && {
    if (failed_ != nullptr) std::rethrow_exception(failed_);
    return std::move(text_);
  }

 private:
  // The hook of absl::Format.
  friend void AbslFormatFlush(FormattedStringSink* sink,
                              absl::string_view part) noexcept {
    try {
      sink->text_.append(part.data(), part.size());
    } catch (...) {
      sink->failed_ = std::current_exception();
    }
  }

  std::string text_;
  std::exception_ptr failed_;
};

// As absl::StrFormat, whose place it takes in everything that hosts link in.
template <typename... Args>
std::string FormattedString(const absl::FormatSpec<Args...>& format,
                            const Args&... args) {
  FormattedStringSink sink;
  static_cast<void>(absl::Format(&sink, format, args...));
  return std::move(sink).Take();
}

}  // namespace inlay

#endif  // INLAY_MEMORY_FORMATTED_STRING_H_
