// attention on Hopper, a plan's items: few rows against many keys, where only
// the time to read the cache counts.
//
// Grid: AttentionPlanShape::grid CTAs (one a multiprocessor), each with a list
// of items of equal total length. CTA: warps 0-3 compute, warp 4 loads.
//   warp 4   walks the items; queries by cp.async into one of two buffers,
//            tiles of kTileKeys keys and values by the copy engine into a ring
//            of kStages, several items ahead of the arithmetic
//   warps    take the tiles of a chunk in turn, each with its own softmax and
//            numerator (16 rows x head_dim, m16n8k16, float32 accumulators, in
//            registers), so that none waits for another before the chunk's end;
//            there they merge through shared memory into FoldedRows
// Barriers: full/empty of each stage (arrivals: the copy engine's bytes / the
// warp that used it), full/empty of each query buffer (warp 4's lanes / each
// computing warp), named barrier 1 among warps 0-3.
// Shared memory: ring | two query buffers | merge [4 warps][16 rows][head_dim +
// 8] floats, whose padding puts four rows side by side in the banks.
// Roofline: memory bandwidth; 64 to 180 KB in flight a multiprocessor.
#include <algorithm>

#include "kernels/attention/attention_sm90.h"
#include "kernels/attention/sm90_ops.h"
#include "memory/device/cuda_status.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * 32;  // that compute
constexpr int kRows = kAttentionItemRows;
constexpr int kSharedMost = 227 * 1024;
constexpr int kQueryBuffers = 2;

template <int kDim>
struct Plan {
  static constexpr int kSlabs = (kDim + kSlabColumns - 1) / kSlabColumns;
  static constexpr int kTileKeys = kDim <= 192 ? 32 : 16;
  static constexpr int kSlabBytes = kTileKeys * kSlabRowBytes;
  static constexpr int kStageBytes = 2 * kSlabs * kSlabBytes;
  static constexpr int kQuerySlabBytes = kRows * kSlabRowBytes;
  static constexpr int kQueryBytes = kSlabs * kQuerySlabBytes;
  static constexpr int kMergeStride = kDim + 8;
  static constexpr int kMergeFloats = kWarps * kRows * kMergeStride;
  static constexpr int kMaxStages = 20;
  // Less the head below, and what alignment to the swizzle takes.
  static constexpr int kStages = std::min<int>(
      kMaxStages,
      (kSharedMost - 3072 - kQueryBuffers * kQueryBytes - kMergeFloats * 4) /
          kStageBytes);
  // Of 255 registers; otherwise queries are read again for each tile.
  static constexpr bool kKeepQueries = kDim <= 128;

  uint64_t full[kStages];
  uint64_t empty[kStages];
  uint64_t query_full[kQueryBuffers];
  uint64_t query_empty[kQueryBuffers];
  float2 sums[kWarps][kRows];  // maximum and sum, for merging
  int flag;
};

template <int kDim>
constexpr int SharedBytes() {
  using P = Plan<kDim>;
  return 1024 + P::kStages * P::kStageBytes + kQueryBuffers * P::kQueryBytes +
         P::kMergeFloats * 4 + static_cast<int>(sizeof(P));
}

struct Maps {
  CUtensorMap k;
  CUtensorMap v;
};

// The parts of shared memory.
template <int kDim>
struct Shared {
  using P = Plan<kDim>;
  __device__ explicit Shared(unsigned char* base) {
    const uint32_t at = sm90::SharedAddress(base);
    unsigned char* aligned = base + ((1024 - at % 1024) % 1024);
    ring = sm90::SharedAddress(aligned);
    queries = ring + P::kStages * P::kStageBytes;
    merge = reinterpret_cast<float*>(aligned + P::kStages * P::kStageBytes +
                                     kQueryBuffers * P::kQueryBytes);
    head = reinterpret_cast<P*>(merge + P::kMergeFloats);
  }
  uint32_t ring;
  uint32_t queries;
  float* merge;
  P* head;
};

