// block_indexer on CUDA, from sm_80 up: two kernels, over as many rows at a
// time as the workspace has room for.
//
// Scores: a row is shared out to `parts` CTAs of four warps; a warp has one
// block of keys at a time, of which a lane has every 32nd key. A key is read
// once for kHeads heads, whose queries lie in shared memory as float32; a
// lane's sums go over the dimensions in their order, and the most of a block's
// keys is a tree of lanes, so a score does not depend on how rows and blocks
// are dealt out.
//
// Select: a CTA a row and head (select_best.cuh), and the neighbours.
//
// The grid follows from the limits alone, lengths are read on the device: a
// CUDA graph is for any step. Rows of nobody have no keys, and nothing is
// written for them. Barriers: __syncthreads only. Roofline: the keys over the
// bandwidth of reading (131,072 of 128 in bf16 are 34 MB, 8 us at 4.2 TB/s);
// lanes read rows of their own, so it is far from that: nothing is tuned.
#include <algorithm>

#include "kernels/cuda_launch.cuh"
#include "kernels/indexer/block_indexer.h"
#include "kernels/indexer/select_best.cuh"
#include "kernels/kv_write/kv_load.cuh"

namespace inlay {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / 32;
constexpr int kHeads = 4;  // at a time
constexpr int kCtasAnSm = 4;
constexpr unsigned kAll = 0xffffffffu;

// Scores of all rows at once, beside which a row of the longest sequence may
// still be more.
constexpr int64_t kScoreBytes = int64_t{64} << 20;

struct BlockIndexerArgs {
  const char* q;
  int64_t q_stride;
  DType activation;
  KvLayerView kv;
  int64_t kv_row_bytes;
  int num_heads;
  int head_dim;
  int block;
  int units;  // blocks in a block of the cache
  int selects;
  int neighbours;
  const IndexQuery* queries;
  const int32_t* blocks;
  float* scores;  // [rows at once][num_heads][max_blocks]
  int64_t max_blocks;
  int64_t first_row;
  int parts;  // CTAs a row
  int32_t* selection;
};

struct BlockTask {
  __device__ BlockTask(const BlockIndexerArgs& args, int64_t of_row)
      : row(of_row) {
    const IndexQuery query = args.queries[row];
    count = (query.num_keys + args.block - 1) / args.block;
    blocks = args.blocks + query.blocks_begin;
    selects = count > args.selects;
  }
  // Of block `i` of the sequence, in the cache.
  __device__ int Place(const BlockIndexerArgs& args, int i) const {
    return blocks[i / args.units] * args.units + i % args.units;
  }
  __device__ const std::byte* Key(const BlockIndexerArgs& args,
                                  int position) const {
    const int size = args.kv.block_size;
    return args.kv.base.base +
           blocks[position / size] * args.kv.block_stride_bytes +
           args.kv.k_offset_bytes + position % size * args.kv_row_bytes;
  }

