// What the kernels for encoders (biased_attention_cuda_mma.cu,
// disentangled_attention_cuda_mma.cu) do with an item of 64 rows and all keys
// they see (whole_rows), with matrix instructions of a warp: four warps of 16
// rows each; a warp's scores, weights and sums stay in registers (float32;
// weights are rounded to the values' type for the second product), as
// FlashAttention-2 has it (arXiv:2307.08691). When a tile of keys is loaded,
// and what is added to its scores, is the kernel's.
//
// Caches of T (f16, bf16), every head with keys of its own. Addresses are of
// shared memory; rows there are 16 bytes longer than their elements, so that
// eight of them lie in different banks.
// Registers: 8 x 4 scores, kDim / 8 x 4 sums, kDim / 16 x 4 of queries.
#ifndef INLAY_KERNELS_ATTENTION_ATTENTION_WHOLE_ITEMS_MMA_H_
#define INLAY_KERNELS_ATTENTION_ATTENTION_WHOLE_ITEMS_MMA_H_

#include "kernels/attention/attention_items_cuda.h"
#include "kernels/attention/sm90_ops.h"

namespace inlay::whole_mma {

constexpr int kThreads = 128;
constexpr int kRows = kAttentionWideItemRows;
constexpr int kTileKeys = 64;
constexpr int kKeyBlocks = kTileKeys / 8;
static_assert(kRows == 64 && 2 * kTileKeys == kThreads);

constexpr int RowBytes(int dim) { return 2 * dim + 16; }

using Scores = float[kKeyBlocks][4];

template <typename T, int kDim>
class Worker {
 public:
  static constexpr int kRowBytes = RowBytes(kDim);
  static constexpr int kChunks = kDim / 8;  // of 16 bytes, in a row
  static constexpr int kSteps = kDim / 16;  // of k in q k^T
  static constexpr int kColumnBlocks = kDim / 8;

  // Queries lie at the beginning of `memory`.
  __device__ Worker(const AttentionItemArgs& args, unsigned char* memory)
      : args_(args),
        shared_(sm90::SharedAddress(memory)),
        thread_(static_cast<int>(threadIdx.x)),
        warp_(thread_ / 32),
        lane_(thread_ % 32) {}

 protected:
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
  __device__ void LoadKeys(const AttentionItem& item, int tile, uint32_t keys,
                           uint32_t values) {
    const int key = thread_ / 2;
    const bool valid =
        tile + key >= item.key_begin && tile + key < item.key_end;
    const int2 place =
        PlaceOfKey(args_, item, valid ? tile + key : item.key_begin);
    const int64_t row =
        (int64_t{item.kv_head} * args_.kv.block_size + place.y) * (2 * kDim);
    const std::byte* base =
        args_.kv.base.base + place.x * args_.kv.block_stride_bytes + row;
#pragma unroll
    for (int i = 0; i < kChunks / 2; ++i) {
      const int at = 16 * (2 * i + thread_ % 2);
      sm90::CopyAsync16OrZeros(keys + key * kRowBytes + at,
                               base + args_.kv.k_offset_bytes + at, valid);
      sm90::CopyAsync16OrZeros(values + key * kRowBytes + at,
                               base + args_.kv.v_offset_bytes + at, valid);
    }
  }

  // Before an item's first tile.
  __device__ void Begin(const AttentionItem& item) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      m_[r] = -INFINITY;
      l_[r] = 0.0f;
      const int row = item.row_begin + min(RowOf(r), item.num_rows - 1);
      seen_[r] = MaskedKeysOfRow(args_, item, row);
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

  // Rows [0, 16) behind `rows` as the left operand of step s.
  __device__ void LoadLeft(uint32_t (&a)[4], uint32_t rows, int s) const {
    // Matrices: rows 0-7 and 8-15 of the first 8 columns, then of the next.
    sm90::LoadMatrix4(
        a, rows + lane_ % 16 * kRowBytes + 16 * (2 * s + lane_ / 16));
  }

