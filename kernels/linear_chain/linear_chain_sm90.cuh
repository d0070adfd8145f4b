// linear_chain over packed quantised weights on Hopper, for up to kChainRows
// rows of x. Included by the linear_chain_*_sm90.cu, each of which instantiates
// some forms.
//
// Mapping: a block of 16 warps on every multiprocessor, all there at once. A
// job is a tile of 16 rows of w (two where gated: gate and up); a block has
// neighbouring jobs, and its warps share out all units of their tiles evenly,
// so that a tile's K may be cut anywhere. The warps' sums meet in shared
// memory, where threads finish outputs.
//
// Weights: a warp has a ring of its own, which its first lane fills by bulk
// copies in the order in which the warp will multiply: through its tiles, and
// on through the stages to come, whatever the blocks wait for. So memory is
// read while a stage ends and the next one's x is computed.
//
// Between stages all blocks wait for each other at a counter. The launch is
// cooperative: it fails rather than wait for blocks that have no room.
//
// Arithmetic: chain_unit.cuh; sums of x that minima are multiplied by are made
// when x is written. Norms: rms_norm's bits. Slices of K are added in ascending
// order, then bias and residual. What a row gives does not depend on the rows
// beside it.
//
// What is done once a stage is kept short, in instructions too: nobody has run
// them before, and fetching them takes as long as running them.
//
// Roofline: the packed bytes over the copy bandwidth. README.md: how far off.
#ifndef INLAY_KERNELS_LINEAR_CHAIN_LINEAR_CHAIN_SM90_CUH_
#define INLAY_KERNELS_LINEAR_CHAIN_LINEAR_CHAIN_SM90_CUH_

#include "kernels/activation/activation.cuh"
#include "kernels/cuda_launch.cuh"
#include "kernels/gemm/gemv_sm90.cuh"
#include "kernels/linear_chain/chain_shape.h"
#include "kernels/linear_chain/chain_unit.cuh"
#include "kernels/rms_norm/rms_norm.cuh"

namespace inlay {
namespace {

// All blocks of the grid meet: each adds one to a counter, but the first block,
// which adds what makes all of them together turn its highest bit. Arrive and
// Wait are called by all threads of a block, in turns. Acquire and release:
// PTX ISA, "Memory Consistency Model".
class GridBarrier {
 public:
  __device__ explicit GridBarrier(uint32_t* counter) : counter_(counter) {}
  __device__ void Arrive() {
    __syncthreads();
    if (threadIdx.x == 0) {
      const uint32_t add = blockIdx.x == 0 ? kTurn - (gridDim.x - 1) : 1;
      __threadfence();
      asm volatile("atom.add.release.gpu.global.u32 %0, [%1], %2;"
                   : "=r"(before_)
                   : "l"(counter_), "r"(add)
                   : "memory");
    }
  }
  __device__ void Wait() {
    if (threadIdx.x == 0) {
      uint32_t now;
      do {
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
                     : "=r"(now)
                     : "l"(counter_)
                     : "memory");
      } while (((now ^ before_) & kTurn) == 0);
    }
    __syncthreads();
  }

