// Times the CUDA kernels against ceilings measured in the same run. Usage:
// bench_cuda [substring of the cases to run [once]]
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdlib>

#include "tests/bench/cuda/bench_cuda.h"

namespace inlay::bench {
namespace {

__device__ uint32_t Hash(uint32_t x) {
  x ^= x >> 16;
  x *= 0x7feb352du;
  x ^= x >> 15;
  x *= 0x846ca68bu;
  return x ^ x >> 16;
}

template <typename T>
__global__ void FillNormal(T* to, size_t count, uint32_t seed) {
  const size_t step = size_t{gridDim.x} * blockDim.x;
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < count;
       i += step) {
    // Twelve uniform numbers: variance 1.
    float sum = -6.0f;
    uint32_t bits = seed ^ static_cast<uint32_t>(i * 2654435761u);
    for (int j = 0; j < 6; ++j) {
      bits = Hash(bits + 0x9e3779b9u);
      sum += static_cast<float>(bits & 0xffff) / 65536.0f +
             static_cast<float>(bits >> 16) / 65536.0f;
    }
    to[i] = static_cast<T>(sum);
  }
}

__global__ void ReadAll(const uint4* from, size_t count, uint32_t* to) {
  uint32_t sum = 0;
  const size_t step = size_t{gridDim.x} * blockDim.x;
  size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x;
  for (; i + 7 * step < count; i += 8 * step) {
    uint4 x[8];
#pragma unroll
    for (int j = 0; j < 8; ++j) x[j] = __ldcs(from + i + j * step);
#pragma unroll
    for (int j = 0; j < 8; ++j) sum ^= x[j].x ^ x[j].y ^ x[j].z ^ x[j].w;
  }
  if (sum == 1) *to = sum;
}

}  // namespace

void DeviceMemory::Randomize(DType dtype, uint32_t seed) {
  if (dtype == DType::kF16) {
    FillNormal<<<1056, 256>>>(static_cast<__half*>(data_), bytes_ / 2, seed);
  } else {
    FillNormal<<<1056, 256>>>(static_cast<__nv_bfloat16*>(data_), bytes_ / 2,
                              seed);
  }
  Require(cudaGetLastError());
  Require(cudaDeviceSynchronize());
}

double Bench::ReadSeconds(double bytes) const {
  // A GB apart, so that the level-2 cache has forgotten.
  const auto once = static_cast<size_t>(bytes) / 16 * 16;
  const size_t all = std::max(once, size_t{1} << 30);
  DeviceMemory from(all);
  DeviceMemory to(64);
  from.Randomize(DType::kBF16, 1);
  const size_t places = all / once;
  return Seconds([&](int i) {
    ReadAll<<<2 * stream.num_sms(), 512, 0, stream.handle()>>>(
        reinterpret_cast<const uint4*>(from.data() +
                                       static_cast<size_t>(i) % places * once),
        once / 16, reinterpret_cast<uint32_t*>(to.data()));
  });
}

void MeasureCeilings(Bench& bench) {
  constexpr size_t kBytes = size_t{1} << 31;
  DeviceMemory from(kBytes);
  DeviceMemory to(kBytes);
  from.Randomize(DType::kBF16, 1);
  const double copy = bench.Seconds([&](int) {
    Require(cudaMemcpyAsync(to.data(), from.data(), kBytes,
                            cudaMemcpyDeviceToDevice, bench.stream.handle()));
  });
  bench.copy_gbps = 2e-9 * static_cast<double>(kBytes) / copy;
  for (const int ctas : {1, 2, 4}) {
    const double read = bench.Seconds([&](int) {
      ReadAll<<<ctas * bench.stream.num_sms(), 512, 0, bench.stream.handle()>>>(
          reinterpret_cast<const uint4*>(from.data()), kBytes / 16,
          reinterpret_cast<uint32_t*>(to.data()));
    });
    bench.read_gbps =
        std::max(bench.read_gbps, 1e-9 * static_cast<double>(kBytes) / read);
  }
  std::printf("ceilings: copy %.0f GB/s (read + write), read %.0f GB/s\n",
              bench.copy_gbps, bench.read_gbps);
}

}  // namespace inlay::bench

int main(int argc, char** argv) {
  using namespace inlay;
  using namespace inlay::bench;
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  int sms = 0;
  int major = 0;
  int minor = 0;
  Require(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0));
  Require(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
  Require(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0));
  cudaStream_t handle;
  Require(cudaStreamCreate(&handle));
  // What kernels take the device for, as in the tests.
  const char* taken_for = std::getenv("INLAY_TEST_SM");
  CudaStream stream(
      handle, sms,
      taken_for != nullptr ? std::atoi(taken_for) : 10 * major + minor);
  Bench bench{stream};
  if (argc > 1) bench.filter = argv[1];
  bench.once = argc > 2;
  if (!bench.once) MeasureCeilings(bench);
  BenchAttention(bench);
  BenchAttentionMasks(bench);
  BenchEncoderAttention(bench);
  BenchBlockSelection(bench);
  BenchLatentPrompts(bench);
  BenchLinear(bench);
  BenchLinearQuantised(bench);
  BenchLinearFp8(bench);
  BenchSmallOps(bench);
  BenchSample(bench);
  BenchRecurrent(bench);
  BenchLinearChain(bench);
  BenchExperts(bench);
  BenchExpertPrompts(bench);
  BenchRouter(bench);
  BenchDecodeAttention(bench);
  BenchDecodeDelta(bench);
  BenchDecodeMamba(bench);
  Require(cudaStreamDestroy(handle));
  return 0;
}
