// attention on Hopper for latent rows: values are the beginning of their keys'
// rows, f16 or bf16 queries and a cache of the same type. A tile of rows is
// read once, for scores and for values, and serves 16 queries' heads.
//
// Grid: AttentionPlanShape::grid CTAs of eight warps; each runs its list of
// items (16 rows x a range of keys), 64 keys at a time. Scores: a warp has 8
// keys and all dimensions; softmax: two rows; values: 64 dimensions and all
// keys, their sums in registers. m16n8k16, float32 accumulation; weights are
// rounded to the cache's type. Shared memory at 576 / 512, 208 KB: two tiles of
// keys (cp.async: one is read while the other is used), queries, weights,
// scores, a chunk's sums on their way to the fold; rows of tiles are 16 bytes
// apart from a multiple of 128, for ldmatrix. Barriers: __syncthreads only.
// Roofline: the bytes of the cache over the copy bandwidth, for 16 heads; 128
// heads read a row eight times, through the level-2 cache.
#include "kernels/attention/attention_items_cuda.h"
#include "kernels/attention/attention_latent_sm90.h"
#include "kernels/attention/sm90_ops.h"
#include "kernels/cuda_row.cuh"

namespace inlay {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = 32 * kWarps;
constexpr int kRows = kAttentionItemRows;
constexpr int kKeys = 64;
constexpr int kWarpDims = kMaxCudaValueDim / kWarps;
constexpr int kTiles = kWarpDims / 8;  // of values: 8 dimensions each
constexpr int kRowsAWarp = kRows / kWarps;

// Elements between rows in shared memory.
constexpr int kWeightStride = kKeys + 8;
constexpr int kScoreStride = kKeys + 4;

// Shared memory. What ldmatrix reads beyond a row's end is of the parts behind.
struct Parts {
  __host__ __device__ Parts(int head_dim, int value_dim)
      : key_stride(2 * (head_dim + 8)),
        sum_stride(value_dim + 4),
        stage(kKeys * key_stride),
        queries(2 * stage),
        weights(queries + kRows * key_stride),
        scores(weights + 2 * kRows * kWeightStride),
        sums(scores + 4 * kRows * kScoreStride),
        rescale(sums + 4 * kRows * sum_stride),
        max_and_sum(rescale + 4 * kRows),
        flag(max_and_sum + 8 * kRows),
        bytes(flag + 16) {}

  int key_stride;  // bytes, of keys and queries
  int sum_stride;  // floats
  int stage;       // bytes of a tile of keys; two of them
  int queries;
  int weights;
  int scores;
  int sums;
  int rescale;
  int max_and_sum;
  int flag;
  int bytes;
};

__device__ float WarpMax(float x) {
#pragma unroll
  for (int i = 16; i > 0; i /= 2) {
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, i));
  }
  return x;
}

template <typename T>
class Worker {
 public:
  __device__ Worker(const AttentionItemArgs& args, const AttentionItem& item,
                    const Parts& parts, std::byte* shared)
      : args_(args),
        item_(item),
        parts_(parts),
        shared_(shared),
        at_(sm90::SharedAddress(shared)),
        warp_(static_cast<int>(threadIdx.x) / 32),
        lane_(static_cast<int>(threadIdx.x) % 32) {
#pragma unroll
    for (int i = 0; i < kRowsAWarp; ++i) {
      const int row = item.row_begin + warp_ * kRowsAWarp + i;
      seen_[i] = MaskedKeysOfRow(args, item, row);
      slope_[i] = SlopeOf(args, item, row);
      position_[i] = PositionOf(args, item, row);
    }
  }

