// Compiled only where the CUDA backend is built.
#if INLAY_HAS_CUDA

#include "kernels/gemm/cublaslt.h"

#include <cublasLt.h>
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "kernels/gemm/gemv_cuda.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

// Newest first, and never unloaded, as its device code stays with the driver;
// versions 12 and 13 agree on all that is used here.
constexpr const char* kNames[] = {"libcublasLt.so.13", "libcublasLt.so.12",
                                  "libcublasLt.so"};

// The functions used, by the types of the header.
struct Api {
  decltype(&cublasLtCreate) create;
  decltype(&cublasLtDestroy) destroy;
  decltype(&cublasLtMatmul) matmul;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic;
  decltype(&cublasLtMatmulDescCreate) desc_create;
  decltype(&cublasLtMatmulDescDestroy) desc_destroy;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set;
  decltype(&cublasLtMatrixLayoutCreate) layout_create;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy;
  decltype(&cublasLtMatrixLayoutSetAttribute) layout_set;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set;
};

absl::Status Check(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
  const std::string message = FormattedString("cuBLASLt: %s: status %d", what,
                                              static_cast<int>(status));
  if (status == CUBLAS_STATUS_ALLOC_FAILED) {
    return absl::ResourceExhaustedError(message);
  }
  return status == CUBLAS_STATUS_NOT_SUPPORTED
             ? absl::UnimplementedError(message)
             : absl::InternalError(message);
}

cudaDataType_t TypeOf(DType dtype) {
  return dtype == DType::kF32      ? CUDA_R_32F
         : dtype == DType::kF16    ? CUDA_R_16F
         : dtype == DType::kF8E4M3 ? CUDA_R_8F_E4M3
         : dtype == DType::kI8     ? CUDA_R_8I
         : dtype == DType::kI32    ? CUDA_R_32I
                                   : CUDA_R_16BF;
}

// Products of codes, exactly.
bool IsWhole(const GemmDesc& desc) { return desc.output == DType::kI32; }

struct ScaleModes {
  int32_t w;
  int32_t x;
};
ScaleModes ModesOf(ScaleReach reach) {
  switch (reach) {
    case ScaleReach::kRow:
      return {CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F,
              CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F};
    case ScaleReach::kBlock:
      return {CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F,
              CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F};
    default:
      return {CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F,
              CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F};
  }
}

// The largest power of two up to `most` that divides `bits`.
uint32_t AlignmentOf(uint64_t bits, uint64_t most) {
  return static_cast<uint32_t>(uint64_t{1} << std::countr_zero(bits | most));
}

// What cuBLAS is told of alignments at most: where a row lies must not choose
// the algorithm where the batch must not.
uint64_t MostAlignment(const GemmDesc& desc) {
  return desc.batch_invariant ? 16 : 256;
}

uint64_t Bits(const TensorView& view) {
  return reinterpret_cast<uintptr_t>(view.data) | view.row_stride_bytes;
}

int64_t Stride(const TensorView& view) {
  return static_cast<int64_t>(view.row_stride_bytes / RowBytes(view.dtype, 1));
}

// Rows for which one choice serves: four ranges between powers of two.
int64_t BucketOf(int64_t rows) {
  const auto top =
      static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(rows)));
  const int64_t step = std::max<int64_t>(8, top / 4);
  return (rows + step - 1) / step * step;
}

// What the algorithm for all numbers of rows is chosen for: tiles that many
// rows fill and few do not waste too much of.
constexpr int64_t kInvariantRows = 128;

// n, k, bucket, dtypes, bias, strides, alignments: all an algorithm may depend
// on.
using Key = std::array<int64_t, 11>;

}  // namespace

struct CublasLt::Impl {
  // One product as cuBLAS sees it, column by column: y^T = w x^T, with w and x
  // read as their transposes.
  struct Plan {
    cublasLtMatmulDesc_t desc = nullptr;
    cublasLtMatrixLayout_t w = nullptr;
    cublasLtMatrixLayout_t x = nullptr;
    cublasLtMatrixLayout_t c = nullptr;  // what is added
    cublasLtMatrixLayout_t y = nullptr;
    cublasLtMatmulAlgo_t algorithm = {};
    bool adds_bias = false;
  };

  ~Impl() {
    for (auto& [key, plan] : plans) Destroy(plan);
    if (handle != nullptr) api.destroy(handle);
    if (library != nullptr) dlclose(library);
  }

