#include "core/engine/measure_copy.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "memory/device/thread_pool.h"
#include "memory/status.h"

namespace inlay {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kSeconds = 0.02;
constexpr int64_t kPiece = 1 << 20;

absl::Status Copy(Device& device, const Buffer& to, const Buffer& from,
                  Stream& stream) {
  ThreadPool* const pool = stream.thread_pool();
  if (pool == nullptr)
    return device.Copy(to.data(), from.data(), to.bytes(), stream);
  const auto bytes = static_cast<int64_t>(to.bytes());
  pool->ParallelFor(bytes, kPiece, [&](int64_t begin, int64_t end) {
    std::memcpy(to.data() + begin, from.data() + begin,
                static_cast<size_t>(end - begin));
  });
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<double> MeasureCopy(Device& device, uint64_t bytes) {
  INLAY_ASSIGN_OR_RETURN(const auto stream, device.CreateStream());
  INLAY_ASSIGN_OR_RETURN(const Buffer from,
                         device.Allocate(bytes, MemoryClass::kWorkspace));
  INLAY_ASSIGN_OR_RETURN(const Buffer to,
                         device.Allocate(bytes, MemoryClass::kWorkspace));
  // So that every page is there.
  INLAY_RETURN_IF_ERROR(Copy(device, from, to, *stream));
  INLAY_RETURN_IF_ERROR(Copy(device, to, from, *stream));
  INLAY_RETURN_IF_ERROR(stream->Synchronize());
  int64_t copies = 0;
  int64_t batch = 1;
  const Clock::time_point begin = Clock::now();
  double seconds = 0;
  while (seconds < kSeconds) {
    for (int64_t i = 0; i < batch; ++i)
      INLAY_RETURN_IF_ERROR(Copy(device, to, from, *stream));
    INLAY_RETURN_IF_ERROR(stream->Synchronize());
    copies += batch;
    // Waiting costs as much as small copies do.
    batch = std::min<int64_t>(2 * batch, 64);
    seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  }
  return 2.0 * static_cast<double>(bytes) * static_cast<double>(copies) /
         seconds;
}

}  // namespace inlay
