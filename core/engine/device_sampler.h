// DeviceSampler: where a step's options lie on a device that samples, and where
// its tokens come back to. Knows no requests.
#ifndef INLAY_CORE_ENGINE_DEVICE_SAMPLER_H_
#define INLAY_CORE_ENGINE_DEVICE_SAMPLER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/sample/sample.h"
#include "memory/device/device.h"

namespace inlay {

// How a step's rows of logits are sampled.
struct SampleBatch {
  absl::Span<const SampleOptions> options;  // a row each, without masks
  absl::Span<const LogitEdit> edits;        // at most kMostEdits
};

// One thread at a time. What Sample() queues has the same addresses in every
// step, so that it can be recorded; what crosses to and from the host goes
// through memory of the step's turn.
class DeviceSampler {
 public:
  // Steps that may be under way at once: one computes, the next is queued.
  static constexpr int kTurns = 2;
  // More is the host's: it need not copy them.
  static constexpr size_t kMostEdits = size_t{1} << 16;

  // Null where the device has no kernel for such a vocabulary, and on devices
  // whose memory the host reads: it samples there itself. `device` must
  // outlive it. The device's errors.
  static absl::StatusOr<std::unique_ptr<DeviceSampler>> Create(
      Device* device, int64_t vocab, int64_t max_rows);

  // What a step of `rows` rows adds to the image of its batch.
  static size_t ImageBytes(int64_t rows) {
    return static_cast<size_t>(rows) * sizeof(SampleOptions);
  }
  // Writes that to `image`, to be copied to `device`, where Sample() reads it;
  // rows without options are left out. Queues what else there is to upload. The
  // last step of this turn must be over.
  absl::Status Pack(const SampleBatch& batch, int64_t rows, int turn,
                    std::byte* image, const std::byte* device, Stream& stream);
  // Queues sampling of rows [begin, begin + logits.rows()) of the step; changes
  // the logits.
  absl::Status Sample(const TensorView& logits, int64_t begin, Stream& stream);
  // Queues the way back of `rows` tokens.
  absl::Status Fetch(int64_t rows, int turn, Stream& stream);
  // Queues copies of the last step's tokens to `to`, on the device: of row
  // rows[i] to to[i].
  absl::Status Gather(absl::Span<const int32_t> rows, int32_t* to,
                      Stream& stream);

  // Of the rows of the turn's last step, once that is over: tokens or the codes
  // of sample.h.
  const int32_t* tokens(int turn) const {
    return host_[static_cast<size_t>(turn)].tokens.as<int32_t>();
  }

 private:
  DeviceSampler(Device* device, const SampleRow* row, int64_t vocab)
      : device_(device), row_(row), desc_{vocab} {}

  Device* device_;
  const SampleRow* row_;
  const SampleDesc desc_;
  struct Arrays {
    Buffer edits, tokens;
  };
  const SampleOptions* options_ = nullptr;  // on the device
  Arrays arrays_;
  std::array<Arrays, kTurns> host_;
};

}  // namespace inlay

#endif  // INLAY_CORE_ENGINE_DEVICE_SAMPLER_H_
