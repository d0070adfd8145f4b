// expert_fetch in plain C++: what the rows for devices are held against.
#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/moe/expert_fetch.h"

namespace inlay {
namespace {

// Has the table say where expert `e` is: in its slot, or in host memory.
void Locate(const ExpertFetchDesc& desc, const ExpertFetchParams& params,
            int e) {
  const int slot = params.state.slot_of[e];
  for (int m = 0; m < desc.num_matrices; ++m) {
    const auto pitch = static_cast<int64_t>(desc.pitch(m));
    // Apart: numbers, not pointers into one thing.
    const auto apart = reinterpret_cast<intptr_t>(params.host[m]) -
                       reinterpret_cast<intptr_t>(params.slots[m]);
    params.state.table[m * desc.num_experts + e] =
        slot < 0 ? apart + static_cast<int64_t>(e) * pitch
                 : static_cast<int64_t>(slot) * pitch;
  }
}

}  // namespace

void InitExpertFetch(const ExpertFetchDesc& desc,
                     const ExpertFetchParams& params) {
  const ExpertFetchState& state = params.state;
  *state.counts = ExpertFetchCounts();
  *state.num_copies = 0;
  std::fill_n(state.last_use, desc.num_slots, int64_t{0});
  std::fill_n(state.copies, desc.num_slots, ExpertCopy());
  std::fill_n(state.slot_of, desc.num_experts, -1);
  std::fill_n(state.expert_of, desc.num_slots, -1);
  for (int e = 0; e < desc.num_experts; ++e) Locate(desc, params, e);
}

void PlanExpertFetch(const ExpertFetchDesc& desc,
                     const ExpertFetchParams& params) {
  const ExpertFetchState& state = params.state;
  const int64_t now = ++state.counts->steps;
  std::vector<int32_t> missing;
  for (int e = 0; e < desc.num_experts; ++e) {
    if (params.offsets[e] == params.offsets[e + 1]) continue;
    if (state.slot_of[e] < 0) {
      missing.push_back(e);
      continue;
    }
    ++state.counts->hits;
    state.last_use[state.slot_of[e]] = now;
  }
  std::vector<int32_t> free;
  for (int s = 0; s < desc.num_slots; ++s) {
    if (state.last_use[s] != now) free.push_back(s);
  }
  std::stable_sort(free.begin(), free.end(), [&](int32_t a, int32_t b) {
    return state.last_use[a] < state.last_use[b];
  });
  const size_t count = std::min(free.size(), missing.size());
  for (size_t i = 0; i < count; ++i) {
    const int32_t slot = free[i];
    const int32_t old = state.expert_of[slot];
    if (old >= 0) {
      state.slot_of[old] = -1;
      Locate(desc, params, old);
    }
    state.slot_of[missing[i]] = slot;
    state.expert_of[slot] = missing[i];
    state.last_use[slot] = now;
    state.copies[i] = {missing[i], slot};
    Locate(desc, params, missing[i]);
  }
  *state.num_copies = static_cast<int32_t>(count);
  state.counts->fetches += static_cast<int64_t>(count);
  state.counts->direct += static_cast<int64_t>(missing.size() - count);
}

absl::Status RunExpertFetchCpu(const ExpertFetchDesc& desc,
                               const ExpertFetchParams& params, Stream&) {
  PlanExpertFetch(desc, params);
  for (int i = 0; i < *params.state.num_copies; ++i) {
    const ExpertCopy& copy = params.state.copies[i];
    for (int m = 0; m < desc.num_matrices; ++m) {
      const size_t pitch = desc.pitch(m);
      std::memcpy(params.slots[m] + static_cast<size_t>(copy.slot) * pitch,
                  params.host[m] + static_cast<size_t>(copy.expert) * pitch,
                  desc.bytes[m]);
    }
  }
  return absl::OkStatus();
}

}  // namespace inlay
