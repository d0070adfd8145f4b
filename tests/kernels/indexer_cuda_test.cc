// The CUDA rows of indexer against a sort of all scores, and CUDA rows of
// attention over selected keys: a float64 softmax, and the bits of dense
// attention where everything is selected.
#if INLAY_HAS_CUDA

#include <algorithm>
#include <vector>

#include "kernels/attention/attention_plan.h"
#include "tests/support/cuda_test_util.h"
#include "tests/support/indexer_util.h"

namespace inlay {
namespace {

using ::inlay::testing::CudaBytes;
using ::inlay::testing::ForEachCudaRow;
using ::inlay::testing::IndexerProblem;
using ::inlay::testing::LatentDesc;
using ::inlay::testing::SelectedProblem;
using ::inlay::testing::TestCuda;
using ::inlay::testing::TestMatrix;
using ::inlay::testing::UnitOf;

constexpr DType kFloats[] = {DType::kF32, DType::kF16, DType::kBF16};
constexpr DType kKvTypes[] = {DType::kF32, DType::kF16,    DType::kBF16,
                              DType::kI8,  DType::kF8E4M3, DType::kKvQ4};

const std::vector<IndexerProblem::Shape> kRagged = {
    {1, 1}, {1, 137}, {5, 5}, {7, 170}, {1, 64}, {0, 12}, {33, 97}, {1, 65}};

IndexerDesc Desc(int heads, int head_dim, int top_k, DType activation,
                 DType kv) {
  IndexerDesc desc;
  desc.num_heads = heads;
  desc.head_dim = head_dim;
  desc.top_k = top_k;
  desc.max_keys = 40000;
  desc.activation = activation;
  desc.kv = kv;
  return desc;
}

// Of `sequences`, some or all of the problem's; what is not theirs is -1.
std::vector<int32_t> RunRow(const IndexerRow& row, IndexerProblem& problem,
                            const TestCuda& cuda,
                            absl::Span<const AttentionSequence> sequences) {
  std::vector<int32_t> selection = problem.NewSelection();
  IndexerParams params = problem.Params(nullptr);
  const int64_t rows = params.q.rows();
  const int block_size = params.kv.block_size;
  int64_t blocks = 0;
  for (const AttentionSequence& sequence : sequences) {
    blocks += (sequence.kv_len + block_size - 1) / block_size;
  }
  const CudaBytes q(params.q.data, params.q.bytes());
  const CudaBytes weights(params.weights.data, params.weights.bytes());
  const CudaBytes cache(problem.storage());
  const CudaBytes selected(selection);
  const CudaBytes workspace(row.workspace_bytes(problem.desc(), rows));
  std::vector<std::byte> image(IndexPlanBytes(rows, blocks));
  const CudaBytes device_image(image.size());
  const IndexPlan plan = BuildIndexPlan(
      sequences, block_size, rows, image.data(), device_image.as<std::byte>());
  EXPECT_EQ(cudaMemcpy(device_image.as<void>(), image.data(), plan.used_bytes,
                       cudaMemcpyHostToDevice),
            cudaSuccess);
  params.q.data = q.as<std::byte>();
  params.weights.data = weights.as<std::byte>();
  params.kv.base = cache.as<std::byte>();
  params.selection = selected.as<int32_t>();
  params.workspace = workspace.as<void>();
  params.plan = &plan;
  const absl::Status status = row.run(problem.desc(), params, *cuda.stream);
  EXPECT_TRUE(status.ok()) << status;
  selected.Download(selection.data());
  return selection;
}

void Check(IndexerProblem& problem, const TestCuda& cuda) {
  ForEachCudaRow(
      IndexerTable(), problem.desc(), cuda, [&](const IndexerRow& row) {
        problem.Expect(RunRow(row, problem, cuda, problem.Sequences()));
      });
}

TEST(IndexerCudaTest, WhatIsToComeIsBehindWhatIsSelected) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  for (const DType type : {DType::kF32, DType::kBF16}) {
    for (const int key_tokens : {2, 8}) {
      SCOPED_TRACE(::testing::Message()
                   << DTypeName(type) << " " << key_tokens);
      IndexerDesc desc = Desc(3, 32, 3, type, type);
      desc.key_tokens = key_tokens;
      const std::vector<IndexerProblem::Shape> shapes = {
          {1, 1}, {40, 90}, {5, 5}, {1, 64}};
      IndexerProblem without(desc, shapes, 16, 7);
      desc.adds_partial = true;
      IndexerProblem with(desc, shapes, 16, 7);
      ForEachCudaRow(IndexerTable(), desc, cuda, [&](const IndexerRow& row) {
        const auto all = RunRow(row, without, cuda, without.Sequences());
        with.ExpectPartial(RunRow(row, with, cuda, with.Sequences()), all);
      });
    }
  }
}

TEST(IndexerCudaTest, SelectsTheBestOverSizesAndTypes) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  unsigned seed = 1;
  for (const int head_dim : {32, 64, 128, 8, 256}) {
    for (const DType activation : kFloats) {
      for (const DType kv : kKvTypes) {
        for (const int top_k : {1, 40}) {
          const int heads = 1 + static_cast<int>(seed * 5 % 67);
          SCOPED_TRACE(::testing::Message()
                       << heads << " heads of " << head_dim << " "
                       << DTypeName(activation) << " " << DTypeName(kv)
                       << " top_k " << top_k << " seed " << seed);
          IndexerProblem problem(Desc(heads, head_dim, top_k, activation, kv),
                                 kRagged, seed % 2 == 0 ? 16 : 32, seed);
          Check(problem, cuda);
          ++seed;
        }
      }
    }
  }
}

