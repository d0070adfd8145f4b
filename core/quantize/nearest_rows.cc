#include "core/quantize/nearest_rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/quant/block.h"
#include "kernels/quant/fit.h"

namespace inlay {
namespace {

constexpr float kMostE4M3 = 448.0f;

}  // namespace

absl::Status NearestInGroups::Encode(int64_t rows, const float* values,
                                     std::byte* encoded) {
  const int64_t row_bytes =
      width_ / scheme_.grid->elements * scheme_.grid->block_bytes;
  pool_.ParallelFor(rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      EncodeInGroups(scheme_, values + row * width_, nullptr, width_,
                     encoded + row * row_bytes);
    }
  });
  return absl::OkStatus();
}

void NearestE4M3::EncodeRow(const float* values, std::byte* encoded) const {
  float largest = largest_;
  for (int64_t i = 0; !one_scale_ && i < width_; ++i) {
    largest = std::max(largest, std::abs(values[i]));
  }
  const float scale = RoundScale(scale_, largest / kMostE4M3);
  const float inverse = InverseScale(scale);
  for (int64_t first = 0; first < width_; first += elements_) {
    std::memcpy(encoded, &scale, sizeof(scale));
    encoded += sizeof(scale);
    for (int64_t i = first; i < first + elements_; ++i) {
      // A scale that was rounded down leaves a little more than 448.
      *encoded++ = std::byte{
          F32ToF8E4M3(std::clamp(values[i] * inverse, -kMostE4M3, kMostE4M3))};
    }
  }
}

absl::Status NearestE4M3::Encode(int64_t rows, const float* values,
                                 std::byte* encoded) {
  const int64_t row_bytes = width_ / elements_ * (elements_ + 4);
  pool_.ParallelFor(rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      EncodeRow(values + row * width_, encoded + row * row_bytes);
    }
  });
  return absl::OkStatus();
}

}  // namespace inlay
