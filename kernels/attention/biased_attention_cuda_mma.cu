// biased_attention on CUDA with matrix instructions of a warp (from sm_80 up):
// caches of f16 or bf16, every head with keys of its own, head_dim 64 or 128.
// For encoders: many queries, all keys.
//
// Grid: AttentionPlanShape::grid CTAs, each with a list of items of 64 rows and
// all keys they see (whole_rows): nothing is folded, so a query's result
// depends on its own row and its keys alone. CTA: four warps of 16 rows each;
// tiles of 64 keys and values come by cp.async into two stages, one while the
// other is multiplied. A warp's scores, weights and sums stay in registers
// (float32; weights are rounded to the values' type for the second product), as
// FlashAttention-2 has it (arXiv:2307.08691).
// Shared memory: queries | two stages of keys and values | the head's bias.
// Rows are 16 bytes longer than their elements, so that eight of them lie in
// different banks. Barriers: __syncthreads around each tile.
// Registers: 8 x 4 scores, head_dim / 8 x 4 sums, head_dim / 16 x 4 of queries.
// Roofline: the matrix units at the rate of mma.sync; not measured yet.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <climits>

#include "kernels/attention/attention_items_cuda.h"
#include "kernels/attention/biased_attention.h"
#include "kernels/attention/sm90_ops.h"
#include "kernels/cuda_launch.cuh"
#include "memory/device/cuda_stream.h"

namespace inlay {
namespace {

constexpr int kThreads = 128;
constexpr int kRows = kAttentionWideItemRows;
constexpr int kTileKeys = 64;
constexpr int kKeyBlocks = kTileKeys / 8;

// Of shared memory, in bytes.
template <int kDim>
struct Layout {
  static constexpr int kRowBytes = 2 * kDim + 16;
  static constexpr int kTileBytes = kTileKeys * kRowBytes;
  static constexpr int kStageBytes = 2 * kTileBytes;
  static constexpr int kStages = kRows * kRowBytes;
  static constexpr int kBias = kStages + 2 * kStageBytes;
  static size_t Bytes(int reach) {
    return static_cast<size_t>(kBias) +
           static_cast<size_t>(2 * reach + 1) * sizeof(float);
  }
};

template <typename T, int kDim>
class Worker {
 public:
  __device__ Worker(const AttentionItemArgs& args, const ScoreBias& bias,
                    unsigned char* memory)
      : args_(args),
        bias_(bias),
        table_(reinterpret_cast<float*>(memory + L::kBias)),
        shared_(sm90::SharedAddress(memory)),
        thread_(static_cast<int>(threadIdx.x)),
        warp_(thread_ / 32),
        lane_(thread_ % 32) {}

  __device__ void Run(const AttentionItem& item) {
    __syncthreads();  // the item before is done with shared memory
    LoadBias(item);
    LoadQueries(item);
    Clear();
    FindSeen(item);
    const int first = item.key_begin / kTileKeys * kTileKeys;
    LoadKeys(item, first, 0);
    sm90::CommitCopies();
    int stage = 0;
#pragma unroll 1
    for (int tile = first; tile < item.key_end; tile += kTileKeys) {
      if (tile + kTileKeys < item.key_end) {
        LoadKeys(item, tile + kTileKeys, stage ^ 1);
      }
      sm90::CommitCopies();
      sm90::WaitCopies<1>();  // of all but the one begun last
      __syncthreads();
      if (tile == first) LoadFragments();
      Attend(tile, shared_ + L::kStages + stage * L::kStageBytes);
      __syncthreads();  // before the stage is written again
      stage ^= 1;
    }
    sm90::WaitCopies<0>();  // where there were no keys
    WriteOut(item);
  }

 private:
  using L = Layout<kDim>;
  static constexpr int kChunks = kDim / 8;  // of 16 bytes, in a row
  static constexpr int kSteps = kDim / 16;  // of k in q k^T
  static constexpr int kColumnBlocks = kDim / 8;

  // In units of log 2.
  __device__ void LoadBias(const AttentionItem& item) {
    const int count = 2 * bias_.reach + 1;
    for (int i = thread_; i < count; i += kThreads) {
      table_[i] = kLog2E * __ldg(bias_.values + item.kv_head * count + i);
    }
  }

  // Rows that do not exist are zeros.
  __device__ void LoadQueries(const AttentionItem& item) {
    for (int i = thread_; i < kRows * kChunks; i += kThreads) {
      const int row = i / kChunks;
      const int chunk = i % kChunks;
      const bool valid = row < item.num_rows;
      const int token = item.row_begin + (valid ? row : 0);
      const char* from = static_cast<const char*>(args_.q) +
                         (item.q_begin + token) * args_.q_stride +
                         2 * (int64_t{item.kv_head} * kDim + 8 * chunk);
      sm90::CopyAsync16OrZeros(shared_ + row * L::kRowBytes + 16 * chunk, from,
                               valid);
    }
  }

