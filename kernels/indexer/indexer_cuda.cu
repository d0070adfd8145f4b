// indexer on CUDA, from sm_80 up: two kernels, over as many rows at a time as
// the workspace has room for.
//
// Scores: a row is shared out to `parts` CTAs of 128 threads, each of which
// takes every parts-th tile of keys. Where queries and keys are of one 16-bit
// type (cuda_mma): 32 keys a warp, in registers, meet 16 heads at a time by
// mma.m16n8k16, accumulated in float32; operands come from global memory, 16
// bytes a lane. Otherwise (cuda_plain), in float32: a tile of 64 keys is in
// shared memory, and the row's heads pass through it 16 at a time (42 KB at 128
// dimensions; rows 4 floats apart from a multiple of 32 banks); a thread has 2
// heads and 4 keys. What heads give is added up over heads in a fixed order and
// then over lanes or threads in a fixed tree: a score does not depend on how
// rows and tiles are dealt out.
//
// Select: a CTA a row (select_best.cuh). Queries that see no more than top_k
// keys are not scored.
//
// Barriers: __syncthreads only. Roofline: the matrix units at 16 bits,
// shared-memory bandwidth otherwise; nothing is tuned.
#include <algorithm>

#include "kernels/cuda_launch.cuh"
#include "kernels/gemm/gemv_mma.cuh"
#include "kernels/indexer/indexer.h"
#include "kernels/indexer/select_best.cuh"
#include "kernels/kv_write/kv_load.cuh"

