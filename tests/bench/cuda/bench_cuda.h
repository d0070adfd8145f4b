// What the sections of bench_cuda share: device memory with random contents,
// timing, and the ceilings measured in the same run.
#ifndef INLAY_TESTS_BENCH_CUDA_BENCH_CUDA_H_
#define INLAY_TESTS_BENCH_CUDA_BENCH_CUDA_H_

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "memory/device/cuda_stream.h"
#include "memory/dtype.h"

namespace inlay::bench {

// Ends the program: there is nobody to handle it.
inline void Require(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s\n", cudaGetErrorString(error));
  std::exit(1);
}
inline void Require(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  std::exit(1);
}

class DeviceMemory {
 public:
  explicit DeviceMemory(size_t bytes) : bytes_(bytes) {
    Require(cudaMalloc(&data_, std::max<size_t>(bytes, 64)));
  }
  ~DeviceMemory() { cudaFree(data_); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  std::byte* data() const { return static_cast<std::byte*>(data_); }
  size_t bytes() const { return bytes_; }
  // N(0, 1) or close, of f16 or bf16.
  void Randomize(DType dtype, uint32_t seed);

 private:
  void* data_ = nullptr;
  size_t bytes_;
};

struct Bench {
  CudaStream& stream;
  double copy_gbps = 0.0;  // bytes read and written
  double read_gbps = 0.0;
  std::string_view filter;
  bool once = false;  // for profilers: every case runs twice, untimed

  bool Wants(std::string_view name) const {
    return name.find(filter) != std::string_view::npos;
  }

  // What a plain read of so many bytes takes, launch and all.
  double ReadSeconds(double bytes) const;

  // Seconds a call of run(i), i = 0, 1, ..: the median of `samples` timings of
  // as many calls as take a few milliseconds, after a warm-up.
  template <typename Fn>
  double Seconds(Fn run, int samples = 5, double sample_seconds = 4e-3) const {
    cudaEvent_t begin;
    cudaEvent_t end;
    Require(cudaEventCreate(&begin));
    Require(cudaEventCreate(&end));
    int index = 0;
    if (once) {
      run(index++);
      run(index++);
      Require(cudaStreamSynchronize(stream.handle()));
      return 1.0;
    }
    const auto time = [&](int count) {
      Require(cudaEventRecord(begin, stream.handle()));
      for (int i = 0; i < count; ++i) run(index++);
      Require(cudaEventRecord(end, stream.handle()));
      Require(cudaEventSynchronize(end));
      float ms = 0.0f;
      Require(cudaEventElapsedTime(&ms, begin, end));
      return static_cast<double>(ms) * 1e-3 / count;
    };
    time(2);
    const int count =
        std::max(2, static_cast<int>(sample_seconds / std::max(time(3), 1e-6)));
    std::vector<double> seconds;
    for (int i = 0; i < samples; ++i) seconds.push_back(time(count));
    std::sort(seconds.begin(), seconds.end());
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    return seconds[seconds.size() / 2];
  }
};

void MeasureCeilings(Bench& bench);
void BenchAttention(Bench& bench);
void BenchAttentionMasks(Bench& bench);
void BenchEncoderAttention(Bench& bench);
void BenchBlockSelection(Bench& bench);
void BenchLatentPrompts(Bench& bench);
void BenchLinear(Bench& bench);
void BenchLinearQuantised(Bench& bench);
void BenchLinearFp8(Bench& bench);
void BenchSmallOps(Bench& bench);
void BenchSample(Bench& bench);
void BenchRecurrent(Bench& bench);
void BenchLinearChain(Bench& bench);
void BenchExperts(Bench& bench);
void BenchExpertPrompts(Bench& bench);
void BenchRouter(Bench& bench);
void BenchDecodeAttention(Bench& bench);
void BenchDecodeDelta(Bench& bench);
void BenchDecodeMamba(Bench& bench);

}  // namespace inlay::bench

#endif  // INLAY_TESTS_BENCH_CUDA_BENCH_CUDA_H_
