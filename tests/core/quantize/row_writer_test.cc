// Rows on their way into a file: in pieces, bands and threads of any number
// they are what the codec makes of whole rows.
#include "core/quantize/row_writer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <random>
#include <string>
#include <vector>

#include "core/quantize/row_reader.h"
#include "kernels/cpu_float.h"
#include "kernels/quant/quant.h"
#include "tests/support/memory_weights.h"

namespace inlay {
namespace {

using Bytes = std::vector<std::byte>;

// Two pieces and a rest a row, two bands and a rest.
constexpr int64_t kWidth = 2 * 4096 + 256;
constexpr int64_t kNumRows = 2 * kBandElements / kWidth + 9;
constexpr auto kCount = static_cast<size_t>(kNumRows * kWidth);

std::vector<float> Drawn() {
  std::mt19937 rng(3);
  std::normal_distribution<float> normal(0.0f, 0.02f);
  std::vector<float> values(kCount);
  for (float& value : values) value = normal(rng);
  return values;
}

Bytes Stored(DType dtype, const std::vector<float>& values) {
  Bytes bytes(RowBytes(dtype, values.size()));
  if (const BlockCodec* codec = FindBlockCodec(dtype)) {
    codec->encode(values.data(),
                  static_cast<int64_t>(values.size()) /
                      GetFormatInfo(dtype).block_elements,
                  bytes.data());
    return bytes;
  }
  for (size_t i = 0; i < values.size(); ++i) {
    StoreFloat(dtype, bytes.data(), static_cast<int64_t>(i), values[i]);
  }
  return bytes;
}

std::vector<float> Loaded(DType dtype, const Bytes& bytes) {
  std::vector<float> values(bytes.size() / RowBytes(dtype, kWidth) * kWidth);
  if (const BlockCodec* codec = FindBlockCodec(dtype)) {
    codec->decode(bytes.data(),
                  static_cast<int64_t>(values.size()) /
                      GetFormatInfo(dtype).block_elements,
                  values.data());
    return values;
  }
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = LoadFloat(dtype, bytes.data(), static_cast<int64_t>(i));
  }
  return values;
}

// Writes a tensor of `stored` rows.
struct Writing {
  DType from = DType::kF16;
  DType to = DType::kQ4_K;
  bool mapped = true;
  int threads = 1;
  std::vector<RowRun> runs = {};
  RowWriter::Progress progress = [](uint64_t) { return true; };
  RowWriter::Sink sink = nullptr;  // null: into `written`
  Bytes written = {};
  RowErrors errors = {};

