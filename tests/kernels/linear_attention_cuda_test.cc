// The CUDA rows of linear_attention and short_conv: against float64, and to the
// bit the same however sequences are cut, whatever runs beside them, and in
// steps of fixed size.
#if INLAY_HAS_CUDA

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <optional>

#include "kernels/linear_attention/linear_attention.h"
#include "kernels/linear_attention/short_conv.h"
#include "kernels/linear_attention/state_plan.h"
#include "tests/support/cuda_test_util.h"
#include "tests/support/state_test_util.h"

namespace inlay {
namespace {

using ::inlay::testing::CudaBytes;
using ::inlay::testing::CudaTestMatrix;
using ::inlay::testing::ExpectClose;
using ::inlay::testing::Expected;
using ::inlay::testing::ForEachCudaRow;
using ::inlay::testing::Inputs;
using ::inlay::testing::kStateBlock;
using ::inlay::testing::kUnitF32;
using ::inlay::testing::LinearAttentionCase;
using ::inlay::testing::LinearAttentionCases;
using ::inlay::testing::RandomMatrix;
using ::inlay::testing::Reference;
using ::inlay::testing::Rounding;
using ::inlay::testing::States;
using ::inlay::testing::TestCuda;
using ::inlay::testing::TestMatrix;

constexpr DType kFloats[] = {DType::kF32, DType::kF16, DType::kBF16};

// States whose pool is on the device, and the plan of the step taken last.
class DeviceStates {
 public:
  DeviceStates(int64_t floats, int num_blocks, int block_tokens = kStateBlock)
      : host_(floats, num_blocks, block_tokens), pool_(host_.bytes()) {}

  States& host() { return host_; }

  // For a step of `rows` rows and as many sequences as were added, or more.
  StateParams Take(int64_t rows, int64_t sequences = 0) {
    StateParams params = host_.Take();
    sequences = std::max<int64_t>(
        sequences, static_cast<int64_t>(params.sequences.size()));
    const size_t bytes = StatePlanBytes(sequences, rows);
    std::vector<std::byte> image(bytes + 64);
    image_.emplace(bytes);
    plan_ = BuildStatePlan(params.sequences, params.sources,
                           params.state.block_size, sequences, rows,
                           image.data(), image_->as<std::byte>());
    EXPECT_EQ(cudaMemcpy(image_->as<std::byte>(), image.data(), bytes,
                         cudaMemcpyHostToDevice),
              cudaSuccess);
    // Rows read the plan only.
    params.sequences = {};
    params.sources = nullptr;
    params.state.base = pool_.as<std::byte>();
    params.plan = &plan_;
    return params;
  }

  std::string State(int32_t block) const {
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    std::string state(host_.state_bytes(), '\0');
    EXPECT_EQ(
        cudaMemcpy(state.data(), pool_.as<std::byte>() + host_.Offset(block),
                   state.size(), cudaMemcpyDeviceToHost),
        cudaSuccess);
    return state;
  }

 private:
  States host_;
  CudaBytes pool_;
  std::optional<CudaBytes> image_;
  StatePlan plan_;
};

// Inputs on the device.
struct DeviceInputs {
  explicit DeviceInputs(const Inputs& in)
      : q(in.q),
        k(in.k),
        v(in.v),
        decay(in.decay),
        beta(in.beta),
        skip(in.skip) {}

  // Rows [first, first + count).
  LinearAttentionParams Params(const LinearAttentionCase& test, int64_t first,
                               int64_t count, const TensorView& y) {
    const auto rows = [&](CudaTestMatrix& matrix) {
      return matrix.view().RowSlice(first, count);
    };
    LinearAttentionParams params;
    params.q = rows(q);
    params.k = rows(k);
    params.v = rows(v);
    if (test.desc.decay != StateDecay::kNone) params.decay = rows(decay);
    if (test.beta) params.beta = rows(beta);
    if (test.skip) params.skip = skip.floats();
    params.y = y;
    return params;
  }

