#include "core/formats/safetensors_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "core/formats/safetensors_index.h"
#include "tests/core/formats/format_test_util.h"
#include "tests/support/file_pages.h"
#include "tests/support/paths/paths.h"

namespace inlay {
namespace {

using ::inlay::testing::FileKilobytes;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kSingle[] = "model.safetensors";
constexpr char kIndex[] = "model.safetensors.index.json";

class SafetensorsSourceTest : public ::testing::TestWithParam<WeightAccess> {
 protected:
  auto Open() { return OpenSafetensors(folder_.path(), GetParam()); }
  std::string OpenError() {
    const auto source = Open();
    return source.ok() ? "opened" : std::string(source.status().message());
  }

  TempFolder folder_;
};

INSTANTIATE_TEST_SUITE_P(Access, SafetensorsSourceTest,
                         ::testing::Values(WeightAccess::kMap,
                                           WeightAccess::kRead));

std::vector<std::byte> ReadAll(const WeightSource& source,
                               const WeightInfo& info) {
  std::vector<std::byte> bytes(info.bytes);
  EXPECT_TRUE(source.Read(info, 0, absl::MakeSpan(bytes)).ok());
  return bytes;
}

constexpr char kThree[] =
    R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},)"
    R"("c":{"dtype":"U16","shape":[2],"data_offsets":[3,7]},)"
    R"("b":{"dtype":"U8","shape":[1],"data_offsets":[7,8]},)"
    R"("d":{"dtype":"F32","shape":[0,2],"data_offsets":[8,8]}})";

TEST_P(SafetensorsSourceTest, ReadsAnyPartOfATensor) {
  folder_.Write(kSingle, SafetensorsFile(kThree, 8));
  const auto source = Open();
  ASSERT_TRUE(source.ok()) << source.status();
  ASSERT_EQ((*source)->weights().size(), 4u);
  EXPECT_EQ((*source)->Find("e"), nullptr);
  EXPECT_EQ((*source)->Find(""), nullptr);
  const WeightInfo* c = (*source)->Find("c");
  ASSERT_NE(c, nullptr);
  EXPECT_EQ(c->name, "c");
  for (uint64_t begin = 0; begin <= c->bytes; ++begin) {
    for (uint64_t size = 0; size <= c->bytes + 2; ++size) {
      std::vector<std::byte> got(size, std::byte{0xee});
      const absl::Status status =
          (*source)->Read(*c, begin, absl::MakeSpan(got));
      if (begin + size > c->bytes) {
        EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
        continue;
      }
      ASSERT_TRUE(status.ok()) << status;
      for (uint64_t i = 0; i < size; ++i) {
        EXPECT_EQ(got[i], std::byte(3 + begin + i));
      }
    }
  }
  std::byte one;
  EXPECT_EQ((*source)->Read(*c, UINT64_MAX, {&one, 1}).code(),
            absl::StatusCode::kOutOfRange);
  EXPECT_TRUE((*source)->Read(*(*source)->Find("d"), 0, {}).ok());
}

TEST_P(SafetensorsSourceTest, MapsOnlyWhatIsAligned) {
  // Pad the header so that the data is aligned, then shift it by one byte.
  for (const size_t shift : {0, 1}) {
    std::string json = kThree;
    while ((8 + json.size()) % 8 != shift) json.push_back(' ');
    folder_.Write(kSingle, SafetensorsFile(json, 8));
    const auto source = Open();
    ASSERT_TRUE(source.ok()) << source.status();
    for (const WeightInfo& info : (*source)->weights()) {
      SCOPED_TRACE(info.name);
      const std::byte* data = (*source)->Mapped(info);
      const bool aligned = info.name == "a" || info.name == "b" ||
                           (info.name == "c" && shift == 1) ||
                           (info.name == "d" && shift == 0);
      if (GetParam() == WeightAccess::kRead || !aligned) {
        EXPECT_EQ(data, nullptr);
      } else {
        ASSERT_NE(data, nullptr);
        EXPECT_EQ(std::vector<std::byte>(data, data + info.bytes),
                  ReadAll(**source, info));
      }
    }
  }
}