  // The warp's queries, once they have come.
  __device__ void LoadFragments() {
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      LoadLeft(q_[s], shared_ + 16 * warp_ * kRowBytes, s);
    }
  }

  // Adds the product of 16 rows (fragments of step s) and 8 * kBlocks rows
  // behind `rows` to c.
  template <int kBlocks>
  __device__ void MultiplyRows(const uint32_t (&left)[4], uint32_t rows, int s,
                               float (&c)[kBlocks][4]) const {
    // Matrices: 8 rows x the step's first and last 8 columns, then the next 8.
    const uint32_t from = rows + (lane_ / 16 * 8 + lane_ % 8) * kRowBytes +
                          16 * (lane_ / 8 % 2) + 32 * s;
#pragma unroll
    for (int pair = 0; pair < kBlocks / 2; ++pair) {
      uint32_t k[4];
      sm90::LoadMatrix4(k, from + pair * 16 * kRowBytes);
      sm90::Mma16816<T>(c[2 * pair], left, k[0], k[1]);
      sm90::Mma16816<T>(c[2 * pair + 1], left, k[2], k[3]);
    }
  }

  // The warp's queries by 8 * kBlocks rows.
  template <int kBlocks>
  __device__ void MultiplyQueries(uint32_t rows, float (&c)[kBlocks][4]) const {
#pragma unroll
    for (int s = 0; s < kSteps; ++s) MultiplyRows(q_[s], rows, s, c);
  }

  // Products to scores, in units of log 2.
  __device__ void Scale(Scores& s) const {
    if (args_.softcap > 0.0f) {
#pragma unroll
      for (auto& block : s) {
#pragma unroll
        for (float& x : block) x = CappedScore(args_, x);
      }
      return;
    }
    const float scale = args_.scale * kLog2E;
#pragma unroll
    for (auto& block : s) {
#pragma unroll
      for (float& x : block) x *= scale;
    }
  }

  // Scores to weights; rescales what is there where a maximum grows.
  __device__ void Softmax(int tile, Scores& s) {
    if (!(SeesAll(0, tile) && SeesAll(1, tile))) Hide(tile, s);
    float top[2] = {m_[0], m_[1]};
#pragma unroll
    for (auto& block : s) {
#pragma unroll
      for (int i = 0; i < 4; ++i) top[i / 2] = fmaxf(top[i / 2], block[i]);
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

  __device__ void MultiplyValues(uint32_t values, const Scores& s) {
    // Matrices, turned: 16 keys of 8 columns, then of the next 8.
    const uint32_t from = values + (lane_ / 8 % 2 * 8 + lane_ % 8) * kRowBytes +
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
  uint32_t shared_;
  int thread_;
  int warp_;
  int lane_;

 private:
  __device__ bool SeesAll(int r, int tile) const {
    return seen_[r].bits < 0 && seen_[r].begin <= tile &&
           tile + kTileKeys <= seen_[r].end;
  }

  // Keys that rows do not see.
  __device__ void Hide(int tile, Scores& s) const {
#pragma unroll
    for (int j = 0; j < kKeyBlocks; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int key = tile + KeyOf(j, i);
        const AttentionRowKeys& seen = seen_[i / 2];
        if (key < seen.begin || key >= seen.end ||
            !BitOf(args_.mask, seen, key)) {
          s[j][i] = -INFINITY;
        }
      }
    }
  }

  AttentionRowKeys seen_[2];
  uint32_t q_[kSteps][4];
  float m_[2];  // in units of log 2
  float l_[2];  // this thread's part
  float o_[kColumnBlocks][4];
};

// The CTA's items, one after another. Worker: one of the kernels'.
template <typename Worker>
__device__ void RunItems(const AttentionItemArgs& args, Worker& worker) {
  const int last = args.cta_items[blockIdx.x + 1];
#pragma unroll 1
  for (int i = args.cta_items[blockIdx.x]; i < last; ++i) {
    worker.Run(args.items[i]);
  }
}

}  // namespace inlay::whole_mma

#endif  // INLAY_KERNELS_ATTENTION_ATTENTION_WHOLE_ITEMS_MMA_H_
