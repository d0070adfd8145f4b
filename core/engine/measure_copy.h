// What a device's memory gives: the roofline of decoding.
#ifndef INLAY_CORE_ENGINE_MEASURE_COPY_H_
#define INLAY_CORE_ENGINE_MEASURE_COPY_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "memory/device/device.h"

namespace inlay {

// Bytes read plus bytes written a second by copies of `bytes` (> 0) within the
// device's memory, over about 20 ms; scratch of twice `bytes` meanwhile. The
// device's errors.
absl::StatusOr<double> MeasureCopy(Device& device, uint64_t bytes);

}  // namespace inlay

#endif  // INLAY_CORE_ENGINE_MEASURE_COPY_H_
