// The registry behind the C ABI's opaque pointers. A handle is a number, not an
// address: it is looked up, never dereferenced, so null, stale, foreign and
// wrongly typed handles are found out instead of followed.
#ifndef INLAY_API_SRC_HANDLES_H_
#define INLAY_API_SRC_HANDLES_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/engine/engine.h"
#include "inlay/inlay.h"
#include "memory/caught.h"

namespace inlay::api {

// What holds a model of an engine. Whoever lets go of the model last (the
// release of a handle, or a call that ran beside it) has the engine reclaim it:
// members of those derived from it are gone when it goes.
struct OfEngine {
  OfEngine(std::shared_ptr<Engine> its_engine)  // NOLINT: as aggregates have it
      : engine(std::move(its_engine)) {}
  OfEngine(OfEngine&&) = default;
  ~OfEngine() {
    if (engine != nullptr) engine->WakeToReclaim();
  }

  std::shared_ptr<Engine> engine;
};

// What each handle type stands for.
struct EngineHandle {
  std::shared_ptr<Engine> engine;
};
struct ModelHandle : OfEngine {
  Engine::Loaded loaded;
};
struct SessionHandle : OfEngine {
  std::shared_ptr<ModelRunner> runner;
  SessionId id = 0;
};
struct RequestHandle : OfEngine {
  static constexpr RequestId kNone = ~RequestId{0};

  RequestHandle(std::shared_ptr<Engine> its_engine,
                std::shared_ptr<ModelRunner> its_runner)
      : OfEngine(std::move(its_engine)), runner(std::move(its_runner)) {}

  // Events carry the handle and may reach another thread before the submitting
  // one has the id: those calls wait the moment it takes.
  RequestId id() const {
    id_.wait(0);
    return id_.load();
  }
  // kNone: there will be no request.
  void Resolve(RequestId id) {
    id_.store(id);
    id_.notify_all();
  }

  std::shared_ptr<ModelRunner> runner;

 private:
  std::atomic<RequestId> id_{0};
};
struct PrefixHandle : OfEngine {
  std::shared_ptr<ModelRunner> runner;
  PrefixId id = 0;
};
struct EventHandle {
  Event event;
};
struct BufferHandle {
  std::string bytes;
};
struct ErrorHandle {
  inlay_status status = INLAY_OK;
  std::string message;
};

// The C type, the type number in the handle, and the name in messages.
template <typename T>
struct HandleTraits;
#define INLAY_HANDLE(Object, c_type, number, text) \
  template <>                                      \
  struct HandleTraits<Object> {                    \
    using Pointer = c_type*;                       \
    static constexpr uint64_t kType = number;      \
    static constexpr const char* kName = text;     \
  };
INLAY_HANDLE(EngineHandle, inlay_engine, 1, "engine")
INLAY_HANDLE(ModelHandle, inlay_model, 2, "model")
INLAY_HANDLE(SessionHandle, inlay_session, 3, "session")
INLAY_HANDLE(RequestHandle, inlay_request, 4, "request")
INLAY_HANDLE(EventHandle, inlay_event, 5, "event")
INLAY_HANDLE(BufferHandle, inlay_buffer, 6, "buffer")
INLAY_HANDLE(ErrorHandle, inlay_error, 7, "error")
INLAY_HANDLE(PrefixHandle, inlay_prefix, 8, "prefix")
#undef INLAY_HANDLE

// The untyped registry; thread-safe. Numbers are never used twice.
uint64_t NewHandleNumber(uint64_t type);
void InsertHandle(uint64_t handle, std::shared_ptr<void> object);
// Null when there is no such handle.
std::shared_ptr<void> FindHandle(uint64_t handle);
std::shared_ptr<void> EraseHandle(uint64_t handle);
inline uint64_t HandleType(uint64_t handle) { return handle & 0xf; }
absl::Status BadHandle(const char* wanted, uint64_t handle);

template <typename T>
typename HandleTraits<T>::Pointer AddHandle(T object) {
  const uint64_t handle = NewHandleNumber(HandleTraits<T>::kType);
  InsertHandle(handle, std::make_shared<T>(std::move(object)));
  return reinterpret_cast<typename HandleTraits<T>::Pointer>(handle);
}

// The same for what was just made in the engine: should there be no memory for
// a handle, `undo` takes it back.
template <typename T, typename Undo>
typename HandleTraits<T>::Pointer AddHandleOr(T object, Undo&& undo) {
  auto take_back = absl::MakeCleanup([&] {
    static_cast<void>(Caught([&] {
      undo();
      return absl::OkStatus();
    }));
  });
  const auto handle = AddHandle(std::move(object));
  std::move(take_back).Cancel();
  return handle;
}

template <typename T, typename Pointer>
absl::StatusOr<std::shared_ptr<T>> GetHandle(Pointer pointer) {
  static_assert(sizeof(Pointer) == sizeof(uint64_t));
  const auto handle = reinterpret_cast<uint64_t>(pointer);
  if (HandleType(handle) == HandleTraits<T>::kType) {
    std::shared_ptr<void> object = FindHandle(handle);
    if (object != nullptr) return std::static_pointer_cast<T>(object);
  }
  return BadHandle(HandleTraits<T>::kName, handle);
}

// Takes the object out, so that it dies with the result; null for a bad handle.
template <typename T, typename Pointer>
std::shared_ptr<T> TakeHandle(Pointer pointer) {
  const auto handle = reinterpret_cast<uint64_t>(pointer);
  if (HandleType(handle) != HandleTraits<T>::kType) return nullptr;
  return std::static_pointer_cast<T>(EraseHandle(handle));
}

}  // namespace inlay::api

#endif  // INLAY_API_SRC_HANDLES_H_