// Integers so small that every sum is exact: scores tie often.
TEST(IndexerCudaTest, OfEqualScoresTheLowerPositionIsSelected) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  for (const DType type : kFloats) {
    for (unsigned seed = 1; seed <= 8; ++seed) {
      SCOPED_TRACE(::testing::Message() << DTypeName(type) << " seed " << seed);
      IndexerProblem problem(Desc(4, 32, 30, type, type), kRagged, 16, seed);
      problem.UseIntegers(2);
      Check(problem, cuda);
      EXPECT_GT(problem.ties(), 10);
    }
  }
}

// Long sequences, in the best order, the worst, and nothing but ties; more rows
// than there is room for at once.
TEST(IndexerCudaTest, ManyKeysAndRows) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  for (const int step : {1, -1, 0}) {
    SCOPED_TRACE(step);
    IndexerProblem problem(Desc(1, 8, 2048, DType::kF32, DType::kF32),
                           {{3, 33000}, {1, 5000}}, 16, 1);
    problem.UseRamp(step);
    Check(problem, cuda);
  }
  IndexerProblem most(Desc(2, 8, kMaxIndexTopK, DType::kF32, DType::kF32),
                      {{2, kMaxIndexTopK + 3000}}, 16, 1);
  Check(most, cuda);
  IndexerDesc desc = Desc(4, 32, 20, DType::kF32, DType::kBF16);
  desc.max_keys = int64_t{3} << 20;  // 12 MB a row
  IndexerProblem turns(desc, kRagged, 16, 2);
  Check(turns, cuda);
}

// A query selects the same keys alone, in any chunk and in any batch.
TEST(IndexerCudaTest, AQueryDependsOnNothingBesideItsSequence) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  for (const DType type : kFloats) {
    IndexerProblem problem(Desc(37, 64, 20, type, type), {{150, 150}, {9, 80}},
                           16, 5);
    ForEachCudaRow(
        IndexerTable(), problem.desc(), cuda, [&](const IndexerRow& row) {
          const auto all = problem.Sequences();
          const AttentionSequence first = all[0];
          const auto whole = RunRow(row, problem, cuda, all);
          for (const int chunk : {1, 16, 67}) {
            for (int begin = 0; begin < 150; begin += chunk) {
              AttentionSequence part = first;
              part.q_begin = begin;
              part.q_len = std::min(chunk, 150 - begin);
              part.kv_len = begin + part.q_len;
              const auto got =
                  RunRow(row, problem, cuda, absl::MakeConstSpan(&part, 1));
              const auto from = int64_t{begin} * 20;
              EXPECT_TRUE(std::equal(whole.begin() + from,
                                     whole.begin() + from + part.q_len * 20,
                                     got.begin() + from))
                  << begin << " in chunks of " << chunk;
              // Rows of nobody are left alone.
              EXPECT_EQ(got.back(), -1);
            }
          }
        });
  }
}

