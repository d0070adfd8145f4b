// GgufCursor: bounds-checked reading of the primitives of a GGUF header. Knows
// nothing of what they form.
#ifndef INLAY_CORE_FORMATS_GGUF_CURSOR_H_
#define INLAY_CORE_FORMATS_GGUF_CURSOR_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "memory/formatted_string.h"
#include "memory/little_endian.h"
#include "memory/status.h"

namespace inlay {

// Over the first bytes of a file of `file_bytes` bytes. What would lie beyond
// the file is INVALID_ARGUMENT, what lies in it but not in `bytes`
// OUT_OF_RANGE. `what` names in messages what is read.
class GgufCursor {
 public:
  GgufCursor(absl::Span<const std::byte> bytes, uint64_t file_bytes)
      : bytes_(bytes), file_bytes_(file_bytes) {}

  uint64_t position() const { return position_; }
  // In the file, behind the position.
  uint64_t left() const { return file_bytes_ - position_; }

  // `count` values of `size` bytes each (size at least 1).
  absl::StatusOr<absl::Span<const std::byte>> Take(uint64_t count,
                                                   uint64_t size,
                                                   std::string_view what) {
    if (count > left() / size) {
      return absl::InvalidArgumentError(FormattedString(
          "%s: %d values of %d bytes at byte %d, but the file ends at byte %d",
          what, count, size, position_, file_bytes_));
    }
    const uint64_t bytes = count * size;
    if (bytes > bytes_.size() - position_) {
      return absl::OutOfRangeError(
          FormattedString("%s: %d bytes at byte %d, only %d bytes were given",
                          what, bytes, position_, bytes_.size()));
    }
    const auto taken = bytes_.subspan(position_, bytes);
    position_ += bytes;
    return taken;
  }

  template <typename T>
  absl::StatusOr<T> Integer(std::string_view what) {
    INLAY_ASSIGN_OR_RETURN(const auto bytes, Take(1, sizeof(T), what));
    return LoadLittleEndian<T>(bytes.data());
  }

  // A u64 length and as many bytes.
  absl::StatusOr<std::string_view> String(std::string_view what) {
    INLAY_ASSIGN_OR_RETURN(const uint64_t length, Integer<uint64_t>(what));
    INLAY_ASSIGN_OR_RETURN(const auto bytes, Take(length, 1, what));
    return std::string_view(reinterpret_cast<const char*>(bytes.data()),
                            bytes.size());
  }

  // What was passed since `begin`, a position() of before.
  absl::Span<const std::byte> Since(uint64_t begin) const {
    return bytes_.subspan(begin, position_ - begin);
  }

 private:
  absl::Span<const std::byte> bytes_;
  uint64_t file_bytes_;
  uint64_t position_ = 0;  // at most bytes_.size(), at most file_bytes_
};

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_GGUF_CURSOR_H_
