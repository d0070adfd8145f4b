// The parser against headers built by hand: what is right comes out, every kind
// of wrong is a typed error that says what is wrong.
#include "core/formats/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "core/formats/gguf_types.h"
#include "tests/core/formats/gguf_bytes.h"

namespace inlay {
namespace {

using absl::StatusCode;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint64_t kHuge = std::numeric_limits<uint64_t>::max();

absl::Status StatusOf(const std::string& bytes) {
  return ParseGgufHeader(AsSpan(bytes), bytes.size()).status();
}
absl::Status StatusOf(const GgufParts& parts) {
  return StatusOf(GgufBytes(parts));
}

void ExpectBadHeader(const GgufParts& parts, const std::string& says,
                     StatusCode code = StatusCode::kInvalidArgument) {
  const absl::Status status = StatusOf(parts);
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(says));
}

GgufParts Good() {
  GgufParts parts;
  parts.entries = {
      U32Entry("n", 7), StringEntry("text", "hello"),
      Entry("flag", GgufType::kBool, Raw(uint8_t{1})),
      ArrayEntry("list", GgufType::kI16, 3,
                 Raw(int16_t{1}) + Raw(int16_t{-2}) + Raw(int16_t{3})),
      ArrayEntry("words", GgufType::kString, 2,
                 RawString("") + RawString("ab"))};
  parts.infos = {Info("w", {32, 3}, 2, 0),  // q4_0: 3 rows of 18 bytes
                 Info("b", {5}, 0, 64)};
  parts.data_bytes = 84;
  return parts;
}

TEST(Gguf, ReadsWhatIsThere) {
  for (const uint32_t version : {2u, 3u}) {
    GgufParts parts = Good();
    parts.version = version;
    const std::string bytes = GgufBytes(parts);
    const auto header = ParseGgufHeader(AsSpan(bytes), bytes.size());
    ASSERT_TRUE(header.ok()) << header.status();
    EXPECT_EQ(header->version, version);
    ASSERT_EQ(header->entries.size(), 5u);
    EXPECT_EQ(header->Find("none"), nullptr);
    const GgufValue* list = header->Find("list");
    ASSERT_NE(list, nullptr);
    EXPECT_TRUE(list->is_array);
    EXPECT_EQ(list->type, GgufType::kI16);
    EXPECT_EQ(list->count, 3u);
    EXPECT_EQ(list->data.size(), 6u);
    ASSERT_EQ(header->tensors.size(), 2u);
    const GgufTensor& bias = header->tensors[0];
    const GgufTensor& weight = header->tensors[1];
    EXPECT_EQ(bias.info.name, "b");
    EXPECT_THAT(weight.info.shape, ElementsAre(3, 32));
    EXPECT_EQ(weight.info.dtype, DType::kQ4_0);
    EXPECT_EQ(weight.info.bytes, 54u);
    EXPECT_EQ(weight.offset % 32, 0u);
    EXPECT_EQ(bias.offset, weight.offset + 64);
    EXPECT_EQ(bias.offset + bias.info.bytes, bytes.size());
  }
}

TEST(Gguf, EveryCutIsAnError) {
  const std::string bytes = GgufBytes(Good());
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_EQ(StatusOf(bytes.substr(0, size)).code(),
              StatusCode::kInvalidArgument)
        << size;
  }
}

TEST(Gguf, AsksForMoreWhereTheFileGoesOn) {
  const std::string bytes = GgufBytes(Good());
  const auto header = ParseGgufHeader(AsSpan(bytes), bytes.size());
  ASSERT_TRUE(header.ok());
  const uint64_t data = header->tensors[1].offset;
  for (size_t size = 0; size < bytes.size(); ++size) {
    const auto code =
        ParseGgufHeader(AsSpan(bytes).subspan(0, size), bytes.size())
            .status()
            .code();
    // Up to 31 bytes of padding lie between.
    if (size >= data) {
      EXPECT_EQ(code, StatusCode::kOk) << size;
    } else if (size + 32 <= data) {
      EXPECT_EQ(code, StatusCode::kOutOfRange) << size;
    }
  }
}

TEST(Gguf, EverySingleByteChangedIsSafe) {
  const std::string bytes = GgufBytes(Good());
  for (size_t i = 0; i < bytes.size(); ++i) {
    for (const int flip : {1, 0x80, 0xff}) {
      std::string changed = bytes;
      changed[i] = static_cast<char>(changed[i] ^ flip);
      const auto header = ParseGgufHeader(AsSpan(changed), changed.size());
      if (!header.ok()) continue;
      for (const GgufTensor& tensor : header->tensors) {
        ASSERT_LE(tensor.offset + tensor.info.bytes, changed.size());
      }
    }
  }
}

