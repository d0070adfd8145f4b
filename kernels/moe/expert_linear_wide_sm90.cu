// expert_linear on Hopper with weights and x of one 16-bit type and more than
// one token: a product of matrices an expert, by wgmma. Source: CUTLASS's
// description of warp-specialised kernels (github.com/NVIDIA/cutlass, docs).
//
// x is a matrix in the order of experts (GatherExpertRows), or where each token
// goes to every expert as it lies. Tiles of 128 rows of one expert's x times
// 128 or 256 rows of its w, dealt out to the blocks in turn, rows of w first.
//   load     warpgroup 0: 64 columns of both a stage, by tensor copies of one
//            thread; from matrices that a table finds, w's rows by cp.async of
//            all
//   multiply warpgroups 1 and 2: 64 of the 128 rows each, from shared memory,
//            float32 sums in registers; a stage is handed back when the next
//            one's products are under way
// Shared memory: four stages of 48 KB (256 rows of w), or six of 32 KB.
// Barriers: full and empty a stage. Registers: 40 and twice 232. A sum has one
// order, wherever w lies and whatever is beside it. Roofline: the matrix units;
// of experts with few rows the bytes of w.
#include "kernels/attention/sm90_ops.h"
#include "kernels/attention/wgmma_sm90.h"
#include "kernels/cuda_float.cuh"
#include "kernels/cuda_launch.cuh"
#include "kernels/cuda_tensor_map.h"
#include "kernels/cuda_transpose.cuh"
#include "kernels/moe/expert_items.cuh"
#include "kernels/moe/expert_linear_cuda.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr int kHopper = 90;
constexpr int kRows = 128;  // of x a tile
constexpr int kDepth = 64;  // columns a stage: 128 bytes of a row
constexpr int kWarpgroup = 128;
constexpr int kThreads = 3 * kWarpgroup;
constexpr int kLoadRegisters = 40;
constexpr int kMultiplyRegisters = 232;
constexpr int kRowBytes = 2 * kDepth;
constexpr int kXBytes = kRows * kRowBytes;

// kColumns: of y a tile, rows of w.
template <int kColumns>
struct Shape {
  static constexpr int kStages = kColumns == 256 ? 4 : 6;
  static constexpr int kStageBytes = kXBytes + kColumns * kRowBytes;
};

template <int kColumns>
struct Shared {
  unsigned char stages[Shape<kColumns>::kStages][Shape<kColumns>::kStageBytes];
  uint64_t full[Shape<kColumns>::kStages];
  uint64_t empty[Shape<kColumns>::kStages];
};

struct Args {
  ExpertItems items;
  ExpertBases w;
  const float* bias;
  std::byte* y;
  int64_t y_stride_bytes;
  int64_t n;
  int64_t k;
  int tiles_n;
  int steps;       // of kDepth columns
  bool x_of_each;  // the map of x has a matrix an expert
  bool vectors;    // y's rows take 16 bytes at a time
};

struct Maps {
  CUtensorMap x;  // [rows][an expert's or one][k]
  CUtensorMap w;  // [experts][n][k]
};

template <int kColumns>
struct Ring {
  int stage = 0;
  uint32_t phase = 0;
  __device__ void Next() {
    if (++stage == Shape<kColumns>::kStages) {
      stage = 0;
      phase ^= 1;
    }
  }
};

// The block's tiles, one after another. All lanes of a warp ask together.
struct Tiles {
  __device__ explicit Tiles(const Args& args)
      : args_(args), index_(static_cast<int>(blockIdx.x)) {}

  __device__ bool Find() {
    if (index_ >= args_.items.count * args_.tiles_n) return false;
    item = FindExpertItem<kRows>(args_.items, index_ / args_.tiles_n);
    column = index_ % args_.tiles_n;
    index_ += static_cast<int>(gridDim.x);
    return item.rows > 0;
  }

  ExpertItem item;
  int column;  // in tiles

 private:
  const Args& args_;
  int index_;
};

// A thread of the warpgroup that loads.
template <int kColumns, bool kTable>
class Loader {
 public:
  __device__ Loader(const Args& args, const Maps& maps,
                    Shared<kColumns>& shared)
      : args_(args),
        maps_(maps),
        shared_(shared),
        thread_(static_cast<int>(threadIdx.x)) {}

