// moe_router on Hopper: norm, router's product and routing of few tokens in one
// launch of one cluster.
//
// Mapping: of the columns each block has a slice: of all experts' rows of w,
// which it copies to shared memory before hidden is there, and of all tokens. A
// warp reads a token's part and tells all blocks its sum of squares; when they
// have met it normalises that part. Products (mma.m16n8k16: experts are rows,
// tokens columns): a warp has a tile of experts, and every other step of 16
// columns. When the cluster has met again, each block routes every so manieth
// token from the sums of all slices, and tells the first block which experts it
// chose; when it has met once more that one lists the slots.
//
// Columns of a step lie so that a lane's are neighbours: what is its first and
// last pair to the mma are four columns in a row, of w as of x. Weights of
// float32 are sums of three bf16, whose products are summed one after another:
// what is lost is below 2^-24 of a weight.
//
// Code runs once, and other kernels' weights have displaced it by then, so that
// what is fetched costs more than what is computed: nothing is unrolled but
// what waits for memory.
//
// Accumulation: float32, but for squares over a warp's lanes, float64; a warp's
// steps, both warps, then slices, ascending.
// Roofline: none; the wait for memory and for each other is all it takes.
#include "kernels/cuda_launch.cuh"
#include "kernels/gemm/gemv_mma.cuh"
#include "kernels/gemm/gemv_sm90.cuh"
#include "kernels/moe/router_shape.h"
#include "kernels/moe/routing.cuh"
#include "kernels/rms_norm/rms_norm.cuh"

namespace inlay {
namespace {

static_assert(kMostRouterTokens <= kMostMaskedTokens);
static_assert(kMostRouterTokens <= kRouterBlocks * kRouterWarps);
static_assert(kMostRouterTopK <= 32);
static_assert(kMostRouterExperts <= kRouterThreads);

// All blocks' writes so far are seen by all after it.
__device__ void MeetCluster() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
  ClusterWait();
}
// `address` as AddressAt has it.
__device__ float LoadCluster(uint32_t address) {
  float value;
  asm volatile("ld.shared::cluster.f32 %0, [%1];"
               : "=f"(value)
               : "r"(address)
               : "memory");
  return value;
}
__device__ void StoreAt(uint32_t address, unsigned rank, uint32_t value) {
  asm volatile(
      "st.shared::cluster.u32 [%0], %1;" ::"r"(AddressAt(address, rank)),
      "r"(value)
      : "memory");
}

// What of a step a lane has of a row of w: two operands of the mma.
struct alignas(8) RouterPairs {
  uint32_t first;
  uint32_t last;
};

// A lane's four columns of w, as kParts sums of T.
template <typename T, typename W>
struct RouterWeights {
  static constexpr int kParts = sizeof(W) == 4 ? 3 : 1;
  __device__ explicit RouterWeights(const uint8_t* from) {
    if constexpr (kParts == 1) {
      parts[0] = *reinterpret_cast<const RouterPairs*>(from);
    } else {
      float v[4];
      LoadFloats<4>(reinterpret_cast<const float*>(from), v);
#pragma unroll
      for (int p = 0; p < kParts; ++p) {
        parts[p] = {NarrowPair<T>(v[0], v[1]), NarrowPair<T>(v[2], v[3])};
        const float2 low = WidenPair<T>(parts[p].first);
        const float2 high = WidenPair<T>(parts[p].last);
        v[0] -= low.x;
        v[1] -= low.y;
        v[2] -= high.x;
        v[3] -= high.y;
      }
    }
  }
  RouterPairs parts[kParts];
};

// A block's slice of the columns.
template <typename T, typename W, int kRowTiles>
class Router {
 public:
  __device__ Router(const MoeRouterParams& params, const RouterShape& shape,
                    int tokens, uint8_t* shared)
      : params_(params),
        shape_(shape),
        tokens_(tokens),
        shared_(shared),
        first_(static_cast<int>(ClusterRank()) * shape.columns),
        columns_(max(0, min(shape.columns, shape.width - first_))) {}