  // Rows that the item lacks are zeros.
  __device__ void LoadQueries() const {
    const int pieces = args_.head_dim / 8;
    for (int i = static_cast<int>(threadIdx.x); i < kRows * pieces;
         i += kThreads) {
      const int row = i / pieces;
      const int at = i % pieces * 8;
      uint4 x = make_uint4(0, 0, 0, 0);
      if (row < item_.num_rows) {
        const int of_sequence = item_.row_begin + row;
        const char* q =
            static_cast<const char*>(args_.q) +
            (item_.q_begin + of_sequence / args_.group) * args_.q_stride +
            2 * (HeadOffset(args_, item_, of_sequence, args_.head_dim) + at);
        x = *reinterpret_cast<const uint4*>(q);
      }
      *reinterpret_cast<uint4*>(shared_ + parts_.queries +
                                row * parts_.key_stride + 2 * at) = x;
    }
  }

  // Begins to copy keys [tile, tile + kKeys); those outside the item are zeros.
  __device__ void LoadKeys(int tile, int stage) const {
    constexpr int kLanes = kThreads / kKeys;  // a key
    const int key = static_cast<int>(threadIdx.x) / kLanes;
    const int position = tile + key;
    const bool valid = position >= item_.key_begin && position < item_.key_end;
    const std::byte* row = args_.kv.base.base;
    if (valid) {
      const int size = args_.kv.block_size;
      const int2 place = PlaceOfKey(args_, item_, position);
      row += place.x * args_.kv.block_stride_bytes + args_.kv.k_offset_bytes +
             (int64_t{item_.kv_head} * size + place.y) * args_.kv_row_bytes;
    }
    const uint32_t to = at_ + stage * parts_.stage + key * parts_.key_stride;
    for (int piece = static_cast<int>(threadIdx.x) % kLanes;
         piece < args_.head_dim / 8; piece += kLanes) {
      sm90::CopyAsync16OrZeros(to + 16 * piece, row + 16 * piece, valid);
    }
  }

  // Products of all rows with the warp's 8 keys.
  __device__ void Scores(int stage) const {
    const uint32_t queries =
        at_ + parts_.queries + lane_ % 16 * parts_.key_stride + lane_ / 16 * 16;
    const uint32_t keys = at_ + stage * parts_.stage +
                          (warp_ * 8 + lane_ % 8) * parts_.key_stride +
                          lane_ / 8 * 16;
    float sums[2][4] = {};
#pragma unroll 2
    for (int d = 0; d < args_.head_dim; d += 32) {
      uint32_t k[4];
      uint32_t q[4];
      sm90::LoadMatrix4(k, keys + 2 * d);
      sm90::LoadMatrix4(q, queries + 2 * d);
      sm90::Mma16816<T>(sums[0], q, k[0], k[1]);
      if (d + 16 < args_.head_dim) {
        sm90::LoadMatrix4(q, queries + 2 * d + 32);
        sm90::Mma16816<T>(sums[1], q, k[2], k[3]);
      }
    }
    auto* scores = reinterpret_cast<float*>(shared_ + parts_.scores) +
                   lane_ / 4 * kScoreStride + warp_ * 8 + lane_ % 4 * 2;
    *reinterpret_cast<float2*>(scores) = {sums[0][0] + sums[1][0],
                                          sums[0][1] + sums[1][1]};
    *reinterpret_cast<float2*>(scores + 8 * kScoreStride) = {
        sums[0][2] + sums[1][2], sums[0][3] + sums[1][3]};
  }