  __device__ void Run() {
    if (!kTable && thread_ >= 32) return;
    Tiles tiles(args_);
    while (tiles.Find()) {
      const ExpertItem& item = tiles.item;
      const int matrix = args_.x_of_each ? item.expert : 0;
      for (int step = 0; step < args_.steps; ++step) {
        uint64_t* full = &shared_.full[ring_.stage];
        sm90::Wait(&shared_.empty[ring_.stage], ring_.phase ^ 1);
        const uint32_t x = sm90::SharedAddress(shared_.stages[ring_.stage]);
        if (thread_ == 0) {
          sm90::ArriveExpect(full,
                             kXBytes + (kTable ? 0 : kColumns * kRowBytes));
          sm90::CopyBox3(&maps_.x, full, x, step * kDepth, matrix, item.first);
          if (!kTable) {
            sm90::CopyBox3(&maps_.w, full, x + kXBytes, step * kDepth,
                           tiles.column * kColumns, item.expert);
          }
        }
        if (kTable) {
          CopyRows(x + kXBytes, item.expert, tiles.column, step);
          sm90::ArriveAfterCopies(full);
        }
        ring_.Next();
      }
    }
  }

 private:
  // As the tensor copy leaves them; what lies beyond the matrix is zeros.
  __device__ void CopyRows(uint32_t to, int expert, int tile, int step) const {
    const int64_t chunk = int64_t{step} * kDepth + thread_ % 8 * 8;
    const uint8_t* matrix = args_.w.Of(expert);
#pragma unroll 2
    for (int row = thread_ / 8; row < kColumns; row += kWarpgroup / 8) {
      const int64_t of_matrix = int64_t{tile} * kColumns + row;
      const bool exists = of_matrix < args_.n && chunk < args_.k;
      const int64_t at = exists ? of_matrix * args_.k + chunk : 0;
      sm90::CopyAsync16OrZeros(
          to + row * kRowBytes + (thread_ % 8 ^ row % 8) * 16, matrix + 2 * at,
          exists);
    }
  }

  const Args& args_;
  const Maps& maps_;
  Shared<kColumns>& shared_;
  int thread_;
  Ring<kColumns> ring_;
};

// A thread of a multiplying warpgroup; it has two rows, r = 0 and 1.
template <typename T, typename Y, int kColumns>
class Worker {
 public:
  __device__ Worker(const Args& args, Shared<kColumns>& shared, int group)
      : args_(args),
        shared_(shared),
        group_(group),
        thread_(static_cast<int>(threadIdx.x) % kWarpgroup) {}

  __device__ void Run() {
    Tiles tiles(args_);
    while (tiles.Find()) {
      if (tiles.item.rows <= group_ * 64) {
        Pass();
        continue;
      }
      float sums[kColumns / 2];
      Multiply(sums);
      Store(tiles, sums);
    }
  }

 private:
  // A tile that has no rows for this warpgroup. Its warps go together, as
  // products make them: who missed two turns of a stage would wait for ever.
  __device__ void Pass() {
    for (int step = 0; step < args_.steps; ++step) {
      sm90::Wait(&shared_.full[ring_.stage], ring_.phase);
      sm90::SyncNamed(1 + group_, kWarpgroup);
      HandBack(ring_.stage);
      ring_.Next();
    }
  }
  __device__ void HandBack(int stage) const {
    if (thread_ == 0) sm90::Arrive(&shared_.empty[stage]);
  }

  __device__ void Multiply(float (&sums)[kColumns / 2]) {
    int before = -1;
#pragma unroll 1
    for (int step = 0; step < args_.steps; ++step) {
      sm90::Wait(&shared_.full[ring_.stage], ring_.phase);
      sm90::FenceAsyncProxy();  // what cp.async wrote, for wgmma
      const uint32_t stage = sm90::SharedAddress(shared_.stages[ring_.stage]);
      const uint64_t x =
          sm90::MatrixDescriptor(stage + group_ * 64 * kRowBytes);
      const uint64_t w = sm90::MatrixDescriptor(stage + kXBytes);
      sm90::PinRegisters(sums);
      sm90::WgmmaFence();
#pragma unroll
      for (int i = 0; i < kDepth / 16; ++i) {
        sm90::Wgmma<T, kColumns>::Issue(sums, x + (i * 32 >> 4),
                                        w + (i * 32 >> 4),
                                        step > 0 || i > 0 ? 1 : 0);
      }
      sm90::WgmmaCommit();
      sm90::WgmmaWait<1>();
      if (before >= 0) HandBack(before);
      before = ring_.stage;
      ring_.Next();
    }
    sm90::WgmmaWait<0>();
    sm90::PinRegisters(sums);
    HandBack(before);
  }

  __device__ void Store(const Tiles& tiles, float (&sums)[kColumns / 2]) const {
    const int64_t first = int64_t{tiles.column} * kColumns;
    if (args_.bias != nullptr) {
      AddBias(args_.bias + tiles.item.expert * args_.n, first, sums);
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row =
          group_ * 64 + thread_ / 32 * 16 + thread_ % 32 / 4 + 8 * r;
      const bool exists = row < tiles.item.rows;
      const int slot = exists ? tiles.item.Slot(args_.items, row) : 0;
      Y* to = reinterpret_cast<Y*>(args_.y + slot * args_.y_stride_bytes);
      if (args_.vectors) {
        StoreVectors(to, first, exists, r, sums);
      } else if (exists) {
        StoreEach(to, first, r, sums);
      }
    }
  }

