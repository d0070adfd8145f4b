// Rows that lie in groups one after another, of which only the device knows how
// many each has: which rows a block works on.
#ifndef INLAY_KERNELS_CUDA_GROUPS_CUH_
#define INLAY_KERNELS_CUDA_GROUPS_CUH_

#include <cuda_runtime.h>

#include <cstdint>

namespace inlay {

// Rows [first, first + rows) of a group; none: there is no such piece.
struct GroupPiece {
  int group = 0;
  int first = 0;
  int rows = 0;
};

// Piece `index` where groups of rows [offsets[g], offsets[g + 1]) are cut into
// pieces of at most 2^log_most rows. All lanes of a warp call it and get the
// same.
__device__ inline GroupPiece FindGroupPiece(const int32_t* offsets,
                                            int num_groups, int log_most,
                                            int index) {
  constexpr unsigned kAll = 0xffffffffu;
  const int most = 1 << log_most;
  // Each lane has groups that lie side by side: one scan over the warp finds
  // whose the piece is.
  const int lane = threadIdx.x % 32;
  const int share = (num_groups + 31) / 32;
  const int begin = min(lane * share, num_groups);
  const int end = min(begin + share, num_groups);
  const auto pieces_of = [&](int g) {
    return (offsets[g + 1] - offsets[g] + most - 1) >> log_most;
  };
  int own = 0;
#pragma unroll 4
  for (int g = begin; g < end; ++g) own += pieces_of(g);
  int sum = own;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const int other = __shfl_up_sync(kAll, sum, step);
    if (lane >= step) sum += other;
  }
  const unsigned beyond = __ballot_sync(kAll, sum > index);
  GroupPiece piece;
  if (beyond == 0) return piece;
  const int which = __ffs(static_cast<int>(beyond)) - 1;
  if (lane == which) {
    int before = sum - own;
    int group = begin;
    while (before + pieces_of(group) <= index) before += pieces_of(group++);
    piece.group = group;
    piece.first = offsets[group] + ((index - before) << log_most);
    piece.rows = min(most, offsets[group + 1] - piece.first);
  }
  piece.group = __shfl_sync(kAll, piece.group, which);
  piece.first = __shfl_sync(kAll, piece.first, which);
  piece.rows = __shfl_sync(kAll, piece.rows, which);
  return piece;
}

}  // namespace inlay

#endif  // INLAY_KERNELS_CUDA_GROUPS_CUH_
