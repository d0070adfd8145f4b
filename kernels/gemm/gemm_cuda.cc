// gemm's CUDA rows: which kernel serves how many rows. Some and a few dozen are
// bound by memory and taken by our kernels, many by cuBLASLt where it is
// installed.
#if INLAY_HAS_CUDA

#include <memory>
#include <utility>

#include "kernels/gemm/cublaslt.h"
#include "kernels/gemm/gemm.h"
#include "kernels/gemm/gemv_cuda.h"
#include "kernels/gemm/many_rows_cuda.h"
#include "kernels/gemm/skinny_cuda.h"
#include "memory/status.h"

namespace inlay {
namespace {

// What gemm keeps with a stream.
struct GemmState : CudaStream::Attachment {
  absl::StatusOr<std::unique_ptr<CublasLt>> cublas = CublasLt::Load();
};

GemmState& StateOf(CudaStream& stream) {
  if (stream.attachment() == nullptr) {
    stream.attachment() = std::make_unique<GemmState>();
  }
  return static_cast<GemmState&>(*stream.attachment());
}

}  // namespace

absl::StatusOr<CublasLt*> CublasLtOf(CudaStream& stream) {
  GemmState& state = StateOf(stream);
  INLAY_RETURN_IF_ERROR(state.cublas.status());
  return state.cublas->get();
}

absl::Status PrepareGemmCuda(Stream& stream) {
  return StateOf(CudaStream::Of(stream)).cublas.status();
}

absl::Status RunGemmCudaGemv(const GemmDesc& desc, const GemmParams& params,
                             Stream& stream) {
  return RunGemv(desc, params, CudaStream::Of(stream));
}

absl::Status RunGemmCudaCublasLt(const GemmDesc& desc, const GemmParams& params,
                                 Stream& stream) {
  CudaStream& cuda = CudaStream::Of(stream);
  GemmState& state = StateOf(cuda);
  INLAY_RETURN_IF_ERROR(state.cublas.status());
  return (*state.cublas)->Run(desc, params, cuda);
}

absl::Status RunGemmCuda(const GemmDesc& desc, const GemmParams& params,
                         Stream& stream) {
  CudaStream& cuda = CudaStream::Of(stream);
  // One way for all numbers of rows, or the best for each. cuBLAS takes no
  // weights of another type than x.
  const auto cublas = [&] {
    return desc.weight == desc.activation && StateOf(cuda).cublas.ok();
  };
  if (!desc.batch_invariant) {
    if (SkinnyServes(desc, params, cuda))
      return RunSkinnyGemm(desc, params, {}, cuda);
    if (params.x.rows() <= kGemvRows &&
        (GemvReadsOnce(desc, params, cuda) || !cublas())) {
      return RunGemv(desc, params, cuda);
    }
  } else if (SkinnyTakes(desc, params, cuda)) {
    return RunGemmInOneOrder(desc, params, cuda);
  }
  if (!cublas()) {
    return SkinnyTakes(desc, params, cuda)
               ? RunGemmInOneOrder(desc, params, cuda)
               : RunGemv(desc, params, cuda);
  }
  const absl::Status status = (*StateOf(cuda).cublas)->Run(desc, params, cuda);
  // Odd strides of 16-bit types.
  return absl::IsUnimplemented(status) ? RunGemv(desc, params, cuda) : status;
}

size_t GemmCudaWorkspaceBytes(const GemmDesc& desc, int64_t max_rows) {
  return desc.batch_invariant || max_rows > kGemvRows
             ? CublasLt::kWorkspaceBytes
             : 0;
}

}  // namespace inlay

#endif  // INLAY_HAS_CUDA
