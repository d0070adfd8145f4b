// expert_fetch on CUDA against the reference: the same decisions and the same
// bytes, step after step, with experts in pinned host memory.
#if INLAY_HAS_CUDA

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "kernels/moe/expert_fetch.h"
#include "tests/support/cuda_test_util.h"
#include "tests/support/expert_fetch_util.h"

namespace inlay {
namespace {

using namespace ::inlay::testing;  // NOLINT

// Host memory that the device reads.
class Pinned {
 public:
  explicit Pinned(const std::vector<std::byte>& bytes) {
    EXPECT_EQ(cudaHostAlloc(&data_, bytes.size(), cudaHostAllocPortable),
              cudaSuccess);
    std::memcpy(data_, bytes.data(), bytes.size());
  }
  ~Pinned() { cudaFreeHost(data_); }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;
  const std::byte* bytes() const { return static_cast<std::byte*>(data_); }

 private:
  void* data_ = nullptr;
};

// A FetchProblem on the device.
class CudaFetch {
 public:
  explicit CudaFetch(const FetchProblem& problem) : desc_(problem.desc()) {
    for (int m = 0; m < desc_.num_matrices; ++m) {
      host_.push_back(std::make_unique<Pinned>(problem.host(m)));
      slots_.push_back(std::make_unique<CudaBytes>(problem.slots(m)));
      params_.host[m] = host_.back()->bytes();
      params_.slots[m] = slots_.back()->as<std::byte>();
    }
    std::vector<int64_t> image(problem.state().size());
    ExpertFetchParams first = params_;
    first.state =
        ExpertFetchStateAt(desc_, reinterpret_cast<std::byte*>(image.data()));
    InitExpertFetch(desc_, first);
    state_ = std::make_unique<CudaBytes>(image);
    params_.state = ExpertFetchStateAt(desc_, state_->as<std::byte>());
  }

  absl::Status Run(const ExpertFetchRow& row,
                   const std::vector<int32_t>& wanted, Stream& stream) {
    const CudaBytes offsets(OffsetsOf(desc_.num_experts, wanted));
    params_.offsets = offsets.as<int32_t>();
    const absl::Status status = row.run(desc_, params_, stream);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    return status;
  }

  void ExpectLike(const FetchProblem& want) const {
    std::vector<int64_t> image(want.state().size());
    state_->Download(image.data());
    const ExpertFetchState got =
        ExpertFetchStateAt(desc_, reinterpret_cast<std::byte*>(image.data()));
    const ExpertFetchState& state = want.params().state;
    const auto same = [](const auto* a, const auto* b, int64_t count) {
      return std::memcmp(a, b, static_cast<size_t>(count) * sizeof(*a)) == 0;
    };
    EXPECT_TRUE(same(got.counts, state.counts, 1));
    EXPECT_TRUE(same(got.last_use, state.last_use, desc_.num_slots));
    EXPECT_TRUE(same(got.slot_of, state.slot_of, desc_.num_experts));
    EXPECT_TRUE(same(got.expert_of, state.expert_of, desc_.num_slots));
    ASSERT_EQ(*got.num_copies, *state.num_copies);
    EXPECT_TRUE(same(got.copies, state.copies, *state.num_copies));
    for (int m = 0; m < desc_.num_matrices; ++m) {
      std::vector<std::byte> slots(want.slots(m).size());
      slots_[static_cast<size_t>(m)]->Download(slots.data());
      for (int e = 0; e < desc_.num_experts; ++e) {
        const int64_t at = got.table[m * desc_.num_experts + e];
        const int32_t slot = state.slot_of[e];
        const auto pitch = static_cast<int64_t>(desc_.pitch(m));
        if (slot >= 0) {
          ASSERT_EQ(at, slot * pitch) << e;
          EXPECT_EQ(
              std::memcmp(slots.data() + at, want.host(m).data() + e * pitch,
                          desc_.bytes[m]),
              0)
              << "expert " << e << " matrix " << m;
          continue;
        }
        EXPECT_EQ(reinterpret_cast<intptr_t>(params_.slots[m]) + at,
                  reinterpret_cast<intptr_t>(params_.host[m]) + e * pitch)
            << e;
      }
    }
  }

 private:
  ExpertFetchDesc desc_;
  ExpertFetchParams params_;
  std::vector<std::unique_ptr<Pinned>> host_;
  std::vector<std::unique_ptr<CudaBytes>> slots_;
  std::unique_ptr<CudaBytes> state_;
};

TEST(ExpertFetchCudaTest, DecidesAndCopiesAsTheReference) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  TestCpu cpu(1);
  struct Shape {
    int experts, slots, matrices;
  };
  for (const Shape& shape :
       {Shape{1, 1, 1}, Shape{4, 2, 2}, Shape{31, 31, 2}, Shape{60, 7, 3},
        Shape{128, 32, 2}, Shape{1024, 300, 2}}) {
    for (const int needed : {1, 4, shape.slots, shape.slots + 40}) {
      SCOPED_TRACE(::testing::Message()
                   << shape.experts << " experts, " << shape.slots
                   << " slots, needed " << needed);
      FetchProblem want(shape.experts, shape.slots, shape.matrices);
      const ExpertFetchRow& reference = ExpertFetchTable().back();
      ForEachCudaRow(
          ExpertFetchTable(), want.desc(), cuda,
          [&](const ExpertFetchRow& row) {
            CudaFetch got(want);
            std::mt19937 rng(static_cast<unsigned>(needed));
            for (int step = 0; step < 12; ++step) {
              // One in four asks for nothing, as a step of no tokens does.
              const std::vector<int32_t> wanted =
                  step % 4 == 3 ? std::vector<int32_t>()
                                : DrawExperts(shape.experts, needed, rng);
              ASSERT_TRUE(want.Run(reference, wanted, *cpu.stream).ok());
              ASSERT_TRUE(got.Run(row, wanted, *cuda.stream).ok());
              got.ExpectLike(want);
              if (::testing::Test::HasFailure()) return;
            }
          });
    }
  }
}

}  // namespace
}  // namespace inlay

#endif  // INLAY_HAS_CUDA
