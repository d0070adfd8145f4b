// A linear_chain over random weights and its check against float64.
#ifndef INLAY_TESTS_SUPPORT_LINEAR_CHAIN_UTIL_H_
#define INLAY_TESTS_SUPPORT_LINEAR_CHAIN_UTIL_H_

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "kernels/gemm/quantised/pack.h"
#include "kernels/linear_chain/linear_chain.h"
#include "tests/support/cuda_test_util.h"
#include "tests/support/moe_test_util.h"
#include "tests/support/random_blocks.h"

namespace inlay::testing {

inline constexpr float kChainEpsilon = 1e-5f;
inline constexpr int64_t kChainPad = 8;

struct ChainWeights {
  // `matrices`: one above the other.
  ChainWeights(const LinearChainStage& stage, int64_t matrices,
               std::mt19937& rng) {
    GemmDesc gemm = stage.gemm;
    gemm.n *= matrices;
    values.resize(static_cast<size_t>(gemm.n * gemm.k));
    if (const BlockCodec* codec = FindBlockCodec(gemm.weight)) {
      const QuantMatrix matrix(gemm.weight, gemm.k);
      const auto rows = RandomBlocks(
          *codec, gemm.n * (gemm.k / matrix.block_elements), rng, 0.5f);
      std::vector<std::byte> packed(
          static_cast<size_t>(QuantBytes(matrix.form, gemm.n, gemm.k)));
      PackQuantised(matrix, rows.data(), 0, gemm.n, packed.data());
      for (int64_t r = 0; r < gemm.n; ++r) {
        UnpackQuantisedRow(matrix, packed.data(), r,
                           values.data() + r * gemm.k);
      }
      device = std::make_unique<CudaBytes>(packed);
    } else {
      TestMatrix floats(gemm.weight, gemm.n, gemm.k);
      floats.Randomize(rng, 0.5f);
      for (int64_t i = 0; i < gemm.n * gemm.k; ++i) {
        values[static_cast<size_t>(i)] = floats(i / gemm.k, i % gemm.k);
      }
      const TensorView& from = floats.view();
      device = std::make_unique<CudaBytes>(
          std::vector<std::byte>(from.data, from.data + gemm.n * gemm.k * 2));
    }
    view = MatrixView(device->as<std::byte>(), gemm.weight, gemm.n, gemm.k);
    for (const float value : values) most = std::max(most, std::abs(value));
    host_bias = TestMatrix(DType::kF32, 1, gemm.n);
    host_bias.Randomize(rng);
    bias = std::make_unique<CudaTestMatrix>(host_bias);
    host_norm = TestMatrix(DType::kF32, 1, gemm.k);
    host_norm.Randomize(rng);
    norm = std::make_unique<CudaTestMatrix>(host_norm);
  }
  std::vector<float> values;
  float most = 0.0f;
  TestMatrix host_bias, host_norm;
  std::unique_ptr<CudaBytes> device;
  TensorView view;  // of that
  std::unique_ptr<CudaTestMatrix> bias, norm;
};

// What a chain left behind.
struct ChainOutcome {
  TestMatrix hidden;
  std::vector<TestMatrix> y;  // empty ones where a stage adds
};

class TestChain {
 public:
  TestChain(TestCuda& cuda, LinearChainDesc desc, int64_t m, unsigned seed)
      : desc(std::move(desc)), cuda_(cuda) {
    std::mt19937 rng(seed);
    for (const LinearChainStage& stage : this->desc.stages) {
      const bool of_experts = stage.experts != ChainExperts::kNone;
      weights_.emplace_back(
          stage, of_experts ? this->desc.routing.num_experts : 1, rng);
      if (stage.experts != ChainExperts::kInput) continue;
      const int experts = this->desc.routing.num_experts;
      // The last row is the gate's.
      router_ = TestMatrix(this->desc.router, experts + 1, stage.gemm.k);
      // Small, so that no expert that is chosen has a weight of zero: of those
      // the CPU takes any.
      router_.Randomize(rng, 0.25f);
      if (const int64_t width = this->desc.shared_width; width > 0) {
        LinearChainStage shared = stage;
        shared.gemm.n = 2 * width;
        shared_.emplace_back(shared, 1, rng);
        shared.gemm = this->desc.stages[weights_.size()].gemm;
        shared.gemm.k = width;
        shared_.emplace_back(shared, 1, rng);
      }
      biases_ = TestMatrix(DType::kF32, 2, experts);
      biases_.Randomize(rng);
    }
    const GemmDesc& first = this->desc.stages.front().gemm;
    x = TestMatrix(first.activation, m, first.k, kChainPad);
    x.Randomize(rng);
    hidden = TestMatrix(DType::kF32, m, Width(), kChainPad);
    hidden.Randomize(rng, 3.0f);
    const std::vector<uint8_t> zeros(LinearChainExchangeBytes(this->desc), 0);
    if (!zeros.empty()) exchange_ = std::make_shared<CudaBytes>(zeros);
  }

