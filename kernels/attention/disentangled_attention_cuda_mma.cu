// disentangled_attention on CUDA with matrix instructions of a warp (from sm_80
// up): caches of f16 or bf16, heads of 64. For encoders: many queries, all
// keys.
//
// Grid: AttentionPlanShape::grid CTAs, each with a list of items of 64 rows and
// all keys they see (whole_rows): nothing is folded, so a query's result
// depends on its own row and its keys alone. CTA: four warps of 16 rows each.
//
// The distances of 64 queries from a tile of 64 keys are 127 consecutive
// numbers, u = a - b + 63 of query a and key b. With the tile come the rows of
// both tables for these, and the scores are the sum of three products:
//   q . k      of 16 queries and 64 keys, a warp's
//   q . keys   of 16 queries and the 80 rows that they reach, a warp's
//   queries . k   of 32 rows and 64 keys a warp, 128 in all, for all warps
// The second and third are written to shared memory by (a, u) and by (u, b),
// and each thread reads its pairs there. As many products of matrices as 5.25
// of attention's scores. All sums in float32; weights are rounded to the
// values' type, as in biased_attention_cuda_mma.cu.
//
// Shared memory (97 KB, which every GPU has; two CTAs an SM on those with 200
// KB): queries | keys | values | rows of keys | rows of queries | products. One
// stage: while a CTA waits for its tile, the other one computes. Rows are 16
// bytes longer than their elements, so that eight of them lie in different
// banks. Barriers: __syncthreads around a tile, and around the third product.
// Roofline: the matrix units at the rate of mma.sync; not measured yet.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/attention/attention_items_cuda.h"
#include "kernels/attention/disentangled_attention.h"
#include "kernels/attention/sm90_ops.h"
#include "kernels/cuda_launch.cuh"
#include "memory/device/cuda_stream.h"

namespace inlay {
namespace {

constexpr int kThreads = 128;
constexpr int kDim = 64;
constexpr int kRows = kAttentionWideItemRows;
constexpr int kTileKeys = 64;
constexpr int kNear = 128;  // rows of a table in shared memory; 127 are read
constexpr int kBand = 80;   // those that the 16 queries of a warp read
static_assert(kRows == 64 && kRows + kTileKeys - 1 <= kNear);
static_assert(16 + kTileKeys - 1 <= kBand && 48 + kBand <= kNear);

constexpr int kKeyBlocks = kTileKeys / 8;
constexpr int kChunks = kDim / 8;  // of 16 bytes, in a row
constexpr int kSteps = kDim / 16;  // of k in a product
constexpr int kColumnBlocks = kDim / 8;

// Of shared memory, in bytes.
constexpr int kRowBytes = 2 * kDim + 16;
constexpr int kKeysAt = kRows * kRowBytes;
constexpr int kValuesAt = kKeysAt + kTileKeys * kRowBytes;
constexpr int kOfKeysAt = kValuesAt + kTileKeys * kRowBytes;
constexpr int kOfQueriesAt = kOfKeysAt + kNear * kRowBytes;
constexpr int kProductsAt = kOfQueriesAt + kNear * kRowBytes;
// Of products, in floats: rows are queries of a warp, or distances.
constexpr int kBandStride = kBand + 4;
constexpr int kNearStride = kTileKeys + 4;
constexpr int kBytes = kProductsAt + 4 * kNear * kNearStride;
static_assert(kRows * kBandStride <= kNear * kNearStride);
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
class DisentangledWorker {
 public:
  __device__ DisentangledWorker(const AttentionItemArgs& args,
                                const NearTables& tables, unsigned char* memory)
      : args_(args),
        tables_(tables),
        products_(reinterpret_cast<float*>(memory + kProductsAt)),
        shared_(sm90::SharedAddress(memory)),
        thread_(static_cast<int>(threadIdx.x)),
        warp_(thread_ / 32),
        lane_(thread_ % 32) {}

