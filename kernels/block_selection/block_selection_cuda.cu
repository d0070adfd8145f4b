// block_selection on CUDA, from sm_80 up: two kernels, over as many rows at a
// time as the workspace has room for.
//
// Scores: of a row and KV head, shared out to `parts` CTAs of eight warps, each
// of which takes every parts-th run of 8 x 16 blocks; a warp has 16 blocks at a
// time and asks for 16 bytes a lane, 4 KB at once. Neighbouring CTAs have
// neighbouring KV heads, whose summaries lie side by side. Bounds and k-means:
// what the heads of the group ask for is made into one vector in float32
// (bounds: half of the lanes have the negative parts of their sum and half the
// positive ones; k-means: half of the lanes have a centroid each), in registers
// for all of a CTA's blocks; a score is a sum over a lane's elements and then a
// fixed tree of lanes. LSH: the CTA hashes its group's queries into shared
// memory (4 KB); a lane has a key, two blocks are a warp's, and the least
// distances of two pairs of blocks are looked for in one register's halves. So
// a score does not depend on how rows and blocks are dealt out.
//
// Select: a CTA a row and KV head (kernels/indexer/select_best.cuh), and the
// blocks that are always selected.
//
// The grid follows from the limits alone, lengths are read on the device: a
// CUDA graph is for any step. Plans and block tables are read while the kernel
// before runs, and a warp's first summaries are prefetched. Rows of nobody have
// no keys, and nothing is written for them. Barriers: __syncthreads only.
// Roofline: the summaries over the bandwidth of reading: 8,192 blocks (131,072
// keys) x 8 KV heads x 512 bytes (bounds, k-means, 128 dimensions) = 34 MB, 8
// us at 4.2 TB/s; LSH half of that, and as much time for the population counts
// (16 a clock and multiprocessor). Then one more launch, whose 8 CTAs read 32
// KB of scores each from the level-2 cache.
#include <algorithm>

#include "kernels/block_selection/block_hash.cuh"
#include "kernels/block_selection/block_selection.h"
#include "kernels/cuda_float.cuh"
#include "kernels/cuda_launch.cuh"
#include "kernels/indexer/select_best.cuh"
#include "kernels/kv_write/kv_load.cuh"

namespace inlay {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kTile = 16;  // blocks of a warp at a time
constexpr int kCtaTile = kWarps * kTile;
constexpr int kCtasAnSm = 4;
constexpr int kLineBytes = 128;
constexpr int kLoadsAhead = 8;  // of 16 bytes a lane
constexpr unsigned kAll = 0xffffffffu;

// Scores of all rows at once, beside which a row of the longest sequence may
// still be more.
constexpr int64_t kScoreBytes = int64_t{64} << 20;

struct SelectionArgs {
  const char* q;
  int64_t q_stride;
  DType activation;
  KvLayerView summaries;
  int64_t row_bytes;  // kSelectBlock rows are a summary
  int summary_lines;  // of kLineBytes
  int units;          // blocks in a block of the cache
  int group;
  int num_kv_heads;
  int head_dim;
  int num_blocks;
  const IndexQuery* queries;
  const int32_t* blocks;
  float* scores;  // [rows at once][num_kv_heads][max_blocks]
  int64_t max_blocks;
  int64_t first_row;
  int parts;  // CTAs a row and KV head
  int32_t* selection;
};

// Query `place` of those at once, and a KV head.
struct Task {
  __device__ Task(const SelectionArgs& args, int64_t place, int of_head)
      : head(of_head),
        row(args.first_row + place),
        index(place * args.num_kv_heads + of_head) {
    const IndexQuery query = args.queries[row];
    count = (query.num_keys + kSelectBlock - 1) / kSelectBlock;
    blocks = args.blocks + query.blocks_begin;
    selects = count > args.num_blocks;
  }

