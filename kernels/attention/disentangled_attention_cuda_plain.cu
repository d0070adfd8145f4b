// disentangled_attention on CUDA: attention's plain row
// (attention_cuda_plain.cu) for heads up to 128, each with keys of its own,
// with what queries and keys are multiplied by besides in shared memory.
//
// An item is 16 consecutive queries of a head and a tile 32 keys, so their
// distances are 47 consecutive numbers, and as many rows of either table serve
// all pairs: they are loaded with the tile, float32, where attention's tiles
// end. Threads of a warp have neighbouring keys, hence neighbouring rows, which
// lie 4 floats apart from a multiple of 32 banks as keys do. Shared memory: 92
// KB of heads of 128, which every GPU has. Barriers: attention's.
// Roofline: float32 fused multiply-adds, three times attention's for scores;
// the matrix units are not used.
#include "kernels/attention/attention_plain_cuda.h"
#include "kernels/attention/disentangled_attention.h"
#include "kernels/cuda_launch.cuh"
#include "memory/device/cuda_stream.h"

namespace inlay {
namespace {

namespace plain = attention_plain;

// Distances of an item's queries from a tile's keys.
constexpr int kNear = plain::kRows + plain::kKeys - 1;

// Floats before the relative rows, which begin where vectors can.
__host__ __device__ constexpr int FloatsOfTiles(int head_dim) {
  const int floats = (plain::kRows + 2 * plain::kKeys) * (head_dim + 4) +
                     plain::kRows * plain::kKeys + plain::kRows + 1;
  return (floats + 3) / 4 * 4;
}

inline size_t BytesOfAll(int head_dim) {
  return sizeof(float) * static_cast<size_t>(FloatsOfTiles(head_dim) +
                                             2 * kNear * (head_dim + 4));
}

// A table as kernels read it; null where there is none.
struct RelativeTable {
  const char* data;
  int64_t stride;  // bytes
};

// As attention_plain::NoBias.
struct RelativeProducts {
  // Row i of either table is that of distance (first query) - (tile's last
  // key) + i.
  __device__ void Load(const AttentionItemArgs& args, const AttentionItem& item,
                       int tile_begin, const plain::Tiles& tiles) const {
    float* const to = tiles.q + FloatsOfTiles(args.head_dim);
    const int quads = args.head_dim / 4;
    const int nearest = item.kv_len - item.q_len + item.row_begin -
                        (tile_begin + plain::kKeys - 1);
    for (int i = threadIdx.x; i < kNear * quads; i += plain::kThreads) {
      const int near = i / quads;
      const int at = i % quads * 4;
      const int distance = max(-reach, min(reach, nearest + near));
      const int64_t row = __ldg(rows + reach + distance);
      const int column = item.kv_head * args.head_dim + at;
      float* place = to + near * tiles.stride + at;
      if (keys.data != nullptr) {
        *reinterpret_cast<float4*>(place) =
            LoadPlain4(args.activation, keys.data + row * keys.stride, column);
      }
      if (queries.data != nullptr) {
        place += kNear * tiles.stride;
        *reinterpret_cast<float4*>(place) = LoadPlain4(
            args.activation, queries.data + row * queries.stride, column);
      }
    }
  }

  __device__ void AddTo(float (&sums)[plain::kRows / plain::kWarps], int first,
                        int key, int head_dim,
                        const plain::Tiles& tiles) const {
    const float* const near_keys =
        tiles.q + FloatsOfTiles(head_dim) +
        (first + plain::kKeys - 1 - key) * tiles.stride;
    const float* const near_queries = near_keys + kNear * tiles.stride;
    if (keys.data != nullptr) {
      for (int d = 0; d < head_dim; d += 4) {
#pragma unroll
        for (int i = 0; i < plain::kRows / plain::kWarps; ++i) {
          const int row = i * plain::kWarps;
          Add(*reinterpret_cast<const float4*>(
                  tiles.q + (first + row) * tiles.q_stride + d),
              *reinterpret_cast<const float4*>(near_keys + row * tiles.stride +
                                               d),
              sums[i]);
        }
      }
    }
    if (queries.data == nullptr) return;
    for (int d = 0; d < head_dim; d += 4) {
      const float4 k =
          *reinterpret_cast<const float4*>(tiles.k + key * tiles.stride + d);
#pragma unroll
      for (int i = 0; i < plain::kRows / plain::kWarps; ++i) {
        Add(k,
            *reinterpret_cast<const float4*>(
                near_queries + i * plain::kWarps * tiles.stride + d),
            sums[i]);
      }
    }
  }

  __device__ float Add(const AttentionItemArgs& /*args*/,
                       const AttentionItem& /*item*/, int /*row*/,
                       int /*distance*/, float score) const {
    return score;
  }

  RelativeTable keys;
  RelativeTable queries;
  const int32_t* rows;
  int reach;

 private:
  __device__ static void Add(const float4& x, const float4& y, float& sum) {
    sum = fmaf(x.x, y.x, sum);
    sum = fmaf(x.y, y.y, sum);
    sum = fmaf(x.z, y.z, sum);
    sum = fmaf(x.w, y.w, sum);
  }
};

template <int kDim>
__global__ void __launch_bounds__(plain::kThreads)
    DisentangledAttentionPlain(const __grid_constant__ AttentionItemArgs args,
                               const __grid_constant__ RelativeProducts terms) {
  plain::RunItems<kDim, false>(args, terms);
}

template <int kDim>
absl::Status Launch(const AttentionItemArgs& args,
                    const RelativeProducts& terms, int grid,
                    CudaStream& stream) {
  return LaunchCuda("disentangled attention (plain)", stream,
                    {grid, plain::kThreads, BytesOfAll(args.head_dim)},
                    DisentangledAttentionPlain<kDim>, args, terms);
}

RelativeTable TableOf(const TensorView& view) {
  if (view.empty()) return {nullptr, 0};
  return {reinterpret_cast<const char*>(view.data),
          static_cast<int64_t>(view.row_stride_bytes)};
}

}  // namespace

absl::Status RunDisentangledAttentionCudaPlain(
    const AttentionDesc& desc, const DisentangledAttentionParams& params,
    Stream& stream) {
  const AttentionPlan& plan = *params.attention.plan;
  if (!plan.run_items) return absl::OkStatus();
  const AttentionItemArgs args = MakeAttentionItemArgs(desc, params.attention);
  const RelativeProducts terms = {TableOf(params.relative.keys),
                                  TableOf(params.relative.queries),
                                  params.relative.rows, params.relative.reach};
  CudaStream& cuda = CudaStream::Of(stream);
  const int grid = plan.shape.grid;
  if (desc.head_dim <= 64) return Launch<64>(args, terms, grid, cuda);
  return Launch<128>(args, terms, grid, cuda);
}

}  // namespace inlay