TEST_P(SafetensorsSourceTest, AForeignTensorIsRefused) {
  folder_.Write(kSingle, SafetensorsFile(kThree, 8));
  const auto source = Open();
  ASSERT_TRUE(source.ok()) << source.status();
  WeightInfo foreign;
  foreign.name = "zz";
  foreign.bytes = 1000;
  std::byte bytes[1000];
  EXPECT_EQ((*source)->Mapped(foreign), nullptr);
  EXPECT_EQ((*source)->Read(foreign, 0, bytes).code(),
            absl::StatusCode::kNotFound);
  // A known name with other claims is held to the file's own figures.
  foreign.name = "a";
  EXPECT_EQ((*source)->Read(foreign, 0, bytes).code(),
            absl::StatusCode::kOutOfRange);
}

constexpr char kOneByte[] =
    R"({"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})";
constexpr char kOtherByte[] =
    R"({"skipped":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
    R"("w":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})";

TEST_P(SafetensorsSourceTest, JoinsShards) {
  folder_.Write("one.safetensors", SafetensorsFile(kOneByte, 1));
  folder_.Write("two.safetensors", SafetensorsFile(kOtherByte, 2));
  folder_.Write(kIndex, R"({"metadata":{"total_size":2},"weight_map":
      {"x":"one.safetensors","w":"two.safetensors"}})");
  const auto source = Open();
  ASSERT_TRUE(source.ok()) << source.status();
  ASSERT_EQ((*source)->weights().size(), 2u);
  EXPECT_EQ((*source)->weights()[0].name, "w");
  EXPECT_EQ((*source)->weights()[1].name, "x");
  EXPECT_THAT(ReadAll(**source, (*source)->weights()[0]),
              ElementsAre(std::byte{1}));
  EXPECT_THAT(ReadAll(**source, (*source)->weights()[1]),
              ElementsAre(std::byte{0}));
  EXPECT_EQ((*source)->Find("skipped"), nullptr);
}

// Bytes are counted through all shards.
TEST_P(SafetensorsSourceTest, PagesLeaveByRange) {
  constexpr int64_t kBytes = 8 << 20;
  for (const std::string name : {"a", "b"}) {
    folder_.Write(name + ".safetensors",
                  SafetensorsFile(R"({")" + name +
                                      R"(":{"dtype":"U8","shape":[8388608],)"
                                      R"("data_offsets":[0,8388608]}})",
                                  kBytes));
  }
  folder_.Write(kIndex,
                R"({"weight_map":{"a":"a.safetensors","b":"b.safetensors"}})");
  const auto source = Open();
  ASSERT_TRUE(source.ok()) << source.status();
  const auto pages_of = [&](size_t i) {
    const int64_t before = FileKilobytes();
    const WeightInfo& info = (*source)->weights()[i];
    const std::byte* data = (*source)->Mapped(info);
    int sum = 0;
    for (uint64_t at = 1; at < info.bytes; at += 4096) {
      sum += static_cast<int>(data[at]);
    }
    EXPECT_GT(sum, 0);
    return FileKilobytes() - before;
  };
  if (GetParam() == WeightAccess::kRead) {
    EXPECT_EQ((*source)->LeavePages({}), 0u) << "nothing is mapped";
    return;
  }
  if (FileKilobytes() == 0) GTEST_SKIP() << "the system does not say";
  pages_of(0);
  pages_of(1);
  EXPECT_GT((*source)->LeavePages({0, kBytes}), 2u * kBytes);
  EXPECT_LT(pages_of(1), kBytes >> 12) << "they did not leave";
  EXPECT_GT(pages_of(0), kBytes >> 11) << "they left";
  (*source)->LeavePages({kBytes + (64 << 10), UINT64_MAX});
  EXPECT_LT(pages_of(0), kBytes >> 12);
  EXPECT_GT(pages_of(1), kBytes >> 11);
}