namespace inlay {
namespace {

constexpr int kThreads = 128;
constexpr int kKeys = 64;   // a tile
constexpr int kHeads = 16;  // at a time
constexpr int kLanes = 16;  // threads of two heads
constexpr int kKeysAThread = kKeys / kLanes;
constexpr int kHeadsAThread = kHeads / (kThreads / kLanes);
constexpr int kMmaHeads = 16;  // at a time
constexpr int kMmaKeys = 32;   // of a warp, 8 a product
constexpr int kMmaTiles = kMmaKeys / 8;
constexpr int kWarps = kThreads / 32;
constexpr unsigned kAll = 0xffffffffu;

// Scores of all rows at once, beside which a row of the longest sequence may
// still be more.
constexpr int64_t kScoreBytes = int64_t{64} << 20;

struct IndexerArgs {
  const char* q;
  int64_t q_stride;
  const char* weights;
  int64_t weight_stride;
  KvLayerView kv;
  int64_t kv_row_bytes;
  DType activation;
  int num_heads;
  int head_dim;
  int top_k;
  int key_tokens;
  int width;  // of a row of selection
  bool adds_partial;
  const IndexQuery* queries;
  const int32_t* blocks;
  float* scores;  // [rows at once, max_keys]
  int64_t max_keys;
  int64_t first_row;
  int parts;  // CTAs a row
  int32_t* selection;
};

// Keys, and then heads or what each thread's gave its keys.
size_t SharedBytes(int head_dim) {
  const int heads = std::max(kHeads * (head_dim + 4), kThreads * kKeysAThread);
  return sizeof(float) * static_cast<size_t>(kKeys * (head_dim + 4) + heads);
}

__device__ IndexQuery QueryOf(const IndexerArgs& args, int64_t row) {
  IndexQuery query = args.queries[row];
  query.num_keys /= args.key_tokens;
  return query;
}

__device__ const std::byte* KeyRow(const IndexerArgs& args,
                                   const IndexQuery& query, int position) {
  const int size = args.kv.block_size;
  const int block = args.blocks[query.blocks_begin + position / size];
  return args.kv.base.base + block * args.kv.block_stride_bytes +
         args.kv.k_offset_bytes + position % size * args.kv_row_bytes;
}

// Keys beyond the last are zeros.
__device__ void LoadKeys(const IndexerArgs& args, const IndexQuery& query,
                         int tile, float* keys) {
  const int quads = args.head_dim / 4;
  for (int i = threadIdx.x; i < kKeys * quads; i += kThreads) {
    const int key = i / quads;
    const int at = i % quads * 4;
    const int position = tile + key;
    float4 x = {0.0f, 0.0f, 0.0f, 0.0f};
    if (position < query.num_keys) {
      x = LoadKv4(args.kv.dtype, KeyRow(args, query, position), at);
    }
    *reinterpret_cast<float4*>(keys + key * (args.head_dim + 4) + at) = x;
  }
}

// Heads [first, first + kHeads) of the row; those that it lacks are zeros.
__device__ void LoadHeads(const IndexerArgs& args, int64_t row, int first,
                          float* heads) {
  const int quads = args.head_dim / 4;
  const char* q = args.q + row * args.q_stride;
  for (int i = threadIdx.x; i < kHeads * quads; i += kThreads) {
    const int head = i / quads;
    const int at = i % quads * 4;
    float4 x = {0.0f, 0.0f, 0.0f, 0.0f};
    if (first + head < args.num_heads) {
      x = LoadPlain4(args.activation, q, (first + head) * args.head_dim + at);
    }
    *reinterpret_cast<float4*>(heads + head * (args.head_dim + 4) + at) = x;
  }
}

// Adds what the thread's heads of those in shared memory give its keys.
__device__ void AddHeads(const IndexerArgs& args, const float* weights,
                         int first, const float* keys, const float* heads,
                         float (&sums)[kKeysAThread]) {
  const int stride = args.head_dim + 4;
  const int lane = threadIdx.x % kLanes;
  const int head = threadIdx.x / kLanes * kHeadsAThread;
  float dots[kHeadsAThread][kKeysAThread] = {};
  for (int d = 0; d < args.head_dim; d += 4) {
    float4 y[kKeysAThread];
#pragma unroll
    for (int i = 0; i < kKeysAThread; ++i) {
      y[i] = *reinterpret_cast<const float4*>(keys +
                                              (lane + i * kLanes) * stride + d);
    }
#pragma unroll
    for (int h = 0; h < kHeadsAThread; ++h) {
      const float4 x =
          *reinterpret_cast<const float4*>(heads + (head + h) * stride + d);
#pragma unroll
      for (int i = 0; i < kKeysAThread; ++i) {
        dots[h][i] = fmaf(x.x, y[i].x, dots[h][i]);
        dots[h][i] = fmaf(x.y, y[i].y, dots[h][i]);
        dots[h][i] = fmaf(x.z, y[i].z, dots[h][i]);
        dots[h][i] = fmaf(x.w, y[i].w, dots[h][i]);
      }
    }
  }
#pragma unroll
  for (int h = 0; h < kHeadsAThread; ++h) {
    const int of_row = first + head + h;
    const float weight = of_row < args.num_heads ? weights[of_row] : 0.0f;
#pragma unroll
    for (int i = 0; i < kKeysAThread; ++i) {
      sums[i] = fmaf(weight, fmaxf(dots[h][i], 0.0f), sums[i]);
    }
  }
}

__global__ void __launch_bounds__(kThreads)
    IndexerScores(const __grid_constant__ IndexerArgs args) {
  extern __shared__ float shared[];
  float* const keys = shared;
  float* const heads = shared + kKeys * (args.head_dim + 4);
  WaitForPrevious();
  LetNextBegin();
  const int64_t place = blockIdx.x / args.parts;
  const int part = static_cast<int>(blockIdx.x) % args.parts;
  const int64_t row = args.first_row + place;
  const IndexQuery query = QueryOf(args, row);
  if (query.num_keys <= args.top_k) return;
  const auto* weights =
      reinterpret_cast<const float*>(args.weights + row * args.weight_stride);
  float* const scores = args.scores + place * args.max_keys;
  for (int tile = part * kKeys; tile < query.num_keys;
       tile += args.parts * kKeys) {
    __syncthreads();  // the tile before is done with shared memory
    LoadKeys(args, query, tile, keys);
    float sums[kKeysAThread] = {};
    for (int first = 0; first < args.num_heads; first += kHeads) {
      if (first > 0) __syncthreads();
      LoadHeads(args, row, first, heads);
      __syncthreads();
      AddHeads(args, weights, first, keys, heads, sums);
    }
    __syncthreads();
    // Sums of pairs of heads, pair by pair, where the heads were.
#pragma unroll
    for (int i = 0; i < kKeysAThread; ++i) {
      heads[threadIdx.x / kLanes * kKeys + threadIdx.x % kLanes + i * kLanes] =
          sums[i];
    }
    __syncthreads();
    const int key = static_cast<int>(threadIdx.x);
    if (key < kKeys && tile + key < query.num_keys) {
      float score = 0.0f;
#pragma unroll
      for (int i = 0; i < kThreads / kLanes; ++i) {
        score += heads[i * kKeys + key];
      }
      scores[tile + key] = score;
    }
  }
}

__device__ uint4 Load16OrZeros(const void* from, bool valid) {
  return valid ? *static_cast<const uint4*>(from) : make_uint4(0, 0, 0, 0);
}

// kSteps: of 32 dimensions, whose order within a step is the same for both
// operands (gemv_mma.cuh).
template <typename T, int kSteps>
__global__ void __launch_bounds__(kThreads)
    IndexerScoresMma(const __grid_constant__ IndexerArgs args) {
  WaitForPrevious();
  LetNextBegin();
  const int64_t place = blockIdx.x / args.parts;
  const int part = static_cast<int>(blockIdx.x) % args.parts;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int group = static_cast<int>(threadIdx.x) % 32 / 4;
  const int column = static_cast<int>(threadIdx.x) % 4;
  const int64_t row = args.first_row + place;
  const IndexQuery query = QueryOf(args, row);
  if (query.num_keys <= args.top_k) return;
  const auto* weights =
      reinterpret_cast<const float*>(args.weights + row * args.weight_stride);
  const auto* q =
      reinterpret_cast<const T*>(args.q + row * args.q_stride) + 8 * column;
  float* const scores = args.scores + place * args.max_keys;
  for (int tile = (part * kWarps + warp) * kMmaKeys; tile < query.num_keys;
       tile += args.parts * kWarps * kMmaKeys) {
    uint4 keys[kMmaTiles][kSteps];
#pragma unroll
    for (int i = 0; i < kMmaTiles; ++i) {
      const int position = tile + 8 * i + group;
      const bool valid = position < query.num_keys;
      // Of a key that is not there, anything that can be pointed at.
      const T* key = q;
      if (valid) {
        key = reinterpret_cast<const T*>(KeyRow(args, query, position)) +
              8 * column;
      }
#pragma unroll
      for (int s = 0; s < kSteps; ++s) {
        keys[i][s] = Load16OrZeros(key + 32 * s, valid);
      }
    }
    float sums[kMmaTiles][2] = {};
    for (int first = 0; first < args.num_heads; first += kMmaHeads) {
      // Heads that the row lacks are zeros.
      const int low = first + group;
      const int high = low + 8;
      const bool has_low = low < args.num_heads;
      const bool has_high = high < args.num_heads;
      float dots[kMmaTiles][4] = {};
#pragma unroll
      for (int s = 0; s < kSteps; ++s) {
        const uint4 x =
            Load16OrZeros(q + low * args.head_dim + 32 * s, has_low);
        const uint4 y =
            Load16OrZeros(q + high * args.head_dim + 32 * s, has_high);
        const uint32_t a[2][4] = {{x.x, y.x, x.y, y.y}, {x.z, y.z, x.w, y.w}};
#pragma unroll
        for (int i = 0; i < kMmaTiles; ++i) {
          MultiplyTile<T>(dots[i], a[0], keys[i][s].x, keys[i][s].y);
          MultiplyTile<T>(dots[i], a[1], keys[i][s].z, keys[i][s].w);
        }
      }
      const float low_weight = has_low ? weights[low] : 0.0f;
      const float high_weight = has_high ? weights[high] : 0.0f;
#pragma unroll
      for (int i = 0; i < kMmaTiles; ++i) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          sums[i][j] = fmaf(low_weight, fmaxf(dots[i][j], 0.0f), sums[i][j]);
          sums[i][j] =
              fmaf(high_weight, fmaxf(dots[i][j + 2], 0.0f), sums[i][j]);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kMmaTiles; ++i) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
#pragma unroll
        for (int lanes = 4; lanes < 32; lanes *= 2) {
          sums[i][j] += __shfl_xor_sync(kAll, sums[i][j], lanes);
        }
        const int key = tile + 8 * i + 2 * column + j;
        if (group == i && key < query.num_keys) scores[key] = sums[i][j];
      }
    }
  }
}