  // Of block `i` of the sequence: in the cache, and its summary behind
  // summaries.base.
  __device__ int Place(const SelectionArgs& args, int i) const {
    return blocks[i / args.units] * args.units + i % args.units;
  }
  __device__ int64_t SummaryAt(const SelectionArgs& args, int i) const {
    const KvLayerView& view = args.summaries;
    const int64_t slot =
        int64_t{head} * view.block_size + i % args.units * kSelectBlock;
    return blocks[i / args.units] * view.block_stride_bytes +
           view.k_offset_bytes + slot * args.row_bytes;
  }
  // Blocks [kSinkBlocks, end()) compete, where not all are selected.
  __device__ int end() const { return count - kLocalBlocks; }
  __device__ float* Scores(const SelectionArgs& args) const {
    return args.scores + index * args.max_blocks;
  }

  int head;
  int64_t row;
  int64_t index;          // of the scores
  int count;              // of the query's blocks; 0: nobody's
  const int32_t* blocks;  // of the cache
  bool selects;           // some and not all
};

// How a tile lies in a warp: kLanes lanes share a block and ask for 32 / kLanes
// blocks at a time, kTurns times.
template <int kLanesOfBlock>
struct Turns {
  static constexpr int kLanes = kLanesOfBlock;
  static constexpr int kBlocks = 32 / kLanes;
  static constexpr int kTurns = kTile / kBlocks;

