// Checkpoints drawn by a test in each method's layout, with the weights they
// stand for, and what a presented tensor decodes to, both written straight from
// the layouts' definitions.
#ifndef INLAY_TESTS_CORE_FORMATS_QUANTIZED_TEST_UTIL_H_
#define INLAY_TESTS_CORE_FORMATS_QUANTIZED_TEST_UTIL_H_

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "core/formats/quantized_source.h"
#include "kernels/quant/bnb_fp4/bnb_fp4.h"
#include "kernels/quant/nf4/nf4.h"
#include "memory/dtype.h"
#include "tests/support/memory_weights.h"

namespace inlay {

// One layer "l" of n outputs and k inputs.
struct Checkpoint {
  Json config;
  std::shared_ptr<MemoryWeights> weights;
  int64_t n = 0;
  int64_t k = 0;
  std::vector<double> dense;  // [n, k], exact
};

// A tensor to replace (no dtype: to take away).
struct Change {
  std::string name;
  std::optional<DType> dtype;
  std::vector<int64_t> shape;
  float value = 0.5f;  // of f32
};

inline std::shared_ptr<MemoryWeights> Changed(const MemoryWeights& good,
                                              const Change& change) {
  auto changed = std::make_shared<MemoryWeights>(true);
  for (const WeightInfo& info : good.weights()) {
    if (info.name != change.name) changed->Add(info, good.Mapped(info));
  }
  if (change.dtype.has_value()) {
    const std::vector<float> values(1 << 16, change.value);
    changed->Add(change.name, *change.dtype, change.shape, values.data());
  }
  return changed;
}

class Draw {
 public:
  explicit Draw(uint32_t seed) : engine_(seed) {}
  int Int(int least, int most) {
    return std::uniform_int_distribution<int>(least, most)(engine_);
  }
  std::vector<int> Ints(int64_t count, int least, int most) {
    std::vector<int> values(static_cast<size_t>(count));
    for (int& value : values) value = Int(least, most);
    return values;
  }
  // Scales exact in f16 and in bf16.
  std::vector<float> Scales(int64_t count) {
    std::vector<float> values;
    for (int64_t i = 0; i < count; ++i) {
      values.push_back(static_cast<float>(Int(128, 255)) * 0x1p-14f);
    }
    return values;
  }
  std::mt19937& engine() { return engine_; }

 private:
  std::mt19937 engine_;
};

// Adds float `values` as `dtype`.
inline void AddFloats(MemoryWeights& weights, const std::string& name,
                      DType dtype, std::vector<int64_t> shape,
                      const std::vector<float>& values) {
  if (dtype == DType::kF32) {
    weights.Add(name, dtype, std::move(shape), values.data());
    return;
  }
  std::vector<uint16_t> bits;
  for (const float value : values) {
    bits.push_back(dtype == DType::kF16 ? F32ToF16(value) : F32ToBF16(value));
  }
  weights.Add(name, dtype, std::move(shape), bits.data());
}

// Adds an i32 matrix [rows, columns] of packed fields: field `f` of word (r, c)
// is field_at(r, c, f).
template <typename FieldAt>
void AddPacked(MemoryWeights& weights, const std::string& name, int64_t rows,
               int64_t columns, int bits, const FieldAt& field_at) {
  std::vector<uint32_t> words;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      uint32_t word = 0;
      for (int f = 0; f < 32 / bits; ++f) {
        const uint32_t field =
            static_cast<uint32_t>(field_at(r, c, f)) & ((1u << bits) - 1);
        word |= field << (bits * f);
      }
      words.push_back(word);
    }
  }
  weights.Add(name, DType::kI32, {rows, columns}, words.data());
}

