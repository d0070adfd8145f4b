#include "examples/inlay/args.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <system_error>
#include <utility>

namespace inlay::cli {
namespace {

template <typename T>
std::optional<T> ParseNumber(std::string_view text) {
  T value{};
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    return std::nullopt;
  }
  return value;
}

// 0.5 rather than 0.500000.
std::string Short(double value) {
  char text[32];
  const auto result = std::to_chars(text, text + sizeof(text), value);
  return std::string(text, result.ptr);
}

Outcome WrongValue(const std::string& option, const std::string& got,
                   const std::string& allowed) {
  return Outcome::Usage("--" + option + ": got \"" + got +
                        "\", allowed: " + allowed);
}

}  // namespace

std::optional<int64_t> ParseInteger(std::string_view text) {
  return ParseNumber<int64_t>(text);
}

std::optional<double> ParseReal(std::string_view text) {
  const std::optional<double> value = ParseNumber<double>(text);
  if (!value.has_value() || !std::isfinite(*value)) return std::nullopt;
  return value;
}

std::optional<uint64_t> ParseBytes(std::string_view text) {
  static constexpr std::string_view kUnits = "KMG";
  int shift = 0;
  if (!text.empty()) {
    const size_t unit = kUnits.find(text.back());
    if (unit != std::string_view::npos) {
      shift = 10 * (static_cast<int>(unit) + 1);
      text.remove_suffix(1);
    }
  }
  const std::optional<uint64_t> count = ParseNumber<uint64_t>(text);
  if (!count.has_value() || *count > (UINT64_MAX >> shift)) return std::nullopt;
  return *count << shift;
}

std::optional<std::vector<int64_t>> ParseIntegerList(std::string_view text) {
  std::vector<int64_t> values;
  while (true) {
    const size_t comma = text.find(',');
    const std::optional<int64_t> value = ParseInteger(text.substr(0, comma));
    if (!value.has_value()) return std::nullopt;
    values.push_back(*value);
    if (comma == std::string_view::npos) return values;
    text.remove_prefix(comma + 1);
  }
}

Args::Args(std::string command, std::vector<std::string> words)
    : command_(std::move(command)), words_(std::move(words)) {}

void Args::Add(std::string name, std::string metavar, std::string help,
               std::function<Outcome(const std::string&)> take) {
  options_.push_back(
      {std::move(name), std::move(metavar), std::move(help), std::move(take)});
}

void Args::Positional(std::string name, std::string help, std::string* value) {
  operands_.push_back({std::move(name), std::move(help), value});
}

void Args::Flag(std::string name, std::string help, bool* value) {
  Add(std::move(name), "", std::move(help), [value](const std::string&) {
    *value = true;
    return Outcome();
  });
}

void Args::Text(std::string name, std::string metavar, std::string help,
                std::optional<std::string>* value) {
  Add(std::move(name), std::move(metavar), std::move(help),
      [value](const std::string& given) {
        *value = given;
        return Outcome();
      });
}

void Args::Texts(std::string name, std::string metavar, std::string help,
                 std::vector<std::string>* values) {
  Add(std::move(name), std::move(metavar), std::move(help),
      [values](const std::string& given) {
        values->push_back(given);
        return Outcome();
      });
}

void Args::AddInteger(std::string name, std::string help, int64_t lowest,
                      int64_t highest, std::function<void(int64_t)> set) {
  const std::string allowed = "an integer from " + std::to_string(lowest) +
                              " to " + std::to_string(highest);
  const auto take = [name, lowest, highest, allowed,
                     set = std::move(set)](const std::string& given) {
    const std::optional<int64_t> value = ParseInteger(given);
    if (!value.has_value() || *value < lowest || *value > highest) {
      return WrongValue(name, given, allowed);
    }
    set(*value);
    return Outcome();
  };
  Add(name, "N", std::move(help), take);
}

void Args::AddReal(std::string name, std::string help, double lowest,
                   double highest, std::function<void(double)> set) {
  const std::string allowed =
      "a number from " + Short(lowest) + " to " + Short(highest);
  const auto take = [name, lowest, highest, allowed,
                     set = std::move(set)](const std::string& given) {
    const std::optional<double> value = ParseReal(given);
    if (!value.has_value() || *value < lowest || *value > highest) {
      return WrongValue(name, given, allowed);
    }
    set(*value);
    return Outcome();
  };
  Add(name, "X", std::move(help), take);
}

void Args::Bytes(std::string name, std::string help, uint64_t* value) {
  Add(name, "BYTES", std::move(help), [name, value](const std::string& given) {
    const std::optional<uint64_t> bytes = ParseBytes(given);
    if (!bytes.has_value()) {
      return WrongValue(name, given,
                        "bytes, with K, M or G for powers of 1024");
    }
    *value = *bytes;
    return Outcome();
  });
}

