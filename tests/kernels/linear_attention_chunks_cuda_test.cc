// The row of linear_attention that takes prompts by chunks: against float64 and
// the row that takes token after token, cut anywhere, with decays from 0 to 1.
#if INLAY_HAS_CUDA

#include <array>
#include <cmath>
#include <cstring>
#include <utility>

#include "tests/support/cuda_state_test_util.h"

namespace inlay {
namespace {

using ::inlay::testing::CudaBytes;
using ::inlay::testing::CudaTestMatrix;
using ::inlay::testing::DeviceInputs;
using ::inlay::testing::DeviceStates;
using ::inlay::testing::Expected;
using ::inlay::testing::Inputs;
using ::inlay::testing::LinearAttentionCase;
using ::inlay::testing::Name;
using ::inlay::testing::Reference;
using ::inlay::testing::States;
using ::inlay::testing::TestCuda;
using ::inlay::testing::TestMatrix;

// What decays are, a head or a channel and token.
enum class Decays {
  kUniform,  // 0.2 to 1
  kSlow,     // near 1
  kWide,     // logarithms from -1e-4 to -100
  kZeros,    // one of ten is 0, the others are near 1
  kStrong,   // e^-100: nothing is left of anything
  kBursts,   // that every seventh token, 0.999 otherwise
  kTiny,     // what is not normal any more
};

float DecayOf(Decays kind, int64_t token, float uniform) {
  const float part = (uniform - 0.2f) / 0.8f;
  switch (kind) {
    case Decays::kUniform:
      return uniform;
    case Decays::kSlow:
      return 1.0f - 0.02f * (1.0f - uniform);
    case Decays::kWide:
      return std::exp(-std::pow(10.0f, 6.0f * part - 4.0f));
    case Decays::kZeros:
      return part < 0.1f ? 0.0f : 1.0f - 0.02f * part;
    case Decays::kStrong:
      return std::exp(-100.0f);
    case Decays::kBursts:
      return token % 7 == 0 ? std::exp(-100.0f) : 0.999f;
    case Decays::kTiny:
      return 1e-40f;
  }
  return 1.0f;
}

// Sequences of one step whose rows lie one after another on multiples of 16
// bytes, and rows of nobody behind them.
class ChunkedStep {
 public:
  static constexpr int64_t kNobody = 7;

