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

// Raw strings have lines of their own form.
std::string WithoutRawStrings(std::string text) {
  for (size_t at = text.find("R\""); at != std::string::npos;
       at = text.find("R\"", at + 1)) {
    const size_t open = text.find('(', at);
    const std::string close = ")" + text.substr(at + 2, open - at - 2) + "\"";
    const size_t end = text.find(close, open);
    if (end != std::string::npos) text.erase(at, end + close.size() - at);
  }
  return text;
}

// The word that ends where `end` is, spaces aside; nothing after a sign.
std::string WordBefore(const std::string& line, size_t end) {
  while (end > 0 && line[end - 1] == ' ') --end;
  size_t begin = end;
  while (begin > 0 && IsOfWord(line[begin - 1])) --begin;
  return line.substr(begin, end - begin);
}

// Where a declarator ends: the first of `signs` outside of angles.
size_t EndOf(const std::string& line, const std::string& signs) {
  int angles = 0;
  for (size_t at = 0; at < line.size(); ++at) {
    angles += line[at] == '<' ? 1 : line[at] == '>' ? -1 : 0;
    if (angles == 0 && signs.find(line[at]) != std::string::npos) return at;
  }
  return std::string::npos;
}

// What a line in the first column defines: a function, class, constant or
// alias, or what a using-declaration names. Nothing for members and operators.
std::string DefinedBy(std::string line) {
  if (line.starts_with("[[")) line.erase(0, line.find("]]") + 3);
  const std::string first = line.substr(0, line.find(' '));
  static const std::set<std::string> kTypes = {"struct", "class", "enum",
                                               "union"};
  // Calls of macros have no word before the parenthesis.
  if (first.size() == line.size() || EndOf(line, "(") < first.size() ||
      first == "namespace" || (first == "template" && line.back() == '>')) {
    return "";
  }
  const size_t end = EndOf(line, kTypes.contains(first) ? ":{;" : "([={;");
  if (end == std::string::npos) return "";
  const size_t final = line.rfind(" final", end);
  const std::string name =
      WordBefore(line, final == std::string::npos ? end : final);
  const bool is_member =
      first != "using" && line.rfind("::" + name, end) + name.size() + 2 == end;
  return is_member || name == "operator" ? "" : name;
}

// Names at the scope of a file's namespaces, with the (last) line that defines
// each: the sources are formatted, so that it begins in the first column.
std::map<std::string, std::string> NamesOf(const std::string& source) {
  std::map<std::string, std::string> names;
  const std::string text = WithoutRawStrings(source);
  std::istringstream lines(text);
  std::string type;  // a return type on a line of its own
  for (std::string line; std::getline(lines, line);) {
    std::string name;
    if (line.starts_with("#define ")) {
      const size_t end = line.find_first_of(" (", sizeof("#define"));
      name = WordBefore(line, std::min(end, line.size()));
      if (text.find("#undef " + name) != std::string::npos) continue;
    } else if (!line.empty() && (IsOfWord(line[0]) || line[0] == '[')) {
      line = type + line;
      const bool is_type = EndOf(line, "([={;") == std::string::npos &&
                           !line.starts_with("template ");
      type = is_type ? line + " " : "";
      name = DefinedBy(line);
    }
    if (!name.empty()) names[name] = line;
  }
  return names;
}

TEST(LayoutTest, NamesAreFound) {
  const auto names = NamesOf(R"(#define INLAY_STAYS(x) x
#define INLAY_GOES
#undef INLAY_GOES
using ::testing::Used;
using Alias = std::vector<int>;
namespace inlay {
constexpr char kText[] = "a";
const std::map<int, std::set<int>> kMap = {{1, {}}};
std::function<void(int)> returns;
struct Plain {
  int member = 0;
};
class Derived final : public Plain {};
enum class Kind : int { kOne };
template <typename T>
std::vector<T> Made(const T& value) {
  return Called(value);
}
const std::vector<std::pair<int, int>>&
AfterItsType(int value) {
}
[[nodiscard]] bool Marked();
void Plain::Method() {}
bool operator==(const Plain& a, const Plain& b);
TEST(Some, Test) {}
INLAY_CALLS(Macro);
}  // namespace inlay
)");
  std::string found;
  for (const auto& [name, line] : names) found += name + " ";
  EXPECT_EQ(found,
            "AfterItsType Alias Derived INLAY_STAYS Kind Made Marked Plain "
            "Used kMap kText "
            "returns ");
}

