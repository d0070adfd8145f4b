// decode_delta's CUDA rows: outputs and states to the bit those of the ops
// apart, whose own tests hold them against float64.
#if INLAY_HAS_CUDA
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/cuda_state_test_util.h"
#include "tests/support/decode_delta_util.h"

namespace inlay {
namespace {

using ::inlay::testing::CudaTestMatrix;
using ::inlay::testing::DecodeDeltaDescOf;
using ::inlay::testing::DeltaShape;
using ::inlay::testing::DeviceStates;
using ::inlay::testing::ForEachCudaRow;
using ::inlay::testing::RandomMatrix;
using ::inlay::testing::RunDeltaApart;
using ::inlay::testing::States;
using ::inlay::testing::TestCuda;
using ::inlay::testing::TestMatrix;

constexpr DType kFloats[] = {DType::kF32, DType::kF16, DType::kBF16};

// Every width that is computed otherwise.
std::vector<DeltaShape> Shapes(DType type) {
  std::vector<DeltaShape> shapes;
  for (const bool channels : {false, true}) {
    for (const auto& [key_dim, value_dim] :
         {std::pair{8, 32}, {24, 32}, {32, 32}, {128, 128}}) {
      shapes.push_back(
          {4, 2, key_dim, value_dim, channels, type,
           channels ? GateFunction::kSigmoid : GateFunction::kSilu});
    }
  }
  shapes.push_back({3, 3, 128, 128, false, type, GateFunction::kSilu});
  for (const int dim : {32, 128}) {
    shapes.push_back(
        {2, 2, dim, dim, true, type, GateFunction::kSigmoid, -5.0f});
  }
  return shapes;
}

std::string Name(const DeltaShape& shape) {
  return std::string(DTypeName(shape.type)) + " heads " +
         std::to_string(shape.num_heads) + " keys " +
         std::to_string(shape.key_dim) + " channels " +
         std::to_string(shape.decays_channels) + " bound " +
         std::to_string(shape.bound);
}

CudaTestMatrix Lengths(const DeltaShape& shape) {
  TestMatrix lengths(DType::kF32, 1, 2 * shape.keys());
  for (int64_t i = 0; i < lengths.cols(); ++i) {
    const auto width = static_cast<float>(shape.key_dim);
    lengths.Set(0, i, i < shape.keys() ? 1 / width : 1 / std::sqrt(width));
  }
  return CudaTestMatrix(std::move(lengths));
}

// A layer, what its first product gives for some rows, and states of its own.
class Layer {
 public:
  Layer(const DeltaShape& shape, int64_t rows, int num_blocks)
      : shape_(shape),
        desc_(DecodeDeltaDescOf(shape)),
        x_(RandomMatrix(shape.type, rows, shape.channels(), 1, 8)),
        a_(RandomMatrix(shape.type, rows, shape.decays(), 2, 3, 2.0f)),
        b_(RandomMatrix(shape.type, rows, shape.num_heads, 3, 1, 2.0f)),
        z_(RandomMatrix(shape.type, rows, shape.values(), 4, 8)),
        taps_(RandomMatrix(DType::kF32, 4, shape.channels(), 5, 0)),
        bias_(RandomMatrix(DType::kF32, 1, shape.decays(), 6, 0)),
        a_log_(RandomMatrix(DType::kF32, 1, shape.num_heads, 7, 0)),
        norm_(RandomMatrix(DType::kF32, 1, shape.value_dim, 8, 0)),
        lengths_(Lengths(shape)),
        mixed_(shape.type, rows, shape.channels(), 8),
        decay_(DType::kF32, rows, shape.decays()),
        beta_(DType::kF32, rows, shape.num_heads),
        y_(shape.type, rows, shape.values(), 8),
        conv_bytes_((4 * ShortConvStateFloats(desc_.conv) + 63) / 64 * 64),
        states_(conv_bytes_ / 4 + LinearAttentionStateFloats(desc_.rule),
                num_blocks) {}

  const DecodeDeltaDesc& desc() const { return desc_; }
  States& states() { return states_.host(); }
  std::string State(int32_t block) const { return states_.State(block); }
  // Null: the ops apart.
  void Run(const DecodeDeltaRow* row, int64_t first, int64_t count,
           int64_t sequences, TestCuda& cuda) {
    const auto rows = [&](CudaTestMatrix& matrix) {
      return matrix.view().RowSlice(first, count);
    };
    DecodeDeltaParams params;
    params.x = rows(x_);
    params.taps = taps_.floats();
    params.conv_state = params.state = states_.Take(count, sequences);
    params.state.state.offset_bytes += conv_bytes_;
    params.lengths = lengths_.floats();
    params.length_epsilon = 1e-6f / static_cast<float>(shape_.key_dim);
    params.a = rows(a_);
    params.b = rows(b_);
    params.bias = bias_.floats();
    params.a_log = a_log_.floats();
    params.z = rows(z_);
    params.norm = norm_.floats();
    params.norm_epsilon = 1e-6f;
    params.y = rows(y_);
    if (row != nullptr) {
      ASSERT_TRUE(row->run(desc_, params, *cuda.stream).ok());
    } else {
      ASSERT_TRUE(RunDeltaApart(desc_, params, rows(mixed_), rows(decay_),
                                rows(beta_), cuda.info, *cuda.stream)
                      .ok());
    }
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }
  const TestMatrix& Outputs() { return y_.Download(); }

