// The CUDA rows of kv_write: the bytes of EncodeKvRow, and no others, in every
// format.
#if INLAY_HAS_CUDA

#include "kernels/kv_write/kv_row.h"
#include "kernels/kv_write/kv_write.h"
#include "tests/support/cuda_test_util.h"

namespace inlay {
namespace {

using ::inlay::testing::CudaBytes;
using ::inlay::testing::CudaTestMatrix;
using ::inlay::testing::ForEachCudaRow;
using ::inlay::testing::TestCuda;
using ::inlay::testing::TestMatrix;

constexpr DType kFloats[] = {DType::kF32, DType::kF16, DType::kBF16};
constexpr DType kKvTypes[] = {DType::kF32, DType::kF16,    DType::kBF16,
                              DType::kI8,  DType::kF8E4M3, DType::kKvQ4};
constexpr int kHeadDims[] = {1, 3, 4, 20, 31, 32, 33, 64, 80, 128, 256, 257};

// A row of one kind for each head: ordinary, offset, of all magnitudes, tiny,
// constant, and with something that is not finite.
void FillHard(TestMatrix& matrix, int head_dim, std::mt19937& rng) {
  std::normal_distribution<float> normal;
  for (int64_t r = 0; r < matrix.rows(); ++r) {
    for (int64_t c = 0; c < matrix.cols(); ++c) {
      const int64_t kind = (r + c / head_dim) % 7;
      const float x = normal(rng);
      const float big = std::ldexp(x, static_cast<int>(rng() % 60) - 30);
      const float values[] = {x,    x - 100.0f, big,  std::ldexp(x, -125),
                              0.1f, x,          -0.0f};
      matrix.Set(r, c, values[kind]);
      if (kind == 5 && c % head_dim == head_dim / 2) {
        // Widening an f16 NaN does not keep its sign and payload.
        const bool nan = r % 2 == 0 && matrix.view().dtype != DType::kF16;
        matrix.Set(r, c,
                   nan ? kKvNan : -std::numeric_limits<float>::infinity());
      }
    }
  }
}

void PutRow(const KvWriteDesc& desc, const TestMatrix& from, int64_t token,
            int head, std::byte* to) {
  std::vector<float> x;
  for (int d = 0; d < desc.head_dim; ++d) {
    x.push_back(from(token, head * desc.head_dim + d));
  }
  EncodeKvRow(desc.kv, x.data(), desc.head_dim, to);
}

void Check(const KvWriteDesc& desc, int block_size, TestCuda& cuda) {
  constexpr int64_t kTokens = 9;
  // Out of order, in several blocks; one token is padding.
  const std::vector<int64_t> slots = {3, 0, 1, -1, 37, 16, 47, 2, 33};
  const int value_dim = desc.keys_only ? desc.head_dim : 0;
  const KvLayout layout(
      {{1, 8}, {desc.num_kv_heads, desc.head_dim, 0, value_dim}}, desc.kv,
      block_size);
  std::mt19937 rng(static_cast<unsigned>(desc.head_dim));
  const int64_t width = desc.num_kv_heads * desc.head_dim;
  TestMatrix k(desc.activation, kTokens, width, desc.head_dim % 5);
  TestMatrix v(desc.activation, kTokens, width, 8);
  FillHard(k, desc.head_dim, rng);
  FillHard(v, desc.head_dim, rng);

  std::vector<std::byte> want(layout.block_bytes() * 4, std::byte{0xee});
  const CudaBytes cache(want);
  const KvLayerView view = layout.LayerView(1, want.data());
  for (int64_t t = 0; t < kTokens; ++t) {
    const int64_t slot = slots[static_cast<size_t>(t)];
    if (slot < 0) continue;
    for (int h = 0; h < desc.num_kv_heads; ++h) {
      const int64_t block = slot / block_size;
      const auto at = static_cast<int>(slot % block_size);
      PutRow(desc, k, t, h, view.KeyRow(block, h, at));
      if (desc.keys_only) continue;
      PutRow(desc, v, t, h, view.ValueRow(block, h, at));
    }
  }
  CudaTestMatrix device_k(k), device_v(v);
  const CudaBytes device_slots(slots);
  ForEachCudaRow(KvWriteTable(), desc, cuda, [&](const KvWriteRow& row) {
    const KvWriteParams params{
        device_k.view(), desc.keys_only ? TensorView() : device_v.view(),
        layout.LayerView(1, cache.as<std::byte>()), device_slots.as<int64_t>()};
    ASSERT_TRUE(row.run(desc, params, *cuda.stream).ok());
    std::vector<std::byte> got(want.size());
    cache.Download(got.data());
    const auto [a, b] = std::mismatch(got.begin(), got.end(), want.begin());
    ASSERT_TRUE(a == got.end())
        << "byte " << a - got.begin() << ": " << static_cast<int>(*a)
        << ", expected " << static_cast<int>(*b);
  });
}

TEST(KvWriteCudaTest, WritesTheBytesOfTheReferenceCodec) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  for (const DType kv : kKvTypes) {
    for (const DType activation : kFloats) {
      for (const int head_dim : kHeadDims) {
        for (const int num_kv_heads : {1, 7}) {
          SCOPED_TRACE(::testing::Message()
                       << DTypeName(kv) << " from " << DTypeName(activation)
                       << " head_dim " << head_dim << " heads "
                       << num_kv_heads);
          Check({num_kv_heads, head_dim, kv, activation}, 16, cuda);
          Check({num_kv_heads, head_dim, kv, activation, true}, 16, cuda);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

}  // namespace
}  // namespace inlay

#endif  // INLAY_HAS_CUDA
