// The CUDA rows of block_summary and block_selection: the bytes of the CPU's
// summaries, selections against a sort of all scores, graphs.
#if INLAY_HAS_CUDA

#include <algorithm>
#include <limits>
#include <vector>

#include "tests/support/block_selection_util.h"
#include "tests/support/cuda_test_util.h"

namespace inlay {
namespace {

using ::inlay::testing::BlockDesc;
using ::inlay::testing::BlockProblem;
using ::inlay::testing::CudaBytes;
using ::inlay::testing::ForEachCudaRow;
using ::inlay::testing::kBlockMethods;
using ::inlay::testing::TestCpu;
using ::inlay::testing::TestCuda;

constexpr DType kFloats[] = {DType::kF32, DType::kF16, DType::kBF16};
constexpr DType kKvTypes[] = {DType::kF32, DType::kF16,    DType::kBF16,
                              DType::kI8,  DType::kF8E4M3, DType::kKvQ4};

const std::vector<BlockProblem::Shape> kRagged = {
    {1, 1}, {1, 137}, {5, 5}, {7, 170}, {1, 64}, {0, 12}, {33, 97}, {1, 465}};

BlockSelectionDesc Desc(BlockMethod method, int heads, int kv_heads,
                        int head_dim, int num_blocks, DType activation) {
  BlockSelectionDesc desc =
      BlockDesc(method, heads, kv_heads, head_dim, num_blocks);
  desc.activation = activation;
  return desc;
}

void SummariseOnCpu(BlockProblem& problem, const std::vector<int64_t>& slots) {
  TestCpu cpu(2);
  const BlockSummaryDesc desc = problem.summary_desc();
  const auto row = Select("block_summary", BlockSummaryTable(), desc,
                          DeviceInfo{DeviceKind::kCpu, "cpu"});
  ASSERT_TRUE(row.ok()) << row.status();
  std::vector<int64_t> there;
  for (const int64_t slot : slots) {
    if (slot >= 0) there.push_back(slot);
  }
  ASSERT_TRUE(
      (*row)->run(desc, problem.SummaryParams(there), *cpu.stream).ok());
}

// The whole cache afterwards: what no summary is stays as it was.
std::vector<std::byte> SummarisedOnCuda(const BlockSummaryRow& row,
                                        BlockProblem& problem,
                                        const TestCuda& cuda,
                                        const std::vector<int64_t>& slots) {
  const CudaBytes cache(problem.storage());
  const CudaBytes device_slots(slots);
  BlockSummaryParams params = problem.SummaryParams(slots);
  params.keys.base = cache.as<std::byte>();
  params.summaries.base = cache.as<std::byte>();
  params.slots = device_slots.as<int64_t>();
  const absl::Status status =
      row.run(problem.summary_desc(), params, *cuda.stream);
  EXPECT_TRUE(status.ok()) << status;
  std::vector<std::byte> storage(problem.storage().size());
  cache.Download(storage.data());
  return storage;
}

void ExpectTheCpusSummaries(BlockProblem& problem, const TestCuda& cuda) {
  // Rows of nobody among those of the step.
  std::vector<int64_t> slots = problem.Slots();
  for (size_t at = 3; at < slots.size(); at += 40) {
    slots.insert(slots.begin() + static_cast<ptrdiff_t>(at), -1);
  }
  ForEachCudaRow(BlockSummaryTable(), problem.summary_desc(), cuda,
                 [&](const BlockSummaryRow& row) {
                   const auto got = SummarisedOnCuda(row, problem, cuda, slots);
                   BlockProblem on_cpu = problem;
                   SummariseOnCpu(on_cpu, slots);
                   EXPECT_TRUE(got == on_cpu.storage());
                   EXPECT_FALSE(got == problem.storage());
                 });
}

TEST(BlockSummaryCudaTest, TheBytesOfTheCpu) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  unsigned seed = 1;
  for (const BlockMethod method : kBlockMethods) {
    for (const int head_dim : {8, 64, 80, 128, 200, 256, 512}) {
      for (const DType kv : kKvTypes) {
        SCOPED_TRACE(::testing::Message()
                     << static_cast<int>(method) << " of " << head_dim << " "
                     << DTypeName(kv) << " seed " << seed);
        BlockProblem problem(Desc(method, 3, 3, head_dim, 4, DType::kF32), kv,
                             {{1, 70}, {1, 16}, {1, 15}, {1, 200}},
                             seed % 2 == 0 ? 16 : 64, seed);
        ExpectTheCpusSummaries(problem, cuda);
        ++seed;
      }
    }
  }
}

// Many equal numbers, zeros of both signs, clusters that lose their keys; and
// for bounds NaN and infinities.
TEST(BlockSummaryCudaTest, NumbersThatTieOrAreNone) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  for (const BlockMethod method : kBlockMethods) {
    for (unsigned seed = 1; seed <= 4; ++seed) {
      SCOPED_TRACE(::testing::Message()
                   << static_cast<int>(method) << " seed " << seed);
      BlockProblem problem(Desc(method, 2, 2, 16, 4, DType::kF32), DType::kF32,
                           {{1, 640}}, 16, seed);
      problem.UseIntegers(1);
      const KvLayerView keys = problem.Keys();
      const std::vector<int64_t> slots = problem.Slots();
      const auto block_of = [&](size_t block) {
        return slots[block * kSelectBlock] / keys.block_size;
      };
      std::vector<float> row(16, 0.25f);
      for (int t = 0; t < kSelectBlock; ++t) {  // one key, sixteen times
        EncodeKvRow(DType::kF32, row.data(), 16,
                    keys.KeyRow(block_of(0), 0, t));
      }
      row.assign(16, -0.0f);
      for (int t = 0; t < kSelectBlock; t += 2) {
        EncodeKvRow(DType::kF32, row.data(), 16,
                    keys.KeyRow(block_of(1), 1, t));
      }
      if (method == BlockMethod::kBounds) {
        row[3] = std::numeric_limits<float>::quiet_NaN();
        row[5] = std::numeric_limits<float>::infinity();
        row[6] = -row[5];
        row[7] = 1e-42f;
        for (const int t : {0, 7, 15}) {
          EncodeKvRow(
              DType::kF32, row.data(), 16,
              keys.KeyRow(block_of(static_cast<size_t>(2 + t % 4)), 0, t));
        }
      }
      ExpectTheCpusSummaries(problem, cuda);
    }
  }
}

