// AddressRange: one run of a device's addresses whose memory comes and goes
// piece by piece, so that kernels can see as one tensor what grows and shrinks.
#ifndef INLAY_MEMORY_DEVICE_ADDRESS_RANGE_H_
#define INLAY_MEMORY_DEVICE_ADDRESS_RANGE_H_

#include <cstddef>

#include "absl/status/status.h"

namespace inlay {

// Of the device that made it, which must outlive it. Offsets and sizes are
// multiples of Device::range_granularity(). Thread-compatible.
class AddressRange {
 public:
  // Gives back whatever is mapped.
  virtual ~AddressRange() = default;
  virtual std::byte* base() const = 0;
  virtual size_t bytes() const = 0;
  // Puts memory, contents unspecified, behind [offset, offset + bytes), which
  // must have none. It counts against the device's budget: RESOURCE_EXHAUSTED
  // and out of memory as Device::Allocate() has them.
  virtual absl::Status Map(size_t offset, size_t bytes) = 0;
  // Takes away again what one Map() of the same offset gave. No work that is
  // still queued may touch it.
  virtual void Unmap(size_t offset) = 0;
};

}  // namespace inlay

#endif  // INLAY_MEMORY_DEVICE_ADDRESS_RANGE_H_
