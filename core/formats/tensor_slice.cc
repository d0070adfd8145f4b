#include "core/formats/tensor_slice.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "absl/functional/function_ref.h"
#include "core/formats/stored_tensor.h"
#include "memory/status.h"

namespace inlay {
namespace {

// Of 32 elements, as the files have them and as our blocks do (mxfp4.h).
constexpr int64_t kStoredBlock = 16;
constexpr int64_t kBlock = 17;

// The stored tensor as rows of `row_bytes`.
WeightInfo AsRows(const WeightInfo& tensor, int64_t row_bytes) {
  WeightInfo rows = tensor;
  rows.shape = {static_cast<int64_t>(tensor.bytes) / row_bytes, row_bytes};
  return rows;
}

int64_t RowBytesOf(const WeightInfo& info) {
  return static_cast<int64_t>(info.bytes) / info.shape.front();
}

// Makes rows [first, first + count) of a matrix at dst.
using MakeRows = absl::FunctionRef<absl::Status(int64_t first, int64_t count,
                                                std::byte* dst)>;

// Any bytes of a matrix from whole rows of it, a band at a time.
absl::Status ReadBands(int64_t row_bytes, uint64_t offset,
                       absl::Span<std::byte> destination, MakeRows make) {
  constexpr int64_t kBandBytes = 1 << 20;
  const int64_t band = std::max<int64_t>(1, kBandBytes / row_bytes);
  std::vector<std::byte> partial;
  while (!destination.empty()) {
    const auto row = static_cast<int64_t>(offset) / row_bytes;
    const auto skip =
        static_cast<size_t>(static_cast<int64_t>(offset) - row * row_bytes);
    const auto left = static_cast<int64_t>(destination.size());
    size_t taken = 0;
    if (skip == 0 && left >= row_bytes) {
      const int64_t count = std::min(band, left / row_bytes);
      INLAY_RETURN_IF_ERROR(make(row, count, destination.data()));
      taken = static_cast<size_t>(count * row_bytes);
    } else {
      partial.resize(static_cast<size_t>(row_bytes));
      INLAY_RETURN_IF_ERROR(make(row, 1, partial.data()));
      taken = std::min(destination.size(), partial.size() - skip);
      std::memcpy(destination.data(), partial.data() + skip, taken);
    }
    destination.remove_prefix(taken);
    offset += taken;
  }
  return absl::OkStatus();
}

absl::Status ReadRows(const WeightSource& source, const TensorSlice& slice,
                      int64_t row_bytes, int64_t first, int64_t count,
                      std::byte* dst) {
  const WeightInfo rows = AsRows(*slice.stored, row_bytes);
  if (slice.step == slice.run) {
    return ReadStrip(source, rows, slice.first + first, count, 0, row_bytes,
                     dst);
  }
  if (slice.run > 1) {
    for (int64_t taken = 0; taken < count;) {
      const int64_t run = (first + taken) / slice.run;
      const int64_t at = (first + taken) % slice.run;
      const int64_t here = std::min(count - taken, slice.run - at);
      INLAY_RETURN_IF_ERROR(ReadStrip(source, rows,
                                      slice.first + run * slice.step + at, here,
                                      0, row_bytes, dst + taken * row_bytes));
      taken += here;
    }
    return absl::OkStatus();
  }
  // What lies between comes too: rows of a bias are too short to be read alone.
  std::vector<std::byte> strip(
      static_cast<size_t>(((count - 1) * slice.step + 1) * row_bytes));
  INLAY_RETURN_IF_ERROR(
      ReadStrip(source, rows, slice.first + first * slice.step,
                (count - 1) * slice.step + 1, 0, row_bytes, strip.data()));
  for (int64_t i = 0; i < count; ++i) {
    std::memcpy(dst + i * row_bytes, strip.data() + i * slice.step * row_bytes,
                static_cast<size_t>(row_bytes));
  }
  return absl::OkStatus();
}

// A few rows at a time share the lines of the file that they lie in.
absl::Status ReadColumns(const WeightSource& source, const TensorSlice& slice,
                         const WeightInfo& info, int64_t first, int64_t count,
                         std::byte* dst) {
  const auto size = static_cast<int64_t>(RowBytes(info.dtype, 1));
  const int64_t inputs = info.shape.back();
  const WeightInfo rows =
      AsRows(*slice.stored, slice.stored->shape.back() * size);
  const int64_t width = ((count - 1) * slice.step + 1) * size;
  std::vector<std::byte> strip(static_cast<size_t>(inputs * width));
  INLAY_RETURN_IF_ERROR(ReadStrip(source, rows, slice.expert * inputs, inputs,
                                  (slice.first + first * slice.step) * size,
                                  width, strip.data()));
  constexpr int64_t kTile = 64;
  for (int64_t j0 = 0; j0 < inputs; j0 += kTile) {
    const int64_t j1 = std::min(inputs, j0 + kTile);
    for (int64_t i = 0; i < count; ++i) {
      for (int64_t j = j0; j < j1; ++j) {
        std::memcpy(dst + (i * inputs + j) * size,
                    strip.data() + j * width + i * slice.step * size,
                    static_cast<size_t>(size));
      }
    }
  }
  return absl::OkStatus();
}

// Where run `run` of `count` is stored.
int64_t StoredRun(const TensorSlice& slice, int64_t run, int64_t count) {
  return run % slice.step * (count / slice.step) + run / slice.step;
}

absl::Status ReadTurnedRuns(const WeightSource& source,
                            const TensorSlice& slice, const WeightInfo& info,
                            int64_t first, int64_t count, std::byte* dst) {
  const int64_t row_bytes = RowBytesOf(info);
  const WeightInfo rows = AsRows(*slice.stored, row_bytes);
  const int64_t runs = (info.shape[0] - slice.first) / slice.run;
  for (int64_t taken = 0; taken < count;) {
    const int64_t row = first + taken;
    int64_t stored = row;
    int64_t here = std::min(count - taken, slice.first - row);
    if (row >= slice.first) {
      const int64_t at = (row - slice.first) % slice.run;
      const int64_t run = (row - slice.first) / slice.run;
      stored = slice.first + StoredRun(slice, run, runs) * slice.run + at;
      here = std::min(count - taken, slice.run - at);
    }
    INLAY_RETURN_IF_ERROR(ReadStrip(source, rows, stored, here, 0, row_bytes,
                                    dst + taken * row_bytes));
    taken += here;
  }
  return absl::OkStatus();
}

absl::Status ReadTurnedColumns(const WeightSource& source,
                               const TensorSlice& slice, const WeightInfo& info,
                               int64_t first, int64_t count, std::byte* dst) {
  const int64_t row_bytes = RowBytesOf(info);
  const WeightInfo rows = AsRows(*slice.stored, row_bytes);
  const int64_t runs = info.shape.back() / slice.run;
  const int64_t run_bytes = row_bytes / runs;
  std::vector<std::byte> strip(static_cast<size_t>(count * row_bytes));
  INLAY_RETURN_IF_ERROR(
      ReadStrip(source, rows, first, count, 0, row_bytes, strip.data()));
  for (int64_t row = 0; row < count; ++row) {
    const std::byte* from = strip.data() + row * row_bytes;
    for (int64_t run = 0; run < runs; ++run, dst += run_bytes) {
      std::memcpy(dst, from + StoredRun(slice, run, runs) * run_bytes,
                  static_cast<size_t>(run_bytes));
    }
  }
  return absl::OkStatus();
}

// In the files byte i of a block holds elements 2 i and 2 i + 1, low nibble
// first; in ours elements i and 16 + i.
void TakeTurns(const std::byte* src, std::byte* dst) {
  uint8_t codes[2 * kStoredBlock];
  for (int64_t i = 0; i < kStoredBlock; ++i) {
    const auto both = static_cast<uint8_t>(src[i]);
    codes[2 * i] = both & 15;
    codes[2 * i + 1] = both >> 4;
  }
  for (int64_t i = 0; i < kStoredBlock; ++i) {
    dst[i] = static_cast<std::byte>(codes[i] | codes[kStoredBlock + i] << 4);
  }
}

absl::Status ReadMxfp4(const WeightSource& source, const TensorSlice& slice,
                       const WeightInfo& info, int64_t first, int64_t count,
                       std::byte* dst) {
  const int64_t blocks = info.shape.back() / (2 * kStoredBlock);
  TensorSlice scales = slice;
  scales.stored = slice.scales;
  std::vector<std::byte> codes(
      static_cast<size_t>(count * blocks * kStoredBlock));
  std::vector<std::byte> exponents(static_cast<size_t>(count * blocks));
  INLAY_RETURN_IF_ERROR(ReadRows(source, slice, blocks * kStoredBlock, first,
                                 count, codes.data()));
  INLAY_RETURN_IF_ERROR(
      ReadRows(source, scales, blocks, first, count, exponents.data()));
  for (int64_t b = 0; b < count * blocks; ++b) {
    dst[b * kBlock] = exponents[static_cast<size_t>(b)];
    TakeTurns(codes.data() + b * kStoredBlock, dst + b * kBlock + 1);
  }
  return absl::OkStatus();
}

}  // namespace

const std::byte* MappedSlice(const WeightSource& source,
                             const TensorSlice& slice, const WeightInfo& info) {
  if (slice.layout != SliceLayout::kRows || slice.step != slice.run) {
    return nullptr;
  }
  const std::byte* mapped = source.Mapped(*slice.stored);
  if (mapped == nullptr) return nullptr;
  return mapped + slice.first * RowBytesOf(info);
}

absl::Status ReadSlice(const WeightSource& source, const TensorSlice& slice,
                       const WeightInfo& info, uint64_t offset,
                       absl::Span<std::byte> destination) {
  const int64_t row_bytes = RowBytesOf(info);
  return ReadBands(
      row_bytes, offset, destination,
      [&](int64_t first, int64_t count, std::byte* dst) {
        switch (slice.layout) {
          case SliceLayout::kColumns:
            return ReadColumns(source, slice, info, first, count, dst);
          case SliceLayout::kTurnedRuns:
            return ReadTurnedRuns(source, slice, info, first, count, dst);
          case SliceLayout::kTurnedColumns:
            return ReadTurnedColumns(source, slice, info, first, count, dst);
          case SliceLayout::kMxfp4:
            return ReadMxfp4(source, slice, info, first, count, dst);
          case SliceLayout::kRows:
            break;
        }
        return ReadRows(source, slice, row_bytes, first, count, dst);
      });
}

}  // namespace inlay