  __device__ void Run(const AttentionItem& item) {
    Clear();
    FindSeen(item);
    const int first = item.key_begin / kTileKeys * kTileKeys;
#pragma unroll 1
    for (int tile = first; tile < item.key_end; tile += kTileKeys) {
      __syncthreads();  // the tile before is done with shared memory
      if (tile == first) LoadQueries(item);
      LoadKeys(item, tile);
      LoadNear(item, tile);
      sm90::CommitCopies();
      sm90::WaitCopies<0>();
      __syncthreads();
      if (tile == first) LoadFragments();
      float s[kKeyBlocks][4] = {};
      MultiplyKeys(s);
      if (tables_.keys.data != nullptr) AddOfKeys(s);
      if (tables_.queries.data != nullptr) AddOfQueries(s);
      Softmax(tile, s);
      MultiplyValues(s);
    }
    WriteOut(item);
  }

 private:
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
      sm90::CopyAsync16OrZeros(shared_ + row * kRowBytes + 16 * chunk, from,
                               valid);
    }
  }

  // Keys [tile, tile + kTileKeys) and their values; those outside the item are
  // zeros: nobody says what lies there. Two threads a key, every other chunk
  // each.
  __device__ void LoadKeys(const AttentionItem& item, int tile) {
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
    const uint32_t to = shared_ + key * kRowBytes;
#pragma unroll
    for (int i = 0; i < kChunks / 2; ++i) {
      const int at = 16 * (2 * i + thread_ % 2);
      sm90::CopyAsync16OrZeros(to + kKeysAt + at,
                               base + args_.kv.k_offset_bytes + at, valid);
      sm90::CopyAsync16OrZeros(to + kValuesAt + at,
                               base + args_.kv.v_offset_bytes + at, valid);
    }
  }

  // Row u of either table is that of distance (the item's first query) - (the
  // tile's last key) + u.
  __device__ void LoadNear(const AttentionItem& item, int tile) {
    const int nearest =
        item.kv_len - item.q_len + item.row_begin - (tile + kTileKeys - 1);
#pragma unroll 4
    for (int i = thread_; i < kNear * kChunks; i += kThreads) {
      const int u = i / kChunks;
      const int chunk = i % kChunks;
      const int distance = max(-tables_.reach, min(tables_.reach, nearest + u));
      const int64_t row = __ldg(tables_.rows + tables_.reach + distance);
      const int64_t column = 2 * (int64_t{item.kv_head} * kDim + 8 * chunk);
      const uint32_t to = shared_ + u * kRowBytes + 16 * chunk;
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
  // Of the tile's key that element i of block j of scores is of.
  __device__ int KeyOf(int j, int i) const {
    return 8 * j + lane_ % 4 * 2 + i % 2;
  }

  __device__ void FindSeen(const AttentionItem& item) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = item.row_begin + min(RowOf(r), item.num_rows - 1);
      seen_[r] = MaskedKeysOfRow(args_, item, row);
    }
  }

  // Rows [first, first + 16) of 16-bit elements as the left operand of step s.
  __device__ void LoadLeft(uint32_t (&a)[4], uint32_t rows, int s) const {
    // Matrices: rows 0-7 and 8-15 of the first 8 columns, then of the next.
    sm90::LoadMatrix4(
        a, rows + lane_ % 16 * kRowBytes + 16 * (2 * s + lane_ / 16));
  }
  // Rows [16 p, 16 p + 16) behind `rows`, as the right operand of step s, of
  // two blocks of 8.
  __device__ void LoadRight(uint32_t (&b)[4], uint32_t rows, int p,
                            int s) const {
    // Matrices: 8 rows x the step's first and last 8 columns, then the next 8.
    sm90::LoadMatrix4(b, rows +
                             (16 * p + lane_ / 16 * 8 + lane_ % 8) * kRowBytes +
                             16 * (lane_ / 8 % 2) + 32 * s);
  }

  __device__ void LoadFragments() {
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      LoadLeft(q_[s], shared_ + 16 * warp_ * kRowBytes, s);
    }
  }

  __device__ void MultiplyKeys(float (&s)[kKeyBlocks][4]) const {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int pair = 0; pair < kKeyBlocks / 2; ++pair) {
        uint32_t k[4];
        LoadRight(k, shared_ + kKeysAt, pair, step);
        sm90::Mma16816<T>(s[2 * pair], q_[step], k[0], k[1]);
        sm90::Mma16816<T>(s[2 * pair + 1], q_[step], k[2], k[3]);
      }
    }
  }

  // The 16 queries of the warp by the rows that they reach, from its first
  // query's on.
  __device__ void AddOfKeys(float (&s)[kKeyBlocks][4]) {
    float c[kBand / 8][4] = {};
    const uint32_t rows = shared_ + kOfKeysAt + 16 * warp_ * kRowBytes;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int pair = 0; pair < kBand / 16; ++pair) {
        uint32_t k[4];
        LoadRight(k, rows, pair, step);
        sm90::Mma16816<T>(c[2 * pair], q_[step], k[0], k[1]);
        sm90::Mma16816<T>(c[2 * pair + 1], q_[step], k[2], k[3]);
      }
    }
    float* const band = products_ + 16 * warp_ * kBandStride;
