// attention on Hopper for latent rows of 576 elements whose first 512 are the
// values (DeepSeek's shape), f16 or bf16 queries and a cache of the same type:
// items of 64 rows, products by wgmma. Source: FlashMLA's description of which
// warpgroup holds what (github.com/deepseek-ai/FlashMLA, docs).
//
// Grid: a CTA of four warpgroups for each of AttentionPlanShape::grid lists of
// items (up to 64 rows x a range of keys), or two where items have up to 128
// rows, 64 for each: side by side, so that memory is read once. 64 keys at a
// time.
//   load    warpgroup 0: queries of an item, then tiles of keys, by cp.async
//           into a ring of two; from block tables or selected slots, any block
//           size
//   score   warpgroup 1: queries x keys (64 x 64 x 576, both from shared
//           memory), softmax; weights and what sums must be multiplied with go
//           through shared memory as a message
//   sum     warpgroups 2 and 3: weights (registers) x 256 columns of values
//           each, 128 accumulators a thread
// so that the scores of a tile are in the matrix units while the values of the
// tile before are. Registers: 40, 120 and twice 176. Barriers: full/empty of
// the queries, of each tile and of the message. An item is one chunk: it writes
// its rows out, alone or with what the other of two chunks left, or a partial
// result (for that, or for attention_latent_fold_sm90.cu).
// Roofline, 16 heads: the bytes of the cache over the copy bandwidth. 128
// heads: a tile is 1152 + 1024 cycles of the matrix units (730 TFLOP/s are 190
// us for 128 x 4k), and 74 KB from the level-2 cache. What bounds it: CUDA.md.
#include "kernels/attention/attention_items_cuda.h"
#include "kernels/attention/attention_latent_load_sm90.h"
#include "kernels/attention/attention_latent_sm90.h"
#include "kernels/attention/sm90_ops.h"
#include "kernels/attention/wgmma_sm90.h"
#include "kernels/cuda_launch.cuh"
#include "kernels/cuda_transpose.cuh"
#include "memory/status.h"

namespace inlay {
namespace latent_sm90 {
namespace {

constexpr int kThreads = 4 * kWarpgroup;
constexpr int kLoadRegisters = 40;
constexpr int kScoreRegisters = 120;
constexpr int kSumRegisters = 176;
constexpr int kSumWarps = 8;
// A matrix instruction's: one of 256 columns would need more registers than a
// thread has before it asks for more.
constexpr int kSumParts = 2;
constexpr int kPartColumns = kSumColumns / kSumParts;

// The maximum may lag by so much, in units of log 2: sums are rescaled seldom.
constexpr float kLag = 8.0f;

// The warpgroup that makes weights; a thread has two rows, r = 0 and 1, and 16
// keys of each tile: s[4 j + 2 r + i] is key 8 j + lane % 4 * 2 + i.
template <typename T, bool kMasked>
class Scorer {
 public:
  __device__ Scorer(const AttentionItemArgs& args, Shared& shared)
      : args_(args),
        shared_(shared),
        thread_(static_cast<int>(threadIdx.x) % kWarpgroup),
        lane_(thread_ % 32) {}

  __device__ void Run() {
    uint32_t query_phase = 0;
    const Place list(args_);
    for (int n = list.begin; n < list.end; ++n) {
      item_ = list.Item(args_, n);
      FindRows();
      sm90::Wait(&shared_.query_full, query_phase);
      query_phase ^= 1;
      const int end = EndTile(item_);
      for (int tile = FirstTile(item_); tile < end; ++tile) {
        float s[kKeys / 2];
        Products(s);
        if (tile == end - 1) ReleaseQueries();
        SendWeights(tile, s);
      }
      if (FirstTile(item_) == end) ReleaseQueries();
      SendSums();
    }
  }

 private:
  __device__ int Row(int r) const {
    return thread_ / 32 * 16 + lane_ / 4 + 8 * r;
  }
  __device__ void ReleaseQueries() const {
    if (thread_ == 0) sm90::Arrive(&shared_.query_empty);
  }