  // The tile's block that the lane has in turn `turn`.
  __device__ static int BlockIn(int turn, int lane) {
    return turn * kBlocks + lane / kLanes;
  }
  // The turn whose score the lane writes; some write none.
  __device__ static int TurnOf(int lane) { return lane % kLanes; }
  static_assert(kTurns <= kLanes);
};

// Begins to bring the line at `from` to the level-2 cache: there it is also
// what kernels write that still run.
__device__ void PrefetchLine(const std::byte* from) {
#ifdef __CUDA_ARCH__
  asm volatile("prefetch.global.L2 [%0];" ::"l"(__cvta_generic_to_global(from))
               : "memory");
#endif
}

// What all score kernels do around their arithmetic: a warp's tiles, one after
// another. prepare() is called by all threads of CTAs that have something to
// score, once the kernels before are done. score(at) gives each lane the score
// of its block in turn TurnOf(lane); the summary of the tile's block b is `at`
// of lane b behind the summaries' base.
template <typename Layout, typename Prepare, typename Score>
__device__ void ForTiles(const SelectionArgs& args, const Task& task, int part,
                         Prepare prepare, Score score) {
  LetNextBegin();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int end = task.end();
  const int first = kSinkBlocks + part * kCtaTile;
  // Of blocks that are not there: the last one that is.
  const auto find = [&](int tile) {
    return task.SummaryAt(args, min(tile + lane % kTile, end - 1));
  };
  int tile = first + warp * kTile;
  // Block tables are the step's: no kernel writes them.
  int64_t at = 0;
  if (task.selects && tile < end) {
    at = find(tile);
    static_assert(32 % kTile == 0);
    for (int line = lane / kTile; line < args.summary_lines;
         line += 32 / kTile) {
      PrefetchLine(args.summaries.base.base + at + line * kLineBytes);
    }
  }
  WaitForPrevious();
  if (!task.selects || first >= end) return;
  prepare();
  float* const scores = task.Scores(args);
  const int turn = Layout::TurnOf(lane);
  const int mine = Layout::BlockIn(turn, lane);
  while (tile < end) {
    const float of_mine = score(at);
    if (turn < Layout::kTurns && tile + mine < end) {
      scores[tile + mine] = of_mine;
    }
    tile += args.parts * kCtaTile;
    if (tile < end) at = find(tile);
  }
}

__device__ Task TaskOfCta(const SelectionArgs& args) {
  const int64_t cta = blockIdx.x;
  return Task(args, cta / args.num_kv_heads / args.parts,
              static_cast<int>(cta % args.num_kv_heads));
}
__device__ int PartOfCta(const SelectionArgs& args) {
  return static_cast<int>(blockIdx.x / args.num_kv_heads % args.parts);
}

__device__ float Bf16At(const uint4& bits, int i) {
  const uint32_t word = i < 2   ? bits.x
                        : i < 4 ? bits.y
                        : i < 6 ? bits.z
                                : bits.w;
  return __uint_as_float(i % 2 == 0 ? word << 16 : word & 0xffff0000u);
}

// Bounds and k-means. The first half of a block's lanes has the first row of
// its summary (the least; centroid 0), the other half the second; of it a lane
// has kPieces times 8 elements, as far as there are so many.
template <bool kBounds, int kLanes, int kPieces>
__global__ void __launch_bounds__(kThreads)
    ScoreDots(const __grid_constant__ SelectionArgs args) {
  using Layout = Turns<kLanes>;
  constexpr int kHalf = kLanes / 2;
  constexpr int kAhead = Layout::kTurns < kLoadsAhead / kPieces
                             ? Layout::kTurns
                             : kLoadsAhead / kPieces;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int half = lane % kLanes / kHalf;
  const int first = lane % kHalf;  // piece
  const Task task = TaskOfCta(args);
  const std::byte* const base = args.summaries.base.base;
  float x[kPieces][8] = {};
  const auto prepare = [&] {
    const char* q = args.q + task.row * args.q_stride;
#pragma unroll
    for (int p = 0; p < kPieces; ++p) {
      const int at = 8 * (first + p * kHalf);
      if (at >= args.head_dim) continue;
#pragma unroll 4
      for (int h = 0; h < args.group; ++h) {
        const int element = (task.head * args.group + h) * args.head_dim + at;
#pragma unroll
        for (int i = 0; i < 8; i += 4) {
          const float4 y = LoadPlain4(args.activation, q, element + i);
          const float of[4] = {y.x, y.y, y.z, y.w};
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            if (!kBounds || (of[j] > 0.0f) == (half == 1)) x[p][i + j] += of[j];
          }
        }
      }
    }
  };
  const auto score = [&](int64_t at) {
    float mine = 0.0f;
#pragma unroll
    for (int begin = 0; begin < Layout::kTurns; begin += kAhead) {
      uint4 rows[kAhead][kPieces];
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const int64_t from =
            __shfl_sync(kAll, at, Layout::BlockIn(begin + i, lane));
        const std::byte* row = base + from + half * 2 * args.head_dim;
#pragma unroll
        for (int p = 0; p < kPieces; ++p) {
          const int piece = first + p * kHalf;
          rows[i][p] = 8 * piece < args.head_dim
                           ? __ldcg(reinterpret_cast<const uint4*>(row) + piece)
                           : make_uint4(0, 0, 0, 0);
        }
      }
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        float sum = 0.0f;
#pragma unroll
        for (int p = 0; p < kPieces; ++p) {
#pragma unroll
          for (int e = 0; e < 8; ++e) {
            sum = __fmaf_rn(x[p][e], Bf16At(rows[i][p], e), sum);
          }
        }
#pragma unroll
        for (int lanes = 1; lanes < kHalf; lanes *= 2) {
          sum += __shfl_xor_sync(kAll, sum, lanes);
        }
        const float other = __shfl_xor_sync(kAll, sum, kHalf);
        float both = sum + other;
        if constexpr (!kBounds) {
          // The nearer centroid.
          const float first_dot = half == 0 ? sum : other;
          const float second_dot = half == 0 ? other : sum;
          both = second_dot <= first_dot ? first_dot : second_dot;
        }
        if (Layout::TurnOf(lane) == begin + i) mine = both;
      }
    }
    return mine;
  };
  ForTiles<Layout>(args, task, PartOfCta(args), prepare, score);
}

__device__ float LoadPlain1(DType dtype, const char* row, int at) {
  switch (dtype) {
    case DType::kF32:
      return reinterpret_cast<const float*>(row)[at];
    case DType::kF16:
      return ToFloat(reinterpret_cast<const __half*>(row)[at]);
    default:
      return ToFloat(reinterpret_cast<const __nv_bfloat16*>(row)[at]);
  }
}

