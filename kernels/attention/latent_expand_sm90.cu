// Heads' keys and values of a cache of latents, on Hopper: for each head
//   keys [rows, key_dim] = latents [rows, rank] K^T    values = latents V^T
// where rows are the slots of a list of cache blocks. K^T lies with its rows
// along n, V with its rows along k: wgmma takes both as they are. Wide heads
// are parts, each with its share of the keys' columns and of the values'.
//
// Grid: one CTA a multiprocessor; each takes every so manieth (128 rows, part
// of a head), rows first, so that those at work share a head's matrices. CTA:
// one warp loads, two warpgroups have 64 rows each, of keys and of values.
//   load     by the copy engine into a ring: 64 columns of the latents (a box a
//            piece of a cache block), 64 rows of K^T, 64 columns of V
//   compute  m64nNk16 for keys and for values, N a part's columns; float32 sums
//            in registers; results to memory 16 bytes a thread
// Barriers: full/empty of each stage. Shared memory: 4 stages of 48 KB or less.
// Registers: 40 + 2 x 232. Roofline: the matrix units, and the level-2 cache:
// 87 operations a byte.
#include <algorithm>

#include "kernels/attention/attention_expand.h"
#include "kernels/attention/attention_sm90.h"
#include "kernels/attention/latent_expand_sm90.h"
#include "kernels/attention/sm90_ops.h"
#include "kernels/attention/wgmma_sm90.h"
#include "kernels/cuda_launch.cuh"
#include "kernels/cuda_tensor_map.h"
#include "kernels/cuda_transpose.cuh"
#include "memory/status.h"

namespace inlay {
namespace expand_sm90 {

constexpr int kWarpgroup = 128;
constexpr int kThreads = 3 * kWarpgroup;
constexpr int kRows = 128;  // of a tile
constexpr int kDepth = 64;  // of a stage: a slab
constexpr int kStages = 4;
constexpr int kRowsBytes = kRows * kSlabRowBytes;      // 64 columns of them
constexpr int kKeySlabBytes = kDepth * kSlabRowBytes;  // 64 columns of K^T
constexpr int kLoadRegisters = 40;
constexpr int kComputeRegisters = 232;

struct Barriers {
  uint64_t full[kStages];
  uint64_t empty[kStages];
};

// `parts` of each head of `dims`.
template <ExpandedDims dims, int parts>
struct Shape {
  static constexpr int kRank = dims.rank;
  static constexpr int kSteps = kRank / kDepth;
  static constexpr int kParts = parts;
  static constexpr int kKeys = dims.key_dim / kParts;  // columns of a part
  static constexpr int kValues = dims.value_dim / kParts;
  static constexpr int kKeySlabs = (kKeys + kSlabColumns - 1) / kSlabColumns;
  static constexpr int kKeyBytes = kKeySlabs * kKeySlabBytes;
  static constexpr int kValueBytes = kValues * kSlabRowBytes;
  static constexpr int kStageBytes = kRowsBytes + kKeyBytes + kValueBytes;
  static constexpr int kSharedBytes =
      1024 + kStages * kStageBytes + static_cast<int>(sizeof(Barriers));
  static_assert(kSharedBytes <= 227 * 1024);
  static_assert(kRank % kDepth == 0 && kKeys % 32 == 0 && kValues % 32 == 0);
  static_assert(kKeySlabs <= 2 && kKeyBytes % 1024 == 0);
};

struct Args {
  const int32_t* blocks;
  std::byte* keys;
  std::byte* values;
  int rows;
  int tiles;  // of rows
  int heads;
  int block_size;
  int box_rows;
};

struct Maps {
  CUtensorMap latents;
  CUtensorMap keys;
  CUtensorMap values;
};

struct Ring {
  int stage = 0;
  uint32_t phase = 0;
  __device__ void Next() {
    if (++stage == kStages) {
      stage = 0;
      phase ^= 1;
    }
  }
};

// As sm90::Wgmma<T, kN>::Issue with descriptors, but b's rows lie along n.
template <typename T, int kN>
struct Turned;

#define INLAY_D8(i)                                                           \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), \
      "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define INLAY_D32(i) \
  INLAY_D8(i), INLAY_D8(i + 8), INLAY_D8(i + 16), INLAY_D8(i + 24)
#define INLAY_N64                                                              \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16," \
  " %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define INLAY_N96                                                           \
  INLAY_N64                                                                 \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45," \
  " %46, %47"
#define INLAY_N128                                                          \
  INLAY_N96                                                                 \
  ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61," \
  " %62, %63"
// kN, d's operand numbers, d's operands, then the numbers of what follows d.
#define INLAY_TURNED(n, numbers, operands, e0, e1, e2)                      \
  template <typename T>                                                     \
  struct Turned<T, n> {                                                     \
    __device__ static void Issue(float (&d)[n / 2], uint64_t a, uint64_t b, \
                                 int accumulate) {                          \
      if constexpr (std::is_same_v<T, __half>) {                            \
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" e2                \
                     ", 0;\n"                                               \
                     "wgmma.mma_async.sync.aligned.m64n" #n                 \
                     "k16.f32.f16.f16 {" numbers "}, %" e0 ", %" e1         \
                     ", p, 1, 1, 0, 1;\n}\n"                                \
                     : operands                                             \
                     : "l"(a), "l"(b), "r"(accumulate));                    \
      } else {                                                              \
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" e2                \
                     ", 0;\n"                                               \
                     "wgmma.mma_async.sync.aligned.m64n" #n                 \
                     "k16.f32.bf16.bf16 {" numbers "}, %" e0 ", %" e1       \
                     ", p, 1, 1, 0, 1;\n}\n"                                \
                     : operands                                             \
                     : "l"(a), "l"(b), "r"(accumulate));                    \
      }                                                                     \
    }                                                                       \
  };
