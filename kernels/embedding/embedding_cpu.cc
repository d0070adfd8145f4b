// embedding, the scalar reference row.
#include "kernels/cpu_float.h"
#include "kernels/embedding/embedding.h"
#include "kernels/quant/quant.h"
#include "memory/device/thread_pool.h"

namespace inlay {

absl::Status RunEmbeddingCpuScalar(const EmbeddingDesc& desc,
                                   const EmbeddingParams& params,
                                   Stream& stream) {
  const BlockCodec* codec = FindBlockCodec(desc.table);
  const FormatInfo& format = GetFormatInfo(desc.table);
  const auto put = [&](float value, float& y) {
    value *= params.scale;
    y = params.accumulate ? y + value : value;
  };
  const auto embed = [&](int64_t token) {
    const int32_t id = params.ids[token];
    const std::byte* entry =
        params.table.row<std::byte>(id < params.table.rows() ? id : 0);
    float* y = params.y.row<float>(token);
    if (codec == nullptr) {
      for (int64_t i = 0; i < desc.width; ++i) {
        put(LoadFloat(desc.table, entry, i), y[i]);
      }
      return;
    }
    float values[kMaxBlockElements];
    for (int64_t i = 0; i < desc.width; i += format.block_elements) {
      codec->decode(entry, 1, values);
      entry += format.block_bytes;
      for (int j = 0; j < format.block_elements; ++j) put(values[j], y[i + j]);
    }
  };
  stream.thread_pool()->ParallelFor(
      params.y.rows(), 1, [&](int64_t begin, int64_t end) {
        for (int64_t token = begin; token < end; ++token) embed(token);
      });
  return absl::OkStatus();
}

}  // namespace inlay