  __device__ void FindRows() {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      // Rows that the item lacks are computed as the last one is.
      const int row = item_.row_begin + min(Row(r), max(0, item_.num_rows - 1));
      if constexpr (kMasked) {
        seen_[r] = MaskedKeysOfRow(args_, item_, row);
        slope_[r] = SlopeOf(args_, item_, row);
        position_[r] = PositionOf(args_, item_, row);
      } else {
        const int2 keys = KeysOfRow(args_, item_, row);
        seen_[r].begin = keys.x;
        seen_[r].end = keys.y;
      }
      seen_[r].begin = max(seen_[r].begin, item_.key_begin);
      seen_[r].end = min(seen_[r].end, item_.key_end);
      max_[r] = -INFINITY;
      sum_[r] = 0.0f;
    }
  }

  __device__ void Products(float (&s)[kKeys / 2]) {
    sm90::Wait(&shared_.key_full[keys_.stage], keys_.phase);
    sm90::FenceAsyncProxy();  // what cp.async wrote, for wgmma
    const uint64_t q =
        sm90::MatrixDescriptor(sm90::SharedAddress(shared_.queries));
    const uint64_t k =
        sm90::MatrixDescriptor(sm90::SharedAddress(shared_.keys[keys_.stage]));
    sm90::PinRegisters(s);
    sm90::WgmmaFence();
#pragma unroll
    for (int step = 0; step < kHeadDim / 16; ++step) {
      const uint64_t offset = (step / 4 * kSlabBytes + step % 4 * 32) >> 4;
      sm90::Wgmma<T, kKeys>::Issue(s, q + offset, k + offset,
                                   step == 0 ? 0 : 1);
    }
    sm90::WgmmaCommit();
    sm90::WgmmaWait<0>();
    sm90::PinRegisters(s);
    if (thread_ == 0) sm90::Arrive(&shared_.key_empty[keys_.stage]);
    keys_.Next();
  }

  __device__ void SendWeights(int tile, float (&s)[kKeys / 2]) {
    ScaleAndMask(tile * kKeys, s);
    float top[2] = {max_[0], max_[1]};
#pragma unroll
    for (int i = 0; i < kKeys / 2; ++i) {
      top[i / 2 % 2] = fmaxf(top[i / 2 % 2], s[i]);
    }
    float factor[2];
    float base[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      top[r] = fmaxf(top[r], __shfl_xor_sync(0xffffffffu, top[r], 1));
      top[r] = fmaxf(top[r], __shfl_xor_sync(0xffffffffu, top[r], 2));
      // Each row for itself: it must not matter beside which rows it lies.
      const bool grow = top[r] > max_[r] + kLag;
      factor[r] = grow ? Exp2(max_[r] - top[r]) : 1.0f;
      if (grow) max_[r] = top[r];
      base[r] = max_[r] == -INFINITY ? 0.0f : max_[r];
      sum_[r] *= factor[r];
    }
#pragma unroll
    for (int i = 0; i < kKeys / 2; ++i) {
      s[i] = Exp2(s[i] - base[i / 2 % 2]);
      sum_[i / 2 % 2] += s[i];
    }
    BeginMessage();
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      auto* to = reinterpret_cast<uint32_t*>(
          shared_.weights + Row(r) * kWeightStride + lane_ % 4 * 2);
#pragma unroll
      for (int j = 0; j < kKeys / 8; ++j) {
        to[4 * j] = sm90::Pack<T>(s[4 * j + 2 * r], s[4 * j + 2 * r + 1]);
      }
      if (lane_ % 4 == 0) shared_.rows[Row(r)].x = factor[r];
    }
    EndMessage();
  }

  __device__ void SendSums() {
    BeginMessage();
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float sum = sum_[r];
      sum += __shfl_xor_sync(0xffffffffu, sum, 1);
      sum += __shfl_xor_sync(0xffffffffu, sum, 2);
      if (lane_ % 4 == 0) shared_.rows[Row(r)] = {max_[r], sum};
    }
    EndMessage();
  }

  __device__ void BeginMessage() const {
    sm90::Wait(&shared_.message_empty, message_phase_ ^ 1);
  }
  __device__ void EndMessage() {
    sm90::Arrive(&shared_.message_full);
    message_phase_ ^= 1;
  }