 private:
  static constexpr uint32_t kTurn = 0x80000000u;
  uint32_t* counter_;
  uint32_t before_ = 0;
};

// The first of `count` things that share `share` of kChainWarps has.
__device__ inline int FirstOfWarp(int count, int share) {
  return share * (count / kChainWarps) + min(share, count % kChainWarps);
}

// A block's tiles of a stage, one after another, where gated gate and up of a
// job in turn: slots. Their units are counted through.
struct ChainSlots {
  __device__ explicit ChainSlots(const ChainStage& stage)
      : first_job(stage.jobs.First(static_cast<int>(blockIdx.x))),
        jobs(stage.jobs.First(static_cast<int>(blockIdx.x) + 1) - first_job),
        units((stage.gated ? 2 * jobs : jobs) * stage.units) {}
  __device__ int Tile(const ChainStage& stage, int slot) const {
    return stage.gated
               ? first_job + slot / 2 + (slot % 2 == 1 ? stage.jobs.count : 0)
               : first_job + slot;
  }
  int first_job;
  int jobs;
  int units;  // of all
};

// A warp's ring, filled in the order of its work by its first lane.
template <int kUnitBytes>
class ChainFeeder {
 public:
  __device__ ChainFeeder(const ChainShape& shape, int warp, uint32_t ring,
                         uint32_t full)
      : shape_(shape), warp_(warp), ring_(ring), full_(full) {
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy_));
  }

  // Fills a place with what comes next, if anything does.
  __device__ void Feed(int place) {
    if (left_ == 0) {
      NextStage();
      if (left_ == 0) return;
    }
    const int count = min(min(shape_.place_units, left_), of_tile_);
    const auto bytes = static_cast<uint32_t>(count * kUnitBytes);
    const uint32_t barrier = full_ + 8 * place;
    Expect(barrier, bytes);
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes."
        "L2::cache_hint [%0], [%1], %2, [%3], %4;" ::"r"(
            ring_ + place * shape_.place_units * kUnitBytes),
        "l"(from_), "r"(bytes), "r"(barrier), "l"(policy_)
        : "memory");
    from_ += bytes;
    left_ -= count;
    of_tile_ -= count;
    if (of_tile_ == 0 && left_ > 0) EnterTile(slot_ + 1, 0);
  }

 private:
  __device__ void EnterTile(int slot, int unit) {
    const ChainStage& stage = shape_.stages[stage_];
    slot_ = slot;
    of_tile_ = stage.units - unit;
    from_ = stage.w + ChainSlots(stage).Tile(stage, slot) * stage.tile_bytes +
            kQuantHeadBytes + int64_t{unit} * kUnitBytes;
  }
  // left_ stays 0 behind the last.
  __device__ void NextStage() {
    while (left_ == 0 && stage_ + 1 < shape_.count) {
      const ChainStage& stage = shape_.stages[++stage_];
      const int units = ChainSlots(stage).units;
      const int first = FirstOfWarp(units, warp_);
      left_ = FirstOfWarp(units, warp_ + 1) - first;
      const int slot = first / stage.units;
      if (left_ > 0) EnterTile(slot, first - slot * stage.units);
    }
  }

  const ChainShape& shape_;
  int warp_;
  uint32_t ring_;
  uint32_t full_;
  uint64_t policy_;
  int stage_ = -1;
  int slot_ = 0;
  int left_ = 0;     // units of the warp in the stage
  int of_tile_ = 0;  // of them in the slot's tile, or more
  const uint8_t* from_ = nullptr;
};

// Values that other blocks may have written in this launch: not from the
// first-level cache.
__device__ inline void LoadWritten(const float* from, float (&v)[kCudaVector]) {
#pragma unroll
  for (int i = 0; i < kCudaVector; i += 4) {
    const float4 four = __ldcg(reinterpret_cast<const float4*>(from + i));
    v[i] = four.x, v[i + 1] = four.y, v[i + 2] = four.z, v[i + 3] = four.w;
  }
}

// Eight neighbouring columns of a row of x, the `vector`-th eight, into shared
// memory, and the sum of their group. Half warps have neighbouring vectors; all
// lanes call it.
template <class Form, typename T>
__device__ inline void StoreChainX(const ChainShape& shape, uint8_t* shared,
                                   int row, int vector, bool is_there,
                                   const uint4& v) {
  if (is_there) {
    *reinterpret_cast<uint4*>(shared + shape.at.x + row * shape.at.x_stride +
                              vector * 16) = v;
  }
  if constexpr (Form::kMin) {
    constexpr int kLanes = Form::kGroup / kCudaVector;
    const uint32_t words[] = {v.x, v.y, v.z, v.w};
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 pair = WidenPair<T>(words[i]);
      sum += pair.x + pair.y;
    }
#pragma unroll
    for (int lanes = 1; lanes < kLanes; lanes *= 2) {
      sum += __shfl_xor_sync(0xffffffffu, sum, lanes);
    }
    if (is_there && vector % kLanes == 0) {
      reinterpret_cast<float*>(
          shared + shape.at.x_sums)[vector / kLanes * kChainRows + row] = sum;
    }
  }
}

