// disentangled_attention on CUDA with matrix instructions of a warp (from sm_80
// up): caches of f16 or bf16, heads of 64. For encoders: many queries, all
// keys.
//
// Grid: AttentionPlanShape::grid CTAs, each with a list of items of 64 rows and
// all keys they see (whole_rows): nothing is folded, so a query's result
// depends on its own row and its keys alone. CTA: four warps, as
// attention_whole_items_mma.h has them.
//
// The distances of 64 queries from a tile of 64 keys are 127 consecutive
// numbers, u = a - b + 63 of query a and key b. With the tile come the rows of
// both tables for these, and the scores are the sum of three products:
//   q . k      of 16 queries and 64 keys, a warp's
//   q . keys   of 16 queries and the 80 rows that they reach, a warp's
//   queries . k   of 32 rows and 64 keys a warp, 128 in all, for all warps
// The second and third are written to shared memory by (a, u) and by (u, b),
// and each thread reads its pairs there. As many products of matrices as 5.25
// of attention's scores. All sums in float32.
//
// Shared memory (97 KB, which every GPU has; two CTAs an SM on those with 200
// KB): queries | keys | values | rows of keys | rows of queries | products. One
// stage: while a CTA waits for its tile, the other one computes. Barriers:
// __syncthreads around a tile, and around the third product.
// Roofline: the matrix units at the rate of mma.sync.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/attention/attention_whole_items_mma.h"
#include "kernels/attention/disentangled_attention.h"
#include "kernels/cuda_launch.cuh"
#include "memory/device/cuda_stream.h"

namespace inlay {
namespace {

using whole_mma::kKeyBlocks;
using whole_mma::kTileKeys;

constexpr int kDim = 64;
constexpr int kNear = 128;  // rows of a table in shared memory; 127 are read
constexpr int kBand = 80;   // those that the 16 queries of a warp read
static_assert(whole_mma::kRows + kTileKeys - 1 <= kNear);
static_assert(16 + kTileKeys - 1 <= kBand && 48 + kBand <= kNear);

// Of shared memory, in bytes.
constexpr int kRowBytes = whole_mma::RowBytes(kDim);
constexpr int kKeysAt = whole_mma::kRows * kRowBytes;
constexpr int kValuesAt = kKeysAt + kTileKeys * kRowBytes;
constexpr int kOfKeysAt = kValuesAt + kTileKeys * kRowBytes;
constexpr int kOfQueriesAt = kOfKeysAt + kNear * kRowBytes;
constexpr int kProductsAt = kOfQueriesAt + kNear * kRowBytes;
// Of products, in floats: rows are queries of a warp, or distances.
constexpr int kBandStride = kBand + 4;
constexpr int kNearStride = kTileKeys + 4;
constexpr int kBytes = kProductsAt + 4 * kNear * kNearStride;
static_assert(whole_mma::kRows * kBandStride <= kNear * kNearStride);
static_assert(kBytes <= 99 * 1024 && kProductsAt % 16 == 0);

// A table of rows for distances; null where there is none.
struct NearTable {
  const char* data;
  int64_t stride;  // bytes
};

struct NearTables {
  NearTable keys;
  NearTable queries;
  const int32_t* rows;
  int reach;
};

template <typename T>
class DisentangledWorker : private whole_mma::Worker<T, kDim> {
 public:
  __device__ DisentangledWorker(const AttentionItemArgs& args,
                                const NearTables& tables, unsigned char* memory)
      : Base(args, memory),
        tables_(tables),
        products_(reinterpret_cast<float*>(memory + kProductsAt)) {}

  __device__ void Run(const AttentionItem& item) {
    this->Begin(item);
    const int first = item.key_begin / kTileKeys * kTileKeys;
#pragma unroll 1
    for (int tile = first; tile < item.key_end; tile += kTileKeys) {
      __syncthreads();  // the tile before is done with shared memory
      if (tile == first) this->LoadQueries(item);
      this->LoadKeys(item, tile, this->shared_ + kKeysAt,
                     this->shared_ + kValuesAt);
      LoadNear(item, tile);
      sm90::CommitCopies();
      sm90::WaitCopies<0>();
      __syncthreads();
      if (tile == first) this->LoadFragments();
      whole_mma::Scores s = {};
      this->MultiplyQueries(this->shared_ + kKeysAt, s);
      if (tables_.keys.data != nullptr) AddOfKeys(s);
      if (tables_.queries.data != nullptr) AddOfQueries(s);
      this->Scale(s);
      this->Softmax(tile, s);
      this->MultiplyValues(this->shared_ + kValuesAt, s);
    }
    this->WriteOut(item);
  }

 private:
  using Base = whole_mma::Worker<T, kDim>;
  using Base::kChunks;

