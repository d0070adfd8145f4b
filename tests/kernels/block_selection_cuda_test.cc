// The CUDA rows of block_summary and block_selection: the bytes of the CPU's
// summaries, selections against a sort of all scores, graphs; and CUDA rows of
// attention over selected blocks against dense attention over the same keys.
#if INLAY_HAS_CUDA

#include <algorithm>
#include <limits>
#include <vector>

#include "kernels/attention/attention_plan.h"
#include "tests/support/block_selection_util.h"
#include "tests/support/cuda_test_util.h"

namespace inlay {
namespace {

using ::inlay::testing::BlockDesc;
using ::inlay::testing::BlockProblem;
using ::inlay::testing::CudaBytes;
using ::inlay::testing::ForEachCudaRow;
using ::inlay::testing::kBlockMethods;
using ::inlay::testing::kUnitF32;
using ::inlay::testing::TestCpu;
using ::inlay::testing::TestCuda;
using ::inlay::testing::TestMatrix;
using ::inlay::testing::UnitOf;

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

// Queries of one sequence, the blocks that each of them and each KV head sees,
// and the same keys as dense sequences of one query each.
class SelectedBlocks {
 public:
  SelectedBlocks(const AttentionDesc& desc, int queries, int length,
                 int block_size, unsigned seed)
      : desc_(desc),
        queries_(queries),
        start_(length - queries),
        rng_(seed),
        layout_({{2, 24}, {desc.num_kv_heads, desc.head_dim}}, desc.kv,
                block_size),
        gathered_layout_({{desc.num_kv_heads, desc.head_dim}}, desc.kv,
                         kSelectBlock),
        q_(desc.activation, queries, desc.num_heads * desc.head_dim, 8) {
    EXPECT_EQ(gathered_layout_.block_size(), kSelectBlock);
    q_.Randomize(rng_);
    std::vector<int32_t> table;
    for (int i = 0; i * block_size < length; ++i) table.push_back(i + 1);
    std::shuffle(table.begin(), table.end(), rng_);
    // What nobody wrote is NaN.
    storage_.resize(layout_.block_bytes() * (table.size() + 1),
                    std::byte{0xff});
    const KvLayerView view = layout_.LayerView(1, storage_.data());
    std::normal_distribution<float> normal;
    std::vector<float> row(static_cast<size_t>(desc.head_dim));
    for (int t = 0; t < length; ++t) {
      const int32_t block = table[static_cast<size_t>(t / block_size)];
      for (int head = 0; head < desc.num_kv_heads; ++head) {
        for (float& x : row) x = normal(rng_);
        EncodeKvRow(desc.kv, row.data(), desc.head_dim,
                    view.KeyRow(block, head, t % block_size));
        for (float& x : row) x = normal(rng_);
        EncodeKvRow(desc.kv, row.data(), desc.head_dim,
                    view.ValueRow(block, head, t % block_size));
      }
    }
    Draw(table, view);
  }

  const TestMatrix& q() const { return q_; }
  int queries() const { return queries_; }

