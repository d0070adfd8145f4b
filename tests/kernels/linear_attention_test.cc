// The ops of recurrent layers: linear_attention, short_conv, state_gates,
// gated_norm, columns. Every row against float64; results that do not depend,
// to the bit, on how sequences are cut and on what runs beside them.
#include "kernels/linear_attention/linear_attention.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "kernels/columns/columns.h"
#include "kernels/gated_norm/gated_norm.h"
#include "kernels/linear_attention/short_conv.h"
#include "kernels/linear_attention/state_gates.h"
#include "kernels/linear_attention/state_plan.h"
#include "tests/support/kernel_test_util.h"
#include "tests/support/state_test_util.h"

namespace inlay {
namespace {

using ::inlay::testing::ExpectClose;
using ::inlay::testing::ForEachCpuRow;
using ::inlay::testing::kUnitF32;
using ::inlay::testing::TestCpu;
using ::inlay::testing::TestMatrix;

using ::inlay::testing::Expected;
using ::inlay::testing::Inputs;
using ::inlay::testing::kStateBlock;
using ::inlay::testing::LinearAttentionCase;
using ::inlay::testing::LinearAttentionCases;
using ::inlay::testing::RandomMatrix;
using ::inlay::testing::Reference;
using ::inlay::testing::States;

TEST(LinearAttentionTest, MatchesFloat64) {
  TestCpu cpu(2);
  for (const LinearAttentionCase& test : LinearAttentionCases()) {
    SCOPED_TRACE(
        ::testing::Message()
        << "keys " << test.desc.key_dim << " values " << test.desc.value_dim
        << " decay " << static_cast<int>(test.desc.decay) << " delta "
        << test.desc.delta << " map " << static_cast<int>(test.desc.feature_map)
        << " normalised " << test.desc.normalised);
    constexpr int64_t kTokens = 2 * kStateBlock + 3;
    Inputs in(test, kTokens, 7);
    const Expected want = Reference(test, in);
    const int64_t width = in.v.cols();
    const auto at = [&](const std::vector<double>& values) {
      return [&values, width](int64_t r, int64_t c) {
        return values[static_cast<size_t>(r * width + c)];
      };
    };
    // A sum over keys errs by a rounding a key, a state by a few a token; the
    // delta rule hands errors on with the terms that `magnitude` counts.
    const double roundings =
        kUnitF32 * (static_cast<double>(test.desc.key_dim) + 4.0 * kTokens + 4);
    const auto tolerance = [&](int64_t r, int64_t c) {
      return roundings * at(want.magnitude)(r, c) + 1e-30;
    };
    ForEachCpuRow(LinearAttentionTable(), test.desc, cpu,
                  [&](const LinearAttentionRow& row) {
                    States states(LinearAttentionStateFloats(test.desc), 8);
                    States::Sequence sequence;
                    states.Add(sequence, 0, kTokens);
                    TestMatrix y(DType::kF32, kTokens, width, 2);
                    LinearAttentionParams params =
                        in.Params(test, 0, kTokens, y.view());
                    params.state = states.Take();
                    ASSERT_TRUE(row.run(test.desc, params, *cpu.stream).ok());
                    ExpectClose(y, at(want.y), tolerance);
                    // In the place of v.
                    Inputs again = in;
                    States others(LinearAttentionStateFloats(test.desc), 8);
                    States::Sequence other;
                    others.Add(other, 0, kTokens);
                    params = again.Params(test, 0, kTokens, again.v.view());
                    params.state = others.Take();
                    ASSERT_TRUE(row.run(test.desc, params, *cpu.stream).ok());
                    for (int64_t r = 0; r < kTokens; ++r) {
                      ASSERT_EQ(again.v.RowBits(r), y.RowBits(r));
                    }
                  });
  }
}

// Cut anywhere, two sequences in turn or at once: the same bits, and the same
// states at the ends of blocks.
TEST(LinearAttentionTest, ChunksAndBatchesAreExact) {
  TestCpu cpu(2);
  for (const LinearAttentionCase& test : LinearAttentionCases()) {
    constexpr int64_t kTokens = 3 * kStateBlock + 1;
    Inputs in(test, kTokens, 11);
    const int64_t width = in.v.cols();
    ForEachCpuRow(
        LinearAttentionTable(), test.desc, cpu,
        [&](const LinearAttentionRow& row) {
          States states(LinearAttentionStateFloats(test.desc), 128);
          States::Sequence whole;
          TestMatrix y(DType::kF32, kTokens, width);
          states.Add(whole, 0, kTokens);
          LinearAttentionParams params = in.Params(test, 0, kTokens, y.view());
          params.state = states.Take();
          ASSERT_TRUE(row.run(test.desc, params, *cpu.stream).ok());
          for (const int64_t chunk : {1, 5, 8}) {
            States::Sequence cut;
            TestMatrix got(DType::kF32, kTokens, width);
            for (int64_t first = 0; first < kTokens; first += chunk) {
              const int64_t count = std::min(chunk, kTokens - first);
              states.Add(cut, 0, count);
              params = in.Params(test, first, count,
                                 got.view().RowSlice(first, count));
              params.state = states.Take();
              ASSERT_TRUE(row.run(test.desc, params, *cpu.stream).ok());
            }
            for (int64_t r = 0; r < kTokens; ++r) {
              ASSERT_EQ(got.RowBits(r), y.RowBits(r)) << "chunk " << chunk;
            }
            for (size_t b = 0; b < whole.blocks.size(); ++b) {
              ASSERT_EQ(states.State(cut.blocks[b]),
                        states.State(whole.blocks[b]));
            }
          }
          // Two of them, the second a token behind, rows side by side.
          States::Sequence a, b;
          TestMatrix both(DType::kF32, kTokens, width);
          states.Add(a, 0, 10);
          states.Add(b, 10, 9);
          Inputs twice = in;
          for (int64_t r = 0; r < 9; ++r) {
            for (TestMatrix* m :
                 {&twice.q, &twice.k, &twice.v, &twice.decay, &twice.beta}) {
              for (int64_t c = 0; c < m->cols(); ++c) {
                m->Set(10 + r, c, (*m)(r, c));
              }
            }
          }
          params = twice.Params(test, 0, 19, both.view().RowSlice(0, 19));
          params.state = states.Take();
          ASSERT_TRUE(row.run(test.desc, params, *cpu.stream).ok());
          for (int64_t r = 0; r < 10; ++r) {
            ASSERT_EQ(both.RowBits(r), y.RowBits(r));
            if (r < 9) {
              ASSERT_EQ(both.RowBits(10 + r), y.RowBits(r));
            }
          }
        });
  }
}

// One decay a head for all tokens, as lightning attention has it.
TEST(LinearAttentionTest, AViewOfOneRowServesAllTokens) {
  TestCpu cpu(1);
  LinearAttentionCase test = LinearAttentionCases()[0];
  test.desc.decay = StateDecay::kHead;
  Inputs in(test, 5, 3);
  for (int64_t r = 1; r < 5; ++r) {
    for (int64_t c = 0; c < in.decay.cols(); ++c) {
      in.decay.Set(r, c, in.decay(0, c));
    }
  }
  ForEachCpuRow(LinearAttentionTable(), test.desc, cpu,
                [&](const LinearAttentionRow& row) {
                  TestMatrix each(DType::kF32, 5, in.v.cols());
                  TestMatrix one(DType::kF32, 5, in.v.cols());
                  for (const bool fixed : {false, true}) {
                    States states(LinearAttentionStateFloats(test.desc), 4);
                    States::Sequence sequence;
                    states.Add(sequence, 0, 5);
                    LinearAttentionParams params =
                        in.Params(test, 0, 5, (fixed ? one : each).view());
                    if (fixed) params.decay.row_stride_bytes = 0;
                    params.state = states.Take();
                    ASSERT_TRUE(row.run(test.desc, params, *cpu.stream).ok());
                  }
                  for (int64_t r = 0; r < 5; ++r) {
                    EXPECT_EQ(one.RowBits(r), each.RowBits(r));
                  }
                });
}

// Katharopoulos et al. as they write it: of all earlier tokens, each weighted
// by what its key has in common with the query. A value that is always the same
// comes out as it is.
TEST(LinearAttentionTest, NormalisedOutputsAreMeansOfValues) {
  TestCpu cpu(2);
  LinearAttentionCase test;
  test.desc.num_heads = test.desc.num_key_heads = 3;
  test.desc.key_dim = 20;
  test.desc.value_dim = 11;
  test.desc.feature_map = FeatureMap::kEluPlusOne;
  test.desc.normalised = true;
  test.beta = false;
  constexpr int64_t kTokens = kStateBlock + 5;
  Inputs in(test, kTokens, 17);
  for (int64_t t = 0; t < kTokens; ++t) in.v.Set(t, 10, 2.5f);
  const auto feature = [&](const TestMatrix& from, int64_t t, int64_t c) {
    return from(t, c) > 0 ? from(t, c) + 1.0 : std::exp(double{from(t, c)});
  };
  // The mean of values, or of their magnitudes.
  const auto mean = [&](int64_t t, int64_t c, bool magnitudes) {
    const int64_t key = c / test.desc.value_dim * test.desc.key_dim;
    double sum = 0, weights = 0;
    for (int64_t s = 0; s <= t; ++s) {
      double weight = 0;
      for (int64_t i = key; i < key + test.desc.key_dim; ++i) {
        weight += feature(in.q, t, i) * feature(in.k, s, i);
      }
      sum += weight * (magnitudes ? std::abs(in.v(s, c)) : in.v(s, c));
      weights += weight;
    }
    return sum / weights;
  };
  const auto want = [&](int64_t t, int64_t c) { return mean(t, c, false); };
  ForEachCpuRow(
      LinearAttentionTable(), test.desc, cpu,
      [&](const LinearAttentionRow& row) {
        States states(LinearAttentionStateFloats(test.desc), 8);
        States::Sequence sequence;
        states.Add(sequence, 0, kTokens);
        TestMatrix y(DType::kF32, kTokens, in.v.cols());
        LinearAttentionParams params = in.Params(test, 0, kTokens, y.view());
        params.state = states.Take();
        ASSERT_TRUE(row.run(test.desc, params, *cpu.stream).ok());
        // All weights are positive: numerator and denominator err
        // by a rounding a key and a token, two exponentials of 2
        // units in the last place, and some products.
        const double roundings = 20 + kTokens + 12;
        ExpectClose(y, want, [&](int64_t r, int64_t c) {
          return 2 * kUnitF32 * roundings * mean(r, c, true);
        });
        EXPECT_NEAR(y(kTokens - 1, 10), 2.5, 2 * kUnitF32 * roundings * 2.5);
      });
}

// Which is what a state of n more floats a head, z [key_dim], is for.
TEST(LinearAttentionTest, StatesHaveRoomForTheNormaliser) {
  LinearAttentionDesc desc;
  desc.num_heads = 3;
  desc.key_dim = 5;
  desc.value_dim = 7;
  EXPECT_EQ(LinearAttentionStateFloats(desc), 3 * 5 * 7);
  desc.normalised = true;
  EXPECT_EQ(LinearAttentionStateFloats(desc), 3 * 5 * (7 + 1));
  EXPECT_EQ(LinearAttentionMatrixFloats(desc), 3 * 5 * 7);
}

TEST(LinearAttentionTest, RefusesWhatItCannotDo) {
  TestCpu cpu(1);
  LinearAttentionDesc desc;
  desc.num_heads = 3;
  desc.num_key_heads = 2;
  desc.key_dim = 8;
  desc.value_dim = 8;
  for (const LinearAttentionRow& row : LinearAttentionTable()) {
    EXPECT_NE(row.refuses(desc, cpu.device->info()), nullptr);
  }
  desc.num_heads = 2;
  desc.key_dim = kMaxStateKeyDim + 1;
  const auto none = Select("linear_attention", LinearAttentionTable(), desc,
                           cpu.device->info());
  EXPECT_EQ(none.status().code(), absl::StatusCode::kNotFound);
  desc.key_dim = 8;
  desc.delta = desc.normalised = true;
  for (const LinearAttentionRow& row : LinearAttentionTable()) {
    EXPECT_NE(row.refuses(desc, cpu.device->info()), nullptr) << row.name;
  }
}

// What kernels on devices read says what ForEachStateRun does.
// Of all sequences with enough tokens for one, in order, and no more than there
// is room for.
TEST(StatePlanTest, NumbersChunks) {
  std::mt19937 rng(5);
  for (const int block : {64, 65, 96, 500}) {
    for (int turn = 0; turn < 50; ++turn) {
      States states(16, 200, block);
      std::vector<States::Sequence> sequences(5);
      // The most chunks: a token, a block and a token more.
      const bool most = turn % 2 == 0;
      for (States::Sequence& sequence : sequences) {
        states.Add(sequence, 0,
                   most ? block - 1 : 1 + static_cast<int64_t>(rng() % 100));
      }
      states.Take();
      int64_t rows = 0;
      for (States::Sequence& sequence : sequences) {
        const int64_t count =
            most ? block + 2 : 1 + static_cast<int64_t>(rng() % 400);
        states.Add(sequence, rows, count);
        rows += count;
      }
      const StateParams params = states.Take();
      std::vector<std::byte> image(StatePlanBytes(5, rows));
      const StatePlan plan =
          BuildStatePlan(params.sequences, params.sources, block, 5, rows,
                         image.data(), image.data());
      int32_t chunks = 0;
      for (int32_t run = 0; run < plan.first_runs[5]; ++run) {
        ASSERT_EQ(plan.runs[run].first_chunk, chunks);
        if (plan.runs[run].sequence_rows < kStateChunk) continue;
        chunks += (plan.runs[run].count + kStateChunk - 1) / kStateChunk;
      }
      ASSERT_LE(chunks, MostStateChunks(rows));
    }
  }
}

TEST(StatePlanTest, SaysWhereStatesAreFoundAndLeft) {
  States states(16, 64);
  std::vector<States::Sequence> sequences(3);
  // The first goes on within a block, the second from a block's end.
  states.Add(sequences[0], 0, 3);
  states.Add(sequences[1], 3, kStateBlock);
  states.Take();
  const int64_t counts[] = {2 * kStateBlock, 1, kStateBlock + 1};
  int64_t rows = 0;
  for (size_t s = 0; s < 3; ++s) {
    states.Add(sequences[s], rows, counts[s]);
    rows += counts[s];
  }
  const StateParams params = states.Take();
  // Room for a sequence and for rows more.
  const int64_t all_rows = rows + 5;
  std::vector<std::byte> image(StatePlanBytes(4, all_rows), std::byte{0x7f});
  const StatePlan plan =
      BuildStatePlan(params.sequences, params.sources, kStateBlock, 4, all_rows,
                     image.data(), image.data());
  EXPECT_EQ(plan.sequences, 4);
  EXPECT_EQ(plan.rows, all_rows);
  int32_t next = 0;
  for (size_t s = 0; s < 3; ++s) {
    ASSERT_EQ(plan.first_runs[s], next);
    const AttentionSequence& sequence = params.sequences[s];
    ForEachStateRun(params, s, [&](const StateRun& run) {
      const StatePlanRun& planned = plan.runs[next];
      EXPECT_EQ(planned.row, run.row);
      EXPECT_EQ(planned.count, run.count);
      EXPECT_EQ(params.state.State(planned.to), run.to);
      EXPECT_EQ(planned.sequence_row, sequence.q_begin);
      EXPECT_EQ(planned.source, params.sources[s]);
      for (int64_t row = run.row; row < run.row + run.count; ++row) {
        EXPECT_EQ(plan.run_of_row[row], next);
      }
      ++next;
    });
  }
  // 5 tokens, a block and 3; one; a block and one.
  EXPECT_EQ(next, 3 + 1 + 2);
  EXPECT_EQ(plan.first_runs[3], next);
  EXPECT_EQ(plan.first_runs[4], next);
  for (int64_t row = rows; row < all_rows; ++row) {
    EXPECT_EQ(plan.run_of_row[row], -1);
  }
}

TEST(ShortConvTest, MatchesFloat64HoweverItIsCut) {
  TestCpu cpu(2);
  constexpr int64_t kTokens = 2 * kStateBlock + 5;
  for (const int64_t channels : {1, 7, 64, 259}) {
    for (const int taps : {2, 3, 4, 8}) {
      for (const bool gated : {false, true}) {
        SCOPED_TRACE(::testing::Message() << channels << " channels, " << taps
                                          << " taps, gated " << gated);
        const ShortConvDesc desc{channels, taps, !gated, DType::kF32};
        TestMatrix x = RandomMatrix(DType::kF32, kTokens, channels, 1);
        TestMatrix before = RandomMatrix(DType::kF32, kTokens, channels, 2);
        TestMatrix after = RandomMatrix(DType::kF32, kTokens, channels, 3);
        TestMatrix weights = RandomMatrix(DType::kF32, taps, channels, 4, 0);
        TestMatrix bias = RandomMatrix(DType::kF32, 1, channels, 5, 0);
        const auto terms = [&](int64_t r, int64_t c, bool magnitude) {
          const auto of = [&](double v) { return magnitude ? std::abs(v) : v; };
          double sum = gated ? 0.0 : of(bias(0, c));
          for (int j = 0; j < taps; ++j) {
            const int64_t row = r - taps + 1 + j;
            if (row < 0) continue;
            const double gate = gated ? before(row, c) : 1.0;
            sum += of(x(row, c) * gate * weights(j, c));
          }
          return sum;
        };
        const auto want = [&](int64_t r, int64_t c) {
          const double sum = terms(r, c, false);
          return gated ? sum * after(r, c) : sum / (1.0 + std::exp(-sum));
        };
        // A sum of taps + 1 terms, each a product of up to three, by SiLU whose
        // slope is at most 1.1; 10 of SiLU's own (a sigmoid off by 4 units in
        // the last place, its product) or one of the gate's product.
        const auto tolerance = [&](int64_t r, int64_t c) {
          return kUnitF32 * (taps + 12) * 1.2 * terms(r, c, true) *
                     (gated ? std::abs(after(r, c)) : 1.0) +
                 1e-30;
        };
        ForEachCpuRow(
            ShortConvTable(), desc, cpu, [&](const ShortConvRow& row) {
              States states(ShortConvStateFloats(desc), 128);
              std::vector<TestMatrix> results;
              for (const int64_t chunk : {kTokens, int64_t{1}, int64_t{6}}) {
                States::Sequence sequence;
                // In the place of the output's gate where there is one.
                TestMatrix y =
                    gated ? after
                          : TestMatrix(DType::kF32, kTokens, channels, 4);
                for (int64_t first = 0; first < kTokens; first += chunk) {
                  const int64_t count = std::min(chunk, kTokens - first);
                  const auto rows = [&](TestMatrix& m) {
                    return m.view().RowSlice(first, count);
                  };
                  states.Add(sequence, 0, count);
                  ShortConvParams params;
                  params.x = rows(x);
                  if (gated) {
                    params.input_gate = rows(before);
                    params.output_gate = rows(y);
                  } else {
                    params.bias = bias.floats();
                  }
                  params.taps = weights.floats();
                  params.y = rows(y);
                  params.state = states.Take();
                  ASSERT_TRUE(row.run(desc, params, *cpu.stream).ok());
                }
                results.push_back(y);
              }
              ExpectClose(results[0], want, tolerance);
              for (int64_t r = 0; r < kTokens; ++r) {
                EXPECT_EQ(results[1].RowBits(r), results[0].RowBits(r));
                EXPECT_EQ(results[2].RowBits(r), results[0].RowBits(r));
              }
            });
      }
    }
  }
}

TEST(StateGatesTest, MatchesFloat64) {
  TestCpu cpu(2);
  for (const auto& kind :
       {std::pair{false, 0.0f}, {true, 0.0f}, {true, -5.0f}}) {
    const bool delta = kind.first;
    StateGatesDesc desc;
    desc.bound = kind.second;
    desc.num_heads = 3;
    desc.channels = delta ? 5 : 1;
    if (!delta) {
      desc.x_scale = 0.5f;
      desc.least = 0.1f;
      desc.most = 2.0f;
    }
    const int64_t width = desc.num_heads * desc.channels;
    TestMatrix x = RandomMatrix(DType::kF32, 4, width, 1, 2, 3.0f);
    x.Set(0, 0, 200.0f);  // where e^x overflows
    x.Set(0, width - 1, -200.0f);
    TestMatrix b = RandomMatrix(DType::kF32, 4, desc.num_heads, 2);
    TestMatrix bias = RandomMatrix(DType::kF32, 1, width, 3);
    TestMatrix a_log = RandomMatrix(DType::kF32, 1, desc.num_heads, 4);
    const auto raw = [&](int64_t r, int64_t c) {
      return double{desc.x_scale} * x(r, c) + bias(0, c);
    };
    const auto step = [&](int64_t r, int64_t c) {
      const double soft =
          raw(r, c) > 100 ? raw(r, c) : std::log1p(std::exp(raw(r, c)));
      return std::clamp<double>(soft, desc.least, desc.most);
    };
    const auto decay = [&](int64_t r, int64_t c) {
      const double rate = std::exp(double{a_log(0, c / desc.channels)});
      return std::exp(desc.bound < 0
                          ? desc.bound / (1 + std::exp(-rate * raw(r, c)))
                          : -rate * step(r, c));
    };
    const auto beta = [&](int64_t r, int64_t c) {
      return delta ? 1.0 / (1.0 + std::exp(-double{b(r, c)})) : step(r, c);
    };
    ForEachCpuRow(StateGatesTable(), desc, cpu, [&](const StateGatesRow& row) {
      TestMatrix decays(DType::kF32, 4, width, 1);
      TestMatrix betas(DType::kF32, 4, desc.num_heads, 1);
      StateGatesParams params;
      params.x = x.view();
      if (delta) params.b = b.view();
      params.bias = bias.floats();
      params.a_log = a_log.floats();
      params.decay = decays.view();
      params.beta = betas.view();
      ASSERT_TRUE(row.run(desc, params, *cpu.stream).ok());
      // In float64 all along: rounded once, to a denormal number by 2^-150.
      ExpectClose(decays, decay, [&](int64_t r, int64_t c) {
        return 1.001 * decay(r, c) * kUnitF32 + 0x1p-149;
      });
      ExpectClose(betas, beta, [&](int64_t r, int64_t c) {
        return 1.001 * beta(r, c) * kUnitF32 + 0x1p-149;
      });
    });
  }
}

TEST(GatedNormTest, MatchesFloat64) {
  TestCpu cpu(2);
  for (const int64_t width : {1, 7, 8, 33, 100}) {
    for (const GateFunction gate :
         {GateFunction::kNone, GateFunction::kSilu, GateFunction::kSigmoid,
          GateFunction::kSoftplus}) {
      for (const int flags : {0, 1, 2, 3, 4, 5, 6, 7, 8, 11}) {
        GatedNormDesc desc;
        desc.width = width;
        desc.groups = 3;
        desc.gate = gate;
        desc.gate_scale = 0.7f;
        desc.gate_first = (flags & 1) != 0;
        desc.normalise = (flags & 2) != 0;
        desc.shared_weight = (flags & 4) != 0;
        desc.group_gates = (flags & 8) != 0;
        const int64_t gates = desc.group_gates ? 1 : width;
        TestMatrix x = RandomMatrix(DType::kF32, 4, 3 * width, 1);
        TestMatrix z = RandomMatrix(DType::kF32, 4, 3 * gates, 2);
        TestMatrix weight = RandomMatrix(DType::kF32, 1, 3 * width, 3);
        const auto f = [&](int64_t r, int64_t c) {
          const double v =
              double{desc.gate_scale} * z(r, desc.group_gates ? c / width : c);
          const double sigmoid = 1.0 / (1.0 + std::exp(-v));
          return gate == GateFunction::kNone       ? 1.0
                 : gate == GateFunction::kSilu     ? v * sigmoid
                 : gate == GateFunction::kSoftplus ? std::log1p(std::exp(v))
                                                   : sigmoid;
        };
        const auto want = [&](int64_t r, int64_t c) {
          double squares = 0.0;
          const int64_t first = c / width * width;
          for (int64_t i = first; i < first + width; ++i) {
            const double v = x(r, i) * (desc.gate_first ? f(r, i) : 1.0);
            squares += v * v;
          }
          const double norm =
              desc.normalise
                  ? 1.0 / std::sqrt(squares / static_cast<double>(width) +
                                    double{1e-4f})
                  : 1.0;
          return x(r, c) * f(r, c) * norm *
                 weight(0, desc.shared_weight ? c - first : c);
        };
        // A gate errs by 12: a sigmoid by 4 units in the last place, its
        // argument, SiLU's product. So do the gates in the sum of squares,
        // which errs by width + 1 besides, halved by the root; 8 follow.
        const auto tolerance = [&](int64_t r, int64_t c) {
          return std::abs(want(r, c)) * kUnitF32 *
                     (static_cast<double>(width) / 2 + 32) +
                 1e-30;
        };
        ForEachCpuRow(GatedNormTable(), desc, cpu,
                      [&](const GatedNormRow& row) {
                        TestMatrix y(DType::kF32, 4, 3 * width, 2);
                        GatedNormParams params;
                        params.x = x.view();
                        if (gate != GateFunction::kNone) params.z = z.view();
                        params.weight = weight.floats();
                        params.epsilon = 1e-4f;
                        params.y = y.view();
                        ASSERT_TRUE(row.run(desc, params, *cpu.stream).ok());
                        ExpectClose(y, want, tolerance);
                        TestMatrix in_place = x;
                        params.x = params.y = in_place.view();
                        ASSERT_TRUE(row.run(desc, params, *cpu.stream).ok());
                        for (int64_t r = 0; r < 4; ++r) {
                          EXPECT_EQ(in_place.RowBits(r), y.RowBits(r));
                        }
                      });
      }
    }
  }
}

TEST(ColumnsTest, TakesRunsInOrder) {
  TestCpu cpu(2);
  TestMatrix x = RandomMatrix(DType::kF32, 5, 10, 1);
  const std::vector<ColumnRun> runs = {{4, 3}, {0, 2}, {9, 1}};
  const int64_t from[] = {4, 5, 6, 0, 1, 9};
  ForEachCpuRow(ColumnsTable(), ColumnsDesc{}, cpu, [&](const ColumnsRow& row) {
    TestMatrix y(DType::kF32, 5, 6, 2);
    ColumnsParams params;
    params.x = x.view();
    params.runs = runs;
    params.y = y.view();
    ASSERT_TRUE(row.run({}, params, *cpu.stream).ok());
    ExpectClose(
        y, [&](int64_t r, int64_t c) { return double{x(r, from[c])}; },
        [](int64_t, int64_t) { return 1e-30; });
  });
}

}  // namespace
}  // namespace inlay
