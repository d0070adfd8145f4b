#include "core/formats/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>

#include "tests/core/formats/format_test_util.h"

namespace inlay {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

absl::StatusOr<std::vector<SafetensorsTensor>> Parse(std::string_view file) {
  // A buffer of exactly this size, so that sanitizers see any read beyond it.
  const std::unique_ptr<std::byte[]> bytes(new std::byte[file.size() + 1]);
  std::byte* const begin = bytes.get() + 1;
  std::memcpy(begin, file.data(), file.size());
  return ParseSafetensorsHeader({begin, file.size()}, file.size());
}

constexpr char kTwoTensors[] =
    R"({"__metadata__":{"format":"pt"},)"
    R"("b":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]},)"
    R"("a":{"dtype":"F32","shape":[],"data_offsets":[12,16]}}   )";

TEST(Safetensors, ReadsTensorsSortedByName) {
  const std::string file = SafetensorsFile(kTwoTensors, 16);
  const auto tensors = Parse(file);
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  ASSERT_EQ(tensors->size(), 2u);
  const size_t data = file.size() - 16;
  EXPECT_EQ((*tensors)[0].info.name, "a");
  EXPECT_EQ((*tensors)[0].info.dtype, DType::kF32);
  EXPECT_THAT((*tensors)[0].info.shape, IsEmpty());
  EXPECT_EQ((*tensors)[0].info.bytes, 4u);
  EXPECT_EQ((*tensors)[0].offset, data + 12);
  EXPECT_EQ((*tensors)[1].info.name, "b");
  EXPECT_EQ((*tensors)[1].info.dtype, DType::kBF16);
  EXPECT_THAT((*tensors)[1].info.shape, ElementsAre(2, 3));
  EXPECT_EQ((*tensors)[1].info.bytes, 12u);
  EXPECT_EQ((*tensors)[1].offset, data);
}

TEST(Safetensors, EveryDataTypeHasItsSize) {
  const struct {
    const char* name;
    DType dtype;
    int bytes;
  } kCases[] = {
      {"F32", DType::kF32, 4},        {"F16", DType::kF16, 2},
      {"BF16", DType::kBF16, 2},      {"F64", DType::kF64, 8},
      {"I8", DType::kI8, 1},          {"U8", DType::kU8, 1},
      {"I16", DType::kI16, 2},        {"U16", DType::kU16, 2},
      {"I32", DType::kI32, 4},        {"U32", DType::kU32, 4},
      {"I64", DType::kI64, 8},        {"BOOL", DType::kBool, 1},
      {"F8_E4M3", DType::kF8E4M3, 1}, {"F8_E5M2", DType::kF8E5M2, 1},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.name);
    const auto json = [&](int bytes) {
      return std::string(R"({"t":{"dtype":")") + c.name +
             R"(","shape":[3],"data_offsets":[0,)" + std::to_string(bytes) +
             "]}}";
    };
    const auto right = Parse(SafetensorsFile(json(3 * c.bytes), 3 * c.bytes));
    ASSERT_TRUE(right.ok()) << right.status();
    EXPECT_EQ((*right)[0].info.dtype, c.dtype);
    const int wrong_bytes = 3 * c.bytes + 1;
    EXPECT_FALSE(Parse(SafetensorsFile(json(wrong_bytes), wrong_bytes)).ok());
  }
}

TEST(Safetensors, AcceptsNoTensorsAndEmptyTensors) {
  EXPECT_THAT(*Parse(SafetensorsFile("{}")), IsEmpty());
  EXPECT_THAT(*Parse(SafetensorsFile(R"({"__metadata__":{}})")), IsEmpty());
  // Empty tensors at every border between others.
  const auto tensors = Parse(SafetensorsFile(
      R"({"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},)"
      R"("b":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
      R"("c":{"dtype":"F32","shape":[7,0],"data_offsets":[4,4]},)"
      R"("d":{"dtype":"U8","shape":[1,1],"data_offsets":[4,5]},)"
      R"("e":{"dtype":"F32","shape":[0,5],"data_offsets":[5,5]}})",
      5));
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  EXPECT_EQ(tensors->size(), 5u);
}

