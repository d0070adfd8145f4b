// biased_attention on CUDA with matrix instructions of a warp (from sm_80 up):
// caches of f16 or bf16, every head with keys of its own, head_dim 64 or 128.
// For encoders: many queries, all keys.
//
// Grid: AttentionPlanShape::grid CTAs, each with a list of items of 64 rows and
// all keys they see (whole_rows): nothing is folded, so a query's result
// depends on its own row and its keys alone. CTA: four warps, as
// attention_whole_items_mma.h has them; tiles of 64 keys and values come by
// cp.async into two stages, one while the other is multiplied, and with a tile
// the head's numbers for the 127 distances that it has.
// Shared memory: queries | two stages of keys and values | two of numbers.
// Barriers: __syncthreads around each tile.
// Roofline: the matrix units at the rate of mma.sync.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <climits>

#include "kernels/attention/attention_whole_items_mma.h"
#include "kernels/attention/biased_attention.h"
#include "kernels/cuda_launch.cuh"
#include "memory/device/cuda_stream.h"

namespace inlay {
namespace {

// The distances of a tile's keys from an item's queries are consecutive: that
// of key b and query a is the tile's least and 63 - a + b more.
constexpr int kNear = 128;
static_assert(whole_mma::kRows + whole_mma::kTileKeys - 1 <= kNear);
static_assert(kNear == whole_mma::kThreads);

// Of shared memory, in bytes.
template <int kDim>
struct Layout {
  static constexpr int kTileBytes =
      whole_mma::kTileKeys * whole_mma::RowBytes(kDim);
  static constexpr int kStageBytes = 2 * kTileBytes;
  static constexpr int kStages = whole_mma::kRows * whole_mma::RowBytes(kDim);
  static constexpr int kBias = kStages + 2 * kStageBytes;
  static constexpr int kBytes = kBias + 2 * kNear * int{sizeof(float)};
};

template <typename T, int kDim>
class BiasedWorker : private whole_mma::Worker<T, kDim> {
 public:
  __device__ BiasedWorker(const AttentionItemArgs& args, const ScoreBias& bias,
                          unsigned char* memory)
      : Base(args, memory),
        bias_(bias),
        near_(reinterpret_cast<float*>(memory + L::kBias)) {}

  __device__ void Run(const AttentionItem& item) {
    __syncthreads();  // the item before is done with shared memory
    this->LoadQueries(item);
    this->Begin(item);
    const int first = item.key_begin / kTileKeys * kTileKeys;
    LoadStage(item, first, 0);
    sm90::CommitCopies();
    near_[this->thread_] = Near(item, first);
    int stage = 0;
#pragma unroll 1
    for (int tile = first; tile < item.key_end; tile += kTileKeys) {
      float near = 0.0f;
      if (tile + kTileKeys < item.key_end) {
        near = Near(item, tile + kTileKeys);
        LoadStage(item, tile + kTileKeys, stage ^ 1);
      }
      sm90::CommitCopies();
      sm90::WaitCopies<1>();  // of all but the one begun last
      __syncthreads();
      if (tile == first) this->LoadFragments();
      Attend(tile, stage);
      near_[(stage ^ 1) * kNear + this->thread_] = near;
      __syncthreads();  // before the stage is written again
      stage ^= 1;
    }
    sm90::WaitCopies<0>();  // where there were no keys
    this->WriteOut(item);
  }

 private:
  using Base = whole_mma::Worker<T, kDim>;
  using L = Layout<kDim>;
  static constexpr int kTileKeys = whole_mma::kTileKeys;

  __device__ uint32_t Stage(int stage) const {
    return this->shared_ + L::kStages + stage * L::kStageBytes;
  }

  __device__ void LoadStage(const AttentionItem& item, int tile, int stage) {
    this->LoadKeys(item, tile, Stage(stage), Stage(stage) + L::kTileBytes);
  }

  // Of the thread's distance among those of the tile, in units of log 2.
  __device__ float Near(const AttentionItem& item, int tile) const {
    const int distance = tile - PositionOf(this->args_, item, item.row_begin) -
                         (whole_mma::kRows - 1) + this->thread_;
    const int in_reach = max(-bias_.reach, min(bias_.reach, distance));
    const int64_t head = int64_t{item.kv_head} * (2 * bias_.reach + 1);
    return kLog2E * __ldg(bias_.values + head + bias_.reach + in_reach);
  }

  __device__ void Attend(int tile, int stage) {
    whole_mma::Scores s = {};
    this->MultiplyQueries(Stage(stage), s);
    this->Scale(s);
    const float* const near = near_ + stage * kNear + whole_mma::kRows - 1;
#pragma unroll
    for (int j = 0; j < whole_mma::kKeyBlocks; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        s[j][i] += near[this->KeyOf(j, i) - this->RowOf(i / 2)];
      }
    }
    this->Softmax(tile, s);
    this->MultiplyValues(Stage(stage) + L::kTileBytes, s);
  }

  const ScoreBias& bias_;
  float* near_;  // of each stage, kNear numbers
};

template <typename T, int kDim>
__global__ void __launch_bounds__(whole_mma::kThreads)
    BiasedAttentionMma(const __grid_constant__ AttentionItemArgs args,
                       const __grid_constant__ ScoreBias bias) {
  extern __shared__ __align__(16) unsigned char memory[];
  WaitForPrevious();
  LetNextBegin();
  BiasedWorker<T, kDim> worker(args, bias, memory);
  whole_mma::RunItems(args, worker);
}

template <typename T, int kDim>
absl::Status Launch(const AttentionDesc& desc,
                    const BiasedAttentionParams& params, CudaStream& stream) {
  return LaunchCuda("biased attention (mma)", stream,
                    {params.attention.plan->shape.grid, whole_mma::kThreads,
                     Layout<kDim>::kBytes},
                    BiasedAttentionMma<T, kDim>,
                    MakeAttentionItemArgs(desc, params.attention), params.bias);
}

template <typename T>
absl::Status LaunchFor(const AttentionDesc& desc,
                       const BiasedAttentionParams& params,
                       CudaStream& stream) {
  return desc.head_dim == 64 ? Launch<T, 64>(desc, params, stream)
                             : Launch<T, 128>(desc, params, stream);
}

}  // namespace

absl::Status RunBiasedAttentionCudaMma(const AttentionDesc& desc,
                                       const BiasedAttentionParams& params,
                                       Stream& stream) {
  if (!params.attention.plan->run_items) return absl::OkStatus();
  CudaStream& cuda = CudaStream::Of(stream);
  return desc.kv == DType::kF16 ? LaunchFor<__half>(desc, params, cuda)
                                : LaunchFor<__nv_bfloat16>(desc, params, cuda);
}

}  // namespace inlay