  // `dense`: the gathered keys, by the same row.
  TestMatrix Run(const AttentionRow& row, const TestCuda& cuda, bool dense,
                 bool whole_rows, bool graph) {
    AttentionDesc desc = desc_;
    std::vector<AttentionSequence> sequences(static_cast<size_t>(queries_));
    const AttentionSequence all = {0, queries_, start_ + queries_, nullptr};
    EXPECT_EQ(SplitIntoQueries(absl::MakeConstSpan(&all, 1), desc.selects,
                               sequences.data(), desc.mix),
              queries_);
    if (dense) {
      desc.selects = 0;
      desc.mix = {};
      for (size_t i = 0; i < sequences.size(); ++i) {
        sequences[i].blocks = gathered_tables_[i].data();
      }
    }
    const KvLayout& layout = dense ? gathered_layout_ : layout_;
    AttentionPlanShape shape = MakeAttentionPlanShape(
        row, desc, layout.block_size(), cuda.stream->num_sms());
    EXPECT_TRUE(dense || (shape.tile_tokens == 0 && shape.prefix_units == 0 &&
                          shape.unpack_bytes == 0));
    shape.prefix_units = 0;
    shape.whole_rows = whole_rows;
    AttentionPlanLimits limits = AttentionPlanLimitsOf(shape, sequences);
    limits.graph = graph;
    std::vector<std::byte> image(LayOutAttentionPlan(shape, limits).bytes + 64);
    const size_t skip = -reinterpret_cast<uintptr_t>(image.data()) % 64;
    AttentionPlan plan =
        BuildAttentionPlan(shape, limits, sequences, image.data() + skip);
    const CudaBytes device_plan(image.data() + skip, plan.used_bytes);
    plan.device = device_plan.as<std::byte>();
    const CudaBytes cache(dense ? gathered_ : storage_);
    const CudaBytes q(q_.view().data, q_.view().bytes());
    const CudaBytes selected(selection_);
    const CudaBytes workspace(
        AttentionWorkspaceBytes(shape, limits.sequences, limits.tokens) + 64);
    TestMatrix out(desc.activation, queries_, desc.num_heads * desc.head_dim,
                   8);
    const CudaBytes result(out.view().data, out.view().bytes());
    AttentionParams params;
    params.q = q_.view();
    params.q.data = q.as<std::byte>();
    params.out = out.view();
    params.out.data = result.as<std::byte>();
    params.kv = layout.LayerView(dense ? 0 : 1, cache.as<std::byte>());
    params.workspace = workspace.as<void>();
    params.plan = &plan;
    if (!dense) params.selection = selected.as<int32_t>();
    EXPECT_TRUE(ValidateAttention(desc, params).ok());
    // Twice: the second time finds the counters that the first left.
    for (int i = 0; i < 2; ++i) {
      const absl::Status status = row.run(desc, params, *cuda.stream);
      EXPECT_TRUE(status.ok()) << status;
    }
    result.Download(out.view().data);
    return out;
  }

 private:
  // Each query's own block and some before it, and copies of their keys.
  void Draw(const std::vector<int32_t>& table, const KvLayerView& view) {
    const int most = desc_.selects / kSelectBlock;
    const int units = view.block_size / kSelectBlock;
    const int heads = desc_.num_kv_heads;
    const auto row = static_cast<size_t>(most);
    selection_.assign(static_cast<size_t>(queries_ * heads) * row, -1);
    gathered_.assign(gathered_layout_.block_bytes() *
                         static_cast<size_t>(queries_ * most + 1),
                     std::byte{0xff});
    const KvLayerView to = gathered_layout_.LayerView(0, gathered_.data());
    const auto bytes = static_cast<size_t>(view.row_bytes()) * kSelectBlock;
    for (int i = 0; i < queries_; ++i) {
      const int own = (start_ + i) / kSelectBlock;
      const int count = std::min(own, most - 1);
      auto& blocks = gathered_tables_.emplace_back();
      for (int j = 0; j <= count; ++j) blocks.push_back(1 + i * most + j);
      for (int head = 0; head < heads; ++head) {
        std::vector<int> drawn(static_cast<size_t>(own));
        for (int b = 0; b < own; ++b) drawn[static_cast<size_t>(b)] = b;
        std::shuffle(drawn.begin(), drawn.end(), rng_);
        drawn.resize(static_cast<size_t>(count));
        std::sort(drawn.begin(), drawn.end());
        drawn.push_back(own);
        for (size_t j = 0; j < drawn.size(); ++j) {
          const int32_t block = table[static_cast<size_t>(drawn[j] / units)];
          const int unit = drawn[j] % units;
          selection_[static_cast<size_t>(i * heads + head) * row + j] =
              block * units + unit;
          std::memcpy(to.KeyRow(blocks[j], head, 0),
                      view.KeyRow(block, head, unit * kSelectBlock), bytes);
          std::memcpy(to.ValueRow(blocks[j], head, 0),
                      view.ValueRow(block, head, unit * kSelectBlock), bytes);
        }
      }
    }
  }

