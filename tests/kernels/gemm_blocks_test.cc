// gemm over every block format: every row against a float64 product with the
// decoded weights; bit equality over batch sizes, thread counts and tiles.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/gemm/gemm.h"
#include "kernels/quant/quant.h"
#include "tests/support/kernel_test_util.h"
#include "tests/support/rounded_levels.h"

namespace inlay {
namespace {

using ::inlay::testing::ExpectClose;
using ::inlay::testing::ForEachCpuRow;
using ::inlay::testing::kUnitF32;
using ::inlay::testing::PackedLevelError;
using ::inlay::testing::TestCpu;
using ::inlay::testing::TestMatrix;

// What the packed rows round activations to: kernels/gemm/packed/activations.h.
constexpr int kActivationBlock = 32;

// Random blocks: encoded from a draw, or, where nothing encodes, random bytes
// that decode to finite values of ordinary size. A few, each taken several
// times: formats of codewords take long to encode.
std::vector<std::byte> DrawnBlocks(const BlockCodec& codec, int64_t blocks,
                                   std::mt19937& rng) {
  const FormatInfo& format = GetFormatInfo(codec.dtype);
  const auto bytes = static_cast<size_t>(format.block_bytes);
  std::vector<std::byte> out(static_cast<size_t>(blocks) * bytes);
  std::normal_distribution<float> normal(0.1f, 1.0f);
  std::vector<float> values(static_cast<size_t>(format.block_elements));
  constexpr int64_t kDrawn = 16;
  for (int64_t b = 0; b < blocks; ++b) {
    std::byte* block = out.data() + static_cast<size_t>(b) * bytes;
    if (b >= kDrawn) {
      std::memcpy(block, out.data() + rng() % kDrawn * bytes, bytes);
      continue;
    }
    bool usable = false;
    while (!usable) {
      if (codec.encode != nullptr) {
        for (float& value : values) value = normal(rng);
        codec.encode(values.data(), 1, block);
      } else {
        for (size_t i = 0; i < bytes; ++i) {
          block[i] = static_cast<std::byte>(rng() & 0xff);
        }
      }
      codec.decode(block, 1, values.data());
      usable = true;
      for (const float value : values) {
        usable = usable && std::abs(value) < 100.0f;
      }
    }
  }
  return out;
}

struct BlocksProblem {
  BlocksProblem(int64_t m, int64_t n, int64_t blocks, const BlockCodec& codec,
                unsigned seed)
      : rng(seed) {
    const FormatInfo& format = GetFormatInfo(codec.dtype);
    const int64_t k = blocks * format.block_elements;
    desc = {n, k, codec.dtype, DType::kF32};
    bytes = DrawnBlocks(codec, n * blocks, rng);
    values.resize(static_cast<size_t>(n * k));
    codec.decode(bytes.data(), n * blocks, values.data());
    x = TestMatrix(DType::kF32, m, k, 3);
    x.Randomize(rng);
    bias = TestMatrix(DType::kF32, 1, n);
    bias.Randomize(rng);
    residual = TestMatrix(DType::kF32, m, n, 2);
    residual.Randomize(rng);
  }

  // x of integers that 8 bits hold as they are: nothing is rounded then.
  void MakeXExact() {
    for (int64_t r = 0; r < x.rows(); ++r) {
      for (int64_t c = 0; c < x.cols(); ++c) {
        x.Set(r, c,
              c % kActivationBlock == 7
                  ? 127.0f
                  : static_cast<float>(static_cast<int>(rng() % 255) - 127));
      }
    }
  }

  // x that bf16 holds, for rows that round it to that.
  void RoundXToBf16() {
    x.Randomize(rng);
    for (int64_t r = 0; r < x.rows(); ++r) {
      for (int64_t c = 0; c < x.cols(); ++c) {
        x.Set(r, c, BF16ToF32(F32ToBF16(x(r, c))));
      }
    }
  }

  double w(int64_t r, int64_t c) const {
    return values[static_cast<size_t>(r * desc.k + c)];
  }

  // What is added to the products.
  enum class Added { kNothing, kBias, kResidual, kBoth, kBothInPlace };

