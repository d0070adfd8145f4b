// WeightLoader: brings a model's tensors from a WeightSource (or a random draw)
// onto a device, checked against the shapes the architecture wants. Knows
// nothing of architectures or kernels.
#ifndef INLAY_CORE_MODEL_WEIGHTS_H_
#define INLAY_CORE_MODEL_WEIGHTS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/formats/model_files.h"
#include "core/formats/weight_source.h"
#include "memory/device/device.h"
#include "memory/device/thread_pool.h"
#include "memory/tensor.h"

namespace inlay {

// Told bytes done and bytes in all as loading goes on, on the loading thread.
// Returning false cancels.
using LoadProgress = std::function<bool(uint64_t done, uint64_t total)>;

// What keeps loaded weights alive. Its device must outlive it.
struct WeightStorage {
  std::shared_ptr<const WeightSource> source;  // mapped tensors; may be null
  std::vector<Buffer> buffers;
};

enum class VectorKind : uint8_t {
  kScale,             // a norm's weight
  kZeroCentredScale,  // a norm's weight stored without its 1, which is added
  kBias,
};

// Planning goes through the same calls as loading, checks everything and counts
// but reads and allocates nothing: views come back without data. One thread.
class WeightLoader {
 public:
  enum class Mode : uint8_t { kPlan, kLoad };

  // `files` and `device` must outlive the loader. `total_bytes`: what a plan
  // counted, for progress; unused when planning.
  WeightLoader(const ModelFiles& files, Device& device, Mode mode,
               LoadProgress progress = nullptr, uint64_t total_bytes = 0);

  // A prefix ("model.") that files saved from the bare network lack: a name
  // that starts with it is also looked up without it.
  void set_optional_prefix(std::string_view prefix) { prefix_ = prefix; }

  // A matrix [n, k] in its own dtype (f32, f16 or bf16): where the file is
  // mapped, or a copy. The view lives as long as the storage.
  absl::StatusOr<TensorView> Matrix(const std::string& name, int64_t n,
                                    int64_t k);
  // The matrix [n, k] of a tensor stored as [k, n] (GPT-2's Conv1D).
  absl::StatusOr<TensorView> Transposed(const std::string& name, int64_t n,
                                        int64_t k);
  // A vector [size], widened to float32. Null when planning.
  absl::StatusOr<const float*> Vector(const std::string& name, int64_t size,
                                      VectorKind kind);

  // Errors of all three: NOT_FOUND naming the tensor; INVALID_ARGUMENT naming
  // it, the shape got and the shape wanted; UNIMPLEMENTED for another dtype;
  // RESOURCE_EXHAUSTED; CANCELLED.

  uint64_t num_parameters() const { return num_parameters_; }
  uint64_t bytes() const { return bytes_; }
  Mode mode() const { return mode_; }
  // Hands over what the views point into; call once, after the last load.
  WeightStorage TakeStorage();

 private:
  absl::StatusOr<const WeightInfo*> Find(const std::string& name,
                                         absl::Span<const int64_t> shape) const;
  absl::StatusOr<Buffer> ReadCopy(const WeightInfo& info,
                                  MemoryClass memory_class);
  absl::StatusOr<const std::byte*> Bytes(const WeightInfo& info,
                                         Buffer& staging);
  absl::StatusOr<TensorView> RandomMatrix(const std::string& name, int64_t n,
                                          int64_t k);
  absl::Status Count(uint64_t elements, uint64_t bytes);
  absl::StatusOr<ThreadPool*> Pool();

  const ModelFiles& files_;
  Device& device_;
  Mode mode_;
  LoadProgress progress_;
  uint64_t total_bytes_;
  std::string prefix_;
  WeightStorage storage_;
  // Its own: the device's pool may be running another model's step.
  std::unique_ptr<ThreadPool> pool_;
  uint64_t num_parameters_ = 0;
  uint64_t bytes_ = 0;
};

}  // namespace inlay

#endif  // INLAY_CORE_MODEL_WEIGHTS_H_
