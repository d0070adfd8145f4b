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
#include "tests/support/kernel_test_util.h"

namespace inlay {
namespace {

using ::inlay::testing::ExpectClose;
using ::inlay::testing::ForEachCpuRow;
using ::inlay::testing::kUnitF32;
using ::inlay::testing::TestCpu;
using ::inlay::testing::TestMatrix;

constexpr int kBlock = 8;  // tokens a state's block

TestMatrix Random(int64_t rows, int64_t cols, unsigned seed, int64_t pad = 3,
                  float deviation = 1.0f) {
  std::mt19937 rng(seed);
  TestMatrix matrix(DType::kF32, rows, cols, pad);
  return matrix.Randomize(rng, deviation);
}

// A pool of states, poisoned, and sequences that write theirs to blocks of
// their own, never to the one they read.
class States {
 public:
  States(int64_t floats, int num_blocks)
      : stride_(static_cast<size_t>(floats) * 4 + 64),
        memory_(stride_ * static_cast<size_t>(num_blocks), std::byte{0xff}) {
    view_.base = memory_.data();
    view_.block_stride_bytes = static_cast<int64_t>(stride_);
    view_.offset_bytes = 64;
    view_.block_size = kBlock;
  }

  struct Sequence {
    int64_t length = 0;
    std::vector<int32_t> blocks;
  };

  // The next `count` tokens of `sequence` are rows from `row` on.
  void Add(Sequence& sequence, int64_t row, int64_t count) {
    int32_t source = -1;
    if (sequence.length > 0) source = sequence.blocks.back();
    if (sequence.length % kBlock != 0) sequence.blocks.back() = next_++;
    sequence.length += count;
    while (static_cast<int64_t>(sequence.blocks.size()) * kBlock <
           sequence.length) {
      sequence.blocks.push_back(next_++);
    }
    sources_.push_back(source);
    tables_.push_back(sequence.blocks);
    AttentionSequence entry;
    entry.q_begin = static_cast<int32_t>(row);
    entry.q_len = static_cast<int32_t>(count);
    entry.kv_len = static_cast<int32_t>(sequence.length);
    entries_.push_back(entry);
  }

  // Of what was added since the last call.
  StateParams Take() {
    for (size_t i = 0; i < entries_.size(); ++i) {
      entries_[i].blocks = tables_[i].data();
    }
    taken_ = std::move(entries_);
    taken_tables_ = std::move(tables_);
    taken_sources_ = std::move(sources_);
    entries_.clear();
    tables_.clear();
    sources_.clear();
    return {taken_, taken_sources_.data(), view_};
  }

  // As bytes, so that NaNs compare.
  std::string State(int32_t block) const {
    return std::string(reinterpret_cast<const char*>(view_.State(block)),
                       stride_ - 64);
  }

 private:
  size_t stride_;
  std::vector<std::byte> memory_;
  KvStateView view_;
  int32_t next_ = 0;
  std::vector<AttentionSequence> entries_, taken_;
  std::vector<std::vector<int32_t>> tables_, taken_tables_;
  std::vector<int32_t> sources_, taken_sources_;
};

struct Case {
  LinearAttentionDesc desc;
  bool beta = true;
  bool skip = false;
};

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const StateDecay decay :
       {StateDecay::kNone, StateDecay::kHead, StateDecay::kChannel}) {
    for (const bool delta : {false, true}) {
      // Widths below, at and beside those of vectors and tiles of them.
      for (const auto& [key_dim, value_dim] :
           {std::pair{16, 8}, {5, 1}, {32, 33}, {7, 70}, {256, 20}}) {
        LinearAttentionDesc desc;
        desc.num_heads = 4;
        desc.num_key_heads = key_dim == 32 ? 4 : 2;
        desc.key_dim = key_dim;
        desc.value_dim = value_dim;
        desc.decay = decay;
        desc.delta = delta;
        cases.push_back({desc, key_dim != 5, key_dim == 7});
      }
    }
  }
  return cases;
}

// Inputs of one sequence.
struct Inputs {
  Inputs(const Case& test, int64_t tokens, unsigned seed)
      : q(Random(tokens, test.desc.num_key_heads * test.desc.key_dim, seed)),
        k(Random(tokens, test.desc.num_key_heads * test.desc.key_dim,
                 seed + 1)),
        v(Random(tokens, test.desc.num_heads * test.desc.value_dim, seed + 2)),
        decay(DType::kF32, tokens, DecayWidth(test), 1),
        beta(DType::kF32, tokens, test.desc.num_heads, 2),
        skip(Random(1, test.desc.num_heads, seed + 3)) {
    // Keys of length 1, as the delta rule has them: it would not be stable.
    for (TestMatrix* matrix : {&q, &k}) {
      for (int64_t r = 0; r < tokens; ++r) {
        for (int h = 0; h < test.desc.num_key_heads; ++h)
          Unit(*matrix, r, h, test);
      }
    }
    std::mt19937 rng(seed + 4);
    std::uniform_real_distribution<float> uniform(0.2f, 1.0f);
    for (int64_t r = 0; r < tokens; ++r) {
      for (int64_t c = 0; c < decay.cols(); ++c) decay.Set(r, c, uniform(rng));
      for (int64_t c = 0; c < beta.cols(); ++c) beta.Set(r, c, uniform(rng));
    }
  }

