// Tiles of 16 keys of a KV head in a warp's registers, and what the warp makes
// of them for the head's query heads, at most 8. Source: PTX ISA, mma.m16n8k16,
// movmatrix.
//
// Tiles are loaded as they lie in the cache: the operands of mma.m16n8k16 need
// not have the elements of a row in their order, only both operands in the same
// one. With g = lane / 4 and t = lane % 4:
//   scores   rows: keys, columns: query heads. A lane has of keys g and g + 8
//            the elements 32 i + 8 t + 0..7, 16 bytes each, and of query head g
//            the same. So a pair that rotary positions turn lies within a lane,
//            in both styles. It gets scores of heads 2 t and 2 t + 1.
//   weights  scores of keys g and g + 8, turned over by movmatrix: head g's
//            keys 2 t, 2 t + 1, 2 t + 8 and 2 t + 9.
//   values   rows: elements, columns: query heads. A lane has of these four
//            keys the elements 64 i + 8 g + 0..7; a byte permutation makes two
//            keys' elements a register, 8 g + 2 j and 8 g + 2 j + 1 being rows
//            g and g + 8 of one product of four.
// Scores, sums and numerators are float32, weights have the cache's type.
#ifndef INLAY_KERNELS_DECODE_ATTENTION_DECODE_TILE_CUH_
#define INLAY_KERNELS_DECODE_ATTENTION_DECODE_TILE_CUH_

#include "kernels/attention/attention_plan.h"
#include "kernels/attention/sm90_ops.h"
#include "kernels/decode_attention/decode_attention_sm90.h"
#include "kernels/decode_attention/decode_head.cuh"
#include "kernels/kv_write/kv_row.cuh"

namespace inlay {

inline constexpr int kDecodeTile = 16;  // keys
inline constexpr float kDecodeLog2E = 1.44269504f;
inline constexpr float kDecodeNothing = -INFINITY;
inline constexpr unsigned kDecodeLanes = 0xffffffffu;

__device__ inline int DecodeG() {
  return static_cast<int>(threadIdx.x) % 32 / 4;
}
__device__ inline int DecodeT() { return static_cast<int>(threadIdx.x) % 4; }

struct DecodeShape {
  const AttentionQuery* queries;
  const int32_t* blocks;
  const std::byte* qkv;
  std::byte* out;
  int64_t qkv_stride;  // bytes
  int64_t out_stride;
  int num_kv_heads;
  int group;
  int window;
  float scale;  // of scores in units of log 2
  const float* sinks;
  HeadNorm norms[2];  // of q, of k
  const float* cos;
  const float* sin;
  const int64_t* slots;
  CudaKvLayer kv;
};

// A lane's part of 16 keys and of their values.
template <int kDim>
struct DecodeTile {
  static constexpr int kSlabs = kDim / 64;
  HeadPart<kDim> k[2];  // keys g and g + 8
  uint4 v[4][kSlabs];   // keys 2 t, 2 t + 1, 2 t + 8, 2 t + 9
};

// Key j of a tile, among those whose values a lane has.
__device__ inline int DecodeValueKey(int t, int j) {
  return j / 2 * 8 + 2 * t + j % 2;
}

// The new token's key and value, in shared memory.
template <int kDim>
struct DecodeToken {
  uint4 key[kDim / 8];
  uint4 value[kDim / 8];
};

// float4 of a head's numerators in shared memory: a gap keeps heads apart in
// banks.
template <int kDim>
inline constexpr int kDecodeQuads = kDim / 4 + 2;

// What a token's query sees of a KV head.
template <int kDim>
class DecodeKeys {
 public:
  using Tile = DecodeTile<kDim>;
  __device__ DecodeKeys(const DecodeShape& shape, const AttentionQuery& query,
                        int kv_head)
      : shape_(shape),
        blocks_(shape.blocks + query.blocks_begin),
        kv_head_(kv_head),
        kv_len_(query.kv_len),
        first_key_(shape.window > 0 ? max(query.kv_len - shape.window, 0) : 0),
        end_((query.kv_len + kDecodeTile - 1) / kDecodeTile),
        tiles_a_block_(shape.kv.block_size / kDecodeTile) {}