  void Destroy(const Plan& plan) const {
    for (const auto layout : {plan.w, plan.x, plan.c, plan.y}) {
      if (layout != nullptr) api.layout_destroy(layout);
    }
    if (plan.desc != nullptr) api.desc_destroy(plan.desc);
  }

  template <typename Function>
  absl::Status Find(const char* name, Function& function) const {
    function = reinterpret_cast<Function>(dlsym(library, name));
    if (function != nullptr) return absl::OkStatus();
    return absl::FailedPreconditionError(
        FormattedString("cuBLASLt: the library has no %s", name));
  }

  absl::Status FindAll();
  absl::Status Describe(const GemmDesc& desc, const GemmParams& params,
                        int64_t rows, bool bias, const Fp8Scales* scales,
                        Plan& plan) const;
  absl::Status SetScales(const Plan& plan, const Fp8Scales& scales) const;
  // Whether there is an algorithm; it goes into the plan.
  absl::StatusOr<bool> Choose(const GemmDesc& desc, const GemmParams& params,
                              Plan& plan) const;
  absl::StatusOr<Plan*> PlanOf(const GemmDesc& desc, const GemmParams& params,
                               const Fp8Scales* scales);
  absl::Status SetRows(const Plan& plan, int64_t rows) const;

  void* library = nullptr;
  Api api = {};
  cublasLtHandle_t handle = nullptr;
  // A program meets a few shapes and some forty buckets of each.
  std::map<Key, Plan> plans;
};

absl::Status CublasLt::Impl::FindAll() {
  INLAY_RETURN_IF_ERROR(Find("cublasLtCreate", api.create));
  INLAY_RETURN_IF_ERROR(Find("cublasLtDestroy", api.destroy));
  INLAY_RETURN_IF_ERROR(Find("cublasLtMatmul", api.matmul));
  INLAY_RETURN_IF_ERROR(Find("cublasLtMatmulAlgoGetHeuristic", api.heuristic));
  INLAY_RETURN_IF_ERROR(Find("cublasLtMatmulDescCreate", api.desc_create));
  INLAY_RETURN_IF_ERROR(Find("cublasLtMatmulDescDestroy", api.desc_destroy));
  INLAY_RETURN_IF_ERROR(Find("cublasLtMatmulDescSetAttribute", api.desc_set));
  INLAY_RETURN_IF_ERROR(Find("cublasLtMatrixLayoutCreate", api.layout_create));
  INLAY_RETURN_IF_ERROR(
      Find("cublasLtMatrixLayoutDestroy", api.layout_destroy));
  INLAY_RETURN_IF_ERROR(
      Find("cublasLtMatrixLayoutSetAttribute", api.layout_set));
  INLAY_RETURN_IF_ERROR(
      Find("cublasLtMatmulPreferenceCreate", api.preference_create));
  INLAY_RETURN_IF_ERROR(
      Find("cublasLtMatmulPreferenceDestroy", api.preference_destroy));
  return Find("cublasLtMatmulPreferenceSetAttribute", api.preference_set);
}

absl::Status CublasLt::Impl::Describe(const GemmDesc& desc,
                                      const GemmParams& params, int64_t rows,
                                      bool bias, const Fp8Scales* scales,
                                      Plan& plan) const {
  // The residual's layout may be y's where there is none: it is not read.
  const TensorView& added =
      params.residual.empty() ? params.y : params.residual;
  const auto layout = [&](cublasLtMatrixLayout_t* to, DType dtype,
                          int64_t width, int64_t count,
                          const TensorView& view) {
    return Check(
        api.layout_create(to, TypeOf(dtype), static_cast<uint64_t>(width),
                          static_cast<uint64_t>(count),
                          std::max(Stride(view), width)),
        "describing a matrix");
  };
  INLAY_RETURN_IF_ERROR(layout(&plan.w, desc.weight, desc.k, desc.n, params.w));
  INLAY_RETURN_IF_ERROR(
      layout(&plan.x, desc.activation, desc.k, rows, params.x));
  INLAY_RETURN_IF_ERROR(layout(&plan.c, desc.output, desc.n, rows, added));
  INLAY_RETURN_IF_ERROR(layout(&plan.y, desc.output, desc.n, rows, params.y));
  const bool whole = IsWhole(desc);
  INLAY_RETURN_IF_ERROR(
      Check(api.desc_create(&plan.desc,
                            whole ? CUBLAS_COMPUTE_32I : CUBLAS_COMPUTE_32F,
                            whole ? CUDA_R_32I : CUDA_R_32F),
            "describing a product"));
  const auto set = [&](cublasLtMatmulDescAttributes_t what, auto value) {
    return Check(api.desc_set(plan.desc, what, &value, sizeof(value)),
                 "describing a product");
  };
  INLAY_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T));
  if (scales != nullptr) {
    const ScaleModes modes = ModesOf(scales->reach);
    INLAY_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, modes.w));
    INLAY_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, modes.x));
    INLAY_RETURN_IF_ERROR(SetScales(plan, *scales));
    // Sums stay in the tensor cores' accumulators, of some 14 bits.
    INLAY_RETURN_IF_ERROR(
        set(CUBLASLT_MATMUL_DESC_FAST_ACCUM,
            static_cast<int8_t>(scales->reach == ScaleReach::kRow)));
  }
  if (!bias) return absl::OkStatus();
  plan.adds_bias = true;
  INLAY_RETURN_IF_ERROR(
      set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS));
  INLAY_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE,
                            static_cast<int32_t>(CUDA_R_32F)));
  return set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, params.bias);
}