  CudaTestMatrix q, k, v, decay, beta, skip;
};

// Those of the CPU, and the shapes of real models: rows read four elements at a
// time, several blocks a head.
std::vector<LinearAttentionCase> Cases(DType activation) {
  std::vector<LinearAttentionCase> cases = LinearAttentionCases();
  for (const bool delta : {false, true}) {
    for (const auto& [key_dim, value_dim] :
         {std::pair{128, 128}, {64, 72}, {128, 64}, {256, 64}}) {
      LinearAttentionDesc desc;
      desc.num_heads = 4;
      desc.num_key_heads = 1;
      desc.key_dim = key_dim;
      desc.value_dim = value_dim;
      desc.decay = key_dim == 128 && value_dim == 64 ? StateDecay::kChannel
                                                     : StateDecay::kHead;
      desc.delta = delta;
      cases.push_back({desc, true, !delta});
    }
  }
  for (LinearAttentionCase& test : cases) test.desc.activation = activation;
  return cases;
}

std::string Name(const LinearAttentionCase& test) {
  return std::string(DTypeName(test.desc.activation)) + " keys " +
         std::to_string(test.desc.key_dim) + " values " +
         std::to_string(test.desc.value_dim) + " decay " +
         std::to_string(static_cast<int>(test.desc.decay)) + " delta " +
         std::to_string(test.desc.delta);
}

TEST(LinearAttentionCudaTest, MatchesFloat64) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  for (const DType dtype : kFloats) {
    for (const LinearAttentionCase& test : Cases(dtype)) {
      SCOPED_TRACE(Name(test));
      constexpr int64_t kTokens = 2 * kStateBlock + 3;
      const Inputs in(test, kTokens, 7, dtype);
      const Expected want = Reference(test, in);
      const int64_t width = in.v.cols();
      const auto at = [&](const std::vector<double>& values) {
        return [&values, width](int64_t r, int64_t c) {
          return values[static_cast<size_t>(r * width + c)];
        };
      };
      // As on CPU; y by the delta rule is two sums over keys, and k q another.
      const double roundings =
          kUnitF32 *
          (3.0 * static_cast<double>(test.desc.key_dim) + 4.0 * kTokens + 8);
      const auto tolerance = [&](int64_t r, int64_t c) {
        return roundings * at(want.magnitude)(r, c) +
               Rounding(dtype, at(want.y)(r, c)) + 1e-30;
      };
      ForEachCudaRow(
          LinearAttentionTable(), test.desc, cuda,
          [&](const LinearAttentionRow& row) {
            DeviceInputs device(in);
            DeviceStates states(LinearAttentionStateFloats(test.desc), 8);
            States::Sequence sequence;
            states.host().Add(sequence, 0, kTokens);
            CudaTestMatrix y(dtype, kTokens, width, 4);
            LinearAttentionParams params =
                device.Params(test, 0, kTokens, y.view());
            params.state = states.Take(kTokens);
            ASSERT_TRUE(row.run(test.desc, params, *cuda.stream).ok());
            ExpectClose(y.Download(), at(want.y), tolerance);
            // In the place of v.
            DeviceStates others(LinearAttentionStateFloats(test.desc), 8);
            States::Sequence other;
            others.host().Add(other, 0, kTokens);
            params = device.Params(test, 0, kTokens, device.v.view());
            params.state = others.Take(kTokens);
            ASSERT_TRUE(row.run(test.desc, params, *cuda.stream).ok());
            const TestMatrix& again = device.v.Download();
            for (int64_t r = 0; r < kTokens; ++r) {
              ASSERT_EQ(again.RowBits(r), y.Download().RowBits(r));
            }
            EXPECT_TRUE(again.PaddingIsPoisoned());
            for (size_t b = 0; b < sequence.blocks.size(); ++b) {
              ASSERT_EQ(states.State(sequence.blocks[b]),
                        others.State(other.blocks[b]));
            }
          });
    }
  }
}

TEST(LinearAttentionCudaTest, ChunksAreExact) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const LinearAttentionCase& test : Cases(dtype)) {
      SCOPED_TRACE(Name(test));
      constexpr int64_t kTokens = 3 * kStateBlock + 1;
      DeviceInputs in(Inputs(test, kTokens, 11, dtype));
      const int64_t width = int64_t{test.desc.num_heads} * test.desc.value_dim;
      ForEachCudaRow(
          LinearAttentionTable(), test.desc, cuda,
          [&](const LinearAttentionRow& row) {
            DeviceStates states(LinearAttentionStateFloats(test.desc), 128);
            States::Sequence whole;
            CudaTestMatrix y(dtype, kTokens, width);
            states.host().Add(whole, 0, kTokens);
            LinearAttentionParams params =
                in.Params(test, 0, kTokens, y.view());
            params.state = states.Take(kTokens);
            ASSERT_TRUE(row.run(test.desc, params, *cuda.stream).ok());
            for (const int64_t chunk : {1, 5, 8, 11}) {
              States::Sequence cut;
              CudaTestMatrix got(dtype, kTokens, width);
              for (int64_t first = 0; first < kTokens; first += chunk) {
                const int64_t count = std::min(chunk, kTokens - first);
                states.host().Add(cut, 0, count);
                params = in.Params(test, first, count,
                                   got.view().RowSlice(first, count));
                params.state = states.Take(count);
                ASSERT_TRUE(row.run(test.desc, params, *cuda.stream).ok());
              }
              const TestMatrix& bits = got.Download();
              for (int64_t r = 0; r < kTokens; ++r) {
                ASSERT_EQ(bits.RowBits(r), y.Download().RowBits(r))
                    << "chunk " << chunk << " row " << r;
              }
              for (size_t b = 0; b < whole.blocks.size(); ++b) {
                ASSERT_EQ(states.State(cut.blocks[b]),
                          states.State(whole.blocks[b]));
              }
            }
          });
    }
  }
}