  // Tiles end here; the new token's is the last.
  __device__ int end() const { return end_; }
  // The first tile whose number is `share` modulo `shares`.
  __device__ int FirstOf(int share, int shares) const {
    const int first = first_key_ / kDecodeTile;
    return first + (share - first % shares + shares) % shares;
  }
  // Beyond the last tile nothing is loaded.
  __device__ int64_t BlockOf(int tile) const {
    return tile >= end_ ? 0 : blocks_[tile / tiles_a_block_];
  }
  __device__ void Load(int tile, int64_t block, Tile& to) const {
    if (tile >= end_) return;
    const int g = DecodeG(), t = DecodeT();
    const int slot = tile % tiles_a_block_ * kDecodeTile;
    const std::byte* const base =
        shape_.kv.base + block * shape_.kv.block_stride +
        (int64_t{kv_head_} * shape_.kv.block_size + slot) * (2 * kDim);
    const std::byte* const keys = base + shape_.kv.key_offset;
    const std::byte* const values = base + shape_.kv.value_offset;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      to.k[half].Load(keys + (half * 8 + g) * 2 * kDim, t);
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
#pragma unroll
      for (int i = 0; i < Tile::kSlabs; ++i) {
        to.v[j][i] = LoadCold(values + DecodeValueKey(t, j) * 2 * kDim +
                              128 * i + 16 * g);
      }
    }
  }
  // The new key and value into the tile that they belong to.
  __device__ void Replace(int tile, const DecodeToken<kDim>& token,
                          Tile& in) const {
    if (tile != end_ - 1) return;
    const int g = DecodeG(), t = DecodeT();
    const int key = (kv_len_ - 1) % kDecodeTile;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (key != half * 8 + g) continue;
#pragma unroll
      for (int i = 0; i < kDim / 32; ++i) {
        in.k[half].at[i] = token.key[4 * i + t];
      }
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (key != DecodeValueKey(t, j)) continue;
#pragma unroll
      for (int i = 0; i < Tile::kSlabs; ++i)
        in.v[j][i] = token.value[8 * i + g];
    }
  }
  // Scores of keys that the query does not see become nothing, their values
  // zeros: nobody says what lies there, and zero times NaN is NaN.
  __device__ void HideUnseen(int tile, float (&s)[4], Tile& in) const {
    const int first = tile * kDecodeTile;
    if (first >= first_key_ && first + kDecodeTile <= kv_len_) return;
    const auto unseen = [&](int key) {
      return first + key < first_key_ || first + key >= kv_len_;
    };
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (!unseen(half * 8 + DecodeG())) continue;
      s[2 * half] = s[2 * half + 1] = kDecodeNothing;
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (!unseen(DecodeValueKey(DecodeT(), j))) continue;
#pragma unroll
      for (int i = 0; i < Tile::kSlabs; ++i) {
        in.v[j][i] = make_uint4(0, 0, 0, 0);
      }
    }
  }

 private:
  const DecodeShape& shape_;
  const int32_t* const blocks_;
  const int kv_head_;
  const int kv_len_;
  const int first_key_;
  const int end_;
  const int tiles_a_block_;
};

// What a token's row of q, k and v has of a KV head, and where the new key and
// value go.
template <int kDim>
class DecodeHeads {
 public:
  static constexpr int kSlabs = kDim / 64;
  __device__ DecodeHeads(const DecodeShape& shape, int row, int kv_head)
      : shape_(shape),
        from_(shape.qkv + row * shape.qkv_stride),
        row_(row),
        kv_head_(kv_head) {}

