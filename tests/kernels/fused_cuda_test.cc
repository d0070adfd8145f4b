// Fused CUDA ops: the bits of the ops they stand for, one after the other.
// Those are held to float64 by their own tests.
#if INLAY_HAS_CUDA

#include "kernels/activation/activation.h"
#include "kernels/fused_linear/fused_linear.h"
#include "kernels/gemm/gemm.h"
#include "kernels/kv_write/kv_write.h"
#include "kernels/rms_norm/rms_norm.h"
#include "kernels/rope_kv/rope_kv.h"
#include "tests/support/cuda_test_util.h"

namespace inlay {
namespace {

using ::inlay::testing::CudaBytes;
using ::inlay::testing::CudaTestMatrix;
using ::inlay::testing::TestCuda;
using ::inlay::testing::TestMatrix;

constexpr float kEpsilon = 1e-5f;

TestMatrix Random(DType dtype, int64_t rows, int64_t cols, unsigned seed,
                  int64_t pad = 0, float deviation = 1.0f) {
  std::mt19937 rng(seed);
  TestMatrix matrix(dtype, rows, cols, pad);
  matrix.Randomize(rng, deviation);
  return matrix;
}

template <typename Row, typename Desc, typename Params>
void Run(std::string_view op, absl::Span<const Row> table, const Desc& desc,
         const Params& params, TestCuda& cuda, std::string_view name = {}) {
  const auto row = Select(op, table, desc, cuda.info, name);
  ASSERT_TRUE(row.ok()) << row.status();
  const absl::Status status = (*row)->run(desc, params, *cuda.stream);
  ASSERT_TRUE(status.ok()) << status;
}

void ExpectEqual(const TestMatrix& want, const TestMatrix& got) {
  for (int64_t r = 0; r < want.rows(); ++r) {
    ASSERT_TRUE(want.RowBits(r) == got.RowBits(r)) << "row " << r;
  }
  EXPECT_TRUE(got.PaddingIsPoisoned());
}

// y of the ops apart.
TestMatrix Apart(const FusedLinearDesc& desc, const FusedLinearParams& params,
                 CudaTestMatrix& wide_y, TestCuda& cuda) {
  const int64_t m = params.gemm.x.rows();
  const DType type = desc.gemm.activation;
  CudaTestMatrix normalised(type, m, desc.gemm.k);
  CudaTestMatrix inner(type, m, desc.gemm.n);
  GemmParams gemm = params.gemm;
  if (desc.normalised) {
    Run("rms_norm", RmsNormTable(), RmsNormDesc{desc.gemm.k, DType::kF32, type},
        RmsNormParams{params.gemm.x, params.norm_weight, params.epsilon,
                      normalised.view()},
        cuda);
    gemm.x = normalised.view();
  }
  gemm.y = desc.gated ? inner.view() : wide_y.view();
  Run("gemm", GemmTable(), desc.gemm, gemm, cuda,
      desc.normalised ? "cuda_gemv" : "cuda");
  if (desc.gated) {
    Run("activation", ActivationTable(),
        ActivationDesc{desc.function, true, desc.gemm.n / 2, type},
        ActivationParams{inner.view(), wide_y.view()}, cuda);
  }
  return wide_y.Download();
}

void CheckLinear(const FusedLinearDesc& desc, int64_t m, bool weighted,
                 bool bias, TestCuda& cuda) {
  SCOPED_TRACE(::testing::Message()
               << "m " << m << " n " << desc.gemm.n << " k " << desc.gemm.k
               << " " << DTypeName(desc.gemm.weight) << " to "
               << DTypeName(desc.gemm.output) << " norm " << desc.normalised
               << " weighted " << weighted << " gated " << desc.gated << " "
               << static_cast<int>(desc.function) << " bias " << bias);
  const GemmDesc& gemm = desc.gemm;
  const auto seed = static_cast<unsigned>(m + gemm.k);
  CudaTestMatrix x(Random(desc.normalised ? DType::kF32 : gemm.activation, m,
                          gemm.k, seed, 8, desc.normalised ? 20.0f : 1.0f));
  CudaTestMatrix w(Random(gemm.weight, gemm.n, gemm.k, seed + 1, 8, 0.05f));
  CudaTestMatrix b(Random(DType::kF32, 1, gemm.n, seed + 2));
  CudaTestMatrix norm(Random(DType::kF32, 1, gemm.k, seed + 3));
  const int64_t columns = desc.gated ? gemm.n / 2 : gemm.n;
  CudaTestMatrix residual(Random(gemm.output, m, columns, seed + 4, 4));
  FusedLinearParams params;
  params.gemm.x = x.view();
  params.gemm.w = w.view();
  if (bias) params.gemm.bias = b.floats();
  if (!desc.gated) params.gemm.residual = residual.view();
  if (weighted) params.norm_weight = norm.floats();
  params.epsilon = kEpsilon;
  CudaTestMatrix apart(gemm.output, m, columns, 4);
  const TestMatrix want = Apart(desc, params, apart, cuda);
  CudaTestMatrix y(gemm.output, m, columns, 4);
  params.gemm.y = y.view();
  Run("fused_linear", FusedLinearTable(), desc, params, cuda);
  ExpectEqual(want, y.Download());
}

TEST(FusedCudaTest, LinearIsTheOpsApart) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  if (cuda.info.sm != 90) GTEST_SKIP() << "needs compute capability 9.0";
  constexpr int64_t kShapes[][2] = {{16, 64},     {48, 320},    {50, 512},
                                    {1000, 576},  {4112, 4096}, {30, 2304},
                                    {272, 14336}, {2100, 1088}, {34, 9024}};
  int turn = 0;
  for (const auto& [n, k] : kShapes) {
    for (const int64_t m : {1, 2, 5, 8, 40}) {
      for (const DType type : {DType::kBF16, DType::kF16}) {
        for (const bool gated : {false, true}) {
          for (const bool normalised : {false, true}) {
            FusedLinearDesc desc;
            const bool wide = !gated && turn % 2 == 0;
            desc.gemm = {n, k, type, type, wide ? DType::kF32 : type};
            desc.normalised = normalised;
            desc.gated = gated;
            desc.function = static_cast<Activation>(turn % 5);
            CheckLinear(desc, m, turn % 3 != 0, turn % 4 == 1, cuda);
            if (HasFatalFailure()) return;
            ++turn;
          }
        }
      }
    }
  }
}

struct KvCase {
  RopeKvDesc desc;
  int64_t pad = 0;  // of rows of qkv
  bool weighted = true;
};

// Columns [first, first + count) of `from`, dense.
TestMatrix Columns(DType dtype, const TestMatrix& from, int64_t first,
                   int64_t count) {
  TestMatrix part(dtype, from.rows(), count);
  for (int64_t r = 0; r < from.rows(); ++r) {
    for (int64_t c = 0; c < count; ++c) part.Set(r, c, from(r, first + c));
  }
  return part;
}

class RopeKvCheck {
 public:
  RopeKvCheck(const KvCase& kv_case, int64_t tokens, TestCuda& cuda)
      : case_(kv_case),
        desc_(kv_case.desc),
        cuda_(cuda),
        tokens_(tokens),
        q_width_(int64_t{desc_.num_heads} * desc_.head_dim),
        kv_width_(int64_t{desc_.num_kv_heads} * desc_.head_dim),
        qkv_(Random(desc_.activation, tokens, q_width_ + 2 * kv_width_, 1,
                    kv_case.pad, 3.0f)),
        norms_{CudaTestMatrix(Random(DType::kF32, 1, desc_.head_dim, 2)),
               CudaTestMatrix(Random(DType::kF32, 1, desc_.head_dim, 3))},
        cos_(Random(DType::kF32, tokens, std::max(desc_.rotary_dim / 2, 1), 4)),
        sin_(Random(DType::kF32, tokens, std::max(desc_.rotary_dim / 2, 1), 5)),
        layout_({{1, 8}, {desc_.num_kv_heads, desc_.head_dim}}, desc_.kv, 16) {
    for (int64_t t = 0; t < tokens; ++t) {
      // Backwards, some left out.
      slots_.push_back(t % 4 == 2 ? -1 : 2 * (tokens - 1 - t));
    }
  }