// Sequences enough for blocks of another shape, in a step of fixed size that
// has room for more: all have the bits of one alone, and rows of nobody are
// left alone.
TEST(LinearAttentionCudaTest, ManySequencesInAStepOfFixedSize) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  constexpr int64_t kTokens = 3, kSequences = 150, kRows = 480;
  for (const LinearAttentionCase& test : Cases(DType::kBF16)) {
    SCOPED_TRACE(Name(test));
    const Inputs one(test, kTokens, 5, DType::kBF16);
    const int64_t width = one.v.cols();
    // The same tokens again and again; poison behind them.
    Inputs many = one;
    for (auto [to, from] : {std::pair{&many.q, &one.q},
                            {&many.k, &one.k},
                            {&many.v, &one.v},
                            {&many.decay, &one.decay},
                            {&many.beta, &one.beta}}) {
      *to = TestMatrix(
          from == &one.decay || from == &one.beta ? DType::kF32 : DType::kBF16,
          kRows, from->cols(), 4);
      for (int64_t r = 0; r < kSequences * kTokens; ++r) {
        for (int64_t c = 0; c < from->cols(); ++c) {
          to->Set(r, c, (*from)(r % kTokens, c));
        }
      }
    }
    DeviceInputs alone(one), all(many);
    ForEachCudaRow(LinearAttentionTable(), test.desc, cuda,
                   [&](const LinearAttentionRow& row) {
                     DeviceStates states(LinearAttentionStateFloats(test.desc),
                                         kSequences + 2);
                     States::Sequence first;
                     CudaTestMatrix y(DType::kBF16, kTokens, width);
                     states.host().Add(first, 0, kTokens);
                     LinearAttentionParams params =
                         alone.Params(test, 0, kTokens, y.view());
                     params.state = states.Take(kTokens);
                     ASSERT_TRUE(row.run(test.desc, params, *cuda.stream).ok());
                     std::vector<States::Sequence> sequences(kSequences);
                     for (int64_t s = 0; s < kSequences; ++s) {
                       states.host().Add(sequences[static_cast<size_t>(s)],
                                         s * kTokens, kTokens);
                     }
                     CudaTestMatrix got(DType::kBF16, kRows, width);
                     const std::string nobody = got.Download().RowBits(0);
                     params = all.Params(test, 0, kRows, got.view());
                     params.state = states.Take(kRows, kSequences + 10);
                     ASSERT_TRUE(row.run(test.desc, params, *cuda.stream).ok());
                     const TestMatrix& bits = got.Download();
                     const TestMatrix& want = y.Download();
                     for (int64_t r = 0; r < kRows; ++r) {
                       ASSERT_EQ(bits.RowBits(r),
                                 r < kSequences * kTokens
                                     ? want.RowBits(r % kTokens)
                                     : nobody)
                           << r;
                     }
                     const std::string state = states.State(first.blocks[0]);
                     for (const States::Sequence& sequence : sequences) {
                       ASSERT_EQ(states.State(sequence.blocks[0]), state);
                     }
                   });
  }
}