// Of `sequence`, queries of which see what `selection` says or, where that is
// empty, everything.
TestMatrix Attend(const AttentionRow& row, const AttentionDesc& desc,
                  SelectedProblem& problem, const TestCuda& cuda,
                  const std::vector<int32_t>& selection, bool whole_rows) {
  TestMatrix out = problem.NewOutput();
  AttentionParams params = problem.Params(out);
  std::vector<AttentionSequence> sequences(params.sequences.begin(),
                                           params.sequences.end());
  AttentionPlanShape shape = MakeAttentionPlanShape(
      row, desc, params.kv.block_size, cuda.stream->num_sms());
  shape.whole_rows = whole_rows;
  if (desc.selects > 0) {
    const int32_t tokens = sequences[0].q_len;
    std::vector<AttentionSequence> queries(static_cast<size_t>(tokens));
    EXPECT_EQ(SplitIntoQueries(sequences, desc.selects, queries.data()),
              tokens);
    sequences = queries;
  }
  const AttentionPlanLimits limits = AttentionPlanLimitsOf(shape, sequences);
  std::vector<std::byte> image(LayOutAttentionPlan(shape, limits).bytes + 64);
  const size_t skip = -reinterpret_cast<uintptr_t>(image.data()) % 64;
  AttentionPlan plan =
      BuildAttentionPlan(shape, limits, sequences, image.data() + skip);
  const CudaBytes device_plan(image.data() + skip, plan.used_bytes);
  const CudaBytes q(params.q.data, params.q.bytes());
  const CudaBytes cache(problem.storage());
  const CudaBytes result(params.out.data, params.out.bytes());
  const CudaBytes selected(selection.empty() ? std::vector<int32_t>{0}
                                             : selection);
  const CudaBytes workspace(
      AttentionWorkspaceBytes(shape, limits.sequences, limits.tokens) + 64);
  plan.device = device_plan.as<std::byte>();
  params.q.data = q.as<std::byte>();
  params.kv.base = cache.as<std::byte>();
  params.out.data = result.as<std::byte>();
  params.workspace = workspace.as<void>();
  params.plan = &plan;
  if (desc.selects > 0) params.selection = selected.as<int32_t>();
  const absl::Status status = row.run(desc, params, *cuda.stream);
  EXPECT_TRUE(status.ok()) << status;
  result.Download(out.view().data);
  return out;
}

TEST(SelectedAttentionCudaTest, MatchesFloat64) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  constexpr int kDims[][2] = {{576, 512}, {48, 32}, {128, 64}};
  for (const auto& [head_dim, value_dim] : kDims) {
    for (const DType activation : kFloats) {
      for (const DType kv : kKvTypes) {
        for (const int selects : {1, 70, 700}) {
          SCOPED_TRACE(::testing::Message()
                       << head_dim << " " << DTypeName(activation) << " "
                       << DTypeName(kv) << " of " << selects);
          AttentionDesc desc =
              LatentDesc(head_dim > 500 ? 128 : 19, head_dim, value_dim, kv);
          desc.activation = activation;
          desc.selects = selects;
          SelectedProblem problem(desc, 5, 1000, 32);
          const std::vector<int32_t> selection = problem.DrawAll();
          ForEachCudaRow(
              AttentionTable(), desc, cuda, [&](const AttentionRow& row) {
                for (const bool whole_rows : {false, true}) {
                  problem.Expect(
                      Attend(row, desc, problem, cuda, selection, whole_rows),
                      activation == DType::kF32 ? 0.0 : UnitOf(activation));
                }
              });
        }
      }
    }
  }
}

// A query alone whose selection is everything has the bits of dense attention.
TEST(SelectedAttentionCudaTest, AllKeysAreDenseAttention) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  for (const DType type : kFloats) {
    for (const int keys : {1, 63, 300, 5000}) {
      SCOPED_TRACE(::testing::Message() << DTypeName(type) << " " << keys);
      AttentionDesc dense = LatentDesc(128, 576, 512, type);
      dense.activation = type;
      AttentionDesc desc = dense;
      desc.selects = 6000;
      SelectedProblem problem(desc, 1, keys, 16);
      const std::vector<int32_t> selection = problem.DrawAll();
      ForEachCudaRow(AttentionTable(), desc, cuda,
                     [&](const AttentionRow& row) {
                       const TestMatrix want =
                           Attend(row, dense, problem, cuda, {}, false);
                       const TestMatrix got =
                           Attend(row, desc, problem, cuda, selection, false);
                       EXPECT_EQ(want.RowBits(0), got.RowBits(0));
                     });
    }
  }
}

}  // namespace
}  // namespace inlay

#endif  // INLAY_HAS_CUDA