  __device__ void AddBias(const float* bias, int64_t first,
                          float (&sums)[kColumns / 2]) const {
#pragma unroll
    for (int i = 0; i < kColumns / 4; ++i) {
      const int64_t column = first + i / 2 * 8 + thread_ % 4 * 2 + i % 2;
      const float b = column < args_.n ? bias[column] : 0.0f;
      sums[i / 2 * 4 + i % 2] += b;
      sums[i / 2 * 4 + 2 + i % 2] += b;
    }
  }

  __device__ void StoreEach(Y* to, int64_t first, int r,
                            const float (&sums)[kColumns / 2]) const {
#pragma unroll
    for (int i = 0; i < kColumns / 4; ++i) {
      const int64_t column = first + i / 2 * 8 + thread_ % 4 * 2 + i % 2;
      if (column < args_.n) {
        to[column] = FromFloat<Y>(sums[i / 2 * 4 + 2 * r + i % 2]);
      }
    }
  }

  // n is a multiple of 8. All lanes of a quad call it.
  __device__ void StoreVectors(Y* to, int64_t first, bool exists, int r,
                               const float (&sums)[kColumns / 2]) const {
    const int lane = thread_ % 4;
    if constexpr (sizeof(Y) == 4) {
#pragma unroll
      for (int j = 0; j < kColumns / 8; ++j) {
        const int64_t column = first + 8 * j + 2 * lane;
        if (exists && column < args_.n) {
          *reinterpret_cast<float2*>(to + column) = {sums[4 * j + 2 * r],
                                                     sums[4 * j + 2 * r + 1]};
        }
      }
    } else {
      // Four lanes have a row; of four blocks of 8 columns each gets one whole.
#pragma unroll
      for (int quad = 0; quad < kColumns / 32; ++quad) {
        uint32_t x[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const int at = (quad * 4 + j) * 4 + 2 * r;
          x[j] = sm90::Pack<T>(sums[at], sums[at + 1]);
        }
        TransposeQuad(x, lane);
        const int64_t column = first + 32 * quad + 8 * lane;
        if (exists && column < args_.n) {
          *reinterpret_cast<uint4*>(to + column) = {x[0], x[1], x[2], x[3]};
        }
      }
    }
  }

  const Args& args_;
  Shared<kColumns>& shared_;
  int group_;
  int thread_;
  Ring<kColumns> ring_;
};

template <typename T, typename Y, int kColumns, bool kTable>
__global__ void __launch_bounds__(kThreads, 1)
    ExpertLinearWide(const __grid_constant__ Args args,
                     const __grid_constant__ Maps maps) {
  LetNextBegin();
  extern __shared__ unsigned char memory[];
  auto& shared = *reinterpret_cast<Shared<kColumns>*>(
      memory + (1024 - sm90::SharedAddress(memory) % 1024) % 1024);
  if (threadIdx.x == 0) {
    for (int i = 0; i < Shape<kColumns>::kStages; ++i) {
      sm90::InitBarrier(&shared.full[i], 1 + (kTable ? kWarpgroup : 0));
      sm90::InitBarrier(&shared.empty[i], 2);
    }
    sm90::FenceBarrierInit();
  }
  __syncthreads();
  WaitForPrevious();
  const int warpgroup =
      __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / kWarpgroup, 0);
  if (warpgroup == 0) {
    sm90::LowerRegisters<kLoadRegisters>();
    Loader<kColumns, kTable>(args, maps, shared).Run();
  } else {
    sm90::RaiseRegisters<kMultiplyRegisters>();
    Worker<T, Y, kColumns>(args, shared, warpgroup - 1).Run();
  }
}

absl::StatusOr<CUtensorMap> MapOf(const char* what, DType dtype, void* data,
                                  const TensorBoxes& boxes) {
  return EncodeTensorMap(what, data,
                         dtype == DType::kF16
                             ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                             : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                         CU_TENSOR_MAP_SWIZZLE_128B, boxes);
}

bool At16(const void* data, size_t stride_bytes) {
  return reinterpret_cast<uintptr_t>(data) % 16 == 0 && stride_bytes % 16 == 0;
}

// Rows of w a tile.
int ColumnsOf(const GemmDesc& desc) { return desc.n > 128 ? 256 : 128; }