  // Keys [tile, tile + kTileKeys) and their values; those outside the item are
  // zeros: nobody says what lies there. Two threads a key, every other chunk
  // each.
  __device__ void LoadKeys(const AttentionItem& item, int tile, int stage) {
    static_assert(2 * kTileKeys == kThreads);
    const int key = thread_ / 2;
    const bool valid =
        tile + key >= item.key_begin && tile + key < item.key_end;
    const int2 place =
        PlaceOfKey(args_, item, valid ? tile + key : item.key_begin);
    const int64_t row =
        (int64_t{item.kv_head} * args_.kv.block_size + place.y) * (2 * kDim);
    const std::byte* base =
        args_.kv.base.base + place.x * args_.kv.block_stride_bytes + row;
    const uint32_t to =
        shared_ + L::kStages + stage * L::kStageBytes + key * L::kRowBytes;
#pragma unroll
    for (int i = 0; i < kChunks / 2; ++i) {
      const int at = 16 * (2 * i + thread_ % 2);
      sm90::CopyAsync16OrZeros(to + at, base + args_.kv.k_offset_bytes + at,
                               valid);
      sm90::CopyAsync16OrZeros(to + L::kTileBytes + at,
                               base + args_.kv.v_offset_bytes + at, valid);
    }
  }

  __device__ void Clear() {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      m_[r] = -INFINITY;
      l_[r] = 0.0f;
    }
#pragma unroll
    for (auto& block : o_) {
#pragma unroll
      for (float& x : block) x = 0.0f;
    }
  }

  // Of the thread's rows g and g + 8 of its warp's.
  __device__ int RowOf(int r) const { return 16 * warp_ + lane_ / 4 + 8 * r; }

  __device__ void FindSeen(const AttentionItem& item) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = item.row_begin + min(RowOf(r), item.num_rows - 1);
      seen_[r] = MaskedKeysOfRow(args_, item, row);
      position_[r] = PositionOf(args_, item, row);
    }
  }

  __device__ void LoadFragments() {
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      // Matrices: rows 0-7 and 8-15 of the first 8 columns, then of the next.
      sm90::LoadMatrix4(q_[s], shared_ +
                                   (16 * warp_ + lane_ % 16) * L::kRowBytes +
                                   16 * (2 * s + lane_ / 16));
    }
  }

  __device__ void Attend(int tile, uint32_t stage) {
    float s[kKeyBlocks][4] = {};
    MultiplyKeys(stage, s);
    Softmax(tile, s);
    MultiplyValues(stage + L::kTileBytes, s);
  }

  __device__ void MultiplyKeys(uint32_t keys, float (&s)[kKeyBlocks][4]) const {
    // Matrices: 8 keys x the step's first and last 8 columns, then the next 8.
    const uint32_t from = keys + (lane_ / 16 * 8 + lane_ % 8) * L::kRowBytes +
                          16 * (lane_ / 8 % 2);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int pair = 0; pair < kKeyBlocks / 2; ++pair) {
        uint32_t k[4];
        sm90::LoadMatrix4(k, from + pair * 16 * L::kRowBytes + 32 * step);
        sm90::Mma16816<T>(s[2 * pair], q_[step], k[0], k[1]);
        sm90::Mma16816<T>(s[2 * pair + 1], q_[step], k[2], k[3]);
      }
    }
  }

  // Scores to weights; rescales what is there where a maximum grows.
  __device__ void Softmax(int tile, float (&s)[kKeyBlocks][4]) {
    float top[2] = {m_[0], m_[1]};
#pragma unroll
    for (int j = 0; j < kKeyBlocks; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int key = tile + 8 * j + lane_ % 4 * 2 + i % 2;
        const AttentionRowKeys& seen = seen_[i / 2];
        float& score = s[j][i];
        const int distance =
            max(-bias_.reach, min(bias_.reach, key - position_[i / 2]));
        score = ScaledScore(args_, score) + table_[bias_.reach + distance];
        if (key < seen.begin || key >= seen.end ||
            !BitOf(args_.mask, seen, key)) {
          score = -INFINITY;
        }
        top[i / 2] = fmaxf(top[i / 2], score);
      }
    }
    float base[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      top[r] = fmaxf(top[r], __shfl_xor_sync(0xffffffffu, top[r], 1));
      top[r] = fmaxf(top[r], __shfl_xor_sync(0xffffffffu, top[r], 2));
      base[r] = top[r] == -INFINITY ? 0.0f : top[r];
      const float rescale = Exp2(m_[r] - base[r]);
      m_[r] = top[r];
      l_[r] *= rescale;
#pragma unroll
      for (auto& block : o_) {
        block[2 * r] *= rescale;
        block[2 * r + 1] *= rescale;
      }
    }
