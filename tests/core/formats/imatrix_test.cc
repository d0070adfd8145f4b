#include "core/formats/imatrix.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "tests/core/formats/format_test_util.h"
#include "tests/core/formats/gguf_bytes.h"

namespace inlay {
namespace {

std::string Floats(const std::vector<float>& values) {
  std::string bytes;
  for (const float value : values) bytes += Raw(value);
  return bytes;
}

std::string OldEntry(const std::string& name, int32_t calls,
                     const std::vector<float>& values) {
  return Raw(static_cast<int32_t>(name.size())) + name + Raw(calls) +
         Raw(static_cast<int32_t>(values.size())) + Floats(values);
}

// As save_imatrix_legacy leaves it, with what it has behind the entries.
std::string OldFile() {
  return Raw(int32_t{2}) + OldEntry("blk.0.attn_q.weight", 4, {4, 8, 0, 2}) +
         OldEntry("blk.0.ffn_down.weight", 0, {3, 5}) + Raw(int32_t{4}) +
         Raw(int32_t{4}) + "text";
}

struct TensorOf {
  std::string name;
  std::vector<uint64_t> dims;
  std::vector<float> values;
  uint32_t type = 0;  // f32
};

std::string File(const std::vector<TensorOf>& tensors,
                 const std::string& type = "imatrix") {
  GgufParts parts;
  if (!type.empty()) parts.entries = {StringEntry("general.type", type)};
  std::string data;
  for (const TensorOf& tensor : tensors) {
    data.resize((data.size() + 31) / 32 * 32);
    parts.infos.push_back(
        Info(tensor.name, tensor.dims, tensor.type, data.size()));
    data += Floats(tensor.values);
  }
  return GgufBytes(parts) + data;
}

const std::string kUp = "blk.0.ffn_up_exps.weight";

std::vector<TensorOf> Experts(const std::vector<float>& counts) {
  return {{kUp + ".in_sum2", {2, 3}, {6, 9, 7, 7, 8, 2}},
          {kUp + ".counts", {1, counts.size()}, counts}};
}

TEST(Imatrix, MeansOfWhatEachMatrixHad) {
  const TempFolder folder;
  const auto of = [&](const std::vector<float>& counts) {
    const auto imatrix =
        ReadImatrix(folder.Write("imatrix.gguf", File(Experts(counts))));
    EXPECT_TRUE(imatrix.ok()) << imatrix.status();
    return imatrix.ok() && imatrix->size() == 1 ? imatrix->at(kUp)
                                                : std::vector<float>();
  };
  EXPECT_EQ(of({3, 0, 2}), (std::vector<float>{2, 3, 1, 1, 4, 1}));
  // Matrices of a stack that all tokens went through have one.
  EXPECT_EQ(of({2}), (std::vector<float>{3, 4.5, 3.5, 3.5, 4, 1}));
}

TEST(Imatrix, OldFilesHaveMeansTimesCalls) {
  const TempFolder folder;
  const auto imatrix = ReadImatrix(folder.Write("imatrix.dat", OldFile()));
  ASSERT_TRUE(imatrix.ok()) << imatrix.status();
  EXPECT_EQ(*imatrix, (Imatrix{{"blk.0.attn_q.weight", {1, 2, 0, 0.5}},
                               {"blk.0.ffn_down.weight", {3, 5}}}));
}

TEST(Imatrix, WhatIsNoSuchFile) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  const auto sums = [](const std::vector<float>& values) {
    return std::vector<TensorOf>{{"a.in_sum2", {values.size()}, values},
                                 {"a.counts", {1}, {1}}};
  };
  const std::pair<std::string, const char*> files[] = {
      {File({}, "model"), "general.type is \"model\""},
      {File({}, ""), "general.type is not there"},
      {File({{"a.weight", {2}, {1, 1}}}), "a.weight"},
      {File({{"a.in_sum2", {2}, {1, 1}}}), "a.counts is not there"},
      {File(Experts({1, 1, 1, 1})), "6 sums and 4 counts"},
      {File({{"a.in_sum2", {4}, {1, 1}, 1}, {"a.counts", {1}, {1}}}),
       "is f16, allowed: f32"},
      {File(sums({1, nan})), "has nan"},
      {File(sums({inf, 1})), "has inf"},
      {File(sums({1, -2})), "has -2"},
      {"", "entries"},
      {Raw(int32_t{0}), "entries is 0"},
      {Raw(int32_t{-1}) + OldEntry("a", 1, {1}), "entries is -1"},
      {Raw(int32_t{1}) + OldEntry("", 1, {1}), "length is 0"},
      {Raw(int32_t{1}) + Raw(int32_t{-5}), "length is -5"},
      {Raw(int32_t{1}) + OldEntry("a", -1, {1}), "is -1"},
      {Raw(int32_t{1}) + OldEntry("a", 1, {}), "is 0"},
      {Raw(int32_t{1}) + OldEntry("a", 1, {1, nan}), "has nan"},
      {Raw(int32_t{2}) + OldEntry("a", 1, {1}) + OldEntry("a", 1, {1}),
       "there twice"},
      {Raw(INT32_MAX) + OldEntry("a", 1, {1}), "the file ends at"},
      {Raw(int32_t{1}) + Raw(int32_t{1}) + "a" + Raw(int32_t{1}) +
           Raw(INT32_MAX),
       "the file ends at"},
  };
  const TempFolder folder;
  for (const auto& [bytes, text] : files) {
    SCOPED_TRACE(text);
    const std::string path = folder.Write("file", bytes);
    const absl::Status status = ReadImatrix(path).status();
    ExpectError(status, absl::StatusCode::kInvalidArgument, text);
    ExpectError(status, absl::StatusCode::kInvalidArgument, path);
  }
  EXPECT_TRUE(absl::IsNotFound(ReadImatrix(folder.path() + "/none").status()));
}

// Wherever it ends; what is behind the entries of an old one is not needed.
TEST(Imatrix, CutFiles) {
  const TempFolder folder;
  const std::string whole = File(Experts({3, 0, 2}));
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_FALSE(ReadImatrix(folder.Write("cut", whole.substr(0, size))).ok())
        << size;
  }
  const std::string old = OldFile();
  constexpr size_t kBehind = 12;
  for (size_t size = 0; size < old.size(); ++size) {
    EXPECT_EQ(ParseOldImatrix(AsBytes(old.substr(0, size))).ok(),
              size >= old.size() - kBehind)
        << size;
  }
}

}  // namespace
}  // namespace inlay
