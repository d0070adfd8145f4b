#include "memory/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace inlay {
namespace {

TEST(DTypeTest, NamesAreUniqueAndRoundTrip) {
#define INLAY_FORMAT(id, value, name, block_elements, block_bytes) \
  EXPECT_EQ(static_cast<int>(DType::id), value);                   \
  EXPECT_EQ(DTypeName(DType::id), name);                           \
  EXPECT_EQ(DTypeFromName(name), DType::id);                       \
  EXPECT_EQ(RowBytes(DType::id, 3 * (block_elements)), 3u * (block_bytes));
#include "memory/formats.def"
#undef INLAY_FORMAT
  EXPECT_EQ(DTypeFromName("f31"), std::nullopt);
  EXPECT_EQ(DTypeFromName(""), std::nullopt);
}

TEST(DTypeTest, EveryHalfRoundTrips) {
  for (uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float value = F16ToF32(half);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(F16ToF32(F32ToF16(value))));
      continue;
    }
    ASSERT_EQ(F32ToF16(value), half) << bits;
    // Against the definition: (-1)^s 2^(e - 15) 1.m, subnormals 2^-14 0.m.
    const int exponent = static_cast<int>(bits >> 10 & 31);
    const auto mantissa = static_cast<double>(bits & 1023);
    double want = exponent == 0 ? std::ldexp(mantissa, -24)
                                : std::ldexp(1024 + mantissa, exponent - 25);
    if (exponent == 31) want = std::numeric_limits<double>::infinity();
    ASSERT_EQ(static_cast<double>(value), (bits & 0x8000) != 0 ? -want : want);
  }
}

// Between two neighbours of a 16-bit format the middle goes to the even one,
// and all else to the nearer.
template <typename Widen, typename Narrow>
void CheckRounding(uint16_t largest, Widen widen, Narrow narrow) {
  for (uint16_t low = 0; low < largest; ++low) {
    const auto high = static_cast<uint16_t>(low + 1);
    const auto middle =
        static_cast<float>((static_cast<double>(widen(low)) + widen(high)) / 2);
    const float infinity = std::numeric_limits<float>::infinity();
    ASSERT_EQ(narrow(middle), low % 2 == 0 ? low : high) << low;
    ASSERT_EQ(narrow(std::nextafter(middle, 0.0f)), low) << low;
    ASSERT_EQ(narrow(std::nextafter(middle, infinity)), high) << low;
    ASSERT_EQ(narrow(-middle), narrow(middle) | 0x8000) << low;
  }
}

TEST(DTypeTest, HalfRoundsToNearestEven) {
  CheckRounding(0x7bff, F16ToF32, F32ToF16);
  EXPECT_EQ(F32ToF16(65519.996f), 0x7bff);
  EXPECT_EQ(F32ToF16(65520.0f), 0x7c00);
  EXPECT_EQ(F32ToF16(-1e30f), 0xfc00);
}

TEST(DTypeTest, BF16RoundsToNearestEven) {
  CheckRounding(0x7f7f, BF16ToF32, F32ToBF16);
  EXPECT_EQ(F32ToBF16(std::numeric_limits<float>::max()), 0x7f80);
}

TEST(DTypeTest, EveryF8Code) {
  for (uint32_t bits = 0; bits <= 0xff; ++bits) {
    const auto code = static_cast<uint8_t>(bits);
    const float value = F8E4M3ToF32(code);
    ASSERT_EQ(std::signbit(value), bits >= 0x80) << bits;
    if ((bits & 0x7f) == 0x7f) {
      ASSERT_TRUE(std::isnan(value)) << bits;
      ASSERT_EQ(F32ToF8E4M3(value), code);
      continue;
    }
    // The definition: 2^(e - 7) 1.m, subnormals 2^-6 0.m.
    const int exponent = static_cast<int>(bits >> 3 & 15);
    const int mantissa = static_cast<int>(bits & 7);
    const double want = exponent == 0 ? std::ldexp(mantissa, -9)
                                      : std::ldexp(8 + mantissa, exponent - 10);
    ASSERT_EQ(std::abs(static_cast<double>(value)), want) << bits;
    ASSERT_EQ(F32ToF8E4M3(value), code);
  }
}

// A rounding that is monotonic, and right at the middle of each two neighbours
// and on either side of it, is right everywhere; a sweep stands for monotonic.
TEST(DTypeTest, F8RoundsToNearestEvenAndSaturates) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (uint8_t low = 0; low < 0x7e; ++low) {
    const auto high = static_cast<uint8_t>(low + 1);
    const float middle = (F8E4M3ToF32(low) + F8E4M3ToF32(high)) / 2;
    ASSERT_EQ(F32ToF8E4M3(middle), low % 2 == 0 ? low : high) << +low;
    ASSERT_EQ(F32ToF8E4M3(std::nextafter(middle, 0.0f)), low) << +low;
    ASSERT_EQ(F32ToF8E4M3(std::nextafter(middle, infinity)), high) << +low;
    ASSERT_EQ(F32ToF8E4M3(-middle), F32ToF8E4M3(middle) | 0x80) << +low;
  }
  uint8_t last = 0;
  for (uint32_t bits = 0; bits <= 0x7f800000u; bits += 0x1000) {
    const uint8_t code = F32ToF8E4M3(std::bit_cast<float>(bits));
    ASSERT_GE(code, last) << bits;
    ASSERT_EQ(F32ToF8E4M3(std::bit_cast<float>(bits | 0x80000000u)),
              code | 0x80);
    last = code;
  }
  for (const float huge : {448.5f, 464.0f, 480.0f, 1e30f, infinity}) {
    EXPECT_EQ(F32ToF8E4M3(huge), 0x7e) << huge;
    EXPECT_EQ(F32ToF8E4M3(-huge), 0xfe) << huge;
  }
}

TEST(DTypeTest, NanStaysNan) {
  for (const uint32_t bits :
       {0x7fc00000u, 0x7f800001u, 0xff800001u, 0xffffffffu}) {
    const auto nan = std::bit_cast<float>(bits);
    EXPECT_TRUE(std::isnan(F16ToF32(F32ToF16(nan)))) << bits;
    EXPECT_TRUE(std::isnan(BF16ToF32(F32ToBF16(nan)))) << bits;
    EXPECT_TRUE(std::isnan(F8E4M3ToF32(F32ToF8E4M3(nan)))) << bits;
  }
}

}  // namespace
}  // namespace inlay