// Warp 4.
template <int kDim>
class Loader {
 public:
  using P = Plan<kDim>;
  __device__ Loader(const AttentionItemArgs& args, const Maps& maps,
                    const Shared<kDim>& shared, int box_rows)
      : args_(args),
        maps_(maps),
        shared_(shared),
        box_rows_(box_rows),
        lane_(static_cast<int>(threadIdx.x) % 32) {}

  __device__ void Run(int begin, int end) {
    for (int i = begin; i < end; ++i) {
      const AttentionItem item = args_.items[i];
      LoadQueries(item, i - begin);
      const int last = (item.key_end + P::kTileKeys - 1) / P::kTileKeys;
      cached_ = -1;
      for (int t = item.key_begin / P::kTileKeys; t < last; ++t) {
        LoadTile(item, t * P::kTileKeys);
      }
    }
  }

 private:
  __device__ void LoadQueries(const AttentionItem& item, int index) {
    const int buffer = index % kQueryBuffers;
    const uint32_t use = static_cast<uint32_t>(index / kQueryBuffers);
    sm90::Wait(&shared_.head->query_empty[buffer], (use & 1) ^ 1);
    const uint32_t to = shared_.queries + buffer * P::kQueryBytes;
    constexpr int kChunks = P::kSlabs * 8;
    for (int i = lane_; i < kRows * kChunks; i += 32) {
      const int row = i / kChunks;
      const int chunk = i % kChunks;
      const bool valid = row < item.num_rows && chunk * 8 < kDim;
      const int of_sequence = item.row_begin + (valid ? row : 0);
      const char* from =
          static_cast<const char*>(args_.q) +
          (item.q_begin + of_sequence / args_.group) * args_.q_stride +
          2 * HeadOffset(args_, item, of_sequence) + (valid ? chunk * 16 : 0);
      sm90::CopyAsync16(to + chunk / 8 * P::kQuerySlabBytes +
                            row * kSlabRowBytes +
                            ((chunk % 8) ^ (row % 8)) * 16,
                        from, valid);
    }
    sm90::ArriveAfterCopies(&shared_.head->query_full[buffer]);
  }

  // The block of box `box` of the item; lanes keep 32 of them.
  __device__ int BlockOf(const AttentionItem& item, int box) {
    const int base = box / 32 * 32;
    if (base != cached_) {
      cached_ = base;
      const int key = (base + lane_) * box_rows_;
      ids_ = key < item.key_end && key + box_rows_ > item.key_begin
                 ? args_.blocks[item.blocks_begin + key / args_.kv.block_size]
                 : 0;
    }
    return __shfl_sync(0xffffffffu, ids_, box % 32);
  }

  __device__ void LoadTile(const AttentionItem& item, int begin) {
    const int boxes = P::kTileKeys / box_rows_;
    // The lane's copy.
    const bool values = lane_ % 2 != 0;
    const int slab = lane_ / 2 % P::kSlabs;
    const int mine = lane_ / (2 * P::kSlabs);
    int block = 0;
    int wanted = 0;
    bool issue = false;
    for (int b = 0; b < boxes; ++b) {
      const int key = begin + b * box_rows_;
      // Blocks that no row sees may not exist any more.
      const bool seen = key < item.key_end && key + box_rows_ > item.key_begin;
      const int id = BlockOf(item, key / box_rows_);
      wanted += seen ? 1 : 0;
      if (b == mine) {
        block = id;
        issue = seen;
      }
    }
    uint64_t* full = &shared_.head->full[stage_];
    sm90::Wait(&shared_.head->empty[stage_], phase_ ^ 1);
    if (lane_ == 0) {
      sm90::ArriveExpect(
          full, static_cast<uint32_t>(wanted * box_rows_ * kSlabRowBytes * 2 *
                                      P::kSlabs));
    }
    __syncwarp();
    if (issue) {
      const int key = begin + mine * box_rows_;
      const uint32_t to = shared_.ring + stage_ * P::kStageBytes +
                          ((values ? P::kSlabs : 0) + slab) * P::kSlabBytes +
                          mine * box_rows_ * kSlabRowBytes;
      sm90::CopyBox4(values ? &maps_.v : &maps_.k, full, to,
                     slab * kSlabColumns, key % args_.kv.block_size,
                     item.kv_head, block);
    }
    if (++stage_ == P::kStages) {
      stage_ = 0;
      phase_ ^= 1;
    }
  }

