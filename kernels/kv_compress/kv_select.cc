#include "kernels/kv_compress/kv_select.h"

#include <limits>

#include "kernels/kv_compress/kv_compress.h"
#include "kernels/validate.h"
#include "memory/status.h"

namespace inlay {

absl::Status RunKvSelectCpu(const KvSelectDesc& desc,
                            const KvSelectParams& params,
                            Stream& stream);  // kv_select_cpu.cc

#if INLAY_HAS_CUDA
absl::Status RunKvSelectCuda(const KvSelectDesc& desc,
                             const KvSelectParams& params,
                             Stream& stream);  // kv_select_cuda.cu
#endif

namespace {

const char* Refuses(const KvSelectDesc& desc, const DeviceInfo&) {
  return ValidateKvSelect(desc).ok() ? nullptr : "a number is out of range";
}

constexpr KvSelectRow kRows[] = {
#if INLAY_HAS_CUDA
    {"cuda", DeviceKind::kCuda, 80, Refuses, nullptr, RunKvSelectCuda},
#endif
    {"cpu_scalar", DeviceKind::kCpu, 0, Refuses, nullptr, RunKvSelectCpu},
};

}  // namespace

absl::Span<const KvSelectRow> KvSelectTable() { return kRows; }

absl::Status ValidateKvSelect(const KvSelectDesc& desc) {
  constexpr char kOp[] = "kv_select";
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max() / 2;
  INLAY_RETURN_IF_ERROR(CheckRange(kOp, "window", desc.window, 1, kMost));
  INLAY_RETURN_IF_ERROR(CheckRange(kOp, "most", desc.most, 1, kMost));
  return CheckRange(kOp, "row_tokens", desc.row_tokens, 1, kMaxRowTokens);
}

}  // namespace inlay