  AttentionDesc desc_;
  int queries_;
  int start_;  // position of the first query
  std::mt19937 rng_;
  KvLayout layout_;
  KvLayout gathered_layout_;
  TestMatrix q_;
  std::vector<std::byte> storage_;
  std::vector<std::byte> gathered_;
  std::vector<int32_t> selection_;
  std::vector<std::vector<int32_t>> gathered_tables_;
};

// Which dense attention is tested against float64 elsewhere. cuda_plain has the
// same bits, as it is the same kernel; the others are two kernels, in which the
// compiler may fuse sums differently: a few units of float32 before they are
// rounded to the activations' type, once each.
void ExpectDense(const AttentionDesc& desc, int queries, int length,
                 int block_size, const TestCuda& cuda, unsigned seed) {
  SelectedBlocks problem(desc, queries, length, block_size, seed);
  ForEachCudaRow(AttentionTable(), desc, cuda, [&](const AttentionRow& row) {
    for (const bool whole_rows : {false, true}) {
      const TestMatrix want = problem.Run(row, cuda, true, whole_rows, false);
      const TestMatrix got =
          problem.Run(row, cuda, false, whole_rows, !whole_rows);
      const double unit = UnitOf(desc.activation);
      ::inlay::testing::ExpectClose(
          got, [&](int64_t r, int64_t c) { return double{want(r, c)}; },
          [&](int64_t r, int64_t c) {
            if (row.name == "cuda_plain") return 1e-30;
            // Values of about 1, weighted.
            return 2 * unit * std::abs(double{want(r, c)}) + 1000 * kUnitF32;
          });
    }
  });
}

TEST(SelectedBlocksCudaTest, AreDenseAttentionOverTheirKeys) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  unsigned seed = 1;
  for (const int head_dim : {64, 80, 96, 128, 192, 256, 48, 320}) {
    for (const DType activation : kFloats) {
      for (const DType kv : kKvTypes) {
        const int group = 1 + static_cast<int>(seed * 7 % 20);
        SCOPED_TRACE(::testing::Message()
                     << head_dim << " " << DTypeName(activation) << " "
                     << DTypeName(kv) << " group " << group << " seed "
                     << seed);
        AttentionDesc desc;
        desc.num_kv_heads = 2;
        desc.num_heads = 2 * group;
        desc.head_dim = head_dim;
        desc.activation = activation;
        desc.kv = kv;
        desc.scale = 1.0f / std::sqrt(static_cast<float>(head_dim));
        desc.selects = 6 * kSelectBlock;
        desc.mix.block = kSelectBlock;
        ExpectDense(desc, 3, 300 + static_cast<int>(seed % 17),
                    seed % 2 == 0 ? 16 : 64, cuda, seed);
        ++seed;
      }
    }
  }
}

// From one key to more than a CTA does alone; few queries and many.
TEST(SelectedBlocksCudaTest, OfAnyLength) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  for (const DType kv : {DType::kBF16, DType::kI8, DType::kF8E4M3}) {
    for (const auto& [queries, length, selects] : {std::tuple{1, 1, 64},
                                                   {16, 16, 64},
                                                   {40, 64, 64},
                                                   {1, 65, 2048},
                                                   {1, 9000, 2048},
                                                   {3, 9000, 4096},
                                                   {60, 3000, 1024},
                                                   {200, 400, 128},
                                                   {1, 20000, 16384}}) {
      SCOPED_TRACE(::testing::Message() << DTypeName(kv) << " " << queries
                                        << " of " << length << ", " << selects);
      AttentionDesc desc;
      desc.num_kv_heads = 8;
      desc.num_heads = 32;
      desc.head_dim = 128;
      desc.activation = DType::kBF16;
      desc.kv = kv;
      desc.scale = 0.088f;
      desc.selects = selects;
      desc.mix.block = kSelectBlock;
      ExpectDense(desc, queries, length, 16, cuda,
                  static_cast<unsigned>(length));
    }
  }
}

}  // namespace
}  // namespace inlay

#endif  // INLAY_HAS_CUDA
