// WidenFolder: a model's folder with its weights in float32, so that engines
// compute in float32 throughout; exact.
#ifndef INLAY_TESTS_SUPPORT_WIDENED_FOLDER_H_
#define INLAY_TESTS_SUPPORT_WIDENED_FOLDER_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

namespace inlay::testing {

// Writes a safetensors file anew, tensors of bf16 in f32.
inline void WidenSafetensors(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  const std::string old{std::istreambuf_iterator<char>(in), {}};
  uint64_t header_bytes = 0;
  ASSERT_GE(old.size(), sizeof(header_bytes)) << file;
  std::memcpy(&header_bytes, old.data(), sizeof(header_bytes));
  const char* const data = old.data() + sizeof(header_bytes) + header_bytes;
  auto header = nlohmann::json::parse(old.data() + sizeof(header_bytes), data);
  std::string wide;
  for (auto& [name, tensor] : header.items()) {
    if (name == "__metadata__") continue;
    const size_t begin = tensor["data_offsets"][0];
    const size_t end = tensor["data_offsets"][1];
    const size_t at = wide.size();
    if (tensor["dtype"] == "BF16") {
      for (size_t i = begin; i < end; i += 2) {
        wide.append(2, '\0');  // the lower half
        wide.append(data + i, 2);
      }
      tensor["dtype"] = "F32";
    } else {
      ASSERT_EQ(tensor["dtype"], "F32") << name;
      wide.append(data + begin, end - begin);
    }
    tensor["data_offsets"] = {at, wide.size()};
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  header_bytes = text.size();
  std::ofstream out(file, std::ios::binary | std::ios::trunc);
  out.write(reinterpret_cast<const char*>(&header_bytes), sizeof(header_bytes));
  out << text << wide;
  ASSERT_TRUE(out.good()) << file;
}

// Copies `from` to `to`, which is not there; modules' weights are widened, too.
inline void WidenFolder(const std::string& from, const std::string& to) {
  std::filesystem::copy(from, to, std::filesystem::copy_options::recursive);
  int widened = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(to)) {
    if (entry.path().extension() != ".safetensors") continue;
    ASSERT_NO_FATAL_FAILURE(WidenSafetensors(entry.path()));
    ++widened;
  }
  ASSERT_GT(widened, 0) << from;
}

}  // namespace inlay::testing

#endif  // INLAY_TESTS_SUPPORT_WIDENED_FOLDER_H_