#define INLAY_ARGS(...) __VA_ARGS__
INLAY_TURNED(64, INLAY_N64, INLAY_ARGS(INLAY_D32(0)), "32", "33", "34")
INLAY_TURNED(96, INLAY_N96,
             INLAY_ARGS(INLAY_D32(0), INLAY_D8(32), INLAY_D8(40)), "48", "49",
             "50")
INLAY_TURNED(128, INLAY_N128, INLAY_ARGS(INLAY_D32(0), INLAY_D32(32)), "64",
             "65", "66")
#undef INLAY_ARGS
#undef INLAY_TURNED
#undef INLAY_N128
#undef INLAY_N96
#undef INLAY_N64
#undef INLAY_D32
#undef INLAY_D8

// A warp.
template <typename S>
__device__ inline void Load(const Args& args, const Maps& maps,
                            unsigned char* stages, Barriers& barriers) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const uint32_t to = sm90::SharedAddress(stages);
  const int of_tile = lane * args.box_rows;
  Ring at;
  for (int item = static_cast<int>(blockIdx.x);
       item < args.tiles * args.heads * S::kParts;
       item += static_cast<int>(gridDim.x)) {
    const int head = item / args.tiles / S::kParts;
    const int part = item / args.tiles % S::kParts;
    const int row = item % args.tiles * kRows + of_tile;
    const bool issue = of_tile < kRows && row < args.rows;
    const int block = issue ? args.blocks[row / args.block_size] : 0;
    const int boxes = __popc(__ballot_sync(0xffffffffu, issue));
#pragma unroll 1
    for (int step = 0; step < S::kSteps; ++step) {
      uint64_t* full = &barriers.full[at.stage];
      sm90::Wait(&barriers.empty[at.stage], at.phase ^ 1);
      if (lane == 0) {
        sm90::ArriveExpect(
            full, static_cast<uint32_t>(S::kKeyBytes + S::kValueBytes +
                                        boxes * args.box_rows * kSlabRowBytes));
      }
      __syncwarp();
      const uint32_t stage = to + at.stage * S::kStageBytes;
      if (issue) {
        sm90::CopyBox4(&maps.latents, full, stage + of_tile * kSlabRowBytes,
                       step * kDepth, row % args.block_size, 0, block);
      }
      // The lanes behind those of boxes.
      if (lane >= 31 - S::kKeySlabs && lane <= 30) {
        const int slab = lane - (31 - S::kKeySlabs);
        sm90::CopyBox3(
            &maps.keys, full, stage + kRowsBytes + slab * kKeySlabBytes,
            part * S::kKeys + slab * kSlabColumns, step * kDepth, head);
      }
      if (lane == 31) {
        sm90::CopyBox3(&maps.values, full, stage + kRowsBytes + S::kKeyBytes,
                       step * kDepth, part * S::kValues, head);
      }
      at.Next();
    }
  }
}

