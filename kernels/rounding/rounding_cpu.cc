// rounding, the scalar reference row: of x itself.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/cpu_float.h"
#include "kernels/rounding/rounding.h"
#include "memory/device/thread_pool.h"

namespace inlay {
namespace {

constexpr float kMostFloat = std::numeric_limits<float>::max();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// What x is multiplied by.
float InverseOf(float most_code, float most) {
  return most > 0.0f ? std::min(most_code / most, kMostFloat) : 0.0f;
}

// Columns [first, first + count) of a row; returns their scale.
float RoundFp8(DType dtype, const std::byte* x, int64_t first, int64_t count,
               std::byte* codes) {
  float most = 0.0f;
  for (int64_t i = first; i < first + count; ++i) {
    most = std::fmax(most, std::abs(LoadFloat(dtype, x, i)));
  }
  const float inverse = most <= kMostFloat ? InverseOf(448.0f, most) : kNan;
  for (int64_t i = first; i < first + count; ++i) {
    codes[i] = std::byte{F32ToF8E4M3(LoadFloat(dtype, x, i) * inverse)};
  }
  return most / 448.0f;
}

float RoundInt8(DType dtype, const std::byte* x, int64_t width,
                std::byte* codes) {
  float most = 0.0f;
  bool finite = true;
  for (int64_t i = 0; i < width; ++i) {
    const float size = std::abs(LoadFloat(dtype, x, i));
    finite &= size <= kMostFloat;
    most = std::fmax(most, size);
  }
  const float inverse = finite ? InverseOf(127.0f, most) : 0.0f;
  for (int64_t i = 0; i < width; ++i) {
    const float code = std::nearbyint(LoadFloat(dtype, x, i) * inverse);
    codes[i] = static_cast<std::byte>(
        static_cast<int8_t>(std::isnan(code) ? 0.0f : code));
  }
  return finite ? most / 127.0f : kNan;
}

}  // namespace

absl::Status RunRoundingCpu(const RoundingDesc& desc,
                            const RoundingParams& params, Stream& stream) {
  const int64_t rows = params.x.rows();
  const auto run_row = [&](int64_t row) {
    const auto* x = params.x.row<std::byte>(row);
    auto* codes = params.codes.row<std::byte>(row);
    switch (params.rounding) {
      case RowRounding::kNone:
        break;
      case RowRounding::kInt8Rows:
        params.scales[row] = RoundInt8(desc.input, x, desc.width, codes);
        break;
      case RowRounding::kFp8Rows:
        params.scales[row] = RoundFp8(desc.input, x, 0, desc.width, codes);
        break;
      case RowRounding::kFp8Groups:
        for (int64_t i = 0; i < desc.width; i += kRoundingGroup) {
          params.scales[i / kRoundingGroup * rows + row] =
              RoundFp8(desc.input, x, i, kRoundingGroup, codes);
        }
    }
  };
  stream.thread_pool()->ParallelFor(rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) run_row(row);
  });
  return absl::OkStatus();
}

}  // namespace inlay