  __device__ void ClearChunk() {
#pragma unroll
    for (int i = 0; i < kRowsAWarp; ++i) {
      max_[i] = -INFINITY;
      sum_[i] = 0.0f;
    }
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) values_[i][j] = 0.0f;
    }
  }

  // Scores of the warp's rows become weights.
  __device__ void Softmax(int tile) {
#pragma unroll
    for (int i = 0; i < kRowsAWarp; ++i) {
      const int row = warp_ * kRowsAWarp + i;
      const float* scores = reinterpret_cast<float*>(shared_ + parts_.scores) +
                            row * kScoreStride;
      const float low = Score(scores[lane_], tile + lane_, i);
      const float high = Score(scores[lane_ + 32], tile + lane_ + 32, i);
      const float top = fmaxf(max_[i], WarpMax(fmaxf(low, high)));
      const float base = top == -INFINITY ? 0.0f : top;
      const float rescale = Exp2(max_[i] - base);
      const float weight = Exp2(low - base);
      const float other = Exp2(high - base);
      max_[i] = top;
      sum_[i] = sum_[i] * rescale + WarpSum(weight + other);
      T* weights =
          reinterpret_cast<T*>(shared_ + parts_.weights) + row * kWeightStride;
      weights[lane_] = FromFloat<T>(weight);
      weights[lane_ + 32] = FromFloat<T>(other);
      if (lane_ == 0) {
        reinterpret_cast<float*>(shared_ + parts_.rescale)[row] = rescale;
      }
    }
  }

  // Adds the weighted values of the warp's dimensions.
  __device__ void AddValues(int stage) {
    const float* rescale =
        reinterpret_cast<const float*>(shared_ + parts_.rescale);
    const float low = rescale[lane_ / 4];
    const float high = rescale[lane_ / 4 + 8];
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      values_[i][0] *= low;
      values_[i][1] *= low;
      values_[i][2] *= high;
      values_[i][3] *= high;
    }
    const uint32_t weights = at_ + parts_.weights +
                             2 * (lane_ % 16 * kWeightStride + lane_ / 16 * 8);
    const uint32_t keys = at_ + stage * parts_.stage +
                          lane_ % 16 * parts_.key_stride +
                          2 * (warp_ * kWarpDims + lane_ / 16 * 8);
#pragma unroll
    for (int key = 0; key < kKeys; key += 16) {
      uint32_t p[4];
      sm90::LoadMatrix4(p, weights + 2 * key);
#pragma unroll
      for (int i = 0; i < kTiles; i += 2) {
        if (warp_ * kWarpDims + i * 8 >= args_.value_dim) break;
        uint32_t v[4];
        sm90::LoadMatrix4Transposed(v, keys + key * parts_.key_stride + 16 * i);
        sm90::Mma16816<T>(values_[i], p, v[0], v[1]);
        sm90::Mma16816<T>(values_[i + 1], p, v[2], v[3]);
      }
    }
  }

  // The chunk's sums, where the fold finds them.
  __device__ void StoreChunk() const {
    auto* sums = reinterpret_cast<float*>(shared_ + parts_.sums) +
                 lane_ / 4 * parts_.sum_stride + warp_ * kWarpDims +
                 lane_ % 4 * 2;
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      if (warp_ * kWarpDims + i * 8 >= args_.value_dim) break;
      *reinterpret_cast<float2*>(sums + 8 * i) = {values_[i][0], values_[i][1]};
      *reinterpret_cast<float2*>(sums + 8 * parts_.sum_stride + 8 * i) = {
          values_[i][2], values_[i][3]};
    }
    if (lane_ != 0) return;
    auto* pairs = reinterpret_cast<float2*>(shared_ + parts_.max_and_sum);
#pragma unroll
    for (int i = 0; i < kRowsAWarp; ++i) {
      pairs[warp_ * kRowsAWarp + i] = {max_[i], sum_[i]};
    }
  }

 private:
  // In units of log 2, of the warp's row `i`.
  __device__ float Score(float product, int key, int i) const {
    const AttentionRowKeys& seen = seen_[i];
    if (key < seen.begin || key >= seen.end || !BitOf(args_.mask, seen, key)) {
      return -INFINITY;
    }
    return fmaf(slope_[i], -fabsf(static_cast<float>(key - position_[i])),
                ScaledScore(args_, product));
  }

  const AttentionItemArgs& args_;
  const AttentionItem& item_;
  const Parts& parts_;
  std::byte* shared_;
  uint32_t at_;
  int warp_;
  int lane_;
  AttentionRowKeys seen_[kRowsAWarp];
  float slope_[kRowsAWarp];
  int position_[kRowsAWarp];
  float max_[kRowsAWarp];
  float sum_[kRowsAWarp];
  float values_[kTiles][4];
};

