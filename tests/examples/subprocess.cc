#include "tests/examples/subprocess.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <sstream>

#include "tests/support/paths/paths.h"

namespace inlay {
namespace {

struct Pipe {
  int ends[2] = {-1, -1};
  Pipe() { EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0); }
  ~Pipe() {
    Close(0);
    Close(1);
  }
  void Close(int end) {
    if (ends[end] >= 0) close(ends[end]);
    ends[end] = -1;
  }
};

// Feeds and reads at once, so that no pipe fills up.
void Exchange(Pipe& in, Pipe& out, Pipe& err, const std::string& input,
              Ran* ran) {
  size_t fed = 0;
  std::array<char, 4096> chunk;
  const auto drain = [&](Pipe& pipe, std::string* text) {
    const ssize_t count = read(pipe.ends[0], chunk.data(), chunk.size());
    if (count <= 0) return pipe.Close(0);
    text->append(chunk.data(), static_cast<size_t>(count));
  };
  while (out.ends[0] >= 0 || err.ends[0] >= 0) {
    if (fed == input.size()) in.Close(1);
    pollfd fds[3] = {{in.ends[1], POLLOUT, 0},
                     {out.ends[0], POLLIN, 0},
                     {err.ends[0], POLLIN, 0}};
    poll(fds, 3, -1);
    if (fds[0].revents != 0) {
      const ssize_t count =
          write(in.ends[1], input.data() + fed,
                std::min<size_t>(input.size() - fed, chunk.size()));
      fed = count > 0 ? fed + static_cast<size_t>(count) : input.size();
    }
    if (fds[1].revents != 0) drain(out, &ran->out);
    if (fds[2].revents != 0) drain(err, &ran->err);
  }
}

}  // namespace

Ran RunProgram(const std::string& program, const std::vector<std::string>& args,
               const std::string& input) {
  Ran ran;
  Pipe in, out, err;
  signal(SIGPIPE, SIG_IGN);
  std::vector<std::string> words = {std::string(INLAY_BIN) + "/" + program};
  words.insert(words.end(), args.begin(), args.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGPIPE, SIG_DFL);
    dup2(in.ends[0], STDIN_FILENO);
    dup2(out.ends[1], STDOUT_FILENO);
    dup2(err.ends[1], STDERR_FILENO);
    execv(argv[0], argv.data());
    _exit(127);
  }
  in.Close(0);
  out.Close(1);
  err.Close(1);
  Exchange(in, out, err, input, &ran);
  int status = 0;
  waitpid(child, &status, 0);
  ran.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return ran;
}

Ran Inlay(const std::vector<std::string>& args, const std::string& input) {
  return RunProgram("inlay", args, input);
}

std::vector<nlohmann::json> Ran::JsonLines() const {
  std::vector<nlohmann::json> values;
  std::istringstream lines(out);
  std::string line;
  while (std::getline(lines, line)) {
    values.push_back(nlohmann::json::parse(line, nullptr, false));
    EXPECT_FALSE(values.back().is_discarded()) << line;
  }
  return values;
}

nlohmann::json Ran::JsonLine() const {
  const std::vector<nlohmann::json> values = JsonLines();
  EXPECT_EQ(values.size(), 1u) << out << err;
  return values.empty() ? nlohmann::json() : values[0];
}

std::string DataPath(const std::string& name) {
  return TestData() + "/" + name;
}
std::string Pocket7m() { return SourceDir() + "/examples/models/pocket-7m"; }
std::string Pocket1m() { return DataPath("models/pocket-1m"); }

std::string ReadText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TempFile::TempFile(const std::string& name, const std::string& text)
    : path_(::testing::TempDir() + "inlay-" + std::to_string(getpid()) + "-" +
            name) {
  std::ofstream(path_, std::ios::binary) << text;
}

TempFile::~TempFile() { std::remove(path_.c_str()); }

}  // namespace inlay
