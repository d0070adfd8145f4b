// Runs a program of the build and keeps what it printed.
#ifndef INLAY_TESTS_EXAMPLES_SUBPROCESS_H_
#define INLAY_TESTS_EXAMPLES_SUBPROCESS_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace inlay {

struct Ran {
  int status = -1;  // exit status; 128 + the signal that ended it
  std::string out;
  std::string err;

  // Each line of `out` as JSON; fails the test on a line that is none.
  std::vector<nlohmann::json> JsonLines() const;
  // The one line there is.
  nlohmann::json JsonLine() const;
};

// `program` is a name in the build's bin folder.
Ran RunProgram(const std::string& program, const std::vector<std::string>& args,
               const std::string& input = "");
// The command `inlay`, on the CPU.
Ran Inlay(const std::vector<std::string>& args, const std::string& input = "");

std::string DataPath(const std::string& name);
std::string Pocket7m();
std::string Pocket1m();
std::string ReadText(const std::string& path);

// A file under the tests' temporary folder, removed at the end.
class TempFile {
 public:
  explicit TempFile(const std::string& name, const std::string& text = "");
  ~TempFile();
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace inlay

#endif  // INLAY_TESTS_EXAMPLES_SUBPROCESS_H_
