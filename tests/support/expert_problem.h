// Calls of expert_linear's CUDA rows for tests: experts' matrices, tokens that
// are routed to them, and what float64 makes of them. Header only.
#ifndef INLAY_TESTS_SUPPORT_EXPERT_PROBLEM_H_
#define INLAY_TESTS_SUPPORT_EXPERT_PROBLEM_H_

#include <algorithm>
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
#include "kernels/moe/expert_linear.h"
#include "kernels/moe/expert_linear_cuda.h"
#include "tests/support/cuda_test_util.h"
#include "tests/support/moe_test_util.h"
#include "tests/support/random_blocks.h"
#include "tests/support/rounded_weights.h"

namespace inlay::testing {

// Of activations that have one.
inline constexpr float kTestLimit = 1.5f;

inline const ExpertLinearRow& ExpertRowNamed(std::string_view name) {
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

  const float* Row(int64_t expert, int64_t row) const {
    const GemmDesc& gemm = desc_.gemm;
    return values_.data() + (expert * gemm.n + row) * gemm.k;
  }
  const std::vector<std::byte>& bytes() const { return bytes_; }
  // All ones, which are NaN in every type and layout, in the experts that are
  // not among those: whoever multiplies by their weights shows.
  void PoisonOthers(const std::vector<int32_t>& used) {
    for (int e = 0; e < desc_.num_experts; ++e) {
      if (std::find(used.begin(), used.end(), e) != used.end()) continue;
      std::fill_n(bytes_.begin() +
                      static_cast<ptrdiff_t>(static_cast<size_t>(e) * stride()),
                  stride(), std::byte{0xff});
    }
  }
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
  ExpertsApart(const std::vector<std::byte>& experts, int num_experts) {
    const auto count = static_cast<size_t>(num_experts);
    const size_t bytes = experts.size() / count;
    const size_t pitch = (bytes + 255) / 256 * 256;
    EXPECT_EQ(cudaHostAlloc(&host_, pitch * count, cudaHostAllocPortable),
              cudaSuccess);
    std::vector<std::byte> slots(pitch * count);
    std::vector<int64_t> table;
    for (size_t e = 0; e < count; ++e) {
      const size_t slot = count - 1 - e;
      const bool here = e % 3 != 1;
      std::byte* to =
          (here ? slots.data() : static_cast<std::byte*>(host_)) + slot * pitch;
      std::copy_n(experts.data() + e * bytes, bytes, to);
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
// expert, in their order. Weights of experts that no token goes to are NaN.
class ExpertProblem {
 public:
  ExpertProblem(TestCuda& cuda, const ExpertLinearDesc& desc, int64_t tokens,
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
    experts_.PoisonOthers(routed_->experts);
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
    wanted_.clear();
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
    if (wanted_.empty()) FindWanted();
    const auto wanted = [&](int64_t s, int64_t c) {
      return wanted_[static_cast<size_t>(s * gemm.n + c)];
    };
    float most = 0.0f;
    double shifted = 0.0;
    if (IsBlockFormat(gemm.weight)) {
      // Levels and minima are added apart and may cancel.
      for (int64_t i = 0; i < gemm.n * gemm.k; ++i) {
        most = std::max(most, std::abs(experts_.Row(0, 0)[i]));
      }
      shifted = 2.0 * most * static_cast<double>(gemm.k);
    }
    ExpectClose(
        y, [&](int64_t s, int64_t c) { return wanted(s, c).value; },
        [&](int64_t s, int64_t c) {
          // k roundings of a partial sum, as noise, and one at the end.
          return 16.0 * std::sqrt(static_cast<double>(gemm.k)) * kUnitF32 *
                     (wanted(s, c).magnitude + shifted) +
                 Rounding(gemm.output, wanted(s, c).value);
        });
  }

  int64_t num_slots() const { return tokens_ * desc_.top_k; }
  int ExpertOf(int64_t slot) const {
    return routed_->experts[static_cast<size_t>(slot)];
  }

 private:
  struct Wanted {
    double value;
    double magnitude;  // of what was added, in all
  };
  // Of each slot's outputs.
  void FindWanted() {
    const GemmDesc& gemm = desc_.gemm;
    std::vector<double> x(static_cast<size_t>(gemm.k));
    for (int64_t s = 0; s < num_slots(); ++s) {
      const int64_t e = routed_->experts[static_cast<size_t>(s)];
      const int64_t r = desc_.row_a_slot ? s : s / desc_.top_k;
      for (int64_t i = 0; i < gemm.k; ++i) {
        x[static_cast<size_t>(i)] = x_(r, i);
      }
      for (int64_t c = 0; c < gemm.n; ++c) {
        Wanted wanted = {bias_(e, c), std::abs(bias_(e, c))};
        const float* w = experts_.Row(e, c);
        for (const double a : x) {
          const double product = a * *w++;
          wanted.value += product;
          wanted.magnitude += std::abs(product);
        }
        wanted_.push_back(wanted);
      }
    }
  }

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
      scattered.emplace(experts_.bytes(), desc_.num_experts);
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
  std::vector<Wanted> wanted_;  // once it is asked for
};

}  // namespace inlay::testing

#endif  // INLAY_TESTS_SUPPORT_EXPERT_PROBLEM_H_
