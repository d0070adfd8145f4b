// What the tests of recurrent ops on CUDA share: states and inputs on the
// device. Header only; there is something in it only where the CUDA backend is
// built.
#ifndef INLAY_TESTS_SUPPORT_CUDA_STATE_TEST_UTIL_H_
#define INLAY_TESTS_SUPPORT_CUDA_STATE_TEST_UTIL_H_

#if INLAY_HAS_CUDA

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "kernels/linear_attention/linear_attention.h"
#include "kernels/linear_attention/state_plan.h"
#include "tests/support/cuda_test_util.h"
#include "tests/support/state_test_util.h"

namespace inlay::testing {

// States whose pool is on the device, and the plan of the step taken last.
class DeviceStates {
 public:
  DeviceStates(int64_t floats, int num_blocks, int block_tokens = kStateBlock)
      : host_(floats, num_blocks, block_tokens), pool_(host_.bytes()) {}

  States& host() { return host_; }

  // For a step of `rows` rows and as many sequences as were added, or more.
  StateParams Take(int64_t rows, int64_t sequences = 0) {
    StateParams params = host_.Take();
    sequences = std::max<int64_t>(
        sequences, static_cast<int64_t>(params.sequences.size()));
    const size_t bytes = StatePlanBytes(sequences, rows);
    std::vector<std::byte> image(bytes + 64);
    image_.emplace(bytes);
    plan_ = BuildStatePlan(params.sequences, params.sources,
                           params.state.block_size, sequences, rows,
                           image.data(), image_->as<std::byte>());
    EXPECT_EQ(cudaMemcpy(image_->as<std::byte>(), image.data(), bytes,
                         cudaMemcpyHostToDevice),
              cudaSuccess);
    // Rows read the plan only.
    params.sequences = {};
    params.sources = nullptr;
    params.state.base = pool_.as<std::byte>();
    params.plan = &plan_;
    return params;
  }

  std::string State(int32_t block) const {
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    std::string state(host_.state_bytes(), '\0');
    EXPECT_EQ(
        cudaMemcpy(state.data(), pool_.as<std::byte>() + host_.Offset(block),
                   state.size(), cudaMemcpyDeviceToHost),
        cudaSuccess);
    return state;
  }

 private:
  States host_;
  CudaBytes pool_;
  std::optional<CudaBytes> image_;
  StatePlan plan_;
};

// Inputs on the device.
struct DeviceInputs {
  explicit DeviceInputs(const Inputs& in)
      : q(in.q),
        k(in.k),
        v(in.v),
        decay(in.decay),
        beta(in.beta),
        skip(in.skip) {}

  // Rows [first, first + count).
  LinearAttentionParams Params(const LinearAttentionCase& test, int64_t first,
                               int64_t count, const TensorView& y) {
    const auto rows = [&](CudaTestMatrix& matrix) {
      return matrix.view().RowSlice(first, count);
    };
    LinearAttentionParams params;
    params.q = rows(q);
    params.k = rows(k);
    params.v = rows(v);
    if (test.desc.decay != StateDecay::kNone) params.decay = rows(decay);
    if (test.beta) params.beta = rows(beta);
    if (test.skip) params.skip = skip.floats();
    params.y = y;
    return params;
  }

  CudaTestMatrix q, k, v, decay, beta, skip;
};

inline std::string Name(const LinearAttentionCase& test) {
  return std::string(DTypeName(test.desc.activation)) + " keys " +
         std::to_string(test.desc.key_dim) + " values " +
         std::to_string(test.desc.value_dim) + " decay " +
         std::to_string(static_cast<int>(test.desc.decay)) + " delta " +
         std::to_string(test.desc.delta) + " map " +
         std::to_string(static_cast<int>(test.desc.feature_map)) +
         " normalised " + std::to_string(test.desc.normalised);
}

}  // namespace inlay::testing

#endif  // INLAY_HAS_CUDA

#endif  // INLAY_TESTS_SUPPORT_CUDA_STATE_TEST_UTIL_H_
