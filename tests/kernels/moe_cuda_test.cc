// Mixtures of experts on CUDA: sums against the CPU's rows, experts' products
// against float64, in all formats.
#if INLAY_HAS_CUDA

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <optional>
#include <random>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/activation/activation.h"
#include "kernels/gemm/quantised/pack.h"
#include "kernels/gemm/quantised/wide_cuda.h"
#include "kernels/moe/combine.h"
#include "kernels/moe/expert_linear.h"
#include "kernels/moe/expert_linear_cuda.h"
#include "tests/support/cuda_test_util.h"
#include "tests/support/moe_test_util.h"
#include "tests/support/random_blocks.h"
#include "tests/support/rounded_weights.h"

namespace inlay {
namespace {

using namespace ::inlay::testing;  // NOLINT

constexpr float kTestLimit = 1.5f;

const ExpertLinearRow& RowNamed(std::string_view name) {
  for (const ExpertLinearRow& row : ExpertLinearTable()) {
    if (row.name == name) return row;
  }
  ADD_FAILURE() << name;
  return ExpertLinearTable().front();
}

// Experts' matrices as values, and as a row wants them on the device.
class Experts {
 public:
  // `rounded`: quantised weights are those that the kernel for many slots
  // multiplies by.
  Experts(const ExpertLinearDesc& desc, std::mt19937& rng, bool rounded = false)
      : desc_(desc), rounded_(rounded) {
    const GemmDesc& gemm = desc.gemm;
    for (int e = 0; e < desc.num_experts; ++e) {
      if (const BlockCodec* codec = FindBlockCodec(gemm.weight)) {
        AddPacked(*codec, rng);
        continue;
      }
      TestMatrix matrix(gemm.weight, gemm.n, gemm.k);
      matrix.Randomize(rng);
      for (int64_t r = 0; r < gemm.n; ++r) {
        for (int64_t c = 0; c < gemm.k; ++c) values_.push_back(matrix(r, c));
      }
      const std::byte* data = matrix.view().data;
      bytes_.insert(bytes_.end(), data, data + matrix.view().bytes());
    }
  }

  float operator()(int64_t expert, int64_t row, int64_t column) const {
    const GemmDesc& gemm = desc_.gemm;
    return values_[static_cast<size_t>((expert * gemm.n + row) * gemm.k +
                                       column)];
  }
  const std::vector<std::byte>& bytes() const { return bytes_; }
  size_t stride() const {
    return bytes_.size() / static_cast<size_t>(desc_.num_experts);
  }

 private:
  void AddPacked(const BlockCodec& codec, std::mt19937& rng) {
    const GemmDesc& gemm = desc_.gemm;
    const QuantMatrix matrix(gemm.weight, gemm.k);
    const std::vector<std::byte> rows =
        RandomBlocks(codec, gemm.n * gemm.k / matrix.block_elements, rng);
    std::vector<std::byte> packed(
        static_cast<size_t>(QuantBytes(matrix.form, gemm.n, gemm.k)));
    PackQuantised(matrix, rows.data(), 0, gemm.n, packed.data());
    const size_t first = values_.size();
    values_.resize(first + static_cast<size_t>(gemm.n * gemm.k));
    for (int64_t r = 0; r < gemm.n; ++r) {
      float* values = values_.data() + first + r * gemm.k;
      if (rounded_) {
        std::vector<double> row(static_cast<size_t>(gemm.k));
        RoundedRow(matrix, packed.data(), r, gemm.activation, row.data());
        std::copy(row.begin(), row.end(), values);
      } else {
        UnpackQuantisedRow(matrix, packed.data(), r, values);
      }
    }
    bytes_.insert(bytes_.end(), packed.begin(), packed.end());
  }