  // Scores in units of log 2; -inf where a row does not see the key.
  __device__ void ScaleAndMask(int first_key, float (&s)[kKeys / 2]) const {
    if (args_.softcap > 0.0f) {
#pragma unroll
      for (float& x : s) x = CappedScore(args_, x);
    } else {
      const float scale = args_.scale * kLog2E;
#pragma unroll
      for (float& x : s) x *= scale;
    }
    if constexpr (!kMasked) {
      if (first_key >= max(seen_[0].begin, seen_[1].begin) &&
          first_key + kKeys <= min(seen_[0].end, seen_[1].end)) {
        return;
      }
    }
#pragma unroll
    for (int i = 0; i < kKeys / 2; ++i) {
      const int r = i / 2 % 2;
      const int key = first_key + i / 4 * 8 + lane_ % 4 * 2 + i % 2;
      bool seen = key >= seen_[r].begin && key < seen_[r].end;
      if constexpr (kMasked) {
        seen = seen && BitOf(args_.mask, seen_[r], key);
        s[i] = fmaf(slope_[r], -fabsf(static_cast<float>(key - position_[r])),
                    s[i]);
      }
      if (!seen) s[i] = -INFINITY;
    }
  }

  const AttentionItemArgs& args_;
  Shared& shared_;
  int thread_;
  int lane_;
  AttentionItem item_;
  AttentionRowKeys seen_[2];
  float slope_[2];
  int position_[2];
  float max_[2];
  float sum_[2];  // this thread's part
  Cursor keys_;
  uint32_t message_phase_ = 0;
};

// A warpgroup that sums half of the values' columns.
template <typename T>
class Summer {
 public:
  __device__ Summer(const AttentionItemArgs& args, Shared& shared, int half)
      : args_(args),
        shared_(shared),
        half_(half),
        thread_(static_cast<int>(threadIdx.x) % kWarpgroup),
        lane_(thread_ % 32) {}

  __device__ void Run() {
    const Place list(args_);
    for (int n = list.begin; n < list.end; ++n) {
      const AttentionItem item = list.Item(args_, n);
      const int tiles = EndTile(item) - FirstTile(item);
      Sums sums;
#pragma unroll
      for (int part = 0; part < kSumParts; ++part) {
#pragma unroll
        for (float& x : sums[part]) x = 0.0f;
      }
      for (int tile = 0; tile < tiles; ++tile) AddTile(sums);
      WriteOut(item, list, sums);
    }
  }

 private:
  using Sums = float[kSumParts][kPartColumns / 2];

  __device__ int Row(int r) const {
    return thread_ / 32 * 16 + lane_ / 4 + 8 * r;
  }

  __device__ void AddTile(Sums& sums) {
    uint32_t weights[kKeys / 16][4];
    sm90::Wait(&shared_.message_full, message_phase_);
    const uint32_t from =
        sm90::SharedAddress(shared_.weights) +
        2 * ((thread_ / 32 * 16 + lane_ % 16) * kWeightStride + lane_ / 16 * 8);
#pragma unroll
    for (int i = 0; i < kKeys / 16; ++i) {
      sm90::LoadMatrix4(weights[i], from + 32 * i);
    }
    const float low = shared_.rows[Row(0)].x;
    const float high = shared_.rows[Row(1)].x;
    EndMessage();
    if (__any_sync(0xffffffffu, low != 1.0f || high != 1.0f)) {
#pragma unroll
      for (int i = 0; i < kSumColumns / 2; ++i) {
        sums[i / (kPartColumns / 2)][i % (kPartColumns / 2)] *=
            i / 2 % 2 == 0 ? low : high;
      }
    }
    sm90::Wait(&shared_.key_full[keys_.stage], keys_.phase);
    sm90::FenceAsyncProxy();
    const uint64_t values =
        sm90::MatrixDescriptor(sm90::SharedAddress(shared_.keys[keys_.stage]) +
                                   half_ * (kSumColumns / 64) * kSlabBytes,
                               kSlabBytes);
#pragma unroll
    for (int part = 0; part < kSumParts; ++part) {
      sm90::PinRegisters(sums[part]);
    }
    sm90::WgmmaFence();
#pragma unroll
    for (int i = 0; i < kKeys / 16; ++i) {
#pragma unroll
      for (int part = 0; part < kSumParts; ++part) {
        sm90::Wgmma<T, kPartColumns>::template Issue<1>(
            sums[part], weights[i],
            values +
                ((i * 16 * 128 + part * (kPartColumns / 64) * kSlabBytes) >> 4),
            1);
      }
    }
    sm90::WgmmaCommit();
    sm90::WgmmaWait<0>();
#pragma unroll
    for (int part = 0; part < kSumParts; ++part) {
      sm90::PinRegisters(sums[part]);
    }
    if (thread_ == 0) sm90::Arrive(&shared_.key_empty[keys_.stage]);
    keys_.Next();
  }

