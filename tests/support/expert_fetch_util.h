// What the tests of expert_fetch share: a layer's experts in host memory, slots
// and a state, and what must hold of them. Header only.
#ifndef INLAY_TESTS_SUPPORT_EXPERT_FETCH_UTIL_H_
#define INLAY_TESTS_SUPPORT_EXPERT_FETCH_UTIL_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/moe/expert_fetch.h"

namespace inlay::testing {

// Offsets of a routing in which `wanted` have one to three rows each.
inline std::vector<int32_t> OffsetsOf(int num_experts,
                                      const std::vector<int32_t>& wanted) {
  std::vector<int32_t> offsets(static_cast<size_t>(num_experts) + 1, 0);
  for (const int32_t e : wanted)
    offsets[static_cast<size_t>(e) + 1] = 1 + e % 3;
  std::partial_sum(offsets.begin(), offsets.end(), offsets.begin());
  return offsets;
}

// `count` different experts at most, ascending; low ones more often.
inline std::vector<int32_t> DrawExperts(int num_experts, int count,
                                        std::mt19937& rng) {
  std::vector<int32_t> drawn;
  for (int i = 0; i < 4 * count; ++i) {
    const auto e = static_cast<int32_t>(
        std::min(rng() % static_cast<unsigned>(num_experts),
                 rng() % static_cast<unsigned>(num_experts)));
    if (std::find(drawn.begin(), drawn.end(), e) == drawn.end() &&
        static_cast<int>(drawn.size()) < count) {
      drawn.push_back(e);
    }
  }
  std::sort(drawn.begin(), drawn.end());
  return drawn;
}

// All of it in host memory.
class FetchProblem {
 public:
  FetchProblem(int num_experts, int num_slots, int num_matrices) {
    desc_.num_experts = num_experts;
    desc_.num_slots = num_slots;
    desc_.num_matrices = num_matrices;
    std::mt19937 rng(5);
    for (int m = 0; m < num_matrices; ++m) {
      // One no multiple of the alignment, one of several pieces.
      desc_.bytes[m] = m == 0 ? 272 : m == 1 ? 17 * 1024 + 48 : 256;
      const auto at = static_cast<size_t>(m);
      host_[at].resize(desc_.pitch(m) * static_cast<size_t>(num_experts));
      slots_[at].resize(desc_.pitch(m) * static_cast<size_t>(num_slots));
      for (std::byte& b : host_[at]) b = static_cast<std::byte>(rng());
      params_.host[m] = host_[at].data();
      params_.slots[m] = slots_[at].data();
    }
    state_.resize((ExpertFetchStateBytes(desc_) + 7) / 8);
    params_.state =
        ExpertFetchStateAt(desc_, reinterpret_cast<std::byte*>(state_.data()));
    InitExpertFetch(desc_, params_);
  }

  absl::Status Run(const ExpertFetchRow& row,
                   const std::vector<int32_t>& wanted, Stream& stream) {
    const std::vector<int32_t> offsets = OffsetsOf(desc_.num_experts, wanted);
    params_.offsets = offsets.data();
    return row.run(desc_, params_, stream);
  }

  // Slots and experts know of each other, and what the table says of any expert
  // holds its bytes.
  void CheckState() const {
    for (int s = 0; s < desc_.num_slots; ++s) {
      const int32_t e = params_.state.expert_of[s];
      if (e < 0) continue;
      EXPECT_EQ(params_.state.slot_of[e], s);
    }
    for (int e = 0; e < desc_.num_experts; ++e) {
      const int32_t slot = params_.state.slot_of[e];
      if (slot >= 0) {
        EXPECT_EQ(params_.state.expert_of[slot], e);
      }
      for (int m = 0; m < desc_.num_matrices; ++m) {
        const auto at = reinterpret_cast<uintptr_t>(params_.slots[m]) +
                        static_cast<uintptr_t>(
                            params_.state.table[m * desc_.num_experts + e]);
        const std::byte* stored =
            params_.host[m] + static_cast<size_t>(e) * desc_.pitch(m);
        if (slot < 0) {
          EXPECT_EQ(at, reinterpret_cast<uintptr_t>(stored));
        }
        EXPECT_EQ(std::memcmp(reinterpret_cast<const void*>(at), stored,
                              desc_.bytes[m]),
                  0)
            << "expert " << e << " matrix " << m;
      }
    }
  }

  const ExpertFetchDesc& desc() const { return desc_; }
  const ExpertFetchParams& params() const { return params_; }
  const std::vector<std::byte>& host(int m) const {
    return host_[static_cast<size_t>(m)];
  }
  const std::vector<std::byte>& slots(int m) const {
    return slots_[static_cast<size_t>(m)];
  }
  const std::vector<int64_t>& state() const { return state_; }
  ExpertFetchCounts counts() const { return *params_.state.counts; }
  int32_t num_copies() const { return *params_.state.num_copies; }
  std::vector<int32_t> slot_of() const {
    return {params_.state.slot_of, params_.state.slot_of + desc_.num_experts};
  }

 private:
  ExpertFetchDesc desc_;
  ExpertFetchParams params_;
  std::vector<std::byte> host_[kMaxExpertMatrices];
  std::vector<std::byte> slots_[kMaxExpertMatrices];
  std::vector<int64_t> state_;
};

}  // namespace inlay::testing

#endif  // INLAY_TESTS_SUPPORT_EXPERT_FETCH_UTIL_H_