  // y of `row`, for `rows` rows of x from `first` on.
  TestMatrix Run(const GemmRow& row, const TestCpu& cpu, int64_t first,
                 int64_t rows, Added added = Added::kBoth) {
    TestMatrix y(DType::kF32, rows, desc.n, 1);
    GemmParams params;
    params.x = x.view().RowSlice(first, rows);
    params.w = MatrixView(bytes.data(), desc.weight, desc.n, desc.k);
    if (added != Added::kNothing && added != Added::kResidual) {
      params.bias = bias.floats();
    }
    if (added == Added::kResidual || added == Added::kBoth) {
      params.residual = residual.view().RowSlice(first, rows);
    }
    params.y = y.view();
    if (added == Added::kBothInPlace) {
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t c = 0; c < desc.n; ++c) {
          y.Set(r, c, residual(first + r, c));
        }
      }
      params.residual = params.y;
    }
    if (desc.permuted) params.permutation = permutation.data();
    std::vector<std::byte> packed;
    if (row.packing != nullptr) {
      const WeightPacking<GemmDesc>& packing = *row.packing(desc);
      packed.resize(packing.bytes(desc) + 64, std::byte{0xff});
      // In two pieces, as a loader may.
      const int64_t half = desc.n / 2 / packing.group * packing.group;
      const size_t row_bytes = params.w.row_stride_bytes;
      std::byte* data = Aligned(packed);
      packing.pack(desc, bytes.data(), 0, half, data);
      packing.pack(desc, bytes.data() + static_cast<size_t>(half) * row_bytes,
                   half, desc.n - half, data);
      params.w.data = data;
    }
    std::vector<std::byte> workspace;
    constexpr size_t kGuard = 64;
    const size_t workspace_bytes =
        row.workspace_bytes == nullptr ? 0 : row.workspace_bytes(desc, rows);
    workspace.resize(workspace_bytes + 64 + kGuard, std::byte{0xff});
    params.workspace = Aligned(workspace);
    EXPECT_TRUE(row.run(desc, params, *cpu.stream).ok());
    const std::byte* guard = Aligned(workspace) + workspace_bytes;
    for (size_t i = 0; i < kGuard; ++i) {
      EXPECT_EQ(guard[i], std::byte{0xff})
          << "behind the workspace, byte " << i;
    }
    return y;
  }

  static std::byte* Aligned(std::vector<std::byte>& bytes) {
    return bytes.data() + 63 -
           (reinterpret_cast<uintptr_t>(bytes.data()) + 63) % 64;
  }

  GemmDesc desc;
  std::mt19937 rng;
  std::vector<int32_t> permutation;
  std::vector<std::byte> bytes;
  std::vector<float> values;
  TestMatrix x, bias, residual;
};

// Half a step of the rounded activations of a block.
double HalfStep(const TestMatrix& x, int64_t r, int64_t k) {
  float most = 0.0f;
  for (int64_t i = 0; i < kActivationBlock; ++i) {
    most = std::max(
        most, std::abs(x(r, k / kActivationBlock * kActivationBlock + i)));
  }
  return double{most} / 127.0 * 0.5;
}

// The largest value of each block of w.
std::vector<double> BlockMost(const BlocksProblem& problem) {
  const int64_t block = GetFormatInfo(problem.desc.weight).block_elements;
  std::vector<double> most(problem.values.size() / static_cast<size_t>(block));
  for (size_t i = 0; i < problem.values.size(); ++i) {
    double& largest = most[i / static_cast<size_t>(block)];
    largest = std::max(largest, std::abs(double{problem.values[i]}));
  }
  return most;
}