  // From now on blocks hand on in the same memory as those of `other`, which
  // has to be enough for both.
  void ShareExchange(const TestChain& other) { exchange_ = other.exchange_; }

  const LinearChainRow& Row() const {
    const auto row =
        Select("linear_chain", LinearChainTable(), desc, cuda_.info);
    EXPECT_TRUE(row.ok()) << row.status();
    return **row;
  }

  // The first `count` stages over rows [first, first + rows) of x and hidden,
  // `calls` times, in a graph or not.
  ChainOutcome Run(size_t count, int64_t first, int64_t rows, int calls = 1,
                   bool graph = false) {
    LinearChainDesc part = desc;
    part.stages.resize(count);
    CudaTestMatrix on_device_x(x);
    CudaTestMatrix on_device_hidden(hidden);
    std::vector<std::unique_ptr<CudaTestMatrix>> y;
    LinearChainParams params;
    params.x = on_device_x.view().RowSlice(first, rows);
    params.hidden = on_device_hidden.view().RowSlice(first, rows);
    if (exchange_ != nullptr) params.exchange = exchange_->as<void>();
    std::unique_ptr<CudaTestMatrix> router, biases;
    if (desc.routing.num_experts > 0) {
      router = std::make_unique<CudaTestMatrix>(router_);
      biases = std::make_unique<CudaTestMatrix>(biases_);
      params.router = router->view().RowSlice(0, desc.routing.num_experts);
      params.shared_gate = router->view().RowSlice(desc.routing.num_experts, 1);
      if (!shared_.empty()) {
        params.shared_input = shared_[0].view;
        params.shared_output = shared_[1].view;
      }
      params.router_bias = biases->floats();
      if (corrects) {
        params.correction = biases->floats() + desc.routing.num_experts;
      }
    }
    for (size_t s = 0; s < count; ++s) {
      const LinearChainStage& stage = part.stages[s];
      const GemmDesc& gemm = stage.gemm;
      LinearChainParams::Stage& with = params.stages.emplace_back();
      with.w = weights_[s].view;
      if (HasBias(s)) with.bias = weights_[s].bias->floats();
      if (HasWeight(s)) with.norm_weight = weights_[s].norm->floats();
      with.epsilon = kChainEpsilon;
      y.push_back(nullptr);
      if (stage.adds) continue;
      y.back() = std::make_unique<CudaTestMatrix>(
          gemm.output, rows, Outputs(stage, rows), kChainPad);
      with.y = y.back()->view();
    }
    const auto run = [&] {
      const absl::Status status = Row().run(part, params, *cuda_.stream);
      ASSERT_TRUE(status.ok()) << status;
    };
    cudaGraph_t recorded = nullptr;
    cudaGraphExec_t exec = nullptr;
    cudaStream_t stream = cuda_.stream->handle();
    if (graph) {
      EXPECT_EQ(
          cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
          cudaSuccess);
    }
    for (int i = 0; i < calls; ++i) run();
    if (graph) {
      EXPECT_EQ(cudaStreamEndCapture(stream, &recorded), cudaSuccess);
      EXPECT_EQ(cudaGraphInstantiate(&exec, recorded, 0), cudaSuccess);
      EXPECT_EQ(cudaGraphLaunch(exec, stream), cudaSuccess);
      EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
      EXPECT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
      EXPECT_EQ(cudaGraphDestroy(recorded), cudaSuccess);
    }
    ChainOutcome outcome;
    outcome.hidden = on_device_hidden.Download();
    for (auto& matrix : y) {
      outcome.y.push_back(matrix == nullptr ? TestMatrix()
                                            : matrix->Download());
    }
    return outcome;
  }

  // Weights of experts that no token goes to become NaN, `before` being what
  // stage s, of experts' inputs, reads.
  void PoisonIdle(size_t s, const TestMatrix& before) {
    Route(s, before);
    for (ChainWeights* weights : {&weights_[s], &weights_[s + 1]}) {
      const size_t bytes = weights->device->bytes() /
                           static_cast<size_t>(desc.routing.num_experts);
      for (int64_t e = 0; e < desc.routing.num_experts; ++e) {
        if (std::find(experts_.begin(), experts_.end(), e) != experts_.end()) {
          continue;
        }
        EXPECT_EQ(cudaMemset(weights->device->as<std::byte>() +
                                 static_cast<size_t>(e) * bytes,
                             0xff, bytes),
                  cudaSuccess);
      }
    }
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }

  // Stage s of `after` against the product of what `before` has.
  void Check(size_t s, const ChainOutcome& before, const ChainOutcome& after) {
    SCOPED_TRACE(::testing::Message() << "stage " << s);
    const LinearChainStage& stage = desc.stages[s];
    const GemmDesc& gemm = stage.gemm;
    const ChainWeights& weights = weights_[s];
    const TestMatrix input = stage.normalised ? Normalised(s, before.hidden)
                             : From(s) == 0   ? x
                                              : before.y[From(s) - 1];
    if (stage.experts != ChainExperts::kNone) Route(s, before.hidden);
    // Where the weights of column c of y are: of experts' inputs each's, and a
    // shared one's behind.
    struct Source {
      const ChainWeights* weights;
      int64_t row;
      bool has_bias;
    };
    const int64_t outputs = Outputs(stage, x.rows());
    const auto source = [&](int64_t c) -> Source {
      if (stage.experts != ChainExperts::kInput)
        return {&weights, c, HasBias(s)};
      const int64_t half = gemm.n / 2, own = c % outputs;
      const auto slot = static_cast<size_t>(own / half);
      const bool is_up = c >= outputs;
      if (slot < experts_.size()) {
        return {&weights,
                experts_[slot] * gemm.n + own % half + (is_up ? half : 0),
                HasBias(s)};
      }
      const int64_t first = half * static_cast<int64_t>(experts_.size());
      return {&shared_[0], own - first + (is_up ? desc.shared_width : 0),
              false};
    };
    const auto product = [&](int64_t r, int64_t c) {
      const Source from = source(c);
      const float* w = from.weights->values.data() + from.row * gemm.k;
      double want = from.has_bias ? weights.host_bias(0, from.row) : 0.0f;
      for (int64_t i = 0; i < gemm.k; ++i) want += double{w[i]} * input(r, i);
      return want;
    };
    // Offsets of the magic numbers stay in sums: up to 16 times as large.
    const auto slack = [&](int64_t r, int64_t c) {
      const Source from = source(c);
      const float* w = from.weights->values.data() + from.row * gemm.k;
      double size =
          from.has_bias ? std::abs(weights.host_bias(0, from.row)) : 0;
      double shifted = 0.0, squares = 0.0;
      for (int64_t i = 0; i < gemm.k; ++i) {
        const double value = std::abs(input(r, i));
        size += std::abs(w[i]) * value;
        shifted += value;
        squares += w[i] * value * w[i] * value;
      }
      // Numbers that are 16-bit floats in products, where weights are not
      // packed of activations' type: those that are no activations are rounded,
      // each by itself.
      const double unit = gemm.weight == DType::kBF16 ? 0x1p-8 : 0x1p-11;
      const double rounded =
          RoundsX() && stage.normalised ? 8.0 * unit * std::sqrt(squares) : 0.0;
      return rounded + 16.0 * std::sqrt(static_cast<double>(gemm.k)) *
                           kUnitF32 *
                           (size + double{from.weights->most} * shifted);
    };
    if (stage.gated) {
      const DType type = gemm.activation;
      const int64_t half = outputs;
      TestMatrix y = after.y[s];
      // Slots' columns are in their token's row alone.
      const auto is_there = [&](int64_t r, int64_t c) {
        if (stage.experts != ChainExperts::kInput) return true;
        const int64_t token = c / (gemm.n / 2) / desc.routing.top_k;
        return token == r || token >= y.rows();
      };
      for (int64_t r = 0; r < y.rows(); ++r) {
        for (int64_t c = 0; c < y.cols(); ++c) {
          if (is_there(r, c)) continue;
          EXPECT_TRUE(std::isnan(y(r, c)));
          y.Set(r, c, 0.0f);
        }
      }
      ExpectClose(
          y,
          [&](int64_t r, int64_t c) {
            if (!is_there(r, c)) return 0.0;
            return Gated(stage, product(r, c), product(r, half + c)).value;
          },
          [&](int64_t r, int64_t c) {
            if (!is_there(r, c)) return 1.0;
            const double gate = product(r, c), up = product(r, half + c);
            const double off_gate = slack(r, c) + Rounding(type, gate);
            const double off_up = slack(r, half + c) + Rounding(type, up);
            const GatedValue of = Gated(stage, gate, up);
            // SiLU's slope is at most 1.1.
            return 1.1 * off_gate * (std::abs(of.factor) + off_up) +
                   (std::abs(of.silu) + 1e-6) * off_up +
                   Rounding(type, of.value);
          });
    } else if (stage.experts == ChainExperts::kOutput) {
      CheckOutputs(s, input, before, after);
    } else if (stage.adds) {
      ExpectClose(
          after.hidden,
          [&](int64_t r, int64_t c) {
            return before.hidden(r, c) + (c < gemm.n ? product(r, c) : 0.0);
          },
          [&](int64_t r, int64_t c) {
            return c < gemm.n ? slack(r, c) +
                                    Rounding(DType::kF32, before.hidden(r, c))
                              : 1e-30;
          });
    } else {
      ExpectClose(after.y[s], product, [&](int64_t r, int64_t c) {
        return slack(r, c) + Rounding(gemm.output, product(r, c));
      });
    }
  }

