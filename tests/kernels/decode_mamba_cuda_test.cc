// decode_mamba's CUDA rows: outputs and states to the bit those of the ops
// apart, whose own tests hold them against float64.
#if INLAY_HAS_CUDA
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/cuda_state_test_util.h"
#include "tests/support/decode_mamba_util.h"

namespace inlay {
namespace {

using ::inlay::testing::CudaTestMatrix;
using ::inlay::testing::DecodeMambaDescOf;
using ::inlay::testing::DeviceStates;
using ::inlay::testing::ForEachCudaRow;
using ::inlay::testing::MambaShape;
using ::inlay::testing::RandomMatrix;
using ::inlay::testing::RunMambaApart;
using ::inlay::testing::States;
using ::inlay::testing::TestCuda;
using ::inlay::testing::TestMatrix;

constexpr DType kFloats[] = {DType::kF32, DType::kF16, DType::kBF16};

// Keys, heads and groups as the models of tests have them.
std::vector<MambaShape> SmallShapes(DType type) {
  return {
      {4, 1, 32, 16, type, 0, true, 0.35f},
      {4, 2, 32, 32, type, 2},
      {4, 1, 16, 32, type, 1},
      {2, 1, 24, 64, type, 1, false},
      {3, 3, 8, 48, type, 3, true, 0.7f, true, false},
  };
}

// Every other width that is computed otherwise, and every way to finish.
std::vector<MambaShape> PublishedShapes(DType type) {
  return {
      // Granite: a norm over more heads than a cluster has.
      {20, 1, 128, 64, type, 1, true, 1.0f, false},
      // Nemotron: heads of 80; norms of 8 and of 16 heads, of 14 where warps
      // have a rest.
      {8, 2, 128, 80, type, 2, true, 1.0f, false},
      {16, 2, 128, 64, type, 2},
      {32, 2, 128, 64, type, 2},
      {28, 2, 128, 64, type, 2, false, 0.7f},
      // Falcon.
      {6, 1, 256, 128, type, 0, true, 0.35f},
      {34, 1, 256, 64, type, 0},
      {4, 2, 256, 128, type, 2, false},
      {12, 1, 256, 64, type, 1, true, 1.0f, true, false},
  };
}

std::string Name(const MambaShape& shape) {
  return std::string(DTypeName(shape.type)) + " heads " +
         std::to_string(shape.num_heads) + " of " +
         std::to_string(shape.head_dim) + " keys " +
         std::to_string(shape.state_size) + " norms " +
         std::to_string(shape.norm_groups);
}

// A layer, what its first product gives for some rows, and states of its own.
class Layer {
 public:
  Layer(const MambaShape& shape, int64_t rows, int num_blocks)
      : shape_(shape),
        desc_(DecodeMambaDescOf(shape)),
        x_(RandomMatrix(shape.type, rows, shape.channels(), 1, 8)),
        dt_(RandomMatrix(shape.type, rows, shape.num_heads, 2, 3, 2.0f)),
        z_(RandomMatrix(shape.type, rows, shape.inner(), 3, 8)),
        taps_(RandomMatrix(DType::kF32, 4, shape.channels(), 4, 0)),
        conv_bias_(RandomMatrix(DType::kF32, 1, shape.channels(), 5, 0)),
        dt_bias_(RandomMatrix(DType::kF32, 1, shape.num_heads, 6, 0)),
        a_log_(RandomMatrix(DType::kF32, 1, shape.num_heads, 7, 0)),
        skip_(RandomMatrix(DType::kF32, 1, shape.num_heads, 8, 0)),
        norm_(RandomMatrix(DType::kF32, 1, shape.inner(), 9, 0)),
        mixed_(shape.type, rows, shape.channels(), 8),
        decay_(DType::kF32, rows, shape.num_heads),
        step_(DType::kF32, rows, shape.num_heads),
        y_(shape.type, rows, shape.inner(), 8),
        conv_bytes_((4 * ShortConvStateFloats(desc_.conv) + 63) / 64 * 64),
        states_(conv_bytes_ / 4 + LinearAttentionStateFloats(desc_.scan),
                num_blocks) {}