TEST(Gguf, MagicAndVersions) {
  EXPECT_THAT(std::string(StatusOf("GGML" + std::string(20, '\0')).message()),
              HasSubstr("GGML"));
  GgufParts parts = Good();
  parts.version = 1;
  ExpectBadHeader(parts, "version 1", StatusCode::kUnimplemented);
  parts.version = 4;
  ExpectBadHeader(parts, "version 4", StatusCode::kUnimplemented);
  parts.version = 0;
  ExpectBadHeader(parts, "version 0", StatusCode::kUnimplemented);
  parts.version = 0x03000000;
  ExpectBadHeader(parts, "big-endian", StatusCode::kUnimplemented);
}

TEST(Gguf, HugeCounts) {
  for (const int64_t count :
       {int64_t{100}, int64_t{1} << 32, std::numeric_limits<int64_t>::max()}) {
    GgufParts parts = Good();
    parts.num_entries = count;
    EXPECT_FALSE(StatusOf(parts).ok());
    parts = Good();
    parts.num_tensors = count;
    EXPECT_FALSE(StatusOf(parts).ok());
  }
}

TEST(Gguf, ValuesBeyondTheFile) {
  GgufParts parts;
  for (const uint64_t length : {uint64_t{1000}, kHuge, kHuge - 7, kHuge / 2}) {
    parts.entries = {Entry("k", GgufType::kString, Raw(length))};
    ExpectBadHeader(parts, "\"k\"");
    parts.entries = {RawString("k").replace(0, 8, Raw(length))};
    EXPECT_EQ(StatusOf(parts).code(), StatusCode::kInvalidArgument);
    for (const GgufType type :
         {GgufType::kU8, GgufType::kI32, GgufType::kF64, GgufType::kString}) {
      parts.entries = {ArrayEntry("k", type, length, "")};
      ExpectBadHeader(parts, "\"k\"");
    }
    parts.entries = {
        ArrayEntry("k", GgufType::kString, 2, RawString("a") + Raw(length))};
    ExpectBadHeader(parts, "\"k\"");
  }
}

TEST(Gguf, WrongTypes) {
  GgufParts parts;
  parts.entries = {Entry("k", static_cast<GgufType>(13), "1234")};
  ExpectBadHeader(parts, "value type 13");
  parts.entries = {ArrayEntry("k", static_cast<GgufType>(99), 1, "1234")};
  ExpectBadHeader(parts, "value type 99");
  parts.entries = {ArrayEntry("k", GgufType::kArray, 1, "12345678")};
  ExpectBadHeader(parts, "array of arrays", StatusCode::kUnimplemented);
  parts.entries = {Entry("k", GgufType::kBool, Raw(uint8_t{2}))};
  ExpectBadHeader(parts, "the bool 2");
  parts.entries = {
      ArrayEntry("k", GgufType::kBool, 3, std::string("\0\1\xff", 3))};
  ExpectBadHeader(parts, "the bool 255");
}

TEST(Gguf, Keys) {
  GgufParts parts;
  parts.entries = {U32Entry("k", 1), U32Entry("a", 2), U32Entry("k", 1)};
  ExpectBadHeader(parts, "\"k\": it is there several times");
  parts.entries = {U32Entry("", 1)};
  ExpectBadHeader(parts, "0 bytes");
  parts.entries = {U32Entry(std::string(65536, 'k'), 1)};
  ExpectBadHeader(parts, "65536 bytes");
  parts.entries = {U32Entry(std::string(65535, 'k'), 1)};
  EXPECT_TRUE(StatusOf(parts).ok());
}

TEST(Gguf, Alignment) {
  for (const uint32_t alignment : {8u, 16u, 64u, 4096u}) {
    GgufParts parts = Good();
    parts.entries.push_back(U32Entry("general.alignment", alignment));
    parts.alignment = alignment;
    parts.infos = {Info("w", {32, 3}, 2, 0), Info("b", {5}, 0, 4096)};
    parts.data_bytes = 4096 + 20;
    EXPECT_TRUE(StatusOf(parts).ok()) << alignment << StatusOf(parts);
  }
  for (const uint32_t alignment : {0u, 1u, 4u, 24u, 33u, 1u << 21, 1u << 31}) {
    GgufParts parts = Good();
    parts.entries.push_back(U32Entry("general.alignment", alignment));
    ExpectBadHeader(parts, "a power of two from 8");
  }
  GgufParts parts = Good();
  parts.entries.push_back(StringEntry("general.alignment", "32"));
  ExpectBadHeader(parts, "general.alignment");
}

