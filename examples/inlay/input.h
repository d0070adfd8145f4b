// What the command reads: files, stdin, JSON. Everything is capped: neither a
// long file nor a deep document takes the program down.
#ifndef INLAY_EXAMPLES_INLAY_INPUT_H_
#define INLAY_EXAMPLES_INLAY_INPUT_H_

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "examples/inlay/outcome.h"
#include "examples/inlay/output.h"

namespace inlay::cli {

inline constexpr size_t kMaxFileBytes = size_t{1} << 30;
inline constexpr size_t kMaxLineBytes = size_t{1} << 28;

// "-" is stdin.
Outcome ReadFile(const std::string& path, std::string* text);
// Refuses documents nested deeper than 64.
Outcome ParseJson(const std::string& text, Json* value);
// Calls `take` with each line of `path` ("-": stdin) as it comes, without its
// newline; stops at the first failure, whose message then names the line.
Outcome ForEachLine(const std::string& path,
                    const std::function<Outcome(const std::string&)>& take);
// Texts of a .jsonl, a line of which is {"text": ".."}; any other file is one.
Outcome ReadTexts(const std::string& path, std::vector<std::string>* texts);

}  // namespace inlay::cli

#endif  // INLAY_EXAMPLES_INLAY_INPUT_H_