// The rows of x that are given, and zeros up to whole units.
template <class Form, typename T>
__device__ void CopyChainX(const ChainStage& stage, const ChainShape& shape,
                           uint8_t* shared) {
  constexpr int kAtOnce = 4;
  const int vectors = stage.units * (kQuantColumns / kCudaVector);
#pragma unroll 1
  for (int r = 0; r < shape.m; ++r) {
    const auto* row = reinterpret_cast<const uint4*>(
        static_cast<const T*>(stage.x) + r * stage.x_stride);
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < (vectors + 31) / 32 * 32;
         i += kAtOnce * kChainThreads) {
      uint4 v[kAtOnce];
#pragma unroll
      for (int t = 0; t < kAtOnce; ++t) {
        const int vector = i + t * kChainThreads;
        v[t] = make_uint4(0, 0, 0, 0);
        if (vector * kCudaVector < stage.k) v[t] = __ldcg(row + vector);
      }
#pragma unroll
      for (int t = 0; t < kAtOnce; ++t) {
        const int vector = i + t * kChainThreads;
        StoreChainX<Form, T>(shape, shared, r, vector, vector < vectors, v[t]);
      }
    }
  }
}

// What a thread has in hand of a norm before hidden is there: the weights of
// its first columns.
struct ChainNorm {
  __device__ explicit ChainNorm(const ChainStage& stage) {
    const int column = static_cast<int>(threadIdx.x) * kCudaVector;
    if (stage.norm_weight != nullptr && column < stage.k) {
      LoadFloats(stage.norm_weight + column, weight);
    }
  }
  float weight[kCudaVector] = {1, 1, 1, 1, 1, 1, 1, 1};
};

// The norm of hidden's rows, in the order of rms_norm. What a thread squares
// first it normalises first, so that is read once.
template <class Form, typename T, int kRows>
__device__ void NormaliseChainX(const ChainStage& stage,
                                const ChainShape& shape, const ChainNorm& norm,
                                uint8_t* shared) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warps = RmsNormWarps(stage.k);
  const int own = static_cast<int>(threadIdx.x) * kCudaVector;
  auto* sums = reinterpret_cast<float*>(shared + shape.at.sums);
  float first[kRows][kCudaVector] = {};
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    if (r < shape.m && own < stage.k) {
      LoadWritten(shape.hidden + r * shape.hidden_stride + own, first[r]);
    }
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    if (r >= shape.m) break;
    const float* row = shape.hidden + r * shape.hidden_stride;
#pragma unroll 1
    for (int part = warp; part < warps; part += kChainWarps) {
      float squares = 0.0f;
      int i = (part * 32 + lane) * kCudaVector;
      if (part == warp) {
        squares = AddSquares(first[r], squares);
        i += warps * 32 * kCudaVector;
      }
#pragma unroll 1
      for (; i < stage.k; i += warps * 32 * kCudaVector) {
        float v[kCudaVector];
        LoadWritten(row + i, v);
        squares = AddSquares(v, squares);
      }
      squares = WarpSum(squares);
      if (lane == 0) sums[r * 32 + part] = squares;
    }
  }
  __syncthreads();
  const int vectors = stage.units * (kQuantColumns / kCudaVector);
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    if (r >= shape.m) break;
    const float squares = WarpSum(lane < warps ? sums[r * 32 + lane] : 0.0f);
    const float factor = RmsNormFactor(squares, stage.k, stage.epsilon);
    const float* row = shape.hidden + r * shape.hidden_stride;
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < (vectors + 31) / 32 * 32;
         i += kChainThreads) {
      const int column = i * kCudaVector;
      float v[kCudaVector] = {};
      if (i < kChainThreads) {
#pragma unroll
        for (int j = 0; j < kCudaVector; ++j) {
          v[j] = __fmul_rn(__fmul_rn(first[r][j], factor), norm.weight[j]);
        }
      } else if (column < stage.k) {
        LoadWritten(row + column, v);
        RmsNormScale(v, factor, stage.norm_weight, column);
      }
      uint4 bits;
      StoreFloats(reinterpret_cast<T*>(&bits), v);
      StoreChainX<Form, T>(shape, shared, r, i, i < vectors, bits);
    }
  }
}

