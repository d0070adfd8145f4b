// rope_kv on CUDA. Aims at the memory's bandwidth: qkv read, q and the cache
// written; at few tokens at the latency of one pass.
//
// Two kernels. Heads of 64, 128 or 256 elements, turned whole or not at all,
// for caches of plain floats: kGroup lanes a head, 8 elements each. With many
// tokens a block takes one, kHeads heads a thread, which reads its angles once;
// with few, several blocks do, a head a thread. The halves of a head meet by
// shuffles, no shared memory. All others:
// a warp a head, which lies in shared memory (head_dim floats a warp) while it
// changes. Both sum squares as rms_norm does and round where the separate ops
// would have stored.
#include "kernels/cpu_float.h"
#include "kernels/cuda_row.cuh"
#include "kernels/kv_write/kv_row.cuh"
#include "kernels/rms_norm/rms_norm.cuh"
#include "kernels/rope/rope.cuh"
#include "kernels/rope_kv/rope_kv.h"

namespace inlay {
namespace {

constexpr int kThreads = 256;
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

// A row of the cache, plain floats, 8 elements from `first` on.
__device__ void StoreKv(DType format, std::byte* row, int first,
                        const float (&v)[kCudaVector]) {
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

// Cosines and sines of a lane's elements: of the pair that each belongs to, or
// of four pairs side by side.
struct Angles {
  __device__ Angles(const Args& args, int64_t token, int first) {
    if (args.pairs == 0) return;
    const float* const c = args.cos + token * args.pairs;
    const float* const s = args.sin + token * args.pairs;
    if (args.half) {
      const int pair = first < args.pairs ? first : first - args.pairs;
      LoadFloats<kCudaVector>(c + pair, cos);
      LoadFloats<kCudaVector>(s + pair, sin);
      return;
    }
    float four[4];
    LoadFloats<4>(c + first / 2, four);
#pragma unroll
    for (int j = 0; j < 4; ++j) cos[j] = four[j];
    LoadFloats<4>(s + first / 2, four);
#pragma unroll
    for (int j = 0; j < 4; ++j) sin[j] = four[j];
  }
  float cos[kCudaVector];
  float sin[kCudaVector];
};

// Turns the lane's 8 elements of a head, which begin at `first`. All lanes of
// the warp call it.
template <typename T, int kGroup>
__device__ void TurnVector(const Args& args, const Angles& angles, int first,
                           float (&v)[kCudaVector]) {
  if (!args.half) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      TurnPair(v[2 * j], v[2 * j + 1], angles.cos[j], angles.sin[j]);
    }
  } else {
    const bool upper = first >= args.pairs;
#pragma unroll
    for (int j = 0; j < kCudaVector; ++j) {
      const float other = __shfl_xor_sync(kFullWarp, v[j], kGroup / 2);
      float a = upper ? other : v[j];
      float b = upper ? v[j] : other;
      TurnPair(a, b, angles.cos[j], angles.sin[j]);
      v[j] = upper ? b : a;
    }
  }
#pragma unroll
  for (int j = 0; j < kCudaVector; ++j) v[j] = Rounded<T>(v[j]);
}

// The norm of a head of kGroup lanes. All lanes of the warp call it.
template <typename T, int kGroup>
__device__ void NormaliseVector(const Args& args, const HeadNorm& norm,
                                int first, float (&v)[kCudaVector]) {
  float squares = AddSquares(v, 0.0f);
#pragma unroll
  for (int lane = kGroup / 2; lane > 0; lane /= 2) {
    squares += __shfl_xor_sync(kFullWarp, squares, lane);
  }
  RmsNormScale(v, RmsNormFactor(squares, args.head_dim, norm.epsilon),
               norm.weight, first);
#pragma unroll
  for (int j = 0; j < kCudaVector; ++j) v[j] = Rounded<T>(v[j]);
}

// What happens to a lane's 8 elements of a head. All lanes of the warp call it;
// not all of them need have the same part.
template <typename T, int kGroup>
__device__ void ChangeVector(const Args& args, const Angles& angles, int part,
                             int first, float (&v)[kCudaVector]) {
  if (__all_sync(kFullWarp, part == 2)) return;
  float u[kCudaVector];
#pragma unroll
  for (int j = 0; j < kCudaVector; ++j) u[j] = v[j];
  const int norm = min(part, 1);
  if (args.normalised[0] || args.normalised[1]) {
    NormaliseVector<T, kGroup>(args, args.norms[norm], first, u);
#pragma unroll
    for (int j = 0; j < kCudaVector; ++j) {
      u[j] = args.normalised[norm] ? u[j] : v[j];
    }
  }
  if (args.pairs > 0) TurnVector<T, kGroup>(args, angles, first, u);
#pragma unroll
  for (int j = 0; j < kCudaVector; ++j) v[j] = part < 2 ? u[j] : v[j];
}

template <typename T, int kGroup>
__global__ void __launch_bounds__(kThreads, 4)
    RopeKvVector(CudaMatrix<T> qkv, const __grid_constant__ Args args,
                 int blocks_a_token) {
  LetNextBegin();
  WaitForPrevious();
  const int64_t token = blockIdx.x / blocks_a_token;
  constexpr int kGroups = kThreads / kGroup;
  const int first = threadIdx.x % kGroup * kCudaVector;
  const int heads = args.num_heads + 2 * args.num_kv_heads;
  T* const row = qkv.row(token) + first;
  const int64_t slot = args.slots[token];
  const Angles angles(args, token, first);
  const int stride = kGroups * blocks_a_token;
  const int block = static_cast<int>(blockIdx.x) % blocks_a_token;
  for (int base = block * kGroups; base < heads; base += kHeads * stride) {
    const int mine = base + threadIdx.x / kGroup;
    float v[kHeads][kCudaVector] = {};
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
      const int index = mine + h * stride;
      if (index >= heads) continue;
      LoadFloats<kCudaVector>(row + index * args.head_dim, v[h]);
    }
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
      const int index = mine + h * stride;
      // Warps stay whole: lanes beyond the last head go along without storing.
      if (__all_sync(kFullWarp, index >= heads)) break;
      const Head head(args, index);
      ChangeVector<T, kGroup>(args, angles, head.part, first, v[h]);
      if (index >= heads) continue;
      if (head.part == 0) {
        StoreFloats<kCudaVector>(row + index * args.head_dim, v[h]);
      } else if (slot >= 0) {
        StoreKv(args.format, args.kv.Row(head.part == 2, slot, head.kv_head),
                first, v[h]);
      }
    }
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
                    blocks);
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
        return LaunchVector<T, 8>(args, params, stream);
      case 128:
        return LaunchVector<T, 16>(args, params, stream);
      case 256:
        return LaunchVector<T, 32>(args, params, stream);
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
