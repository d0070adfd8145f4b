#include "core/model/random_weights.h"

#include <array>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <vector>

#include "memory/formatted_string.h"

namespace inlay {
namespace {

constexpr double kStandardDeviation = 0.02;
// The sum of four uniform bytes is near enough to a normal variable
// (Irwin-Hall) and comes two at a time from 64 random bits. Its mean is 510,
// its variance 4 * (256^2 - 1) / 12.
constexpr int kNumSums = 4 * 255 + 1;

// SplitMix64's output function (Steele et al., OOPSLA 2014) over a counter.
uint64_t Mix(uint64_t x) {
  x *= 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

uint64_t NameHash(uint64_t seed, std::string_view name) {
  uint64_t hash = Mix(seed + 1);
  for (const char c : name) {
    hash = Mix(hash ^ static_cast<unsigned char>(c));
  }
  return hash;
}

template <typename T>
T FromFloat(float value, DType dtype) {
  if constexpr (sizeof(T) == sizeof(float)) {
    return value;
  } else {
    return dtype == DType::kBF16 ? F32ToBF16(value) : F32ToF16(value);
  }
}

template <typename T>
void Draw(uint64_t key, DType dtype, int64_t first, int64_t elements, T* data,
          ThreadPool& pool) {
  const double scale = kStandardDeviation / std::sqrt(4.0 * 65535.0 / 12.0);
  std::array<T, kNumSums> values;
  for (int sum = 0; sum < kNumSums; ++sum) {
    values[static_cast<size_t>(sum)] =
        FromFloat<T>(static_cast<float>((sum - 510) * scale), dtype);
  }
  const auto fill = [&](int64_t begin, int64_t end) {
    for (int64_t pair = begin; pair < end; ++pair) {
      const uint64_t bits = Mix(key + static_cast<uint64_t>(first / 2 + pair));
      constexpr uint64_t kLowBytes = 0x00ff00ff00ff00ffu;
      const uint64_t sums = (bits & kLowBytes) + ((bits >> 8) & kLowBytes);
      data[2 * pair] = values[(sums & 0xffffu) + ((sums >> 16) & 0xffffu)];
      data[2 * pair + 1] = values[((sums >> 32) & 0xffffu) + (sums >> 48)];
    }
  };
  pool.ParallelFor(elements / 2, int64_t{1} << 16, fill);
  if (elements % 2 != 0) {
    data[elements - 1] = values[Mix(~key) % kNumSums];
  }
}

}  // namespace

void DrawWeights(uint64_t seed, std::string_view name, DType dtype,
                 int64_t elements, void* data, ThreadPool& pool,
                 int64_t first) {
  const uint64_t key = NameHash(seed, name);
  if (dtype == DType::kF32) {
    Draw(key, dtype, first, elements, static_cast<float*>(data), pool);
  } else {
    Draw(key, dtype, first, elements, static_cast<uint16_t*>(data), pool);
  }
}

absl::Status DrawBlocks(uint64_t seed, std::string_view name,
                        const BlockCodec& codec, int64_t first, int64_t blocks,
                        std::byte* data, ThreadPool& pool) {
  if (codec.encode == nullptr) {
    return absl::UnimplementedError(
        FormattedString("random weights of dtype %s are not supported: nothing "
                        "encodes that format",
                        DTypeName(codec.dtype)));
  }
  constexpr int64_t kDrawn = 256;
  const FormatInfo& format = GetFormatInfo(codec.dtype);
  const auto bytes = static_cast<size_t>(format.block_bytes);
  std::vector<float> values(
      static_cast<size_t>(kDrawn * format.block_elements));
  DrawWeights(seed, name, DType::kF32, static_cast<int64_t>(values.size()),
              values.data(), pool);
  std::vector<std::byte> drawn(static_cast<size_t>(kDrawn) * bytes);
  codec.encode(values.data(), kDrawn, drawn.data());
  const uint64_t key = NameHash(seed, name);
  pool.ParallelFor(blocks, int64_t{1} << 12, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const uint64_t which =
          Mix(key + static_cast<uint64_t>(first + i)) % kDrawn;
      std::memcpy(data + static_cast<size_t>(i) * bytes,
                  drawn.data() + which * bytes, bytes);
    }
  });
  return absl::OkStatus();
}

}  // namespace inlay