// A thread of a computing warpgroup; it has two rows, r = 0 and 1.
template <typename T, typename S>
class Worker {
 public:
  __device__ Worker(const Args& args, unsigned char* stages, Barriers& barriers,
                    int group)
      : args_(args),
        stages_(sm90::SharedAddress(stages)),
        barriers_(barriers),
        group_(group),
        thread_(static_cast<int>(threadIdx.x) % kWarpgroup) {}

  __device__ void Run() {
    for (int item = static_cast<int>(blockIdx.x);
         item < args_.tiles * args_.heads * S::kParts;
         item += static_cast<int>(gridDim.x)) {
      float keys[S::kKeys / 2];
      float values[S::kValues / 2];
      Multiply(keys, values);
      const int head = item / args_.tiles / S::kParts;
      const int part = item / args_.tiles % S::kParts;
      const int64_t first = int64_t{head} * args_.rows;
      const int row = item % args_.tiles * kRows + group_ * 64 +
                      thread_ / 32 * 16 + thread_ % 32 / 4;
      Store(args_.keys, first, row, part, keys);
      Store(args_.values, first, row, part, values);
    }
  }

 private:
  __device__ void Multiply(float (&keys)[S::kKeys / 2],
                           float (&values)[S::kValues / 2]) {
    int before = -1;
#pragma unroll 1
    for (int step = 0; step < S::kSteps; ++step) {
      sm90::Wait(&barriers_.full[at_.stage], at_.phase);
      const uint32_t stage = stages_ + at_.stage * S::kStageBytes;
      const uint64_t x =
          sm90::MatrixDescriptor(stage + group_ * 64 * kSlabRowBytes);
      const uint64_t k =
          sm90::MatrixDescriptor(stage + kRowsBytes, kKeySlabBytes);
      const uint64_t v =
          sm90::MatrixDescriptor(stage + kRowsBytes + S::kKeyBytes);
      sm90::PinRegisters(keys);
      sm90::PinRegisters(values);
      sm90::WgmmaFence();
#pragma unroll
      for (int i = 0; i < kDepth / 16; ++i) {
        Turned<T, S::kKeys>::Issue(keys, x + (i * 32 >> 4),
                                   k + i * (16 * kSlabRowBytes >> 4),
                                   step > 0 || i > 0 ? 1 : 0);
      }
#pragma unroll
      for (int i = 0; i < kDepth / 16; ++i) {
        sm90::Wgmma<T, S::kValues>::Issue(values, x + (i * 32 >> 4),
                                          v + (i * 32 >> 4),
                                          step > 0 || i > 0 ? 1 : 0);
      }
      sm90::WgmmaCommit();
      sm90::WgmmaWait<1>();
      if (before >= 0 && thread_ == 0) sm90::Arrive(&barriers_.empty[before]);
      before = at_.stage;
      at_.Next();
    }
    sm90::WgmmaWait<0>();
    sm90::PinRegisters(keys);
    sm90::PinRegisters(values);
    if (thread_ == 0) sm90::Arrive(&barriers_.empty[before]);
  }

  // Four lanes have a row; among four blocks of 8 columns, each gets one whole.
  template <int kCount>
  __device__ void Store(std::byte* to, int64_t first, int row, int part,
                        const float (&d)[kCount]) const {
    constexpr int kBytes = 4 * kCount;  // of a part of a row
    const int lane = thread_ % 4;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const bool valid = row + 8 * r < args_.rows;
      std::byte* out =
          to + (first + row + 8 * r) * (S::kParts * kBytes) + part * kBytes;
#pragma unroll
      for (int quad = 0; quad < kBytes / 64; ++quad) {
        uint32_t x[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const int at = (quad * 4 + j) * 4 + 2 * r;
          x[j] = sm90::Pack<T>(d[at], d[at + 1]);
        }
        TransposeQuad(x, lane);
        if (valid) {
          *reinterpret_cast<uint4*>(out + quad * 64 + lane * 16) = {x[0], x[1],
                                                                    x[2], x[3]};
        }
      }
    }
  }

  const Args& args_;
  uint32_t stages_;
  Barriers& barriers_;
  int group_;
  int thread_;
  Ring at_;
};

