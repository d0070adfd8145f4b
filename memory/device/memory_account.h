// MemoryAccount: how much of a device is taken, for what, and how much may be.
// Knows no memory.
#ifndef INLAY_MEMORY_DEVICE_MEMORY_ACCOUNT_H_
#define INLAY_MEMORY_DEVICE_MEMORY_ACCOUNT_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "memory/device/device.h"
#include "memory/formatted_string.h"

namespace inlay {

// Thread-safe: never above the budget, whoever asks at the same time.
class MemoryAccount {
 public:
  // `device` names it in errors; without a budget `physical_bytes` are the
  // limit: a clean refusal, before the system or the driver has to.
  MemoryAccount(std::string device, size_t physical_bytes, size_t budget_bytes)
      : device_(std::move(device)),
        physical_bytes_(physical_bytes),
        budget_(budget_bytes) {}

  // RESOURCE_EXHAUSTED with the numbers, and nothing taken.
  absl::Status Charge(size_t bytes, MemoryClass memory_class) {
    size_t total = total_.load();
    do {
      const size_t budget = budget_.load();
      const size_t limit = budget != 0 ? budget : physical_bytes_;
      if (total > limit || bytes > limit - total) {
        return absl::ResourceExhaustedError(FormattedString(
            "%s: %d bytes asked for, %d in use, %s %d", device_, bytes, total,
            budget != 0 ? "budget" : "the machine's memory", limit));
      }
    } while (!total_.compare_exchange_weak(total, total + bytes));
    size_t peak = peak_.load();
    while (peak < total + bytes &&
           !peak_.compare_exchange_weak(peak, total + bytes)) {
    }
    Of(memory_class).fetch_add(bytes);
    return absl::OkStatus();
  }

  void Refund(size_t bytes, MemoryClass memory_class) {
    Of(memory_class).fetch_sub(bytes);
    total_.fetch_sub(bytes);
  }

  MemoryUse use() const {
    MemoryUse use;
    use.budget_bytes = budget_.load();
    use.total_bytes = total_.load();
    use.peak_bytes = peak_.load();
    for (size_t i = 0; i < by_class_.size(); ++i) {
      use.by_class[i] = by_class_[i].load();
    }
    return use;
  }

  void set_budget(size_t bytes) { budget_.store(bytes); }

 private:
  std::atomic<size_t>& Of(MemoryClass memory_class) {
    return by_class_[static_cast<size_t>(memory_class)];
  }

  const std::string device_;
  const size_t physical_bytes_;
  std::atomic<size_t> budget_;
  std::atomic<size_t> total_{0};
  std::atomic<size_t> peak_{0};
  std::array<std::atomic<size_t>, kNumMemoryClasses> by_class_ = {};
};

}  // namespace inlay

#endif  // INLAY_MEMORY_DEVICE_MEMORY_ACCOUNT_H_