TEST(Safetensors, AcceptsRankEightAndKeysInAnyOrder) {
  const auto tensors = Parse(SafetensorsFile(
      R"({"t":{"data_offsets":[0,2],"shape":[1,1,1,1,1,1,1,2],"dtype":"U8"}})",
      2));
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  EXPECT_EQ((*tensors)[0].info.shape.size(), 8u);
}

struct Hostile {
  const char* json;
  size_t data_bytes;
  absl::StatusCode code;
  const char* message;  // a part of it
};

constexpr auto kExhausted = absl::StatusCode::kResourceExhausted;

void ExpectRefused(absl::Span<const Hostile> cases) {
  for (const Hostile& c : cases) {
    SCOPED_TRACE(c.json);
    const auto tensors = Parse(SafetensorsFile(c.json, c.data_bytes));
    EXPECT_EQ(tensors.status().code(), c.code) << tensors.status();
    EXPECT_THAT(std::string(tensors.status().message()), HasSubstr(c.message));
  }
}

TEST(Safetensors, RefusesMalformedStructure) {
  ExpectRefused({
      {"", 0, kInvalid, "begins with"},
      {"[]", 0, kInvalid, "begins with"},
      {" {}", 0, kInvalid, "begins with"},
      {"{", 0, kInvalid, "not valid JSON"},
      {"{}}", 0, kInvalid, "not valid JSON"},
      {"{} x", 0, kInvalid, "not valid JSON"},
      {"{\"\xff\":{}}", 0, kInvalid, "not valid JSON"},
      {R"({"t":null})", 0, kInvalid, "null"},
      {R"({"t":[]})", 0, kInvalid, "an array"},
      {R"({"t":1})", 0, kInvalid, "a number"},
      {R"({"t":"x"})", 0, kInvalid, "a string"},
      {R"({"t":true})", 0, kInvalid, "a boolean"},
      {R"({"t":{}})", 0, kInvalid, "lacks"},
      {R"({"t":{"dtype":"U8","shape":[]}})", 1, kInvalid, "lacks"},
      {R"({"t":{"dtype":"U8","data_offsets":[0,1]}})", 1, kInvalid, "lacks"},
      {R"({"t":{"shape":[],"data_offsets":[0,1]}})", 1, kInvalid, "lacks"},
      {R"({"t":{"dtype":{}}})", 0, kInvalid, "an object"},
      {R"({"t":{"dtype":1}})", 0, kInvalid, "the name of a data type"},
      {R"({"t":{"dtype":["U8"]}})", 0, kInvalid, "an array"},
      {R"({"t":{"dtype":"U8","dtype":"U8"}})", 0, kInvalid, "twice"},
      {R"({"t":{"shape":[],"shape":[]}})", 0, kInvalid, "twice"},
      {R"({"t":{"data_offsets":[0,0],"data_offsets":[0,0]}})", 0, kInvalid,
       "twice"},
      {R"({"t":{"other":1}})", 0, kInvalid, "\"other\" (unknown)"},
      {R"({"t":{"shape":3}})", 0, kInvalid, "an array of dimensions"},
      {R"({"t":{"shape":{}}})", 0, kInvalid, "an array of dimensions"},
      {R"({"t":{"shape":[[1]]}})", 0, kInvalid, "an array"},
      {R"({"t":{"shape":["1"]}})", 0, kInvalid, "a string"},
      {R"({"t":{"shape":[null]}})", 0, kInvalid, "null"},
      {R"({"t":{"shape":[-1]}})", 0, kInvalid, "negative"},
      {R"({"t":{"shape":[1.0]}})", 0, kInvalid, "no 64-bit integer"},
      {R"({"t":{"shape":[18446744073709551616]}})", 0, kInvalid,
       "no 64-bit integer"},
      {R"({"t":{"shape":[1e999]}})", 0, kInvalid, "not valid JSON"},
      {R"({"t":{"data_offsets":[]}})", 0, kInvalid, "fewer than two"},
      {R"({"t":{"data_offsets":[0]}})", 0, kInvalid, "fewer than two"},
      {R"({"t":{"data_offsets":[0,1,2]}})", 0, kInvalid, "a third"},
      {R"({"t":{"data_offsets":[-1,0]}})", 0, kInvalid, "negative"},
      {R"({"t":{"data_offsets":"0,1"}})", 0, kInvalid, "two offsets"},
      {R"({"t":{"data_offsets":7}})", 0, kInvalid, "two offsets"},
      {R"({"__metadata__":"x"})", 0, kInvalid, "map of strings"},
      {R"({"__metadata__":[]})", 0, kInvalid, "map of strings"},
      {R"({"__metadata__":{"a":1}})", 0, kInvalid, "map of strings"},
      {R"({"__metadata__":{"a":null}})", 0, kInvalid, "map of strings"},
      {R"({"__metadata__":{"a":{}}})", 0, kInvalid, "map of strings"},
      {R"({"__metadata__":{"a":["b"]}})", 0, kInvalid, "map of strings"},
      {R"({"__metadata__":{},"__metadata__":{}})", 0, kInvalid, "twice"},
  });
}

