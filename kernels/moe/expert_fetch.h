// expert_fetch: keeps the experts of a mixture that were asked for last in
// slots of the device's memory, all of them lying in host memory that the
// device reads. Before a step's products it fetches those that the step needs
// and gives the products a table of where each expert lies.
//
// Slots go to missing experts in ascending order, those used longest ago first
// (of as long ago, the lower one), never one whose expert this step needs. What
// is left without a slot is read by the products where it is. So a step that
// needs all experts, as prompts do, leaves the slots to those that have them.
#ifndef INLAY_KERNELS_MOE_EXPERT_FETCH_H_
#define INLAY_KERNELS_MOE_EXPERT_FETCH_H_

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "kernels/dispatch.h"
#include "kernels/moe/routing.h"

namespace inlay {

// Of one expert: gate and up in one, or apart, and down.
inline constexpr int kMaxExpertMatrices = 3;
// Matrices begin at multiples of it, in slots and in host memory.
inline constexpr size_t kExpertAlignment = 256;

struct ExpertFetchDesc {
  int num_experts = 0;
  int num_slots = 0;  // in [1, num_experts]
  int num_matrices = 0;
  // Of each matrix of an expert.
  size_t bytes[kMaxExpertMatrices] = {};
  // From one to the next: the same, rounded up.
  size_t pitch(int matrix) const {
    return (bytes[matrix] + kExpertAlignment - 1) / kExpertAlignment *
           kExpertAlignment;
  }
  // What a slot takes.
  size_t slot_bytes() const {
    size_t sum = 0;
    for (int m = 0; m < num_matrices; ++m) sum += pitch(m);
    return sum;
  }
};

// Sums over the steps so far. Each expert that a step needs is one of the
// three.
struct ExpertFetchCounts {
  int64_t steps = 0;
  int64_t hits = 0;     // it had a slot
  int64_t fetches = 0;  // it was copied to one
  int64_t direct = 0;   // there was none to give
};

struct ExpertCopy {
  int32_t expert = 0;
  int32_t slot = 0;
};

// What is kept between steps: on the device, one a layer. A step of a layer
// changes it in its stream's order: steps of the layer must be ordered.
struct ExpertFetchState {
  ExpertFetchCounts* counts = nullptr;
  int64_t* last_use = nullptr;    // [num_slots]: the step; 0: never
  int32_t* slot_of = nullptr;     // [num_experts]; -1: none
  int32_t* expert_of = nullptr;   // [num_slots]; -1: none
  int32_t* num_copies = nullptr;  // of the step
  ExpertCopy* copies = nullptr;   // [num_slots]
  // [num_matrices][num_experts]: where a matrix lies, in bytes from
  // ExpertFetchParams::slots of it (ExpertMatrices::table).
  int64_t* table = nullptr;
};

// How many bytes it takes, at a multiple of 16, and where in them what lies.
size_t ExpertFetchStateBytes(const ExpertFetchDesc& desc);
ExpertFetchState ExpertFetchStateAt(const ExpertFetchDesc& desc,
                                    std::byte* base);

struct ExpertFetchParams {
  // As routing gives it: an expert is needed that has a slot of the step.
  const int32_t* offsets = nullptr;  // [num_experts + 1]
  ExpertFetchState state;
  // Matrix m of expert e lies at host[m] + e * pitch(m), that of slot s at
  // slots[m] + s * pitch(m). The device reads both; at multiples of 16.
  const std::byte* host[kMaxExpertMatrices] = {};
  std::byte* slots[kMaxExpertMatrices] = {};
};

using ExpertFetchRow = KernelRow<ExpertFetchDesc, ExpertFetchParams>;

// Nothing is read on the host. All rows give the same state and bytes.
absl::Span<const ExpertFetchRow> ExpertFetchTable();

// The state before the first step, `params.state` in host memory: nothing has a
// slot.
void InitExpertFetch(const ExpertFetchDesc& desc,
                     const ExpertFetchParams& params);

// A step's changes of the state, without the copies; all pointers but `host`
// and `slots`, which are not followed, in host memory.
void PlanExpertFetch(const ExpertFetchDesc& desc,
                     const ExpertFetchParams& params);

// INVALID_ARGUMENT naming the first number that is out of range.
absl::Status ValidateExpertFetch(const ExpertFetchDesc& desc);

}  // namespace inlay

#endif  // INLAY_KERNELS_MOE_EXPERT_FETCH_H_
