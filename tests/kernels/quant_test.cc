// Block formats: every codec of formats.def against independent values
// (tests/data/quant/make.py), its encoder, and hostile input.
#include "kernels/quant/quant.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "kernels/quant/fp4.h"
#include "kernels/quant/grid.h"
#include "tests/support/paths/paths.h"

namespace inlay {
namespace {

using Bytes = std::vector<std::byte>;

constexpr DType kWeightFormats[] = {
#define INLAY_FORMAT(id, value, name, block_elements, block_bytes)
#define INLAY_WEIGHT_FORMAT(id, value, name, block_elements, block_bytes) \
  DType::k##id,
#include "memory/formats.def"
#undef INLAY_FORMAT
};

int Elements(const BlockCodec& codec) {
  return GetFormatInfo(codec.dtype).block_elements;
}
int BlockBytes(const BlockCodec& codec) {
  return GetFormatInfo(codec.dtype).block_bytes;
}

// make.py's random_bytes: byte i is the top one of splitmix64's output for
// the state stream * 2^32 + i.
std::byte RandomByte(uint64_t stream, uint64_t i) {
  uint64_t x = ((stream << 32) + i) * 0x9e3779b97f4a7c15u;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return static_cast<std::byte>((x ^ x >> 31) >> 56);
}

Bytes MaskedBlocks(const Bytes& mask, size_t blocks) {
  Bytes bytes(blocks * mask.size());
  for (size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = RandomByte(1, i) & mask[i % mask.size()];
  return bytes;
}

// NaN where decode writes nothing.
std::vector<float> Decode(const BlockCodec& codec, const std::byte* src,
                          int64_t blocks) {
  std::vector<float> values(static_cast<size_t>(blocks * Elements(codec)),
                            std::numeric_limits<float>::quiet_NaN());
  codec.decode(src, blocks, values.data());
  return values;
}

Bytes Encode(const BlockCodec& codec, const std::vector<float>& values) {
  const auto blocks = static_cast<int64_t>(values.size()) / Elements(codec);
  Bytes bytes(static_cast<size_t>(blocks * BlockBytes(codec)), std::byte{0xa5});
  codec.encode(values.data(), blocks, bytes.data());
  return bytes;
}

std::vector<float> Coded(const BlockCodec& codec,
                         const std::vector<float>& values) {
  const Bytes bytes = Encode(codec, values);
  return Decode(codec, bytes.data(),
                static_cast<int64_t>(values.size()) / Elements(codec));
}

std::vector<float> Gaussian(size_t count, float mean = 0.0f,
                            float deviation = 1.0f) {
  std::mt19937 rng(11);
  std::normal_distribution<float> normal(mean, deviation);
  std::vector<float> values(count);
  for (float& value : values) value = normal(rng);
  return values;
}

// Root mean square of the error, relative to that of the values.
double RelativeError(const std::vector<float>& got,
                     const std::vector<float>& want) {
  double error = 0.0, norm = 0.0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double off = double{got[i]} - double{want[i]};
    error += off * off;
    norm += double{want[i]} * double{want[i]};
  }
  return std::sqrt(error / norm);
}

bool AllSameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// zlib's CRC-32.
uint32_t Crc32(const std::vector<float>& values) {
  std::array<uint32_t, 256> table;
  for (uint32_t i = 0; i < 256; ++i) {
    table[i] = i;
    for (int bit = 0; bit < 8; ++bit)
      table[i] = table[i] >> 1 ^ (table[i] & 1 ? 0xedb88320u : 0u);
  }
  uint32_t crc = ~0u;
  const auto* bytes = reinterpret_cast<const uint8_t*>(values.data());
  for (size_t i = 0; i < values.size() * sizeof(float); ++i)
    crc = crc >> 8 ^ table[(crc ^ bytes[i]) & 255];
  return ~crc;
}

struct Decoded {
  Bytes mask;
  uint32_t crc = 0;
  Bytes blocks;
  std::vector<float> values;
};

Decoded ReadReference(const BlockCodec& codec) {
  const std::string path =
      TestData() + "/quant/" + std::string(DTypeName(codec.dtype)) + ".bin";
  std::ifstream file(path, std::ios::binary);
  const std::string data{std::istreambuf_iterator<char>(file), {}};
  const auto size = static_cast<size_t>(BlockBytes(codec));
  const size_t value_bytes = static_cast<size_t>(Elements(codec)) * 4;
  Decoded reference;
  if (data.size() < size + 4) return reference;
  const size_t blocks = (data.size() - size - 4) / (size + value_bytes);
  const auto* at = reinterpret_cast<const std::byte*>(data.data());
  reference.mask.assign(at, at + size);
  std::memcpy(&reference.crc, at + size, 4);
  at += size + 4;
  reference.blocks.assign(at, at + blocks * size);
  reference.values.resize(blocks * value_bytes / 4);
  std::memcpy(reference.values.data(), at + blocks * size,
              blocks * value_bytes);
  return reference;
}

TEST(QuantTest, EveryWeightFormatHasItsCodec) {
  ASSERT_EQ(BlockCodecs().size(), std::size(kWeightFormats));
  for (size_t i = 0; i < BlockCodecs().size(); ++i) {
    EXPECT_EQ(BlockCodecs()[i]->dtype, kWeightFormats[i]);
    EXPECT_EQ(FindBlockCodec(kWeightFormats[i]), BlockCodecs()[i]);
    EXPECT_NE(BlockCodecs()[i]->decode, nullptr);
  }
  EXPECT_FALSE(IsBlockFormat(DType::kF16));
  EXPECT_FALSE(IsBlockFormat(DType::kI8));
  EXPECT_FALSE(IsBlockFormat(DType::kKvQ4));
}

// Formats of our own, which nobody else decodes: their rules, an element at a
// time.
template <typename T>
T At(const std::byte* bytes, int64_t offset) {
  T value;
  std::memcpy(&value, bytes + offset, sizeof(value));
  return value;
}

bool IsOurs(DType dtype) {
  return dtype == DType::kNVFP4_F32 ||
         DTypeName(dtype).find("_g") != std::string_view::npos;
}

float OurValue(DType dtype, const std::byte* block, int e) {
  const std::string_view name = DTypeName(dtype);
  const auto scale = At<float>(block, 0);
  if (name.substr(0, 2) == "f8") {
    return scale * F8E4M3ToF32(At<uint8_t>(block, 4 + e));
  }
  if (name == "nvfp4_f32") {
    // The factor, e4m3 without its sign, and OCP's e2m1: halves of the one,
    // doubles of the other.
    const int bits = At<uint8_t>(block, 4 + e / 16) & 127;
    const float of_16 =
        bits == 127 ? 0.0f : F8E4M3ToF32(static_cast<uint8_t>(bits)) / 2.0f;
    const int pair = At<uint8_t>(block, 8 + e / 16 * 8 + e % 8);
    const int code = e % 16 < 8 ? pair & 15 : pair >> 4;
    constexpr float kLevels[] = {0, .5f, 1, 1.5f, 2, 3, 4, 6};
    const float level = 2.0f * kLevels[code & 7];
    return scale * of_16 * (code <= 8 ? level : -level);  // no -0
  }
  const auto min = At<float>(block, 4);
  if (name.substr(0, 2) == "i8") {
    return scale * static_cast<float>(At<int8_t>(block, 8 + e)) + min;
  }
  const int code = At<uint8_t>(block, 8 + e / 32 * 16 + e % 16);
  return scale * static_cast<float>(e % 32 < 16 ? code & 15 : code >> 4) + min;
}

// The sweep's blocks take every byte value at every position (but for bytes
// of scales), some 4,096 / 256 = 16 times each beside others.
TEST(QuantTest, DecodesAsTheReference) {
  constexpr size_t kSweep = 4096;
  for (const BlockCodec* codec : BlockCodecs()) {
    if (IsOurs(codec->dtype)) continue;
    SCOPED_TRACE(DTypeName(codec->dtype));
    const Decoded reference = ReadReference(*codec);
    ASSERT_GT(reference.values.size(), 0u) << "no file in data/quant";
    const int elements = Elements(*codec);
    const std::vector<float> got =
        Decode(*codec, reference.blocks.data(),
               static_cast<int64_t>(reference.values.size()) / elements);
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(std::bit_cast<uint32_t>(got[i]),
                std::bit_cast<uint32_t>(reference.values[i]))
          << "element " << i << ": " << got[i] << " " << reference.values[i];
    }
    const Bytes sweep = MaskedBlocks(reference.mask, kSweep);
    EXPECT_EQ(Crc32(Decode(*codec, sweep.data(), kSweep)), reference.crc);
  }
}

TEST(QuantTest, DecodesOurOwnFormats) {
  constexpr size_t kSweep = 4096;
  for (const BlockCodec* codec : BlockCodecs()) {
    if (!IsOurs(codec->dtype)) continue;
    SCOPED_TRACE(DTypeName(codec->dtype));
    const auto size = static_cast<size_t>(BlockBytes(*codec));
    Bytes mask(size, std::byte{0xff});
    mask[3] = std::byte{0xbf};  // scale: below 2
    const std::string_view name = DTypeName(codec->dtype);
    const bool has_min = name.substr(0, 2) != "f8" && name != "nvfp4_f32";
    if (has_min) mask[7] = std::byte{0xbf};
    const Bytes sweep = MaskedBlocks(mask, kSweep);
    const std::vector<float> got = Decode(*codec, sweep.data(), kSweep);
    for (size_t b = 0; b < kSweep; ++b) {
      for (int e = 0; e < Elements(*codec); ++e) {
        const float want = OurValue(codec->dtype, &sweep[b * size], e);
        const float value = got[b * static_cast<size_t>(Elements(*codec)) +
                                static_cast<size_t>(e)];
        ASSERT_EQ(std::bit_cast<uint32_t>(value), std::bit_cast<uint32_t>(want))
            << "block " << b << " element " << e << ": " << value << " "
            << want;
      }
    }
  }
}

TEST(QuantTest, BlocksMayLieAnywhere) {
  for (const BlockCodec* codec : BlockCodecs()) {
    SCOPED_TRACE(DTypeName(codec->dtype));
    Bytes blocks(static_cast<size_t>(3 * BlockBytes(*codec)));
    for (size_t i = 0; i < blocks.size(); ++i)
      blocks[i] = RandomByte(3, i) & std::byte{0x3f};
    const std::vector<float> want = Decode(*codec, blocks.data(), 3);
    for (size_t shift = 1; shift < 8; ++shift) {
      Bytes moved(shift);
      moved.insert(moved.end(), blocks.begin(), blocks.end());
      EXPECT_TRUE(AllSameBits(Decode(*codec, &moved[shift], 3), want)) << shift;
      if (codec->encode == nullptr) continue;
      const std::vector<float> values =
          Gaussian(static_cast<size_t>(3 * Elements(*codec)));
      codec->encode(values.data(), 3, &moved[shift]);
      EXPECT_TRUE(std::equal(moved.begin() + static_cast<ptrdiff_t>(shift),
                             moved.end(), Encode(*codec, values).begin()))
          << shift;
    }
  }
}

// Relative error of the encoders on Gaussian values, in 1/10,000. Of formats
// with n equal steps between the extremes it follows from them: rounding errs
// by a step / sqrt(12), and the extremes of 32 Gaussian values are about 2.07
// deviations from their mean, of 128 about 2.6, so that it is 2 * 2.07 / n /
// sqrt(12) = 1.2 / n (1.5 / n): 800 (1,000) for n = 15. e4m3 has
// steps of 1/8 of the power of two below: 1 / 8 / sqrt(12) of that power, and
// 240 of a value 1.5 times as large. The rest is measured with these values,
// and rounded up by 2%; for comparison: no code of b bits an element errs by
// less than 2^-b, which is 2,400 for iq2_xxs.
struct ErrorBound {
  DType dtype;
  int error;
};
constexpr ErrorBound kBounds[] = {
    {DType::kQ4_0, 870},     {DType::kQ8_0, 55},       {DType::kQ4_1, 800},
    {DType::kQ5_0, 434},     {DType::kQ5_1, 387},      {DType::kQ2_K, 2740},
    {DType::kQ3_K, 1460},    {DType::kQ4_K, 728},      {DType::kQ5_K, 365},
    {DType::kQ6_K, 177},     {DType::kIQ4_NL, 755},    {DType::kIQ4_XS, 763},
    {DType::kIQ2_XXS, 3340}, {DType::kIQ2_XS, 2920},   {DType::kIQ2_S, 2440},
    {DType::kIQ3_XXS, 1830}, {DType::kIQ3_S, 1350},    {DType::kIQ1_S, 4560},
    {DType::kIQ1_M, 4220},   {DType::kMXFP4, 1130},    {DType::kNVFP4, 977},
    {DType::kTQ1_0, 8240},   {DType::kTQ2_0, 8240},    {DType::kU4_G32, 800},
    {DType::kU4_G128, 1020}, {DType::kI8_G32, 47},     {DType::kI8_G128, 60},
    {DType::kF8_G32, 245},   {DType::kF8_G128, 263},   {DType::kNF4, 934},
    {DType::kBNB_FP4, 1236}, {DType::kNVFP4_F32, 950},
};

TEST(QuantTest, EncodesWithinTheBound) {
  for (const BlockCodec* codec : BlockCodecs()) {
    if (codec->encode == nullptr) continue;
    SCOPED_TRACE(DTypeName(codec->dtype));
    const std::vector<float> values = Gaussian(32 * 256);
    const double error = 10000 * RelativeError(Coded(*codec, values), values);
    const auto* bound = std::find_if(
        std::begin(kBounds), std::end(kBounds),
        [&](const ErrorBound& b) { return b.dtype == codec->dtype; });
    EXPECT_NE(bound, std::end(kBounds)) << error;
    if (bound == std::end(kBounds)) continue;
    EXPECT_LE(error, bound->error);
    EXPECT_GE(error, 0.9 * bound->error);
  }
}

// Scales follow the values: what holds at 1 holds at any size that the scales'
// own type can express; powers of two change nothing while scales are normal
// numbers.
TEST(QuantTest, ErrorDoesNotDependOnTheSize) {
  for (const BlockCodec* codec : BlockCodecs()) {
    if (codec->encode == nullptr) continue;
    SCOPED_TRACE(DTypeName(codec->dtype));
    const std::vector<float> values = Gaussian(8 * 256);
    const double error = RelativeError(Coded(*codec, values), values);
    for (const float size : {0x1p-2f, 0x1p4f}) {
      std::vector<float> scaled = values;
      for (float& value : scaled) value *= size;
      EXPECT_EQ(RelativeError(Coded(*codec, scaled), scaled), error) << size;
    }
  }
}

// Formats whose scale is taken from the largest value alone, which is then a
// value of the block: coding their own values again changes nothing.
TEST(QuantTest, PlainFormatsKeepTheirOwnValues) {
  const std::set<std::string_view> plain = {"q4_0",  "q4_1",  "q5_0",   "q5_1",
                                            "q8_0",  "mxfp4", "nvfp4",  "tq1_0",
                                            "tq2_0", "nf4",   "bnb_fp4"};
  for (const BlockCodec* codec : BlockCodecs()) {
    if (codec->encode == nullptr) continue;
    SCOPED_TRACE(DTypeName(codec->dtype));
    const std::vector<float> values = Gaussian(8 * 256, 0.1f, 0.5f);
    const std::vector<float> once = Coded(*codec, values);
    const std::vector<float> twice = Coded(*codec, once);
    if (plain.count(DTypeName(codec->dtype)) != 0) {
      for (size_t i = 0; i < once.size(); ++i)
        ASSERT_EQ(once[i], twice[i]) << i;
    }
    // The others look for a scale, and may find another one, not a worse one.
    EXPECT_LE(RelativeError(twice, once), RelativeError(once, values));
  }
}

TEST(QuantTest, ZerosStayZeros) {
  for (const BlockCodec* codec : BlockCodecs()) {
    if (codec->encode == nullptr) continue;
    SCOPED_TRACE(DTypeName(codec->dtype));
    for (const float value : Coded(*codec, std::vector<float>(512)))
      ASSERT_EQ(value, 0.0f);
  }
}

// Whatever goes in, encode writes whole blocks, and the blocks beside are not
// touched by it.
TEST(QuantTest, HostileValues) {
  const float infinity = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float most = std::numeric_limits<float>::max();
  const float least = std::numeric_limits<float>::denorm_min();
  for (const BlockCodec* codec : BlockCodecs()) {
    if (codec->encode == nullptr) continue;
    SCOPED_TRACE(DTypeName(codec->dtype));
    const auto elements = static_cast<size_t>(Elements(*codec));
    const std::vector<float> good = Gaussian(3 * elements);
    const std::vector<float> want = Coded(*codec, good);
    for (const float bad : {infinity, -infinity, nan, -nan, most, -most, least,
                            -least, 1e30f, 1e-30f, -1e-41f}) {
      for (const size_t count : {size_t{1}, elements / 2, elements}) {
        std::vector<float> values = good;
        for (size_t i = 0; i < count; ++i) values[elements + i] = bad;
        if (count == elements / 2) values[elements] = -bad;
        const std::vector<float> got = Coded(*codec, values);
        for (size_t i = 0; i < elements; ++i) {
          ASSERT_EQ(got[i], want[i]);
          ASSERT_EQ(got[2 * elements + i], want[2 * elements + i]);
        }
      }
    }
  }
}

TEST(QuantTest, EveryE8M0Scale) {
  for (int bits = 0; bits < 255; ++bits) {
    EXPECT_EQ(HalfE8M0(static_cast<uint8_t>(bits)), std::ldexp(1.0, bits - 128))
        << bits;
  }
  EXPECT_TRUE(std::isnan(HalfE8M0(255)));
}

TEST(QuantTest, EveryUE4M3Scale) {
  for (int bits = 0; bits < 256; ++bits) {
    const int exponent = bits >> 3 & 15;
    const int mantissa = bits & 7;
    double want = exponent == 0 ? std::ldexp(mantissa, -9)
                                : std::ldexp(8 + mantissa, exponent - 10);
    if ((bits & 127) == 127) want = 0.0;
    EXPECT_EQ(2.0f * HalfUE4M3(static_cast<uint8_t>(bits)), want) << bits;
  }
}

TEST(QuantTest, E2M1RoundsToNearestEven) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (uint8_t code = 0; code < 8; ++code) {
    // The definition: 2^(e - 1) 1.m, subnormals 0.m.
    const double value =
        code < 2 ? code / 2.0 : std::ldexp(1.0 + code % 2 / 2.0, code / 2 - 1);
    EXPECT_EQ(kE2M1Doubled[code], 2.0 * value);
    EXPECT_EQ(kE2M1Doubled[code | 8], -2.0 * value);
    const auto at = static_cast<float>(value);
    EXPECT_EQ(F32ToE2M1(at), code);
    if (code > 0) {
      EXPECT_EQ(F32ToE2M1(-at), code | 8);
    }
    if (code == 7) continue;
    const auto next = static_cast<float>(kE2M1Doubled[code + 1]) / 2.0f;
    const float middle = (at + next) / 2.0f;
    EXPECT_EQ(F32ToE2M1(middle), code % 2 == 0 ? code : code + 1);
    EXPECT_EQ(F32ToE2M1(std::nextafter(middle, 0.0f)), code);
    EXPECT_EQ(F32ToE2M1(std::nextafter(middle, infinity)), code + 1);
  }
  EXPECT_EQ(F32ToE2M1(infinity), 7);
  EXPECT_EQ(F32ToE2M1(-1e30f), 15);
  EXPECT_EQ(F32ToE2M1(std::numeric_limits<float>::quiet_NaN()), 0);
}