  ChunkedStep(const LinearAttentionCase& test, Decays decays) : test_(test) {
    for (size_t s = 0; s < kLengths.size(); ++s) {
      Inputs in(test, kLengths[s], static_cast<unsigned>(20 * s + 1),
                DType::kBF16);
      if (s > 0) in.skip = inputs_[0].skip;  // of heads, for everybody
      for (int64_t r = 0; r < kLengths[s]; ++r) {
        for (int64_t c = 0; c < in.decay.cols(); ++c) {
          in.decay.Set(r, c, DecayOf(decays, r, in.decay(r, c)));
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

  static constexpr double kMostOff = 0.006;  // see Roundings()
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

  // One rounding to bf16 is 2^-8 of what is rounded at most, and 2^-8 / sqrt(3)
  // / 1.36 = 1.66e-3 in the mean of squares. A term of y, k_s q_t u_s with its
  // decays, is rounded with y, U and P; with T and V - K S by the delta rule;
  // with decays a channel q and k are rounded with their decays (in P, or as
  // they reach and leave the state), and k once more by the delta rule and
  // twice a factor of A. That is 3, 5 and 8 roundings of 2^-8 of the term, and
  // A's, whose products are small here. Roundings are independent of one
  // another, so in the mean of squares sqrt(3), sqrt(5) and, with one factor of
  // A, sqrt (10) of 1.66e-3: 2.9e-3, 3.7e-3, 5.2e-3. Products of up to 64
  // decays in float32 add 2^-18.
  //
  // A feature map rounds q and k once more. What y is divided by has q, k and P
  // of such roundings, and with decays a channel one each of q and k; all its
  // terms are positive, so it errs by as many of itself.
  double Roundings() const {
    const bool channel = test_.desc.decay == StateDecay::kChannel;
    const bool maps = test_.desc.feature_map != FeatureMap::kNone;
    return 3.0 + (channel ? 2.0 : 0.0) + (test_.desc.delta ? 2.0 : 0.0) +
           (channel && test_.desc.delta ? 1.0 : 0.0) + (maps ? 2.0 : 0.0) +
           (test_.desc.normalised ? 3.0 + (channel ? 2.0 : 0.0) : 0.0);
  }

  void Compare(const std::vector<double>& got, const Expected& want) {
    ASSERT_EQ(got.size(), want.y.size());
    double off = 0, all = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      const double error = got[i] - want.y[i];
      ASSERT_LE(std::abs(error),
                Roundings() * 0x1p-8 * want.magnitude[i] + 1e-6)
          << i;
      off += error * error;
      all += want.y[i] * want.y[i];
    }
    worst = std::max(worst, std::sqrt(off / all));
    EXPECT_LT(std::sqrt(off / all), kMostOff);
  }

  LinearAttentionCase test_;
  std::vector<Inputs> inputs_;
  std::vector<Expected> wanted_;

 public:
  double worst = 0;
};

LinearAttentionCase CaseOf(int key_dim, int value_dim, StateDecay decay,
                           bool delta) {
  LinearAttentionCase test;
  test.desc.num_heads = 4;
  test.desc.num_key_heads = value_dim == 64 ? 1 : 2;
  test.desc.key_dim = key_dim;
  test.desc.value_dim = value_dim;
  test.desc.decay = decay;
  test.desc.delta = delta;
  test.desc.activation = DType::kBF16;
  return test;
}

// Relative, of states as floats. What is NaN in both is padding.
double Apart(const std::string& got, const std::string& want) {
  EXPECT_EQ(got.size(), want.size());
  double off = 0, all = 0;
  for (size_t i = 0; i < got.size(); i += 4) {
    float a = 0, b = 0;
    std::memcpy(&a, got.data() + i, 4);
    std::memcpy(&b, want.data() + i, 4);
    if (std::isnan(a) && std::isnan(b)) continue;
    off += double{a - b} * (a - b);
    all += double{b} * b;
  }
  return std::sqrt(off / all);
}

// Prompts by chunks: against float64, cut where chunks do not end, beside
// others; states are near those of the row that takes token after token.
void ExpectChunksOfTokens(const LinearAttentionCase& test, Decays decays) {
  TestCuda cuda;
  SCOPED_TRACE(Name(test) + " decays " +
               std::to_string(static_cast<int>(decays)));
  ChunkedStep step(test, decays);
  const auto chunks =
      Select("linear_attention", LinearAttentionTable(), test.desc, cuda.info);
  ASSERT_TRUE(chunks.ok());
  ASSERT_EQ((*chunks)->name, "cuda_chunks");
  const auto tokens = Select("linear_attention", LinearAttentionTable(),
                             test.desc, cuda.info, "cuda");
  const auto want = step.Run(cuda, **tokens, {300, 5, 161, 64});
  const double apart = std::exchange(step.worst, 0.0);
  for (const std::vector<int64_t>& first :
       {std::vector<int64_t>{300, 5, 161, 64},
        {100, 0, 161, 1},
        {70, 3, 64, 0}}) {
    const auto got = step.Run(cuda, **chunks, first);
    for (size_t s = 0; s < got.size(); ++s) {
      EXPECT_LT(Apart(got[s], want[s]), ChunkedStep::kMostOff) << s;
    }
  }
  std::printf("%s decays %d: %.2e off, token by token %.2e\n",
              Name(test).c_str(), static_cast<int>(decays), step.worst, apart);
}

TEST(LinearAttentionChunksCudaTest, DecaysAHeadAndNone) {
  INLAY_REQUIRE_CUDA();
  for (const auto& [key_dim, value_dim] :
       {std::pair{128, 128}, {64, 32}, {128, 64}, {64, 96}}) {
    for (const bool delta : {false, true}) {
      for (const Decays decays : {Decays::kUniform, Decays::kSlow}) {
        LinearAttentionCase test = CaseOf(
            key_dim, value_dim,
            value_dim == 32 ? StateDecay::kNone : StateDecay::kHead, delta);
        test.beta = value_dim != 96 || delta;
        test.skip = !delta;
        ExpectChunksOfTokens(test, decays);
      }
    }
  }
}

TEST(LinearAttentionChunksCudaTest, DecaysAChannel) {
  INLAY_REQUIRE_CUDA();
  for (const auto& [key_dim, value_dim] :
       {std::pair{128, 128}, {64, 32}, {128, 64}, {64, 96}}) {
    for (const bool delta : {false, true}) {
      for (const Decays decays :
           {Decays::kUniform, Decays::kSlow, Decays::kWide, Decays::kZeros,
            Decays::kStrong, Decays::kBursts, Decays::kTiny}) {
        LinearAttentionCase test =
            CaseOf(key_dim, value_dim, StateDecay::kChannel, delta);
        test.beta = value_dim != 96 || delta;
        test.skip = value_dim == 64 && !delta;
        ExpectChunksOfTokens(test, decays);
      }
    }
  }
}

// Beside sequences that go token by token; the normaliser is another kernel's.
TEST(LinearAttentionChunksCudaTest, FeatureMapsAndNormalisers) {
  INLAY_REQUIRE_CUDA();
  for (const auto& [key_dim, value_dim] : {std::pair{128, 128}, {64, 96}}) {
    for (const StateDecay decay :
         {StateDecay::kNone, StateDecay::kHead, StateDecay::kChannel}) {
      for (const FeatureMap map :
           {FeatureMap::kEluPlusOne, FeatureMap::kRelu}) {
        LinearAttentionCase test = CaseOf(key_dim, value_dim, decay, false);
        test.desc.feature_map = map;
        test.desc.normalised = true;
        test.desc.epsilon = 1e-6f;
        test.beta = decay != StateDecay::kNone;
        test.skip = value_dim == 96;
        ExpectChunksOfTokens(test, Decays::kSlow);
      }
    }
  }
  // Without a normaliser; with the delta rule.
  for (const bool delta : {false, true}) {
    LinearAttentionCase test = CaseOf(128, 64, StateDecay::kHead, delta);
    test.desc.feature_map = FeatureMap::kRelu;
    ExpectChunksOfTokens(test, Decays::kSlow);
  }
}

// The workspace has room for the chunks of blocks of 64 tokens or more; with
// smaller ones there would be little in a chunk anyhow.
TEST(LinearAttentionChunksCudaTest, ChannelsOfSmallBlocksGoTokenByToken) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  constexpr int64_t kTokens = 130;
  const LinearAttentionCase test = CaseOf(64, 32, StateDecay::kChannel, true);
  DeviceInputs in(Inputs(test, kTokens, 3, DType::kBF16));
  std::vector<std::string> left;
  std::vector<TestMatrix> results;
  for (const char* name : {"cuda_chunks", "cuda"}) {
    const auto row = Select("linear_attention", LinearAttentionTable(),
                            test.desc, cuda.info, name);
    ASSERT_TRUE(row.ok());
    DeviceStates states(LinearAttentionStateFloats(test.desc), 20, 32);
    States::Sequence sequence;
    states.host().Add(sequence, 0, kTokens);
    CudaTestMatrix y(DType::kBF16, kTokens, 4 * 32, 8);
    LinearAttentionParams params = in.Params(test, 0, kTokens, y.view());
    params.state = states.Take(kTokens);
    ASSERT_TRUE((*row)->run(test.desc, params, *cuda.stream).ok());
    results.push_back(y.Download());
    left.push_back(states.State(sequence.blocks.back()));
  }
  EXPECT_EQ(left[0], left[1]);
  for (int64_t r = 0; r < kTokens; ++r) {
    ASSERT_EQ(results[0].RowBits(r), results[1].RowBits(r)) << r;
  }
}

TEST(LinearAttentionChunksCudaTest, NotForBatchInvariance) {
  LinearAttentionDesc desc;
  desc.num_heads = desc.num_key_heads = 2;
  desc.key_dim = desc.value_dim = 128;
  desc.activation = DType::kBF16;
  const DeviceInfo device{DeviceKind::kCuda, "cuda", 90};
  const auto name = [&] {
    return (*Select("linear_attention", LinearAttentionTable(), desc, device))
        ->name;
  };
  for (const StateDecay decay :
       {StateDecay::kNone, StateDecay::kHead, StateDecay::kChannel}) {
    desc.decay = decay;
    desc.batch_invariant = false;
    EXPECT_EQ(name(), "cuda_chunks");
    desc.batch_invariant = true;
    EXPECT_EQ(name(), "cuda");
  }
  desc.batch_invariant = false;
  desc.activation = DType::kF32;
  EXPECT_EQ(name(), "cuda");
}

}  // namespace
}  // namespace inlay

#endif  // INLAY_HAS_CUDA
