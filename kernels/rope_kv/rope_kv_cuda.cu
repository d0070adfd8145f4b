// rope_kv on CUDA. Aims at the memory's bandwidth: qkv read, q and the cache
// written; at few tokens at the latency of one pass.
//
// Two kernels. Heads of 64, 128 or 256 elements, turned whole or not at all,
// for caches of plain floats: kGroup lanes a head, 8 elements of its first half
// each and the 8 of the second that belong to them, so that nothing is
// exchanged between lanes but sums of squares. With many tokens a block takes
// one, kHeads heads a thread, all loaded before the first is turned, and angles
// are read once for them; with few, several blocks do, a head a thread. No
// shared memory. All others: a warp a head, which lies in shared memory
// (head_dim floats a warp) while it changes. Both sum squares as rms_norm does
// and round where the separate ops would have stored.
#include "kernels/cpu_float.h"
#include "kernels/cuda_row.cuh"
#include "kernels/kv_write/kv_row.cuh"
#include "kernels/rms_norm/rms_norm.cuh"
#include "kernels/rope/rope.cuh"
#include "kernels/rope_kv/rope_kv.h"

namespace inlay {
namespace {

constexpr int kThreads = 128;
constexpr int kHeads = 3;  // that a thread has at once
constexpr int64_t kFewTokens = 64;
constexpr int kWarps = 4;  // of a block where a warp has a head

struct Args {
  explicit Args(const RopeKvDesc& desc, const RopeKvParams& params)
      : tokens(params.qkv.rows()),
        num_heads(desc.num_heads),
        num_kv_heads(desc.num_kv_heads),
        head_dim(desc.head_dim),
        pairs(desc.rotary_dim / 2),
        half(desc.style == RopeStyle::kHalf),
        normalised{desc.q_norm, desc.k_norm},
        norms{params.q_norm, params.k_norm},
        cos(params.cos),
        sin(params.sin),
        slots(params.slots),
        format(desc.kv),
        kv(params.kv) {}

  int64_t tokens;
  int num_heads;
  int num_kv_heads;
  int head_dim;
  int pairs;
  bool half;
  bool normalised[2];  // q, k
  HeadNorm norms[2];
  const float* cos;
  const float* sin;
  const int64_t* slots;
  DType format;
  CudaKvLayer kv;
};

// What a head of a fused row is.
struct Head {
  __device__ Head(const Args& args, int index)
      : part(index < args.num_heads                       ? 0
             : index < args.num_heads + args.num_kv_heads ? 1
                                                          : 2),
        kv_head(part == 0 ? 0 : (index - args.num_heads) % args.num_kv_heads) {}
  int part;  // 0: q, 1: k, 2: v
  int kv_head;
};

template <typename T>
__device__ float Rounded(float x) {
  return ToFloat(FromFloat<T>(x));
}

// 8 elements as they lie in memory.
template <typename T>
struct Raw {
  uint4 bits[sizeof(T) / 2];
};

template <typename T>
__device__ Raw<T> LoadRaw(const T* from) {
  Raw<T> raw;
#pragma unroll
  for (size_t i = 0; i < sizeof(T) / 2; ++i) {
    raw.bits[i] = reinterpret_cast<const uint4*>(from)[i];
  }
  return raw;
}

// Said outright: the compiler cuts it into four where paths meet before it.
__device__ inline void Store16(void* to, const uint4& bits) {
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to),
               "r"(bits.x), "r"(bits.y), "r"(bits.z), "r"(bits.w)
               : "memory");
}

template <typename T>
__device__ void StoreRaw(T* to, const Raw<T>& raw) {
#pragma unroll
  for (size_t i = 0; i < sizeof(T) / 2; ++i) {
    Store16(reinterpret_cast<uint4*>(to) + i, raw.bits[i]);
  }
}

// Whether the cache holds `raw` as it is: it has T's format, and there is no
// NaN, whose bits it may change.
template <typename T>
__device__ bool IsCached(DType format, const Raw<T>& raw) {
  if constexpr (sizeof(T) == 4) {
    return format == DType::kF32;
  } else {
    constexpr bool kHalf = std::is_same_v<T, __half>;
    using Pair = std::conditional_t<kHalf, __half2, __nv_bfloat162>;
    if (format != (kHalf ? DType::kF16 : DType::kBF16)) return false;
    const auto* pairs = reinterpret_cast<const Pair*>(&raw.bits[0]);
    const Pair most = __hmax2_nan(__hmax2_nan(pairs[0], pairs[1]),
                                  __hmax2_nan(pairs[2], pairs[3]));
    return __hbeq2(most, most);
  }
}