void CheckBlocks(BlocksProblem& problem, int64_t m, bool exact, TestCpu& cpu) {
  const int64_t n = problem.desc.n;
  const int64_t k = problem.desc.k;
  std::vector<double> want(static_cast<size_t>(m * n));
  std::vector<double> magnitude(want.size());
  std::vector<double> rounding(want.size());
  std::vector<double> levels(want.size());
  std::vector<double> offsets(want.size());
  const std::vector<double> block_most = BlockMost(problem);
  const int64_t block = GetFormatInfo(problem.desc.weight).block_elements;
  const double level_error = PackedLevelError(problem.desc.weight);
  for (int64_t r = 0; r < m; ++r) {
    std::vector<double> half_steps;
    for (int64_t i = 0; i < k; ++i)
      half_steps.push_back(HalfStep(problem.x, r, i));
    for (int64_t c = 0; c < n; ++c) {
      const auto at = static_cast<size_t>(r * n + c);
      want[at] = double{problem.bias(0, c)} + problem.residual(r, c);
      magnitude[at] =
          std::abs(problem.bias(0, c)) + std::abs(problem.residual(r, c));
      for (int64_t i = 0; i < k; ++i) {
        const double w = problem.w(c, i);
        want[at] += double{problem.x(r, i)} * w;
        magnitude[at] += std::abs(double{problem.x(r, i)} * w);
        rounding[at] += half_steps[static_cast<size_t>(i)] * std::abs(w);
        const double of_most =
            block_most[static_cast<size_t>((c * k + i) / block)] *
            (std::abs(double{problem.x(r, i)}) +
             half_steps[static_cast<size_t>(i)]);
        offsets[at] += of_most;
        levels[at] += level_error * of_most;
      }
    }
  }
  ForEachCpuRow(GemmTable(), problem.desc, cpu, [&](const GemmRow& row) {
    const TestMatrix y = problem.Run(row, cpu, 0, m);
    const bool packed = row.packing != nullptr;
    ExpectClose(
        y,
        [&](int64_t r, int64_t c) {
          return want[static_cast<size_t>(r * n + c)];
        },
        [&](int64_t r, int64_t c) {
          const auto at = static_cast<size_t>(r * n + c);
          const double sums =
              static_cast<double>(k + 3) * kUnitF32 * magnitude[at];
          // A block adds the sum of its codes and subtracts that of an offset
          // or minimum, each up to twice its largest value: the product of
          // codes and x is exact, three scales' products are rounded with it,
          // the offset's with x's sum, and each as it is added: 8.
          const double off =
              packed ? sums + levels[at] + 8.0 * 2.0 * kUnitF32 * offsets[at]
                     : sums;
          return packed && !exact ? off + rounding[at] : off;
        });
  });
}

bool IsF8(DType dtype) {
  return dtype == DType::kF8_G32 || dtype == DType::kF8_G128;
}

TEST(GemmBlocksTest, MatchesFloat64) {
  TestCpu cpu(2);
  unsigned seed = 1;
  for (const BlockCodec* codec : BlockCodecs()) {
    const int64_t unit = 512 / GetFormatInfo(codec->dtype).block_elements;
    const int64_t shapes[][3] = {{1, 1, 1},     {2, 9, 2},
                                 {5, 17, unit}, {9, 25, unit + 1},
                                 {33, 40, 3},   {4, 9, 4 * unit + 1}};
    for (const auto& [m, n, blocks] : shapes) {
      SCOPED_TRACE(::testing::Message()
                   << DTypeName(codec->dtype) << " m " << m << " n " << n
                   << " blocks " << blocks << " seed " << seed);
      BlocksProblem problem(m, n, blocks, *codec, seed);
      CheckBlocks(problem, m, false, cpu);
      problem.MakeXExact();
      CheckBlocks(problem, m, true, cpu);
      if (IsF8(codec->dtype)) {
        problem.RoundXToBf16();
        CheckBlocks(problem, m, true, cpu);
      }
      ++seed;
    }
  }
}

// Every code of e4m3, alone in its row and group: what comes out is the code.
TEST(GemmBlocksTest, EveryCodeOfF8) {
  TestCpu cpu(1);
  const BlockCodec& codec = *FindBlockCodec(DType::kF8_G32);
  BlocksProblem problem(5, 256, 1, codec, 3);
  for (int64_t c = 0; c < 256; ++c) {
    std::byte* block =
        problem.bytes.data() + c * GetFormatInfo(codec.dtype).block_bytes;
    const float one = 1.0f;
    std::memset(block, 0,
                static_cast<size_t>(GetFormatInfo(codec.dtype).block_bytes));
    std::memcpy(block, &one, sizeof(one));
    block[sizeof(one) + c % 32] = static_cast<std::byte>(c);
  }
  for (int64_t r = 0; r < 5; ++r) {
    for (int64_t i = 0; i < 32; ++i) problem.x.Set(r, i, 1.0f);
  }
  ForEachCpuRow(GemmTable(), problem.desc, cpu, [&](const GemmRow& row) {
    for (const int64_t rows : {1, 5}) {
      const TestMatrix y =
          problem.Run(row, cpu, 0, rows, BlocksProblem::Added::kNothing);
      for (int64_t c = 0; c < 256; ++c) {
        const float value = F8E4M3ToF32(static_cast<uint8_t>(c));
        if (std::isnan(value)) {
          EXPECT_TRUE(std::isnan(y(rows - 1, c))) << c;
        } else {
          EXPECT_EQ(y(rows - 1, c), value) << c;
        }
      }
    }
  });
}