#pragma unroll
    for (auto& block : s) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        block[i] = Exp2(block[i] - base[i / 2]);
        l_[i / 2] += block[i];
      }
    }
  }

  __device__ void MultiplyValues(uint32_t values,
                                 const float (&s)[kKeyBlocks][4]) {
    // Matrices, turned: 16 keys of 8 columns, then of the next 8.
    const uint32_t from = values +
                          (lane_ / 8 % 2 * 8 + lane_ % 8) * L::kRowBytes +
                          16 * (lane_ / 16);
#pragma unroll
    for (int k16 = 0; k16 < kTileKeys / 16; ++k16) {
      const uint32_t p[4] = {
          sm90::Pack<T>(s[2 * k16][0], s[2 * k16][1]),
          sm90::Pack<T>(s[2 * k16][2], s[2 * k16][3]),
          sm90::Pack<T>(s[2 * k16 + 1][0], s[2 * k16 + 1][1]),
          sm90::Pack<T>(s[2 * k16 + 1][2], s[2 * k16 + 1][3])};
#pragma unroll
      for (int pair = 0; pair < kColumnBlocks / 2; ++pair) {
        uint32_t v[4];
        sm90::LoadMatrix4Transposed(v,
                                    from + k16 * 16 * L::kRowBytes + 32 * pair);
        sm90::Mma16816<T>(o_[2 * pair], p, v[0], v[1]);
        sm90::Mma16816<T>(o_[2 * pair + 1], p, v[2], v[3]);
      }
    }
  }

  // Divides by the sum, the head's sink included; zeros where nothing was seen.
  __device__ void WriteOut(const AttentionItem& item) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float l = l_[r];
      l += __shfl_xor_sync(0xffffffffu, l, 1);
      l += __shfl_xor_sync(0xffffffffu, l, 2);
      float factor = 1.0f;
      if (args_.sinks != nullptr) {
        const float sink = kLog2E * args_.sinks[item.kv_head];
        const float top = fmaxf(m_[r], sink);
        factor = Exp2(m_[r] - top);
        l = fmaf(l, factor, Exp2(sink - top));
      }
      if (RowOf(r) >= item.num_rows) continue;
      factor = l == 0.0f ? 0.0f : __fdividef(factor, l);
      auto* out =
          static_cast<char*>(args_.out) +
          (item.q_begin + item.row_begin + RowOf(r)) * args_.out_stride +
          2 * (int64_t{item.kv_head} * kDim + lane_ % 4 * 2);
#pragma unroll
      for (int j = 0; j < kColumnBlocks; ++j) {
        *reinterpret_cast<uint32_t*>(out + 16 * j) =
            sm90::Pack<T>(o_[j][2 * r] * factor, o_[j][2 * r + 1] * factor);
      }
    }
  }

  const AttentionItemArgs& args_;
  const ScoreBias& bias_;
  float* table_;
  uint32_t shared_;
  int thread_;
  int warp_;
  int lane_;
  AttentionRowKeys seen_[2];
  int position_[2];
  uint32_t q_[kSteps][4];
  float m_[2];  // in units of log 2
  float l_[2];  // this thread's part
  float o_[kColumnBlocks][4];
};

template <typename T, int kDim>
__global__ void __launch_bounds__(kThreads)
    BiasedAttentionMma(const __grid_constant__ AttentionItemArgs args,
                       const __grid_constant__ ScoreBias bias) {
  extern __shared__ __align__(16) unsigned char memory[];
  WaitForPrevious();
  LetNextBegin();
  Worker<T, kDim> worker(args, bias, memory);
  const int last = args.cta_items[blockIdx.x + 1];
#pragma unroll 1
  for (int i = args.cta_items[blockIdx.x]; i < last; ++i) {
    worker.Run(args.items[i]);
  }
}

template <typename T, int kDim>
absl::Status Launch(const AttentionDesc& desc,
                    const BiasedAttentionParams& params, CudaStream& stream) {
  return LaunchCuda("biased attention (mma)", stream,
                    {params.attention.plan->shape.grid, kThreads,
                     Layout<kDim>::Bytes(params.bias.reach)},
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
