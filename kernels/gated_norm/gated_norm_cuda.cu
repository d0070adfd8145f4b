// gated_norm on CUDA, a group as rms_norm has a row: a warp up to
// kWarpRowWidth, otherwise a block; two passes, the second out of the
// first-level cache. Sums in float32, a fixed tree; rounded once. Aims at the
// memory's bandwidth: x and z read, y written.
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

// v times the gate of the elements at z.
template <typename T, int kVector>
__device__ void Gate(const GatedNormDesc& desc, const T* z,
                     float (&v)[kVector]) {
  if (desc.gate == GateFunction::kNone) return;
  float gate[kVector];
  LoadFloats<kVector>(z, gate);
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
  const int64_t first = threads.row % desc.groups * desc.width;
  const T* const x = args.x.row(row) + first;
  const T* const z = args.z.row(row) + first;
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
      if (desc.gate_first) Gate<T>(desc, z + i, v);
      squares = AddSquares(v, squares);
    }
    factor = RmsNormFactor(threads.Sum(squares), desc.width, args.epsilon);
  }
  for (int64_t i = threads.lane * kVector; i < desc.width; i += step) {
    LoadFloats<kVector>(x + i, v);
    RmsNormScale(v, factor, weight, i);
    Gate<T>(desc, z + i, v);
    StoreFloats<kVector>(y + i, v);
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
