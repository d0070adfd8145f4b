// What the command prints: results on stdout, everything else on stderr. Owns
// what happens when stdout is full or its reader has left.
#ifndef INLAY_EXAMPLES_INLAY_OUTPUT_H_
#define INLAY_EXAMPLES_INLAY_OUTPUT_H_

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "examples/inlay/outcome.h"

namespace inlay::cli {

// Members keep the order they are given in.
using Json = nlohmann::ordered_json;

// Writes and flushes.
Outcome WriteOut(std::string_view text);
// One line; bytes that are not UTF-8 become U+FFFD.
Outcome WriteJsonLine(const Json& value);
std::string JsonText(const Json& value);
// A JSON array; the shortest decimals that read back as the same float32, null
// for what is not finite.
std::string FloatsText(const float* values, size_t count);

bool StdinIsTerminal();
bool StderrIsTerminal();
// "inlay: text" on stderr.
void Complain(std::string_view text);

// A line on stderr that is written over and over, every tenth of a second: work
// that is quicker shows none. Nothing where stderr is no terminal.
class Progress {
 public:
  explicit Progress(bool enabled);
  ~Progress() { Clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void Update(std::string_view text);
  // "`what` 3/10".
  void Update(std::string_view what, size_t done, size_t total);
  void Clear();

 private:
  const bool enabled_;
  bool shown_ = false;
  std::chrono::steady_clock::time_point last_;
};

}  // namespace inlay::cli

#endif  // INLAY_EXAMPLES_INLAY_OUTPUT_H_
