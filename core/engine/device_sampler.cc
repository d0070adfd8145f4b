#include "core/engine/device_sampler.h"

#include <algorithm>
#include <cstring>

#include "absl/memory/memory.h"
#include "memory/status.h"

namespace inlay {
namespace {

// The same on the device and in memory that it copies from and to.
absl::Status AllocatePair(Device& device, size_t bytes, Buffer& on_device,
                          Buffer& on_host) {
  INLAY_ASSIGN_OR_RETURN(on_device,
                         device.Allocate(bytes, MemoryClass::kWorkspace));
  INLAY_ASSIGN_OR_RETURN(on_host, device.AllocateStaging(bytes));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceSampler>> DeviceSampler::Create(
    Device* device, int64_t vocab, int64_t max_rows) {
  if (device->host_addressable()) return nullptr;
  const auto row =
      Select("sample", SampleTable(), SampleDesc{vocab}, device->info());
  if (!row.ok()) return nullptr;
  auto sampler = absl::WrapUnique(new DeviceSampler(device, *row, vocab));
  const auto rows = static_cast<size_t>(max_rows);
  INLAY_RETURN_IF_ERROR(AllocatePair(*device, rows * sizeof(SampleOptions),
                                     sampler->options_,
                                     sampler->host_options_));
  INLAY_RETURN_IF_ERROR(AllocatePair(*device, kMostEdits * sizeof(LogitEdit),
                                     sampler->edits_, sampler->host_edits_));
  INLAY_RETURN_IF_ERROR(AllocatePair(*device, rows * sizeof(int32_t),
                                     sampler->tokens_, sampler->host_tokens_));
  return sampler;
}

absl::Status DeviceSampler::Upload(const SampleBatch& batch, int64_t rows,
                                   Stream& stream) {
  auto* const options = host_options_.as<SampleOptions>();
  std::copy(batch.options.begin(), batch.options.end(), options);
  SampleOptions left_out;
  left_out.temperature = -1;
  std::fill(options + batch.options.size(), options + rows, left_out);
  INLAY_RETURN_IF_ERROR(
      device_->Copy(options_.data(), host_options_.data(),
                    static_cast<size_t>(rows) * sizeof(SampleOptions), stream));
  if (batch.edits.empty()) return absl::OkStatus();
  const size_t bytes = batch.edits.size() * sizeof(LogitEdit);
  std::memcpy(host_edits_.data(), batch.edits.data(), bytes);
  return device_->Copy(edits_.data(), host_edits_.data(), bytes, stream);
}

absl::Status DeviceSampler::Sample(const TensorView& logits, int64_t begin,
                                   Stream& stream) {
  return row_->run(
      desc_,
      {logits, options_.as<SampleOptions>() + begin, edits_.as<LogitEdit>(),
       nullptr, tokens_.as<int32_t>() + begin},
      stream);
}

absl::Status DeviceSampler::Fetch(int64_t rows, Stream& stream) {
  return device_->Copy(host_tokens_.data(), tokens_.data(),
                       static_cast<size_t>(rows) * sizeof(int32_t), stream);
}

}  // namespace inlay