  // The thread's columns of the warpgroup's j-th eight.
  __device__ static float2 Pair(const Sums& sums, int j, int r) {
    const auto& part = sums[j / (kPartColumns / 8)];
    const int at = j % (kPartColumns / 8) * 4 + 2 * r;
    return {part[at], part[at + 1]};
  }

  __device__ void EndMessage() {
    __syncwarp();
    if (lane_ == 0) sm90::Arrive(&shared_.message_empty);
    message_phase_ ^= 1;
  }

  __device__ void WriteOut(const AttentionItem& item, const Place& list,
                           Sums& sums) {
    sm90::Wait(&shared_.message_full, message_phase_);
    float2 rows[2] = {shared_.rows[Row(0)], shared_.rows[Row(1)]};
    EndMessage();
    if (item.slot >= 0) {
      const bool folds = item.num_chunks == kChunksOfCtas;
      if (!folds || !OtherCame(item, list, 0)) {
        StorePartial(item, list, sums, rows);
        if (!folds || !OtherCame(item, list, 1)) return;
      }
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const bool exists = Row(r) < item.num_rows;
      if (!__any_sync(0xffffffffu, exists)) break;
      if (exists && item.slot >= 0) FoldOther(item, list, r, sums, rows[r]);
      const float inverse =
          exists ? InverseSum(args_, item, Row(r), rows[r]) : 0.0f;
      const int row = item.row_begin + (exists ? Row(r) : 0);
      char* out =
          static_cast<char*>(args_.out) +
          (item.q_begin + row / args_.group) * args_.out_stride +
          2 * (HeadOffset(args_, item, row, kValueDim) + half_ * kSumColumns) +
          lane_ % 4 * 16;
      // Four lanes have a row; among four blocks of 8 columns, each ends up
      // with one block whole.
#pragma unroll
      for (int j = 0; j < kSumColumns / 8; j += 4) {
        uint32_t x[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float2 pair = Pair(sums, j + i, r);
          x[i] = sm90::Pack<T>(pair.x * inverse, pair.y * inverse);
        }
        TransposeQuad(x, lane_ % 4);
        if (exists) {
          *reinterpret_cast<uint4*>(out + 16 * j) = {x[0], x[1], x[2], x[3]};
        }
        asm volatile("" ::: "memory");
      }
    }
  }

  // Where a chunk's partial result of the CTA's rows is, and in it what the
  // warpgroup writes of a row's maximum and sum.
  __device__ float* Partial(const AttentionItem& item, const Place& list,
                            int chunk) const {
    return args_.partials +
           ((int64_t{item.slot} + chunk) * list.ctas + list.part) *
               kPartialFloats;
  }