// Any bytes are a block.
TEST(QuantTest, AnyBytesDecode) {
  for (const BlockCodec* codec : BlockCodecs()) {
    SCOPED_TRACE(DTypeName(codec->dtype));
    for (int byte = 0; byte < 256; ++byte) {
      const Bytes block(static_cast<size_t>(BlockBytes(*codec)),
                        static_cast<std::byte>(byte));
      Decode(*codec, block.data(), 1);
    }
    const Bytes zeros(static_cast<size_t>(BlockBytes(*codec)));
    for (const float value : Decode(*codec, zeros.data(), 1))
      ASSERT_EQ(value, 0.0f);
  }
}

double WeightedError(const BlockCodec& codec, const Bytes& bytes,
                     const std::vector<float>& want,
                     const std::vector<float>& weights) {
  const std::vector<float> got = Decode(
      codec, bytes.data(), static_cast<int64_t>(want.size()) / Elements(codec));
  double error = 0.0;
  for (size_t i = 0; i < want.size(); ++i) {
    error += weights[i] * std::pow(double{got[i]} - double{want[i]}, 2);
  }
  return error;
}

// Scales and levels say what the packed block decodes to, to the bit.
TEST(BlockGridTest, PackedBlocksAreWhatTheGridSays) {
  int grids = 0;
  for (const BlockCodec* codec : BlockCodecs()) {
    const BlockGrid* grid = codec->grid;
    if (grid == nullptr) continue;
    SCOPED_TRACE(DTypeName(codec->dtype));
    ++grids;
    ASSERT_EQ(grid->elements, Elements(*codec));
    ASSERT_EQ(grid->block_bytes, BlockBytes(*codec));
    const auto size = static_cast<size_t>(grid->elements);
    std::mt19937 rng(5);
    for (const float mean : {0.0f, -3.0f, 20.0f}) {
      const std::vector<float> x = Gaussian(size, mean);
      const std::vector<float> ones(size, 1.0f);
      for (const float* weights : {static_cast<const float*>(nullptr),
                                   static_cast<const float*>(ones.data())}) {
        GridScales scales;
        grid->fit(x.data(), weights, 1, &scales);
        std::vector<int8_t> levels(size);
        std::vector<float> values(size);
        for (int i = 0; i < grid->elements; ++i) {
          const auto at = static_cast<size_t>(i);
          // Any level of the format, not only the nearest.
          const float value =
              i % 2 == 0
                  ? x[at]
                  : x[at] + std::uniform_real_distribution(-9.f, 9.f)(rng);
          levels[at] =
              static_cast<int8_t>(grid->NearestLevel(scales, i, value));
          values[at] = grid->Value(scales, i, levels[at]);
        }
        Bytes block(static_cast<size_t>(grid->block_bytes));
        grid->pack(scales, levels.data(), block.data());
        const std::vector<float> got = Decode(*codec, block.data(), 1);
        for (size_t i = 0; i < size; ++i) ASSERT_EQ(got[i], values[i]) << i;
      }
    }
  }
  EXPECT_EQ(grids, 16);
}

