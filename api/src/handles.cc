#include "api/src/handles.h"

#include <pthread.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <new>
#include <unordered_map>
#include <utility>

#include "memory/formatted_string.h"
#include "memory/mutex.h"
#include "memory/status.h"

namespace inlay::api {
namespace {

// Bits 48..63 of every handle: not a canonical address, so that no pointer of
// the host can be taken for a handle, and following one faults.
constexpr uint64_t kTag = 0x1a17ull << 48;

struct Shard {
  Mutex mu;
  std::unordered_map<uint64_t, std::shared_ptr<void>> objects
      ABSL_GUARDED_BY(mu);
};

// The library's one process-wide object: checked handles need a place to look
// that does not depend on any handle. Never destroyed, since threads of the
// host may outlive main().
struct Registry {
  static constexpr size_t kShards = 16;
  std::array<Shard, kShards> shards;
  std::atomic<uint64_t> next{1};
  // What was made before is the parent's of this process, whose threads are not
  // here: nothing can be done with it, and nothing be joined.
  std::atomic<uint64_t> first{1};

  Registry();
  Shard& Of(uint64_t handle) { return shards[(handle >> 4) % kShards]; }
  bool IsOurs(uint64_t handle) const {
    return (handle & ~kTag) >> 4 >= first.load(std::memory_order_relaxed);
  }
};

// Never destroyed, and not in memory that could be missing: see below.
Registry& GetRegistry() {
  alignas(Registry) static std::byte room[sizeof(Registry)];
  static Registry* const registry = new (room) Registry;
  return *registry;
}

// fork() copies mutexes as they are: nobody may be in them.
void BeforeFork() ABSL_NO_THREAD_SAFETY_ANALYSIS {
  for (Shard& shard : GetRegistry().shards) shard.mu.Lock();
}
void AfterForkInParent() ABSL_NO_THREAD_SAFETY_ANALYSIS {
  for (Shard& shard : GetRegistry().shards) shard.mu.Unlock();
}
void AfterForkInChild() {
  Registry& registry = GetRegistry();
  registry.first.store(registry.next.load());
  AfterForkInParent();
}

// Gone with the library, should the host unload it. Without memory for them
// children do what they may.
Registry::Registry() {
  static_cast<void>(
      pthread_atfork(BeforeFork, AfterForkInParent, AfterForkInChild));
}

// When the library is loaded: were it made by the first call, a fork() beside
// that would leave a child who waits for a thread that it does not have.
[[maybe_unused]] const Registry& made_at_load = GetRegistry();

}  // namespace

uint64_t NewHandleNumber(uint64_t type) {
  return kTag |
         (GetRegistry().next.fetch_add(1, std::memory_order_relaxed) << 4) |
         type;
}

void InsertHandle(uint64_t handle, std::shared_ptr<void> object) {
  Shard& shard = GetRegistry().Of(handle);
  MutexLock lock(&shard.mu);
  // A copy: where there is no memory, the object must not end under the mutex.
  shard.objects.emplace(handle, object);
}

std::shared_ptr<void> FindHandle(uint64_t handle) {
  Registry& registry = GetRegistry();
  if (!registry.IsOurs(handle)) return nullptr;
  Shard& shard = registry.Of(handle);
  MutexLock lock(&shard.mu);
  const auto it = shard.objects.find(handle);
  return it == shard.objects.end() ? nullptr : it->second;
}

std::shared_ptr<void> EraseHandle(uint64_t handle) {
  Registry& registry = GetRegistry();
  if (!registry.IsOurs(handle)) return nullptr;
  Shard& shard = registry.Of(handle);
  MutexLock lock(&shard.mu);
  const auto it = shard.objects.find(handle);
  if (it == shard.objects.end()) return nullptr;
  std::shared_ptr<void> object = std::move(it->second);
  shard.objects.erase(it);
  return object;
}

absl::Status BadHandle(const char* wanted, uint64_t handle) {
  if (handle == 0) {
    return InvalidHandleError(FormattedString("the %s handle is null", wanted));
  }
  return InvalidHandleError(FormattedString(
      "%#x is not a live %s handle: released, of another type, made before "
      "fork(), or never made by this library",
      handle, wanted));
}

}  // namespace inlay::api
