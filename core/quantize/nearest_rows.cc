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

void NearestE4M3::EncodeRows(int64_t rows, const float* values,
                             std::byte* encoded) const {
  const int64_t block_bytes = elements_ + static_cast<int64_t>(sizeof(float));
  for (int64_t cell = 0; cell < width_; cell += cell_.columns) {
    float largest = largest_;
    for (int64_t row = 0; !one_scale_ && row < rows; ++row) {
      const float* from = values + row * width_ + cell;
      for (int64_t i = 0; i < cell_.columns; ++i) {
        largest = std::max(largest, std::abs(from[i]));
      }
    }
    const float scale = RoundScale(scale_, largest / kMostE4M3);
    const float inverse = InverseScale(scale);
    for (int64_t row = 0; row < rows; ++row) {
      const float* from = values + row * width_ + cell;
      std::byte* to = encoded + (row * width_ + cell) / elements_ * block_bytes;
      for (int64_t i = 0; i < cell_.columns; ++i) {
        if (i % elements_ == 0) {
          std::memcpy(to, &scale, sizeof(scale));
          to += sizeof(scale);
        }
        // A scale that was rounded down leaves a little more than 448.
        *to++ = std::byte{
            F32ToF8E4M3(std::clamp(from[i] * inverse, -kMostE4M3, kMostE4M3))};
      }
    }
  }
}

absl::Status NearestE4M3::Encode(int64_t rows, const float* values,
                                 std::byte* encoded) {
  const int64_t row_bytes = width_ / elements_ * (elements_ + 4);
  const int64_t strips = (rows - 1) / cell_.rows + 1;
  pool_.ParallelFor(strips, 1, [&](int64_t begin, int64_t end) {
    for (int64_t strip = begin; strip < end; ++strip) {
      const int64_t first = strip * cell_.rows;
      EncodeRows(std::min(cell_.rows, rows - first), values + first * width_,
                 encoded + first * row_bytes);
    }
  });
  return absl::OkStatus();
}

}  // namespace inlay