  ExpertLinearDesc desc_;
  bool rounded_;
  std::vector<float> values_;
  std::vector<std::byte> bytes_;
};

// The same matrices where no stride finds them.
class ExpertsApart {
 public:
  ExpertsApart(const Experts& experts, int num_experts) {
    const size_t bytes = experts.stride();
    const size_t pitch = (bytes + 255) / 256 * 256;
    const auto count = static_cast<size_t>(num_experts);
    EXPECT_EQ(cudaHostAlloc(&host_, pitch * count, cudaHostAllocPortable),
              cudaSuccess);
    std::vector<std::byte> slots(pitch * count);
    std::vector<int64_t> table;
    for (size_t e = 0; e < count; ++e) {
      const size_t slot = count - 1 - e;
      const bool here = e % 3 != 1;
      std::byte* to =
          (here ? slots.data() : static_cast<std::byte*>(host_)) + slot * pitch;
      std::copy_n(experts.bytes().data() + e * bytes, bytes, to);
      table.push_back(static_cast<int64_t>(slot * pitch));
    }
    slots_ = std::make_unique<CudaBytes>(slots);
    for (size_t e = 1; e < count; e += 3) {
      table[e] += reinterpret_cast<intptr_t>(host_) -
                  reinterpret_cast<intptr_t>(slots_->as<std::byte>());
    }
    table_ = std::make_unique<CudaBytes>(table);
  }
  ~ExpertsApart() { cudaFreeHost(host_); }
  ExpertsApart(const ExpertsApart&) = delete;
  ExpertsApart& operator=(const ExpertsApart&) = delete;

  const std::byte* base() const { return slots_->as<std::byte>(); }
  const int64_t* table() const { return table_->as<int64_t>(); }

 private:
  void* host_ = nullptr;
  std::unique_ptr<CudaBytes> slots_, table_;
};

// A call over tokens that go to experts below `idle` only; idle 0: to every
// expert, in their order.
class Problem {
 public:
  Problem(TestCuda& cuda, const ExpertLinearDesc& desc, int64_t tokens,
          int idle, unsigned seed)
      : desc_(desc),
        every_(idle == 0),
        tokens_(tokens),
        cuda_(cuda),
        rng_(seed),
        experts_(desc, rng_, IsGrouped()) {
    const RoutingDesc routing = {desc.num_experts, desc.top_k};
    TestMatrix logits(DType::kF32, tokens, desc.num_experts);
    logits.Randomize(rng_);
    for (int64_t t = 0; t < tokens; ++t) {
      for (int e = idle; e < desc.num_experts; ++e) logits.Set(t, e, -1e30f);
    }
    routed_ = std::make_unique<Routed>(RouteOnCpu(routing, logits, nullptr));
    for (size_t i = 0; every_ && i < routed_->experts.size(); ++i) {
      routed_->experts[i] = static_cast<int32_t>(i) % desc.num_experts;
    }
    x_ =
        TestMatrix(desc.gemm.activation,
                   tokens * (desc.row_a_slot ? desc.top_k : 1), desc.gemm.k, 8);
    x_.Randomize(rng_);
    bias_ = TestMatrix(DType::kF32, desc.num_experts, desc.gemm.n);
    bias_.Randomize(rng_);
  }

  TestMatrix Run(const ExpertLinearRow& row) { return Run(row, *routed_, x_); }

  // With experts here and there: some in pinned host memory, the others on the
  // device, in another order.
  TestMatrix RunApart(const ExpertLinearRow& row) {
    apart_ = true;
    TestMatrix y = Run(row, *routed_, x_);
    apart_ = false;
    return y;
  }

  // As if `desc` had been given; of the same matrices.
  TestMatrix RunAs(const ExpertLinearDesc& desc, const ExpertLinearRow& row) {
    const ExpertLinearDesc own = std::exchange(desc_, desc);
    TestMatrix y = Run(row, *routed_, x_);
    desc_ = own;
    return y;
  }

  // Gates and ups, then the activation.
  TestMatrix RunActivated(const ExpertLinearRow& row, Activation function) {
    CudaTestMatrix y(Run(row, *routed_, x_));
    const int64_t width = desc_.gemm.n / 2;
    const ActivationDesc desc = {function, true, width, desc_.gemm.output,
                                 kTestLimit};
    ActivationParams params = {y.view(), y.view()};
    params.y.dims[1] = width;
    const auto chosen =
        Select("activation", ActivationTable(), desc, cuda_.info);
    EXPECT_TRUE(chosen.ok() &&
                (*chosen)->run(desc, params, *cuda_.stream).ok());
    return y.Download();
  }

