// DeviceSampler: where a step's options lie on a device that samples, and where
// its tokens come back to. Knows no requests.
#ifndef INLAY_CORE_ENGINE_DEVICE_SAMPLER_H_
#define INLAY_CORE_ENGINE_DEVICE_SAMPLER_H_

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

// One thread at a time. Addresses stay, so that what is queued here can be
// recorded.
class DeviceSampler {
 public:
  // More is the host's: it need not copy them.
  static constexpr size_t kMostEdits = size_t{1} << 16;

  // Null where the device has no kernel for such a vocabulary, and on devices
  // whose memory the host reads: it samples there itself. `device` must
  // outlive it. The device's errors.
  static absl::StatusOr<std::unique_ptr<DeviceSampler>> Create(
      Device* device, int64_t vocab, int64_t max_rows);

  // Queues the upload for a step of `rows` rows, of which those without options
  // are left out. The step before must be over.
  absl::Status Upload(const SampleBatch& batch, int64_t rows, Stream& stream);
  // Queues sampling of rows [begin, begin + logits.rows()) of the step; changes
  // the logits.
  absl::Status Sample(const TensorView& logits, int64_t begin, Stream& stream);
  // Queues the way back of `rows` tokens.
  absl::Status Fetch(int64_t rows, Stream& stream);

  // Of the step's rows, once the stream is idle: tokens or the codes of
  // sample.h.
  const int32_t* tokens() const { return host_tokens_.as<int32_t>(); }

 private:
  DeviceSampler(Device* device, const SampleRow* row, int64_t vocab)
      : device_(device), row_(row), desc_{vocab} {}

  Device* device_;
  const SampleRow* row_;
  const SampleDesc desc_;
  Buffer options_, host_options_;
  Buffer edits_, host_edits_;
  Buffer tokens_, host_tokens_;
};

}  // namespace inlay

#endif  // INLAY_CORE_ENGINE_DEVICE_SAMPLER_H_
