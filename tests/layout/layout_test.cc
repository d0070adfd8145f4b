// The layout's rules, read from the sources themselves: which folder may
// include which, and what only tests may do.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <map>
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

bool IsOfWord(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_';
}

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

// What `text` includes, in quotes or in angles.
std::vector<std::string> Includes(const std::string& text,
                                  const std::string& quote = "\"") {
  const std::string start = "#include " + quote;
  std::vector<std::string> included;
  for (size_t at = text.find(start); at != std::string::npos;
       at = text.find(start, at)) {
    at += start.size();
    included.push_back(text.substr(at, text.find_first_of("\">\n", at) - at));
  }
  return included;
}

// The part of a path before its `nth` slash; without one, nothing.
std::string Folders(const std::string& path, int nth) {
  size_t end = 0;
  for (; nth > 0; --nth) {
    end = path.find('/', end);
    if (end == std::string::npos) return "";
    ++end;
  }
  return path.substr(0, end - 1);
}

TEST(LayoutTest, IncludesRunOneWay) {
  int checked = 0;
  for (const auto& [folder, allowed] : kAllowed) {
    for (const fs::path& path : Sources(folder)) {
      for (const std::string& included : Includes(Read(path))) {
        const std::string target = Folders(included, 1);
        if (!kAllowed.contains(target) && target != "tests") continue;
        ++checked;
        EXPECT_TRUE(target == folder || allowed.contains(target))
            << path << " includes " << included;
      }
    }
  }
  EXPECT_GT(checked, 100);  // includes are still found
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
  for (const auto& [part, allowed] : parts) {
    for (const fs::path& path : Sources("core/" + part)) {
      for (const std::string& included : Includes(Read(path))) {
        if (Folders(included, 1) != "core") continue;
        const std::string target = Folders(included, 2).substr(5);
        EXPECT_TRUE(target == part || allowed.contains(target))
            << path << " includes " << included;
      }
    }
  }
}

TEST(LayoutTest, ExamplesAndBindingsSeeOnlyThePublicHeaders) {
  for (const std::string folder : {"examples", "bindings"}) {
    for (const fs::path& path : Sources(folder)) {
      for (const std::string& included : Includes(Read(path), "<")) {
        if (Folders(included, 1) != "inlay") continue;
        EXPECT_TRUE(included == "inlay/inlay.h" ||
                    included == "inlay/inlay.hpp")
            << path << " includes " << included;
      }
    }
  }
}

// Whether a line calls what ends the process or handles its signals, writes to
// its terminal, or throws on what was caught.
bool EndsOrPrints(const std::string& line) {
  static const std::set<std::string> kCalls = {
      "abort",  "exit", "_exit",  "quick_exit", "terminate",
      "printf", "puts", "perror", "signal",     "sigaction"};
  for (size_t at = 0, end; at < line.size(); at = end) {
    end = at + 1;
    if (!IsOfWord(line[at])) continue;
    while (end < line.size() && IsOfWord(line[end])) ++end;
    const std::string word = line.substr(at, end - at);
    const bool is_std = at >= 5 && line.compare(at - 5, 5, "std::") == 0;
    // Members, and what is of another namespace, are something else.
    const size_t begin = is_std ? at - 5 : at;
    const bool is_free =
        begin == 0 ||
        std::string(":.>").find(line[begin - 1]) == std::string::npos;
    const size_t next = std::min(line.find_first_not_of(' ', end), line.size());
    if (word == "stderr" || (is_std && (word == "cout" || word == "cerr")) ||
        (word == "throw" && line[next] == ';') ||
        (kCalls.contains(word) && is_free && line[next] == '(')) {
      return true;
    }
  }
  return false;
}

// The host never dies by the library's hand, and its terminal is its own.
TEST(LayoutTest, TheLibraryNeitherEndsNorPrints) {
  for (const char* line :
       {"exit(1);", "  std::exit (1);", "std::cerr << x;", "x = stderr;",
        "throw;", "if (bad) abort();", "throw ;"}) {
    EXPECT_TRUE(EndsOrPrints(line)) << line;
  }
  for (const char* line :
       {"at_exit(1);", "it->signal();", "x.exit();", "inlay::terminate();",
        "throw std::bad_alloc();", "signals(1);", "int exit = 1;"}) {
    EXPECT_FALSE(EndsOrPrints(line)) << line;
  }
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
        EXPECT_FALSE(EndsOrPrints(code))
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