  // Row u of either table is that of distance (the item's first query) - (the
  // tile's last key) + u.
  __device__ void LoadNear(const AttentionItem& item, int tile) {
    const int nearest =
        item.kv_len - item.q_len + item.row_begin - (tile + kTileKeys - 1);
#pragma unroll 4
    for (int i = this->thread_; i < kNear * kChunks; i += whole_mma::kThreads) {
      const int u = i / kChunks;
      const int chunk = i % kChunks;
      const int distance = max(-tables_.reach, min(tables_.reach, nearest + u));
      const int64_t row = __ldg(tables_.rows + tables_.reach + distance);
      const int64_t column = 2 * (int64_t{item.kv_head} * kDim + 8 * chunk);
      const uint32_t to = this->shared_ + u * kRowBytes + 16 * chunk;
      if (tables_.keys.data != nullptr) {
        sm90::CopyAsync16OrZeros(
            to + kOfKeysAt,
            tables_.keys.data + row * tables_.keys.stride + column, true);
      }
      if (tables_.queries.data != nullptr) {
        sm90::CopyAsync16OrZeros(
            to + kOfQueriesAt,
            tables_.queries.data + row * tables_.queries.stride + column, true);
      }
    }
  }

  // The 16 queries of the warp by the rows that they reach, from its first
  // query's on.
  __device__ void AddOfKeys(whole_mma::Scores& s) {
    float c[kBand / 8][4] = {};
    this->MultiplyQueries(
        this->shared_ + kOfKeysAt + 16 * this->warp_ * kRowBytes, c);
    float* const band = products_ + 16 * this->warp_ * kBandStride;
#pragma unroll
    for (int j = 0; j < kBand / 8; ++j) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        float* const to =
            band + (this->lane_ / 4 + 8 * r) * kBandStride + this->KeyOf(j, 0);
        *reinterpret_cast<float2*>(to) = {c[j][2 * r], c[j][2 * r + 1]};
      }
    }
    __syncwarp();  // a warp's band is its own
#pragma unroll
    for (int j = 0; j < kKeyBlocks; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int a = this->lane_ / 4 + 8 * (i / 2);
        s[j][i] +=
            band[a * kBandStride + a - this->KeyOf(j, i) + kTileKeys - 1];
      }
    }
  }

  // Rows by keys, 32 rows a warp.
  __device__ void AddOfQueries(whole_mma::Scores& s) {
    __syncthreads();  // bands lie where this is written
#pragma unroll 1
    for (int half = 0; half < 2; ++half) {
      const int first = 32 * this->warp_ + 16 * half;
      float c[kKeyBlocks][4] = {};
#pragma unroll
      for (int step = 0; step < Base::kSteps; ++step) {
        uint32_t left[4];
        this->LoadLeft(left, this->shared_ + kOfQueriesAt + first * kRowBytes,
                       step);
        this->MultiplyRows(left, this->shared_ + kKeysAt, step, c);
      }
#pragma unroll
      for (int j = 0; j < kKeyBlocks; ++j) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          float* const to = products_ +
                            (first + this->lane_ / 4 + 8 * r) * kNearStride +
                            this->KeyOf(j, 0);
          *reinterpret_cast<float2*>(to) = {c[j][2 * r], c[j][2 * r + 1]};
        }
      }
    }
    __syncthreads();
#pragma unroll
    for (int j = 0; j < kKeyBlocks; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int b = this->KeyOf(j, i);
        s[j][i] +=
            products_[(this->RowOf(i / 2) - b + kTileKeys - 1) * kNearStride +
                      b];
      }
    }
  }

  const NearTables& tables_;
  float* products_;
};

template <typename T>
__global__ void __launch_bounds__(whole_mma::kThreads, 2)
    DisentangledAttentionMma(const __grid_constant__ AttentionItemArgs args,
                             const __grid_constant__ NearTables tables) {
  extern __shared__ __align__(16) unsigned char memory[];
  WaitForPrevious();
  LetNextBegin();
  DisentangledWorker<T> worker(args, tables, memory);
  whole_mma::RunItems(args, worker);
}

NearTable NearTableOf(const TensorView& view) {
  if (view.empty()) return {nullptr, 0};
  return {reinterpret_cast<const char*>(view.data),
          static_cast<int64_t>(view.row_stride_bytes)};
}

template <typename T>
absl::Status LaunchMma(const AttentionDesc& desc,
                       const DisentangledAttentionParams& params,
                       CudaStream& stream) {
  const NearTables tables = {NearTableOf(params.relative.keys),
                             NearTableOf(params.relative.queries),
                             params.relative.rows, params.relative.reach};
  return LaunchCuda(
      "disentangled attention (mma)", stream,
      {params.attention.plan->shape.grid, whole_mma::kThreads, kBytes},
      DisentangledAttentionMma<T>,
      MakeAttentionItemArgs(desc, params.attention), tables);
}

}  // namespace

absl::Status RunDisentangledAttentionCudaMma(
    const AttentionDesc& desc, const DisentangledAttentionParams& params,
    Stream& stream) {
  if (!params.attention.plan->run_items) return absl::OkStatus();
  CudaStream& cuda = CudaStream::Of(stream);
  return desc.kv == DType::kF16 ? LaunchMma<__half>(desc, params, cuda)
                                : LaunchMma<__nv_bfloat16>(desc, params, cuda);
}

}  // namespace inlay
