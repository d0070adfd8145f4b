#include "examples/inlay/input.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

namespace inlay::cli {
namespace {

constexpr int kMaxDepth = 64;

struct CloseFile {
  void operator()(std::FILE* file) const {
    if (file != stdin) std::fclose(file);
  }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

Outcome Open(const std::string& path, File* file) {
  file->reset(path == "-" ? stdin : std::fopen(path.c_str(), "rb"));
  if (*file != nullptr) return Outcome();
  return Outcome::Failed("cannot open " + path + ": " + std::strerror(errno));
}

}  // namespace

Outcome ReadFile(const std::string& path, std::string* text) {
  File file;
  CLI_RETURN_IF_FAILED(Open(path, &file));
  std::vector<char> chunk(size_t{1} << 16);
  text->clear();
  size_t count = 0;
  while ((count = std::fread(chunk.data(), 1, chunk.size(), file.get())) > 0) {
    if (text->size() + count > kMaxFileBytes) {
      return Outcome::Failed(path + " has more than " +
                             std::to_string(kMaxFileBytes) +
                             " bytes, which is all that is read");
    }
    text->append(chunk.data(), count);
  }
  if (std::ferror(file.get()) == 0) return Outcome();
  return Outcome::Failed("cannot read " + path + ": " + std::strerror(errno));
}

Outcome ParseJson(const std::string& text, Json* value) {
  bool too_deep = false;
  const auto watch = [&](int depth, Json::parse_event_t, Json&) {
    too_deep = too_deep || depth > kMaxDepth;
    return !too_deep;
  };
  try {
    *value = Json::parse(text, watch);
  } catch (const Json::exception& error) {
    // Less the parser's own name of it, "[json.exception.parse_error.101] ".
    const std::string_view what = error.what();
    const size_t name = what.find("] ");
    return Outcome::Failed(
        "not JSON: " +
        std::string(what.substr(name == what.npos ? 0 : name + 2)));
  }
  if (too_deep) {
    return Outcome::Failed("the JSON is nested deeper than " +
                           std::to_string(kMaxDepth) + ", which is the most");
  }
  return Outcome();
}

Outcome ForEachLine(const std::string& path,
                    const std::function<Outcome(const std::string&)>& take) {
  File file;
  CLI_RETURN_IF_FAILED(Open(path, &file));
  std::string line;
  size_t number = 1;
  // One line at a time, so that an answer comes before the next question.
  for (int c = 0; (c = std::getc(file.get())) != EOF || !line.empty();) {
    if (c != EOF && c != '\n') {
      line.push_back(static_cast<char>(c));
      if (line.size() <= kMaxLineBytes) continue;
      return Outcome::Failed("line " + std::to_string(number) +
                             " has more than " + std::to_string(kMaxLineBytes) +
                             " bytes, which is the most");
    }
    CLI_RETURN_IF_FAILED(take(line).In("line " + std::to_string(number)));
    line.clear();
    ++number;
    if (c == EOF) break;
  }
  if (std::ferror(file.get()) == 0) return Outcome();
  return Outcome::Failed("cannot read " + path + ": " + std::strerror(errno));
}

Outcome ReadTexts(const std::string& path, std::vector<std::string>* texts) {
  if (!path.ends_with(".jsonl")) return ReadFile(path, &texts->emplace_back());
  return ForEachLine(path, [&](const std::string& line) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) return Outcome();
    Json json;
    CLI_RETURN_IF_FAILED(ParseJson(line, &json));
    if (!json.is_object() || !json.contains("text") ||
        !json["text"].is_string()) {
      return Outcome::Failed("a line is {\"text\":\"..\"}, got " +
                             line.substr(0, 80));
    }
    texts->push_back(json["text"].get<std::string>());
    return Outcome();
  });
}

}  // namespace inlay::cli