absl::Status CublasLt::Impl::SetScales(const Plan& plan,
                                       const Fp8Scales& scales) const {
  const auto set = [&](cublasLtMatmulDescAttributes_t what, const float* to) {
    return Check(api.desc_set(plan.desc, what, &to, sizeof(to)),
                 "setting the scales");
  };
  INLAY_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, scales.w));
  return set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, scales.x);
}

absl::StatusOr<bool> CublasLt::Impl::Choose(const GemmDesc& desc,
                                            const GemmParams& params,
                                            Plan& plan) const {
  cublasLtMatmulPreference_t preference = nullptr;
  INLAY_RETURN_IF_ERROR(
      Check(api.preference_create(&preference), "making a preference"));
  cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t what, auto value) {
    if (status != CUBLAS_STATUS_SUCCESS) return;
    status = api.preference_set(preference, what, &value, sizeof(value));
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
      uint64_t{params.workspace != nullptr ? kWorkspaceBytes : 0});
  // Parts of a split K are added up in float32, not in the output's type.
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      static_cast<uint32_t>(desc.batch_invariant
                                ? CUBLASLT_REDUCTION_SCHEME_NONE
                                : CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  const uint64_t most = MostAlignment(desc);
  const uint64_t added =
      params.residual.empty() ? Bits(params.y) : Bits(params.residual);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
      AlignmentOf(Bits(params.w), most));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
      AlignmentOf(Bits(params.x), most));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, AlignmentOf(added, most));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
      AlignmentOf(Bits(params.y), most));
  cublasLtMatmulHeuristicResult_t result = {};
  int found = 0;
  if (status == CUBLAS_STATUS_SUCCESS) {
    status = api.heuristic(handle, plan.desc, plan.w, plan.x, plan.c, plan.y,
                           preference, 1, &result, &found);
  }
  api.preference_destroy(preference);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) return false;
  INLAY_RETURN_IF_ERROR(Check(status, "choosing an algorithm"));
  plan.algorithm = result.algo;
  return found > 0 && result.state == CUBLAS_STATUS_SUCCESS;
}

absl::StatusOr<CublasLt::Impl::Plan*> CublasLt::Impl::PlanOf(
    const GemmDesc& desc, const GemmParams& params, const Fp8Scales* scales) {
  const int64_t bucket =
      desc.batch_invariant ? kInvariantRows : BucketOf(params.x.rows());
  const TensorView& added =
      params.residual.empty() ? params.y : params.residual;
  const uint64_t most = MostAlignment(desc);
  const int64_t reach =
      scales == nullptr ? 0 : 1 + static_cast<int64_t>(scales->reach);
  const int64_t types = reach << 32 | int64_t{desc.batch_invariant} << 24 |
                        static_cast<int64_t>(desc.weight) << 16 |
                        static_cast<int64_t>(desc.activation) << 8 |
                        static_cast<int64_t>(desc.output);
  const int64_t alignments = int64_t{AlignmentOf(Bits(params.w), most)} << 48 |
                             int64_t{AlignmentOf(Bits(params.x), most)} << 32 |
                             int64_t{AlignmentOf(Bits(added), most)} << 16 |
                             AlignmentOf(Bits(params.y), most);
  const Key key = {desc.n,
                   desc.k,
                   bucket,
                   types,
                   Stride(params.w),
                   Stride(params.x),
                   Stride(added),
                   Stride(params.y),
                   alignments,
                   params.bias != nullptr,
                   params.workspace != nullptr};
  const auto known = plans.find(key);
  if (known != plans.end()) return &known->second;
  for (const bool bias : {true, false}) {
    // Its own addition of a float32 bias is for float32 outputs only.
    if (bias && (params.bias == nullptr || desc.output != DType::kF32)) {
      continue;
    }
    Plan plan;
    absl::StatusOr<bool> chosen = false;
    absl::Status status = Describe(desc, params, bucket, bias, scales, plan);
    if (status.ok()) chosen = Choose(desc, params, plan);
    if (status.ok()) status = chosen.status();
    if (status.ok() && *chosen) {
      return &plans.emplace(key, plan).first->second;
    }
    Destroy(plan);
    INLAY_RETURN_IF_ERROR(status);
  }
  return absl::UnimplementedError(FormattedString(
      "cuBLASLt: no algorithm for n %d, k %d, %s weights, %s activations, %s "
      "output, rows %d, %d and %d bytes apart",
      desc.n, desc.k, DTypeName(desc.weight), DTypeName(desc.activation),
      DTypeName(desc.output), params.w.row_stride_bytes,
      params.x.row_stride_bytes, params.y.row_stride_bytes));
}

