// The CUDA row of block_indexer against a sort of all scores.
#if INLAY_HAS_CUDA

#include <vector>

#include "tests/support/block_indexer_util.h"
#include "tests/support/cuda_test_util.h"

namespace inlay {
namespace {

using ::inlay::testing::BlockIndexerProblem;
using ::inlay::testing::CudaBytes;
using ::inlay::testing::ForEachCudaRow;
using ::inlay::testing::TestCuda;

constexpr DType kIndexFloats[] = {DType::kF32, DType::kF16, DType::kBF16};
constexpr DType kIndexKvTypes[] = {DType::kF32, DType::kF16,    DType::kBF16,
                                   DType::kI8,  DType::kF8E4M3, DType::kKvQ4};

const std::vector<BlockIndexerProblem::Shape> kIndexedShapes = {
    {1, 1}, {1, 137}, {5, 5}, {7, 170}, {1, 64}, {0, 12}, {33, 97}, {1, 900}};

// What is not any query's is -1.
std::vector<int32_t> RunBlockRow(const BlockIndexerRow& row,
                                 BlockIndexerProblem& problem,
                                 const TestCuda& cuda) {
  std::vector<int32_t> selection = problem.NewSelection();
  BlockIndexerParams params = problem.Params(nullptr);
  const int64_t rows = params.q.rows();
  const int block_size = params.kv.block_size;
  int64_t blocks = 0;
  for (const AttentionSequence& sequence : params.sequences) {
    blocks += (sequence.kv_len + block_size - 1) / block_size;
  }
  const CudaBytes q(params.q.data, params.q.bytes());
  const CudaBytes cache(problem.keys().storage());
  const CudaBytes selected(selection);
  const CudaBytes workspace(row.workspace_bytes(problem.desc(), rows));
  std::vector<std::byte> image(IndexPlanBytes(rows, blocks));
  const CudaBytes device_image(image.size());
  const IndexPlan plan =
      BuildIndexPlan(params.sequences, block_size, rows, image.data(),
                     device_image.as<std::byte>());
  EXPECT_EQ(cudaMemcpy(device_image.as<void>(), image.data(), plan.used_bytes,
                       cudaMemcpyHostToDevice),
            cudaSuccess);
  params.q.data = q.as<std::byte>();
  params.kv.base = cache.as<std::byte>();
  params.selection = selected.as<int32_t>();
  params.workspace = workspace.as<void>();
  params.plan = &plan;
  const absl::Status status = row.run(problem.desc(), params, *cuda.stream);
  EXPECT_TRUE(status.ok()) << status;
  selected.Download(selection.data());
  return selection;
}

TEST(BlockIndexerCudaTest, SelectsTheBestOverSizesAndTypes) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  unsigned seed = 1;
  constexpr int kBlocks[] = {16, 4, 32, 64};
  for (const int head_dim : {32, 64, 128, 8, 256}) {
    for (const DType activation : kIndexFloats) {
      for (const DType kv : kIndexKvTypes) {
        BlockIndexerDesc desc;
        desc.num_heads = 1 + static_cast<int>(seed % 9);
        desc.head_dim = head_dim;
        desc.block = kBlocks[seed % 4];
        desc.neighbours = 1 + static_cast<int>(seed % 3);
        desc.selects = desc.neighbours + static_cast<int>(seed % 5);
        desc.max_keys = 1000;
        desc.kv = kv;
        desc.activation = activation;
        SCOPED_TRACE(::testing::Message()
                     << desc.num_heads << " heads of " << head_dim << " "
                     << DTypeName(activation) << " " << DTypeName(kv)
                     << " blocks of " << desc.block << ", " << desc.selects
                     << " seed " << seed);
        BlockIndexerProblem problem(desc, kIndexedShapes,
                                    seed % 2 == 0 ? 64 : 128, seed);
        if (seed % 4 == 0) problem.keys().UseIntegers(1);
        ForEachCudaRow(BlockIndexerTable(), desc, cuda,
                       [&](const BlockIndexerRow& row) {
                         problem.Expect(RunBlockRow(row, problem, cuda));
                       });
        ++seed;
      }
    }
  }
}

}  // namespace
}  // namespace inlay

#endif  // INLAY_HAS_CUDA