// Whole tiles of rows of x, and one more or less: float64 has all rows, and
// fewer of them the same bits.
TEST(GemmBlocksTest, EveryNumberOfRows) {
  TestCpu cpu(2);
  for (const BlockCodec* codec : BlockCodecs()) {
    SCOPED_TRACE(DTypeName(codec->dtype));
    constexpr int64_t kRows = 257;
    const int64_t elements = GetFormatInfo(codec->dtype).block_elements;
    BlocksProblem problem(kRows, 11, std::max<int64_t>(1, 96 / elements),
                          *codec, 29);
    CheckBlocks(problem, kRows, false, cpu);
    ForEachCpuRow(GemmTable(), problem.desc, cpu, [&](const GemmRow& row) {
      const TestMatrix whole = problem.Run(row, cpu, 0, kRows);
      for (const int64_t rows : {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17, 63, 64, 65,
                                 127, 128, 129, 256}) {
        const TestMatrix part = problem.Run(row, cpu, kRows - rows, rows);
        for (int64_t r = 0; r < rows; ++r) {
          ASSERT_EQ(part.RowBits(r), whole.RowBits(kRows - rows + r))
              << "rows " << rows << " row " << r;
        }
      }
    });
  }
}

// Strips and pairs of strips that are not full, with every number of blocks to
// a step of K; each format several times.
TEST(GemmBlocksTest, SweepsRemaindersOfN) {
  TestCpu cpu(1);
  const auto codecs = BlockCodecs();
  for (int64_t i = 0; i < 3 * 33; ++i) {
    const BlockCodec& codec = *codecs[static_cast<size_t>(i) % codecs.size()];
    const int64_t n = 1 + i % 33, blocks = 1 + i / 33 + i % 3;
    const int64_t m = i % 4 == 0 ? 1 : 2 + i % 5;
    SCOPED_TRACE(::testing::Message() << DTypeName(codec.dtype) << " m " << m
                                      << " n " << n << " blocks " << blocks);
    BlocksProblem problem(m, n, blocks, codec, static_cast<unsigned>(i));
    CheckBlocks(problem, m, false, cpu);
  }
}

TEST(GemmBlocksTest, ARowOfXGivesTheSameBitsInEveryBatch) {
  TestCpu one(1);
  TestCpu two(2);
  for (const BlockCodec* codec : BlockCodecs()) {
    SCOPED_TRACE(DTypeName(codec->dtype));
    constexpr int64_t kRows = 70;
    BlocksProblem problem(kRows, 35, 3, *codec, 7);
    ForEachCpuRow(GemmTable(), problem.desc, one, [&](const GemmRow& row) {
      const TestMatrix whole = problem.Run(row, two, 0, kRows);
      for (int64_t rows : {1, 2, 3, 4, 5, 7, 8, 16, 17, 64}) {
        const int64_t first = (rows * 5) % (kRows - rows + 1);
        const TestMatrix part = problem.Run(row, one, first, rows);
        for (int64_t r = 0; r < rows; ++r) {
          ASSERT_EQ(part.RowBits(r), whole.RowBits(first + r))
              << "rows " << rows << " row " << r;
        }
      }
    });
  }
}

// Multiplies what shares the packed layout in another way.
bool HasOwnBits(const GemmRow& row) { return row.name == "cpu_packed_bf16"; }

// Rows that share the packed layout differ in their instructions only: what
// this machine has of them gives the same bits.
TEST(GemmBlocksTest, PackedRowsHaveTheSameBits) {
  TestCpu cpu(2);
  for (const BlockCodec* codec : BlockCodecs()) {
    SCOPED_TRACE(DTypeName(codec->dtype));
    // With a strip left over behind pairs, and a strip that is not full.
    for (const int64_t n : {5, 16, 24, 35, 48, 63}) {
      constexpr int64_t kRows = 19;
      BlocksProblem problem(kRows, n, 3, *codec, static_cast<unsigned>(n));
      TestMatrix first;
      ForEachCpuRow(GemmTable(), problem.desc, cpu, [&](const GemmRow& row) {
        if (row.packing == nullptr || HasOwnBits(row)) return;
        for (const int64_t rows : {int64_t{1}, int64_t{2}, int64_t{3},
                                   int64_t{7}, int64_t{16}, kRows}) {
          const TestMatrix y = problem.Run(row, cpu, 0, rows);
          if (first.rows() == 0) first = problem.Run(row, cpu, 0, kRows);
          for (int64_t r = 0; r < rows; ++r) {
            ASSERT_EQ(y.RowBits(r), first.RowBits(r)) << "n " << n;
          }
        }
      });
    }
  }
}