// Sequences of one step whose rows lie one after another on multiples of 16
// bytes, and rows of nobody behind them.
class ChunkedStep {
 public:
  static constexpr int64_t kNobody = 7;

  ChunkedStep(const LinearAttentionCase& test, bool slow) : test_(test) {
    for (size_t s = 0; s < kLengths.size(); ++s) {
      Inputs in(test, kLengths[s], static_cast<unsigned>(20 * s + 1),
                DType::kBF16);
      if (s > 0) in.skip = inputs_[0].skip;  // of heads, for everybody
      for (int64_t r = 0; slow && r < kLengths[s]; ++r) {
        for (int64_t c = 0; c < in.decay.cols(); ++c) {
          in.decay.Set(r, c, 1.0f - 0.02f * (1.0f - in.decay(r, c)));
        }
      }
      wanted_.push_back(Reference(test, in));
      inputs_.push_back(std::move(in));
    }
  }

  // In two steps, of which the second has what `first` leaves; compares y with
  // float64 and returns the states that are left.
  std::vector<std::string> Run(TestCuda& cuda, const LinearAttentionRow& row,
                               const std::vector<int64_t>& first) {
    DeviceStates states(LinearAttentionStateFloats(test_.desc), 64, 96);
    std::vector<States::Sequence> sequences(kLengths.size());
    std::vector<int64_t> done(kLengths.size());
    std::vector<std::vector<double>> got(kLengths.size());
    for (const bool rest : {false, true}) {
      std::vector<int64_t> counts;
      for (size_t s = 0; s < kLengths.size(); ++s) {
        counts.push_back(rest ? kLengths[s] - done[s] : first[s]);
      }
      Take(cuda, row, counts, done, states, sequences, got);
      for (size_t s = 0; s < counts.size(); ++s) done[s] += counts[s];
    }
    std::vector<std::string> left;
    for (size_t s = 0; s < kLengths.size(); ++s) {
      Compare(got[s], wanted_[s]);
      left.push_back(states.State(sequences[s].blocks.back()));
      left.push_back(states.State(sequences[s].blocks.front()));
    }
    return left;
  }

  static constexpr std::array<int64_t, 4> kLengths = {300, 5, 161, 64};

