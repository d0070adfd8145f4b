// CublasLt: NVIDIA's matrix products, loaded when asked for: the library links
// nothing of cuBLAS and works without it. Owns the library's handle and the
// algorithms chosen so far. Source: the cuBLASLt chapter of NVIDIA's cuBLAS
// documentation. Knows no layers.
#ifndef INLAY_KERNELS_GEMM_CUBLASLT_H_
#define INLAY_KERNELS_GEMM_CUBLASLT_H_

#include <cstddef>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/gemm/gemm.h"
#include "memory/device/cuda_stream.h"

namespace inlay {

// Float32 scales, on the device and 16-byte aligned, of operands that are e4m3
// codes (GemmDesc: both of kF8E4M3). By their reach along w [n, k] and x [m,
// k]:
//   kRow    w [n], x [m]
//   kBlock  w [ceil(n / 128), ceil(k / 128) rounded up to 4], x as of kGroup
//   kGroup  w [ceil(k / 128), n], x [ceil(k / 128), m]
// With the last two m must be a multiple of 4. Compute capability 9.0.
struct Fp8Scales {
  ScaleReach reach = ScaleReach::kGroup;
  const float* w = nullptr;
  const float* x = nullptr;
};

// Thread-compatible; belongs to one device.
class CublasLt {
 public:
  // What Run may use of GemmParams::workspace.
  static constexpr size_t kWorkspaceBytes = size_t{32} << 20;

  // FAILED_PRECONDITION: cuBLASLt is not installed, with the names tried.
  static absl::StatusOr<std::unique_ptr<CublasLt>> Load();
  ~CublasLt();

  // Queues the product. Float32 accumulation, no TF32, partial sums in float32.
  // An algorithm is chosen once for a shape and a range of rows; where cuBLAS
  // cannot add the bias itself a kernel of ours starts y with it.
  // With desc.batch_invariant one algorithm serves all numbers of rows and no K
  // is split: a row's sums have one order. UNIMPLEMENTED: cuBLAS has no
  // algorithm for these types and strides.
  // `scales` are there where, and only where, w and x are e4m3 codes; those of
  // rows have sums of some 14 bits (FP8.md), others every 128 columns. Codes of
  // i8 give sums of i32, exactly, without a bias; n and k are multiples of 4.
  absl::Status Run(const GemmDesc& desc, const GemmParams& params,
                   CudaStream& stream, const Fp8Scales* scales = nullptr);

 private:
  struct Impl;
  explicit CublasLt(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// The stream's, loaded when it is first asked for.
absl::StatusOr<CublasLt*> CublasLtOf(CudaStream& stream);

}  // namespace inlay

#endif  // INLAY_KERNELS_GEMM_CUBLASLT_H_
