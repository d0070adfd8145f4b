// attention's tiles on CUDA: which blocks of keys a tile visits and which
// keys a thread's rows see, in two variants. Plain: causal order, windows, or
// all keys; what a block needs follows from its position. kMasked: a mask,
// ALiBi or both; blocks come from the plan's runs, and blocks that all rows see
// cost no mask arithmetic. What a row sees is read where a block needs it, and
// not kept: the registers are the products', and what spills is slow.
#ifndef INLAY_KERNELS_ATTENTION_ATTENTION_TILES_MASK_H_
#define INLAY_KERNELS_ATTENTION_ATTENTION_TILES_MASK_H_

#include "kernels/attention/attention_items_cuda.h"

namespace inlay::tiles {

// Null where there is no mask, no ALiBi.
struct TileMask {
  AttentionMaskArgs mask;
  const AttentionKeyRun* runs = nullptr;
};

// A tile's blocks of keys, from the last to the first.
template <int kKeys, bool kMasked>
class KeyWalk {
 public:
  __device__ KeyWalk(const AttentionTile& tile, const TileMask&)
      : first_(tile.key_begin / kKeys), n_((tile.key_end - 1) / kKeys) {}
  __device__ bool done() const { return n_ < first_; }
  __device__ bool last() const { return n_ == first_; }
  __device__ int block() const { return n_; }
  __device__ int before() const { return n_ + 1; }  // the block before it
  __device__ bool partial() const { return true; }  // ask the rows
  __device__ void Next() { --n_; }

 private:
  int first_;
  int n_;
};

template <int kKeys>
class KeyWalk<kKeys, true> {
 public:
  __device__ KeyWalk(const AttentionTile& tile, const TileMask& mask)
      : runs_(mask.runs), run_(tile.runs_begin) {
    n_ = (tile.key_end - 1) / kKeys;
    if (runs_ == nullptr) {
      left_ = n_ + 1 - tile.key_begin / kKeys;
      in_run_ = -left_;
      return;
    }
    left_ = tile.num_blocks;
    if (left_ == 0) {
      n_ = -1;
    } else {
      // Where it begins is known: nobody waits for the load here.
      in_run_ = __ldg(&runs_[run_++].count);
    }
  }
  __device__ bool done() const { return left_ == 0; }
  __device__ bool last() const { return left_ == 1; }
  __device__ int block() const { return n_; }  // < 0 where done
  __device__ int before() const { return before_; }
  __device__ bool partial() const { return in_run_ < 0; }
  __device__ void Next() {
    before_ = n_--;
    in_run_ -= in_run_ < 0 ? -1 : 1;
    if (--left_ == 0) {
      n_ = -1;
    } else if (in_run_ == 0) {
      Load();
    }
  }

 private:
  __device__ void Load() {
    const int2 run = __ldg(reinterpret_cast<const int2*>(runs_) + run_++);
    n_ = run.x;
    in_run_ = run.y;
  }

  const AttentionKeyRun* runs_;
  int run_;
  int n_;
  int before_ = -1;
  int left_;
  int in_run_ = 0;  // blocks, the one at hand included; as AttentionKeyRun
};

// A thread's two rows, r = 0 and 1, and score i of a block of keys: row i / 2 %
// 2, key i / 4 * 8 + lane % 4 * 2 + i % 2. kRows: those that ask together
// whether they all see a block.
template <typename Args, int kKeys, bool kMasked, int kRows = 64>
class TileRows {
 public:
  // first_row: the tile's, of the kRows; row: the thread's first.
  __device__ void Find(const Args& args, const TileMask&,
                       const AttentionTile& tile, int, int first_row, int row) {
    all_ = {SeenBy(args, tile, first_row + kRows - 1).x,
            SeenBy(args, tile, first_row).y};
#pragma unroll
    for (int r = 0; r < 2; ++r) seen_[r] = SeenBy(args, tile, row + 8 * r);
  }
  __device__ float Scale(const Args& args, const TileMask&) const {
    return args.score_scale;
  }
  // What Apply needs that is read early, to be there in time.
  struct Seen {};
  __device__ Seen Look(const Args&, const TileMask&, bool) const { return {}; }
  // Adds what positions say and hides what a row does not see. `begin`: of the
  // block's keys.
  __device__ void Apply(const Args&, const TileMask&, Seen, int lane, int begin,
                        bool, float (&s)[kKeys / 2]) const {
    if (begin >= all_.x && begin + kKeys <= all_.y) return;
#pragma unroll
    for (int i = 0; i < kKeys / 2; ++i) {
      const int key = begin + i / 4 * 8 + lane % 4 * 2 + i % 2;
      const int2 seen = seen_[i / 2 % 2];
      if (key < seen.x || key >= seen.y) s[i] = -INFINITY;
    }
  }

  __device__ static int2 SeenBy(const Args& args, const AttentionTile& tile,
                                int row) {
    const int end =
        args.causal ? tile.position + row / args.group + 1 : tile.key_end;
    return {args.window > 0 ? end - args.window : 0, end};
  }