// What is unpacked at a time ends within k, what of x is multiplied at a time
// within m: other rows, and rows alone, have the same bits.
TEST(GemmBlocksTest, PanelsAndBlocksOfX) {
  TestCpu cpu(2);
  for (const BlockCodec* codec : BlockCodecs()) {
    SCOPED_TRACE(DTypeName(codec->dtype));
    const int64_t elements = GetFormatInfo(codec->dtype).block_elements;
    const bool is_long =
        codec->dtype == DType::kQ4_0 || codec->dtype == DType::kQ8_0 ||
        codec->dtype == DType::kQ6_K || codec->dtype == DType::kF8_G128;
    const int64_t shapes[][3] = {{7, 33, 67 * 32 / elements + 1},
                                 {1100, 9, 1},
                                 {67, 35, is_long ? 16384 / elements : 1}};
    for (const auto& [m, n, blocks] : shapes) {
      SCOPED_TRACE(::testing::Message()
                   << "m " << m << " n " << n << " k " << blocks * elements);
      BlocksProblem problem(m, n, blocks, *codec, 13);
      TestMatrix first;
      ForEachCpuRow(GemmTable(), problem.desc, cpu, [&](const GemmRow& row) {
        if (row.packing == nullptr) return;
        const int64_t rows = problem.x.rows();
        const TestMatrix y = problem.Run(row, cpu, 0, rows);
        if (first.rows() == 0 && !HasOwnBits(row)) first = y;
        for (int64_t r = 0; r < rows && !HasOwnBits(row); ++r) {
          ASSERT_EQ(y.RowBits(r), first.RowBits(r)) << "row " << r;
        }
        for (const int64_t r : {int64_t{0}, rows / 2, rows - 1}) {
          ASSERT_EQ(problem.Run(row, cpu, r, 1).RowBits(0), y.RowBits(r))
              << "row " << r;
        }
      });
    }
  }
}

// Products at the edge of float32 are rounded the same way in every batch, in a
// strip that is left over, too.
TEST(GemmBlocksTest, TinyInputsGiveTheSameBitsInEveryBatch) {
  TestCpu cpu(1);
  for (const BlockCodec* codec : BlockCodecs()) {
    SCOPED_TRACE(DTypeName(codec->dtype));
    BlocksProblem problem(7, 24, 2, *codec, 23);
    for (int64_t r = 0; r < 7; ++r) {
      for (int64_t i = 0; i < problem.desc.k; ++i) {
        problem.x.Set(r, i, problem.x(r, i) * 1e-37f);
      }
    }
    ForEachCpuRow(GemmTable(), problem.desc, cpu, [&](const GemmRow& row) {
      const auto run = [&](int64_t first, int64_t rows) {
        return problem.Run(row, cpu, first, rows,
                           BlocksProblem::Added::kNothing);
      };
      const TestMatrix whole = run(0, 7);
      for (int64_t r = 0; r < 7; ++r) {
        ASSERT_EQ(run(r, 1).RowBits(0), whole.RowBits(r)) << "row " << r;
      }
    });
  }
}

TEST(GemmBlocksTest, BiasAndResidual) {
  using Added = BlocksProblem::Added;
  TestCpu cpu(1);
  for (const DType dtype : {DType::kQ4_0, DType::kQ8_0, DType::kF8_G32}) {
    SCOPED_TRACE(DTypeName(dtype));
    for (const int64_t m : {1, 7}) {
      // Whole strips, and one that is not.
      BlocksProblem problem(m, 37, 3, *FindBlockCodec(dtype), 17);
      ForEachCpuRow(GemmTable(), problem.desc, cpu, [&](const GemmRow& row) {
        const auto run = [&](Added added) {
          return problem.Run(row, cpu, 0, m, added);
        };
        const TestMatrix nothing = run(Added::kNothing);
        const TestMatrix bias = run(Added::kBias);
        const TestMatrix residual = run(Added::kResidual);
        const TestMatrix both = run(Added::kBoth);
        const TestMatrix in_place = run(Added::kBothInPlace);
        for (int64_t r = 0; r < m; ++r) {
          for (int64_t c = 0; c < 37; ++c) {
            const float sum = nothing(r, c);
            const float added_to = problem.residual(r, c);
            const float with_bias = sum + problem.bias(0, c);
            EXPECT_EQ(bias(r, c), with_bias);
            EXPECT_EQ(residual(r, c), sum + added_to);
            EXPECT_EQ(both(r, c), with_bias + added_to);
            EXPECT_EQ(in_place(r, c), both(r, c));
          }
        }
      });
    }
  }
}