TEST(Gguf, TensorShapes) {
  GgufParts parts;
  parts.data_bytes = 256;
  const auto with = [&](const std::string& info) {
    parts.infos = {info};
    return parts;
  };
  ExpectBadHeader(with(Info("t", {}, 0, 0)), "0 dimensions");
  ExpectBadHeader(with(Info("t", {1, 1, 1, 1, 1}, 0, 0)), "5 dimensions");
  EXPECT_TRUE(StatusOf(with(Info("t", {2, 2, 2, 2}, 0, 0))).ok());
  ExpectBadHeader(with(Info("t", {0}, 0, 0)), "dimension 0 is 0");
  ExpectBadHeader(with(Info("t", {4, 0}, 0, 0)), "dimension 1 is 0");
  ExpectBadHeader(with(Info("t", {kHuge}, 0, 0)), "dimension 0");
  ExpectBadHeader(with(Info("t", {31, 2}, 2, 0)), "multiples of 32");
  ExpectBadHeader(with(Info("t", {16, 2}, 8, 0)), "multiples of 32");
  // Products that wrap to something small.
  constexpr uint64_t k32 = uint64_t{1} << 32;
  ExpectBadHeader(with(Info("t", {k32, k32}, 0, 0)), "more bytes");
  ExpectBadHeader(with(Info("t", {k32, k32, 1, 4}, 24, 0)), "more bytes");
  ExpectBadHeader(with(Info("t", {uint64_t{1} << 62, 1}, 0, 0)), "more bytes");
  ExpectBadHeader(with(Info("t", {uint64_t{1} << 62, 4}, 24, 0)), "more bytes");
}

TEST(Gguf, TensorTypes) {
  GgufParts parts;
  parts.data_bytes = 256;
  parts.infos = {Info("t", {32}, 4, 0)};
  ExpectBadHeader(parts, "ggml type 4 (q4_2)", StatusCode::kUnimplemented);
  parts.infos = {Info("t", {32}, 9, 0)};
  ExpectBadHeader(parts, "q8_1", StatusCode::kUnimplemented);
  parts.infos = {Info("t", {32}, 4000000000u, 0)};
  ExpectBadHeader(parts,
                  "ggml type 4000000000 (unknown), allowed: f32, f16, q4_0",
                  StatusCode::kUnimplemented);
  for (uint32_t type = 0; type < 64; ++type) {
    const auto dtype = DTypeFromGgmlType(type);
    if (!dtype.ok()) continue;
    EXPECT_EQ(GgmlTypeFromDType(*dtype), type);
  }
  EXPECT_EQ(GgmlTypeFromDType(DType::kKvQ4), std::nullopt);
}

TEST(Gguf, TensorNames) {
  GgufParts parts;
  parts.data_bytes = 256;
  parts.infos = {Info("", {1}, 0, 0)};
  ExpectBadHeader(parts, "0 bytes");
  parts.infos = {Info(std::string(65, 't'), {1}, 0, 0)};
  ExpectBadHeader(parts, "65 bytes");
  parts.infos = {Info(std::string(64, 't'), {1}, 0, 0)};
  EXPECT_TRUE(StatusOf(parts).ok());
  parts.infos = {Info("t", {1}, 0, 0), Info("u", {1}, 0, 32),
                 Info("t", {1}, 0, 64)};
  ExpectBadHeader(parts, "several of this name");
}

TEST(Gguf, TensorPlaces) {
  GgufParts parts;
  parts.data_bytes = 128;
  parts.infos = {Info("t", {8}, 0, 4)};
  ExpectBadHeader(parts, "offset 4");
  parts.infos = {Info("t", {8}, 0, 128)};
  ExpectBadHeader(parts, "128 bytes");
  parts.infos = {Info("t", {32}, 0, 32)};
  ExpectBadHeader(parts, "at offset 32");
  for (const uint64_t offset : {kHuge - 31, uint64_t{1} << 63}) {
    parts.infos = {Info("t", {8}, 0, offset)};
    ExpectBadHeader(parts, "of the data");
  }
  parts.infos = {Info("t", {16}, 0, 0), Info("u", {8}, 0, 32)};
  ExpectBadHeader(parts, "overlaps that of tensor \"t\"");
  parts.infos = {Info("t", {8}, 0, 32), Info("u", {8}, 0, 32)};
  ExpectBadHeader(parts, "overlaps");
  // Any order and holes are fine.
  parts.infos = {Info("t", {8}, 0, 96), Info("u", {8}, 0, 0)};
  EXPECT_TRUE(StatusOf(parts).ok());
}

TEST(Gguf, HeadersWithoutTensorsNeedNoPadding) {
  GgufParts parts = Good();
  parts.infos.clear();
  parts.alignment = 1;
  parts.data_bytes = 0;
  EXPECT_TRUE(StatusOf(parts).ok());
}

}  // namespace
}  // namespace inlay