 private:
  int2 seen_[2];  // keys that the thread's rows see
  int2 all_;      // keys that all kRows rows see
};

// Keeps little: the registers are the products'.
template <typename Args, int kKeys, int kRows>
class TileRows<Args, kKeys, true, kRows> {
 public:
  __device__ void Find(const Args& args, const TileMask& mask,
                       const AttentionTile& tile, int head, int, int row) {
    to_position_ = tile.position - tile.q_row;
    key_end_ = tile.key_end;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      // Rows that do not exist are as the last that does.
      row_[r] =
          tile.q_row + min((row + 8 * r) / args.group, tile.num_tokens - 1);
      slope_[r] = 0.0f;
      if (mask.mask.alibi_slopes == nullptr) continue;
      const int of = head * args.group + (row + 8 * r) % args.group;
      slope_[r] = kLog2E * mask.mask.alibi_slopes[of];
    }
  }
  // With ALiBi, Apply() leaves scores in units of log 2.
  __device__ float Scale(const Args& args, const TileMask& mask) const {
    return mask.mask.alibi_slopes != nullptr ? 1.0f : args.score_scale;
  }
  struct Seen {
    AttentionRowKeys keys[2];
  };
  __device__ Seen Look(const Args& args, const TileMask& mask,
                       bool partial) const {
    Seen seen = {};
    if (!partial) return seen;
#pragma unroll
    for (int r = 0; r < 2; ++r) seen.keys[r] = KeysOf(args, mask, r);
    return seen;
  }
  __device__ void Apply(const Args& args, const TileMask& mask, Seen seen_by,
                        int lane, int begin, bool partial,
                        float (&s)[kKeys / 2]) const {
    if (mask.mask.alibi_slopes != nullptr) {
      if (args.causal && mask.mask.rows == nullptr) {
        AddSlopes(args, lane, begin, s);
      } else {
        AddSlopesBothWays(args, lane, begin, s);
      }
    }
    if (!partial) return;
    AttentionRowKeys(&keys)[2] = seen_by.keys;
#pragma unroll
    for (int r = 0; r < 2; ++r) HideByBits(mask, keys[r], r, lane, begin, s);
    if (begin >= max(keys[0].begin, keys[1].begin) &&
        begin + kKeys <= min(keys[0].end, keys[1].end)) {
      return;
    }
#pragma unroll
    for (int i = 0; i < kKeys / 2; ++i) {
      const int key = begin + i / 4 * 8 + lane % 4 * 2 + i % 2;
      const AttentionRowKeys& seen = keys[i / 2 % 2];
      if (key < seen.begin || key >= seen.end) s[i] = -INFINITY;
    }
  }

 private:
  __device__ AttentionRowKeys KeysOf(const Args& args, const TileMask& mask,
                                     int r) const {
    if (mask.mask.rows != nullptr) {
      const int4 keys =
          __ldg(reinterpret_cast<const int4*>(mask.mask.rows) + row_[r]);
      return {keys.x, keys.y, keys.z, keys.w};
    }
    const int end = args.causal ? row_[r] + to_position_ + 1 : key_end_;
    return {args.window > 0 ? end - args.window : 0, end, -1, 0};
  }

  // Row r's bits, 32 keys at a time: a window of bits of which the lowest is
  // the first key's.
  __device__ void HideByBits(const TileMask& mask, AttentionRowKeys& keys,
                             int r, int lane, int begin,
                             float (&s)[kKeys / 2]) const {
    if (keys.bits < 0) return;
    const int shift = keys.key_shift;
    const uint32_t* words = mask.mask.bits + keys.bits;
    const int bit = begin >> shift;
    if (bit == (begin + kKeys - 1) >> shift) {
      if ((__ldg(words + bit / 32) >> bit % 32 & 1) == 0) keys.end = 0;
      return;
    }
#pragma unroll
    for (int at = 0; at < kKeys; at += 32) {
      const int first = (begin + at) >> shift;
      // Bits behind the last key may not be there.
      if (begin + at >= keys.end) return;
      const uint32_t window = __funnelshift_r(
          __ldg(words + first / 32), __ldg(words + first / 32 + 1), first % 32);
      const int lowest = begin + at - (first << shift) + lane % 4 * 2;
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        if (at + i / 2 * 8 >= kKeys) break;
        const int of = (lowest + i / 2 * 8 + i % 2) >> shift;
        if ((window >> of & 1) == 0) {
          s[at / 2 + i / 2 * 4 + 2 * r + i % 2] = -INFINITY;
        }
      }
    }
  }

  // Of keys up to the query's own, others being hidden: the distance is less
  // than 0. Distances are whole numbers: near the diagonal nothing is rounded
  // away.
  __device__ void AddSlopes(const Args& args, int lane, int begin,
                            float (&s)[kKeys / 2]) const {
    float base[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int distance = begin + lane % 4 * 2 - (row_[r] + to_position_);
      base[r] = slope_[r] * static_cast<float>(distance);
    }
#pragma unroll
    for (int i = 0; i < kKeys / 2; ++i) {
      const int r = i / 2 % 2;
      const float bias =
          fmaf(slope_[r], static_cast<float>(i / 4 * 8 + i % 2), base[r]);
      s[i] = fmaf(s[i], args.score_scale, bias);
    }
  }
  __device__ void AddSlopesBothWays(const Args& args, int lane, int begin,
                                    float (&s)[kKeys / 2]) const {
#pragma unroll
    for (int i = 0; i < kKeys / 2; ++i) {
      const int r = i / 2 % 2;
      const int key = begin + i / 4 * 8 + lane % 4 * 2 + i % 2;
      const int distance = abs(key - (row_[r] + to_position_));
      s[i] = fmaf(s[i], args.score_scale,
                  -slope_[r] * static_cast<float>(distance));
    }
  }

  int row_[2];  // of q
  int to_position_;
  int key_end_;
  float slope_[2];  // in units of log 2
};

}  // namespace inlay::tiles

#endif  // INLAY_KERNELS_ATTENTION_ATTENTION_TILES_MASK_H_