// A warp's share of a stage, tile by tile, into its places among the partial
// sums.
template <class Form, typename T>
__device__ void MultiplyChain(const ChainStage& stage, const ChainShape& shape,
                              const ChainSlots& slots, uint8_t* shared,
                              uint32_t base, uint32_t full, RingTurn& turn,
                              ChainFeeder<Form::kUnitBytes>& feeder) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int place_bytes = shape.place_units * Form::kUnitBytes;
  const uint8_t* ring =
      shared + shape.at.rings + warp * shape.ring * place_bytes;
  const auto* x_sums =
      reinterpret_cast<const float*>(shared + shape.at.x_sums) +
      lane % (kChainRows / 2) * 2;
  auto* starts = reinterpret_cast<uint16_t*>(shared + shape.at.starts);
  // Columns of products are rows of x: what the others are does not matter, so
  // rows that x has not are its first. Loads depend on this, which is made once
  // x is there, and are otherwise the compiler's to place.
  uint32_t x = base + shape.at.x + lane / 8 * 16 +
               (lane % 8 < shape.m ? lane % 8 : 0) * shape.at.x_stride;
  asm volatile("" : "+r"(x)::"memory");
  int unit = FirstOfWarp(slots.units, warp);
  int left = FirstOfWarp(slots.units, warp + 1) - unit;
  int slot = unit / stage.units;
  unit -= slot * stage.units;
#pragma unroll 1
  for (int piece = 0; left > 0; ++piece, ++slot, unit = 0) {
    int count = min(left, stage.units - unit);
    left -= count;
    const auto* factors = reinterpret_cast<const float*>(
        stage.w + slots.Tile(stage, slot) * stage.tile_bytes);
    const float factor[] = {factors[lane / 4], factors[lane / 4 + 8]};
    // Who comes after begins within the tile.
    if (unit == 0 && lane == 0) {
      starts[slot] = static_cast<uint16_t>(warp << 8 | piece);
    }
    float sums[4] = {};
    uint32_t x_at = x + unit * (kQuantColumns * 2);
    const float* sums_at = x_sums + unit * (Form::kGroups * kChainRows);
#pragma unroll 1
    while (count > 0) {
      int here = min(shape.place_units, count);
      count -= here;
      const uint8_t* from = ring + turn.stage * place_bytes;
      Await(full + 8 * turn.stage, turn.parity);
      const auto add = [&](int i) {
        AddChainUnit<Form, T>(
            from + i * Form::kUnitBytes, x_at + i * (kQuantColumns * 2),
            sums_at + i * (Form::kGroups * kChainRows), kChainRows, sums);
      };
      // Two at a time: their products do not wait for each other.
      const auto go_on = [&](int i) {
        from += i * Form::kUnitBytes;
        x_at += i * (kQuantColumns * 2);
        sums_at += i * (Form::kGroups * kChainRows);
        here -= i;
      };
#pragma unroll 1
      while (here > 1) {
        add(0);
        add(1);
        go_on(2);
      }
      if (here > 0) {
        add(0);
        go_on(1);
      }
      __syncwarp();
      if (lane == 0) feeder.Feed(turn.stage);
      turn.Next(shape.ring);
    }
    if (lane % 4 < kChainRows / 2) {
      auto* to =
          reinterpret_cast<float*>(shared + shape.at.partials) +
          ((warp * shape.pieces + piece) * kQuantRows + lane / 4) * kChainRows +
          lane % 4 * 2;
      *reinterpret_cast<float2*>(to) =
          make_float2(sums[0] * factor[0], sums[1] * factor[0]);
      *reinterpret_cast<float2*>(to + 8 * kChainRows) =
          make_float2(sums[2] * factor[1], sums[3] * factor[1]);
    }
  }
}