  __device__ void StorePartial(const AttentionItem& item, const Place& list,
                               const Sums& sums, const float2 (&rows)[2]) {
    float* to = Partial(item, list, item.first_chunk);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if (Row(r) >= item.num_rows) break;
      float* values = to + PartialSums(half_, r, thread_);
#pragma unroll
      for (int j = 0; j < kPartialPairs; ++j) {
        __stcg(reinterpret_cast<float2*>(values + j * kPartialStep),
               Pair(sums, j, r));
      }
      if (lane_ % 4 == 0) {
        __stcg(reinterpret_cast<float2*>(to + PartialMaxAndSum(half_, Row(r))),
               rows[r]);
      }
    }
  }

  // Of rows of two chunks: adds `count` (0: asks only) to those whose partial
  // result of these columns is there; whether there was one. Then the counter
  // is zero for the next launch.
  __device__ bool OtherCame(const AttentionItem& item, const Place& list,
                            int count) {
    const auto sync = [&] { sm90::SyncNamed(1 + half_, kWarpgroup); };
    sync();
    if (thread_ == 0) {
      // A counter for each 64 rows, 16 bits of it for each half.
      int* counter = args_.arrivals + item.arrival + list.part;
      const int one = 1 << 16 * half_;
      const bool came = (AddArrivals(counter, count * one) & one) != 0;
      // Of both, who asks only has not counted itself.
      if (came) AddArrivals(counter, -(1 + count) * one);
      shared_.came[half_] = came ? 1 : 0;
    }
    sync();
    return shared_.came[half_] != 0;
  }

  // The other chunk's partial result of row r, in the order of the keys.
  __device__ void FoldOther(const AttentionItem& item, const Place& list, int r,
                            Sums& sums, float2& row) {
    const bool first = item.first_chunk == 0;
    const float* from = Partial(item, list, first ? 1 : 0);
    const float2 other = __ldcg(reinterpret_cast<const float2*>(
        from + PartialMaxAndSum(half_, Row(r))));
    const float top = fmaxf(row.x, other.x);
    const float base = top == -INFINITY ? 0.0f : top;
    const float mine = Exp2(row.x - base);
    const float theirs = Exp2(other.x - base);
    const auto fold = [&](float x, float y) {
      return first ? __fmaf_rn(y, theirs, __fmul_rn(x, mine))
                   : __fmaf_rn(x, mine, __fmul_rn(y, theirs));
    };
    row = {top, fold(row.y, other.y)};
    const float* values = from + PartialSums(half_, r, thread_);
    // So many loads at once as there are registers for.
    constexpr int kAhead = 16;
#pragma unroll
    for (int begin = 0; begin < kPartialPairs; begin += kAhead) {
      float2 x[kAhead];
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        x[i] = __ldcg(reinterpret_cast<const float2*>(
            values + (begin + i) * kPartialStep));
      }
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const int j = begin + i;
        auto& part = sums[j / (kPartColumns / 8)];
        const int at = j % (kPartColumns / 8) * 4 + 2 * r;
        part[at] = fold(part[at], x[i].x);
        part[at + 1] = fold(part[at + 1], x[i].y);
      }
      asm volatile("" ::: "memory");
    }
  }

  const AttentionItemArgs& args_;
  Shared& shared_;
  int half_;
  int thread_;
  int lane_;
  Cursor keys_;
  uint32_t message_phase_ = 0;
};

template <typename T, bool kMasked>
__global__ void __launch_bounds__(kThreads, 1)
    AttentionLatentWide(const __grid_constant__ AttentionItemArgs args) {
  extern __shared__ __align__(1024) unsigned char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  LetNextBegin();
  if (threadIdx.x == 0) {
    sm90::InitBarrier(&shared.query_full, kWarpgroup);
    sm90::InitBarrier(&shared.query_empty, 1);
    for (int i = 0; i < kStages; ++i) {
      sm90::InitBarrier(&shared.key_full[i], kWarpgroup);
      sm90::InitBarrier(&shared.key_empty[i], 3);
    }
    sm90::InitBarrier(&shared.message_full, kWarpgroup);
    sm90::InitBarrier(&shared.message_empty, kSumWarps);
    sm90::FenceBarrierInit();
  }
  __syncthreads();
  WaitForPrevious();
  const int warpgroup =
      __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / kWarpgroup, 0);
  if (warpgroup == 0) {
    sm90::LowerRegisters<kLoadRegisters>();
    Load(args, shared);
  } else if (warpgroup == 1) {
    sm90::LowerRegisters<kScoreRegisters>();
    Scorer<T, kMasked>(args, shared).Run();
  } else {
    sm90::RaiseRegisters<kSumRegisters>();
    Summer<T>(args, shared, warpgroup - 2).Run();
  }
}

template <typename T>
absl::Status Launch(const AttentionItemArgs& args, bool masked, int lists,
                    CudaStream& stream) {
  const int64_t ctas = int64_t{lists} * (args.item_rows / kRows);
  INLAY_RETURN_IF_ERROR(LaunchCuda(
      "attention (wide latent)", stream, {ctas, kThreads, sizeof(Shared)},
      masked ? AttentionLatentWide<T, true> : AttentionLatentWide<T, false>,
      args));
  return LaunchAttentionLatentFold(args, lists, stream);
}

}  // namespace
}  // namespace latent_sm90

absl::Status LaunchAttentionLatentWide(const AttentionDesc& desc,
                                       const AttentionParams& params,
                                       CudaStream& stream) {
  const AttentionItemArgs args = MakeAttentionItemArgs(desc, params);
  const bool masked = HasMask(params);
  const int lists = params.plan->shape.grid;
  return desc.activation == DType::kF16
             ? latent_sm90::Launch<__half>(args, masked, lists, stream)
             : latent_sm90::Launch<__nv_bfloat16>(args, masked, lists, stream);
}

}  // namespace inlay
