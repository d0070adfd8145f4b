#include "kernels/sample/sample.h"

#include "kernels/validate.h"
#include "memory/status.h"

namespace inlay {

absl::Status RunSampleCpu(const SampleDesc& desc, const SampleParams& params,
                          Stream& stream);  // sample_cpu.cc

namespace {

const char* Refuses(const SampleDesc& desc, const DeviceInfo&) {
  return desc.vocab > 0 && desc.vocab <= kMostSampledVocab
             ? nullptr
             : "the vocabulary must have 1 to 2^24 tokens";
}

constexpr SampleRow kRows[] = {
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