  // Makes row t of x NaN.
  void Spoil(int64_t t) {
    for (int64_t c = 0; c < desc_.gemm.k; ++c) x_.Set(t, c, std::nanf(""));
  }

  // Token t alone.
  TestMatrix RunAlone(const ExpertLinearRow& row, int64_t t,
                      const ExpertLinearDesc* as = nullptr) {
    const auto k = static_cast<size_t>(desc_.top_k);
    const auto first = static_cast<size_t>(t) * k;
    Routed one({desc_.num_experts, desc_.top_k}, 1);
    std::copy_n(routed_->experts.begin() + static_cast<ptrdiff_t>(first), k,
                one.experts.begin());
    ListSlots(one);
    const int64_t rows = desc_.row_a_slot ? desc_.top_k : 1;
    TestMatrix x(desc_.gemm.activation, rows, desc_.gemm.k, 8);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < desc_.gemm.k; ++c) {
        x.Set(r, c, x_(t * rows + r, c));
      }
    }
    const ExpertLinearDesc own = std::exchange(desc_, as ? *as : desc_);
    TestMatrix y = Run(row, one, x);
    desc_ = own;
    return y;
  }

  void Check(const TestMatrix& y) {
    const GemmDesc& gemm = desc_.gemm;
    const auto sum = [&](int64_t s, int64_t c, bool magnitude) {
      const int64_t e = routed_->experts[static_cast<size_t>(s)];
      const int64_t r = desc_.row_a_slot ? s : s / desc_.top_k;
      double total = magnitude ? std::abs(bias_(e, c)) : double{bias_(e, c)};
      for (int64_t i = 0; i < gemm.k; ++i) {
        const double product = double{x_(r, i)} * experts_(e, c, i);
        total += magnitude ? std::abs(product) : product;
      }
      return total;
    };
    float most = 0.0f;
    double shifted = 0.0;
    if (IsBlockFormat(gemm.weight)) {
      // Levels and minima are added apart and may cancel.
      for (int64_t i = 0; i < gemm.n * gemm.k; ++i) {
        most = std::max(most, std::abs(experts_(0, 0, i)));
      }
      shifted = 2.0 * most * static_cast<double>(gemm.k);
    }
    ExpectClose(
        y, [&](int64_t s, int64_t c) { return sum(s, c, false); },
        [&](int64_t s, int64_t c) {
          // k roundings of a partial sum, as noise, and one at the end.
          return 16.0 * std::sqrt(static_cast<double>(gemm.k)) * kUnitF32 *
                     (sum(s, c, true) + shifted) +
                 Rounding(gemm.output, sum(s, c, false));
        });
  }

  int64_t num_slots() const { return tokens_ * desc_.top_k; }

 private:
  // A token's slots by expert, as routing does.
  static void ListSlots(Routed& one) {
    size_t next = 0;
    for (size_t e = 0; e + 1 < one.offsets.size(); ++e) {
      one.offsets[e] = static_cast<int32_t>(next);
      for (size_t i = 0; i < one.experts.size(); ++i) {
        if (one.experts[i] == static_cast<int32_t>(e)) {
          one.slots[next++] = static_cast<int32_t>(i);
        }
      }
    }
    one.offsets.back() = static_cast<int32_t>(next);
  }
  // Whether many slots' products are those of gemm's kernel for many rows.
  bool IsGrouped() const {
    return IsBlockFormat(desc_.gemm.weight) && cuda_.info.sm == 90 &&
           !ExpertRowsAreFew(desc_, num_slots()) &&
           !WideRoundsTooMuch(QuantFormOf(desc_.gemm.weight)) &&
           desc_.gemm.k % 8 == 0;
  }
  TestMatrix Run(const ExpertLinearRow& row, Routed& routed, TestMatrix& x) {
    const CudaBytes weights(experts_.bytes());
    std::optional<ExpertsApart> scattered;
    const CudaBytes experts(routed.experts), offsets(routed.offsets),
        slots(routed.slots);
    CudaTestMatrix device_x(x), device_bias(bias_);
    CudaTestMatrix y(desc_.gemm.output,
                     static_cast<int64_t>(routed.experts.size()), desc_.gemm.n,
                     tokens_ % 3 == 0 ? 4 : 8);
    ExpertLinearParams params;
    params.x = device_x.view();
    params.w.base = weights.as<std::byte>();
    params.w.stride_bytes = experts_.stride();
    if (apart_) {
      scattered.emplace(experts_, desc_.num_experts);
      params.w.base = scattered->base();
      params.w.table = scattered->table();
    }
    params.bias = device_bias.floats();
    if (!every_) {
      params.experts = experts.as<int32_t>();
      params.offsets = offsets.as<int32_t>();
      params.slots = slots.as<int32_t>();
    }
    params.y = y.view();
    const CudaBytes workspace(std::vector<std::byte>(std::max<size_t>(
        row.workspace_bytes == nullptr
            ? 0
            : row.workspace_bytes(desc_, y.view().rows() / desc_.top_k),
        16)));
    params.workspace = workspace.as<void>();
    const absl::Status status = row.run(desc_, params, *cuda_.stream);
    EXPECT_TRUE(status.ok()) << status;
    return y.Download();
  }

