// The CUDA rows of kv_compress and kv_select, and kv_write's and indexer's over
// rows of several tokens.
#if INLAY_HAS_CUDA

#include <vector>

#include "kernels/kv_write/kv_write.h"
#include "tests/support/compress_util.h"
#include "tests/support/cuda_test_util.h"

namespace inlay {
namespace {

using ::inlay::testing::CompressProblem;
using ::inlay::testing::CompressShapes;
using ::inlay::testing::CompressTables;
using ::inlay::testing::CudaBytes;
using ::inlay::testing::CudaTestMatrix;
using ::inlay::testing::ForEachCudaRow;
using ::inlay::testing::SelectProblem;
using ::inlay::testing::TestCuda;
using ::inlay::testing::TestMatrix;
using ::inlay::testing::UnitOf;

constexpr DType kFloats[] = {DType::kF32, DType::kF16, DType::kBF16};
constexpr DType kKvTypes[] = {DType::kF32, DType::kF16,    DType::kBF16,
                              DType::kI8,  DType::kF8E4M3, DType::kKvQ4};

const CompressShapes kRagged = {{1, 1},  {1, 8},   {5, 5}, {7, 170},
                                {1, 64}, {33, 97}, {0, 9}, {130, 130}};

// A plan of the tables on the device.
struct UploadedPlan {
  UploadedPlan(CompressTables& tables, int block_size)
      : image(IndexPlanBytes(tables.num_tokens(), tables.num_blocks())) {
    std::vector<std::byte> host(
        IndexPlanBytes(tables.num_tokens(), tables.num_blocks()));
    plan = BuildIndexPlan(tables.sequences(), block_size, tables.num_tokens(),
                          host.data(), image.as<std::byte>());
    EXPECT_EQ(cudaMemcpy(image.as<void>(), host.data(), plan.used_bytes,
                         cudaMemcpyHostToDevice),
              cudaSuccess);
  }
  CudaBytes image;
  IndexPlan plan;
};

TEST(KvCompressCudaTest, PoolsAsASoftmaxDoes) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  unsigned seed = 1;
  for (const DType activation : kFloats) {
    for (const DType kv : kKvTypes) {
      for (const int row_tokens : {2, 4, 16, 128}) {
        const KvCompressDesc desc = {seed % 3 == 0 ? 512 : 32, row_tokens,
                                     seed % 2 == 0, kv, activation};
        SCOPED_TRACE(::testing::Message()
                     << DTypeName(activation) << " " << DTypeName(kv) << " "
                     << row_tokens << " seed " << seed);
        CompressProblem problem(desc, kRagged, 16, seed++);
        ForEachCudaRow(KvCompressTable(), desc, cuda,
                       [&](const KvCompressRow& row) {
                         const UploadedPlan plan(problem.tables(), 16);
                         const CudaBytes cache(problem.storage());
                         CudaTestMatrix bias(problem.bias());
                         CudaTestMatrix y(problem.NewOutput());
                         KvCompressParams params;
                         params.kv = problem.View();
                         params.kv.base = cache.as<std::byte>();
                         params.bias = bias.floats();
                         params.y = y.view();
                         params.plan = &plan.plan;
                         ASSERT_TRUE(row.run(desc, params, *cuda.stream).ok());
                         problem.Expect(y.Download(), UnitOf(activation));
                       });
      }
    }
  }
}

TEST(KvSelectCudaTest, NamesTheRowsOfTwoLayers) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  unsigned seed = 1;
  for (const DType kv : kKvTypes) {
    for (const int row_tokens : {4, 16, 128}) {
      for (const bool is_chosen : {false, true}) {
        const KvSelectDesc desc = {12, row_tokens, is_chosen ? 8 : 64,
                                   is_chosen};
        SCOPED_TRACE(::testing::Message()
                     << DTypeName(kv) << " " << row_tokens << " " << is_chosen);
        ForEachCudaRow(KvSelectTable(), desc, cuda,
                       [&](const KvSelectRow& row) {
                         SelectProblem problem(desc, kRagged, kv, seed);
                         const UploadedPlan near(problem.near_tables(),
                                                 problem.TokensABlock(1));
                         const UploadedPlan far(problem.far_tables(),
                                                problem.TokensABlock(3));
                         const CudaBytes chosen(problem.chosen());
                         const CudaBytes selection(problem.selection());
                         KvSelectParams params = problem.Params();
                         if (is_chosen) params.chosen = chosen.as<int32_t>();
                         params.selection = selection.as<int32_t>();
                         params.near_plan = &near.plan;
                         params.far_plan = &far.plan;
                         ASSERT_TRUE(row.run(desc, params, *cuda.stream).ok());
                         selection.Download(problem.selection().data());
                         problem.Expect(problem.selection());
                       });
        ++seed;
      }
    }
  }
}

TEST(KvWriteCudaTest, RowsOfSeveralTokens) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  constexpr int kRowTokens = 4;
  KvLayout layout({{1, 8, 0, 8, kRowTokens}}, DType::kF32, 16);
  KvWriteDesc desc;
  desc.num_kv_heads = 1;
  desc.head_dim = 8;
  desc.keys_only = true;
  desc.row_tokens = kRowTokens;
  std::mt19937 rng(1);
  TestMatrix k(DType::kF32, 17, 8);
  k.Randomize(rng);
  std::vector<int64_t> slots;
  for (int64_t t = 0; t < 16; ++t) slots.push_back(16 + t);  // block 1
  slots.push_back(-1);
  ForEachCudaRow(KvWriteTable(), desc, cuda, [&](const KvWriteRow& row) {
    std::vector<float> cache(3 * layout.block_bytes() / sizeof(float), -7.0f);
    const CudaBytes device(cache);
    const CudaBytes device_slots(slots);
    CudaTestMatrix keys(k);
    KvWriteParams params;
    params.k = keys.view();
    params.kv = layout.LayerView(0, device.as<std::byte>());
    params.slots = device_slots.as<int64_t>();
    ASSERT_TRUE(row.run(desc, params, *cuda.stream).ok());
    device.Download(cache.data());
    const KvLayerView view =
        layout.LayerView(0, reinterpret_cast<std::byte*>(cache.data()));
    int written = 0;
    for (const float x : cache) written += x != -7.0f ? 1 : 0;
    EXPECT_EQ(written, 4 * 8);
    for (int r = 0; r < 4; ++r) {
      const auto* got = reinterpret_cast<const float*>(view.KeyRow(1, 0, r));
      for (int d = 0; d < 8; ++d) EXPECT_EQ(got[d], k(4 * r + 3, d));
    }
  });
}

}  // namespace
}  // namespace inlay

#endif  // INLAY_HAS_CUDA
