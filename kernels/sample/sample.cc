#include "kernels/sample/sample.h"

#include "kernels/validate.h"
#include "memory/status.h"

namespace inlay {

absl::Status RunSampleCpu(const SampleDesc& desc, const SampleParams& params,
                          Stream& stream);  // sample_cpu.cc

#if INLAY_HAS_CUDA
absl::Status RunSampleCuda(const SampleDesc& desc, const SampleParams& params,
                           Stream& stream);  // sample_cuda.cu
absl::Status RunSampleCudaPlain(const SampleDesc& desc,
                                const SampleParams& params,
                                Stream& stream);  // sample_cuda.cu
#endif

namespace {

const char* Refuses(const SampleDesc& desc, const DeviceInfo&) {
  return desc.vocab > 0 && desc.vocab <= kMostSampledVocab
             ? nullptr
             : "the vocabulary must have 1 to 2^24 tokens";
}

#if INLAY_HAS_CUDA
const char* CudaRefuses(const SampleDesc& desc, const DeviceInfo& device) {
  if (desc.vocab > kMostClusterVocab) {
    return "the vocabulary must fit the shared memory of a cluster";
  }
  return Refuses(desc, device);
}
#endif

constexpr SampleRow kRows[] = {
#if INLAY_HAS_CUDA
    {"cuda_cluster", DeviceKind::kCuda, 90, CudaRefuses, nullptr,
     RunSampleCuda},
    {"cuda_plain", DeviceKind::kCuda, 80, Refuses, nullptr, RunSampleCudaPlain},
#endif
    {"cpu", DeviceKind::kCpu, 0, Refuses, nullptr, RunSampleCpu},
};

}  // namespace

absl::Status ValidateSample(const SampleDesc& desc,
                            const SampleParams& params) {
  INLAY_RETURN_IF_ERROR(
      CheckRange("sample", "vocab", desc.vocab, 1, kMostSampledVocab));
  return CheckMatrix("sample", "logits", params.logits, params.logits.rows(),
                     desc.vocab, DType::kF32);
}

absl::Span<const SampleRow> SampleTable() { return kRows; }

}  // namespace inlay