  ExpertLinearDesc desc_;
  bool apart_ = false;
  bool every_;
  int64_t tokens_;
  TestCuda& cuda_;
  std::mt19937 rng_;
  Experts experts_;
  std::unique_ptr<Routed> routed_;
  TestMatrix x_, bias_;
};

void CheckRows(TestCuda& cuda, const ExpertLinearDesc& desc, int64_t tokens,
               int idle, unsigned seed) {
  Problem problem(cuda, desc, tokens, idle, seed);
  ForEachCudaRow(ExpertLinearTable(), desc, cuda,
                 [&](const ExpertLinearRow& row) {
                   const TestMatrix y = problem.Run(row);
                   problem.Check(y);
                   const TestMatrix apart = problem.RunApart(row);
                   for (int64_t s = 0; s < problem.num_slots(); ++s) {
                     ASSERT_EQ(apart.RowBits(s), y.RowBits(s)) << "slot " << s;
                   }
                 });
}

TEST(MoeCudaTest, PlainWeightsMatchFloat64) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  unsigned seed = 1;
  const DType kTypes[][2] = {{DType::kBF16, DType::kBF16},
                             {DType::kF16, DType::kF16},
                             {DType::kF32, DType::kF32},
                             {DType::kBF16, DType::kF32}};
  for (const auto& [weight, type] : kTypes) {
    for (const auto& [n, k] : {std::pair<int64_t, int64_t>{33, 47},
                               {16, 32},
                               {70, 288},
                               {129, 1056}}) {
      for (const int64_t tokens : {1, 2, 9, 40, 150}) {
        for (const bool row_a_slot : {false, true}) {
          SCOPED_TRACE(::testing::Message()
                       << DTypeName(weight) << " x " << DTypeName(type) << " n "
                       << n << " k " << k << " tokens " << tokens << " a slot "
                       << row_a_slot << " seed " << seed);
          const DType output = row_a_slot ? DType::kF32 : type;
          CheckRows(cuda, {{n, k, weight, type, output}, 5, 2, row_a_slot},
                    tokens, 4, seed++);
        }
      }
    }
  }
}

// Each token's rows go to every expert (heads of latent attention).
TEST(MoeCudaTest, EveryExpert) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  unsigned seed = 1;
  const DType kTypes[][2] = {{DType::kBF16, DType::kBF16},
                             {DType::kF32, DType::kF32},
                             {DType::kF32, DType::kBF16}};
  for (const auto& [weight, type] : kTypes) {
    for (const int64_t tokens : {1, 2, 8, 9, 13, 100}) {
      for (const bool row_a_slot : {false, true}) {
        SCOPED_TRACE(::testing::Message()
                     << DTypeName(weight) << " x " << DTypeName(type)
                     << " tokens " << tokens << " a slot " << row_a_slot);
        CheckRows(cuda, {{48, 96, weight, type, type}, 5, 5, row_a_slot},
                  tokens, 0, seed++);
      }
    }
  }
}

