// Memory full of packed quantised weights.
#ifndef INLAY_TESTS_BENCH_CUDA_PACKED_WEIGHTS_H_
#define INLAY_TESTS_BENCH_CUDA_PACKED_WEIGHTS_H_

#include <algorithm>
#include <random>
#include <vector>

#include "kernels/gemm/quantised/pack.h"
#include "kernels/quant/quant.h"
#include "tests/bench/cuda/bench_cuda.h"

namespace inlay::bench {

// One tile of random blocks of k columns over and over.
inline void FillPacked(DType dtype, int64_t k, const DeviceMemory& weights) {
  const BlockCodec& codec = *FindBlockCodec(dtype);
  const QuantMatrix matrix(dtype, k);
  const int64_t blocks = kQuantRows * k / matrix.block_elements;
  std::mt19937 rng(1);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(kQuantRows * k));
  for (float& value : values) value = normal(rng);
  std::vector<std::byte> rows(static_cast<size_t>(blocks * matrix.block_bytes));
  codec.encode(values.data(), blocks, rows.data());
  const auto bytes = static_cast<size_t>(QuantTileBytes(matrix.form, k));
  std::vector<std::byte> tile(bytes);
  PackQuantised(matrix, rows.data(), 0, kQuantRows, tile.data());
  Require(
      cudaMemcpy(weights.data(), tile.data(), bytes, cudaMemcpyHostToDevice));
  for (size_t done = bytes; done < weights.bytes();) {
    const size_t next = std::min(done, weights.bytes() - done);
    Require(cudaMemcpy(weights.data() + done, weights.data(), next,
                       cudaMemcpyDeviceToDevice));
    done += next;
  }
  Require(cudaDeviceSynchronize());
}

}  // namespace inlay::bench

#endif  // INLAY_TESTS_BENCH_CUDA_PACKED_WEIGHTS_H_