TEST(GemmBlocksTest, AnEmptyBatchIsNoWork) {
  TestCpu cpu(2);
  for (const BlockCodec* codec : BlockCodecs()) {
    SCOPED_TRACE(DTypeName(codec->dtype));
    BlocksProblem problem(1, 9, 1, *codec, 19);
    ForEachCpuRow(GemmTable(), problem.desc, cpu, [&](const GemmRow& row) {
      EXPECT_EQ(problem.Run(row, cpu, 0, 0).rows(), 0);
    });
  }
}

// The same product with columns of w in another order, and x gathered.
TEST(GemmBlocksTest, PermutedColumns) {
  TestCpu cpu(2);
  for (const BlockCodec* codec : BlockCodecs()) {
    SCOPED_TRACE(DTypeName(codec->dtype));
    BlocksProblem plain(5, 19, 3, *codec, 5);
    BlocksProblem permuted(5, 19, 3, *codec, 5);
    permuted.desc.permuted = true;
    for (int32_t i = 0; i < permuted.desc.k; ++i) {
      permuted.permutation.push_back(i);
    }
    std::shuffle(permuted.permutation.begin(), permuted.permutation.end(),
                 permuted.rng);
    for (int64_t r = 0; r < plain.x.rows(); ++r) {
      for (int64_t i = 0; i < plain.desc.k; ++i) {
        plain.x.Set(
            r, i, permuted.x(r, permuted.permutation[static_cast<size_t>(i)]));
      }
    }
    ForEachCpuRow(GemmTable(), permuted.desc, cpu, [&](const GemmRow& row) {
      for (const int64_t rows : {1, 2, 5}) {
        const TestMatrix want = plain.Run(row, cpu, 0, rows);
        const TestMatrix got = permuted.Run(row, cpu, 0, rows);
        for (int64_t r = 0; r < rows; ++r) {
          EXPECT_EQ(got.RowBits(r), want.RowBits(r));
        }
      }
    });
  }
}

// A request with NaN or infinity in it must see that in its logits, and others
// beside it must not.
TEST(GemmBlocksTest, WhatIsNotFiniteStaysInItsRow) {
  TestCpu cpu(1);
  for (const BlockCodec* codec : BlockCodecs()) {
    SCOPED_TRACE(DTypeName(codec->dtype));
    BlocksProblem clean(3, 9, 2, *codec, 11);
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(),
                            std::numeric_limits<float>::infinity()}) {
      BlocksProblem problem(3, 9, 2, *codec, 11);
      problem.x.Set(1, 5, bad);
      ForEachCpuRow(GemmTable(), problem.desc, cpu, [&](const GemmRow& row) {
        const TestMatrix want = clean.Run(row, cpu, 0, 3);
        const TestMatrix got = problem.Run(row, cpu, 0, 3);
        EXPECT_EQ(got.RowBits(0), want.RowBits(0));
        EXPECT_EQ(got.RowBits(2), want.RowBits(2));
        EXPECT_FALSE(std::isfinite(got(1, 3)));
        EXPECT_FALSE(std::isfinite(problem.Run(row, cpu, 1, 1)(0, 3)));
        const TestMatrix two = problem.Run(row, cpu, 1, 2);
        EXPECT_FALSE(std::isfinite(two(0, 3)));
        EXPECT_EQ(two.RowBits(1), want.RowBits(2));
      });
    }
  }
}

#if defined(__x86_64__)
TEST(GemmBlocksTest, LargeF8OnAmdByProductsOfBf16) {
  const auto chosen = [](int64_t n, DType weight, std::string_view forced) {
    const auto row =
        Select("gemm", GemmTable(), GemmDesc{n, 1024, weight, DType::kF32},
               DeviceInfo{DeviceKind::kCpu, "cpu"}, forced);
    return row.ok() ? std::string((*row)->name) : "none";
  };
  constexpr char kRow[] = "cpu_packed_bf16";
  if (chosen(1, DType::kF8_G32, kRow) == "none") {
    GTEST_SKIP() << "needs AVX512_BF16 and VBMI";
  }
  for (const DType weight : {DType::kF8_G32, DType::kF8_G128}) {
    EXPECT_EQ(chosen(1024, weight, {}) == kRow,
              static_cast<bool>(__builtin_cpu_is("amd")));
    EXPECT_NE(chosen(1023, weight, {}), kRow);
  }
  EXPECT_EQ(chosen(1024, DType::kI8_G32, kRow), "none");
}
#endif

}  // namespace
}  // namespace inlay
