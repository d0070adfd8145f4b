#include "kernels/moe/expert_fetch.h"

#include "kernels/validate.h"
#include "memory/status.h"

namespace inlay {

absl::Status RunExpertFetchCpu(const ExpertFetchDesc& desc,
                               const ExpertFetchParams& params,
                               Stream& stream);  // expert_fetch_cpu.cc

#if INLAY_HAS_CUDA
absl::Status RunExpertFetchCuda(const ExpertFetchDesc& desc,
                                const ExpertFetchParams& params,
                                Stream& stream);  // expert_fetch_cuda.cu
#endif

namespace {

const char* Refuses(const ExpertFetchDesc& desc, const DeviceInfo&) {
  return ValidateExpertFetch(desc).ok()
             ? nullptr
             : "numbers of experts, slots or matrices are out of range";
}

constexpr ExpertFetchRow kRows[] = {
#if INLAY_HAS_CUDA
    {"cuda", DeviceKind::kCuda, 80, Refuses, nullptr, RunExpertFetchCuda},
#endif
    {"cpu_scalar", DeviceKind::kCpu, 0, Refuses, nullptr, RunExpertFetchCpu},
};

// Hands out parts of the state; what takes most to align comes first.
class Parts {
 public:
  explicit Parts(std::byte* base) : base_(base) {}
  template <typename T>
  T* Take(int64_t count) {
    T* part = base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + used_);
    used_ += static_cast<size_t>(count) * sizeof(T);
    return part;
  }
  size_t used() const { return used_; }

 private:
  std::byte* base_;
  size_t used_ = 0;
};

ExpertFetchState Place(const ExpertFetchDesc& desc, Parts& parts) {
  ExpertFetchState state;
  state.counts = parts.Take<ExpertFetchCounts>(1);
  state.table =
      parts.Take<int64_t>(int64_t{desc.num_matrices} * desc.num_experts);
  state.last_use = parts.Take<int64_t>(desc.num_slots);
  state.copies = parts.Take<ExpertCopy>(desc.num_slots);
  state.slot_of = parts.Take<int32_t>(desc.num_experts);
  state.expert_of = parts.Take<int32_t>(desc.num_slots);
  state.num_copies = parts.Take<int32_t>(1);
  return state;
}

}  // namespace

absl::Span<const ExpertFetchRow> ExpertFetchTable() { return kRows; }

size_t ExpertFetchStateBytes(const ExpertFetchDesc& desc) {
  Parts parts(nullptr);
  Place(desc, parts);
  return parts.used();
}

ExpertFetchState ExpertFetchStateAt(const ExpertFetchDesc& desc,
                                    std::byte* base) {
  Parts parts(base);
  return Place(desc, parts);
}

absl::Status ValidateExpertFetch(const ExpertFetchDesc& desc) {
  constexpr char kOp[] = "expert_fetch";
  INLAY_RETURN_IF_ERROR(
      CheckRange(kOp, "num_experts", desc.num_experts, 1, kMaxExperts));
  INLAY_RETURN_IF_ERROR(
      CheckRange(kOp, "num_slots", desc.num_slots, 1, desc.num_experts));
  INLAY_RETURN_IF_ERROR(CheckRange(kOp, "num_matrices", desc.num_matrices, 1,
                                   kMaxExpertMatrices));
  for (int m = 0; m < desc.num_matrices; ++m) {
    INLAY_RETURN_IF_ERROR(CheckRange(kOp, "bytes",
                                     static_cast<int64_t>(desc.bytes[m]), 1,
                                     int64_t{1} << 40));
  }
  return absl::OkStatus();
}

}  // namespace inlay
