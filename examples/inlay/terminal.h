// Lines from stdin and Ctrl-C, for the interactive form. Owns the program's
// SIGINT handler: the library installs none.
#ifndef INLAY_EXAMPLES_INLAY_TERMINAL_H_
#define INLAY_EXAMPLES_INLAY_TERMINAL_H_

#include <string>

namespace inlay::cli {

// From here on Ctrl-C ends no program; it is asked for.
void CatchInterrupts();
// Whether Ctrl-C came since the last call.
bool TakeInterrupt();

class LineReader {
 public:
  enum class Got { kLine, kEnd, kInterrupt };
  // Waits for a line of stdin, without its newline.
  Got Next(std::string* line);

 private:
  std::string pending_;
  bool end_ = false;
};

}  // namespace inlay::cli

#endif  // INLAY_EXAMPLES_INLAY_TERMINAL_H_