  int64_t row;
  int count;              // of the query's blocks; 0: nobody's
  const int32_t* blocks;  // of the cache
  bool selects;           // some and not all
};

__global__ void __launch_bounds__(kThreads)
    ScoreBlocks(const __grid_constant__ BlockIndexerArgs args) {
  __shared__ float4 heads[kHeads][kMaxIndexHeadDim / 4];
  const int64_t place = blockIdx.x / args.parts;
  const int part = static_cast<int>(blockIdx.x % args.parts);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const BlockTask task(args, args.first_row + place);
  LetNextBegin();
  WaitForPrevious();
  if (!task.selects) return;
  const int quads = args.head_dim / 4;
  const int end = task.count - args.neighbours;
  const char* q = args.q + task.row * args.q_stride;
  for (int first = 0; first < args.num_heads; first += kHeads) {
    __syncthreads();  // the heads before are done with
    for (int i = static_cast<int>(threadIdx.x); i < kHeads * quads;
         i += kThreads) {
      const int head = min(first + i / quads, args.num_heads - 1);
      heads[i / quads][i % quads] = LoadPlain4(
          args.activation, q, head * args.head_dim + 4 * (i % quads));
    }
    __syncthreads();
    for (int b = part * kWarps + warp; b < end; b += args.parts * kWarps) {
      float most[kHeads];
#pragma unroll
      for (int h = 0; h < kHeads; ++h) most[h] = -__builtin_huge_valf();
      for (int t = lane; t < args.block; t += 32) {
        const std::byte* key = task.Key(args, b * args.block + t);
        float sums[kHeads] = {};
        for (int i = 0; i < quads; ++i) {
          const float4 y = LoadKv4(args.kv.dtype, key, 4 * i);
#pragma unroll
          for (int h = 0; h < kHeads; ++h) {
            const float4 x = heads[h][i];
            sums[h] = fmaf(x.x, y.x, sums[h]);
            sums[h] = fmaf(x.y, y.y, sums[h]);
            sums[h] = fmaf(x.z, y.z, sums[h]);
            sums[h] = fmaf(x.w, y.w, sums[h]);
          }
        }
#pragma unroll
        for (int h = 0; h < kHeads; ++h) most[h] = fmaxf(most[h], sums[h]);
      }
#pragma unroll
      for (int h = 0; h < kHeads; ++h) {
#pragma unroll
        for (int lanes = 1; lanes < 32; lanes *= 2) {
          most[h] = fmaxf(most[h], __shfl_xor_sync(kAll, most[h], lanes));
        }
        if (lane == h && first + h < args.num_heads) {
          args.scores[(place * args.num_heads + first + h) * args.max_blocks +
                      b] = most[h];
        }
      }
    }
  }
}

__global__ void __launch_bounds__(kSelectThreads)
    SelectIndexed(const __grid_constant__ BlockIndexerArgs args) {
  __shared__ SelectShared shared;
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t place = blockIdx.x / args.num_heads;
  const int head = static_cast<int>(blockIdx.x % args.num_heads);
  const BlockTask task(args, args.first_row + place);
  int32_t* const selection =
      args.selection + (task.row * args.num_heads + head) * args.selects;
  LetNextBegin();
  WaitForPrevious();
  if (!task.selects) {
    for (int i = thread; i < task.count; i += kSelectThreads) {
      selection[i] = task.Place(args, i);
    }
    return;
  }
  const int places = args.selects - args.neighbours;
  for (int i = thread; i < args.neighbours; i += kSelectThreads) {
    selection[places + i] = task.Place(args, task.count - args.neighbours + i);
  }
  if (places == 0) return;
  BestSelector best(
      args.scores + (place * args.num_heads + head) * args.max_blocks,
      task.count - args.neighbours, places, shared);
  best.Run([&](int at, int block) { selection[at] = task.Place(args, block); });
}

int64_t RowsAtOnce(const BlockIndexerDesc& desc, int64_t max_rows) {
  const int64_t row_bytes =
      desc.num_heads * desc.max_blocks() * static_cast<int64_t>(sizeof(float));
  return std::min(max_rows, std::max<int64_t>(1, kScoreBytes / row_bytes));
}

}  // namespace

size_t BlockIndexerCudaBytes(const BlockIndexerDesc& desc, int64_t max_rows) {
  return static_cast<size_t>(RowsAtOnce(desc, max_rows) * desc.num_heads *
                             desc.max_blocks()) *
         sizeof(float);
}

absl::Status RunBlockIndexerCuda(const BlockIndexerDesc& desc,
                                 const BlockIndexerParams& params,
                                 Stream& stream) {
  CudaStream& cuda = CudaStream::Of(stream);
  BlockIndexerArgs args;
  args.q = reinterpret_cast<const char*>(params.q.data);
  args.q_stride = static_cast<int64_t>(params.q.row_stride_bytes);
  args.activation = desc.activation;
  args.kv = params.kv;
  args.kv_row_bytes = params.kv.row_bytes();
  args.num_heads = desc.num_heads;
  args.head_dim = desc.head_dim;
  args.block = desc.block;
  args.units = params.kv.block_size / desc.block;
  args.selects = desc.selects;
  args.neighbours = desc.neighbours;
  args.queries = params.plan->queries;
  args.blocks = params.plan->blocks;
  args.scores = static_cast<float*>(params.workspace);
  args.max_blocks = desc.max_blocks();
  args.selection = params.selection;
  const int64_t rows = params.q.rows();
  const int64_t at_once = RowsAtOnce(desc, rows);
  const int64_t most = (args.max_blocks + kWarps - 1) / kWarps;
  for (int64_t first = 0; first < rows; first += at_once) {
    const int64_t count = std::min(at_once, rows - first);
    const int64_t wanted = (kCtasAnSm * cuda.num_sms() + count - 1) / count;
    args.first_row = first;
    args.parts = static_cast<int>(std::min(wanted, most));
    if (desc.selects > desc.neighbours) {
      INLAY_RETURN_IF_ERROR(LaunchCuda("block_indexer (scores)", cuda,
                                       {count * args.parts, kThreads},
                                       ScoreBlocks, args));
    }
    INLAY_RETURN_IF_ERROR(LaunchCuda("block_indexer (select)", cuda,
                                     {count * desc.num_heads, kSelectThreads},
                                     SelectIndexed, args));
  }
  return absl::OkStatus();
}

}  // namespace inlay