  LinearChainDesc desc;
  TestMatrix x, hidden;
  bool corrects = false;  // the choice of experts

 private:
  bool RoundsX() const {
    const DType weight = desc.stages[0].gemm.weight;
    return !IsBlockFormat(weight) || weight == DType::kF8_G32 ||
           weight == DType::kF8_G128 || weight == DType::kNF4 ||
           weight == DType::kBNB_FP4;
  }
  bool HasBias(size_t s) const {
    if (desc.stages[s].experts == ChainExperts::kOutput) {
      return desc.outputs_biased;
    }
    return s % 2 == 1;
  }
  struct GatedValue {
    double silu, factor, value;  // the product of both
  };
  static GatedValue Gated(const LinearChainStage& stage, double gate,
                          double up) {
    const bool clamped = stage.function == Activation::kClampedSilu;
    const bool capped = stage.function == Activation::kCappedSilu;
    const double limit = double{stage.limit};
    if (HasLimit(stage.function)) {
      if (!capped) gate = std::min(gate, limit);
      up = std::clamp(up, -limit, limit);
    }
    const double slope = clamped ? double{kClampedSiluSlope} : 1.0;
    double silu = gate / (1.0 + std::exp(-slope * gate));
    if (capped) silu = std::min(silu, limit);
    const double factor = clamped ? up + 1.0 : up;
    return {silu, factor, silu * factor};
  }
  int64_t Outputs(const LinearChainStage& stage, int64_t rows) const {
    const int64_t n = stage.gated ? stage.gemm.n / 2 : stage.gemm.n;
    return stage.experts == ChainExperts::kInput
               ? n * rows * desc.routing.top_k + desc.shared_width
               : n;
  }
  // The tokens' experts and their weights, by slot.
  void Route(size_t s, const TestMatrix& from) {
    if (desc.stages[s].experts == ChainExperts::kOutput) --s;
    const TestMatrix normalised = Normalised(s, from);
    const int experts = desc.routing.num_experts;
    const auto product = [&](int64_t r, int64_t e) {
      double sum = 0.0;
      for (int64_t i = 0; i < router_.cols(); ++i) {
        sum += double{normalised(r, i)} * router_(e, i);
      }
      return sum;
    };
    TestMatrix logits(DType::kF32, from.rows(), experts);
    shared_weights_.clear();
    for (int64_t r = 0; r < from.rows(); ++r) {
      for (int64_t e = 0; e < experts; ++e) {
        logits.Set(r, e, static_cast<float>(product(r, e) + biases_(0, e)));
      }
      const double gate =
          desc.shared_gated ? 1.0 / (1.0 + std::exp(-product(r, experts))) : 1;
      shared_weights_.push_back(gate);
    }
    std::vector<float> correction;
    for (int64_t e = 0; corrects && e < logits.cols(); ++e) {
      correction.push_back(biases_(1, e));
    }
    const Routed routed = RouteOnCpu(desc.routing, logits,
                                     corrects ? correction.data() : nullptr);
    experts_.assign(routed.experts.begin(), routed.experts.end());
    expert_weights_ = routed.weights;
  }
  // hidden += weight * output, by the tokens' experts; `input` is what their
  // inputs gave.
  void CheckOutputs(size_t s, const TestMatrix& input,
                    const ChainOutcome& before, const ChainOutcome& after) {
    const GemmDesc& gemm = desc.stages[s].gemm;
    const ChainWeights& weights = weights_[s];
    const auto top_k = static_cast<size_t>(desc.routing.top_k);
    // The sum, or of absolute values, each as if weights were the largest.
    const auto sum = [&](int64_t r, int64_t c, bool sizes) {
      double all = 0.0;
      const auto add = [&](const ChainWeights& from, int64_t row,
                           int64_t columns, int64_t first, double weight) {
        const float* w = from.values.data() + row * columns;
        double one = 0.0;
        for (int64_t i = 0; i < columns; ++i) {
          const double x = input(r, first + i);
          one += sizes ? std::abs(x) * (std::abs(w[i]) + from.most) : x * w[i];
        }
        all += one * weight;
      };
      for (size_t rank = 0; rank < top_k; ++rank) {
        const size_t slot = static_cast<size_t>(r) * top_k + rank;
        const int64_t row = experts_[slot] * gemm.n + c;
        const double weight = double{expert_weights_[slot]};
        add(weights, row, gemm.k, static_cast<int64_t>(slot) * gemm.k, weight);
        if (!HasBias(s)) continue;
        const double bias = weights.host_bias(0, row) * weight;
        all += sizes ? std::abs(bias) : bias;
      }
      if (!shared_.empty()) {
        add(shared_[1], c, desc.shared_width,
            static_cast<int64_t>(experts_.size()) * gemm.k,
            shared_weights_[static_cast<size_t>(r)]);
      }
      return all;
    };
    ExpectClose(
        after.hidden,
        [&](int64_t r, int64_t c) {
          return before.hidden(r, c) + (c < gemm.n ? sum(r, c, false) : 0.0);
        },
        [&](int64_t r, int64_t c) {
          if (c >= gemm.n) return 1e-30;
          const auto k = static_cast<double>(input.cols());
          return 16.0 * std::sqrt(k) * kUnitF32 * sum(r, c, true) +
                 Rounding(DType::kF32, before.hidden(r, c));
        });
  }
  bool HasWeight(size_t s) const { return From(s) % 4 != 3; }
  // The stage whose x it has.
  size_t From(size_t s) const {
    while (desc.stages[s].same_x) --s;
    return s;
  }
  int64_t Width() const {
    for (const LinearChainStage& stage : desc.stages) {
      if (stage.normalised) return stage.gemm.k;
      if (stage.adds) return stage.gemm.n;
    }
    return 8;
  }
  TestMatrix Normalised(size_t s, const TestMatrix& from) const {
    const auto& weights = weights_[From(s)];
    TestMatrix y(DType::kF32, from.rows(), desc.stages[s].gemm.k);
    for (int64_t r = 0; r < y.rows(); ++r) {
      double squares = 0.0;
      for (int64_t i = 0; i < y.cols(); ++i) {
        squares += double{from(r, i)} * from(r, i);
      }
      const double factor =
          1.0 /
          std::sqrt(squares / static_cast<double>(y.cols()) + kChainEpsilon);
      for (int64_t i = 0; i < y.cols(); ++i) {
        const double weight = HasWeight(s) ? weights.host_norm(0, i) : 1.0;
        y.Set(r, i, static_cast<float>(from(r, i) * factor * weight));
      }
    }
    return y;
  }

