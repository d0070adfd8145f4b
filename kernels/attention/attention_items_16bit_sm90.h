// What a tile of f16 or bf16 looks like to the frame of attention's items
// (attention_items_sm90.h).
//
// Stage: keys [slab][kTileKeys][128 B], values the same: slabs of 64 columns in
// the 128-byte swizzle, as attention_sm90.h has them. Key j * 8 + i of a tile
// is column j * 8 + i of the scores. Above 192 columns two warps share a tile,
// each with half of the columns of both: sums of 16 rows x 256 would take half
// of a thread's registers.
#ifndef INLAY_KERNELS_ATTENTION_ATTENTION_ITEMS_16BIT_SM90_H_
#define INLAY_KERNELS_ATTENTION_ATTENTION_ITEMS_16BIT_SM90_H_

#include "kernels/attention/attention_items_launch_sm90.h"

namespace inlay::items_sm90 {

enum class Keys { kPlain, kMasked, kSharing, kSelected };

// kBudget: of shared memory. With less of it than Hopper's, tiles are smaller
// and more of them are for teams.
template <typename Type, int kDimension, Keys kKeys, int kBudget = kSharedMost>
struct Format16 {
  using T = Type;
  static constexpr bool kHasMask = kKeys == Keys::kMasked;
  static constexpr int kDim = kDimension;
  static constexpr int kWarps = kAttentionUnits16Bit;
  static constexpr bool kBytes = false;
  static constexpr bool kSharesKeys = kKeys == Keys::kSharing;
  static constexpr bool kSelectsKeys = kKeys == Keys::kSelected;
  static constexpr int kSharedBudget = kBudget;
  static constexpr bool kSmall = kBudget < kSharedMost;
  static constexpr int kSplit = kDim > (kSmall ? 128 : 192) ? 2 : 1;
  static constexpr int kMergeRows = kSmall && kSplit > 1 ? 2 : kHalfRows;
  static constexpr int kPart = kDim / kSplit;
  static constexpr int kSlabs = (kPart + kSlabColumns - 1) / kSlabColumns;
  static constexpr int kTileKeys = (kDim <= 64    ? 64
                                    : kDim <= 128 ? 32
                                    : kSmall      ? 32
                                                  : 16) /
                                   (kSmall ? 2 : 1);
  static constexpr int kRowBytes = 2 * kDim;
  static constexpr int kSlabBytes = kTileKeys * kSlabRowBytes;
  static constexpr int kStageBytes = 2 * kSlabs * kSlabBytes;
  static constexpr int kQuerySlabBytes = kRows * kSlabRowBytes;
  static constexpr int kQueryBytes = kSplit * kSlabs * kQuerySlabBytes;
  static constexpr int kSteps = kPart / 16;  // of k in q k^T
  static constexpr int kKeyBlocks = kTileKeys / 8;
  static constexpr int kColumnBlocks = kPart / 8;
  // Of 255 registers; otherwise queries are read again for each tile.
  static constexpr bool kKeepQueries = kDim <= 96;

  static constexpr int kChunks = kPart / 8;  // of 16 bytes, in a part's row

  class Copier {
   public:
    __device__ Copier(int lane, int part)
        : lane_bytes_(lane * 16 + lane / kChunks * (kRowBytes - 2 * kPart) +
                      part * 2 * kPart) {
#pragma unroll
      for (int i = 0; i < kPeriod; ++i) {
        const int row = (i * 32 + lane) / kChunks;
        const int chunk = (i * 32 + lane) % kChunks;
        to_[i] = chunk / 8 * kSlabBytes + row * kSlabRowBytes +
                 ((chunk ^ row) % 8) * 16;
        if constexpr (kApart) {
          from_[i] =
              row * kRowBytes + chunk * 16 - lane_bytes_ + part * 2 * kPart;
        }
      }
    }

    // The rows of sixteen slots of a head follow each other. Stages are aligned
    // to the swizzle, so that bits 4 to 6 of an address are its own.
    __device__ void Copy(uint32_t stage, int half, const std::byte* keys,
                         const std::byte* values) const {
      keys += lane_bytes_;
      values += lane_bytes_;
#pragma unroll
      for (int i = 0; i < kChunks / 2; ++i) {
        const int row = half * 16 + i / kPeriod * kPeriodRows;
        const uint32_t to =
            ((stage + to_[i % kPeriod]) ^ (row % 8 * 16)) + row * kSlabRowBytes;
        int from = i * kSplit * 512;
        if constexpr (kApart) {
          from = i / kPeriod * kPeriodRows * kRowBytes + from_[i % kPeriod];
        }
        sm90::CopyAsync16(to, keys + from);
        sm90::CopyAsync16(to + kSlabs * kSlabBytes, values + from);
      }
    }

   private:
    // After so many copies of 32 lanes, rows are whole, and a power of two.
    static constexpr int kPeriod = kChunks % 5 == 0   ? 5
                                   : kChunks % 3 == 0 ? 3
                                                      : 1;
    static constexpr int kPeriodRows = 32 * kPeriod / kChunks;
    // Copies are not equally far apart in the cache.
    static constexpr bool kApart = kSplit > 1 && kPeriod > 1;