  // Weights, before hidden is there: by one warp.
  __device__ void CopyWeights() const {
    const auto base = static_cast<uint32_t>(__cvta_generic_to_shared(shared_));
    const uint32_t barrier = base + RouterHead::kBarrier;
    const int bytes = columns_ * static_cast<int>(sizeof(W));
    if (lane_ == 0) Expect(barrier, shape_.num_experts * bytes);
    __syncwarp();
    if (bytes == 0) return;
    for (int row = lane_; row < shape_.num_experts; row += 32) {
      CopyRow(base + shape_.w + row * shape_.w_row_bytes,
              CudaMatrix<const W>(params_.w).row(row) + first_, bytes, barrier);
    }
  }

  // All threads of the cluster call it.
  __device__ void Normalise() const {
    float weights[kVectors][kCudaVector];
#pragma unroll
    for (int j = 0; j < kVectors; ++j) {
      if (params_.norm != nullptr && Column(j) < columns_) {
        LoadFloats<kCudaVector>(params_.norm + first_ + Column(j), weights[j]);
      }
    }
    WaitForPrevious();
    const auto base = static_cast<uint32_t>(__cvta_generic_to_shared(shared_));
    float v[kTokens][kVectors][kCudaVector];
#pragma unroll
    for (int i = 0; i < kTokens; ++i) {
      if (Token(i) >= tokens_) break;
#pragma unroll
      for (int j = 0; j < kVectors; ++j) {
        if (Column(j) >= columns_) break;
        LoadFloats<kCudaVector>(
            CudaMatrix<const float>(params_.hidden).row(Token(i)) + first_ +
                Column(j),
            v[i][j]);
      }
    }
#pragma unroll
    for (int i = 0; i < kTokens; ++i) {
      if (Token(i) >= tokens_) break;
      float sum = 0.0f;
#pragma unroll
      for (int j = 0; j < kVectors; ++j) {
        if (Column(j) < columns_) sum = AddSquares(v[i][j], sum);
      }
      sum = WarpSum(sum);
      if (lane_ < kRouterBlocks) {
        StoreAt(base + RouterHead::kSums +
                    4 * (ClusterRank() * kMostRouterTokens + Token(i)),
                lane_, __float_as_uint(sum));
      }
    }
    MeetCluster();
    const auto* sums =
        reinterpret_cast<const float*>(shared_ + RouterHead::kSums);
#pragma unroll
    for (int i = 0; i < kTokens; ++i) {
      if (Token(i) >= tokens_) break;
      float squares = 0.0f;
#pragma unroll
      for (int b = 0; b < kRouterBlocks; ++b) {
        squares += sums[b * kMostRouterTokens + Token(i)];
      }
      const float factor =
          RmsNormFactor(squares, shape_.width, params_.epsilon);
#pragma unroll
      for (int j = 0; j < kVectors; ++j) {
        if (Column(j) >= columns_) break;
        float(&own)[kCudaVector] = v[i][j];
#pragma unroll
        for (int c = 0; c < kCudaVector; ++c) {
          own[c] = __fmul_rn(own[c], factor);
          if (params_.norm != nullptr) {
            own[c] = __fmul_rn(own[c], weights[j][c]);
          }
        }
        StoreFloats<kCudaVector>(
            CudaMatrix<T>(params_.normalised).row(Token(i)) + first_ +
                Column(j),
            own);
        StoreFloats<kCudaVector>(
            reinterpret_cast<T*>(shared_ + shape_.x +
                                 Token(i) * shape_.x_row_bytes) +
                Column(j),
            own);
      }
    }
    __syncthreads();
  }

  // The slice's part of all logits. All threads of the block call it.
  __device__ void Multiply() const {
    const int half = warp_ % 2;
    auto* parts = reinterpret_cast<float4*>(shared_ + shape_.parts) +
                  warp_ / 2 * kRowTiles * 32 + lane_;
    auto* logits = reinterpret_cast<float*>(shared_ + shape_.logits);
#pragma unroll 1
    for (int begin = 0; begin < shape_.tiles; begin += kRouterWarps / 2) {
      const int tile = begin + warp_ / 2;
      float acc[kRowTiles][4] = {};
      if (tile < shape_.tiles) MultiplyTiles(tile, half, acc);
      if (half == 1) {
#pragma unroll
        for (int t = 0; t < kRowTiles; ++t) {
          parts[t * 32] =
              make_float4(acc[t][0], acc[t][1], acc[t][2], acc[t][3]);
        }
      }
      __syncthreads();
      if (half == 0 && tile < shape_.tiles) {
#pragma unroll
        for (int t = 0; t < kRowTiles; ++t) {
          const float4 other = parts[t * 32];
          const float more[4] = {other.x, other.y, other.z, other.w};
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            const int token = t * 8 + lane_ % 4 * 2 + j % 2;
            const int expert = tile * kRouterTile + lane_ / 4 + j / 2 * 8;
            logits[token * shape_.logits_row + expert] = acc[t][j] + more[j];
          }
        }
      }
      if (begin + kRouterWarps / 2 < shape_.tiles) __syncthreads();
    }
  }

