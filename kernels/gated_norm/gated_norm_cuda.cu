// gated_norm on CUDA, a group as rms_norm has a row: a warp up to
// kWarpRowWidth, otherwise a block. A thread's first vector stays in
// registers, its weight there before the kernels queued before have ended; what
// follows takes two passes, the second out of the first-level cache. Sums in
// float32, a fixed tree; rounded once. Aims at the memory's bandwidth: x and z
// read, y written.
#include "kernels/cuda_row.cuh"
#include "kernels/gated_norm/gated_norm.cuh"
#include "kernels/rms_norm/rms_norm.cuh"

namespace inlay {
namespace {

template <typename T>
struct Args {
  GatedNormDesc desc;
  CudaMatrix<const T> x;
  CudaMatrix<const T> z;
  CudaMatrix<T> y;
  const float* weight;
  float epsilon;
  int64_t groups;  // of all rows
};

// A vector of a group.
template <typename T, int kVector>
struct Part {
  __device__ void Load(const T* x) { LoadFloats<kVector>(x, v); }

  // Of the elements at z.
  __device__ void LoadGate(const GatedNormDesc& desc, const T* z) {
    if (desc.gate == GateFunction::kNone) return;
    LoadFloats<kVector>(z, gate);
#pragma unroll
    for (int j = 0; j < kVector; ++j) gate[j] = GateFactor(desc, gate[j]);
  }

  __device__ void LoadWeight(const float* weight) {
    if (weight != nullptr) LoadFloats<kVector>(weight, w);
  }

  __device__ float AddTo(const GatedNormDesc& desc, float squares) const {
    float of[kVector];
#pragma unroll
    for (int j = 0; j < kVector; ++j) {
      of[j] = v[j];
      if (desc.gate_first && desc.gate != GateFunction::kNone) {
        of[j] = __fmul_rn(of[j], gate[j]);
      }
    }
    return AddSquares(of, squares);
  }

  __device__ void Write(const GatedNormDesc& desc, float factor,
                        bool has_weight, T* y) {
#pragma unroll
    for (int j = 0; j < kVector; ++j) {
      v[j] = __fmul_rn(v[j], factor);
      if (has_weight) v[j] = __fmul_rn(v[j], w[j]);
      if (desc.gate != GateFunction::kNone) v[j] = __fmul_rn(v[j], gate[j]);
    }
    StoreFloats<kVector>(y, v);
  }

  float v[kVector];
  float gate[kVector];
  float w[kVector];
};

// x and y may be the same memory: a thread reads again only what it writes.
template <typename T, int kVector, bool kWarp>
__global__ void __launch_bounds__(kWarp ? kWarpRowThreads : 1024)
    GatedNorm(const __grid_constant__ Args<T> args) {
  const RowThreads<kWarp> threads;
  const GatedNormDesc& desc = args.desc;
  LetNextBegin();
  const int64_t row = threads.row / desc.groups;
  const int64_t first = threads.row % desc.groups * desc.width;
  const float* weight = args.weight;
  if (weight != nullptr && !desc.shared_weight) weight += first;
  const int64_t begin = int64_t{threads.lane} * kVector;
  const int64_t step = int64_t{threads.count} * kVector;
  const bool inside = begin < desc.width;
  Part<T, kVector> part;
  if (inside) part.LoadWeight(weight == nullptr ? nullptr : weight + begin);
  WaitForPrevious();
  if (kWarp && threads.row >= args.groups) return;
  const T* const x = args.x.row(row) + first;
  const T* const z = args.z.row(row) + first;
  T* const y = args.y.row(row) + first;
  if (inside) {
    part.Load(x + begin);
    part.LoadGate(desc, z + begin);
  }
  float factor = 1.0f;
  if (desc.normalise) {
    float squares = inside ? part.AddTo(desc, 0.0f) : 0.0f;
    for (int64_t i = begin + step; i < desc.width; i += step) {
      Part<T, kVector> other;
      other.Load(x + i);
      if (desc.gate_first) other.LoadGate(desc, z + i);
      squares = other.AddTo(desc, squares);
    }
    factor = RmsNormFactor(threads.Sum(squares), desc.width, args.epsilon);
  }
  if (inside) part.Write(desc, factor, weight != nullptr, y + begin);
  for (int64_t i = begin + step; i < desc.width; i += step) {
    part.LoadWeight(weight == nullptr ? nullptr : weight + i);
    part.Load(x + i);
    part.LoadGate(desc, z + i);
    part.Write(desc, factor, weight != nullptr, y + i);
  }
}

template <typename T, int kVector>
absl::Status Launch(const GatedNormDesc& desc, const GatedNormParams& params,
                    CudaStream& stream) {
  const Args<T> args = {desc,
                        CudaMatrix<const T>(params.x),
                        CudaMatrix<const T>(params.z),
                        CudaMatrix<T>(params.y),
                        params.weight,
                        params.epsilon,
                        params.x.rows() * desc.groups};
  const auto kernel = desc.width <= kWarpRowWidth
                          ? GatedNorm<T, kVector, true>
                          : GatedNorm<T, kVector, false>;
  return LaunchCuda("gated_norm", stream,
                    RowGrid(args.groups, desc.width, kVector), kernel, args);
}

}  // namespace

absl::Status RunGatedNormCuda(const GatedNormDesc& desc,
                              const GatedNormParams& params, Stream& stream) {
  CudaStream& cuda = CudaStream::Of(stream);
  // What is not used is not looked at.
  const TensorView& z = desc.gate == GateFunction::kNone ? params.x : params.z;
  const bool vector = IsCudaVector(desc.width, {&params.x, &z, &params.y}) &&
                      IsCudaVector(params.weight);
  return WithFloatType(desc.activation, [&](auto type) {
    using T = decltype(type);
    return vector ? Launch<T, kCudaVector>(desc, params, cuda)
                  : Launch<T, 1>(desc, params, cuda);
  });
}

}  // namespace inlay