 private:
  void Take(TestCuda& cuda, const LinearAttentionRow& row,
            const std::vector<int64_t>& counts,
            const std::vector<int64_t>& done, DeviceStates& states,
            std::vector<States::Sequence>& sequences,
            std::vector<std::vector<double>>& got) {
    int64_t rows = kNobody;
    for (const int64_t count : counts) rows += count;
    const auto gather = [&](TestMatrix Inputs::*part) {
      const TestMatrix& one = inputs_[0].*part;
      TestMatrix all(part == &Inputs::decay || part == &Inputs::beta
                         ? DType::kF32
                         : DType::kBF16,
                     rows, one.cols(), 8);
      int64_t to = 0;
      for (size_t s = 0; s < counts.size(); ++s) {
        const TestMatrix& from = inputs_[s].*part;
        for (int64_t r = 0; r < counts[s]; ++r, ++to) {
          for (int64_t c = 0; c < from.cols(); ++c) {
            all.Set(to, c, from(done[s] + r, c));
          }
        }
      }
      return CudaTestMatrix(all);
    };
    CudaTestMatrix q = gather(&Inputs::q), k = gather(&Inputs::k),
                   v = gather(&Inputs::v), decay = gather(&Inputs::decay),
                   beta = gather(&Inputs::beta);
    CudaTestMatrix skip(inputs_[0].skip);
    int64_t begin = 0;
    for (size_t s = 0; s < counts.size(); ++s) {
      if (counts[s] > 0) states.host().Add(sequences[s], begin, counts[s]);
      begin += counts[s];
    }
    const CudaBytes workspace(row.workspace_bytes == nullptr
                                  ? 16
                                  : row.workspace_bytes(test_.desc, rows));
    LinearAttentionParams params;
    params.q = q.view();
    params.k = k.view();
    params.v = params.y = v.view();
    if (test_.desc.decay != StateDecay::kNone) params.decay = decay.view();
    if (test_.beta) params.beta = beta.view();
    if (test_.skip) params.skip = skip.floats();
    params.workspace = workspace.as<void>();
    params.state = states.Take(rows, static_cast<int64_t>(counts.size()) + 2);
    ASSERT_TRUE(row.run(test_.desc, params, *cuda.stream).ok());
    const TestMatrix& y = v.Download();
    int64_t at = 0;
    for (size_t s = 0; s < counts.size(); ++s) {
      for (int64_t r = 0; r < counts[s]; ++r, ++at) {
        for (int64_t c = 0; c < y.cols(); ++c) got[s].push_back(y(at, c));
      }
    }
    for (; at < rows; ++at) {
      for (int64_t c = 0; c < y.cols(); ++c) EXPECT_TRUE(std::isnan(y(at, c)));
    }
  }

  // Rounded to bf16 once or twice, which is 2^-9 of a term at most: T, P and U.
  void Compare(const std::vector<double>& got, const Expected& want) {
    ASSERT_EQ(got.size(), want.y.size());
    double off = 0, all = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      const double error = got[i] - want.y[i];
      ASSERT_LE(std::abs(error), 0x1p-7 * want.magnitude[i] + 1e-6) << i;
      off += error * error;
      all += want.y[i] * want.y[i];
    }
    worst = std::max(worst, std::sqrt(off / all));
    EXPECT_LT(std::sqrt(off / all), 0.006);
  }

  LinearAttentionCase test_;
  std::vector<Inputs> inputs_;
  std::vector<Expected> wanted_;

 public:
  double worst = 0;
};