 private:
  static constexpr int kTokens = (kRowTiles + 1) / 2;  // of a warp
  static constexpr int kVectors = 2;                   // of a token and lane

  __device__ int Token(int i) const { return i * kRouterWarps + warp_; }
  // Of the slice.
  __device__ int Column(int j) const { return (j * 32 + lane_) * kCudaVector; }

  __device__ void MultiplyTiles(int tile, int half,
                                float (&acc)[kRowTiles][4]) const {
    const uint8_t* x = shared_ + shape_.x + lane_ / 4 * shape_.x_row_bytes +
                       lane_ % 4 * 4 * sizeof(T);
    const uint8_t* w = shared_ + shape_.w +
                       (tile * kRouterTile + lane_ / 4) * shape_.w_row_bytes +
                       lane_ % 4 * 4 * sizeof(W);
#pragma unroll 4
    for (int column = half * kRouterStep; column < columns_;
         column += 2 * kRouterStep) {
      const uint8_t* from = w + column * sizeof(W);
      const RouterWeights<T, W> low(from);
      const RouterWeights<T, W> high(from + 8 * shape_.w_row_bytes);
      RouterPairs b[kRowTiles];
#pragma unroll
      for (int t = 0; t < kRowTiles; ++t) {
        b[t] = *reinterpret_cast<const RouterPairs*>(
            x + t * 8 * shape_.x_row_bytes + column * sizeof(T));
      }
#pragma unroll
      for (int p = 0; p < RouterWeights<T, W>::kParts; ++p) {
        const uint32_t a[4] = {low.parts[p].first, high.parts[p].first,
                               low.parts[p].last, high.parts[p].last};
#pragma unroll
        for (int t = 0; t < kRowTiles; ++t) {
          MultiplyTile<T>(acc[t], a, b[t].first, b[t].last);
        }
      }
    }
  }

  const MoeRouterParams& params_;
  const RouterShape& shape_;
  const int tokens_;
  uint8_t* const shared_;
  const int first_;    // column
  const int columns_;  // from there on
  const int warp_ = static_cast<int>(threadIdx.x) / 32;
  const int lane_ = static_cast<int>(threadIdx.x) % 32;
};

// Grows with the score, NaN above all. More than 0.
__device__ uint32_t OrderOf(float score) {
  return static_cast<uint32_t>(KeyOf(score, 0) >> 32);
}

// Routing of the tokens that are the block's: every kRouterBlocks-th. All
// threads of the block call all of it, one after the other.
class RouterChoice {
 public:
  __device__ RouterChoice(const RoutingDesc& desc,
                          const MoeRouterParams& params,
                          const RouterShape& shape, int tokens, uint8_t* shared)
      : desc_(desc),
        params_(params),
        shape_(shape),
        own_((tokens - static_cast<int>(ClusterRank()) + kRouterBlocks - 1) /
             kRouterBlocks),
        base_(static_cast<uint32_t>(__cvta_generic_to_shared(shared))),
        keys_(reinterpret_cast<uint32_t*>(shared + shape.parts)),
        chosen_(reinterpret_cast<int*>(keys_ + own_ * shape.logits_row)),
        scores_(reinterpret_cast<double*>(chosen_ + own_ * kMostRouterTopK)) {}