  const AttentionItemArgs& args_;
  const Maps& maps_;
  const Shared<kDim>& shared_;
  int box_rows_;
  int lane_;
  int cached_ = -1;
  int ids_ = 0;
  int stage_ = 0;
  uint32_t phase_ = 0;
};

// One of warps 0-3.
template <typename T, int kDim>
class Worker {
 public:
  using P = Plan<kDim>;
  using Folded = FoldedRows<kThreads, kDim>;

  __device__ Worker(const AttentionItemArgs& args, const Shared<kDim>& shared)
      : args_(args),
        shared_(shared),
        warp_(static_cast<int>(threadIdx.x) / 32),
        lane_(static_cast<int>(threadIdx.x) % 32) {}

  __device__ void Run(int begin, int end) {
    for (int i = begin; i < end; ++i) RunItem(args_.items[i], i - begin);
  }

 private:
  static constexpr int kSteps = kDim / 16;  // of k in q k^T
  static constexpr int kKeyBlocks = P::kTileKeys / 8;
  static constexpr int kColumnBlocks = kDim / 8;

  __device__ void RunItem(const AttentionItem& item, int index) {
    const int buffer = index % kQueryBuffers;
    queries_ = shared_.queries + buffer * P::kQueryBytes;
    sm90::Wait(&shared_.head->query_full[buffer],
               static_cast<uint32_t>(index / kQueryBuffers) & 1);
    if constexpr (P::kKeepQueries) {
      for (int s = 0; s < kSteps; ++s) LoadQuery(s, q_[s]);
      ReleaseQueries(buffer);
    }
    const int g = lane_ / 4;
    seen_[0] = KeysOfRow(args_, item, item.row_begin + g);
    seen_[1] = KeysOfRow(args_, item, item.row_begin + g + 8);
    const int last_row = item.row_begin + item.num_rows - 1;
    all_seen_ = {KeysOfRow(args_, item, last_row).x,
                 KeysOfRow(args_, item, item.row_begin).y};
    const int first_tile = item.key_begin / P::kTileKeys;
    const int last_tile = (item.key_end + P::kTileKeys - 1) / P::kTileKeys;
    const int first_chunk = item.key_begin / item.chunk;
    const int tiles_a_chunk = item.chunk / P::kTileKeys;
    Folded folded(static_cast<int>(threadIdx.x));
    int tile = first_tile;
    for (int c = first_chunk; tile < last_tile; ++c) {
      const int chunk_end = min(last_tile, (c + 1) * tiles_a_chunk);
      Clear();
      for (int t = tile + warp_; t < chunk_end; t += kWarps) {
        RunTile(item, t * P::kTileKeys, tiles_done_ + t - first_tile);
      }
      tile = chunk_end;
      if (item.first_chunk > 0) folded.Clear();
      Merge(item, folded);
      if (item.first_chunk > 0 && folded.row() < item.num_rows) {
        folded.StorePartial(args_, item.slot_here + c - first_chunk);
      }
    }
    if constexpr (!P::kKeepQueries) ReleaseQueries(buffer);
    tiles_done_ += last_tile - first_tile;
    FinishItem(args_, item, folded, static_cast<int>(threadIdx.x),
               &shared_.head->flag, Sync);
  }

  __device__ static void Sync() { sm90::SyncNamed(1, kThreads); }