void Args::Choice(std::string name, std::string help,
                  std::vector<std::string> choices, int32_t* value) {
  std::string allowed;
  for (const std::string& choice : choices) {
    allowed += (allowed.empty() ? "" : "|") + choice;
  }
  Add(name, allowed, std::move(help),
      [name, allowed, value,
       choices = std::move(choices)](const std::string& given) {
        const auto found = std::find(choices.begin(), choices.end(), given);
        if (found == choices.end()) return WrongValue(name, given, allowed);
        *value = static_cast<int32_t>(found - choices.begin());
        return Outcome();
      });
}

void Args::Note(std::string line) { notes_.push_back(std::move(line)); }

// words_[*index] is "--name" or "--name=value"; moves on to the last word used.
Outcome Args::ParseOption(size_t* index) {
  const std::string& word = words_[*index];
  const size_t equals = word.find('=');
  const std::string name = word.substr(2, equals - std::min(equals, size_t{2}));
  if (name == "help") return Outcome::Help();
  const auto option =
      std::find_if(options_.begin(), options_.end(),
                   [&](const Option& other) { return other.name == name; });
  if (option == options_.end()) {
    return Outcome::Usage("there is no option --" + name);
  }
  given_.insert(name);
  const bool has_value = equals != std::string::npos;
  if (option->metavar.empty()) {
    if (has_value) return Outcome::Usage("--" + name + " takes no value");
    return option->take("");
  }
  if (has_value) return option->take(word.substr(equals + 1));
  if (*index + 1 == words_.size()) {
    return Outcome::Usage("--" + name +
                          ": no value follows, allowed: " + option->metavar);
  }
  return option->take(words_[++*index]);
}

Outcome Args::CheckRules() const {
  for (const Rule& rule : rules_) {
    const auto name =
        std::find_if(rule.names.begin(), rule.names.end(),
                     [&](const auto& one) { return given_.contains(one); });
    if (name == rule.names.end()) continue;
    const auto other =
        std::find_if(rule.others.begin(), rule.others.end(),
                     [&](const auto& one) { return given_.contains(one); });
    if ((other != rule.others.end()) == rule.with) continue;
    if (!rule.with) {
      return Outcome::Usage("--" + *name + " does nothing with --" + *other);
    }
    std::string list;
    for (size_t i = 0; i < rule.others.size(); ++i) {
      const bool last = i + 1 == rule.others.size();
      list += (i == 0 ? "--" : last ? " or --" : ", --") + rule.others[i];
    }
    return Outcome::Usage("--" + *name + " does nothing without " + list);
  }
  return Outcome();
}

Outcome Args::Parse() {
  std::vector<std::string> operands;
  bool options_end = false;
  for (size_t i = 0; i < words_.size(); ++i) {
    const std::string& word = words_[i];
    if (!options_end && word == "--") {
      options_end = true;
    } else if (!options_end && word == "-h") {
      return Outcome::Help();
    } else if (!options_end && word.size() > 2 && word.starts_with("--")) {
      CLI_RETURN_IF_FAILED(ParseOption(&i));
    } else if (!options_end && word.size() > 1 && word.starts_with("-")) {
      return Outcome::Usage("there is no option " + word);
    } else {
      operands.push_back(word);
    }
  }
  if (operands.size() > operands_.size()) {
    return Outcome::Usage("unexpected \"" + operands[operands_.size()] + "\"");
  }
  if (operands.size() < operands_.size()) {
    return Outcome::Usage(operands_[operands.size()].name + " is missing");
  }
  for (size_t i = 0; i < operands.size(); ++i) {
    *operands_[i].value = operands[i];
  }
  return CheckRules();
}

std::string Args::UsageText() const {
  std::string text = "usage: inlay " + command_;
  for (const Operand& operand : operands_) text += " " + operand.name;
  return text + " [OPTIONS]\nsee: inlay " + command_ + " --help\n";
}

std::string Args::HelpText() const {
  std::vector<std::pair<std::string, std::string>> rows;
  for (const Operand& operand : operands_) {
    rows.emplace_back(operand.name, operand.help);
  }
  for (const Option& option : options_) {
    rows.emplace_back("--" + option.name +
                          (option.metavar.empty() ? "" : " " + option.metavar),
                      option.help);
  }
  constexpr size_t kColumn = 28;
  std::string text = "usage: inlay " + command_;
  for (const Operand& operand : operands_) text += " " + operand.name;
  text += " [OPTIONS]\n\n";
  for (const auto& [left, right] : rows) {
    text += "  " + left;
    if (left.size() + 2 > kColumn) {
      text += "\n" + std::string(kColumn + 2, ' ');
    } else {
      text.append(kColumn - left.size(), ' ');
    }
    text += right + "\n";
  }
  if (!notes_.empty()) text += "\n";
  for (const std::string& note : notes_) text += note + "\n";
  return text;
}

}  // namespace inlay::cli