// The values of a presented tensor's bytes, columns as presented.
inline std::vector<float> DecodeBlocks(DType dtype,
                                       const std::vector<std::byte>& bytes) {
  const FormatInfo& format = GetFormatInfo(dtype);
  const auto* data = reinterpret_cast<const uint8_t*>(bytes.data());
  std::vector<float> values;
  if (dtype == DType::kF32) {
    values.resize(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
  for (size_t at = 0; at < bytes.size();
       at += static_cast<size_t>(format.block_bytes)) {
    if (dtype == DType::kMXFP4) {
      constexpr float kLevels[] = {0, .5f, 1, 1.5f, 2, 3, 4, 6};
      const float power = std::ldexp(1.0f, data[at] - 127);
      for (int i = 0; i < 32; ++i) {
        const int code =
            data[at + 1 + static_cast<size_t>(i % 16)] >> (i < 16 ? 0 : 4);
        values.push_back((code & 8 ? -power : power) * kLevels[code & 7]);
      }
      continue;
    }
    float scale, min = 0;
    std::memcpy(&scale, data + at, 4);
    if (dtype == DType::kNVFP4_F32) {
      constexpr float kLevels[] = {0, .5f, 1, 1.5f, 2, 3, 4, 6};
      for (size_t i = 0; i < 64; ++i) {
        const uint8_t pair = data[at + 8 + i / 16 * 8 + i % 8];
        const int code = i % 16 < 8 ? pair & 15 : pair >> 4;
        const float own = scale * F8E4M3ToF32(data[at + 4 + i / 16]);
        values.push_back((code & 8 ? -own : own) * kLevels[code & 7]);
      }
      continue;
    }
    const bool is_float = format.name.starts_with("f8");
    const float* levels = dtype == DType::kNF4       ? kNf4Levels
                          : dtype == DType::kBNB_FP4 ? kBnbFp4Levels
                                                     : nullptr;
    const bool has_min = !is_float && levels == nullptr;
    if (has_min) std::memcpy(&min, data + at + 4, 4);
    const uint8_t* codes = data + at + (has_min ? 8 : 4);
    for (int i = 0; i < format.block_elements; ++i) {
      float code;
      if (is_float) {
        code = F8E4M3ToF32(codes[i]);
      } else if (format.name.starts_with("i8")) {
        code = static_cast<int8_t>(codes[i]);
      } else {
        const uint8_t pair = codes[i / 32 * 16 + i % 16];
        const int nibble = i % 32 < 16 ? pair & 15 : pair >> 4;
        code = levels != nullptr ? levels[nibble] : static_cast<float>(nibble);
      }
      values.push_back(scale * code + min);
    }
  }
  return values;
}

inline std::vector<std::byte> ReadAllOf(const WeightSource& source,
                                        const WeightInfo& info) {
  std::vector<std::byte> bytes(info.bytes, std::byte{0xee});
  const absl::Status status = source.Read(info, 0, absl::MakeSpan(bytes));
  EXPECT_TRUE(status.ok()) << status;
  return bytes;
}

// That layer "l" comes out as `checkpoint.dense` in `dtype`, with or without a
// permutation; in pieces of any size as at once.
inline void CheckLayer(const Checkpoint& checkpoint, std::string_view dtype,
                       bool permuted) {
  const auto opened = OpenQuantized(checkpoint.config, checkpoint.weights);
  ASSERT_TRUE(opened.ok()) << opened.status();
  const WeightSource& source = **opened;
  const WeightInfo* info = source.Find("l.weight");
  ASSERT_NE(info, nullptr);
  EXPECT_EQ(source.weights().size(), permuted ? 2u : 1u);
  EXPECT_EQ(DTypeName(info->dtype), dtype);
  EXPECT_EQ(info->shape, (std::vector<int64_t>{checkpoint.n, checkpoint.k}));
  EXPECT_EQ(source.Mapped(*info), nullptr);
  const std::vector<std::byte> bytes = ReadAllOf(source, *info);
  std::vector<int32_t> permutation(static_cast<size_t>(checkpoint.k));
  for (size_t j = 0; j < permutation.size(); ++j) {
    permutation[j] = static_cast<int32_t>(j);
  }
  if (permuted) {
    const WeightInfo* order = source.Find("l.input_permutation");
    ASSERT_NE(order, nullptr);
    EXPECT_EQ(order->dtype, DType::kI32);
    EXPECT_EQ(order->shape, std::vector<int64_t>{checkpoint.k});
    const auto read = ReadAllOf(source, *order);
    std::memcpy(permutation.data(), read.data(), read.size());
  }
  const std::vector<float> values = DecodeBlocks(info->dtype, bytes);
  ASSERT_EQ(values.size(), checkpoint.dense.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const auto k = static_cast<size_t>(checkpoint.k);
    const size_t at = i / k * k + static_cast<size_t>(permutation[i % k]);
    // Scales have 8 significant bits: every product and sum is exact.
    ASSERT_EQ(values[i], checkpoint.dense[at]) << "element " << i;
  }
  Draw draw(7);
  const auto size = static_cast<int>(bytes.size());
  for (int trial = 0; trial < 200; ++trial) {
    const int begin = draw.Int(0, size);
    const int count = draw.Int(0, std::min(size - begin, trial * 40));
    std::vector<std::byte> part(static_cast<size_t>(count), std::byte{0xee});
    ASSERT_TRUE(
        source.Read(*info, static_cast<uint64_t>(begin), absl::MakeSpan(part))
            .ok());
    ASSERT_TRUE(std::equal(part.begin(), part.end(), bytes.begin() + begin))
        << count << " bytes at " << begin;
  }
}

}  // namespace inlay

#endif  // INLAY_TESTS_CORE_FORMATS_QUANTIZED_TEST_UTIL_H_