// More experts than a warp has lanes, most of them without a token.
TEST(MoeCudaTest, ManyExperts) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  for (const int64_t tokens : {1, 3, 70}) {
    SCOPED_TRACE(tokens);
    CheckRows(cuda, {{40, 64, DType::kBF16, DType::kBF16}, 130, 8}, tokens, 117,
              7);
    CheckRows(cuda, {{40, 64, DType::kF32, DType::kF32}, 130, 8}, tokens, 99,
              8);
  }
}

TEST(MoeCudaTest, EveryBlockFormatMatchesFloat64) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  unsigned seed = 1;
  for (const BlockCodec* codec : BlockCodecs()) {
    if (codec->encode == nullptr) continue;
    const int64_t block = GetFormatInfo(codec->dtype).block_elements;
    for (const int64_t columns : {1, 300}) {
      const int64_t k = (columns + block - 1) / block * block;
      for (const int64_t tokens : {1, 6, 60, 300}) {
        const DType type = seed % 2 != 0 ? DType::kBF16 : DType::kF16;
        SCOPED_TRACE(::testing::Message()
                     << DTypeName(codec->dtype) << " x " << DTypeName(type)
                     << " k " << k << " tokens " << tokens << " seed " << seed);
        CheckRows(cuda,
                  {{columns == 1 ? 16 : 53, k, codec->dtype, type,
                    seed % 3 != 0 ? DType::kF32 : type},
                   4,
                   2,
                   seed % 2 != 0},
                  tokens, 3, seed);
        ++seed;
      }
    }
  }
}

// Several blocks of rows and pieces of slots an expert, and experts without a
// slot between them.
TEST(MoeCudaTest, ManySlotsOfQuantisedExperts) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  unsigned seed = 1;
  for (const DType weight :
       {DType::kQ4_K, DType::kQ8_0, DType::kQ6_K, DType::kIQ4_NL,
        DType::kU4_G128, DType::kF8_G128, DType::kMXFP4}) {
    for (const int64_t tokens : {100, 700}) {
      for (const bool row_a_slot : {false, true}) {
        SCOPED_TRACE(::testing::Message()
                     << DTypeName(weight) << " tokens " << tokens << " a slot "
                     << row_a_slot << " seed " << seed);
        const DType type = seed % 2 != 0 ? DType::kBF16 : DType::kF16;
        CheckRows(cuda,
                  {{272, 768, weight, type, row_a_slot ? DType::kF32 : type},
                   37,
                   5,
                   row_a_slot},
                  tokens, tokens == 100 ? 7 : 36, seed);
        ++seed;
      }
    }
  }
}

bool IsStreamed(const TestCuda& cuda, const ExpertLinearDesc& desc,
                int64_t tokens) {
  return cuda.info.sm == 90 && ExpertRowsAreSome(desc, tokens * desc.top_k);
}

// Pieces of 8 and of 16 slots, experts without a slot, rounds of all numbers of
// pairs, units that K does not fill, alone and together.
TEST(MoeCudaTest, SomeSlotsOfEveryBlockFormat) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  unsigned seed = 1;
  for (const BlockCodec* codec : BlockCodecs()) {
    if (codec->encode == nullptr) continue;
    const int64_t block = GetFormatInfo(codec->dtype).block_elements;
    for (const int64_t columns : {1, 600}) {
      const int64_t k = (columns + block - 1) / block * block;
      // Few columns: tokens in turn.
      const std::vector<int64_t> turns =
          columns == 1 ? std::vector<int64_t>{std::array{1, 7, 24}[seed % 3]}
                       : std::vector<int64_t>{1, 24};
      for (const int64_t tokens : turns) {
        const DType type = seed % 2 != 0 ? DType::kBF16 : DType::kF16;
        const int64_t n = columns == 1 ? 480 : 32;
        SCOPED_TRACE(::testing::Message()
                     << DTypeName(codec->dtype) << " x " << DTypeName(type)
                     << " n " << n << " k " << k << " tokens " << tokens
                     << " seed " << seed);
        const ExpertLinearDesc desc = {
            {n, k, codec->dtype, type, seed % 3 != 0 ? DType::kF32 : type},
            5,
            2,
            seed % 4 < 2};
        ASSERT_TRUE(IsStreamed(cuda, desc, tokens) || cuda.info.sm != 90);
        Problem problem(cuda, desc, tokens, 4, seed);
        ForEachCudaRow(
            ExpertLinearTable(), desc, cuda, [&](const ExpertLinearRow& row) {
              const TestMatrix y = problem.Run(row);
              problem.Check(y);
              const TestMatrix apart = problem.RunApart(row);
              for (int64_t s = 0; s < problem.num_slots(); ++s) {
                ASSERT_EQ(apart.RowBits(s), y.RowBits(s)) << "slot " << s;
              }
              ExpertLinearDesc invariant = desc;
              invariant.gemm.batch_invariant = true;
              const TestMatrix together = problem.RunAs(invariant, row);
              problem.Check(together);
              for (const int64_t t : {int64_t{0}, tokens - 1}) {
                const TestMatrix alone = problem.RunAlone(row, t, &invariant);
                for (int64_t r = 0; r < 2; ++r) {
                  EXPECT_EQ(alone.RowBits(r), together.RowBits(2 * t + r)) << t;
                }
              }
            });
        ++seed;
      }
    }
  }
}

