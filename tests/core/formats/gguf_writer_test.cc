// What the writer writes, the parser reads; what the format cannot hold is
// refused, and nothing appears before Commit.
#include "core/formats/gguf_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/formats/gguf_metadata.h"
#include "memory/mapped_file.h"
#include "tests/core/formats/format_test_util.h"
#include "tests/core/formats/gguf_bytes.h"

namespace inlay {
namespace {

using absl::StatusCode;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(GgufWriter, RoundTrip) {
  for (const uint32_t alignment : {8u, 32u, 256u}) {
    TempFolder folder;
    const std::string path = folder.path() + "/m.gguf";
    auto writer = GgufWriter::Create(path, alignment);
    ASSERT_TRUE(writer.ok()) << writer.status();
    ASSERT_TRUE(writer->SetU32("u32", 7).ok());
    ASSERT_TRUE(writer->SetI32("i32", -7).ok());
    ASSERT_TRUE(writer->SetU64("u64", uint64_t{1} << 40).ok());
    ASSERT_TRUE(writer->SetF32("f32", 0.5f).ok());
    ASSERT_TRUE(writer->SetBool("bool", true).ok());
    ASSERT_TRUE(writer->SetString("string", "text").ok());
    ASSERT_TRUE(writer->SetI32s("i32s", {1, -2}).ok());
    ASSERT_TRUE(writer->SetF32s("f32s", {0.25f}).ok());
    ASSERT_TRUE(writer->SetStrings("strings", {"a", "", "c"}).ok());
    ASSERT_TRUE(writer->AddTensor("t", DType::kQ8_0, {2, 32}).ok());
    ASSERT_TRUE(writer->AddTensor("u", DType::kF32, {3}).ok());
    ASSERT_TRUE(writer->StartData().ok());
    std::string data(68 + 12, '\0');
    for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<char>(i);
    // In pieces.
    ASSERT_TRUE(writer->Append(AsSpan(data).subspan(0, 5)).ok());
    ASSERT_TRUE(writer->Append(AsSpan(data).subspan(5, 63)).ok());
    ASSERT_TRUE(writer->Append(AsSpan(data).subspan(68)).ok());
    EXPECT_FALSE(IsRegularFile(path));
    ASSERT_TRUE(writer->Commit().ok());

    const auto bytes = *ReadWholeFile(path, 1 << 20);
    const auto header = ParseGgufHeader(AsSpan(bytes), bytes.size());
    ASSERT_TRUE(header.ok()) << header.status();
    EXPECT_EQ(**GgufInt(*header, "u32", 0, 10), 7);
    EXPECT_EQ(**GgufInt(*header, "i32", -10, 10), -7);
    EXPECT_EQ(**GgufInt(*header, "u64", 0, INT64_MAX), int64_t{1} << 40);
    EXPECT_EQ(**GgufNumber(*header, "f32"), 0.5);
    EXPECT_EQ(**GgufBool(*header, "bool"), true);
    EXPECT_EQ(**GgufString(*header, "string"), "text");
    EXPECT_THAT(**GgufInts(*header, "i32s"), ElementsAre(1, -2));
    EXPECT_THAT(**GgufNumbers(*header, "f32s"), ElementsAre(0.25));
    EXPECT_THAT(**GgufStrings(*header, "strings"), ElementsAre("a", "", "c"));
    ASSERT_EQ(header->tensors.size(), 2u);
    EXPECT_THAT(header->tensors[0].info.shape, ElementsAre(2, 32));
    EXPECT_EQ(bytes.substr(header->tensors[0].offset, 68), data.substr(0, 68));
    EXPECT_EQ(bytes.substr(header->tensors[1].offset, 12), data.substr(68));
    EXPECT_EQ(header->tensors[1].offset % alignment, 0u);
  }
}

TEST(GgufWriter, RefusesWhatTheFormatCannotHold) {
  TempFolder folder;
  const std::string path = folder.path() + "/m.gguf";
  EXPECT_FALSE(GgufWriter::Create(path, 24).ok());
  EXPECT_FALSE(GgufWriter::Create(folder.path() + "/none/m.gguf").ok());
  const auto code = [&](auto call) {
    auto writer = GgufWriter::Create(path);
    EXPECT_TRUE(writer.ok());
    const absl::Status status = call(*writer);
    EXPECT_EQ(writer->Commit().code(), status.code()) << "errors stay";
    EXPECT_FALSE(IsRegularFile(path));
    return status.code();
  };
  using Writer = GgufWriter&;
  constexpr auto kBad = StatusCode::kInvalidArgument;
  EXPECT_EQ(code([](Writer w) { return w.SetU32("", 1); }), kBad);
  EXPECT_EQ(code([](Writer w) { return w.SetU32("general.alignment", 32); }),
            kBad);
  EXPECT_EQ(code([](Writer w) {
              w.SetU32("k", 1).IgnoreError();
              return w.SetU32("k", 1);
            }),
            kBad);
  const auto tensor = [&](const std::string& name, DType dtype,
                          std::vector<int64_t> shape) {
    return code([&](Writer w) { return w.AddTensor(name, dtype, shape); });
  };
  EXPECT_EQ(tensor("", DType::kF32, {1}), kBad);
  EXPECT_EQ(tensor(std::string(65, 't'), DType::kF32, {1}), kBad);
  EXPECT_EQ(tensor("t", DType::kF32, {}), kBad);
  EXPECT_EQ(tensor("t", DType::kF32, {1, 1, 1, 1, 1}), kBad);
  EXPECT_EQ(tensor("t", DType::kF32, {0, 4}), kBad);
  EXPECT_EQ(tensor("t", DType::kF32, {-1, 4}), kBad);
  EXPECT_EQ(tensor("t", DType::kF32, {int64_t{1} << 40, int64_t{1} << 40}),
            kBad);
  EXPECT_EQ(tensor("t", DType::kQ4_0, {4, 16}), kBad);
  EXPECT_EQ(tensor("t", DType::kKvQ4, {32}), StatusCode::kUnimplemented);
}

TEST(GgufWriter, DataMustBeWhatWasDeclared) {
  TempFolder folder;
  const std::string path = folder.path() + "/m.gguf";
  const std::string data(64, 'x');
  {
    auto writer = GgufWriter::Create(path);
    ASSERT_TRUE(writer->AddTensor("t", DType::kF32, {4}).ok());
    EXPECT_EQ(writer->Append(AsSpan(data).subspan(0, 4)).code(),
              StatusCode::kInvalidArgument)
        << "before StartData";
  }
  {
    auto writer = GgufWriter::Create(path);
    ASSERT_TRUE(writer->AddTensor("t", DType::kF32, {4}).ok());
    ASSERT_TRUE(writer->StartData().ok());
    EXPECT_EQ(writer->Append(AsSpan(data).subspan(0, 17)).code(),
              StatusCode::kInvalidArgument);
  }
  {
    auto writer = GgufWriter::Create(path);
    ASSERT_TRUE(writer->AddTensor("t", DType::kF32, {4}).ok());
    ASSERT_TRUE(writer->StartData().ok());
    ASSERT_TRUE(writer->Append(AsSpan(data).subspan(0, 12)).ok());
    const absl::Status status = writer->Commit();
    EXPECT_THAT(std::string(status.message()), HasSubstr("12 of 16"));
  }
  EXPECT_FALSE(IsRegularFile(path));
}

}  // namespace
}  // namespace inlay