// A row of the cache, plain floats, 8 elements from `first` on.
template <typename T>
__device__ void StoreKv(DType format, std::byte* row, int first,
                        const Raw<T>& raw) {
  if (IsCached(format, raw)) {
    StoreRaw(reinterpret_cast<T*>(row) + first, raw);
    return;
  }
  float v[kCudaVector];
  LoadFloats<kCudaVector>(reinterpret_cast<const T*>(&raw), v);
  if (format == DType::kF32) {
    StoreFloats<kCudaVector>(reinterpret_cast<float*>(row) + first, v);
    return;
  }
  uint32_t words[4];
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const float low = v[2 * j];
    const float high = v[2 * j + 1];
    words[j] = format == DType::kF16
                   ? RoundToF16(low) | uint32_t{RoundToF16(high)} << 16
                   : RoundToBF16(low) | uint32_t{RoundToBF16(high)} << 16;
  }
  *reinterpret_cast<uint4*>(reinterpret_cast<uint16_t*>(row) + first) =
      make_uint4(words[0], words[1], words[2], words[3]);
}

// Cosines and sines of a lane's 8 pairs: those of its 8 columns of each half
// of a head, or of the four pairs side by side in either half.
struct Angles {
  __device__ Angles(const Args& args, unsigned token, int first) {
    if (args.pairs == 0) return;
    const int64_t row = int64_t{token} * args.pairs;
    Load(args, args.cos + row, first, cos);
    Load(args, args.sin + row, first, sin);
  }
  __device__ static void Load(const Args& args, const float* from, int first,
                              float (&to)[kCudaVector]) {
    if (args.half) {
      LoadFloats<kCudaVector>(from + first, to);
      return;
    }
    float low[4];
    float high[4];
    LoadFloats<4>(from + first / 2, low);
    LoadFloats<4>(from + (first + args.pairs) / 2, high);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      to[j] = low[j];
      to[4 + j] = high[j];
    }
  }
  float cos[kCudaVector];
  float sin[kCudaVector];
};

// A lane's part of a head: 8 elements from `first` on and the 8 that are half a
// head further.
template <typename T>
struct HeadPart {
  __device__ void Load(const T* head, int half_dim) {
    low = LoadRaw(head);
    high = LoadRaw(head + half_dim);
  }
  __device__ void Widen(float (&a)[kCudaVector],
                        float (&b)[kCudaVector]) const {
    LoadFloats<kCudaVector>(reinterpret_cast<const T*>(&low), a);
    LoadFloats<kCudaVector>(reinterpret_cast<const T*>(&high), b);
  }
  __device__ void Narrow(const float (&a)[kCudaVector],
                         const float (&b)[kCudaVector]) {
    StoreFloats<kCudaVector>(reinterpret_cast<T*>(&low), a);
    StoreFloats<kCudaVector>(reinterpret_cast<T*>(&high), b);
  }
  Raw<T> low = {};
  Raw<T> high = {};
};

template <typename T>
__device__ void TurnPart(const Args& args, const Angles& angles,
                         HeadPart<T>& part) {
  float a[kCudaVector];
  float b[kCudaVector];
  part.Widen(a, b);
  if (args.half) {
#pragma unroll
    for (int j = 0; j < kCudaVector; ++j) {
      TurnPair(a[j], b[j], angles.cos[j], angles.sin[j]);
    }
  } else {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      TurnPair(a[2 * j], a[2 * j + 1], angles.cos[j], angles.sin[j]);
      TurnPair(b[2 * j], b[2 * j + 1], angles.cos[4 + j], angles.sin[4 + j]);
    }
  }
  part.Narrow(a, b);
}

// The norm of a head of kGroup lanes. All lanes of the warp call it; those of
// other heads may keep theirs.
template <typename T, int kGroup>
__device__ void NormalisePart(const Args& args, int norm, int first,
                              HeadPart<T>& part) {
  float a[kCudaVector];
  float b[kCudaVector];
  part.Widen(a, b);
  float squares = AddSquares(a, 0.0f) + AddSquares(b, 0.0f);
#pragma unroll
  for (int lane = kGroup / 2; lane > 0; lane /= 2) {
    squares += __shfl_xor_sync(kFullWarp, squares, lane);
  }
  if (norm > 1 || !args.normalised[norm]) return;
  const HeadNorm& of = args.norms[norm];
  const float factor = RmsNormFactor(squares, args.head_dim, of.epsilon);
  RmsNormScale(a, factor, of.weight, first);
  RmsNormScale(b, factor, of.weight, first + args.head_dim / 2);
  part.Narrow(a, b);
}