// The bits are those of product and activation apart, whichever kernel makes
// the product.
TEST(MoeCudaTest, GatedExpertsHaveTheBitsOfTheOpsApart) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  unsigned seed = 1;
  for (const DType weight : {DType::kQ4_0, DType::kQ4_K, DType::kU4_G128,
                             DType::kQ6_K, DType::kQ8_0, DType::kMXFP4}) {
    for (const Activation function :
         {Activation::kSilu, Activation::kGeluTanh, Activation::kClampedSilu,
          Activation::kLimitedSilu}) {
      for (const int64_t tokens : {1, 9, 30, 90}) {
        const DType type = seed % 2 != 0 ? DType::kBF16 : DType::kF16;
        SCOPED_TRACE(::testing::Message()
                     << DTypeName(weight) << " x " << DTypeName(type)
                     << " function " << static_cast<int>(function) << " tokens "
                     << tokens << " seed " << seed);
        // Rows of gates that are no multiple of 32, and that are.
        const int64_t width = seed % 3 != 0 ? 72 : 256;
        ExpertLinearDesc desc = {{2 * width, 256, weight, type, type}, 6, 2};
        Problem problem(cuda, desc, tokens, 5, seed++);
        const ExpertLinearRow& row = RowNamed("cuda_quantised");
        const TestMatrix apart = problem.RunActivated(row, function);
        desc.gated = true;
        desc.function = function;
        desc.limit = kTestLimit;
        ASSERT_EQ(row.refuses(desc, cuda.info), nullptr);
        const TestMatrix together = problem.RunAs(desc, row);
        for (int64_t s = 0; s < problem.num_slots(); ++s) {
          for (int64_t c = 0; c < width; ++c) {
            ASSERT_EQ(together(s, c), apart(s, c)) << s << ", " << c;
          }
        }
      }
    }
  }
}

// A row of x that is not a number spoils its own slots alone.
TEST(MoeCudaTest, NanStaysInItsSlots) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  for (const int64_t k : {512, 544}) {
    const ExpertLinearDesc desc = {
        {64, k, DType::kQ4_0, DType::kBF16, DType::kF32}, 3, 2};
    for (const int64_t tokens : {5, 12}) {
      Problem problem(cuda, desc, tokens, 3, 11);
      const ExpertLinearRow& row = RowNamed("cuda_quantised");
      const TestMatrix before = problem.Run(row);
      problem.Spoil(2);
      const TestMatrix after = problem.Run(row);
      for (int64_t s = 0; s < problem.num_slots(); ++s) {
        if (s / 2 == 2) {
          EXPECT_TRUE(std::isnan(after(s, 0))) << s;
        } else {
          EXPECT_EQ(after.RowBits(s), before.RowBits(s)) << s;
        }
      }
    }
  }
}

