// The README's first programs are the files of examples/, which the build
// compiles and ctest runs: what a newcomer copies works.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include "tests/support/paths/paths.h"

namespace inlay::testing {
namespace {

std::string ReadFile(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  std::ostringstream bytes;
  bytes << stream.rdbuf();
  return stream.good() ? bytes.str() : "";
}

// The fenced blocks of `language`, by what stands in their first line's
// comment, without that line.
std::map<std::string, std::string> NamedBlocks(const std::string& markdown,
                                               const std::string& language) {
  std::map<std::string, std::string> blocks;
  std::istringstream lines(markdown);
  std::string line, name, body;
  bool inside = false, is_first = false;
  while (std::getline(lines, line)) {
    if (!inside) {
      inside = is_first = line == "```" + language;
      name = body = "";
    } else if (line == "```") {
      inside = false;
      if (!name.empty()) blocks[name] = body;
    } else if (is_first && line.rfind("// ", 0) == 0) {
      is_first = false;
      name = line.substr(3);
    } else {
      is_first = false;
      body += line + "\n";
    }
  }
  return blocks;
}

class ReadmeTest : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Examples, ReadmeTest,
                         ::testing::Values("simple.c", "simple.cc"),
                         [](const auto& param) {
                           std::string name = param.param;
                           std::replace(name.begin(), name.end(), '.', '_');
                           return name;
                         });

TEST_P(ReadmeTest, HoldsTheExampleVerbatim) {
  const std::string readme = ReadFile(SourceDir() + "/README.md");
  ASSERT_FALSE(readme.empty()) << "there is no README.md in the root";
  const std::string source = ReadFile(SourceDir() + "/examples/" + GetParam());
  ASSERT_FALSE(source.empty()) << "there is no examples/" << GetParam();
  EXPECT_LE(std::count(source.begin(), source.end(), '\n'), 35);
  const std::string language = GetParam() == "simple.c" ? "c" : "cpp";
  const auto blocks = NamedBlocks(readme, language);
  ASSERT_EQ(blocks.count(GetParam()), 1u)
      << "README.md has no ```" << language << " block that begins with \"// "
      << GetParam() << "\"";
  // The naming line may be the file's own first line.
  const std::string named = "// " + GetParam() + "\n";
  const std::string& block = blocks.at(GetParam());
  EXPECT_TRUE(block == source || named + block == source)
      << "README.md and examples/" << GetParam() << " differ; the README has:\n"
      << block;
}

}  // namespace
}  // namespace inlay::testing
