// The fuzzer's hostile GGUF files: each is refused for what its name says, and
// not for something that comes before.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>

#include "core/formats/gguf_model.h"
#include "tests/core/formats/format_test_util.h"
#include "tests/support/paths/paths.h"

namespace inlay {
namespace {

struct Seed {
  const char* name;
  const char* words;
  absl::StatusCode code = kInvalid;
};

constexpr Seed kSeeds[] = {
    {"size_wraps_elements", "more bytes of data than the file's"},
    {"size_wraps_bytes", "more bytes of data than the file's"},
    {"size_wraps_array", "4611686018427387904 values of 4 bytes"},
    {"offset_wraps", "160 bytes at offset 18446744073709551584 of the data"},
    {"offset_beyond_file", "160 bytes at offset 1099511627776 of the data"},
    {"wrong_tensor_type", "ggml type 4", kUnsupported},
    {"wrong_value_types", "a value of type string, allowed: an integer"},
    {"wrong_list_types", "a value of type array of u32"},
    {"nested_array", "an array of arrays", kUnsupported},
    {"huge_counts", "4611686018427387904 keys"},
    {"huge_count_of_strings", "2305843009213693952 strings"},
    {"huge_rank", "4294967295 dimensions"},
    {"tensors_overlap", "its data overlaps"},
    {"tensors_misaligned", "offset 164, allowed: multiples"},
    {"string_beyond_file", "18446744073709551608 values of 1 bytes"},
    {"key_beyond_file", "a key: 1099511627776 values of 1 bytes"},
    {"token_ids_out_of_range", "bos_token_id\": 5, allowed: 0 to 4"},
    {"tokens_more_than_rows", "5 tokens, but"},
    {"split_tensor_twice", "several files have it"},
    {"split_same_file_twice", "split.no is 0"},
    {"split_second_beyond_file", "00002-of-00002.gguf: tensor"},
    {"split_two_files", "", absl::StatusCode::kOk},
};

std::string Bytes(const Seed& seed) {
  std::ifstream file(SourceDir() + "/tests/fuzz/corpus/gguf/" + seed.name,
                     std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Of a split model the two files follow one another, as the fuzzer has them.
TEST(GgufSeeds, AreRefusedForWhatTheirNamesSay) {
  for (const Seed& seed : kSeeds) {
    SCOPED_TRACE(seed.name);
    const std::string bytes = Bytes(seed);
    const size_t second = bytes.rfind("GGUF");
    const TempFolder folder;
    if (second > 0) {
      folder.Write("m-00002-of-00002.gguf", bytes.substr(second));
    }
    const std::string path = folder.Write(
        "m-00001-of-00002.gguf", second > 0 ? bytes.substr(0, second) : bytes);
    const auto model = OpenGgufModel(path, {});
    ExpectError(model.status(), seed.code, seed.words);
  }
}

}  // namespace
}  // namespace inlay