TEST(MoeCudaTest, ManySlotsOf16BitExperts) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  unsigned seed = 1;
  for (const auto& [n, k] :
       {std::pair<int64_t, int64_t>{128, 264}, {2096, 72}, {515, 136}}) {
    for (const DType type : {DType::kBF16, DType::kF16}) {
      for (const bool row_a_slot : {false, true}) {
        SCOPED_TRACE(::testing::Message()
                     << DTypeName(type) << " n " << n << " k " << k
                     << " a slot " << row_a_slot << " seed " << seed);
        const GemmDesc gemm = {n, k, type, type,
                               row_a_slot ? DType::kF32 : type};
        // 60 to 160 slots an expert: one or two tiles of rows, or less.
        CheckRows(cuda, {gemm, 11, 5, row_a_slot}, row_a_slot ? 198 : 200, 9,
                  seed);
        CheckRows(cuda, {gemm, 3, 3, row_a_slot}, row_a_slot ? 130 : 30, 0,
                  seed++);
      }
    }
  }
}

TEST(MoeCudaTest, BatchInvariantRowsHaveTheSameBitsAlone) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  for (const DType weight : {DType::kBF16, DType::kF32, DType::kQ4_K}) {
    SCOPED_TRACE(DTypeName(weight));
    const DType type = weight == DType::kF32 ? weight : DType::kBF16;
    ExpertLinearDesc desc = {{48, 512, weight, type, DType::kF32}, 3, 2};
    desc.gemm.batch_invariant = true;
    Problem problem(cuda, desc, 120, 3, 5);
    ForEachCudaRow(
        ExpertLinearTable(), desc, cuda, [&](const ExpertLinearRow& row) {
          const TestMatrix together = problem.Run(row);
          for (const int64_t t : {0, 1, 57, 119}) {
            const TestMatrix alone = problem.RunAlone(row, t);
            for (int64_t r = 0; r < 2; ++r) {
              EXPECT_EQ(alone.RowBits(r), together.RowBits(2 * t + r)) << t;
            }
          }
        });
  }
}

TEST(MoeCudaTest, CombineMatchesFloat64) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  for (const int64_t width : {1, 8, 40, 101, 3000}) {
    for (const MoeCombineDesc& desc :
         {MoeCombineDesc{width, 1}, MoeCombineDesc{width, 3, true, false},
          MoeCombineDesc{width, 8, true, true}}) {
      SCOPED_TRACE(::testing::Message() << "width " << width);
      constexpr int64_t kTokens = 5;
      std::mt19937 rng(3);
      const auto random = [&](int64_t rows, int64_t cols, int64_t pad) {
        TestMatrix matrix(DType::kF32, rows, cols, pad);
        matrix.Randomize(rng);
        return matrix;
      };
      TestMatrix x = random(kTokens * desc.top_k, width, 4);
      TestMatrix weights = random(kTokens, desc.top_k, 0);
      TestMatrix shared = random(kTokens, width, 4);
      TestMatrix gate = random(kTokens, 1, 0);
      TestMatrix residual = random(kTokens, width, 4);
      const auto sum = [&](int64_t t, int64_t c, bool magnitude) {
        const auto term = [&](double v) { return magnitude ? std::abs(v) : v; };
        double total = term(residual(t, c));
        for (int r = 0; r < desc.top_k; ++r) {
          total += term(double{weights(t, r)} * x(t * desc.top_k + r, c));
        }
        const double factor =
            desc.gated ? 1 / (1 + std::exp(-double{gate(t, 0)})) : 1.0;
        return total + (desc.shared ? term(factor * shared(t, c)) : 0.0);
      };
      CudaTestMatrix device_x(x), device_weights(weights),
          device_shared(shared), device_gate(gate);
      ForEachCudaRow(
          MoeCombineTable(), desc, cuda, [&](const MoeCombineRow& row) {
            CudaTestMatrix y(residual);  // in place
            MoeCombineParams params;
            params.x = device_x.view();
            params.weights = device_weights.floats();
            if (desc.shared) params.shared = device_shared.view();
            if (desc.gated) params.gate = device_gate.view();
            params.residual = params.y = y.view();
            ASSERT_TRUE(row.run(desc, params, *cuda.stream).ok());
            // A rounding a term, and six for the gate.
            ExpectClose(
                y.Download(),
                [&](int64_t t, int64_t c) { return sum(t, c, false); },
                [&](int64_t t, int64_t c) {
                  return (desc.top_k + 8) * kUnitF32 * sum(t, c, true);
                });
          });
    }
  }
}

}  // namespace
}  // namespace inlay

#endif  // INLAY_HAS_CUDA