template <typename T, int kGroup>
__global__ void __launch_bounds__(kThreads)
    RopeKvVector(CudaMatrix<T> qkv, const __grid_constant__ Args args,
                 unsigned blocks_a_token) {
  LetNextBegin();
  WaitForPrevious();
  constexpr int kGroups = kThreads / kGroup;
  constexpr int kHeadDim = 2 * kGroup * kCudaVector;
  const unsigned token = blockIdx.x / blocks_a_token;
  const unsigned block = blockIdx.x - token * blocks_a_token;
  const int first = threadIdx.x % kGroup * kCudaVector;
  const int heads = args.num_heads + 2 * args.num_kv_heads;
  const int values = args.num_heads + args.num_kv_heads;  // the first head
  const int stride = static_cast<int>(kGroups * blocks_a_token);
  T* const row = qkv.row(token) + first;
  int mine = static_cast<int>(block * kGroups + threadIdx.x / kGroup);
  HeadPart<T> parts[kHeads];
  const auto load = [&] {
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
      const int index = mine + h * stride;
      parts[h] = {};
      if (index < heads) parts[h].Load(row + index * kHeadDim, kHeadDim / 2);
    }
  };
  // Before the slot, so that nothing waits for two loads one after the other.
  load();
  const int64_t slot = args.slots[token];
  const Angles angles(args, token, first);
  std::byte* const keys = args.kv.Row(false, max(slot, int64_t{0}), 0);
  const int64_t head_bytes = args.kv.row_bytes * args.kv.block_size;
  while (true) {
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
      const int index = mine + h * stride;
      if (args.normalised[0] || args.normalised[1]) {
        const int norm = index < args.num_heads ? 0 : index < values ? 1 : 2;
        NormalisePart<T, kGroup>(args, norm, first, parts[h]);
      }
      if (index >= heads) continue;
      if (index < values && args.pairs > 0) TurnPart(args, angles, parts[h]);
      if (index < args.num_heads) {
        StoreRaw(row + index * kHeadDim, parts[h].low);
        StoreRaw(row + index * kHeadDim + kHeadDim / 2, parts[h].high);
      } else if (slot >= 0) {
        const bool value = index >= values;
        std::byte* const to =
            keys + (index - (value ? values : args.num_heads)) * head_bytes +
            (value ? args.kv.value_offset - args.kv.key_offset : 0);
        StoreKv(args.format, to, first, parts[h].low);
        StoreKv(args.format, to, first + kHeadDim / 2, parts[h].high);
      }
    }
    mine += kHeads * stride;
    // Warps stay whole: sums of squares are of all lanes.
    if (!__any_sync(kFullWarp, mine < heads)) break;
    load();
  }
}

struct SharedRow {
  __device__ float operator()(int i) const { return x[i]; }
  template <int kCount>
  __device__ void Load(int i, float (&to)[kCount]) const {
#pragma unroll
    for (int j = 0; j < kCount; ++j) to[j] = x[i + j];
  }
  const float* x;
};

// x[0 .. head_dim) in shared memory becomes its norm; squares are summed as
// rms_norm does with rows on 16 bytes.
template <typename T>
__device__ void NormaliseRow(const Args& args, const HeadNorm& norm, int lane,
                             float* x) {
  const int step = args.head_dim % kCudaVector == 0 ? kCudaVector : 1;
  float squares = 0.0f;
  for (int i = lane * step; i < args.head_dim; i += 32 * step) {
    for (int j = 0; j < step; ++j) squares = fmaf(x[i + j], x[i + j], squares);
  }
  const float factor =
      RmsNormFactor(WarpSum(squares), args.head_dim, norm.epsilon);
  __syncwarp();
  for (int i = lane; i < args.head_dim; i += 32) {
    float v[1] = {x[i]};
    RmsNormScale(v, factor, norm.weight, i);
    x[i] = Rounded<T>(v[0]);
  }
  __syncwarp();
}

template <typename T>
__device__ void TurnRow(const Args& args, int64_t token, int lane, float* x) {
  for (int pair = lane; pair < args.pairs; pair += 32) {
    float& a = x[args.half ? pair : 2 * pair];
    float& b = x[args.half ? pair + args.pairs : 2 * pair + 1];
    TurnPair(a, b, args.cos[token * args.pairs + pair],
             args.sin[token * args.pairs + pair]);
    a = Rounded<T>(a);
    b = Rounded<T>(b);
  }
  __syncwarp();
}