  // Query head g. Those that there are not repeat the last one; nobody reads
  // what they give.
  __device__ void LoadQuery(HeadPart<kDim>& q) const {
    const int head = kv_head_ * shape_.group + min(DecodeG(), shape_.group - 1);
    q.Load(from_ + head * 2 * kDim, DecodeT());
  }
  __device__ void LoadToken(HeadPart<kDim>& key, uint4 (&value)[kSlabs]) const {
    const int heads = shape_.group * shape_.num_kv_heads;
    const std::byte* const at = from_ + (heads + kv_head_) * 2 * kDim;
    key.Load(at, DecodeT());
#pragma unroll
    for (int i = 0; i < kSlabs; ++i) {
      value[i] = LoadCold(at + shape_.num_kv_heads * 2 * kDim + 128 * i +
                          16 * DecodeG());
    }
  }
  template <bool kHalf>
  __device__ Angles<kDim, kHalf> LoadAngles() const {
    const int64_t at = int64_t{row_} * (kDim / 2);
    return Angles<kDim, kHalf>(shape_.cos + at, shape_.sin + at, DecodeT());
  }
  // The new key and value to the cache, and to `token`. A warp calls it.
  __device__ void Keep(const HeadPart<kDim>& key, const uint4 (&value)[kSlabs],
                       DecodeToken<kDim>& token) const {
    const int g = DecodeG(), t = DecodeT();
    const int64_t slot = shape_.slots[row_];
    if (g == 0) {
      std::byte* const to =
          shape_.kv.Row(false, max(slot, int64_t{0}), kv_head_);
#pragma unroll
      for (int i = 0; i < kDim / 32; ++i) {
        token.key[4 * i + t] = key.at[i];
        if (slot >= 0) {
          *reinterpret_cast<uint4*>(to + 64 * i + 16 * t) = key.at[i];
        }
      }
    }
    if (t == 0) {
      std::byte* const to =
          shape_.kv.Row(true, max(slot, int64_t{0}), kv_head_);
#pragma unroll
      for (int i = 0; i < kSlabs; ++i) {
        token.value[8 * i + g] = value[i];
        if (slot >= 0) {
          *reinterpret_cast<uint4*>(to + 128 * i + 16 * g) = value[i];
        }
      }
    }
    __syncwarp();
  }

 private:
  const DecodeShape& shape_;
  const std::byte* const from_;
  const int row_;
  const int kv_head_;
};