  static int64_t DecayWidth(const Case& test) {
    return test.desc.decay == StateDecay::kChannel
               ? int64_t{test.desc.num_heads} * test.desc.key_dim
               : test.desc.num_heads;
  }

  static void Unit(TestMatrix& matrix, int64_t row, int head,
                   const Case& test) {
    const int64_t first = int64_t{head} * test.desc.key_dim;
    double squares = 0;
    for (int i = 0; i < test.desc.key_dim; ++i) {
      squares += double{matrix(row, first + i)} * matrix(row, first + i);
    }
    for (int i = 0; i < test.desc.key_dim; ++i) {
      matrix.Set(
          row, first + i,
          static_cast<float>(matrix(row, first + i) / std::sqrt(squares)));
    }
  }

  // Rows [first, first + count), and y of as many.
  LinearAttentionParams Params(const Case& test, int64_t first, int64_t count,
                               const TensorView& y) {
    LinearAttentionParams params;
    params.q = q.view().RowSlice(first, count);
    params.k = k.view().RowSlice(first, count);
    params.v = v.view().RowSlice(first, count);
    if (test.desc.decay != StateDecay::kNone) {
      params.decay = decay.view().RowSlice(first, count);
    }
    if (test.beta) params.beta = beta.view().RowSlice(first, count);
    if (test.skip) params.skip = skip.floats();
    params.y = y;
    return params;
  }

  TestMatrix q, k, v, decay, beta, skip;
};

// y in float64, and for each element the sum of what its terms' magnitudes come
// to, which rounding errors are measured in.
struct Expected {
  std::vector<double> y, magnitude;
};

Expected Reference(const Case& test, const Inputs& in) {
  const LinearAttentionDesc& desc = test.desc;
  const int64_t tokens = in.q.rows();
  const int64_t width = int64_t{desc.num_heads} * desc.value_dim;
  Expected out;
  out.y.resize(static_cast<size_t>(tokens * width));
  out.magnitude = out.y;
  for (int head = 0; head < desc.num_heads; ++head) {
    const int64_t key =
        head / (desc.num_heads / desc.num_key_heads) * desc.key_dim;
    for (int c = 0; c < desc.value_dim; ++c) {
      std::vector<double> s(static_cast<size_t>(desc.key_dim)), m = s;
      for (int64_t t = 0; t < tokens; ++t) {
        const int64_t column = int64_t{head} * desc.value_dim + c;
        double u = in.v(t, column), size = std::abs(u);
        for (size_t i = 0; i < s.size(); ++i) {
          const auto at = static_cast<int64_t>(i);
          const double decay =
              desc.decay == StateDecay::kNone ? 1.0
              : desc.decay == StateDecay::kHead
                  ? in.decay(t, head)
                  : in.decay(t, int64_t{head} * desc.key_dim + at);
          s[i] *= decay;
          m[i] *= decay;
          if (desc.delta) {
            u -= s[i] * in.k(t, key + at);
            size += m[i] * std::abs(double{in.k(t, key + at)});
          }
        }
        const double beta = test.beta ? in.beta(t, head) : 1.0;
        double y = test.skip ? double{in.skip(0, head)} * in.v(t, column) : 0.0;
        double magnitude = std::abs(y);
        for (size_t i = 0; i < s.size(); ++i) {
          const auto at = static_cast<int64_t>(i);
          s[i] += in.k(t, key + at) * u * beta;
          m[i] += std::abs(double{in.k(t, key + at)}) * size * beta;
          y += s[i] * in.q(t, key + at);
          magnitude += m[i] * std::abs(double{in.q(t, key + at)});
        }
        out.y[static_cast<size_t>(t * width + column)] = y;
        out.magnitude[static_cast<size_t>(t * width + column)] = magnitude;
      }
    }
  }
  return out;
}

