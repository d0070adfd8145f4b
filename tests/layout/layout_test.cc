// The layout's rules, read from the sources themselves: which folder may
// include which, and what only tests may do.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/paths/paths.h"

namespace {

namespace fs = std::filesystem;

// What each folder may include, itself aside.
const std::map<std::string, std::set<std::string>> kAllowed = {
    {"memory", {}},
    {"sched", {"memory"}},
    {"kernels", {"memory"}},
    {"core", {"memory", "sched", "kernels"}},
    {"api", {"core", "sched", "kernels", "memory"}},
    {"examples", {}},
    {"bindings", {}},
};

std::string Read(const fs::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<fs::path> Sources(const std::string& folder) {
  static const std::set<std::string> kEndings = {".h",  ".cc",  ".hpp", ".c",
                                                 ".cu", ".cuh", ".def"};
  std::vector<fs::path> sources;
  for (const auto& entry : fs::recursive_directory_iterator(
           fs::path(inlay::SourceDir()) / folder)) {
    if (entry.is_regular_file() &&
        kEndings.contains(entry.path().extension().string())) {
      sources.push_back(entry.path());
    }
  }
  return sources;
}

TEST(LayoutTest, IncludesRunOneWay) {
  const std::regex include("#include \"([a-z_]+)/[^\"]*\"");
  int checked = 0;
  for (const auto& [folder, allowed] : kAllowed) {
    for (const fs::path& path : Sources(folder)) {
      const std::string text = Read(path);
      for (std::sregex_iterator it(text.begin(), text.end(), include), end;
           it != end; ++it) {
        const std::string target = (*it)[1];
        if (!kAllowed.contains(target) && target != "tests") continue;
        ++checked;
        EXPECT_TRUE(target == folder || allowed.contains(target))
            << path << " includes " << (*it)[0];
      }
    }
  }
  EXPECT_GT(checked, 100);  // the pattern still finds includes
}

// The same for the parts of core (core/README.md).
TEST(LayoutTest, PartsOfCoreRunOneWay) {
  const std::map<std::string, std::set<std::string>> parts = {
      {"json", {}},
      {"text", {"json"}},
      {"formats", {"json"}},
      {"sampling", {}},
      {"model", {"formats", "json"}},
      {"quantize", {"formats", "json", "model", "text"}},
      {"engine", {"formats", "json", "model", "sampling", "text"}},
  };
  const std::regex include("#include \"core/([a-z_]+)/[^\"]*\"");
  for (const auto& [part, allowed] : parts) {
    for (const fs::path& path : Sources("core/" + part)) {
      const std::string text = Read(path);
      for (std::sregex_iterator it(text.begin(), text.end(), include), end;
           it != end; ++it) {
        EXPECT_TRUE((*it)[1] == part || allowed.contains((*it)[1]))
            << path << " includes " << (*it)[0];
      }
    }
  }
}

TEST(LayoutTest, ExamplesAndBindingsSeeOnlyThePublicHeaders) {
  const std::regex include("#include <inlay/([^>]*)>");
  for (const std::string folder : {"examples", "bindings"}) {
    for (const fs::path& path : Sources(folder)) {
      const std::string text = Read(path);
      for (std::sregex_iterator it(text.begin(), text.end(), include), end;
           it != end; ++it) {
        EXPECT_TRUE((*it)[1] == "inlay.h" || (*it)[1] == "inlay.hpp")
            << path << " includes " << (*it)[0];
      }
    }
  }
}

// The host never dies by the library's hand, and its terminal is its own.
TEST(LayoutTest, TheLibraryNeitherEndsNorPrints) {
  const std::regex forbidden(
      "(^|[^_[:alnum:]:.>])(std::)?(abort|exit|_exit|quick_exit|terminate|"
      "printf|puts|perror|signal|"
      "sigaction)\\s*\\(|std::c(out|err)\\b|\\bstderr\\b|\\bthrow\\b[^a-z]*;");
  for (const std::string folder :
       {"memory", "sched", "kernels", "core", "api"}) {
    for (const fs::path& path : Sources(folder)) {
      std::istringstream lines(Read(path));
      std::string line;
      for (int number = 1; std::getline(lines, line); ++number) {
        const std::string code = line.substr(0, line.find("//"));
        if (code.find("/*") != std::string::npos || code.rfind(" *", 0) == 0) {
          continue;
        }
        EXPECT_FALSE(std::regex_search(code, forbidden))
            << path << ":" << number << ": " << line;
      }
    }
  }
}

// absl's formatting appends in destructors, from which a bad_alloc ends the
// process (memory/formatted_string.h).
TEST(LayoutTest, MessagesAreMadeWhereMemoryMayRunOut) {
  int checked = 0;
  for (const std::string folder :
       {"memory", "sched", "kernels", "core", "api"}) {
    for (const fs::path& path : Sources(folder)) {
      const std::string text = Read(path);
      checked += text.find("FormattedString(") != std::string::npos ? 1 : 0;
      for (const char* call : {"absl::StrFormat(", "absl::StrAppendFormat(",
                               "absl::StreamFormat(", "absl::Substitute("}) {
        EXPECT_EQ(text.find(call), std::string::npos) << path << ": " << call;
      }
    }
  }
  EXPECT_GT(checked, 100);  // it is still called so
}

TEST(LayoutTest, EveryFolderHasAReadme) {
  for (const auto& [folder, allowed] : kAllowed) {
    EXPECT_TRUE(fs::exists(fs::path(inlay::SourceDir()) / folder / "README.md"))
        << folder;
  }
}

}  // namespace
