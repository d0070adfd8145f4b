#include "core/engine/device_sampler.h"

#include <algorithm>
#include <cstring>

#include "absl/memory/memory.h"
#include "memory/status.h"

namespace inlay {

absl::StatusOr<std::unique_ptr<DeviceSampler>> DeviceSampler::Create(
    Device* device, int64_t vocab, int64_t max_rows) {
  if (device->host_addressable()) return nullptr;
  const auto row =
      Select("sample", SampleTable(), SampleDesc{vocab}, device->info());
  if (!row.ok()) return nullptr;
  auto sampler = absl::WrapUnique(new DeviceSampler(device, *row, vocab));
  const auto rows = static_cast<size_t>(max_rows);
  const auto allocate = [&](Arrays& arrays, const auto& take) -> absl::Status {
    INLAY_ASSIGN_OR_RETURN(arrays.edits, take(kMostEdits * sizeof(LogitEdit)));
    INLAY_ASSIGN_OR_RETURN(arrays.tokens, take(rows * sizeof(int32_t)));
    return absl::OkStatus();
  };
  INLAY_RETURN_IF_ERROR(allocate(sampler->arrays_, [&](size_t bytes) {
    return device->Allocate(bytes, MemoryClass::kWorkspace);
  }));
  for (Arrays& host : sampler->host_) {
    INLAY_RETURN_IF_ERROR(allocate(
        host, [&](size_t bytes) { return device->AllocateStaging(bytes); }));
  }
  return sampler;
}

absl::Status DeviceSampler::Pack(const SampleBatch& batch, int64_t rows,
                                 int turn, std::byte* image,
                                 const std::byte* device, Stream& stream) {
  auto* const options = reinterpret_cast<SampleOptions*>(image);
  std::copy(batch.options.begin(), batch.options.end(), options);
  SampleOptions left_out;
  left_out.temperature = -1;
  std::fill(options + batch.options.size(), options + rows, left_out);
  options_ = reinterpret_cast<const SampleOptions*>(device);
  if (batch.edits.empty()) return absl::OkStatus();
  const Arrays& host = host_[static_cast<size_t>(turn)];
  const size_t bytes = batch.edits.size() * sizeof(LogitEdit);
  std::memcpy(host.edits.data(), batch.edits.data(), bytes);
  return device_->Copy(arrays_.edits.data(), host.edits.data(), bytes, stream);
}

absl::Status DeviceSampler::Sample(const TensorView& logits, int64_t begin,
                                   Stream& stream) {
  return row_->run(desc_,
                   {logits, options_ + begin, arrays_.edits.as<LogitEdit>(),
                    nullptr, arrays_.tokens.as<int32_t>() + begin},
                   stream);
}

absl::Status DeviceSampler::Fetch(int64_t rows, int turn, Stream& stream) {
  return device_->Copy(host_[static_cast<size_t>(turn)].tokens.data(),
                       arrays_.tokens.data(),
                       static_cast<size_t>(rows) * sizeof(int32_t), stream);
}

absl::Status DeviceSampler::Gather(absl::Span<const int32_t> rows, int32_t* to,
                                   Stream& stream) {
  const auto* const tokens = arrays_.tokens.as<int32_t>();
  for (size_t begin = 0, end = 0; begin < rows.size(); begin = end) {
    while (end < rows.size() &&
           rows[end] == rows[begin] + static_cast<int32_t>(end - begin))
      ++end;
    INLAY_RETURN_IF_ERROR(device_->Copy(to + begin, tokens + rows[begin],
                                        (end - begin) * sizeof(int32_t),
                                        stream));
  }
  return absl::OkStatus();
}

}  // namespace inlay