// Prompts by chunks: against float64, cut where chunks do not end, beside
// others; states are near those of the row that takes token after token.
TEST(LinearAttentionCudaTest, ChunksOfTokens) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  for (const auto& [key_dim, value_dim] :
       {std::pair{128, 128}, {64, 32}, {128, 64}, {64, 96}}) {
    for (const bool delta : {false, true}) {
      for (const bool slow : {false, true}) {
        LinearAttentionCase test;
        test.desc.num_heads = 4;
        test.desc.num_key_heads = value_dim == 64 ? 1 : 2;
        test.desc.key_dim = key_dim;
        test.desc.value_dim = value_dim;
        test.desc.decay =
            value_dim == 32 ? StateDecay::kNone : StateDecay::kHead;
        test.desc.delta = delta;
        test.desc.activation = DType::kBF16;
        test.beta = value_dim != 96 || delta;
        test.skip = !delta;
        SCOPED_TRACE(Name(test) + (slow ? " slow" : ""));
        ChunkedStep step(test, slow);
        const DeviceInfo& device = cuda.info;
        const auto chunks = Select("linear_attention", LinearAttentionTable(),
                                   test.desc, device);
        ASSERT_TRUE(chunks.ok());
        ASSERT_EQ((*chunks)->name, "cuda_chunks");
        const auto tokens = Select("linear_attention", LinearAttentionTable(),
                                   test.desc, device, "cuda");
        const auto want = step.Run(cuda, **tokens, {300, 5, 161, 64});
        const double apart = std::exchange(step.worst, 0.0);
        for (const std::vector<int64_t>& first :
             {std::vector<int64_t>{300, 5, 161, 64},
              {100, 0, 161, 1},
              {70, 3, 64, 0}}) {
          const auto got = step.Run(cuda, **chunks, first);
          for (size_t s = 0; s < got.size(); ++s) {
            double off = 0, all = 0;
            ASSERT_EQ(got[s].size(), want[s].size());
            for (size_t i = 0; i < got[s].size(); i += 4) {
              float a = 0, b = 0;
              std::memcpy(&a, got[s].data() + i, 4);
              std::memcpy(&b, want[s].data() + i, 4);
              if (std::isnan(a) && std::isnan(b)) continue;  // padding
              off += double{a - b} * (a - b);
              all += double{b} * b;
            }
            EXPECT_LT(std::sqrt(off / all), 0.006) << s;
          }
        }
        std::printf("%s%s: %.2e off, token by token %.2e\n", Name(test).c_str(),
                    slow ? " slow" : "", step.worst, apart);
      }
    }
  }
}

TEST(LinearAttentionCudaTest, ChunksAreNotForBatchInvariance) {
  LinearAttentionDesc desc;
  desc.num_heads = desc.num_key_heads = 2;
  desc.key_dim = desc.value_dim = 128;
  desc.activation = DType::kBF16;
  const DeviceInfo device{DeviceKind::kCuda, "cuda", 90};
  const auto name = [&] {
    return (*Select("linear_attention", LinearAttentionTable(), desc, device))
        ->name;
  };
  EXPECT_EQ(name(), "cuda_chunks");
  desc.batch_invariant = true;
  EXPECT_EQ(name(), "cuda");
  desc.batch_invariant = false;
  desc.activation = DType::kF32;
  EXPECT_EQ(name(), "cuda");
}

// One decay a head for all tokens, as lightning attention has it.
TEST(LinearAttentionCudaTest, AViewOfOneRowServesAllTokens) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  LinearAttentionCase test = LinearAttentionCases()[0];
  test.desc.decay = StateDecay::kHead;
  Inputs in(test, 5, 3);
  for (int64_t r = 1; r < 5; ++r) {
    for (int64_t c = 0; c < in.decay.cols(); ++c) {
      in.decay.Set(r, c, in.decay(0, c));
    }
  }
  DeviceInputs device(in);
  ForEachCudaRow(
      LinearAttentionTable(), test.desc, cuda,
      [&](const LinearAttentionRow& row) {
        CudaTestMatrix each(DType::kF32, 5, in.v.cols());
        CudaTestMatrix one(DType::kF32, 5, in.v.cols());
        for (const bool fixed : {false, true}) {
          DeviceStates states(LinearAttentionStateFloats(test.desc), 4);
          States::Sequence sequence;
          states.host().Add(sequence, 0, 5);
          LinearAttentionParams params =
              device.Params(test, 0, 5, (fixed ? one : each).view());
          if (fixed) params.decay.row_stride_bytes = 0;
          params.state = states.Take(5);
          ASSERT_TRUE(row.run(test.desc, params, *cuda.stream).ok());
          EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
        }
        for (int64_t r = 0; r < 5; ++r) {
          EXPECT_EQ(one.Download().RowBits(r), each.Download().RowBits(r));
        }
      });
}

