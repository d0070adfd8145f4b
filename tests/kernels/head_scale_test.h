// What the tests of head_scale share: problems, and results in float64. Header
// only.
#ifndef INLAY_TESTS_KERNELS_HEAD_SCALE_TEST_H_
#define INLAY_TESTS_KERNELS_HEAD_SCALE_TEST_H_

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "kernels/head_scale/head_scale.h"
#include "tests/support/kernel_test_util.h"

namespace inlay::testing {

struct HeadScaleProblem {
  HeadScaleProblem(int num_heads, int head_dim, DType activation, int64_t pad)
      : desc{num_heads, head_dim, activation},
        positions{0, 1, 2, 1000, 131071, 16777217},
        x(activation, static_cast<int64_t>(positions.size()),
          int64_t{num_heads} * head_dim, pad) {
    std::mt19937 rng(static_cast<unsigned>(num_heads * 1000 + head_dim));
    std::normal_distribution<float> normal;
    x.Randomize(rng);
    for (int h = 0; h < num_heads; ++h) {
      scale.push_back(0.3f * normal(rng));
      bias.push_back(normal(rng));
    }
  }

  double Want(int64_t row, int64_t column) const {
    const auto head = static_cast<size_t>(column / desc.head_dim);
    return x(row, column) * Factor(row, head);
  }
  // The logarithm is off by two units in its last place, and the sum and the
  // product by one each.
  double Tolerance(int64_t row, int64_t column) const {
    const auto head = static_cast<size_t>(column / desc.head_dim);
    const double parts =
        3 * std::fabs(scale[head] * Log(row)) + std::fabs(bias[head]);
    const double rounding =
        2 * kUnitF32 * (parts + std::fabs(Factor(row, head)));
    return std::fabs(x(row, column)) * rounding + 1e-30;
  }

  HeadScaleDesc desc;
  std::vector<int32_t> positions;
  TestMatrix x;
  std::vector<float> scale;
  std::vector<float> bias;

 private:
  double Log(int64_t row) const {
    return std::log(double{
        static_cast<float>(int64_t{positions[static_cast<size_t>(row)]} + 1)});
  }
  double Factor(int64_t row, size_t head) const {
    return scale[head] * Log(row) + bias[head];
  }
};

}  // namespace inlay::testing

#endif  // INLAY_TESTS_KERNELS_HEAD_SCALE_TEST_H_