// The stems after APART in a call of a CMakeLists.txt.
std::set<std::string> Apart(const std::string& cmake, const std::string& call) {
  const size_t begin = cmake.find(call);
  EXPECT_NE(begin, std::string::npos) << call;
  if (begin == std::string::npos) return {};
  std::istringstream words(cmake.substr(begin, cmake.find(')', begin) - begin));
  std::set<std::string> stems;
  bool is_apart = false;
  for (std::string word; words >> word;) {
    const bool is_key = word == "APART" || word == "LABELS" || word == "SHARDS";
    if (is_apart && !is_key) stems.insert(word);
    if (is_key) is_apart = word == "APART";
  }
  return stems;
}

// The project's headers that `text` includes, and those that they include.
void AddHeaders(const std::string& text, std::set<std::string>* headers) {
  for (const std::string& included : Includes(text)) {
    const fs::path path = fs::path(inlay::SourceDir()) / included;
    if (fs::exists(path) && headers->insert(included).second) {
      AddHeaders(Read(path), headers);
    }
  }
}

// "testing::" is gtest's namespace or ours, by what has been included.
bool SaysWhoseTesting(const std::string& text) {
  for (size_t at = text.find("testing::", 1); at != std::string::npos;
       at = text.find("testing::", at + 1)) {
    if (std::string(" (<!{\n").find(text[at - 1]) != std::string::npos) {
      return false;
    }
  }
  return true;
}

// With INLAY_UNITY a folder's tests are compiled several at a time, which ones
// changes with every new file. A name that two of them define is an error at
// best; functions become overloads of each other, and a test may call another's
// without a word. What a header defines is hidden by a source's name alike.
TEST(LayoutTest, TestsCompiledTogetherShareNoNames) {
  const fs::path tests = fs::path(inlay::SourceDir()) / "tests";
  const std::string cmake = Read(tests / "CMakeLists.txt");
  std::map<std::string, std::set<std::string>> folders = {
      {"api", Apart(Read(tests / "api/CMakeLists.txt"),
                    "inlay_unity_test(api_test ")}};
  const std::string call = "\n  inlay_test(";
  for (size_t at = cmake.find(call); at != std::string::npos;
       at = cmake.find(call, at + 1)) {
    const size_t begin = at + call.size();
    const std::string folder =
        cmake.substr(begin, cmake.find(' ', begin) - begin);
    folders[folder] = Apart(cmake, call + folder + " ");
  }
  EXPECT_GT(folders.size(), 10u);
  const std::string advice =
      "; rename it in one, or name one's file in the folder's APART "
      "(tests/CMakeLists.txt)";
  for (const auto& [folder, apart] : folders) {
    for (const std::string& stem : apart) {
      EXPECT_TRUE(fs::exists(tests / folder / (stem + "_test.cc")))
          << folder << " has no " << stem << "_test.cc to be APART";
    }
    // name -> the line that defines it, where.
    std::map<std::string, std::pair<std::string, std::string>> defined;
    std::set<std::string> headers;
    for (const auto& entry : fs::directory_iterator(tests / folder)) {
      const std::string file = entry.path().filename().string();
      const std::string stem = file.substr(0, file.rfind("_test.cc"));
      if (stem == file || apart.contains(stem) ||
          stem.find("cuda") != std::string::npos) {
        continue;
      }
      const std::string text = Read(entry.path());
      EXPECT_EQ(text.find("\nusing namespace "), std::string::npos)
          << folder << "/" << file << ": for all that is compiled with it";
      EXPECT_TRUE(SaysWhoseTesting(text))
          << folder << "/" << file << ": ::testing or ::inlay::testing?";
      for (const auto& [name, line] : NamesOf(text)) {
        const auto& [known, where] =
            defined.try_emplace(name, line, file).first->second;
        // The same using-declarations and aliases may be there twice.
        EXPECT_TRUE(where == file ||
                    (known == line && line.starts_with("using ")))
            << folder << ": " << where << " and " << file << " have " << name
            << advice;
      }
      AddHeaders(text, &headers);
    }
    for (const std::string& header : headers) {
      const std::string text = Read(fs::path(inlay::SourceDir()) / header);
      if (header.starts_with("tests/")) {
        EXPECT_TRUE(SaysWhoseTesting(text))
            << header << ": ::testing or ::inlay::testing?";
      }
      for (const auto& [name, line] : NamesOf(text)) {
        const auto it = defined.find(name);
        if (it == defined.end() || line.starts_with("using ::") ||
            line.starts_with("#define ")) {
          continue;
        }
        const auto& [known, where] = it->second;
        EXPECT_TRUE(known == line || known.starts_with("using ::"))
            << folder << ": " << where << " and " << header << " have " << name
            << advice;
      }
    }
  }
}

TEST(LayoutTest, EveryFolderHasAReadme) {
  for (const auto& [folder, allowed] : kAllowed) {
    EXPECT_TRUE(fs::exists(fs::path(inlay::SourceDir()) / folder / "README.md"))
        << folder;
  }
}

}  // namespace
