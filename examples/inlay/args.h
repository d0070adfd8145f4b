// A declarative command line: what a command takes is declared once, with the
// variable it goes to and the values allowed; parsing, messages and help follow
// from that. Knows nothing of models.
#ifndef INLAY_EXAMPLES_INLAY_ARGS_H_
#define INLAY_EXAMPLES_INLAY_ARGS_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "examples/inlay/outcome.h"

namespace inlay::cli {

// Reads a whole text as a number; no value when it is not one.
std::optional<int64_t> ParseInteger(std::string_view text);
std::optional<double> ParseReal(std::string_view text);
// "4096", "512K", "2M", "1G": powers of 1024.
std::optional<uint64_t> ParseBytes(std::string_view text);
// "1,2,3"; an empty text is no list.
std::optional<std::vector<int64_t>> ParseIntegerList(std::string_view text);

class Args {
 public:
  Args(std::string command, std::vector<std::string> words);

  // Variables keep their value when the option is not given; they must outlive
  // Parse().
  void Positional(std::string name, std::string help, std::string* value);
  void Flag(std::string name, std::string help, bool* value);
  void Text(std::string name, std::string metavar, std::string help,
            std::optional<std::string>* value);
  void Texts(std::string name, std::string metavar, std::string help,
             std::vector<std::string>* values);
  template <typename T>
  void Integer(std::string name, std::string help, T* value, int64_t lowest,
               int64_t highest = std::numeric_limits<int32_t>::max()) {
    AddInteger(std::move(name), std::move(help), lowest, highest,
               [value](int64_t given) { *value = static_cast<T>(given); });
  }
  template <typename T>
  void Real(std::string name, std::string help, T* value, double lowest,
            double highest) {
    AddReal(std::move(name), std::move(help), lowest, highest,
            [value](double given) { *value = static_cast<T>(given); });
  }
  void Bytes(std::string name, std::string help, uint64_t* value);
  // One of `choices`; `value` gets its index.
  void Choice(std::string name, std::string help,
              std::vector<std::string> choices, int32_t* value);
  // Options that do nothing unless one of `others` is given, or where one of
  // them is: Parse() refuses them there.
  void OnlyWith(std::vector<std::string> names,
                std::vector<std::string> others) {
    rules_.push_back({std::move(names), std::move(others), true});
  }
  void NotWith(std::vector<std::string> names,
               std::vector<std::string> others) {
    rules_.push_back({std::move(names), std::move(others), false});
  }
  // A line of the help's end.
  void Note(std::string line);

  // kUsage names the word that is wrong; kHelp for --help.
  Outcome Parse();
  std::string UsageText() const;
  std::string HelpText() const;
  const std::string& command() const { return command_; }

 private:
  struct Option {
    std::string name;
    std::string metavar;  // "" for a flag
    std::string help;
    std::function<Outcome(const std::string&)> take;
  };
  struct Rule {
    std::vector<std::string> names, others;
    bool with;
  };
  struct Operand {
    std::string name;
    std::string help;
    std::string* value;
  };

  void Add(std::string name, std::string metavar, std::string help,
           std::function<Outcome(const std::string&)> take);
  void AddInteger(std::string name, std::string help, int64_t lowest,
                  int64_t highest, std::function<void(int64_t)> set);
  void AddReal(std::string name, std::string help, double lowest,
               double highest, std::function<void(double)> set);
  Outcome ParseOption(size_t* index);
  Outcome CheckRules() const;

  std::string command_;
  std::vector<std::string> words_;
  std::vector<Option> options_;
  std::vector<Operand> operands_;
  std::vector<Rule> rules_;
  std::set<std::string> given_;
  std::vector<std::string> notes_;
};

}  // namespace inlay::cli

#endif  // INLAY_EXAMPLES_INLAY_ARGS_H_