// A step of which no block's last slot is part writes nothing.
TEST(BlockSummaryCudaTest, BlocksThatAreNotWholeHaveNone) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  for (const BlockMethod method : kBlockMethods) {
    BlockProblem problem(Desc(method, 2, 2, 64, 4, DType::kF32), DType::kBF16,
                         {{1, 100}}, 32, 3);
    std::vector<int64_t> slots;
    for (const int64_t slot : problem.Slots()) {
      slots.push_back(slot % kSelectBlock == kSelectBlock - 1 ? -1 : slot);
    }
    ForEachCudaRow(BlockSummaryTable(), problem.summary_desc(), cuda,
                   [&](const BlockSummaryRow& row) {
                     EXPECT_TRUE(SummarisedOnCuda(row, problem, cuda, slots) ==
                                 problem.storage());
                   });
  }
}

// A problem on the device: what a row gets, but for the plan.
class OnDevice {
 public:
  OnDevice(const BlockSelectionRow& row, BlockProblem& problem, int64_t blocks)
      : problem_(problem),
        params_(problem.Params(nullptr)),
        q_(params_.q.data, params_.q.bytes()),
        cache_(problem.storage()),
        selected_(problem.NewSelection()),
        workspace_(row.workspace_bytes(problem.desc(), params_.q.rows()) +
                   kGuard),
        image_(IndexPlanBytes(params_.q.rows(), blocks)),
        device_image_(image_.size()),
        row_(row) {
    params_.q.data = q_.as<std::byte>();
    params_.summaries.base = cache_.as<std::byte>();
    params_.selection = selected_.as<int32_t>();
    params_.workspace = workspace_.as<void>();
    params_.plan = &plan_;
  }