// A warp's sums over its tiles. A lane has those of query heads 2 t and 2 t
// + 1.
template <typename T, int kDim>
class DecodeSums {
 public:
  using Tile = DecodeTile<kDim>;
  // Before the first Add.
  __device__ void Clear() {
#pragma unroll
    for (int i = 0; i < Tile::kSlabs * 16; ++i) {
      numerators_[i / 16][i / 4 % 4][i % 4] = 0.0f;
    }
  }
  __device__ void Add(const HeadPart<kDim>& q, const DecodeKeys<kDim>& keys,
                      int tile, float scale, Tile& in) {
    float s[4] = {}, more[4] = {};
#pragma unroll
    for (int i = 0; i < kDim / 32; ++i) {
      const uint4 &a = in.k[0].at[i], &b = in.k[1].at[i];
      const uint32_t low[4] = {a.x, b.x, a.y, b.y};
      const uint32_t high[4] = {a.z, b.z, a.w, b.w};
      sm90::Mma16816<T>(s, low, q.at[i].x, q.at[i].y);
      sm90::Mma16816<T>(more, high, q.at[i].z, q.at[i].w);
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) s[j] = (s[j] + more[j]) * scale;
    keys.HideUnseen(tile, s, in);
    float factors[2];
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      float highest = fmaxf(highest_[c], fmaxf(s[c], s[2 + c]));
#pragma unroll
      for (int lanes = 4; lanes < 32; lanes *= 2) {
        highest = fmaxf(highest, __shfl_xor_sync(kDecodeLanes, highest, lanes));
      }
      factors[c] = exp2f(highest_[c] - highest);
      highest_[c] = highest;
      s[c] = exp2f(s[c] - highest);
      s[2 + c] = exp2f(s[2 + c] - highest);
      sum_[c] = fmaf(sum_[c], factors[c], s[c] + s[2 + c]);
    }
    const uint32_t low = Turned(sm90::Pack<T>(s[0], s[1]));
    const uint32_t high = Turned(sm90::Pack<T>(s[2], s[3]));
#pragma unroll
    for (int i = 0; i < Tile::kSlabs; ++i) {
      const uint32_t v[4][4] = {
          {in.v[0][i].x, in.v[0][i].y, in.v[0][i].z, in.v[0][i].w},
          {in.v[1][i].x, in.v[1][i].y, in.v[1][i].z, in.v[1][i].w},
          {in.v[2][i].x, in.v[2][i].y, in.v[2][i].z, in.v[2][i].w},
          {in.v[3][i].x, in.v[3][i].y, in.v[3][i].z, in.v[3][i].w}};
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const uint32_t a[4] = {__byte_perm(v[0][j], v[1][j], 0x5410),
                               __byte_perm(v[0][j], v[1][j], 0x7632),
                               __byte_perm(v[2][j], v[3][j], 0x5410),
                               __byte_perm(v[2][j], v[3][j], 0x7632)};
        float(&o)[4] = numerators_[i][j];
#pragma unroll
        for (int c = 0; c < 4; ++c) o[c] *= factors[c % 2];
        sm90::Mma16816<T>(o, a, low, high);
      }
    }
  }

  // A warp's maxima and sums of heads, and their numerators, to shared memory:
  // [kDecodeGroup], [heads][kDecodeQuads]. No numerators where the maximum is
  // -infinity.
  __device__ void Leave(int group, float2* sums, float4* numerators) {
    const int g = DecodeG();
#pragma unroll
    for (int lanes = 4; lanes < 32; lanes *= 2) {
      sum_[0] += __shfl_xor_sync(kDecodeLanes, sum_[0], lanes);
      sum_[1] += __shfl_xor_sync(kDecodeLanes, sum_[1], lanes);
    }
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const int head = 2 * DecodeT() + c;
      if (head >= group) continue;
      if (g == 0) sums[head] = make_float2(highest_[c], sum_[c]);
      if (highest_[c] == kDecodeNothing) continue;
#pragma unroll
      for (int i = 0; i < Tile::kSlabs; ++i) {
        float4* const to =
            numerators + head * kDecodeQuads<kDim> + 16 * i + 2 * g;
        const float(&o)[4][4] = numerators_[i];
        to[0] = make_float4(o[0][c], o[0][2 + c], o[1][c], o[1][2 + c]);
        to[1] = make_float4(o[2][c], o[2][2 + c], o[3][c], o[3][2 + c]);
      }
    }
  }

 private:
  // Of 8 x 8 16-bit floats, of which a lane has two neighbours of row g.
  __device__ static uint32_t Turned(uint32_t pair) {
    uint32_t turned;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;"
                 : "=r"(turned)
                 : "r"(pair));
    return turned;
  }

  float highest_[2] = {kDecodeNothing, kDecodeNothing};
  float sum_[2] = {};
  float numerators_[Tile::kSlabs][4][4];
};

// Maximum and sum of a head over warps, whose sums lie kDecodeGroup apart, and
// what each warp's numerators count: 0 where there are none.
template <int kWarps>
__device__ inline float2 MergeDecodeSums(const float2* sums,
                                         float (&factors)[kWarps]) {
  float2 merged = {kDecodeNothing, 0.0f};
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
    merged.x = fmaxf(merged.x, sums[w * kDecodeGroup].x);
  }
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
    const float2 sum = sums[w * kDecodeGroup];
    factors[w] = sum.x == kDecodeNothing ? 0.0f : exp2f(sum.x - merged.x);
    merged.y = fmaf(factors[w], sum.y, merged.y);
  }
  return merged;
}

}  // namespace inlay

#endif  // INLAY_KERNELS_DECODE_ATTENTION_DECODE_TILE_CUH_