TEST(Safetensors, RefusesWhatDoesNotFitTheFile) {
  ExpectRefused({
      // begin > end, end beyond the data, sizes that differ.
      {R"({"t":{"dtype":"U8","shape":[1],"data_offsets":[1,0]}})", 1, kInvalid,
       "allowed: a range within [0, 1)"},
      {R"({"t":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", 1, kInvalid,
       "[0, 2)"},
      {R"({"t":{"dtype":"U8","shape":[2],"data_offsets":[0,1]}})", 1, kInvalid,
       "need 2"},
      {R"({"t":{"dtype":"F32","shape":[],"data_offsets":[0,1]}})", 1, kInvalid,
       "need 4"},
      {R"({"t":{"dtype":"U8","shape":[1],
           "data_offsets":[18446744073709551615,18446744073709551615]}})",
       1, kInvalid, "within"},
      // Products that overflow: of dimensions, of dimensions and size, and to
      // a small remainder.
      {R"({"t":{"dtype":"U8","shape":[4294967296,4294967296],
           "data_offsets":[0,0]}})",
       0, kInvalid, "overflows"},
      {R"({"t":{"dtype":"F64","shape":[2305843009213693953],
           "data_offsets":[0,8]}})",
       8, kInvalid, "overflows"},
      {R"({"t":{"dtype":"U8","shape":[9223372036854775808,0],
           "data_offsets":[0,0]}})",
       0, kInvalid, "overflows"},
      {R"({"t":{"dtype":"U8","shape":[0,9223372036854775808],
           "data_offsets":[0,0]}})",
       0, kInvalid, "overflows"},
      {R"({"t":{"dtype":"U8","shape":[4294967296,4294967296,0],
           "data_offsets":[0,0]}})",
       0, kInvalid, "overflows"},
      // Holes and overlaps.
      {"{}", 1, kInvalid, "cover 0 bytes"},
      {R"({"t":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 2, kInvalid,
       "cover 1 bytes"},
      {R"({"t":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})", 2, kInvalid,
       "hole"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},
           "b":{"dtype":"U8","shape":[1],"data_offsets":[3,4]}})",
       4, kInvalid, "hole"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},
           "b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
       3, kInvalid, "inside another"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},
           "b":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})",
       2, kInvalid, "inside another"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},
           "b":{"dtype":"U8","shape":[0],"data_offsets":[1,1]}})",
       2, kInvalid, "inside another"},
      // Names.
      {R"({"t":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},
           "t":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
       2, kInvalid, "\"t\" appears twice"},
      {R"({"t":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},
           "\u0074":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})",
       0, kInvalid, "\"t\" appears twice"},
      // Caps and data types.
      {R"({"t":{"shape":[1,1,1,1,1,1,1,1,1]}})", 0, kExhausted, "8 dimensions"},
      {R"({"t.x":{"dtype":"F4","shape":[2],"data_offsets":[0,1]}})", 1,
       absl::StatusCode::kUnimplemented, R"("t.x" has the data type "F4")"},
      {R"({"t":{"dtype":"f32","shape":[1],"data_offsets":[0,4]}})", 4,
       absl::StatusCode::kUnimplemented, "allowed: F32, F16, BF16"},
  });
}