  // The plan of `sequences`, some or all of the problem's.
  void Plan(absl::Span<const AttentionSequence> sequences) {
    plan_ = BuildIndexPlan(sequences, params_.summaries.block_size,
                           params_.q.rows(), image_.data(),
                           device_image_.as<std::byte>());
    EXPECT_EQ(cudaMemcpy(device_image_.as<void>(), image_.data(),
                         plan_.used_bytes, cudaMemcpyHostToDevice),
              cudaSuccess);
    const std::vector<int32_t> none = problem_.NewSelection();
    EXPECT_EQ(cudaMemcpy(selected_.as<void>(), none.data(),
                         none.size() * sizeof(int32_t), cudaMemcpyHostToDevice),
              cudaSuccess);
  }
  absl::Status Run(const TestCuda& cuda) {
    return row_.run(problem_.desc(), params_, *cuda.stream);
  }
  // What is not selected is -1.
  std::vector<int32_t> Selection() const {
    std::vector<int32_t> selection = problem_.NewSelection();
    selected_.Download(selection.data());
    return selection;
  }
  void ExpectTheWorkspaceIsKept() const {
    const size_t bytes =
        row_.workspace_bytes(problem_.desc(), params_.q.rows());
    std::vector<std::byte> all(bytes + kGuard);
    workspace_.Download(all.data());
    EXPECT_TRUE(std::all_of(all.begin() + static_cast<ptrdiff_t>(bytes),
                            all.end(),
                            [](std::byte x) { return x == std::byte{0xff}; }));
  }

 private:
  static constexpr size_t kGuard = 256;

  BlockProblem& problem_;
  BlockSelectionParams params_;
  CudaBytes q_;
  CudaBytes cache_;
  CudaBytes selected_;
  CudaBytes workspace_;
  std::vector<std::byte> image_;
  CudaBytes device_image_;
  IndexPlan plan_;
  const BlockSelectionRow& row_;
};

int64_t BlocksOf(absl::Span<const AttentionSequence> sequences, int size) {
  int64_t blocks = 0;
  for (const AttentionSequence& sequence : sequences) {
    blocks += (sequence.kv_len + size - 1) / size;
  }
  return blocks;
}

std::vector<int32_t> RunRow(const BlockSelectionRow& row, BlockProblem& problem,
                            const TestCuda& cuda,
                            absl::Span<const AttentionSequence> sequences) {
  OnDevice device(row, problem, BlocksOf(sequences, problem.Keys().block_size));
  device.Plan(sequences);
  const absl::Status status = device.Run(cuda);
  EXPECT_TRUE(status.ok()) << status;
  device.ExpectTheWorkspaceIsKept();
  return device.Selection();
}

void Check(BlockProblem& problem, const TestCuda& cuda) {
  SummariseOnCpu(problem, problem.Slots());
  ForEachCudaRow(
      BlockSelectionTable(), problem.desc(), cuda,
      [&](const BlockSelectionRow& row) {
        problem.Expect(RunRow(row, problem, cuda, problem.Sequences()));
      });
}

TEST(BlockSelectionCudaTest, SelectsTheBestOverSizesAndTypes) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  unsigned seed = 1;
  for (const BlockMethod method : kBlockMethods) {
    for (const int head_dim : {8, 32, 64, 80, 128, 256, 512}) {
      for (const DType activation : kFloats) {
        for (const int num_blocks : {4, 9}) {
          const int group = 1 + static_cast<int>(seed * 5 % 11);
          const int kv_heads = 1 + static_cast<int>(seed % 3);
          const DType kv = kKvTypes[seed % 6];
          SCOPED_TRACE(::testing::Message()
                       << static_cast<int>(method) << ": " << kv_heads << " x "
                       << group << " heads of " << head_dim << " "
                       << DTypeName(activation) << " " << DTypeName(kv) << ", "
                       << num_blocks << " blocks, seed " << seed);
          BlockProblem problem(Desc(method, kv_heads * group, kv_heads,
                                    head_dim, num_blocks, activation),
                               kv, kRagged, seed % 2 == 0 ? 16 : 64, seed);
          Check(problem, cuda);
          ++seed;
        }
      }
    }
  }
}

// Integers so small that every sum is exact: scores tie often.
TEST(BlockSelectionCudaTest, OfEqualScoresTheLowerPositionIsSelected) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  for (const BlockMethod method : {BlockMethod::kBounds, BlockMethod::kLsh}) {
    for (const DType type : kFloats) {
      int ties = 0;
      for (unsigned seed = 1; seed <= 8; ++seed) {
        SCOPED_TRACE(::testing::Message() << static_cast<int>(method) << " "
                                          << DTypeName(type) << " " << seed);
        BlockProblem problem(Desc(method, 4, 2, 16, 8, type), type, kRagged, 16,
                             seed);
        problem.UseIntegers(2);
        Check(problem, cuda);
        ties += problem.ties();
      }
      EXPECT_GT(ties, 3);
    }
  }
}