template <typename T>
__global__ void __launch_bounds__(32 * kWarps)
    RopeKvRows(CudaMatrix<T> qkv, const __grid_constant__ Args args) {
  extern __shared__ float rows[];
  LetNextBegin();
  WaitForPrevious();
  const int lane = threadIdx.x % 32;
  const int heads = args.num_heads + 2 * args.num_kv_heads;
  const int64_t warp = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  const int64_t token = warp / heads;
  if (token >= args.tokens) return;
  const int index = static_cast<int>(warp % heads);
  const Head head(args, index);
  const int64_t slot = head.part > 0 ? args.slots[token] : -1;
  if (head.part > 0 && slot < 0) return;
  T* const at = qkv.row(token) + int64_t{index} * args.head_dim;
  float* const x = rows + threadIdx.x / 32 * args.head_dim;
  for (int i = lane; i < args.head_dim; i += 32) x[i] = ToFloat(at[i]);
  __syncwarp();
  if (head.part < 2) {
    if (args.normalised[head.part]) {
      NormaliseRow<T>(args, args.norms[head.part], lane, x);
    }
    TurnRow<T>(args, token, lane, x);
  }
  if (head.part == 0) {
    for (int i = lane; i < args.head_dim; i += 32) at[i] = FromFloat<T>(x[i]);
    return;
  }
  std::byte* const to = args.kv.Row(head.part == 2, slot, head.kv_head);
  const auto encode = [&](auto format) {
    WarpEncodeKvRow<decltype(format)::value, 1>(lane, args.head_dim,
                                                SharedRow{x}, to);
  };
  switch (args.format) {
    case DType::kF16:
      return encode(std::integral_constant<DType, DType::kF16>{});
    case DType::kBF16:
      return encode(std::integral_constant<DType, DType::kBF16>{});
    case DType::kI8:
      return encode(std::integral_constant<DType, DType::kI8>{});
    case DType::kF8E4M3:
      return encode(std::integral_constant<DType, DType::kF8E4M3>{});
    case DType::kKvQ4:
      return encode(std::integral_constant<DType, DType::kKvQ4>{});
    default:
      return encode(std::integral_constant<DType, DType::kF32>{});
  }
}

template <typename T, int kGroup>
absl::Status LaunchVector(const Args& args, const RopeKvParams& params,
                          CudaStream& stream) {
  const int threads = (args.num_heads + 2 * args.num_kv_heads) * kGroup;
  const int blocks =
      args.tokens > kFewTokens ? 1 : (threads + kThreads - 1) / kThreads;
  return LaunchCuda("rope_kv", stream, {args.tokens * blocks, kThreads},
                    RopeKvVector<T, kGroup>, CudaMatrix<T>(params.qkv), args,
                    static_cast<unsigned>(blocks));
}

template <typename T>
absl::Status Launch(const RopeKvDesc& desc, const RopeKvParams& params,
                    CudaStream& stream) {
  const Args args(desc, params);
  const bool vector = IsCudaVector(desc.head_dim, {&params.qkv}) &&
                      IsCudaVector(params.q_norm.weight) &&
                      IsCudaVector(params.k_norm.weight);
  const bool whole = desc.rotary_dim == 0 ||
                     (desc.rotary_dim == desc.head_dim &&
                      IsCudaVector(params.cos) && IsCudaVector(params.sin));
  if (vector && whole && IsPlainFloat(desc.kv) && args.kv.IsVector()) {
    switch (desc.head_dim) {
      case 64:
        return LaunchVector<T, 4>(args, params, stream);
      case 128:
        return LaunchVector<T, 8>(args, params, stream);
      case 256:
        return LaunchVector<T, 16>(args, params, stream);
      default:
        break;
    }
  }
  const int64_t warps = args.tokens * (desc.num_heads + 2 * desc.num_kv_heads);
  CudaGrid grid;
  grid.blocks = (warps + kWarps - 1) / kWarps;
  grid.threads = 32 * kWarps;
  grid.shared_bytes = static_cast<size_t>(kWarps * desc.head_dim) * 4;
  return LaunchCuda("rope_kv", stream, grid, RopeKvRows<T>,
                    CudaMatrix<T>(params.qkv), args);
}

}  // namespace

absl::Status RunRopeKvCuda(const RopeKvDesc& desc, const RopeKvParams& params,
                           Stream& stream) {
  CudaStream& cuda = CudaStream::Of(stream);
  return WithFloatType(desc.activation, [&](auto type) {
    return Launch<decltype(type)>(desc, params, cuda);
  });
}

}  // namespace inlay
