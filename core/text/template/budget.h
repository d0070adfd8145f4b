// What a rendering has spent so far: steps, and bytes of live values. Every
// value that a rendering creates is charged here and refunded when it dies.
#ifndef INLAY_CORE_TEXT_TEMPLATE_BUDGET_H_
#define INLAY_CORE_TEXT_TEMPLATE_BUDGET_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "core/text/template/limits.h"
#include "memory/formatted_string.h"

namespace inlay::tmpl {

// The slowest walks over text here do about this much in the time of a step.
inline constexpr size_t kBytesAStep = 64;

class Budget {
 public:
  explicit Budget(const TemplateLimits& limits) : limits_(limits) {}
  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;

  absl::Status Spend(int64_t steps) {
    steps_ += steps;
    if (steps_ > limits_.max_steps) [[unlikely]] {
      return absl::ResourceExhaustedError(
          FormattedString("the template ran for more than the %d steps allowed",
                          limits_.max_steps));
    }
    return absl::OkStatus();
  }
  // Work proportional to text: keeps a loop over long strings as bounded as one
  // over short ones.
  absl::Status SpendBytes(size_t bytes) {
    return Spend(1 + static_cast<int64_t>(bytes / kBytesAStep));
  }
  // Asks before `bytes` are allocated.
  absl::Status CheckRoom(size_t bytes) const {
    if (bytes > room_bytes()) [[unlikely]] {
      return absl::ResourceExhaustedError(FormattedString(
          "the template's values need %d bytes more than the %d in use, at "
          "most %d allowed",
          bytes, live_bytes_, limits_.max_memory_bytes));
    }
    return absl::OkStatus();
  }
  void Take(size_t bytes) { live_bytes_ += bytes; }
  void Refund(size_t bytes) { live_bytes_ -= bytes; }

  size_t room_bytes() const {
    return live_bytes_ >= limits_.max_memory_bytes
               ? 0
               : limits_.max_memory_bytes - live_bytes_;
  }
  const TemplateLimits& limits() const { return limits_; }

 private:
  const TemplateLimits limits_;
  int64_t steps_ = 0;
  size_t live_bytes_ = 0;
};

}  // namespace inlay::tmpl

#endif  // INLAY_CORE_TEXT_TEMPLATE_BUDGET_H_