  const DecodeMambaDesc& desc() const { return desc_; }
  States& states() { return states_.host(); }
  std::string State(int32_t block) const { return states_.State(block); }
  // Null: the ops apart.
  void Run(const DecodeMambaRow* row, int64_t first, int64_t count,
           int64_t sequences, TestCuda& cuda) {
    const auto rows = [&](CudaTestMatrix& matrix) {
      return matrix.view().RowSlice(first, count);
    };
    DecodeMambaParams params;
    params.x = rows(x_);
    params.taps = taps_.floats();
    if (shape_.vectors) params.conv_bias = conv_bias_.floats();
    params.conv_state = params.state = states_.Take(count, sequences);
    params.state.state.offset_bytes += conv_bytes_;
    params.dt = rows(dt_);
    params.dt_bias = dt_bias_.floats();
    params.a_log = a_log_.floats();
    if (shape_.vectors) params.skip = skip_.floats();
    params.z = rows(z_);
    if (shape_.norm_groups > 0) params.norm = norm_.floats();
    params.epsilon = 1e-5f;
    params.y = rows(y_);
    if (row != nullptr) {
      ASSERT_TRUE(row->run(desc_, params, *cuda.stream).ok());
    } else {
      ASSERT_TRUE(RunMambaApart(desc_, params, rows(mixed_), rows(decay_),
                                rows(step_), cuda.info, *cuda.stream)
                      .ok());
    }
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }
  const TestMatrix& Outputs() { return y_.Download(); }

 private:
  const MambaShape shape_;
  const DecodeMambaDesc desc_;
  CudaTestMatrix x_, dt_, z_, taps_, conv_bias_, dt_bias_, a_log_, skip_, norm_,
      mixed_, decay_, step_, y_;
  const int64_t conv_bytes_;
  DeviceStates states_;
};

TEST(DecodeMambaCudaTest, RefusesWhatItDoesNotCompute) {
  const auto serves = [](const DecodeMambaDesc& desc, int sm = 90) {
    const DeviceInfo device{DeviceKind::kCuda, "cuda", sm};
    return Select("decode_mamba", DecodeMambaTable(), desc, device).ok();
  };
  const MambaShape nemotron = {128, 8, 128, 64, DType::kBF16, 8};
  const MambaShape falcon = {24, 1, 256, 128, DType::kBF16};
  const DecodeMambaDesc desc = DecodeMambaDescOf(nemotron);
  EXPECT_TRUE(serves(desc));
  EXPECT_TRUE(serves(DecodeMambaDescOf(falcon)));
  // Clusters begin with Hopper; without a norm none are needed.
  EXPECT_FALSE(serves(desc, 80));
  EXPECT_TRUE(serves(DecodeMambaDescOf(falcon), 80));
  DecodeMambaDesc other = desc;
  other.finishes = false;
  EXPECT_TRUE(serves(other, 80));
  other = desc;
  other.conv.num_taps = 3;
  EXPECT_FALSE(serves(other));
  other = desc;
  other.scan.delta = true;
  EXPECT_FALSE(serves(other));
  other = desc;
  other.scan.decay = StateDecay::kChannel;
  EXPECT_FALSE(serves(other));
  other = desc;
  other.norm.shared_weight = true;
  EXPECT_FALSE(serves(other));
  MambaShape granite = {48, 1, 128, 64, DType::kBF16, 1};
  EXPECT_FALSE(serves(DecodeMambaDescOf(granite)));
  granite.finishes = false;
  EXPECT_TRUE(serves(DecodeMambaDescOf(granite)));
  // Zamba 2 with a norm of one head, and of two.
  EXPECT_FALSE(serves(DecodeMambaDescOf({8, 8, 128, 64, DType::kBF16, 8})));
  EXPECT_FALSE(serves(DecodeMambaDescOf({2, 2, 8, 16, DType::kF32, 2})));
  EXPECT_TRUE(serves(DecodeMambaDescOf({8, 8, 128, 64, DType::kBF16, 4})));
  for (const auto& [state_size, head_dim] :
       {std::pair{64, 64}, {128, 40}, {256, 80}, {12, 32}, {32, 24}}) {
    MambaShape sizes = falcon;
    sizes.state_size = state_size;
    sizes.head_dim = head_dim;
    EXPECT_FALSE(serves(DecodeMambaDescOf(sizes)));
  }
}

// Steps of sequences that begin and that go on, over ends of blocks, and of
// fixed size with room for more.
void ExpectTheBitsOfTheOpsApart(const std::vector<MambaShape>& shapes,
                                TestCuda& cuda) {
  constexpr int64_t kRows = 24;
  struct Counts {
    int64_t added, rows, sequences;
  };
  for (const MambaShape& shape : shapes) {
    SCOPED_TRACE(Name(shape));
    Layer want(shape, kRows, 24);
    const DecodeMambaDesc& desc = want.desc();
    if (!Select("decode_mamba", DecodeMambaTable(), desc, cuda.info).ok()) {
      EXPECT_LT(cuda.info.sm, 90);
      continue;
    }
    ForEachCudaRow(
        DecodeMambaTable(), desc, cuda, [&](const DecodeMambaRow& row) {
          Layer got(shape, kRows, 24);
          States::Sequence sequences[2][2];
          const std::string nobody = got.Outputs().RowBits(0);
          int64_t first = 0;
          for (const Counts& step : {Counts{2, 2, 2},
                                     {2, 4, 2},
                                     {1, 1, 1},
                                     {2, 5, 4},
                                     {2, 2, 2},
                                     {1, 3, 2},
                                     {2, 2, 2}}) {
            for (Layer* layer : {&want, &got}) {
              for (int64_t s = 0; s < step.added; ++s) {
                layer->states().Add(sequences[layer == &got][s], s, 1);
              }
              layer->Run(layer == &got ? &row : nullptr, first, step.rows,
                         step.sequences, cuda);
            }
            for (int64_t r = first; r < first + step.rows; ++r) {
              ASSERT_EQ(
                  got.Outputs().RowBits(r),
                  r < first + step.added ? want.Outputs().RowBits(r) : nobody)
                  << "row " << r;
            }
            for (size_t s = 0; s < 2; ++s) {
              const auto& blocks = sequences[1][s].blocks;
              ASSERT_EQ(blocks, sequences[0][s].blocks);
              for (const int32_t block : blocks) {
                ASSERT_EQ(got.State(block), want.State(block));
              }
            }
            first += step.rows;
          }
          EXPECT_TRUE(got.Outputs().PaddingIsPoisoned());
          EXPECT_FALSE(std::isnan(got.Outputs()(0, 0)));
        });
  }
}

TEST(DecodeMambaCudaTest, SmallModelsHaveTheBitsOfTheOpsApart) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  for (const DType type : kFloats) {
    ExpectTheBitsOfTheOpsApart(SmallShapes(type), cuda);
  }
}

TEST(DecodeMambaCudaTest, PublishedShapesHaveTheBitsOfTheOpsApart) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  for (const DType type : kFloats) {
    ExpectTheBitsOfTheOpsApart(PublishedShapes(type), cuda);
  }
}

