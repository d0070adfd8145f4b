// moe_router on Hopper: norm, router's product and routing of few tokens in one
// launch of one cluster.
//
// Mapping: of the columns each block has a slice: of all experts' rows of w,
// which it copies to shared memory before hidden is there, or as much as there
// is room for (RouterRing, with twice the blocks), and of all tokens. A
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
#include "kernels/moe/router_choice.cuh"
#include "kernels/moe/router_weights.cuh"
#include "kernels/rms_norm/rms_norm.cuh"

namespace inlay {
namespace {

static_assert(kMostRouterTokens <= kMostMaskedTokens);
static_assert(kMostRouterTokens <= kRouterBlocks * kRouterWarps);
static_assert(kMostRouterTopK <= 32);
static_assert(MostRouterExperts(kRouterStreamBlocks) <= kRouterThreads);

// A block's slice of the columns.
template <typename T, typename W, int kRowTiles, int kBlocks>
class Router {
 public:
  static constexpr bool kStreams = kBlocks == kRouterStreamBlocks;

  __device__ Router(const MoeRouterParams& params, const RouterShape& shape,
                    int tokens, uint8_t* shared)
      : params_(params),
        shape_(shape),
        tokens_(tokens),
        shared_(shared),
        first_(static_cast<int>(ClusterRank()) * shape.columns),
        columns_(max(0, min(shape.columns, shape.width - first_))) {}

  __device__ RouterRing<W> Ring() const {
    const CudaMatrix<const W> w(params_.w);
    return {shape_, w, first_, columns_, warp_ / 2, warp_ % 2, shared_};
  }

  // Weights, before hidden is there: by one warp. Not where they stream.
  __device__ void CopyWeights() const {
    const auto base = static_cast<uint32_t>(__cvta_generic_to_shared(shared_));
    const uint32_t barrier = base + Head::kBarrier;
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
      if (lane_ < kBlocks) {
        StoreAt(base + Head::kSums +
                    4 * (ClusterRank() * kMostRouterTokens + Token(i)),
                lane_, __float_as_uint(sum));
      }
    }
    SyncCluster();
    const auto* sums = reinterpret_cast<const float*>(shared_ + Head::kSums);
#pragma unroll
    for (int i = 0; i < kTokens; ++i) {
      if (Token(i) >= tokens_) break;
      float squares = 0.0f;
#pragma unroll
      for (int b = 0; b < kBlocks; ++b) {
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
          for (int j = 0; j < 4; ++j) *Logit(tile, t, j) = acc[t][j] + more[j];
        }
      }
      if (begin + kRouterWarps / 2 < shape_.tiles) __syncthreads();
    }
  }

