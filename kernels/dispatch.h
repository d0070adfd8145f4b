// How an op chooses its kernel: one ordered constant table of rows, and
// Select(), a pure function over it. Selection happens at load time, per layer
// and shape bucket; forward only calls row->run. Knows no ops.
#ifndef INLAY_KERNELS_DISPATCH_H_
#define INLAY_KERNELS_DISPATCH_H_

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "memory/device/device.h"
#include "memory/formatted_string.h"

namespace inlay {

// How a row wants a weight matrix to lie where that is not as in its file.
template <typename Desc>
struct WeightPacking {
  // Rows go into it this many at a time.
  int64_t group;
  // Of the whole packed matrix.
  size_t (*bytes)(const Desc& desc);
  // Packs rows [first, first + count): `rows` holds them one after another.
  // first is a multiple of group, and so is count, but at the matrix's end.
  // Different ranges may run at once.
  void (*pack)(const Desc& desc, const std::byte* rows, int64_t first,
               int64_t count, std::byte* packed);
  // The same on a device, all pointers there, queued; null where weights are
  // packed on the host.
  absl::Status (*pack_on_device)(const Desc& desc, const std::byte* rows,
                                 int64_t first, int64_t count,
                                 std::byte* packed, Stream& stream) = nullptr;
  // Adds to `desc` what packed weights on the device say of themselves and the
  // kernel uses; null: nothing. For load time: waits for the stream.
  absl::Status (*inspect)(Desc& desc, const std::byte* packed,
                          Stream& stream) = nullptr;
};

// One implementation of an op. Desc says what is computed (shapes that are
// fixed at load time, dtypes, features); Params hold the tensors and sizes of
// one call.
template <typename Desc, typename Params>
struct KernelRow {
  std::string_view name;
  DeviceKind device;
  int min_sm;  // CUDA rows: least compute capability * 10; 0 on CPU
  // Null when this row computes `desc` on such a device; otherwise why not, as
  // a phrase.
  const char* (*refuses)(const Desc& desc, const DeviceInfo& device);
  // Scratch the row needs for one call of at most `max_rows` rows (tokens);
  // null: none.
  size_t (*workspace_bytes)(const Desc& desc, int64_t max_rows);
  // Never allocates and never fails on valid Params; errors are device errors.
  absl::Status (*run)(const Desc& desc, const Params& params, Stream& stream);
  // Null: weights as they lie in the file. Otherwise Params' weight view has
  // the matrix's shape and format, and the packed bytes as its data.
  const WeightPacking<Desc>* (*packing)(const Desc& desc) = nullptr;
};

// The first row that serves `desc` on `device`, or the row named `forced` when
// that is not empty. NOT_FOUND lists every row and why it refused.
template <typename Desc, typename Params>
absl::StatusOr<const KernelRow<Desc, Params>*> Select(
    std::string_view op, absl::Span<const KernelRow<Desc, Params>> table,
    const Desc& desc, const DeviceInfo& device, std::string_view forced = {}) {
  std::string reasons;
  for (const KernelRow<Desc, Params>& row : table) {
    const char* reason = nullptr;
    if (!forced.empty() && row.name != forced) {
      reason = "not the row that is forced";
    } else if (row.device != device.kind) {
      reason = "other device";
    } else if (row.min_sm > device.sm) {
      reason = "needs a newer compute capability";
    } else {
      reason = row.refuses == nullptr ? nullptr : row.refuses(desc, device);
    }
    if (reason == nullptr) return &row;
    reasons += FormattedString("%s%s: %s", reasons.empty() ? "" : "; ",
                               row.name, reason);
  }
  return absl::NotFoundError(FormattedString(
      "%s: no kernel serves this call on %s%s%s (%s)", op, device.name,
      forced.empty() ? "" : ", where the row is forced to be ", forced,
      reasons));
}

}  // namespace inlay

#endif  // INLAY_KERNELS_DISPATCH_H_