  void Run() {
    const std::vector<std::byte> before(
        layout_.block_bytes() * static_cast<size_t>(2 * tokens_ / 16 + 1),
        std::byte{0xee});
    const CudaBytes slots(slots_);
    const CudaBytes apart(before), fused(before);
    Apart(apart.as<std::byte>(), slots.as<int64_t>());
    RopeKvParams params;
    CudaTestMatrix qkv(qkv_);
    params.qkv = qkv.view();
    if (case_.weighted) params.q_norm.weight = norms_[0].floats();
    params.k_norm.weight = norms_[1].floats();
    params.q_norm.epsilon = params.k_norm.epsilon = kEpsilon;
    params.cos = cos_.floats();
    params.sin = sin_.floats();
    params.kv = layout_.LayerView(1, fused.as<std::byte>());
    params.slots = slots.as<int64_t>();
    inlay::Run("rope_kv", RopeKvTable(), desc_, params, cuda_);
    const TestMatrix& got = qkv.Download();
    ExpectEqual(q_, Columns(desc_.activation, got, 0, q_width_));
    ExpectEqual(Columns(desc_.activation, qkv_, q_width_, 2 * kv_width_),
                Columns(desc_.activation, got, q_width_, 2 * kv_width_));
    std::vector<std::byte> want(before.size()), have(before.size());
    apart.Download(want.data());
    fused.Download(have.data());
    const auto [a, b] = std::mismatch(have.begin(), have.end(), want.begin());
    ASSERT_TRUE(a == have.end()) << "cache byte " << a - have.begin();
  }