TEST(Safetensors, RefusesTheLengthBeforeAnythingElse) {
  const auto prefix = [](uint64_t length) {
    std::string bytes;
    for (int i = 0; i < 8; ++i) {
      bytes.push_back(static_cast<char>(length >> (8 * i)));
    }
    return bytes;
  };
  // Claims only: the file size is what is true.
  for (const uint64_t claim : {uint64_t{3}, uint64_t{1} << 31,
                               uint64_t{1} << 60, UINT64_MAX, UINT64_MAX - 7}) {
    const auto start = SafetensorsDataStart(AsBytes(prefix(claim)), 10);
    EXPECT_EQ(start.status().code(), kInvalid) << claim;
    EXPECT_THAT(std::string(start.status().message()),
                HasSubstr(std::to_string(claim)));
    EXPECT_EQ(Parse(prefix(claim) + "{}").status().code(), kInvalid);
  }
  EXPECT_EQ(*SafetensorsDataStart(AsBytes(prefix(2)), 10), 10u);
  // The format's cap, even where the file would be large enough.
  EXPECT_TRUE(SafetensorsDataStart(AsBytes(prefix(100'000'000)), 1 << 30).ok());
  EXPECT_FALSE(
      SafetensorsDataStart(AsBytes(prefix(100'000'001)), 1 << 30).ok());
  const auto pointer = SafetensorsDataStart(
      AsBytes("version https://git-lfs.github.com/spec/v1"), 130);
  EXPECT_THAT(std::string(pointer.status().message()), HasSubstr("Git LFS"));
}

TEST(Safetensors, DeepNestingIsRefusedAtOnce) {
  for (const char* begin :
       {"{", R"({"t":{)", R"({"t":{"shape":)", R"({"__metadata__":{"a":)"}) {
    EXPECT_FALSE(
        Parse(SafetensorsFile(begin + std::string(1 << 20, '['))).ok());
  }
}

TEST(Safetensors, MessagesStayShortAndPrintable) {
  const std::string name = "\\u0000\\n" + std::string(100'000, 'x');
  const auto unknown = Parse(SafetensorsFile(
      "{\"" + name + R"(":{"dtype":"Q","shape":[],"data_offsets":[0,0]}})"));
  EXPECT_EQ(unknown.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(unknown.status().message()), HasSubstr("\\x00\\n"));
  const auto broken = Parse(SafetensorsFile("{\"" + name + "\xff\"}"));
  EXPECT_EQ(broken.status().code(), kInvalid);
  for (const absl::Status& status : {unknown.status(), broken.status()}) {
    EXPECT_LT(status.message().size(), 1000u);
    for (const char c : status.message()) EXPECT_TRUE(c >= ' ' && c <= '~');
  }
}

TEST(Safetensors, EveryTruncationIsRefused) {
  const std::string file = SafetensorsFile(kTwoTensors, 16);
  ASSERT_TRUE(Parse(file).ok());
  for (size_t size = 0; size < file.size(); ++size) {
    EXPECT_EQ(Parse(file.substr(0, size)).status().code(), kInvalid) << size;
    // The same where the file is whole but the caller gives too little of it.
    const auto part = ParseSafetensorsHeader(
        AsBytes(std::string_view(file).substr(0, size)), file.size());
    EXPECT_EQ(part.ok(), size >= file.size() - 16) << size;
  }
}

TEST(Safetensors, EveryChangedByteIsAnErrorOrAValidHeader) {
  const std::string file = SafetensorsFile(kTwoTensors, 16);
  int accepted = 0;
  for (size_t i = 0; i < file.size() - 16; ++i) {
    for (int value = 0; value < 256; ++value) {
      std::string changed = file;
      changed[i] = static_cast<char>(value);
      const auto tensors = Parse(changed);
      if (!tensors.ok()) continue;
      ++accepted;
      uint64_t bytes = 0;
      for (const SafetensorsTensor& tensor : *tensors) {
        EXPECT_LE(tensor.offset + tensor.info.bytes, changed.size());
        bytes += tensor.info.bytes;
      }
      EXPECT_EQ(bytes, 16u);
    }
  }
  // The unchanged ones, other names, other whitespace: some must pass.
  EXPECT_GT(accepted, static_cast<int>(file.size()) - 16);
}

}  // namespace
}  // namespace inlay