    int lane_bytes_;
    uint32_t to_[kPeriod];            // in a stage, of the first rows
    int from_[kApart ? kPeriod : 1];  // from lane_bytes_ on
  };

  __device__ static uint32_t QueryOffset(int row, int chunk) {
    const int of_part = chunk % kChunks;
    return (chunk / kChunks * kSlabs + of_part / 8) * kQuerySlabBytes +
           row * kSlabRowBytes + ((of_part ^ row) % 8) * 16;
  }

  __device__ static void LoadQuery(uint32_t queries, int lane, int step,
                                   uint32_t (&q)[4]) {
    // Matrices: rows 0-7 and 8-15 of the first 8 columns, then of the next.
    sm90::LoadMatrix4(q,
                      queries + QueryOffset(lane % 16, 2 * step + lane / 16));
  }

  struct Queries {
    __device__ void Load(uint32_t queries, int lane, bool /*few*/) {
      if constexpr (kKeepQueries) {
#pragma unroll
        for (int s = 0; s < kSteps; ++s) LoadQuery(queries, lane, s, q[s]);
      }
    }
    uint32_t q[kKeepQueries ? kSteps : 1][4];
  };

  struct Sums {};

  __device__ static int KeyOf(int lane, int j, int i) {
    return 8 * j + lane % 4 * 2 + i % 2;
  }

  __device__ static void MultiplyKeys(const Queries& kept, uint32_t queries,
                                      uint32_t stage, int lane,
                                      float (&s)[kKeyBlocks][4]) {
    // Matrices: 8 keys x the step's first and last 8 columns, then the next 8.
    const uint32_t from = stage + (lane / 16 * 8 + lane % 8) * kSlabRowBytes +
                          (lane / 8 % 2 ^ lane % 8) * 16;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      uint32_t q[4];
      if constexpr (kKeepQueries) {
#pragma unroll
        for (int i = 0; i < 4; ++i) q[i] = kept.q[step][i];
      } else {
        LoadQuery(queries, lane, step, q);
      }
#pragma unroll
      for (int pair = 0; pair < kKeyBlocks / 2; ++pair) {
        uint32_t k[4];
        sm90::LoadMatrix4(k, (from ^ (2 * step % 8 * 16)) +
                                 step / 4 * kSlabBytes +
                                 pair * 16 * kSlabRowBytes);
        sm90::Mma16816<T>(s[2 * pair], q, k[0], k[1]);
        sm90::Mma16816<T>(s[2 * pair + 1], q, k[2], k[3]);
      }
    }
  }

  // kMasked: values of keys outside [begin, end) of the tile count as zeros:
  // nobody says what lies there, and zero times NaN is NaN.
  template <bool kMasked>
  __device__ static void MultiplyValues(int begin, int end, uint32_t stage,
                                        int lane,
                                        const float (&s)[kKeyBlocks][4],
                                        float (&o)[kColumnBlocks][4]) {
    const uint32_t from = stage + kSlabs * kSlabBytes +
                          (lane / 8 % 2 * 8 + lane % 8) * kSlabRowBytes +
                          (lane / 16 ^ lane % 8) * 16;
#pragma unroll
    for (int k16 = 0; k16 < kTileKeys / 16; ++k16) {
      const uint32_t p[4] = {
          sm90::Pack<T>(s[2 * k16][0], s[2 * k16][1]),
          sm90::Pack<T>(s[2 * k16][2], s[2 * k16][3]),
          sm90::Pack<T>(s[2 * k16 + 1][0], s[2 * k16 + 1][1]),
          sm90::Pack<T>(s[2 * k16 + 1][2], s[2 * k16 + 1][3])};
      uint32_t mask[2] = {0xffffffffu, 0xffffffffu};
      if constexpr (kMasked) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int key = 16 * k16 + i / 2 * 8 + lane % 4 * 2 + i % 2;
          if (key < begin || key >= end) {
            mask[i / 2] &= i % 2 == 0 ? 0xffff0000u : 0x0000ffffu;
          }
        }
      }
#pragma unroll
      for (int pair = 0; pair < kColumnBlocks / 2; ++pair) {
        uint32_t v[4];
        sm90::LoadMatrix4Transposed(v, (from ^ (2 * pair % 8 * 16)) +
                                           pair / 4 * kSlabBytes +
                                           k16 * 16 * kSlabRowBytes);
        if constexpr (kMasked) {
#pragma unroll
          for (int i = 0; i < 4; ++i) v[i] &= mask[i % 2];
        }
        sm90::Mma16816<T>(o[2 * pair], p, v[0], v[1]);
        sm90::Mma16816<T>(o[2 * pair + 1], p, v[2], v[3]);
      }
    }
  }

  template <int kBlocks>
  __device__ static void StoreRow(const float (&o)[kBlocks][4], int r,
                                  float* row, int lane) {
#pragma unroll
    for (int j = 0; j < kBlocks; ++j) {
      *reinterpret_cast<float2*>(row + 8 * j + lane % 4 * 2) = {
          o[j][2 * r], o[j][2 * r + 1]};
    }
  }
};

}  // namespace inlay::items_sm90

#endif  // INLAY_KERNELS_ATTENTION_ATTENTION_ITEMS_16BIT_SM90_H_