  TestCuda& cuda_;
  std::vector<ChainWeights> weights_;
  // Of experts: the router's, its bias and a correction, and what the last
  // check found them to be.
  TestMatrix router_, biases_;
  std::vector<int64_t> experts_;
  std::vector<float> expert_weights_;
  std::vector<ChainWeights> shared_;    // input and output
  std::vector<double> shared_weights_;  // by row
  std::shared_ptr<CudaBytes> exchange_;
};

// What lies between two attentions of a decoder.
inline LinearChainDesc BetweenAttentions(DType weight, DType type,
                                         int64_t heads, int64_t width,
                                         int64_t inner, int64_t qkv) {
  LinearChainDesc desc;
  desc.stages.resize(4);
  desc.stages[0].gemm = {width, heads, weight, type, DType::kF32};
  desc.stages[0].adds = true;
  desc.stages[1].gemm = {2 * inner, width, weight, type, type};
  desc.stages[1].normalised = true;
  desc.stages[1].gated = true;
  desc.stages[2].gemm = {width, inner, weight, type, DType::kF32};
  desc.stages[2].adds = true;
  desc.stages[3].gemm = {qkv, width, weight, type, type};
  desc.stages[3].normalised = true;
  return desc;
}

}  // namespace inlay::testing

#endif  // INLAY_TESTS_SUPPORT_LINEAR_CHAIN_UTIL_H_