 private:
  void Apart(std::byte* cache, const int64_t* slots) {
    CudaTestMatrix parts[] = {
        CudaTestMatrix(Columns(desc_.activation, qkv_, 0, q_width_)),
        CudaTestMatrix(Columns(desc_.activation, qkv_, q_width_, kv_width_)),
        CudaTestMatrix(
            Columns(desc_.activation, qkv_, q_width_ + kv_width_, kv_width_))};
    for (int p = 0; p < 2; ++p) {
      const TensorView x = parts[p].view();
      if (p == 0 ? desc_.q_norm : desc_.k_norm) {
        const TensorView heads = MatrixView(
            x.data, x.dtype, x.elements() / desc_.head_dim, desc_.head_dim);
        const bool weighted = p == 1 || case_.weighted;
        inlay::Run("rms_norm", RmsNormTable(),
                   RmsNormDesc{desc_.head_dim, x.dtype, x.dtype},
                   RmsNormParams{heads, weighted ? norms_[p].floats() : nullptr,
                                 kEpsilon, heads},
                   cuda_);
      }
      if (desc_.rotary_dim == 0) continue;
      inlay::Run("rope", RopeTable(),
                 RopeDesc{p == 0 ? desc_.num_heads : desc_.num_kv_heads,
                          desc_.head_dim, desc_.rotary_dim, desc_.style,
                          desc_.activation},
                 RopeParams{x, cos_.floats(), sin_.floats()}, cuda_);
    }
    inlay::Run("kv_write", KvWriteTable(),
               KvWriteDesc{desc_.num_kv_heads, desc_.head_dim, desc_.kv,
                           desc_.activation},
               KvWriteParams{parts[1].view(), parts[2].view(),
                             layout_.LayerView(1, cache), slots},
               cuda_);
    q_ = parts[0].Download();
  }

  const KvCase case_;
  const RopeKvDesc desc_;
  TestCuda& cuda_;
  int64_t tokens_, q_width_, kv_width_;
  TestMatrix qkv_;
  CudaTestMatrix norms_[2];
  CudaTestMatrix cos_, sin_;
  KvLayout layout_;
  std::vector<int64_t> slots_;
  TestMatrix q_{DType::kF32, 1, 1};
};

TEST(FusedCudaTest, RopeKvIsTheOpsApart) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  constexpr int kShapes[][2] = {{128, 128}, {64, 64}, {256, 256}, {128, 0},
                                {128, 64},  {80, 32}, {96, 96},   {192, 192},
                                {6, 4},     {33, 10}, {320, 320}};
  constexpr DType kKv[] = {DType::kF32, DType::kF16,    DType::kBF16,
                           DType::kI8,  DType::kF8E4M3, DType::kKvQ4};
  int turn = 0;
  for (const auto& [head_dim, rotary_dim] : kShapes) {
    for (const DType kv : kKv) {
      for (const DType type : {DType::kF32, DType::kF16, DType::kBF16}) {
        for (const RopeStyle style :
             {RopeStyle::kHalf, RopeStyle::kInterleaved}) {
          KvCase kv_case;
          kv_case.desc = {turn % 3 == 0 ? 3 : 8,
                          turn % 3 == 0 ? 1 : 2,
                          head_dim,
                          rotary_dim,
                          style,
                          turn % 4 < 2,
                          turn % 8 < 4,
                          kv,
                          type};
          kv_case.pad = turn % 5 == 0 ? 1 : 8;
          kv_case.weighted = turn % 7 != 0;
          const int64_t tokens =
              turn % 9 == 5 ? 70 : 1 + turn % 3 * 4 + turn % 2 * 8;
          SCOPED_TRACE(::testing::Message()
                       << "head_dim " << head_dim << " rotary " << rotary_dim
                       << " " << DTypeName(type) << " to " << DTypeName(kv)
                       << " style " << static_cast<int>(style) << " norms "
                       << kv_case.desc.q_norm << kv_case.desc.k_norm
                       << " tokens " << tokens << " turn " << turn);
          RopeKvCheck(kv_case, tokens, cuda).Run();
          if (HasFatalFailure()) return;
          ++turn;
        }
      }
    }
  }
}

}  // namespace
}  // namespace inlay

#endif  // INLAY_HAS_CUDA