// What weights are for; and equal ones are no worse than the usual rule.
TEST(BlockGridTest, WeightsLowerTheWeightedError) {
  for (const BlockCodec* codec : BlockCodecs()) {
    if (codec->grid == nullptr) continue;
    SCOPED_TRACE(DTypeName(codec->dtype));
    const int64_t blocks = 40;
    const auto size = static_cast<size_t>(blocks * Elements(*codec));
    const std::vector<float> x = Gaussian(size, 0.05f);
    std::vector<float> weights(size);
    std::mt19937 rng(3);
    for (float& weight : weights) {
      weight = std::exp(std::normal_distribution(0.0f, 1.5f)(rng));
    }
    const std::vector<float> ones(size, 1.0f);
    const auto encoded = [&](const std::vector<float>* by) {
      Bytes bytes(static_cast<size_t>(blocks * BlockBytes(*codec)));
      EncodeOnGrid(*codec->grid, x.data(), by == nullptr ? nullptr : by->data(),
                   blocks, bytes.data());
      return bytes;
    };
    const Bytes usual = encoded(nullptr), plain = encoded(&ones),
                weighted = encoded(&weights);
    // Scales and minima are rounded after they were found, for better or worse;
    // how much weights gain is quality. Not derived.
    EXPECT_LE(WeightedError(*codec, plain, x, ones),
              1.001 * WeightedError(*codec, usual, x, ones));
    EXPECT_LT(WeightedError(*codec, weighted, x, weights),
              0.99 * WeightedError(*codec, plain, x, weights));
  }
}

