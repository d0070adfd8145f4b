#include "examples/inlay/output.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace inlay::cli {

Outcome WriteOut(std::string_view text) {
  const size_t written = std::fwrite(text.data(), 1, text.size(), stdout);
  if (written == text.size() && std::fflush(stdout) == 0) return Outcome();
  if (errno == EPIPE) return Outcome::ReaderLeft();
  return Outcome::Failed(std::string("cannot write to stdout: ") +
                         std::strerror(errno));
}

std::string JsonText(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Outcome WriteJsonLine(const Json& value) {
  return WriteOut(JsonText(value) + "\n");
}

bool StdinIsTerminal() { return isatty(STDIN_FILENO) == 1; }
bool StderrIsTerminal() { return isatty(STDERR_FILENO) == 1; }

void Complain(std::string_view text) {
  std::fprintf(stderr, "inlay: %.*s\n", static_cast<int>(text.size()),
               text.data());
}

Progress::Progress(bool enabled)
    : enabled_(enabled && StderrIsTerminal()),
      last_(std::chrono::steady_clock::now()) {}

void Progress::Update(std::string_view text) {
  if (!enabled_) return;
  const auto now = std::chrono::steady_clock::now();
  if (now - last_ < std::chrono::milliseconds(100)) return;
  last_ = now;
  shown_ = true;
  std::fprintf(stderr, "\r\033[K%.*s", static_cast<int>(text.size()),
               text.data());
  std::fflush(stderr);
}

void Progress::Update(std::string_view what, size_t done, size_t total) {
  Update(std::string(what) + " " + std::to_string(done) + "/" +
         std::to_string(total));
}

void Progress::Clear() {
  if (!shown_) return;
  shown_ = false;
  std::fputs("\r\033[K", stderr);
  std::fflush(stderr);
}

}  // namespace inlay::cli