TEST_P(SafetensorsSourceTest, NamesWhatIsMissing) {
  EXPECT_EQ(Open().status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(OpenError(), HasSubstr("neither model.safetensors nor"));

  folder_.Write("pytorch_model.bin", "x");
  EXPECT_EQ(Open().status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(OpenError(), HasSubstr("safetensors"));

  folder_.Write(kIndex, R"({"weight_map":{"x":"one.safetensors"}})");
  EXPECT_EQ(Open().status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(OpenError(), HasSubstr("/one.safetensors"));

  folder_.Write("one.safetensors", SafetensorsFile(kOtherByte, 2));
  EXPECT_EQ(Open().status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(OpenError(), HasSubstr("tensor \"x\" should be in one.safe"));

  // A name beyond the last of the file's.
  folder_.Write(kIndex, R"({"weight_map":{"zz":"one.safetensors"}})");
  EXPECT_THAT(OpenError(), HasSubstr("tensor \"zz\" should be in one.safe"));
}

TEST_P(SafetensorsSourceTest, ErrorsNameTheFile) {
  for (const std::string& content :
       {std::string(), std::string("short"), std::string(100, '\xff'),
        SafetensorsFile("{}", 1)}) {
    const std::string path = folder_.Write(kSingle, content);
    EXPECT_EQ(Open().status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(OpenError(), HasSubstr(path));
  }
  // A header that claims 2^60 bytes allocates nothing: sanitizers refuse such
  // an allocation.
  folder_.Write(kSingle, std::string("\0\0\0\0\0\0\0\x10", 8) + "{}");
  EXPECT_THAT(OpenError(), HasSubstr("1152921504606846976"));
}

TEST_P(SafetensorsSourceTest, RefusesFilesOutsideTheFolder) {
  folder_.Write("outside.safetensors", SafetensorsFile(kOneByte, 1));
  folder_.Write("model/dir/inside.safetensors", SafetensorsFile(kOneByte, 1));
  const std::string model = folder_.path() + "/model";
  for (const std::string& name :
       {std::string("../outside.safetensors"), std::string(".."),
        std::string("."), std::string(), std::string("dir/inside.safetensors"),
        folder_.path() + "/outside.safetensors",
        std::string("a\\\\..\\\\outside.safetensors"), std::string("a\\u0000b"),
        std::string(300, 'a')}) {
    SCOPED_TRACE(name);
    folder_.Write("model/model.safetensors.index.json",
                  R"({"weight_map":{"x":")" + name + R"("}})");
    const auto source = OpenSafetensors(model, GetParam());
    EXPECT_EQ(source.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(source.status().message()),
                HasSubstr("a file in the same folder"));
  }
}

TEST(SafetensorsIndex, GroupsTensorsByFile) {
  const auto shards = ParseSafetensorsIndex(
      R"({"weight_map":{"b":"1","a":"2","c":"1"}})", "index");
  ASSERT_TRUE(shards.ok()) << shards.status();
  EXPECT_THAT(*shards,
              ElementsAre(std::pair("1", std::vector<std::string>{"b", "c"}),
                          std::pair("2", std::vector<std::string>{"a"})));
}

TEST(SafetensorsIndex, RefusesOtherForms) {
  for (const char* text :
       {"", "[]", "1", "{}", R"({"weight_map":null})", R"({"weight_map":[]})",
        R"({"weight_map":"x"})", R"({"weight_map":{"a":1}})",
        R"({"weight_map":{"a":null}})", R"({"weight_map":{"a":["x"]}})"}) {
    const auto shards = ParseSafetensorsIndex(text, "the index");
    EXPECT_EQ(shards.status().code(), absl::StatusCode::kInvalidArgument)
        << text;
    EXPECT_THAT(std::string(shards.status().message()), HasSubstr("the index"));
  }
  std::string many = R"({"weight_map":{)";
  for (int i = 0; i < 5000; ++i) {
    const std::string number = std::to_string(i);
    many += "\"" + number + "\":\"" + number + "\",";
  }
  many += R"("z":"z"}})";
  EXPECT_EQ(ParseSafetensorsIndex(many, "x").status().code(),
            absl::StatusCode::kResourceExhausted);
}

// Both ways of access see the same bytes in every golden model.
TEST(SafetensorsSource, MapAndReadAgreeOnTheGoldenModels) {
  int num_models = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(TestData() + "/models")) {
    if (!entry.is_directory()) continue;
    SCOPED_TRACE(entry.path());
    const auto map = OpenSafetensors(entry.path().string(), WeightAccess::kMap);
    const auto read =
        OpenSafetensors(entry.path().string(), WeightAccess::kRead);
    ASSERT_TRUE(map.ok()) << map.status();
    ASSERT_TRUE(read.ok()) << read.status();
    ASSERT_EQ((*map)->weights().size(), (*read)->weights().size());
    EXPECT_GT((*map)->weights().size(), 0u);
    for (const WeightInfo& info : (*map)->weights()) {
      const std::vector<std::byte> bytes = ReadAll(**map, info);
      EXPECT_EQ(bytes, ReadAll(**read, *(*read)->Find(info.name)));
      const std::byte* data = (*map)->Mapped(info);
      ASSERT_NE(data, nullptr);
      EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), data));
    }
    ++num_models;
  }
  EXPECT_GE(num_models, 2);
}

}  // namespace
}  // namespace inlay