struct ConvCase {
  int64_t channels;
  int taps;
  bool gated;
  DType dtype;
};

struct ConvInputs {
  ConvInputs(const ConvCase& test, int64_t tokens)
      : x(RandomMatrix(test.dtype, tokens, test.channels, 1, Pad(test))),
        before(RandomMatrix(test.dtype, tokens, test.channels, 2, Pad(test))),
        after(RandomMatrix(test.dtype, tokens, test.channels, 3, Pad(test))),
        taps(RandomMatrix(DType::kF32, test.taps, test.channels, 4, 0)),
        bias(RandomMatrix(DType::kF32, 1, test.channels, 5, 0)) {}
  // Rows that vectors can be read from, where their width allows it.
  static int64_t Pad(const ConvCase& test) {
    return test.channels % 8 == 0 ? 8 : 3;
  }
  TestMatrix x, before, after, taps, bias;
};

class DeviceConv {
 public:
  DeviceConv(const ConvCase& test, const ConvInputs& in)
      : test_(test),
        x_(in.x),
        before_(in.before),
        after_(in.after),
        taps_(in.taps),
        bias_(in.bias) {}

  // Rows [first, first + count) into y, whose rows are the output's gates where
  // there are some.
  ShortConvParams Params(int64_t first, int64_t count, CudaTestMatrix& y) {
    ShortConvParams params;
    params.x = x_.view().RowSlice(first, count);
    params.y = y.view().RowSlice(first, count);
    if (test_.gated) {
      params.input_gate = before_.view().RowSlice(first, count);
      params.output_gate = params.y;
    } else {
      params.bias = bias_.floats();
    }
    params.taps = taps_.floats();
    return params;
  }

 private:
  const ConvCase test_;
  CudaTestMatrix x_, before_, after_, taps_, bias_;
};

ShortConvDesc DescOf(const ConvCase& test) {
  return {test.channels, test.taps, !test.gated, test.dtype};
}

TEST(ShortConvCudaTest, MatchesFloat64HoweverItIsCut) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  constexpr int64_t kTokens = 2 * kStateBlock + 5;
  std::vector<ConvCase> cases;
  for (const DType dtype : kFloats) {
    for (const int64_t channels : {1, 7, 64, 259, 1064}) {
      for (const int taps : {2, 3, 4, 5, 8}) {
        for (const bool gated : {false, true}) {
          cases.push_back({channels, taps, gated, dtype});
        }
      }
    }
  }
  for (const ConvCase& test : cases) {
    SCOPED_TRACE(::testing::Message()
                 << test.channels << " channels, " << test.taps
                 << " taps, gated " << test.gated << " "
                 << DTypeName(test.dtype));
    const ConvInputs in(test, kTokens);
    const auto terms = [&](int64_t r, int64_t c, bool magnitude) {
      const auto of = [&](double v) { return magnitude ? std::abs(v) : v; };
      double sum = test.gated ? 0.0 : of(in.bias(0, c));
      for (int j = 0; j < test.taps; ++j) {
        const int64_t row = r - test.taps + 1 + j;
        if (row < 0) continue;
        const double gate = test.gated ? in.before(row, c) : 1.0;
        sum += of(in.x(row, c) * gate * in.taps(j, c));
      }
      return sum;
    };
    const auto want = [&](int64_t r, int64_t c) {
      const double sum = terms(r, c, false);
      return test.gated ? sum * in.after(r, c) : sum / (1.0 + std::exp(-sum));
    };
    // As on CPU; then rounded.
    const auto tolerance = [&](int64_t r, int64_t c) {
      return kUnitF32 * (test.taps + 12) * 1.2 * terms(r, c, true) *
                 (test.gated ? std::abs(in.after(r, c)) : 1.0) +
             Rounding(test.dtype, want(r, c)) + 1e-30;
    };
    const ShortConvDesc desc = DescOf(test);
    ForEachCudaRow(ShortConvTable(), desc, cuda, [&](const ShortConvRow& row) {
      DeviceConv conv(test, in);
      DeviceStates states(ShortConvStateFloats(desc), 128);
      std::vector<TestMatrix> results;
      std::vector<std::string> ends;
      for (const int64_t chunk : {kTokens, int64_t{1}, int64_t{6}}) {
        States::Sequence sequence;
        CudaTestMatrix y(
            test.gated ? in.after
                       : TestMatrix(test.dtype, kTokens, test.channels, 8));
        for (int64_t first = 0; first < kTokens; first += chunk) {
          const int64_t count = std::min(chunk, kTokens - first);
          states.host().Add(sequence, 0, count);
          ShortConvParams params = conv.Params(first, count, y);
          params.state = states.Take(count);
          ASSERT_TRUE(row.run(desc, params, *cuda.stream).ok());
        }
        results.push_back(y.Download());
        for (const int32_t block : sequence.blocks) {
          ends.push_back(states.State(block));
        }
      }
      ExpectClose(results[0], want, tolerance);
      for (int64_t r = 0; r < kTokens; ++r) {
        EXPECT_EQ(results[1].RowBits(r), results[0].RowBits(r));
        EXPECT_EQ(results[2].RowBits(r), results[0].RowBits(r));
      }
      for (size_t i = 0; i < ends.size(); ++i) {
        EXPECT_EQ(ends[i], ends[i % (ends.size() / 3)]);
      }
    });
  }
}

