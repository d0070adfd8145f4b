#include "examples/inlay/terminal.h"

#include <signal.h>
#include <unistd.h>

#include <cerrno>

namespace inlay::cli {
namespace {

// A signal handler can reach nothing else.
volatile sig_atomic_t interrupted = 0;

void OnInterrupt(int) { interrupted = 1; }

constexpr size_t kMaxLine = size_t{1} << 24;

}  // namespace

void CatchInterrupts() {
  struct sigaction action = {};
  action.sa_handler = OnInterrupt;
  sigemptyset(&action.sa_mask);
  action.sa_flags = 0;  // no SA_RESTART: a waiting read must return
  sigaction(SIGINT, &action, nullptr);
}

bool TakeInterrupt() {
  const bool was = interrupted != 0;
  interrupted = 0;
  return was;
}

LineReader::Got LineReader::Next(std::string* line) {
  while (true) {
    const size_t newline = pending_.find('\n');
    if (newline != std::string::npos || pending_.size() > kMaxLine) {
      *line = pending_.substr(0, newline);
      pending_.erase(0, newline == std::string::npos ? newline : newline + 1);
      return Got::kLine;
    }
    if (end_) {
      if (pending_.empty()) return Got::kEnd;
      line->swap(pending_);
      pending_.clear();
      return Got::kLine;
    }
    char chunk[4096];
    const ssize_t count = read(STDIN_FILENO, chunk, sizeof(chunk));
    if (count > 0) {
      pending_.append(chunk, static_cast<size_t>(count));
    } else if (count < 0 && errno == EINTR) {
      if (!TakeInterrupt()) continue;
      pending_.clear();
      return Got::kInterrupt;
    } else {
      end_ = true;
    }
  }
}

}  // namespace inlay::cli