absl::Status CublasLt::Impl::SetRows(const Plan& plan, int64_t rows) const {
  const auto count = static_cast<uint64_t>(rows);
  for (const auto layout : {plan.x, plan.c, plan.y}) {
    INLAY_RETURN_IF_ERROR(
        Check(api.layout_set(layout, CUBLASLT_MATRIX_LAYOUT_COLS, &count,
                             sizeof(count)),
              "setting the rows"));
  }
  return absl::OkStatus();
}

CublasLt::CublasLt(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
CublasLt::~CublasLt() = default;

absl::StatusOr<std::unique_ptr<CublasLt>> CublasLt::Load() {
  auto impl = std::make_unique<Impl>();
  std::string reasons;
  for (const char* name : kNames) {
    impl->library = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (impl->library != nullptr) break;
    const char* reason = dlerror();
    reasons += FormattedString("; %s", reason != nullptr ? reason : name);
  }
  if (impl->library == nullptr) {
    return absl::FailedPreconditionError(FormattedString(
        "cuBLASLt is not installed where the system looks for libraries%s",
        reasons));
  }
  INLAY_RETURN_IF_ERROR(impl->FindAll());
  INLAY_RETURN_IF_ERROR(
      Check(impl->api.create(&impl->handle), "opening the library"));
  return std::unique_ptr<CublasLt>(new CublasLt(std::move(impl)));
}

absl::Status CublasLt::Run(const GemmDesc& desc, const GemmParams& params,
                           CudaStream& stream, const Fp8Scales* scales) {
  if (params.x.rows() == 0) return absl::OkStatus();
  INLAY_ASSIGN_OR_RETURN(Impl::Plan * plan,
                         impl_->PlanOf(desc, params, scales));
  const bool starts = params.bias != nullptr && !plan->adds_bias;
  if (starts) INLAY_RETURN_IF_ERROR(RunStartWithBias(desc, params, stream));
  if (plan->adds_bias) {
    INLAY_RETURN_IF_ERROR(
        Check(impl_->api.desc_set(plan->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                  &params.bias, sizeof(params.bias)),
              "setting the bias"));
  }
  if (scales != nullptr) {
    INLAY_RETURN_IF_ERROR(impl_->SetScales(*plan, *scales));
  }
  INLAY_RETURN_IF_ERROR(impl_->SetRows(*plan, params.x.rows()));
  const bool adds = starts || !params.residual.empty();
  const float alpha = 1.0f, beta = adds ? 1.0f : 0.0f;
  const int32_t whole_alpha = 1, whole_beta = adds ? 1 : 0;
  const bool whole = IsWhole(desc);
  const bool adds_y = starts || params.residual.empty();
  stream.set_last_waited_first(false);
  return Check(
      impl_->api.matmul(impl_->handle, plan->desc,
                        whole ? static_cast<const void*>(&whole_alpha) : &alpha,
                        params.w.data, plan->w, params.x.data, plan->x,
                        whole ? static_cast<const void*>(&whole_beta) : &beta,
                        adds_y ? params.y.data : params.residual.data,
                        adds_y ? plan->y : plan->c, params.y.data, plan->y,
                        &plan->algorithm, params.workspace,
                        params.workspace != nullptr ? kWorkspaceBytes : 0,
                        stream.handle()),
      "queueing a product");
}

}  // namespace inlay

#endif  // INLAY_HAS_CUDA
