#include "examples/inlay/csv.h"

#include <utility>

namespace inlay::cli {
namespace {

using Fields = std::vector<std::pair<std::string, std::string>>;

std::string Text(const Json& value) {
  if (value.is_null()) return "";
  return value.is_string() ? value.get<std::string>() : JsonText(value);
}

// Rows are one object deep by construction.
Fields Flatten(const Json& row) {
  Fields fields;
  for (const auto& [name, value] : row.items()) {
    if (!value.is_object()) {
      fields.emplace_back(name, Text(value));
      continue;
    }
    for (const auto& [inner, part] : value.items()) {
      fields.emplace_back(name + "_" + inner, Text(part));
    }
  }
  return fields;
}

}  // namespace

std::string CsvLine(const std::vector<std::string>& fields) {
  std::string line;
  for (size_t i = 0; i < fields.size(); ++i) {
    if (i > 0) line += ',';
    if (fields[i].find_first_of(",\"\r\n") == std::string::npos) {
      line += fields[i];
      continue;
    }
    line += '"';
    for (const char c : fields[i])
      line += c == '"' ? "\"\"" : std::string(1, c);
    line += '"';
  }
  return line + "\n";
}

std::string CsvTable(const std::vector<Json>& rows) {
  if (rows.empty()) return "";
  std::vector<std::string> columns;
  for (const auto& [name, value] : Flatten(rows[0])) columns.push_back(name);
  std::string text = CsvLine(columns);
  for (const Json& row : rows) {
    const Fields fields = Flatten(row);
    std::vector<std::string> line(columns.size());
    for (size_t i = 0; i < columns.size(); ++i) {
      for (const auto& [name, value] : fields) {
        if (name == columns[i]) line[i] = value;
      }
    }
    text += CsvLine(line);
  }
  return text;
}

}  // namespace inlay::cli