  absl::Status Run(const Bytes& stored) {
    MemoryWeights source(mapped, /*misaligned=*/true);
    source.Add("w", from, {kNumRows, kWidth}, stored.data());
    auto pool = ThreadPool::Create(threads);
    EXPECT_TRUE(pool.ok());
    RowLayout layout;
    layout.parts = {source.Find("w")};
    layout.runs = runs;
    auto reader = RowReader::Create(source, layout, {}, **pool);
    EXPECT_TRUE(reader.ok()) << reader.status();
    RowWriter::Sink all = [this](auto bytes) {
      written.insert(written.end(), bytes.begin(), bytes.end());
      return absl::OkStatus();
    };
    RowWriter writer(sink != nullptr ? sink : all, **pool, progress);
    return writer.Write(*reader, from, to, nullptr, &errors);
  }
};

TEST(RowWriterTest, WritesWhatTheCodecMakesOfTheRows) {
  const std::vector<float> drawn = Drawn();
  for (const DType from : {DType::kF16, DType::kBF16, DType::kQ8_0}) {
    const Bytes stored = Stored(from, drawn);
    const std::vector<float> values = Loaded(from, stored);
    for (const DType to : {DType::kQ4_K, DType::kQ4_0, DType::kF32}) {
      const Bytes want = Stored(to, values);
      const std::vector<float> rounded = Loaded(to, want);
      // By rows, as millions of equal sign in one sum lose digits.
      double differences = 0.0, squares = 0.0;
      for (size_t first_of_row = 0; first_of_row < kCount;
           first_of_row += kWidth) {
        double of_row = 0.0, squares_of_row = 0.0;
        for (size_t i = first_of_row; i < first_of_row + kWidth; ++i) {
          of_row += std::pow(double{values[i]} - double{rounded[i]}, 2);
          squares_of_row += std::pow(double{values[i]}, 2);
        }
        differences += of_row;
        squares += squares_of_row;
      }
      RowErrors first;
      for (const int threads : {1, 3, 9}) {
        for (const bool mapped : {true, false}) {
          SCOPED_TRACE(::testing::Message()
                       << DTypeName(from) << " to " << DTypeName(to) << ", "
                       << threads << " threads, mapped " << mapped);
          uint64_t told = 0;
          Writing writing{.from = from, .to = to};
          writing.mapped = mapped;
          writing.threads = threads;
          writing.progress = [&](uint64_t elements) {
            told += elements;
            return true;
          };
          ASSERT_TRUE(writing.Run(stored).ok());
          EXPECT_TRUE(writing.written == want);
          EXPECT_EQ(told, kCount);
          // Positive terms in float64, in any order.
          EXPECT_NEAR(writing.errors.differences, differences,
                      static_cast<double>(kCount) * 0x1p-52 * differences);
          EXPECT_NEAR(writing.errors.values, squares,
                      static_cast<double>(kCount) * 0x1p-52 * squares);
          // Threads do not change the sums.
          if (first.values == 0.0) first = writing.errors;
          EXPECT_EQ(writing.errors.differences, first.differences);
          EXPECT_EQ(writing.errors.values, first.values);
        }
      }
    }
  }
}

TEST(RowWriterTest, RunsOfRowsAndFactors) {
  const Bytes stored = Stored(DType::kF16, Drawn());
  std::vector<float> values = Loaded(DType::kF16, stored);
  const int64_t cut = 100;
  std::rotate(values.begin(), values.begin() + cut * kWidth, values.end());
  const auto tail = values.begin() + (kNumRows - cut) * kWidth;
  std::for_each(tail, values.end(), [](float& value) { value *= 0.3f; });
  for (const bool mapped : {true, false}) {
    Writing writing;
    writing.mapped = mapped;
    writing.threads = 3;
    writing.runs = {{0, cut, kNumRows - cut}, {0, 0, cut, 0.3f}};
    ASSERT_TRUE(writing.Run(stored).ok());
    EXPECT_TRUE(writing.written == Stored(DType::kQ4_K, values)) << mapped;
  }
}

TEST(RowWriterTest, ValuesThatAreNotFinite) {
  std::vector<float> values = Drawn();
  values[kCount - 5] = std::numeric_limits<float>::infinity();
  for (const int threads : {1, 3}) {
    Writing writing;
    writing.threads = threads;
    EXPECT_EQ(writing.Run(Stored(DType::kF16, values)).code(),
              absl::StatusCode::kInvalidArgument);
  }
}

TEST(RowWriterTest, SinksThatFail) {
  const Bytes stored = Stored(DType::kF16, Drawn());
  for (const int threads : {1, 3}) {
    for (const int fails : {1, 2, 3}) {  // there are three bands
      int calls = 0;
      Writing writing;
      writing.threads = threads;
      writing.sink = [&](auto) -> absl::Status {
        return ++calls == fails ? absl::DataLossError("full")
                                : absl::OkStatus();
      };
      EXPECT_EQ(writing.Run(stored).code(), absl::StatusCode::kDataLoss);
      EXPECT_EQ(calls, fails);
    }
    // On a thread of the pool nothing above would catch it.
    Writing writing;
    writing.threads = threads;
    int calls = 0;
    writing.sink = [&](auto) -> absl::Status {
      if (++calls == 1) throw std::bad_alloc();
      return absl::OkStatus();
    };
    EXPECT_FALSE(writing.Run(stored).ok());
    EXPECT_EQ(calls, 1);
  }
}

TEST(RowWriterTest, CancelsBetweenBands) {
  const std::vector<float> values = Drawn();
  const Bytes want = Stored(DType::kQ4_K, values);
  for (const int threads : {1, 3}) {
    int calls = 0;
    Writing writing{.from = DType::kF32};
    writing.threads = threads;
    writing.progress = [&](uint64_t elements) {
      EXPECT_LE(elements, static_cast<uint64_t>(kBandElements));
      return ++calls < 2;
    };
    EXPECT_EQ(writing.Run(Stored(DType::kF32, values)).code(),
              absl::StatusCode::kCancelled);
    EXPECT_EQ(calls, 2);
    EXPECT_LT(writing.written.size(), want.size());
    EXPECT_TRUE(std::equal(writing.written.begin(), writing.written.end(),
                           want.begin()));
  }
}

}  // namespace
}  // namespace inlay
