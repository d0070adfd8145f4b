// DeferredFrees: memory that its owners have let go of and that a device has
// yet to take back, a piece at a time: giving gigabytes back to the system
// takes tens of milliseconds. Knows no devices' ways of freeing.
#ifndef INLAY_MEMORY_DEVICE_DEFERRED_FREES_H_
#define INLAY_MEMORY_DEVICE_DEFERRED_FREES_H_

#include <atomic>
#include <cstddef>
#include <list>

#include "memory/device/device.h"
#include "memory/device/device_info.h"
#include "memory/mutex.h"

namespace inlay {

// A base of devices that can; thread-safe. What is deferred stays accounted as
// it was until it is freed. A device frees it before it refuses an allocation,
// and all of it in its destructor.
class DeferredFrees {
 public:
  // Freed at a time, where memory can be given back in part.
  static constexpr size_t kPieceBytes = size_t{8} << 20;

  // Null: the device frees everything at once.
  static DeferredFrees* Of(Device* device) {
    return dynamic_cast<DeferredFrees*>(device);
  }

  // While one lives, large buffers that anyone frees are deferred. `frees` may
  // be null.
  class Scope {
   public:
    explicit Scope(DeferredFrees* frees) : frees_(frees) {
      if (frees_ != nullptr) ++frees_->num_scopes_;
    }
    ~Scope() {
      if (frees_ != nullptr) --frees_->num_scopes_;
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    DeferredFrees* const frees_;
  };

  // Frees a piece. False: there was none.
  bool FreeSome();
  // Until it is freed.
  size_t bytes() const { return bytes_; }

 protected:
  virtual ~DeferredFrees() = default;
  // False: the buffer is to be freed now.
  bool Defer(std::byte* data, size_t bytes, MemoryClass memory_class) noexcept;

 private:
  struct Entry {
    std::byte* data = nullptr;
    size_t bytes = 0;
    size_t kept = 0;  // of these, what has not been discarded
    MemoryClass memory_class = MemoryClass::kWorkspace;
  };

  // Gives the memory behind the addresses back, which stay taken. False: that
  // cannot be done.
  virtual bool Discard(std::byte* data, size_t bytes) = 0;
  // Frees and accounts.
  virtual void FreeNow(std::byte* data, size_t bytes,
                       MemoryClass memory_class) = 0;

  std::atomic<int> num_scopes_{0};
  std::atomic<size_t> bytes_{0};
  Mutex mu_;  // held while a piece is freed: who needs the room waits for it
  std::list<Entry> entries_ ABSL_GUARDED_BY(mu_);
};

}  // namespace inlay

#endif  // INLAY_MEMORY_DEVICE_DEFERRED_FREES_H_
