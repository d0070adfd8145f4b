// columns on CUDA. A warp copies one run of one row, 16 bytes a lane where they
// are aligned. Where runs begin is in the kernel's parameters. Aims at the
// memory's bandwidth.
#include <algorithm>

#include "kernels/columns/columns.h"
#include "kernels/cuda_float.cuh"
#include "kernels/cuda_launch.cuh"

namespace inlay {
namespace {

constexpr int kWarps = 8;           // a block
constexpr int64_t kMostRuns = 256;  // a launch: 3 KB of parameters

struct Args {
  const std::byte* x;
  std::byte* y;
  int64_t x_stride;
  int64_t y_stride;
  int64_t rows;
  int runs;
  int32_t from[kMostRuns];  // bytes into rows of x
  int32_t to[kMostRuns];    // of y
  int32_t bytes[kMostRuns];
};

template <typename Piece>
__global__ void Columns(const __grid_constant__ Args args) {
  LetNextBegin();
  WaitForPrevious();
  const int64_t warp = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  const int64_t row = warp / args.runs;
  if (row >= args.rows) return;
  const int64_t run = warp % args.runs;
  const auto* x = reinterpret_cast<const Piece*>(args.x + row * args.x_stride +
                                                 args.from[run]);
  auto* y =
      reinterpret_cast<Piece*>(args.y + row * args.y_stride + args.to[run]);
  const int count = args.bytes[run] / static_cast<int>(sizeof(Piece));
  for (int i = threadIdx.x % 32; i < count; i += 32) y[i] = x[i];
}

}  // namespace

absl::Status RunColumnsCuda(const ColumnsDesc& desc,
                            const ColumnsParams& params, Stream& stream) {
  const auto element = static_cast<int32_t>(RowBytes(desc.activation, 1));
  Args args;
  args.x = params.x.data;
  args.y = params.y.data;
  args.x_stride = static_cast<int64_t>(params.x.row_stride_bytes);
  args.y_stride = static_cast<int64_t>(params.y.row_stride_bytes);
  args.rows = params.x.rows();
  const auto bits = reinterpret_cast<uintptr_t>(args.x) |
                    reinterpret_cast<uintptr_t>(args.y) |
                    params.x.row_stride_bytes | params.y.row_stride_bytes;
  int32_t to = 0;
  absl::Span<const ColumnRun> runs = params.runs;
  while (!runs.empty()) {
    const absl::Span<const ColumnRun> part = runs.subspan(0, kMostRuns);
    runs.remove_prefix(part.size());
    args.runs = static_cast<int>(part.size());
    uintptr_t all = bits;
    for (size_t i = 0; i < part.size(); ++i) {
      args.from[i] = part[i].first * element;
      args.to[i] = to;
      args.bytes[i] = part[i].count * element;
      to += args.bytes[i];
      all |= static_cast<uintptr_t>(args.from[i] | args.to[i] | args.bytes[i]);
    }
    const auto kernel = all % 16 == 0  ? Columns<uint4>
                        : element == 2 ? Columns<uint16_t>
                                       : Columns<uint32_t>;
    const int64_t warps = args.rows * args.runs;
    INLAY_RETURN_IF_ERROR(
        LaunchCuda("columns", CudaStream::Of(stream),
                   {(warps + kWarps - 1) / kWarps, kWarps * 32}, kernel, args));
  }
  return absl::OkStatus();
}

}  // namespace inlay
