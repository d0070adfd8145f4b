// attention's CUDA rows against a float64 softmax: ragged batches, every
// format, group, head_dim, window and block size; slots that nobody wrote hold
// NaN, outputs start as NaN; and the same bits in every batch.
#if INLAY_HAS_CUDA
#include <gtest/gtest.h>

#include <random>
#include <utility>

#include "tests/support/attention_cuda_util.h"

namespace inlay {
namespace {

using ::inlay::testing::AttentionCudaTest;
using ::inlay::testing::AttentionProblem;
using ::inlay::testing::Desc;
using ::inlay::testing::ForEachCudaRow;
using ::inlay::testing::kRagged;
using ::inlay::testing::SequenceShape;
using ::inlay::testing::TestMask;
using ::inlay::testing::TestMatrix;

TEST_F(AttentionCudaTest, MatchesFloat64OverHeadDimsAndTypes) {
  unsigned seed = 1;
  for (const int head_dim : {64, 80, 96, 128, 192, 256, 32, 8, 72}) {
    for (const DType dtype : {DType::kBF16, DType::kF16}) {
      SCOPED_TRACE(::testing::Message()
                   << "head_dim " << head_dim << " " << DTypeName(dtype)
                   << " seed " << seed);
      AttentionProblem(Desc(4, 2, head_dim, dtype), kRagged,
                       seed % 2 == 0 ? 16 : 32, seed)
          .Check(*gpu_);
      ++seed;
    }
  }
}

// Wide heads; values in their keys' rows; both.
TEST_F(AttentionCudaTest, LatentRowsAndWideHeads) {
  constexpr int kDims[][2] = {{576, 512}, {48, 32}, {320, 256}, {296, 8},
                              {128, 64},  {512, 0}, {264, 0},   {40, 40}};
  unsigned seed = 500;
  for (const auto& [head_dim, value_dim] : kDims) {
    for (const DType kv : {DType::kF32, DType::kF16, DType::kBF16, DType::kI8,
                           DType::kF8E4M3, DType::kKvQ4}) {
      SCOPED_TRACE(::testing::Message()
                   << "head_dim " << head_dim << " value_dim " << value_dim
                   << " " << DTypeName(kv) << " seed " << seed);
      constexpr DType kTypes[] = {DType::kF32, DType::kBF16, DType::kF16};
      AttentionDesc desc =
          Desc(seed % 4 == 0 ? 128 : 19, 1, head_dim, kTypes[seed % 3], kv);
      desc.value_dim = value_dim;
      if (seed % 5 == 0) desc.window = 100;
      if (seed % 5 == 1) desc.softcap = 20.0f;
      AttentionProblem problem(desc, {{1, 70}, {9, 9}, {3, 300}, {1, 5000}},
                               seed % 2 == 0 ? 16 : 64, seed);
      problem.set_sinks(seed % 5 == 2);
      if (seed % 5 == 3) problem.set_alibi();
      problem.Check(*gpu_);
      ++seed;
    }
  }
  std::mt19937 rng(7);
  std::vector<TestMask> masks(2);
  masks[0].Blocks(rng, 500, 64, 64, 40);
  masks[1].Prefix(300);
  AttentionDesc desc = Desc(16, 1, 576, DType::kBF16);
  desc.value_dim = 512;
  AttentionProblem(desc, {{20, 500}, {40, 400}}, 16, seed, masks).Check(*gpu_);
}

// Queries and cache of one 16-bit type: a kernel of its own on Hopper.
TEST_F(AttentionCudaTest, LatentRowsOf16Bits) {
  constexpr int kDims[][2] = {{576, 512}, {48, 32},   {320, 256},
                              {80, 16},   {528, 512}, {144, 144}};
  unsigned seed = 600;
  for (const auto& [head_dim, value_dim] : kDims) {
    for (const DType dtype : {DType::kBF16, DType::kF16}) {
      for (const int heads : {1, 7, 16, 40, 128}) {
        SCOPED_TRACE(::testing::Message()
                     << "head_dim " << head_dim << " value_dim " << value_dim
                     << " heads " << heads << " " << DTypeName(dtype)
                     << " seed " << seed);
        AttentionDesc desc = Desc(heads, 1, head_dim, dtype);
        desc.value_dim = value_dim;
        if (seed % 5 == 0) desc.window = 100;
        if (seed % 5 == 1) desc.softcap = 20.0f;
        AttentionProblem problem(
            desc, {{1, 70}, {9, 9}, {0, 5}, {70, 333}, {1, 5000}, {1, 1}},
            seed % 2 == 0 ? 16 : 64, seed);
        problem.set_sinks(seed % 5 == 2);
        if (seed % 5 == 3) problem.set_alibi();
        problem.Check(*gpu_);
        ++seed;
      }
    }
  }
  // Many chunks and few CTAs: partial results of every kind.
  AttentionDesc desc = Desc(16, 1, 576, DType::kBF16);
  desc.value_dim = 512;
  AttentionProblem long_ones(desc, {{1, 60000}, {2, 9000}}, 16, seed);
  long_ones.Check(*gpu_);
  long_ones.set_grid(5);
  long_ones.Check(*gpu_);
}

TEST_F(AttentionCudaTest, EveryCacheFormatFromEveryActivation) {
  unsigned seed = 100;
  for (const DType kv : {DType::kF32, DType::kF16, DType::kBF16, DType::kI8,
                         DType::kF8E4M3, DType::kKvQ4}) {
    for (const DType activation : {DType::kF32, DType::kBF16, DType::kF16}) {
      SCOPED_TRACE(::testing::Message()
                   << DTypeName(activation) << " " << DTypeName(kv));
      AttentionProblem(Desc(6, 2, 40, activation, kv), kRagged, 16, seed++)
          .Check(*gpu_);
      AttentionProblem(Desc(4, 4, 128, activation, kv), {{1, 200}, {9, 40}}, 48,
                       seed++)
          .Check(*gpu_);
    }
  }
}

// Caches of bytes where queries are of 16 bits: items decode them, tiles read
// them unpacked.
TEST_F(AttentionCudaTest, GroupsAndBlockSizes) {
  constexpr int kBlockSizes[] = {16, 48, 64, 128, 256};
  int i = 0;
  for (const int group : {1, 2, 3, 5, 6, 7, 8, 12, 16, 20, 71}) {
    for (const auto& [kv_heads, head_dim] : {std::pair{1, 64}, {2, 128}}) {
      const int block_size = kBlockSizes[i++ % 5];
      SCOPED_TRACE(::testing::Message()
                   << "group " << group << " block size " << block_size);
      AttentionProblem(Desc(kv_heads * group, kv_heads, head_dim, DType::kBF16),
                       {{1, 700}, {19, 33}, {100, 350}}, block_size,
                       static_cast<unsigned>(group))
          .Check(*gpu_);
    }
  }
}

TEST_F(AttentionCudaTest, WindowsAtTheirEdges) {
  int i = 0;
  for (const int window : {1, 2, 15, 16, 17, 63, 64, 65, 127, 128, 129, 1000}) {
    for (const int head_dim : {i % 2 == 0 ? 64 : 256, 128}) {
      ++i;
      SCOPED_TRACE(::testing::Message()
                   << "window " << window << " head_dim " << head_dim);
      AttentionDesc desc = Desc(8, 2, head_dim, DType::kBF16);
      desc.window = window;
      AttentionProblem(desc,
                       {{1, 200}, {90, 210}, {64, 64}, {150, 1200}, {1, 2000}},
                       16, static_cast<unsigned>(window))
          .Check(*gpu_);
    }
  }
}

TEST_F(AttentionCudaTest, SoftcapSinksAndBidirectional) {
  for (const int head_dim : {64, 128, 256}) {
    SCOPED_TRACE(::testing::Message() << "head_dim " << head_dim);
    AttentionDesc desc = Desc(4, 2, head_dim, DType::kBF16);
    desc.softcap = 3.0f;
    AttentionProblem(desc, kRagged, 16, 1).Check(*gpu_);
    desc.softcap = 50.0f;
    desc.window = 40;
    AttentionProblem(desc, kRagged, 16, 1).Check(*gpu_);
    desc = Desc(16, 2, head_dim, DType::kF16);
    AttentionProblem sinks(desc, kRagged, 16, 2);
    sinks.set_sinks(true);
    sinks.Check(*gpu_);
    desc.window = 9;
    AttentionProblem sink_window(desc, {{40, 150}, {1, 90}, {200, 700}}, 16, 3);
    sink_window.set_sinks(true);
    sink_window.Check(*gpu_);
    desc = Desc(4, 4, head_dim, DType::kBF16);
    desc.causal = false;
    AttentionProblem encoder(desc, {{40, 40}, {3, 90}, {300, 300}, {129, 513}},
                             16, 4);
    encoder.Check(*gpu_);
  }
}

TEST_F(AttentionCudaTest, Alibi) {
  unsigned seed = 300;
  for (const int head_dim : {64, 80, 96, 128, 192, 256}) {
    SCOPED_TRACE(::testing::Message() << "head_dim " << head_dim);
    AttentionDesc desc = Desc(12, 2, head_dim, DType::kBF16);
    AttentionProblem problem(desc, kRagged, 16, seed++);
    problem.set_alibi();
    problem.Check(*gpu_);
    desc = Desc(4, 4, head_dim, DType::kF16);
    desc.window = 70;
    desc.softcap = 20.0f;
    AttentionProblem window(desc, kRagged, 32, seed++);
    window.set_alibi();
    window.set_sinks(true);
    window.Check(*gpu_);
    desc = Desc(6, 3, head_dim, DType::kBF16);
    desc.causal = false;
    AttentionProblem both_ways(desc, {{40, 40}, {3, 90}, {300, 300}}, 16,
                               seed++);
    both_ways.set_alibi();
    both_ways.Check(*gpu_);
    desc = Desc(8, 1, head_dim == 80 ? 64 : head_dim, DType::kBF16,
                DType::kF8E4M3);
    AttentionProblem bytes(desc, kRagged, 16, seed++);
    bytes.set_alibi();
    bytes.Check(*gpu_);
  }
}

// Masks of all kinds over ragged batches, with all else that a row does; many
// queries, and some tiles, see nothing.
TEST_F(AttentionCudaTest, RandomMasks) {
  const std::vector<SequenceShape> shapes = {
      {1, 70}, {30, 30},   {0, 9},   {25, 150},  {170, 420},
      {2, 64}, {270, 270}, {1, 900}, {130, 131}, {5, 1200}};
  for (unsigned seed = 1; seed <= 36; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    std::mt19937 rng(seed);
    constexpr int kDims[] = {64, 128, 256, 80, 192, 96};
    constexpr DType kCaches[] = {DType::kBF16, DType::kF8E4M3, DType::kI8};
    const int head_dim = kDims[seed % 6];
    AttentionDesc desc = Desc(
        4 * (1 + static_cast<int>(seed % 2)), seed % 4 == 0 ? 4 : 1, head_dim,
        DType::kBF16, head_dim == 80 ? DType::kBF16 : kCaches[seed / 6 % 3]);
    if (seed % 7 == 0) desc.kv = desc.activation = DType::kF16;
    if (seed % 4 == 1) desc.window = 1 + static_cast<int>(rng() % 300);
    desc.causal = seed % 4 != 2;
    if (seed % 5 == 0) desc.softcap = 4.0f;
    std::vector<TestMask> masks;
    for (const SequenceShape& shape : shapes) {
      masks.push_back(TestMask::Random(rng, shape.q_len, shape.kv_len));
    }
    AttentionProblem problem(desc, shapes, seed % 2 == 0 ? 16 : 64, seed,
                             masks);
    problem.set_sinks(seed % 6 == 0);
    if (seed % 5 == 1) problem.set_alibi();
    problem.Check(*gpu_);
  }
}

// Tiles and items of which no row sees anything, between others.
TEST_F(AttentionCudaTest, WhatSeesNothingGivesZeros) {
  for (const int head_dim : {64, 128, 256}) {
    SCOPED_TRACE(::testing::Message() << "head_dim " << head_dim);
    std::mt19937 rng(8);
    const std::vector<SequenceShape> shapes = {{200, 200}, {1, 50},  {150, 300},
                                               {2, 90},    {90, 90}, {1, 70}};
    std::vector<TestMask> masks(6);
    for (const size_t s : {0, 1, 3}) {
      masks[s].Blocks(rng, shapes[s].kv_len, 1, 1, 0);
    }
    masks[2].Blocks(rng, 300, 70, 64, 50);
    for (const bool sinks : {false, true}) {
      AttentionProblem problem(Desc(4, 1, head_dim, DType::kBF16), shapes, 16,
                               8, masks);
      problem.set_sinks(sinks);
      problem.Check(*gpu_);
    }
  }
}

// Few queries under patterns, as sequences of the blocks that they see: what
// the masks say, and each alone what it is in company.
TEST_F(AttentionCudaTest, GatheredPatterns) {
  const std::vector<SequenceShape> shapes = {{5, 700},  {1, 900},   {16, 1300},
                                             {64, 800}, {80, 1000}, {33, 33},
                                             {0, 50},   {3, 2500}};
  unsigned seed = 1;
  for (const char* text :
       {"block=16,window=48,global=16", "window=64,random=192",
        "block=32,stride=160,window=64",
        "block=16,window=32,dilated=1024,dilation=64",
        "segment=256,global=256,context=768"}) {
    const AttentionPattern pattern = *ParseAttentionPattern(text);
    std::vector<TestMask> masks;
    for (const SequenceShape& shape : shapes) {
      masks.emplace_back().Pattern(pattern, true, shape.kv_len);
    }
    for (const DType kv : {DType::kBF16, DType::kI8}) {
      SCOPED_TRACE(::testing::Message() << text << " " << DTypeName(kv));
      const AttentionDesc desc =
          Desc(seed % 3 == 0 ? 16 : 8, 2, 128, DType::kBF16, kv);
      AttentionProblem problem(desc, shapes, 16, seed, masks);
      ++seed;
      problem.set_gathers();
      problem.Check(*gpu_);
      ForEachCudaRow(
          AttentionTable(), desc, *gpu_, [&](const AttentionRow& row) {
            const TestMatrix whole =
                problem.Run(row, *gpu_, problem.sequences());
            for (size_t s = 0; s < shapes.size(); ++s) {
              // The others have no queries.
              std::vector<AttentionSequence> alone = problem.sequences();
              for (AttentionSequence& each : alone) {
                if (&each != &alone[s]) each.q_len = 0;
              }
              const TestMatrix out = problem.Run(row, *gpu_, alone);
              for (int i = 0; i < alone[s].q_len; ++i) {
                ASSERT_EQ(out.RowBits(alone[s].q_begin + i),
                          whole.RowBits(alone[s].q_begin + i))
                    << s << " " << i;
              }
            }
          });
    }
  }
}

// What masks are for, in sizes of their own: packed documents, a long prefix,
// blocks of 64, and a tree of drafts.
TEST_F(AttentionCudaTest, MasksOfEachKind) {
  for (const int head_dim : {64, 128, 256}) {
    SCOPED_TRACE(::testing::Message() << "head_dim " << head_dim);
    std::mt19937 rng(7);
    const std::vector<SequenceShape> shapes = {
        {1500, 1500}, {700, 900}, {1100, 1100}, {24, 1000}};
    std::vector<TestMask> masks(4);
    masks[0].Documents(rng, 1500, 200);
    masks[1].Prefix(800);
    masks[2].Blocks(rng, 1100, 128, 64, 30);
    masks[3].Blocks(rng, 1000, 1, 1, 95);
    for (const bool causal : {true, false}) {
      AttentionDesc desc = Desc(8, 2, head_dim, DType::kBF16);
      desc.causal = causal;
      AttentionProblem(desc, shapes, 16, 7, masks).Check(*gpu_);
    }
  }
}

TEST_F(AttentionCudaTest, LargeScoresDoNotOverflow) {
  AttentionDesc desc = Desc(2, 1, 128, DType::kF16);
  desc.scale = 20.0f;
  AttentionProblem(desc, {{3, 150}, {100, 350}}, 16, 1).Check(*gpu_);
}

TEST_F(AttentionCudaTest, LongContexts) {
  AttentionProblem(Desc(16, 2, 128, DType::kF16), {{1, 131072}}, 16, 1)
      .Check(*gpu_);
  AttentionProblem(Desc(8, 8, 64, DType::kBF16),
                   {{1, 20000}, {1, 50000}, {1, 13}}, 32, 2)
      .Check(*gpu_);
  AttentionProblem(Desc(4, 1, 128, DType::kBF16), {{70, 30000}, {1, 9000}}, 64,
                   3)
      .Check(*gpu_);
}

// Two groups, rests from one key to many, and some of no group.
std::vector<SequenceShape> Sharing() {
  std::vector<SequenceShape> shapes = {{1, 2000}, {1, 300}, {1, 1500}};
  for (int i = 0; i < 9; ++i) {
    shapes.push_back({1, 1281 + (i < 4 ? i : 111 * i), 0, 1280});
    shapes.push_back({i % 4 == 3 ? 3 : 1, 1029 + 40 * i, 2, 1024});
  }
  shapes.push_back({70, 1400, 0, 1280});  // may be tiles
  shapes.push_back({1, 900, 0, 192});
  shapes.push_back({0, 1400, 0, 1280});
  return shapes;
}

TEST_F(AttentionCudaTest, SharedKeysOverHeadDimsAndTypes) {
  if (gpu_->info.sm < 90) GTEST_SKIP() << "needs compute capability 9.0";
  unsigned seed = 300;
  for (const int head_dim : {64, 80, 96, 128, 192, 256}) {
    for (const DType dtype : {DType::kBF16, DType::kF16}) {
      SCOPED_TRACE(::testing::Message()
                   << "head_dim " << head_dim << " " << DTypeName(dtype));
      AttentionDesc desc = Desc(8, 2, head_dim, dtype);
      if (seed % 3 == 1) desc.softcap = 20.0f;
      AttentionProblem problem(desc, Sharing(), seed % 4 < 2 ? 16 : 64, seed);
      problem.set_sinks(seed % 3 == 2);
      problem.set_grid(seed % 5 == 0 ? 0 : 20);
      const AttentionRow& row = AttentionTable()[0];
      problem.ComputeReference(row, *gpu_);
      problem.Compare(problem.Run(row, *gpu_, problem.sequences(), true, 3),
                      true);
      EXPECT_TRUE(seed % 5 == 0 || problem.shared_items() > 0);
      ++seed;
    }
  }
}

TEST_F(AttentionCudaTest, SharedKeysOfAnyNumberOfSequences) {
  if (gpu_->info.sm < 90) GTEST_SKIP() << "needs compute capability 9.0";
  unsigned seed = 400;
  const AttentionRow& row = AttentionTable()[0];
  for (const int group : {1, 3, 4, 7, 8, 12, 16, 20, 71}) {
    for (const int count : {2, 3, 17, 64}) {
      if (count * group > 600) continue;
      SCOPED_TRACE(::testing::Message()
                   << "group " << group << ", " << count << " sequences");
      const int shared = count < 4 ? 4096 : 1024;
      std::vector<SequenceShape> shapes = {{1, 40}, {1, shared + 76}};
      for (int i = 1; i < count; ++i) {
        shapes.push_back({1, shared + 1 + 7 * i, 1, shared});
      }
      AttentionProblem problem(
          Desc(2 * group, 2, group % 2 == 0 ? 128 : 64, DType::kBF16), shapes,
          16, seed++);
      problem.set_grid(count < 4 ? 6 : 20);
      problem.ComputeReference(row, *gpu_);
      problem.Compare(problem.Run(row, *gpu_, problem.sequences()), true);
      EXPECT_GT(problem.shared_items(), 0);
    }
  }
}

// Shared keys in many chunks, so that those fold in groups; and own keys too.
TEST_F(AttentionCudaTest, LongSharedKeys) {
  if (gpu_->info.sm < 90) GTEST_SKIP() << "needs compute capability 9.0";
  const AttentionRow& row = AttentionTable()[0];
  for (const auto& [heads, kv_heads] : {std::pair{4, 1}, {16, 2}}) {
    for (const int own : {100, 9000}) {
      std::vector<SequenceShape> shapes = {{1, 20000 + own}};
      for (int i = 1; i < 6; ++i) {
        shapes.push_back({1, 20000 + own + 100 * i, 0, 20000});
      }
      AttentionProblem problem(Desc(heads, kv_heads, 128, DType::kBF16), shapes,
                               16, 8);
      problem.ComputeReference(row, *gpu_);
      problem.Compare(problem.Run(row, *gpu_, problem.sequences(), true, 2),
                      true);
      EXPECT_GT(problem.shared_items(), 16);
    }
  }
}

// Bidirectional queries share as well; windows and caches of bytes do not.
TEST_F(AttentionCudaTest, SharingWithOtherFeatures) {
  if (gpu_->info.sm < 90) GTEST_SKIP() << "needs compute capability 9.0";
  const AttentionRow& row = AttentionTable()[0];
  for (int what = 0; what < 3; ++what) {
    AttentionDesc desc =
        Desc(8, 2, 128, DType::kBF16, what == 2 ? DType::kI8 : DType::kBF16);
    desc.causal = what != 0;
    if (what == 1) desc.window = 1100;
    std::vector<SequenceShape> shapes = Sharing();
    // Blocks that a window has passed are gone, for all.
    if (what == 1) shapes.erase(shapes.begin() + 3, shapes.end());
    AttentionProblem problem(desc, shapes, 16, 9);
    problem.set_grid(20);
    problem.ComputeReference(row, *gpu_);
    problem.Compare(problem.Run(row, *gpu_, problem.sequences(), true, 2),
                    true);
    EXPECT_EQ(problem.shared_items() > 0, what == 0);
  }
}

// The same bits each time and in graphs; and whoever shares nothing has the
// bits that it has alone.
TEST_F(AttentionCudaTest, SharingChangesNothingForOthers) {
  if (gpu_->info.sm < 90) GTEST_SKIP() << "needs compute capability 9.0";
  const std::vector<SequenceShape> shapes = Sharing();
  AttentionProblem problem(Desc(8, 2, 128, DType::kBF16), shapes, 16, 10);
  std::vector<AttentionSequence> decode;
  for (const AttentionSequence& sequence : problem.sequences()) {
    if (sequence.q_len <= 1) decode.push_back(sequence);
  }
  const AttentionRow& row = AttentionTable()[0];
  problem.set_grid(20);
  const TestMatrix once = problem.Run(row, *gpu_, decode);
  ASSERT_GT(problem.shared_items(), 0);
  const TestMatrix again = problem.Run(row, *gpu_, decode, true, 5);
  const TestMatrix graph = problem.Run(row, *gpu_, decode, true, 1, true);
  for (const AttentionSequence& sequence : decode) {
    if (sequence.q_len == 0) continue;
    EXPECT_EQ(once.RowBits(sequence.q_begin), again.RowBits(sequence.q_begin));
    EXPECT_EQ(once.RowBits(sequence.q_begin), graph.RowBits(sequence.q_begin));
  }
  for (const size_t s : {size_t{1}, shapes.size() - 2}) {
    const auto r = problem.sequences()[s].q_begin;
    const TestMatrix alone =
        problem.Run(row, *gpu_, {&problem.sequences()[s], 1});
    EXPECT_EQ(once.RowBits(r), alone.RowBits(r)) << s;
  }
}

// Many items a CTA, whole and cut, of few rows.
TEST_F(AttentionCudaTest, LargeBatches) {
  std::mt19937 rng(3);
  for (const auto& [group, head_dim] :
       {std::pair{1, 64}, {1, 256}, {3, 128}, {8, 64}, {8, 256}}) {
    std::vector<SequenceShape> shapes;
    for (int i = 0; i < 150; ++i) {
      const int q_len = rng() % 8 == 0 ? 2 : 1;
      shapes.push_back({q_len, q_len + static_cast<int>(rng() % 400)});
    }
    SCOPED_TRACE(::testing::Message()
                 << "group " << group << " head_dim " << head_dim);
    AttentionProblem problem(Desc(group, 1, head_dim, DType::kBF16), shapes, 16,
                             9);
    problem.set_grid(33);
    problem.Check(*gpu_);
  }
}

// The same bits alone and in any batch; and where keys are cut anywhere, still
// the right numbers. Graph plans are no different.
TEST_F(AttentionCudaTest, AQueryDependsOnNothingBesideItsSequence) {
  std::vector<SequenceShape> shapes;
  std::mt19937 rng(7);
  for (int i = 0; i < 16; ++i) {
    shapes.push_back({1, static_cast<int>(1 + rng() % 4000)});
  }
  shapes.push_back({1, 20000});
  for (const auto& [kv, head_dim] : {std::pair{DType::kBF16, 128},
                                     {DType::kI8, 128},
                                     {DType::kF8E4M3, 128},
                                     {DType::kF32, 128},
                                     {DType::kBF16, 256},
                                     {DType::kI8, 256},
                                     {DType::kF8E4M3, 256}}) {
    SCOPED_TRACE(::testing::Message() << DTypeName(kv) << " " << head_dim);
    for (const int window : {0, 700}) {
      AttentionDesc desc =
          Desc(8, 2, head_dim, kv == DType::kF32 ? kv : DType::kBF16, kv);
      desc.window = window;
      AttentionProblem problem(desc, shapes, 16, 5);
      ForEachCudaRow(
          AttentionTable(), desc, *gpu_, [&](const AttentionRow& row) {
            problem.ComputeReference(row, *gpu_);
            const bool rounds = row.name != "cuda_plain";
            const TestMatrix whole =
                problem.Run(row, *gpu_, problem.sequences(), true, 3);
            problem.Compare(whole, rounds);
            problem.Compare(
                problem.Run(row, *gpu_, problem.sequences(), false, 3), rounds);
            const TestMatrix graph =
                problem.Run(row, *gpu_, problem.sequences(), true, 1, true);
            for (size_t s = 0; s < shapes.size(); s += 5) {
              const TestMatrix alone =
                  problem.Run(row, *gpu_, {&problem.sequences()[s], 1});
              const auto r = static_cast<int64_t>(s);
              ASSERT_EQ(whole.RowBits(r), alone.RowBits(r)) << "sequence " << s;
              ASSERT_EQ(whole.RowBits(r), graph.RowBits(r)) << "sequence " << s;
            }
          });
    }
  }
}

}  // namespace
}  // namespace inlay
#endif  // INLAY_HAS_CUDA