// More blocks than a CTA has registers for; more rows than there is room for at
// once; as many selected as there may be; groups as large as they may be.
TEST(BlockSelectionCudaTest, ManyBlocksRowsAndHeads) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  for (const BlockMethod method : kBlockMethods) {
    SCOPED_TRACE(static_cast<int>(method));
    BlockSelectionDesc desc = Desc(method, 2, 1, 8, 128, DType::kF32);
    desc.max_keys = 200000;
    BlockProblem blocks(desc, DType::kBF16, {{2, 150007}, {1, 40000}}, 64, 1);
    Check(blocks, cuda);
    desc.num_blocks = kMaxSelectedBlocks;
    BlockProblem most(desc, DType::kBF16, {{1, 150007}}, 16, 2);
    Check(most, cuda);
    desc = Desc(method, 4, 2, 32, 6, DType::kBF16);
    desc.max_keys = int64_t{3} << 26;  // 100 MB a row
    BlockProblem rows(desc, DType::kBF16, kRagged, 16, 3);
    Check(rows, cuda);
    BlockProblem heads(Desc(method, kMaxSelectingGroup, 1, 64, 6, DType::kF16),
                       DType::kF16, {{2, 300}}, 16, 4);
    Check(heads, cuda);
  }
}

// A query selects the same blocks alone, in any chunk and in any batch.
TEST(BlockSelectionCudaTest, AQueryDependsOnNothingBesideItsSequence) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  for (const BlockMethod method : kBlockMethods) {
    BlockProblem problem(Desc(method, 6, 2, 64, 5, DType::kBF16), DType::kBF16,
                         {{150, 150}, {9, 400}}, 16, 5);
    SummariseOnCpu(problem, problem.Slots());
    constexpr int kRow = 2 * 5;
    ForEachCudaRow(
        BlockSelectionTable(), problem.desc(), cuda,
        [&](const BlockSelectionRow& row) {
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
              const auto from = int64_t{begin} * kRow;
              EXPECT_TRUE(std::equal(whole.begin() + from,
                                     whole.begin() + from + part.q_len * kRow,
                                     got.begin() + from))
                  << begin << " in chunks of " << chunk;
              // Rows of nobody are left alone.
              EXPECT_EQ(got.back(), -1);
            }
          }
        });
  }
}

// What is captured once serves steps of other lengths and fewer sequences:
// nothing of them is read on the host.
TEST(BlockSelectionCudaTest, OneGraphForAllLengths) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  for (const BlockMethod method : kBlockMethods) {
    BlockProblem problem(Desc(method, 4, 2, 64, 6, DType::kBF16), DType::kBF16,
                         {{1, 500}, {1, 90}, {1, 1300}}, 16, 7);
    SummariseOnCpu(problem, problem.Slots());
    ForEachCudaRow(
        BlockSelectionTable(), problem.desc(), cuda,
        [&](const BlockSelectionRow& row) {
          const auto sequences = problem.Sequences();
          const std::vector<AttentionSequence> all(sequences.begin(),
                                                   sequences.end());
          OnDevice device(row, problem, BlocksOf(all, 16));
          device.Plan({});
          ASSERT_TRUE(device.Run(cuda).ok());
          EXPECT_EQ(device.Selection(), problem.NewSelection());
          cudaGraph_t graph;
          cudaGraphExec_t exec;
          ASSERT_EQ(cudaStreamBeginCapture(cuda.stream->handle(),
                                           cudaStreamCaptureModeThreadLocal),
                    cudaSuccess);
          ASSERT_TRUE(device.Run(cuda).ok());
          ASSERT_EQ(cudaStreamEndCapture(cuda.stream->handle(), &graph),
                    cudaSuccess);
          ASSERT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
          for (const int shorter : {0, 1, 77}) {
            for (const size_t count : {3, 1, 2}) {
              std::vector<AttentionSequence> some(
                  all.begin(), all.begin() + static_cast<ptrdiff_t>(count));
              for (AttentionSequence& sequence : some) {
                sequence.kv_len -= shorter;
              }
              device.Plan(some);
              ASSERT_EQ(cudaGraphLaunch(exec, cuda.stream->handle()),
                        cudaSuccess);
              const auto got = device.Selection();
              EXPECT_EQ(got, RunRow(row, problem, cuda, some))
                  << shorter << " less, " << count;
              EXPECT_NE(got[0], -1);
            }
          }
          cudaGraphExecDestroy(exec);
          cudaGraphDestroy(graph);
        });
  }
}

}  // namespace
}  // namespace inlay

#endif  // INLAY_HAS_CUDA