 private:
  const DeltaShape shape_;
  const DecodeDeltaDesc desc_;
  CudaTestMatrix x_, a_, b_, z_, taps_, bias_, a_log_, norm_, lengths_, mixed_,
      decay_, beta_, y_;
  const int64_t conv_bytes_;
  DeviceStates states_;
};

TEST(DecodeDeltaCudaTest, RefusesWhatItDoesNotCompute) {
  const DeviceInfo device{DeviceKind::kCuda, "cuda", 90};
  const DeltaShape shape = {4, 2, 128, 128, false, DType::kBF16};
  const auto serves = [&](const DecodeDeltaDesc& desc) {
    return Select("decode_delta", DecodeDeltaTable(), desc, device).ok();
  };
  const DecodeDeltaDesc desc = DecodeDeltaDescOf(shape);
  EXPECT_TRUE(serves(desc));
  DecodeDeltaDesc other = desc;
  other.conv.num_taps = 3;
  EXPECT_FALSE(serves(other));
  other = desc;
  other.rule.delta = false;
  EXPECT_FALSE(serves(other));
  other = desc;
  other.norm.gate_first = true;
  EXPECT_FALSE(serves(other));
  other = desc;
  other.unit.shared_weight = true;
  EXPECT_FALSE(serves(other));
  for (const auto& [key_dim, value_dim] :
       {std::pair{64, 64}, {128, 64}, {12, 32}, {32, 64}}) {
    DeltaShape sizes = shape;
    sizes.key_dim = key_dim;
    sizes.value_dim = value_dim;
    EXPECT_FALSE(serves(DecodeDeltaDescOf(sizes)));
  }
}

// Steps of one token a sequence, of more, over ends of blocks, and one of fixed
// size with room for more.
TEST(DecodeDeltaCudaTest, HasTheBitsOfTheOpsApart) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  constexpr int64_t kRows = 32;
  struct Counts {
    int64_t first, second, rows, sequences;
  };
  for (const DType type : kFloats) {
    for (const DeltaShape& shape : Shapes(type)) {
      SCOPED_TRACE(Name(shape));
      Layer want(shape, kRows, 24);
      const DecodeDeltaDesc& desc = want.desc();
      ForEachCudaRow(
          DecodeDeltaTable(), desc, cuda, [&](const DecodeDeltaRow& row) {
            Layer got(shape, kRows, 24);
            States::Sequence sequences[2][2];
            const std::string nobody = got.Outputs().RowBits(0);
            int64_t first = 0;
            for (const Counts& step : {Counts{1, 1, 2, 2},
                                       {3, 1, 4, 2},
                                       {9, 2, 11, 2},
                                       {1, 1, 5, 4},
                                       {1, 0, 1, 1}}) {
              for (Layer* layer : {&want, &got}) {
                auto& both = sequences[layer == &got];
                layer->states().Add(both[0], 0, step.first);
                if (step.second > 0) {
                  layer->states().Add(both[1], step.first, step.second);
                }
                layer->Run(layer == &got ? &row : nullptr, first, step.rows,
                           step.sequences, cuda);
              }
              const int64_t end = first + step.first + step.second;
              for (int64_t r = first; r < first + step.rows; ++r) {
                ASSERT_EQ(got.Outputs().RowBits(r),
                          r < end ? want.Outputs().RowBits(r) : nobody)
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
}

// So many that blocks wait for room.
TEST(DecodeDeltaCudaTest, ManySequencesHaveTheBitsOfTheOpsApart) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  constexpr int kSequences = 150;
  for (const bool channels : {false, true}) {
    const DeltaShape shape = {4, 2, 128, 128, channels, DType::kBF16};
    SCOPED_TRACE(Name(shape));
    Layer want(shape, 2 * kSequences, 2 * kSequences);
    const DecodeDeltaDesc& desc = want.desc();
    ForEachCudaRow(
        DecodeDeltaTable(), desc, cuda, [&](const DecodeDeltaRow& row) {
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