// So many that blocks, and clusters of them, wait for room.
TEST(DecodeMambaCudaTest, ManySequencesHaveTheBitsOfTheOpsApart) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  constexpr int kSequences = 80;
  for (const MambaShape& shape :
       {MambaShape{16, 1, 128, 64, DType::kBF16, 1},
        {8, 1, 128, 64, DType::kBF16, 1},
        {4, 2, 256, 128, DType::kBF16, 0, true, 0.35f}}) {
    SCOPED_TRACE(Name(shape));
    Layer want(shape, 2 * kSequences, 2 * kSequences);
    const DecodeMambaDesc& desc = want.desc();
    if (!Select("decode_mamba", DecodeMambaTable(), desc, cuda.info).ok()) {
      continue;
    }
    ForEachCudaRow(
        DecodeMambaTable(), desc, cuda, [&](const DecodeMambaRow& row) {
          Layer got(shape, 2 * kSequences, 2 * kSequences);
          std::vector<States::Sequence> sequences[2];
          for (const int64_t first : {0, kSequences}) {
            for (Layer* layer : {&want, &got}) {
              auto& all = sequences[layer == &got];
              all.resize(kSequences);
              for (int s = 0; s < kSequences; ++s) {
                layer->states().Add(all[static_cast<size_t>(s)], s, 1);
              }
              layer->Run(layer == &got ? &row : nullptr, first, kSequences,
                         kSequences, cuda);
            }
            const TestMatrix& outputs = got.Outputs();
            const TestMatrix& expected = want.Outputs();
            for (int64_t r = first; r < first + kSequences; ++r) {
              ASSERT_EQ(outputs.RowBits(r), expected.RowBits(r)) << "row " << r;
            }
            for (size_t s = 0; s < kSequences; s += 7) {
              const int32_t block = sequences[1][s].blocks.back();
              ASSERT_EQ(got.State(block), want.State(block));
            }
          }
        });
  }
}

}  // namespace
}  // namespace inlay

#endif  // INLAY_HAS_CUDA
