#include "memory/device/deferred_frees.h"

#include <new>

namespace inlay {
namespace {

// Smaller ones cost less than keeping account of them.
constexpr size_t kLeastBytes = size_t{256} << 10;

}  // namespace

bool DeferredFrees::Defer(std::byte* data, size_t bytes,
                          MemoryClass memory_class) noexcept {
  if (num_scopes_ == 0 || bytes < kLeastBytes) return false;
  MutexLock lock(&mu_);
  try {
    entries_.push_back({data, bytes, bytes, memory_class});
  } catch (const std::bad_alloc&) {
    return false;
  }
  bytes_ += bytes;
  return true;
}

// From the end on, so that what is left begins where the buffer does, in pieces
// that lie as huge pages do where the buffer does.
bool DeferredFrees::FreeSome() {
  MutexLock lock(&mu_);
  if (entries_.empty()) return false;
  Entry& entry = entries_.front();
  const size_t left = (entry.kept - 1) / kPieceBytes * kPieceBytes;
  if (left > 0 && Discard(entry.data + left, entry.kept - left)) {
    entry.kept = left;
    return true;
  }
  FreeNow(entry.data, entry.bytes, entry.memory_class);
  bytes_ -= entry.bytes;
  entries_.pop_front();
  return true;
}

}  // namespace inlay