// Prompts long enough that a thread takes several rows, of one sequence or of
// two, and rows of nobody behind them.
TEST(ShortConvCudaTest, LongPromptsSideBySide) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  constexpr int64_t kRows = 12000, kFirst = 5003, kSecond = 6001;
  for (const int taps : {3, 8}) {
    const ConvCase test{64, taps, true, DType::kBF16};
    const ConvInputs in(test, kRows);
    const ShortConvDesc desc = DescOf(test);
    ForEachCudaRow(ShortConvTable(), desc, cuda, [&](const ShortConvRow& row) {
      DeviceConv conv(test, in);
      DeviceStates states(ShortConvStateFloats(desc), 4000);
      CudaTestMatrix both(in.after), apart(in.after);
      States::Sequence first, second;
      states.host().Add(first, 0, kFirst);
      states.host().Add(second, kFirst, kSecond);
      ShortConvParams params = conv.Params(0, kRows, both);
      params.state = states.Take(kRows, 4);
      ASSERT_TRUE(row.run(desc, params, *cuda.stream).ok());
      const TestMatrix want = both.Download();
      for (auto [begin, count] :
           {std::pair{int64_t{0}, kFirst}, {kFirst, kSecond}}) {
        States::Sequence sequence;
        for (int64_t r = 0; r < count; r += 411) {
          const int64_t rows = std::min<int64_t>(411, count - r);
          states.host().Add(sequence, 0, rows);
          params = conv.Params(begin + r, rows, apart);
          params.state = states.Take(rows);
          ASSERT_TRUE(row.run(desc, params, *cuda.stream).ok());
        }
        const States::Sequence& whole = begin == 0 ? first : second;
        for (size_t b = 0; b < whole.blocks.size(); b += 37) {
          ASSERT_EQ(states.State(sequence.blocks[b]),
                    states.State(whole.blocks[b]));
        }
        ASSERT_EQ(states.State(sequence.blocks.back()),
                  states.State(whole.blocks.back()));
      }
      const TestMatrix& got = apart.Download();
      for (int64_t r = 0; r < kRows; ++r) {
        ASSERT_EQ(want.RowBits(r), got.RowBits(r)) << r;
      }
      for (int64_t r = kFirst + kSecond; r < kRows; ++r) {
        ASSERT_EQ(want.RowBits(r), in.after.RowBits(r)) << r;
      }
    });
  }
}

}  // namespace
}  // namespace inlay

#endif  // INLAY_HAS_CUDA