__global__ void __launch_bounds__(kSelectThreads)
    IndexerSelect(const __grid_constant__ IndexerArgs args) {
  __shared__ SelectShared shared;
  WaitForPrevious();
  LetNextBegin();
  const int64_t row = args.first_row + blockIdx.x;
  const IndexQuery query = QueryOf(args, row);
  const int32_t* const blocks = args.blocks + query.blocks_begin;
  int32_t* const selection = args.selection + row * args.width;
  const int size = args.kv.block_size;
  const auto slot_of = [&](int key) {
    return blocks[key / size] * size + key % size;
  };
  const int seen = args.queries[row].num_keys;
  if (args.adds_partial && threadIdx.x == 0 && seen % args.key_tokens != 0) {
    selection[min(query.num_keys, args.top_k)] = slot_of(query.num_keys);
  }
  if (query.num_keys <= args.top_k) {
    for (int i = static_cast<int>(threadIdx.x); i < query.num_keys;
         i += kSelectThreads) {
      selection[i] = slot_of(i);
    }
    return;
  }
  BestSelector best(args.scores + blockIdx.x * args.max_keys, query.num_keys,
                    args.top_k, shared);
  best.Run([&](int place, int key) { selection[place] = slot_of(key); });
}

int64_t RowsAtOnce(const IndexerDesc& desc, int64_t max_rows) {
  const int64_t row_bytes = desc.max_keys * static_cast<int64_t>(sizeof(float));
  return std::min(max_rows, std::max<int64_t>(1, kScoreBytes / row_bytes));
}

}  // namespace