// LSH: each head's most like key, the equal bits added up. A lane has a key of
// its block.
template <int kWidth>
__global__ void __launch_bounds__(kThreads)
    ScoreHashes(const __grid_constant__ SelectionArgs args) {
  using Layout = Turns<kSelectBlock>;
  constexpr int kPairs = Layout::kTurns / 2;
  constexpr uint32_t kMost = kHashBits << 16 | kHashBits;  // of two turns
  __shared__ uint4 asked[kMaxSelectingGroup];
  static_assert(sizeof(uint4) == kHashHalves * sizeof(uint32_t));
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int key = lane % kSelectBlock;
  const Task task = TaskOfCta(args);
  const std::byte* const base = args.summaries.base.base;
  const auto prepare = [&] {
    const char* q = args.q + task.row * args.q_stride;
    const WarpHash<kWidth> hash(lane);
    for (int h = static_cast<int>(threadIdx.x) / 32; h < args.group;
         h += kWarps) {
      const int element = (task.head * args.group + h) * args.head_dim;
      float x[kWidth / 32];
#pragma unroll
      for (int j = 0; j < kWidth / 32; ++j) {
        const int d = 32 * j + lane;
        x[j] = d < args.head_dim ? LoadPlain1(args.activation, q, element + d)
                                 : 0.0f;
      }
      uint32_t words[kHashHalves];
      hash.Hash(x, words);
      if (lane == 0) {
        asked[h] = make_uint4(words[0], words[1], words[2], words[3]);
      }
    }
    __syncthreads();
  };
  const auto score = [&](int64_t at) {
    uint2 low[Layout::kTurns];  // word 0 of the key
    uint2 high[Layout::kTurns];
#pragma unroll
    for (int i = 0; i < Layout::kTurns; ++i) {
      const int64_t from = __shfl_sync(kAll, at, Layout::BlockIn(i, lane));
      const auto* words = reinterpret_cast<const uint2*>(base + from);
      low[i] = __ldcg(words + key);
      high[i] = __ldcg(words + kSelectBlock + key);
    }
    uint32_t sums[kPairs] = {};  // of two turns, 16 bits each
#pragma unroll 1
    for (int h = 0; h < args.group; ++h) {
      const uint4 w = asked[h];
      const auto different = [&](int i) {
        return __popc(w.x ^ low[i].x) + __popc(w.y ^ low[i].y) +
               __popc(w.z ^ high[i].x) + __popc(w.w ^ high[i].y);
      };
#pragma unroll
      for (int pair = 0; pair < kPairs; ++pair) {
        auto least = static_cast<uint32_t>(different(2 * pair) |
                                           different(2 * pair + 1) << 16);
#pragma unroll
        for (int lanes = 1; lanes < kSelectBlock; lanes *= 2) {
          least = __vminu2(least, __shfl_xor_sync(kAll, least, lanes));
        }
        sums[pair] += kMost - least;
      }
    }
    uint32_t mine = 0;
#pragma unroll
    for (int i = 0; i < Layout::kTurns; ++i) {
      if (Layout::TurnOf(lane) == i) mine = sums[i / 2] >> 16 * (i % 2);
    }
    return static_cast<float>(mine & 0xffffu);
  };
  // Two halves of a register hold any sum.
  static_assert(kHashBits * kMaxSelectingGroup < 1 << 16);
  ForTiles<Layout>(args, task, PartOfCta(args), prepare, score);
}

__global__ void __launch_bounds__(kSelectThreads)
    SelectBlocks(const __grid_constant__ SelectionArgs args) {
  __shared__ SelectShared shared;
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t place = blockIdx.x / args.num_kv_heads;
  const Task task(args, place,
                  static_cast<int>(blockIdx.x) % args.num_kv_heads);
  int32_t* const selection =
      args.selection +
      (task.row * args.num_kv_heads + task.head) * args.num_blocks;
  LetNextBegin();
  WaitForPrevious();
  if (!task.selects) {
    for (int i = thread; i < task.count; i += kSelectThreads) {
      selection[i] = task.Place(args, i);
    }
    return;
  }
  if (thread < kSinkBlocks) selection[thread] = task.Place(args, thread);
  if (thread < kLocalBlocks) {
    selection[args.num_blocks - 1 - thread] =
        task.Place(args, task.count - 1 - thread);
  }
  BestSelector best(task.Scores(args) + kSinkBlocks, task.count - kForcedBlocks,
                    args.num_blocks - kForcedBlocks, shared);
  best.Run([&](int at, int block) {
    selection[kSinkBlocks + at] = task.Place(args, kSinkBlocks + block);
  });
}