  __device__ void ReleaseQueries(int buffer) {
    __syncwarp();
    if (lane_ == 0) sm90::Arrive(&shared_.head->query_empty[buffer]);
  }

  __device__ void LoadQuery(int step, uint32_t (&q)[4]) const {
    // Matrices: rows 0-7 and 8-15 of the first 8 columns, then of the next.
    const int row = lane_ % 16;
    const int chunk = 2 * step + lane_ / 16;
    sm90::LoadMatrix4(q, queries_ + chunk / 8 * P::kQuerySlabBytes +
                             row * kSlabRowBytes +
                             ((chunk % 8) ^ (row % 8)) * 16);
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

  __device__ void RunTile(const AttentionItem& item, int begin, int index) {
    const int stage = index % P::kStages;
    sm90::Wait(&shared_.head->full[stage],
               static_cast<uint32_t>(index / P::kStages) & 1);
    const uint32_t keys = shared_.ring + stage * P::kStageBytes;
    float s[kKeyBlocks][4] = {};
    MultiplyKeys(keys, s);
    const bool masked =
        begin < all_seen_.x || begin + P::kTileKeys > all_seen_.y;
    Softmax(begin, masked, s);
    const uint32_t values = keys + P::kSlabs * P::kSlabBytes;
    if (masked) {
      MultiplyValues<true>(item, begin, values, s);
    } else {
      MultiplyValues<false>(item, begin, values, s);
    }
    __syncwarp();
    if (lane_ == 0) sm90::Arrive(&shared_.head->empty[stage]);
  }

  __device__ void MultiplyKeys(uint32_t keys, float (&s)[kKeyBlocks][4]) {
    // Matrices: 8 keys x the step's first and last 8 columns, then the next 8.
    const int row = lane_ / 16 * 8 + lane_ % 8;
    const int half = lane_ / 8 % 2;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      uint32_t q[4];
      if constexpr (P::kKeepQueries) {
#pragma unroll
        for (int i = 0; i < 4; ++i) q[i] = q_[step][i];
      } else {
        LoadQuery(step, q);
      }
#pragma unroll
      for (int pair = 0; pair < kKeyBlocks / 2; ++pair) {
        uint32_t k[4];
        sm90::LoadMatrix4(k, keys + step / 4 * P::kSlabBytes +
                                 (pair * 16 + row) * kSlabRowBytes +
                                 ((2 * step % 8) ^ half ^ (lane_ % 8)) * 16);
        sm90::Mma16816<T>(s[2 * pair], q, k[0], k[1]);
        sm90::Mma16816<T>(s[2 * pair + 1], q, k[2], k[3]);
      }
    }
  }

