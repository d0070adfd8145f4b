#include "examples/inlay/output.h"

#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <utility>

namespace inlay::cli {

Outcome WriteOut(std::string_view text) {
  const size_t written = std::fwrite(text.data(), 1, text.size(), stdout);
  if (written == text.size() && std::fflush(stdout) == 0) return Outcome();
  if (errno == EPIPE) return Outcome::ReaderLeft();
  return Outcome::Failed(std::string("cannot write to stdout: ") +
                         std::strerror(errno));
}

namespace {

// One value a line must hold for readers whose lines also end at these Unicode
// line breaks (Python's splitlines); inside JSON they occur in strings only.
void EscapeLineBreaks(std::string& json) {
  constexpr std::pair<std::string_view, std::string_view> kBreaks[] = {
      {"\xc2\x85", "\\u0085"},
      {"\xe2\x80\xa8", "\\u2028"},
      {"\xe2\x80\xa9", "\\u2029"}};
  for (const auto& [character, escape] : kBreaks) {
    for (size_t at = json.find(character); at != std::string::npos;
         at = json.find(character, at + escape.size())) {
      json.replace(at, character.size(), escape);
    }
  }
}

}  // namespace

std::string JsonText(const Json& value) {
  std::string json = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  EscapeLineBreaks(json);
  return json;
}

Outcome WriteJsonLine(const Json& value) {
  return WriteOut(JsonText(value) + "\n");
}

std::string FloatsText(const float* values, size_t count) {
  std::string list = "[";
  for (size_t i = 0; i < count; ++i) {
    if (i > 0) list += ',';
    if (!std::isfinite(values[i])) {
      list += "null";
      continue;
    }
    char text[32];
    const auto result = std::to_chars(text, text + sizeof(text), values[i]);
    list.append(text, result.ptr);
  }
  return list + "]";
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