template <typename T>
__global__ void __launch_bounds__(kThreads, 1)
    AttentionLatent(const __grid_constant__ AttentionItemArgs args) {
  extern __shared__ __align__(128) std::byte shared[];
  const Parts parts(args.head_dim, args.value_dim);
  using Rows = FoldedRows<kThreads, kMaxCudaValueDim, false, false, true>;
  const auto sync = [] { __syncthreads(); };
  const auto* sums = reinterpret_cast<const float*>(shared + parts.sums);
  const auto* max_and_sum =
      reinterpret_cast<const float2*>(shared + parts.max_and_sum);
  WaitForPrevious();
  LetNextBegin();
  const int last = args.cta_items[blockIdx.x + 1];
  for (int i = args.cta_items[blockIdx.x]; i < last; ++i) {
    const AttentionItem item = args.items[i];
    __syncthreads();  // the item before is done with shared memory
    Worker<T> worker(args, item, parts, shared);
    int stage = 0;
    worker.LoadKeys(item.key_begin / kKeys * kKeys, stage);
    sm90::CommitCopies();
    worker.LoadQueries();
    ItemFold<Rows, decltype(sync)> fold(
        args, item, static_cast<int>(threadIdx.x),
        reinterpret_cast<int*>(shared + parts.flag), nullptr, sync);
    Rows& rows = fold.rows();
    for (int c = item.key_begin / item.chunk;
         c * int64_t{item.chunk} < item.key_end; ++c) {
      const int begin = max(item.key_begin, c * item.chunk);
      const int end = static_cast<int>(
          min(int64_t{item.key_end}, (c + 1) * int64_t{item.chunk}));
      worker.ClearChunk();
      for (int tile = begin / kKeys * kKeys; tile < end; tile += kKeys) {
        if (tile + kKeys < item.key_end) {
          worker.LoadKeys(tile + kKeys, stage ^ 1);
        }
        sm90::CommitCopies();
        sm90::WaitCopies<1>();
        __syncthreads();
        worker.Scores(stage);
        __syncthreads();
        worker.Softmax(tile);
        __syncthreads();
        worker.AddValues(stage);
        __syncthreads();
        stage ^= 1;
      }
      worker.StoreChunk();
      __syncthreads();
      fold.BeginChunk();
      const float2 row = max_and_sum[rows.row()];
      rows.Fold(args.value_dim, row.x, row.y, [&](int quad) {
        return *reinterpret_cast<const float4*>(
            sums + rows.row() * parts.sum_stride + rows.column(quad));
      });
      fold.EndChunk();
      __syncthreads();
    }
    fold.Finish();
    sm90::WaitCopies<0>();
  }
}

template <typename T>
absl::Status Launch(const AttentionItemArgs& args, int grid,
                    CudaStream& stream) {
  const Parts parts(args.head_dim, args.value_dim);
  return LaunchCuda("attention (latent)", stream,
                    {grid, kThreads, static_cast<size_t>(parts.bytes)},
                    AttentionLatent<T>, args);
}

}  // namespace

absl::Status RunAttentionCudaLatent(const AttentionDesc& desc,
                                    const AttentionParams& params,
                                    Stream& stream) {
  const AttentionPlan& plan = *params.plan;
  if (!plan.run_items) return absl::OkStatus();
  if (plan.shape.wide_items()) {
    return LaunchAttentionLatentWide(desc, params, CudaStream::Of(stream));
  }
  const AttentionItemArgs args = MakeAttentionItemArgs(desc, params);
  CudaStream& cuda = CudaStream::Of(stream);
  return desc.activation == DType::kF16
             ? Launch<__half>(args, plan.shape.grid, cuda)
             : Launch<__nv_bfloat16>(args, plan.shape.grid, cuda);
}

}  // namespace inlay