// The outputs of a stage that a thread finishes: bias, activation, and where
// they go. What is added to the first is read before the products.
template <typename T>
class ChainFinish {
 public:
  __device__ ChainFinish(const ChainStage& stage, const ChainShape& shape,
                         const ChainSlots& slots)
      : stage_(stage), shape_(shape), slots_(slots) {
    const Output own = OutputOf(kJobOfThread());
    if (own.is_there) added_ = Added(own);
  }
  __device__ void Run(const uint8_t* shared) const {
    constexpr int kJobs = kChainThreads / (kQuantRows * kChainRows);
    for (int job = kJobOfThread(); job < slots_.jobs; job += kJobs) {
      const Output out = OutputOf(job);
      if (!out.is_there) continue;
      const float2 added = job < kJobs ? added_ : Added(out);
      if (stage_.gated) {
        Store(out, Gate(Sum(shared, 2 * job, out) + added.x,
                        Sum(shared, 2 * job + 1, out) + added.y));
      } else {
        Store(out, Sum(shared, job, out) + added.x);
      }
    }
  }

 private:
  struct Output {
    bool is_there;
    int m;
    int row;  // of the tile
    int n;
  };
  // Threads: rows of a tile, rows of x, jobs.
  __device__ static int kJobOfThread() {
    return static_cast<int>(threadIdx.x) / (kQuantRows * kChainRows);
  }
  __device__ Output OutputOf(int job) const {
    Output out;
    out.row = static_cast<int>(threadIdx.x) % kQuantRows;
    out.m = static_cast<int>(threadIdx.x) / kQuantRows % kChainRows;
    out.n = (slots_.first_job + job) * kQuantRows + out.row;
    out.is_there = job < slots_.jobs && out.m < shape_.m && out.n < stage_.n;
    return out;
  }
  __device__ float* Hidden(const Output& out) const {
    return shape_.hidden + out.m * shape_.hidden_stride + out.n;
  }
  // Bias, and hidden where it is added to; of gate and up.
  __device__ float2 Added(const Output& out) const {
    float2 added = make_float2(0.0f, 0.0f);
    if (stage_.bias != nullptr) {
      added.x = stage_.bias[out.n];
      if (stage_.gated) added.y = stage_.bias[stage_.n + out.n];
    }
    if (stage_.y == nullptr) added.x += __ldcg(Hidden(out));
    return added;
  }
  // Over the slices of K: the first is a piece of some warp's, the others are
  // the first pieces of the warps behind it.
  __device__ float Sum(const uint8_t* shared, int slot,
                       const Output& out) const {
    const auto* partials =
        reinterpret_cast<const float*>(shared + shape_.at.partials) +
        out.row * kChainRows + out.m;
    const int start =
        reinterpret_cast<const uint16_t*>(shared + shape_.at.starts)[slot];
    constexpr int kPiece = kQuantRows * kChainRows;
    int warp = start >> 8;
    float sum = partials[(warp * shape_.pieces + (start & 255)) * kPiece];
    const int end = (slot + 1) * stage_.units;
    while (++warp < kChainWarps && FirstOfWarp(slots_.units, warp) < end) {
      sum += partials[warp * shape_.pieces * kPiece];
    }
    return sum;
  }
  // Rounded as between the ops apart.
  __device__ float Gate(float gate, float up) const {
    gate = ToFloat(FromFloat<T>(gate));
    up = ToFloat(FromFloat<T>(up));
    return ApplyActivation(stage_.function, gate) * up;
  }
  __device__ void Store(const Output& out, float value) const {
    if (stage_.y == nullptr) {
      *Hidden(out) = value;
    } else {
      static_cast<T*>(stage_.y)[out.m * stage_.y_stride + out.n] =
          FromFloat<T>(value);
    }
  }