  // The same where weights stream: warps meet those alone that have the other
  // half of their columns, and tell them their sums where logits will be.
  __device__ void Multiply(RouterRing<W>& ring) const {
    const int half = warp_ % 2;
#pragma unroll 1
    for (int tile = warp_ / 2; tile < shape_.tiles; tile += kRouterWarps / 2) {
      float acc[kRowTiles][4] = {};
      MultiplyPieces(ring, acc);
      const auto store = [&](bool adds) {
#pragma unroll
        for (int t = 0; t < kRowTiles; ++t) {
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            float* logit = Logit(tile, t, j);
            *logit = adds ? acc[t][j] + *logit : acc[t][j];
          }
        }
      };
      if (half == 1) store(false);
      asm volatile("bar.sync %0, 64;" ::"r"(1 + warp_ / 2) : "memory");
      if (half == 0) store(true);
    }
  }

 private:
  using Head = RouterHead<kBlocks>;

  static constexpr int kTokens = (kRowTiles + 1) / 2;  // of a warp
  static constexpr int kVectors = 2;                   // of a token and lane

  __device__ int Token(int i) const { return i * kRouterWarps + warp_; }
  // Of the slice.
  __device__ int Column(int j) const { return (j * 32 + lane_) * kCudaVector; }

  // Of a tile's products with the t-th tokens: the lane's j-th.
  __device__ float* Logit(int tile, int t, int j) const {
    const int token = t * 8 + lane_ % 4 * 2 + j % 2;
    const int expert = tile * kRouterTile + lane_ / 4 + j / 2 * 8;
    return reinterpret_cast<float*>(shared_ + shape_.logits) +
           token * shape_.logits_row + expert;
  }

  // Of w from `w` on, and 8 rows on, times x from `x` on.
  __device__ void MultiplyStep(const uint8_t* w, int row_bytes,
                               const uint8_t* x,
                               float (&acc)[kRowTiles][4]) const {
    const RouterWeights<T, W> low(w);
    const RouterWeights<T, W> high(w + 8 * row_bytes);
    RouterPairs b[kRowTiles];
#pragma unroll
    for (int t = 0; t < kRowTiles; ++t) {
      b[t] =
          *reinterpret_cast<const RouterPairs*>(x + t * 8 * shape_.x_row_bytes);
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

  // Where the lane reads x.
  __device__ const uint8_t* LaneX() const {
    return shared_ + shape_.x + lane_ / 4 * shape_.x_row_bytes +
           lane_ % 4 * 4 * sizeof(T);
  }

  __device__ void MultiplyTiles(int tile, int half,
                                float (&acc)[kRowTiles][4]) const {
    const uint8_t* x = LaneX();
    const uint8_t* w = shared_ + shape_.w +
                       (tile * kRouterTile + lane_ / 4) * shape_.w_row_bytes +
                       lane_ % 4 * 4 * sizeof(W);
#pragma unroll 4
    for (int column = half * kRouterStep; column < columns_;
         column += 2 * kRouterStep) {
      MultiplyStep(w + column * sizeof(W), shape_.w_row_bytes,
                   x + column * sizeof(T), acc);
    }
  }

  // The ring's next tile.
  __device__ void MultiplyPieces(RouterRing<W>& ring,
                                 float (&acc)[kRowTiles][4]) const {
    const uint8_t* x = LaneX() + (ring.begin() - first_) * sizeof(T);
#pragma unroll 1
    for (int column = 0; column < ring.columns();
         column += RouterRing<W>::kColumns) {
      const uint8_t* piece = ring.Await();
      const int steps = (ring.columns() - column) / kRouterStep;
#pragma unroll
      for (int s = 0; s < RouterRing<W>::kColumns / kRouterStep; ++s) {
        if (s >= steps) break;
        MultiplyStep(RouterRing<W>::At(piece, lane_, s), kRouterPieceRow,
                     x + (column + s * kRouterStep) * sizeof(T), acc);
      }
      ring.Free();
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

template <typename T, typename W, int kRowTiles, int kBlocks>
__global__ void __launch_bounds__(kRouterThreads, 1)
    MoeRouter(const __grid_constant__ RoutingDesc desc,
              const __grid_constant__ MoeRouterParams params,
              const __grid_constant__ RouterShape shape, int tokens) {
  using Head = RouterHead<kBlocks>;
  using Slice = Router<T, W, kRowTiles, kBlocks>;
  extern __shared__ __align__(1024) uint8_t router_shared[];
  LetNextBegin();
  const auto base =
      static_cast<uint32_t>(__cvta_generic_to_shared(router_shared));
  auto* masks =
      reinterpret_cast<unsigned long long*>(router_shared + Head::kMasks);
  const Slice router(params, shape, tokens, router_shared);
  if (threadIdx.x < Head::kExperts) masks[threadIdx.x] = 0;
  if constexpr (Slice::kStreams) {
    RouterRing<W> ring = router.Ring();
    ring.Fill();
    SyncCluster();
    router.Normalise();
    router.Multiply(ring);
  } else {
    if (threadIdx.x == 0) {
      InitBarrier(base + Head::kBarrier, 1);
      asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    // Before a block writes in another, that one has begun.
    SyncCluster();
    if (threadIdx.x < 32) router.CopyWeights();
    router.Normalise();
    Await(base + Head::kBarrier, 0);
    router.Multiply();
  }
  SyncCluster();
  const RouterChoice<kBlocks> choice(desc, params, shape, tokens,
                                     router_shared);
  choice.Gather();
  if (desc.top_groups < desc.num_groups) choice.LeaveGroups();
  choice.Rank();
  choice.Weigh();
  SyncCluster();
  if (ClusterRank() != 0) return;
  ListByMasks(desc, params.routed, tokens,
              {masks, reinterpret_cast<int*>(router_shared + Head::kChosen),
               reinterpret_cast<int*>(router_shared + Head::kStarts),
               reinterpret_cast<int*>(router_shared + Head::kListSums)});
}

template <typename T, typename W, int kBlocks>
absl::Status LaunchCluster(const MoeRouterDesc& desc,
                           const MoeRouterParams& params,
                           const RouterShape& shape, CudaStream& stream) {
  const auto kernel = shape.row_tiles == 1   ? MoeRouter<T, W, 1, kBlocks>
                      : shape.row_tiles == 2 ? MoeRouter<T, W, 2, kBlocks>
                      : shape.row_tiles == 4 ? MoeRouter<T, W, 4, kBlocks>
                                             : MoeRouter<T, W, 8, kBlocks>;
  constexpr char kWhat[] = "moe_router";
  // All GPUs have room for eight.
  if (kBlocks > 8) {
    INLAY_RETURN_IF_ERROR(CudaStatus(
        cudaFuncSetAttribute(kernel,
                             cudaFuncAttributeNonPortableClusterSizeAllowed, 1),
        kWhat));
  }
  return LaunchCuda(kWhat, stream,
                    {kBlocks, kRouterThreads, shape.shared_bytes, kBlocks},
                    kernel, desc.routing, params, shape,
                    static_cast<int>(params.hidden.rows()));
}

template <typename T, typename W>
absl::Status Launch(const MoeRouterDesc& desc, const MoeRouterParams& params,
                    CudaStream& stream) {
  const RouterShape shape = RouterShapeOf(desc, params.hidden.rows());
  const auto launch = shape.blocks == kRouterBlocks
                          ? LaunchCluster<T, W, kRouterBlocks>
                          : LaunchCluster<T, W, kRouterStreamBlocks>;
  return launch(desc, params, shape, stream);
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