  // Logits, of all slices, and the scores that choose; a thread an expert of a
  // token.
  __device__ void Gather() const {
#pragma unroll 1
    for (int n = static_cast<int>(threadIdx.x); n < own_ * shape_.logits_row;
         n += kRouterThreads) {
      const int own = n / shape_.logits_row;
      const int e = n - own * shape_.logits_row;
      if (e >= desc_.num_experts) {
        keys_[n] = 0;
        continue;
      }
      const uint32_t at =
          base_ + shape_.logits + 4 * (Token(own) * shape_.logits_row + e);
      float slices[kRouterBlocks];
#pragma unroll
      for (unsigned b = 0; b < kRouterBlocks; ++b) {
        slices[b] = LoadCluster(AddressAt(at, b));
      }
      float logit = slices[0];
#pragma unroll
      for (int b = 1; b < kRouterBlocks; ++b) logit += slices[b];
      if (params_.bias != nullptr) logit += params_.bias[e];
      CudaMatrix<float>(params_.routed.logits).row(Token(own))[e] = logit;
      float choice = logit;
      double score = logit;
      if (desc_.score != RoutingScore::kSoftmax) {
        score = ScoreAlone(desc_.score, score);
        choice = static_cast<float>(score);
        if (params_.routed.correction != nullptr) {
          choice += params_.routed.correction[e];
        }
      }
      scores_[own * desc_.num_experts + e] = score;
      keys_[n] = OrderOf(choice);
    }
    __syncthreads();
  }

  // An expert's rank: how many are better. Some lanes count for it, each some
  // of all keys, four at a time.
  __device__ void Rank() const {
    const int padded = (desc_.num_experts + 31) / 32 * 32;
    int shift = 0;
    while (shift < 5 && (own_ * padded << shift) * 2 <= kRouterThreads) ++shift;
    const int lanes = 1 << shift;
    const int fours = shape_.logits_row / 4;
#pragma unroll 1
    for (int n = static_cast<int>(threadIdx.x); n < own_ * padded * lanes;
         n += kRouterThreads) {
      const int own = (n >> shift) / padded;
      const int e = (n >> shift) - own * padded;
      const uint32_t* keys = keys_ + own * shape_.logits_row;
      const uint32_t key = keys[min(e, desc_.num_experts - 1)];
      int rank = 0;
#pragma unroll 4
      for (int i = n & (lanes - 1); i < fours; i += lanes) {
        const uint4 four = *reinterpret_cast<const uint4*>(keys + 4 * i);
        // Of equal ones those of lower number are better.
        const uint32_t most = i < e / 4 ? key - 1 : key;
        rank += four.x > most;
        rank += four.y > most;
        rank += four.z > most;
        rank += four.w > most;
      }
      for (int lane = lanes / 2; lane > 0; lane /= 2) {
        rank += __shfl_xor_sync(kAll, rank, lane);
      }
      if (e >= desc_.num_experts || (n & (lanes - 1)) != 0) continue;
      for (int i = e / 4 * 4; i < e; ++i) rank += keys[i] == key;
      if (rank < desc_.top_k) chosen_[own * kMostRouterTopK + rank] = e;
    }
    __syncthreads();
  }

  // Weights, a warp a token; and tells the first block.
  __device__ void Weigh() const {
    const int own = static_cast<int>(threadIdx.x) / 32;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    if (own >= own_) return;
    const double* scores = scores_ + own * desc_.num_experts;
    const bool exists = lane < desc_.top_k;
    const int expert = chosen_[own * kMostRouterTopK + (exists ? lane : 0)];
    double score = scores[expert];
    double all = 0.0;
    if (desc_.score == RoutingScore::kSoftmax) {
      // Of the chosen ones the first is the largest, or NaN.
      const double largest = __shfl_sync(kAll, score, 0);
      score = exp(score - largest);
      if (!desc_.normalised) {
#pragma unroll 1
        for (int e = lane; e < desc_.num_experts; e += 32) {
          all += exp(scores[e] - largest);
        }
      }
    }
    if (desc_.normalised) all = exists ? score : 0.0;
    double factor = desc_.scale;
    if (desc_.normalised || desc_.score == RoutingScore::kSoftmax) {
      factor /= WarpSum(all) + kTiny;
    }
    if (!exists) return;
    double weight = score * factor;
    if (desc_.scales_experts) weight *= params_.routed.expert_scales[expert];
    const int slot = Token(own) * desc_.top_k + lane;
    params_.routed.experts[slot] = expert;
    params_.routed.weights[slot] = static_cast<float>(weight);
    StoreAt(base_ + RouterHead::kChosen + 4 * slot, 0,
            static_cast<uint32_t>(expert));
    const uint32_t mask =
        base_ + RouterHead::kMasks + 8 * expert + Token(own) / 32 * 4;
    asm volatile("red.relaxed.cluster.shared::cluster.or.b32 [%0], %1;" ::"r"(
                     AddressAt(mask, 0)),
                 "r"(1u << Token(own) % 32)
                 : "memory");
  }