  const ChainStage& stage_;
  const ChainShape& shape_;
  const ChainSlots& slots_;
  float2 added_ = {0.0f, 0.0f};
};

// kRows: of x, at most.
template <class Form, typename T, int kRows>
__global__ void __launch_bounds__(kChainThreads, 1)
    LinearChain(const __grid_constant__ ChainShape shape) {
  extern __shared__ __align__(1024) uint8_t chain_shared[];
  LetNextBegin();
  const auto base =
      static_cast<uint32_t>(__cvta_generic_to_shared(chain_shared));
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const uint32_t full = base + warp * kMostChainRing * 8;
  ChainFeeder<Form::kUnitBytes> feeder(
      shape, warp,
      base + shape.at.rings +
          warp * shape.ring * shape.place_units * Form::kUnitBytes,
      full);
  if (threadIdx.x % 32 == 0) {
#pragma unroll 1
    for (int i = 0; i < shape.ring; ++i) InitBarrier(full + 8 * i, 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#pragma unroll 1
    for (int i = 0; i < shape.ring; ++i) feeder.Feed(i);
  }
  __syncwarp();
  WaitForPrevious();
  GridBarrier grid(shape.barrier);
  RingTurn turn;
#pragma unroll 1
  for (int s = 0; s < shape.count; ++s) {
    const ChainStage& stage = shape.stages[s];
    const ChainSlots slots(stage);
    const ChainNorm norm(stage);
    // What is added to was written by this block, if by any of this launch.
    const ChainFinish<T> finish(stage, shape, slots);
    if (s > 0) grid.Wait();
    if (stage.x != nullptr) {
      CopyChainX<Form, T>(stage, shape, chain_shared);
    } else {
      NormaliseChainX<Form, T, kRows>(stage, shape, norm, chain_shared);
    }
    __syncthreads();
    MultiplyChain<Form, T>(stage, shape, slots, chain_shared, base, full, turn,
                           feeder);
    __syncthreads();
    finish.Run(chain_shared);
    grid.Arrive();
  }
  // The last arrival is waited for by whoever comes next: the counter is whole
  // once this grid is complete.
}

// Cooperative: all blocks are there at once, or the launch fails. It may begin
// before the kernel before it has ended, as those of LaunchCuda.
template <class Form, typename T, int kRows>
absl::Status LaunchChainRows(const ChainShape& shape, CudaStream& stream) {
  constexpr char kWhat[] = "linear_chain";
  const auto kernel = LinearChain<Form, T, kRows>;
  INLAY_RETURN_IF_ERROR(AllowShared(
      kWhat, reinterpret_cast<const void*>(kernel), shape.at.bytes));
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeCooperative;
  attributes[1].val.cooperative = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(stream.num_sms()));
  config.blockDim = dim3(kChainThreads);
  config.dynamicSmemBytes = shape.at.bytes;
  config.stream = stream.handle();
  config.attrs = attributes;
  config.numAttrs = 2;
  return CudaStatus(cudaLaunchKernelEx(&config, kernel, shape), kWhat);
}

template <class Form, typename T>
absl::Status LaunchChainTyped(const ChainShape& shape, CudaStream& stream) {
  return shape.m == 1 ? LaunchChainRows<Form, T, 1>(shape, stream)
                      : LaunchChainRows<Form, T, kChainRows>(shape, stream);
}

}  // namespace

template <class Form>
absl::Status LaunchChain(const ChainShape& shape, DType type,
                         CudaStream& stream) {
  return type == DType::kF16
             ? LaunchChainTyped<Form, __half>(shape, stream)
             : LaunchChainTyped<Form, __nv_bfloat16>(shape, stream);
}

}  // namespace inlay

#endif  // INLAY_KERNELS_LINEAR_CHAIN_LINEAR_CHAIN_SM90_CUH_