  // Scores to weights; rescales what is there where a maximum grows.
  __device__ void Softmax(int begin, bool masked, float (&s)[kKeyBlocks][4]) {
    float top[2] = {m_[0], m_[1]};
#pragma unroll
    for (int j = 0; j < kKeyBlocks; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        s[j][i] = ScaledScore(args_, s[j][i]);
        if (masked) {
          const int key = begin + 8 * j + lane_ % 4 * 2 + i % 2;
          const int2 seen = seen_[i / 2];
          if (key < seen.x || key >= seen.y) s[j][i] = -INFINITY;
        }
        top[i / 2] = fmaxf(top[i / 2], s[j][i]);
      }
    }
    float rescale[2];
    float base[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      top[r] = fmaxf(top[r], __shfl_xor_sync(0xffffffffu, top[r], 1));
      top[r] = fmaxf(top[r], __shfl_xor_sync(0xffffffffu, top[r], 2));
      base[r] = top[r] == -INFINITY ? 0.0f : top[r];
      rescale[r] = Exp2(m_[r] - base[r]);
      m_[r] = top[r];
      l_[r] *= rescale[r];
    }
    if (__any_sync(0xffffffffu, rescale[0] != 1.0f || rescale[1] != 1.0f)) {
#pragma unroll
      for (auto& block : o_) {
#pragma unroll
        for (int i = 0; i < 4; ++i) block[i] *= rescale[i / 2];
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

  // kMasked: values of keys outside the item count as zeros: nobody says what
  // lies there, and zero times NaN is NaN.
  template <bool kMasked>
  __device__ void MultiplyValues(const AttentionItem& item, int begin,
                                 uint32_t values,
                                 const float (&s)[kKeyBlocks][4]) {
    const int row = lane_ / 8 % 2 * 8 + lane_ % 8;
    const int half = lane_ / 16;
#pragma unroll
    for (int k16 = 0; k16 < P::kTileKeys / 16; ++k16) {
      const uint32_t p[4] = {
          sm90::Pack<T>(s[2 * k16][0], s[2 * k16][1]),
          sm90::Pack<T>(s[2 * k16][2], s[2 * k16][3]),
          sm90::Pack<T>(s[2 * k16 + 1][0], s[2 * k16 + 1][1]),
          sm90::Pack<T>(s[2 * k16 + 1][2], s[2 * k16 + 1][3])};
      uint32_t mask[2] = {0xffffffffu, 0xffffffffu};
      if constexpr (kMasked) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int key = begin + 16 * k16 + i / 2 * 8 + lane_ % 4 * 2 + i % 2;
          if (key < item.key_begin || key >= item.key_end) {
            mask[i / 2] &= i % 2 == 0 ? 0xffff0000u : 0x0000ffffu;
          }
        }
      }
#pragma unroll
      for (int pair = 0; pair < kColumnBlocks / 2; ++pair) {
        uint32_t v[4];
        sm90::LoadMatrix4Transposed(
            v, values + pair / 4 * P::kSlabBytes +
                   (k16 * 16 + row) * kSlabRowBytes +
                   ((2 * pair % 8) ^ half ^ (lane_ % 8)) * 16);
        if constexpr (kMasked) {
#pragma unroll
          for (int i = 0; i < 4; ++i) v[i] &= mask[i % 2];
        }
        sm90::Mma16816<T>(o_[2 * pair], p, v[0], v[1]);
        sm90::Mma16816<T>(o_[2 * pair + 1], p, v[2], v[3]);
      }
    }
  }

  // The chunk's results of all warps, in their order, into `folded`.
  __device__ void Merge(const AttentionItem& item, Folded& folded) {
#pragma unroll
    for (float& l : l_) {
      l += __shfl_xor_sync(0xffffffffu, l, 1);
      l += __shfl_xor_sync(0xffffffffu, l, 2);
    }
    Sync();  // the merge before has been read
    const int g = lane_ / 4;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if (g + 8 * r >= item.num_rows) continue;
      float* row = shared_.merge +
                   (warp_ * kRows + g + 8 * r) * P::kMergeStride +
                   lane_ % 4 * 2;
#pragma unroll
      for (int j = 0; j < kColumnBlocks; ++j) {
        *reinterpret_cast<float2*>(row + 8 * j) = {o_[j][2 * r],
                                                   o_[j][2 * r + 1]};
      }
      if (lane_ % 4 == 0) {
        shared_.head->sums[warp_][g + 8 * r] = {m_[r], l_[r]};
      }
    }
    Sync();
    if (folded.row() >= item.num_rows) return;
    float top = -INFINITY;
    float2 sums[kWarps];
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      sums[w] = shared_.head->sums[w][folded.row()];
      top = fmaxf(top, sums[w].x);
    }
    const float base = top == -INFINITY ? 0.0f : top;
    float l = 0.0f;