size_t IndexerCudaBytes(const IndexerDesc& desc, int64_t max_rows) {
  return static_cast<size_t>(RowsAtOnce(desc, max_rows) * desc.max_keys) *
         sizeof(float);
}

namespace {

using ScoresKernel = void (*)(IndexerArgs);

// `tile`: keys that a CTA of `scores` takes at a time.
absl::Status RunIndexer(const IndexerDesc& desc, const IndexerParams& params,
                        ScoresKernel scores, int tile, size_t shared_bytes,
                        Stream& stream) {
  CudaStream& cuda = CudaStream::Of(stream);
  IndexerArgs args;
  args.q = reinterpret_cast<const char*>(params.q.data);
  args.q_stride = static_cast<int64_t>(params.q.row_stride_bytes);
  args.weights = reinterpret_cast<const char*>(params.weights.data);
  args.weight_stride = static_cast<int64_t>(params.weights.row_stride_bytes);
  args.kv = params.kv;
  args.kv_row_bytes = static_cast<int64_t>(KvRowBytes(desc.kv, desc.head_dim));
  args.activation = desc.activation;
  args.num_heads = desc.num_heads;
  args.head_dim = desc.head_dim;
  args.top_k = desc.top_k;
  args.key_tokens = desc.key_tokens;
  args.width = desc.width();
  args.adds_partial = desc.adds_partial;
  args.queries = params.plan->queries;
  args.blocks = params.plan->blocks;
  args.scores = static_cast<float*>(params.workspace);
  args.max_keys = desc.max_keys;
  args.selection = params.selection;
  const int64_t rows = params.q.rows();
  const int64_t at_once = RowsAtOnce(desc, rows);
  const int64_t most = (desc.max_keys + tile - 1) / tile;
  for (int64_t first = 0; first < rows; first += at_once) {
    const int64_t count = std::min(at_once, rows - first);
    // Four CTAs a multiprocessor where there are few rows.
    const int64_t wanted = (4 * cuda.num_sms() + count - 1) / count;
    args.first_row = first;
    args.parts = static_cast<int>(std::min(wanted, most));
    INLAY_RETURN_IF_ERROR(
        LaunchCuda("indexer (scores)", cuda,
                   {count * args.parts, kThreads, shared_bytes}, scores, args));
    INLAY_RETURN_IF_ERROR(LaunchCuda("indexer (select)", cuda,
                                     {count, kSelectThreads}, IndexerSelect,
                                     args));
  }
  return absl::OkStatus();
}

template <typename T>
ScoresKernel MmaKernel(int head_dim) {
  switch (head_dim) {
    case 32:
      return IndexerScoresMma<T, 1>;
    case 64:
      return IndexerScoresMma<T, 2>;
    default:
      return IndexerScoresMma<T, 4>;
  }
}

}  // namespace

absl::Status RunIndexerCudaPlain(const IndexerDesc& desc,
                                 const IndexerParams& params, Stream& stream) {
  return RunIndexer(desc, params, IndexerScores, kKeys,
                    SharedBytes(desc.head_dim), stream);
}

absl::Status RunIndexerCudaMma(const IndexerDesc& desc,
                               const IndexerParams& params, Stream& stream) {
  return RunIndexer(desc, params,
                    desc.activation == DType::kF16
                        ? MmaKernel<__half>(desc.head_dim)
                        : MmaKernel<__nv_bfloat16>(desc.head_dim),
                    kWarps * kMmaKeys, 0, stream);
}

}  // namespace inlay
