// Which calls the fused ops take: a model falls back to the ops apart for the
// others. What they compute: fused_cuda_test.cc.
#include <gtest/gtest.h>

#include <string>

#include "kernels/fused_linear/fused_linear.h"
#include "kernels/rope_kv/rope_kv.h"

namespace inlay {
namespace {

template <typename Row, typename Desc>
std::string RefusalOf(absl::Span<const Row> table, const Desc& desc,
                      DeviceKind kind, int sm) {
  const auto row = Select("op", table, desc, DeviceInfo{kind, "device", sm});
  return row.ok() ? "" : std::string(row.status().message());
}

#if INLAY_HAS_CUDA

std::string LinearRefusal(const FusedLinearDesc& desc, int sm = 90) {
  return RefusalOf(FusedLinearTable(), desc, DeviceKind::kCuda, sm);
}

TEST(FusedTest, LinearTakesSixteenBitWeightsOnHopper) {
  FusedLinearDesc good;
  good.gemm = {48, 128, DType::kBF16, DType::kBF16, DType::kBF16};
  good.gated = good.normalised = true;
  EXPECT_EQ(LinearRefusal(good), "");
  EXPECT_NE(LinearRefusal(good, 80), "");
  EXPECT_NE(LinearRefusal(good, 100), "");
  FusedLinearDesc desc = good;
  desc.gemm.k = 120;
  EXPECT_NE(LinearRefusal(desc).find("multiple of 64"), std::string::npos);
  desc = good;
  desc.gemm.n = 47;
  EXPECT_NE(LinearRefusal(desc).find("n is even"), std::string::npos);
  desc = good;
  desc.gemm.output = DType::kF32;
  EXPECT_NE(LinearRefusal(desc), "");
  desc.gated = false;
  EXPECT_EQ(LinearRefusal(desc), "");
  desc.gemm.weight = desc.gemm.activation = DType::kF32;
  EXPECT_NE(LinearRefusal(desc), "");
  desc = good;
  desc.gemm.activation = desc.gemm.output = DType::kF16;
  EXPECT_NE(LinearRefusal(desc), "");
}

TEST(FusedTest, RopeKvTakesHeadsThatAWarpNormalises) {
  const RopeKvDesc good{8,    2,    128,          128,         RopeStyle::kHalf,
                        true, true, DType::kKvQ4, DType::kBF16};
  const auto refusal = [](const RopeKvDesc& desc) {
    return RefusalOf(RopeKvTable(), desc, DeviceKind::kCuda, 80);
  };
  EXPECT_EQ(refusal(good), "");
  RopeKvDesc desc = good;
  desc.rotary_dim = 31;
  EXPECT_NE(refusal(desc).find("rotary_dim"), std::string::npos);
  desc.rotary_dim = 130;
  EXPECT_NE(refusal(desc).find("rotary_dim"), std::string::npos);
  desc = good;
  desc.head_dim = 576;
  EXPECT_NE(refusal(desc).find("head_dim"), std::string::npos);
  desc = good;
  desc.activation = DType::kI8;
  EXPECT_NE(refusal(desc), "");
}

#endif  // INLAY_HAS_CUDA

TEST(FusedTest, CpusHaveTheOpsApart) {
  EXPECT_NE(
      RefusalOf(FusedLinearTable(), FusedLinearDesc(), DeviceKind::kCpu, 0),
      "");
  EXPECT_NE(RefusalOf(RopeKvTable(), RopeKvDesc(), DeviceKind::kCpu, 0), "");
}

}  // namespace
}  // namespace inlay