using ScoresKernel = void (*)(SelectionArgs);

// 16 bytes of a row for each half of a block's lanes.
template <bool kBounds>
ScoresKernel DotsKernel(int head_dim) {
  if (head_dim <= 32) return ScoreDots<kBounds, 8, 1>;
  if (head_dim <= 64) return ScoreDots<kBounds, 16, 1>;
  if (head_dim <= 128) return ScoreDots<kBounds, 32, 1>;
  if (head_dim <= 256) return ScoreDots<kBounds, 32, 2>;
  return ScoreDots<kBounds, 32, 4>;
}

ScoresKernel KernelOf(const BlockSelectionDesc& desc) {
  if (desc.method == BlockMethod::kBounds) {
    return DotsKernel<true>(desc.head_dim);
  }
  if (desc.method == BlockMethod::kKMeans) {
    return DotsKernel<false>(desc.head_dim);
  }
  if (desc.head_dim <= 128) return ScoreHashes<128>;
  return desc.head_dim <= 256 ? ScoreHashes<256> : ScoreHashes<512>;
}

int64_t MaxBlocks(const BlockSelectionDesc& desc) {
  return (desc.max_keys + kSelectBlock - 1) / kSelectBlock;
}

int64_t RowsAtOnce(const BlockSelectionDesc& desc, int64_t max_rows) {
  const int64_t row_bytes =
      desc.num_kv_heads * MaxBlocks(desc) * static_cast<int64_t>(sizeof(float));
  return std::min(max_rows, std::max<int64_t>(1, kScoreBytes / row_bytes));
}

}  // namespace

size_t BlockSelectionCudaBytes(const BlockSelectionDesc& desc,
                               int64_t max_rows) {
  return static_cast<size_t>(RowsAtOnce(desc, max_rows) * desc.num_kv_heads *
                             MaxBlocks(desc)) *
         sizeof(float);
}

absl::Status RunBlockSelectionCuda(const BlockSelectionDesc& desc,
                                   const BlockSelectionParams& params,
                                   Stream& stream) {
  CudaStream& cuda = CudaStream::Of(stream);
  SelectionArgs args;
  args.q = reinterpret_cast<const char*>(params.q.data);
  args.q_stride = static_cast<int64_t>(params.q.row_stride_bytes);
  args.activation = desc.activation;
  args.summaries = params.summaries;
  args.row_bytes = params.summaries.row_bytes();
  args.summary_lines = static_cast<int>(
      (BlockSummaryBytes(desc.method, desc.head_dim) + kLineBytes - 1) /
      kLineBytes);
  args.units = params.summaries.block_size / kSelectBlock;
  args.group = desc.num_heads / desc.num_kv_heads;
  args.num_kv_heads = desc.num_kv_heads;
  args.head_dim = desc.head_dim;
  args.num_blocks = desc.num_blocks;
  args.queries = params.plan->queries;
  args.blocks = params.plan->blocks;
  args.scores = static_cast<float*>(params.workspace);
  args.max_blocks = MaxBlocks(desc);
  args.selection = params.selection;
  const ScoresKernel scores = KernelOf(desc);
  const int64_t rows = params.q.rows();
  const int64_t at_once = RowsAtOnce(desc, rows);
  const int64_t most = (args.max_blocks + kCtaTile - 1) / kCtaTile;
  for (int64_t first = 0; first < rows; first += at_once) {
    const int64_t count = std::min(at_once, rows - first);
    const int64_t tasks = count * desc.num_kv_heads;
    const int64_t wanted = (kCtasAnSm * cuda.num_sms() + tasks - 1) / tasks;
    args.first_row = first;
    args.parts = static_cast<int>(std::min(wanted, most));
    INLAY_RETURN_IF_ERROR(LaunchCuda("block_selection (scores)", cuda,
                                     {tasks * args.parts, kThreads}, scores,
                                     args));
    INLAY_RETURN_IF_ERROR(LaunchCuda("block_selection (select)", cuda,
                                     {tasks, kSelectThreads}, SelectBlocks,
                                     args));
  }
  return absl::OkStatus();
}

}  // namespace inlay