TEST(BlockGridTest, GroupsHaveWholeZeroPoints) {
  for (const DType dtype :
       {DType::kU4_G32, DType::kU4_G128, DType::kI8_G32, DType::kI8_G128}) {
    const BlockGrid& grid = *FindBlockCodec(dtype)->grid;
    const auto size = static_cast<size_t>(grid.elements);
    for (const float mean : {0.0f, 5.0f, -5.0f}) {
      const std::vector<float> x = Gaussian(size, mean);
      const std::vector<float> ones(size, 1.0f);
      for (const bool weighted : {false, true}) {
        GridScales scales;
        grid.fit(x.data(), weighted ? ones.data() : nullptr, 1, &scales);
        const float scale = scales.scale[0];
        EXPECT_EQ(F16ToF32(F32ToF16(scale)), scale);
        const float zero =
            -scales.min[0] / scale - static_cast<float>(grid.least);
        // min = -scale * whole number, rounded, and the quotient, of at most
        // 255.
        EXPECT_NEAR(zero, std::round(zero), 255 * 2.01 * 0x1p-24);
        EXPECT_GE(std::round(zero), 1);
        EXPECT_LE(std::round(zero), grid.most - grid.least);
      }
    }
  }
}

TEST(BlockGridTest, HostileValuesDoNoHarm) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const BlockCodec* codec : BlockCodecs()) {
    if (codec->grid == nullptr) continue;
    const auto size = static_cast<size_t>(Elements(*codec));
    for (const float bad :
         {std::nanf(""), kInfinity, -kInfinity, 3e38f, 0.0f, 1e-42f}) {
      std::vector<float> x(size, bad);
      for (const bool alone : {true, false}) {
        if (!alone) x = Gaussian(size), x[3] = bad;
        const std::vector<float> ones(size, 1.0f);
        Bytes bytes(static_cast<size_t>(BlockBytes(*codec)));
        EncodeOnGrid(*codec->grid, x.data(), nullptr, 1, bytes.data());
        EncodeOnGrid(*codec->grid, x.data(), ones.data(), 1, bytes.data());
        if (bad != 0.0f || !alone) continue;
        for (const float value : Decode(*codec, bytes.data(), 1)) {
          EXPECT_EQ(value, 0.0f);
        }
      }
    }
  }
}

}  // namespace
}  // namespace inlay