TEST(LinearAttentionTest, MatchesFloat64) {
  TestCpu cpu(2);
  for (const Case& test : Cases()) {
    SCOPED_TRACE(::testing::Message()
                 << "keys " << test.desc.key_dim << " values "
                 << test.desc.value_dim << " decay "
                 << static_cast<int>(test.desc.decay) << " delta "
                 << test.desc.delta);
    constexpr int64_t kTokens = 2 * kBlock + 3;
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
  for (const Case& test : Cases()) {
    constexpr int64_t kTokens = 3 * kBlock + 1;
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
  Case test = Cases()[0];
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
}

TEST(ShortConvTest, MatchesFloat64HoweverItIsCut) {
  TestCpu cpu(2);
  constexpr int64_t kTokens = 2 * kBlock + 5;
  for (const int64_t channels : {1, 7, 64, 259}) {
    for (const int taps : {2, 3, 4, 8}) {
      for (const bool gated : {false, true}) {
        SCOPED_TRACE(::testing::Message() << channels << " channels, " << taps
                                          << " taps, gated " << gated);
        const ShortConvDesc desc{channels, taps, !gated, DType::kF32};
        TestMatrix x = Random(kTokens, channels, 1);
        TestMatrix before = Random(kTokens, channels, 2);
        TestMatrix after = Random(kTokens, channels, 3);
        TestMatrix weights = Random(taps, channels, 4, 0);
        TestMatrix bias = Random(1, channels, 5, 0);
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
        // One rounding a term, and silu's slope is at most 1.1.
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
                TestMatrix y =
                    gated ? x : TestMatrix(DType::kF32, kTokens, channels, 4);
                for (int64_t first = 0; first < kTokens; first += chunk) {
                  const int64_t count = std::min(chunk, kTokens - first);
                  const auto rows = [&](TestMatrix& m) {
                    return m.view().RowSlice(first, count);
                  };
                  states.Add(sequence, 0, count);
                  ShortConvParams params;
                  params.x = rows(gated ? y : x);  // in place where gated
                  if (gated) {
                    params.input_gate = rows(before);
                    params.output_gate = rows(after);
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
  for (const bool delta : {false, true}) {
    StateGatesDesc desc;
    desc.num_heads = 3;
    desc.channels = delta ? 5 : 1;
    if (!delta) {
      desc.x_scale = 0.5f;
      desc.least = 0.1f;
      desc.most = 2.0f;
    }
    const int64_t width = desc.num_heads * desc.channels;
    TestMatrix x = Random(4, width, 1, 2, 3.0f);
    x.Set(0, 0, 200.0f);  // where e^x overflows
    x.Set(0, width - 1, -200.0f);
    TestMatrix b = Random(4, desc.num_heads, 2);
    TestMatrix bias = Random(1, width, 3);
    TestMatrix a_log = Random(1, desc.num_heads, 4);
    const auto step = [&](int64_t r, int64_t c) {
      const double raw = double{desc.x_scale} * x(r, c) + bias(0, c);
      const double soft = raw > 100 ? raw : std::log1p(std::exp(raw));
      return std::clamp<double>(soft, desc.least, desc.most);
    };
    const auto decay = [&](int64_t r, int64_t c) {
      return std::exp(-std::exp(double{a_log(0, c / desc.channels)}) *
                      step(r, c));
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
      // The exponent's rounding counts by its size.
      ExpectClose(decays, decay, [&](int64_t r, int64_t c) {
        return decay(r, c) * kUnitF32 * 8 * (1 + step(r, c)) + 1e-38;
      });
      ExpectClose(betas, beta, [&](int64_t r, int64_t c) {
        return beta(r, c) * kUnitF32 * 8 + 1e-38;
      });
    });
  }
}

TEST(GatedNormTest, MatchesFloat64) {
  TestCpu cpu(2);
  for (const int64_t width : {1, 7, 8, 33, 100}) {
    for (const GateFunction gate :
         {GateFunction::kNone, GateFunction::kSilu, GateFunction::kSigmoid}) {
      for (const int flags : {0, 1, 2, 3, 4, 5, 6, 7}) {
        GatedNormDesc desc;
        desc.width = width;
        desc.groups = 3;
        desc.gate = gate;
        desc.gate_scale = 0.7f;
        desc.gate_first = (flags & 1) != 0;
        desc.normalise = (flags & 2) != 0;
        desc.shared_weight = (flags & 4) != 0;
        TestMatrix x = Random(4, 3 * width, 1);
        TestMatrix z = Random(4, 3 * width, 2);
        TestMatrix weight = Random(1, 3 * width, 3);
        const auto f = [&](int64_t r, int64_t c) {
          const double v = double{desc.gate_scale} * z(r, c);
          const double sigmoid = 1.0 / (1.0 + std::exp(-v));
          return gate == GateFunction::kNone   ? 1.0
                 : gate == GateFunction::kSilu ? v * sigmoid
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
  TestMatrix x = Random(5, 10, 1);
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