template <typename T, typename S>
__global__ void __launch_bounds__(kThreads, 1)
    LatentExpand(const __grid_constant__ Args args,
                 const __grid_constant__ Maps maps) {
  LetNextBegin();
  extern __shared__ unsigned char memory[];
  unsigned char* stages =
      memory + (1024 - sm90::SharedAddress(memory) % 1024) % 1024;
  Barriers& barriers =
      *reinterpret_cast<Barriers*>(stages + kStages * S::kStageBytes);
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      sm90::InitBarrier(&barriers.full[i], 1);
      sm90::InitBarrier(&barriers.empty[i], 2);
    }
    sm90::FenceBarrierInit();
  }
  __syncthreads();
  WaitForPrevious();
  const int warpgroup =
      __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / kWarpgroup, 0);
  if (warpgroup == 0) {
    sm90::LowerRegisters<kLoadRegisters>();
    if (threadIdx.x < 32) Load<S>(args, maps, stages, barriers);
  } else {
    sm90::RaiseRegisters<kComputeRegisters>();
    Worker<T, S>(args, stages, barriers, warpgroup - 1).Run();
  }
}

// Matrices [rows, cols] of 16 bits, one a head.
absl::StatusOr<CUtensorMap> MatricesMap(DType dtype,
                                        const HeadMatrices& matrices, int heads,
                                        int rows, int cols, int box_rows) {
  return EncodeTensorMap(
      "heads' matrices", const_cast<std::byte*>(matrices.base),
      dtype == DType::kF16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                           : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
      CU_TENSOR_MAP_SWIZZLE_128B,
      {3,
       {static_cast<cuuint64_t>(cols), static_cast<cuuint64_t>(rows),
        static_cast<cuuint64_t>(heads)},
       {static_cast<cuuint64_t>(2 * cols), matrices.stride_bytes},
       {kSlabColumns, static_cast<cuuint32_t>(box_rows), 1}});
}

template <typename S>
absl::Status Launch(const LatentExpansion& expansion, CudaStream& stream) {
  Args args;
  args.blocks = expansion.blocks;
  args.keys = expansion.expanded_keys;
  args.values = expansion.expanded_values;
  args.rows = expansion.num_blocks * expansion.kv.block_size;
  args.tiles = (args.rows + kRows - 1) / kRows;
  args.heads = expansion.heads;
  args.block_size = expansion.kv.block_size;
  args.box_rows = BoxRows(args.block_size, kRows);
  Maps maps;
  INLAY_ASSIGN_OR_RETURN(const KvTensorMaps cache,
                         MakeKvTensorMaps(expansion.kv, args.box_rows));
  maps.latents = cache.k;
  INLAY_ASSIGN_OR_RETURN(
      maps.keys, MatricesMap(expansion.dtype, expansion.keys, args.heads,
                             S::kRank, S::kParts * S::kKeys, kDepth));
  INLAY_ASSIGN_OR_RETURN(
      maps.values, MatricesMap(expansion.dtype, expansion.values, args.heads,
                               S::kParts * S::kValues, S::kRank, S::kValues));
  const int grid =
      std::min(stream.num_sms(), args.tiles * args.heads * S::kParts);
  return LaunchCuda("latents' keys and values", stream,
                    {grid, kThreads, static_cast<size_t>(S::kSharedBytes)},
                    expansion.dtype == DType::kF16
                        ? LatentExpand<__half, S>
                        : LatentExpand<__nv_bfloat16, S>,
                    args, maps);
}

}  // namespace expand_sm90

absl::Status LaunchLatentExpand(const LatentExpansion& expansion,
                                CudaStream& stream) {
  using namespace expand_sm90;
  static_assert(std::size(kExpandedDims) == 3);
  if (expansion.dims == kExpandedDims[1]) {
    return Launch<Shape<kExpandedDims[1], 2>>(expansion, stream);
  }
  if (expansion.dims == kExpandedDims[2]) {
    return Launch<Shape<kExpandedDims[2], 1>>(expansion, stream);
  }
  return Launch<Shape<kExpandedDims[0], 1>>(expansion, stream);
}

}  // namespace inlay