 private:
  __device__ int Token(int own) const {
    return own * kRouterBlocks + static_cast<int>(ClusterRank());
  }

  const RoutingDesc& desc_;
  const MoeRouterParams& params_;
  const RouterShape& shape_;
  const int own_;  // tokens
  const uint32_t base_;
  // Where warps' parts were.
  uint32_t* const keys_;  // [own][logits_row]
  int* const chosen_;     // [own][kMostRouterTopK]
  double* const scores_;  // [own][num_experts]: with softmax logits
};

template <typename T, typename W, int kRowTiles>
__global__ void __launch_bounds__(kRouterThreads, 1)
    MoeRouter(const __grid_constant__ RoutingDesc desc,
              const __grid_constant__ MoeRouterParams params,
              const __grid_constant__ RouterShape shape, int tokens) {
  extern __shared__ __align__(1024) uint8_t router_shared[];
  LetNextBegin();
  const auto base =
      static_cast<uint32_t>(__cvta_generic_to_shared(router_shared));
  auto* masks =
      reinterpret_cast<unsigned long long*>(router_shared + RouterHead::kMasks);
  const Router<T, W, kRowTiles> router(params, shape, tokens, router_shared);
  if (threadIdx.x < kMostRouterExperts) masks[threadIdx.x] = 0;
  if (threadIdx.x == 0) {
    InitBarrier(base + RouterHead::kBarrier, 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  // Before a block writes in another, that one has begun.
  MeetCluster();
  if (threadIdx.x < 32) router.CopyWeights();
  router.Normalise();
  Await(base + RouterHead::kBarrier, 0);
  router.Multiply();
  MeetCluster();
  const RouterChoice choice(desc, params, shape, tokens, router_shared);
  choice.Gather();
  choice.Rank();
  choice.Weigh();
  MeetCluster();
  if (ClusterRank() != 0) return;
  ListByMasks(
      desc, params.routed, tokens,
      {masks, reinterpret_cast<int*>(router_shared + RouterHead::kChosen),
       reinterpret_cast<int*>(router_shared + RouterHead::kStarts),
       reinterpret_cast<int*>(router_shared + RouterHead::kListSums)});
}

template <typename T, typename W>
absl::Status Launch(const MoeRouterDesc& desc, const MoeRouterParams& params,
                    CudaStream& stream) {
  const auto tokens = static_cast<int>(params.hidden.rows());
  const RouterShape shape = RouterShapeOf(desc, tokens);
  const auto kernel = shape.row_tiles == 1   ? MoeRouter<T, W, 1>
                      : shape.row_tiles == 2 ? MoeRouter<T, W, 2>
                      : shape.row_tiles == 4 ? MoeRouter<T, W, 4>
                                             : MoeRouter<T, W, 8>;
  return LaunchCuda(
      "moe_router", stream,
      {kRouterBlocks, kRouterThreads, shape.shared_bytes, kRouterBlocks},
      kernel, desc.routing, params, shape, tokens);
}

}  // namespace

absl::Status RunMoeRouterSm90(const MoeRouterDesc& desc,
                              const MoeRouterParams& params, Stream& stream) {
  CudaStream& cuda = CudaStream::Of(stream);
  if (params.hidden.rows() == 0) return absl::OkStatus();
  if (desc.activation == DType::kF16) {
    return Launch<__half, __half>(desc, params, cuda);
  }
  return desc.weight == DType::kF32
             ? Launch<__nv_bfloat16, float>(desc, params, cuda)
             : Launch<__nv_bfloat16, __nv_bfloat16>(desc, params, cuda);
}

}  // namespace inlay
