// gated_norm on CUDA, a group as rms_norm has a row: a warp up to
// kWarpRowWidth, otherwise a block. Many groups take two passes, the second out
// of the first-level cache: at the memory's bandwidth, x and z read, y written.
// Few groups of a vector a thread stay in registers, the weight there before
// the kernels queued before have ended: so that one thing less follows another.
// Sums in float32, a fixed tree, the same in both; rounded once.
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

// z of elements [i, i + kVector) of a group, whose own begins at `z`.
template <typename T, int kVector>
__device__ void LoadGates(const GatedNormDesc& desc, const T* z, int64_t i,
                          float (&gate)[kVector]) {
  if (!desc.group_gates) return LoadFloats<kVector>(z + i, gate);
  float one[1];
  LoadFloats<1>(z, one);
#pragma unroll
  for (int j = 0; j < kVector; ++j) gate[j] = one[0];
}

// v times the gate of those elements.
template <typename T, int kVector>
__device__ void Gate(const GatedNormDesc& desc, const T* z, int64_t i,
                     float (&v)[kVector]) {
  if (desc.gate == GateFunction::kNone) return;
  float gate[kVector];
  LoadGates<T>(desc, z, i, gate);
#pragma unroll
  for (int j = 0; j < kVector; ++j) {
    v[j] = __fmul_rn(v[j], GateFactor(desc, gate[j]));
  }
}

// x and y may be the same memory: a thread reads again only what it writes.
template <typename T, int kVector, bool kWarp>
__global__ void GatedNorm(const __grid_constant__ Args<T> args) {
  const RowThreads<kWarp> threads;
  const GatedNormDesc& desc = args.desc;
  LetNextBegin();
  WaitForPrevious();
  if (kWarp && threads.row >= args.groups) return;
  const int64_t row = threads.row / desc.groups;
  const int64_t group = threads.row % desc.groups;
  const int64_t first = group * desc.width;
  const T* const x = args.x.row(row) + first;
  const T* const z = args.z.row(row) + (desc.group_gates ? group : first);
  T* const y = args.y.row(row) + first;
  const float* weight = args.weight;
  if (weight != nullptr && !desc.shared_weight) weight += first;
  const int64_t step = int64_t{threads.count} * kVector;
  float v[kVector];
  float factor = 1.0f;
  if (desc.normalise) {
    float squares = 0.0f;
    for (int64_t i = threads.lane * kVector; i < desc.width; i += step) {
      LoadFloats<kVector>(x + i, v);
      if (desc.gate_first) Gate<T>(desc, z, i, v);
      squares = AddSquares(v, squares);
    }
    factor = RmsNormFactor(threads.Sum(squares), desc.width, args.epsilon);
  }
  for (int64_t i = threads.lane * kVector; i < desc.width; i += step) {
    LoadFloats<kVector>(x + i, v);
    RmsNormScale(v, factor, weight, i);
    Gate<T>(desc, z, i, v);
    StoreFloats<kVector>(y + i, v);
  }
}

// The same of groups of a vector a thread or less.
template <typename T, int kVector, bool kWarp>
__global__ void __launch_bounds__(kWarp ? kWarpRowThreads : 1024)
    GatedNormAtOnce(const __grid_constant__ Args<T> args) {
  const RowThreads<kWarp> threads;
  const GatedNormDesc& desc = args.desc;
  LetNextBegin();
  const int64_t row = threads.row / desc.groups;
  const int64_t group = threads.row % desc.groups;
  const int64_t first = group * desc.width;
  const int64_t i = int64_t{threads.lane} * kVector;
  const bool inside = i < desc.width;
  const float* weight = args.weight;
  if (weight != nullptr && !desc.shared_weight) weight += first;
  float v[kVector] = {}, gate[kVector], w[kVector];
  if (inside && weight != nullptr) LoadFloats<kVector>(weight + i, w);
  WaitForPrevious();
  if (kWarp && threads.row >= args.groups) return;
  const bool gated = desc.gate != GateFunction::kNone;
  if (inside) {
    LoadFloats<kVector>(args.x.row(row) + first + i, v);
    if (gated) {
      LoadGates<T>(desc, args.z.row(row) + (desc.group_gates ? group : first),
                   i, gate);
    }
#pragma unroll
    for (int j = 0; j < kVector; ++j) {
      if (gated) gate[j] = GateFactor(desc, gate[j]);
    }
  }
  float factor = 1.0f;
  if (desc.normalise) {
    float of[kVector];
#pragma unroll
    for (int j = 0; j < kVector; ++j) {
      of[j] =
          inside && gated && desc.gate_first ? __fmul_rn(v[j], gate[j]) : v[j];
    }
    factor = RmsNormFactor(threads.Sum(AddSquares(of, 0.0f)), desc.width,
                           args.epsilon);
  }
  if (!inside) return;
#pragma unroll
  for (int j = 0; j < kVector; ++j) {
    v[j] = __fmul_rn(v[j], factor);
    if (weight != nullptr) v[j] = __fmul_rn(v[j], w[j]);
    if (gated) v[j] = __fmul_rn(v[j], gate[j]);
  }
  StoreFloats<kVector>(args.y.row(row) + first + i, v);
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
  const bool warp = desc.width <= kWarpRowWidth;
  const CudaGrid grid = RowGrid(args.groups, desc.width, kVector);
  // As many as are under way together.
  const int64_t a_group = (warp ? 32 : grid.threads) * int64_t{kVector};
  const bool at_once =
      desc.width <= a_group &&
      grid.blocks * grid.threads <= int64_t{stream.num_sms()} * 1024;
  const auto kernel =
      at_once
          ? (warp ? GatedNormAtOnce<T, kVector, true>
                  : GatedNormAtOnce<T, kVector, false>)
          : (warp ? GatedNorm<T, kVector, true> : GatedNorm<T, kVector, false>);
  return LaunchCuda("gated_norm", stream, grid, kernel, args);
}

}  // namespace

absl::Status RunGatedNormCuda(const GatedNormDesc& desc,
                              const GatedNormParams& params, Stream& stream) {
  CudaStream& cuda = CudaStream::Of(stream);
  // What is not used, or used one by one, is not looked at.
  const TensorView& z = desc.gate == GateFunction::kNone || desc.group_gates
                            ? params.x
                            : params.z;
  const bool vector = IsCudaVector(desc.width, {&params.x, &z, &params.y}) &&
                      IsCudaVector(params.weight);
  return WithFloatType(desc.activation, [&](auto type) {
    using T = decltype(type);
    return vector ? Launch<T, kCudaVector>(desc, params, cuda)
                  : Launch<T, 1>(desc, params, cuda);
  });
}

}  // namespace inlay