#pragma unroll
    for (float2& sum : sums) {
      sum.x = Exp2(sum.x - base);
      l = __fmaf_rn(sum.x, sum.y, l);
    }
    folded.Fold(top, l, [&](int pair) {
      const float* at =
          shared_.merge + folded.row() * P::kMergeStride + folded.column(pair);
      float2 o = {0.0f, 0.0f};
#pragma unroll
      for (int w = 0; w < kWarps; ++w) {
        const float2 x =
            *reinterpret_cast<const float2*>(at + w * kRows * P::kMergeStride);
        o.x = __fmaf_rn(sums[w].x, x.x, o.x);
        o.y = __fmaf_rn(sums[w].x, x.y, o.y);
      }
      return o;
    });
  }

  const AttentionItemArgs& args_;
  const Shared<kDim>& shared_;
  int warp_;
  int lane_;
  uint32_t queries_ = 0;
  int tiles_done_ = 0;  // of the items before
  int2 seen_[2];        // keys that the thread's rows see
  int2 all_seen_;       // keys that all rows see
  uint32_t q_[P::kKeepQueries ? kSteps : 1][4];
  float m_[2];
  float l_[2];  // this thread's part
  float o_[kColumnBlocks][4];
};

template <typename T, int kDim>
__global__ void __launch_bounds__(kThreads + 32, 1)
    AttentionItems(const __grid_constant__ AttentionItemArgs args,
                   const __grid_constant__ Maps maps, int box_rows) {
  extern __shared__ unsigned char memory[];
  using P = Plan<kDim>;
  const Shared<kDim> shared(memory);
  if (threadIdx.x == 0) {
    for (int i = 0; i < P::kStages; ++i) {
      sm90::InitBarrier(&shared.head->full[i], 1);
      sm90::InitBarrier(&shared.head->empty[i], 1);
    }
    for (int i = 0; i < kQueryBuffers; ++i) {
      sm90::InitBarrier(&shared.head->query_full[i], 32);
      sm90::InitBarrier(&shared.head->query_empty[i], kWarps);
    }
    sm90::FenceBarrierInit();
  }
  const int begin = args.cta_items[blockIdx.x];
  const int end = args.cta_items[blockIdx.x + 1];
  __syncthreads();
  if (threadIdx.x >= kThreads) {
    Loader<kDim>(args, maps, shared, box_rows).Run(begin, end);
  } else {
    Worker<T, kDim>(args, shared).Run(begin, end);
  }
}

template <typename T, int kDim>
absl::Status Launch(const AttentionDesc& desc, const AttentionParams& params,
                    cudaStream_t stream) {
  const int box_rows = BoxRows(params.kv.block_size, Plan<kDim>::kTileKeys);
  INLAY_ASSIGN_OR_RETURN(const KvTensorMaps kv,
                         MakeKvTensorMaps(params.kv, box_rows));
  const Maps maps = {kv.k, kv.v};
  constexpr int kBytes = SharedBytes<kDim>();
  INLAY_RETURN_IF_ERROR(CudaStatus(
      cudaFuncSetAttribute(AttentionItems<T, kDim>,
                           cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes),
      "attention: asking for shared memory"));
  AttentionItems<T, kDim>
      <<<params.plan->shape.grid, kThreads + 32, kBytes, stream>>>(
          MakeAttentionItemArgs(desc, params), maps, box_rows);
  return CudaLaunchStatus("attention (items)");
}

template <typename T>
absl::Status LaunchFor(const AttentionDesc& desc, const AttentionParams& params,
                       cudaStream_t stream) {
  switch (desc.head_dim) {
    case 64:
      return Launch<T, 64>(desc, params, stream);
    case 80:
      return Launch<T, 80>(desc, params, stream);
    case 96:
      return Launch<T, 96>(desc, params, stream);
    case 128:
      return Launch<T, 128>(desc, params, stream);
    case 192:
      return Launch<T, 192>(desc, params, stream);
    default:
      return Launch<T, 256>(desc, params, stream);
  }
}

}  // namespace

absl::Status LaunchAttentionItemsSm90(const AttentionDesc& desc,
                                      const AttentionParams& params,
                                      cudaStream_t stream) {
  return desc.kv == DType::kF16
             ? LaunchFor<__half>(desc, params, stream)
             : LaunchFor<__nv_bfloat16>(desc, params, stream);
}

}  // namespace inlay