#pragma unroll
    for (int j = 0; j < kBand / 8; ++j) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        float* const to =
            band + (lane_ / 4 + 8 * r) * kBandStride + KeyOf(j, 0);
        *reinterpret_cast<float2*>(to) = {c[j][2 * r], c[j][2 * r + 1]};
      }
    }
    __syncwarp();  // a warp's band is its own
#pragma unroll
    for (int j = 0; j < kKeyBlocks; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int a = lane_ / 4 + 8 * (i / 2);
        s[j][i] += band[a * kBandStride + a - KeyOf(j, i) + kTileKeys - 1];
      }
    }
  }

  // Rows by keys, 32 rows a warp.
  __device__ void AddOfQueries(float (&s)[kKeyBlocks][4]) {
    __syncthreads();  // bands lie where this is written
#pragma unroll 1
    for (int half = 0; half < 2; ++half) {
      const int first = 32 * warp_ + 16 * half;
      float c[kKeyBlocks][4] = {};
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        uint32_t left[4];
        LoadLeft(left, shared_ + kOfQueriesAt + first * kRowBytes, step);
#pragma unroll
        for (int pair = 0; pair < kKeyBlocks / 2; ++pair) {
          uint32_t k[4];
          LoadRight(k, shared_ + kKeysAt, pair, step);
          sm90::Mma16816<T>(c[2 * pair], left, k[0], k[1]);
          sm90::Mma16816<T>(c[2 * pair + 1], left, k[2], k[3]);
        }
      }
#pragma unroll
      for (int j = 0; j < kKeyBlocks; ++j) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          float* const to = products_ +
                            (first + lane_ / 4 + 8 * r) * kNearStride +
                            KeyOf(j, 0);
          *reinterpret_cast<float2*>(to) = {c[j][2 * r], c[j][2 * r + 1]};
        }
      }
    }
    __syncthreads();
#pragma unroll
    for (int j = 0; j < kKeyBlocks; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int b = KeyOf(j, i);
        s[j][i] +=
            products_[(RowOf(i / 2) - b + kTileKeys - 1) * kNearStride + b];
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
        const int key = tile + KeyOf(j, i);
        const AttentionRowKeys& seen = seen_[i / 2];
        float& score = s[j][i];
        score = ScaledScore(args_, score);
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

  __device__ void MultiplyValues(const float (&s)[kKeyBlocks][4]) {
    // Matrices, turned: 16 keys of 8 columns, then of the next 8.
    const uint32_t from = shared_ + kValuesAt +
                          (lane_ / 8 % 2 * 8 + lane_ % 8) * kRowBytes +
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
        sm90::LoadMatrix4Transposed(v, from + k16 * 16 * kRowBytes + 32 * pair);
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
  const NearTables& tables_;
  float* products_;
  uint32_t shared_;
  int thread_;
  int warp_;
  int lane_;
  AttentionRowKeys seen_[2];
  uint32_t q_[kSteps][4];
  float m_[2];  // in units of log 2
  float l_[2];  // this thread's part
  float o_[kColumnBlocks][4];
};

template <typename T>
__global__ void __launch_bounds__(kThreads, 2)
    DisentangledAttentionMma(const __grid_constant__ AttentionItemArgs args,
                             const __grid_constant__ NearTables tables) {
  extern __shared__ __align__(16) unsigned char memory[];
  WaitForPrevious();
  LetNextBegin();
  DisentangledWorker<T> worker(args, tables, memory);
  const int last = args.cta_items[blockIdx.x + 1];
#pragma unroll 1
  for (int i = args.cta_items[blockIdx.x]; i < last; ++i) {
    worker.Run(args.items[i]);
  }
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
  return LaunchCuda("disentangled attention (mma)", stream,
                    {params.attention.plan->shape.grid, kThreads, kBytes},
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