absl::StatusOr<Maps> MapsOf(const ExpertLinearDesc& desc,
                            const ExpertLinearParams& params,
                            const TensorView& x, bool x_of_each) {
  const auto size = [](int64_t i) { return static_cast<cuuint64_t>(i); };
  const int64_t matrices = x_of_each ? desc.num_experts : 1;
  Maps maps;
  INLAY_ASSIGN_OR_RETURN(
      maps.x,
      MapOf("rows of experts", desc.gemm.activation, x.data,
            {3,
             {size(desc.gemm.k), size(matrices), size(x.rows() / matrices)},
             {x.row_stride_bytes,
              static_cast<size_t>(matrices) * x.row_stride_bytes},
             {kDepth, 1, kRows}}));
  if (params.w.table != nullptr) return maps;
  INLAY_ASSIGN_OR_RETURN(
      maps.w,
      MapOf("experts' matrices", desc.gemm.weight,
            const_cast<std::byte*>(params.w.base),
            {3,
             {size(desc.gemm.k), size(desc.gemm.n), size(desc.num_experts)},
             {2 * size(desc.gemm.k), params.w.stride_bytes},
             {kDepth, static_cast<cuuint32_t>(ColumnsOf(desc.gemm)), 1}}));
  return maps;
}

template <typename T, typename Y, int kColumns>
absl::Status Launch(const Args& args, const Maps& maps, CudaStream& stream) {
  const int64_t tiles = args.items.count * args.tiles_n;
  return LaunchCuda("expert_linear (wide)", stream,
                    {std::min<int64_t>(stream.num_sms(), tiles), kThreads,
                     sizeof(Shared<kColumns>) + 1024},
                    args.w.table != nullptr
                        ? ExpertLinearWide<T, Y, kColumns, true>
                        : ExpertLinearWide<T, Y, kColumns, false>,
                    args, maps);
}

template <typename T, typename Y>
absl::Status RunColumns(const ExpertLinearDesc& desc, const Args& args,
                        const Maps& maps, CudaStream& stream) {
  return ColumnsOf(desc.gemm) == 256 ? Launch<T, Y, 256>(args, maps, stream)
                                     : Launch<T, Y, 128>(args, maps, stream);
}

template <typename T>
absl::Status RunType(const ExpertLinearDesc& desc, const Args& args,
                     const Maps& maps, CudaStream& stream) {
  return desc.gemm.output == desc.gemm.activation
             ? RunColumns<T, T>(desc, args, maps, stream)
             : RunColumns<T, float>(desc, args, maps, stream);
}

bool CanBeWide(const ExpertLinearDesc& desc) {
  return desc.gemm.weight == desc.gemm.activation &&
         desc.gemm.weight != DType::kF32 && desc.gemm.k % 8 == 0 &&
         !desc.gemm.batch_invariant;
}
// Otherwise each token goes to every expert, and nothing need be gathered.
bool CanBeListed(const ExpertLinearDesc& desc) {
  return desc.top_k < desc.num_experts;
}

}  // namespace

bool ExpertLinearWideTakes(const ExpertLinearDesc& desc,
                           const ExpertLinearParams& params,
                           const CudaStream& stream) {
  const int64_t slots = params.y.rows();
  const bool fits = params.slots == nullptr
                        ? !ExpertRowsAreFew(desc, slots)
                        : CanBeListed(desc) && slots > desc.top_k;
  return stream.sm() == kHopper && CanBeWide(desc) && fits &&
         At16(params.x.data, params.x.row_stride_bytes) &&
         (params.w.table != nullptr ||
          At16(params.w.base, params.w.stride_bytes));
}

size_t ExpertLinearWideBytes(const ExpertLinearDesc& desc, int64_t max_tokens) {
  return CanBeWide(desc) && CanBeListed(desc)
             ? GatheredExpertBytes(desc, max_tokens)
             : 0;
}

absl::Status RunExpertLinearWide(const ExpertLinearDesc& desc,
                                 const ExpertLinearParams& params,
                                 CudaStream& stream) {
  TensorView x = params.x;
  if (params.slots != nullptr) {
    INLAY_ASSIGN_OR_RETURN(x, GatherExpertRows(desc, params, stream));
  }
  Args args = {ExpertItems(desc, params, kRows), ExpertBases(params.w),
               params.bias, params.y.data,
               static_cast<int64_t>(params.y.row_stride_bytes)};
  args.n = desc.gemm.n;
  args.k = desc.gemm.k;
  const int columns = ColumnsOf(desc.gemm);
  args.tiles_n = static_cast<int>((args.n + columns - 1) / columns);
  args.steps = static_cast<int>((args.k + kDepth - 1) / kDepth);
  args.x_of_each = params.slots == nullptr && desc.row_a_slot;
  args.vectors =
      At16(params.y.data, params.y.row_stride_bytes) && args.n % 8 == 0;
  INLAY_ASSIGN_OR_RETURN(const Maps maps,
                         MapsOf(desc, params, x, args.x_of_each));
  return desc.gemm.weight == DType::kF16
             ? RunType<__half>(desc, args, maps, stream)
             : RunType<__nv_bfloat16>(desc, args, maps, stream);
}

}  // namespace inlay
