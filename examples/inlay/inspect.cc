// inlay inspect: what a model is, as JSON or as a table.
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "examples/inlay/commands.h"
#include "examples/inlay/input.h"

namespace inlay::cli {
namespace {

std::string Size(uint64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; value >= 1024 && unit < 4; ++unit) value /= 1024;
  char text[32];
  std::snprintf(text, sizeof(text), unit == 0 ? "%.0f %s" : "%.1f %s", value,
                kUnits[unit]);
  return text;
}

// Names that speak of bytes get a unit.
std::string Value(const std::string& name, const Json& value) {
  if (value.is_number_unsigned() && name.find("bytes") != std::string::npos) {
    return Size(value.get<uint64_t>());
  }
  return value.is_string() ? value.get<std::string>() : JsonText(value);
}

using Rows = std::vector<std::vector<std::string>>;

// Columns as wide as their widest cell.
std::string Table(const Rows& rows) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], row[i].size());
    }
  }
  std::string text;
  for (const auto& row : rows) {
    text += " ";
    for (size_t i = 0; i < row.size(); ++i) {
      text += " " + row[i];
      if (i + 1 < row.size()) text.append(widths[i] - row[i].size() + 1, ' ');
    }
    text += "\n";
  }
  return text;
}

std::vector<std::string> Row(std::string first, const Json& members) {
  std::vector<std::string> row;
  if (!first.empty()) row.push_back(std::move(first));
  for (const auto& [name, value] : members.items()) {
    row.push_back(Value(name, value));
  }
  return row;
}

// An object's members, or a list's entries, a row each.
std::string Section(const Json& section) {
  Rows rows;
  for (const auto& [name, value] : section.items()) {
    const bool listed = section.is_array();
    if (value.is_object()) {
      rows.push_back(Row(listed ? "" : name, value));
    } else {
      rows.push_back({listed ? "" : name, Value(name, value)});
    }
  }
  return Table(rows);
}

std::string ReadableModel(const Json& document) {
  std::string text;
  Rows rows;
  for (const auto& [name, value] : document.items()) {
    if (!value.is_structured()) rows.push_back({name, Value(name, value)});
  }
  text += Table(rows);
  for (const auto& [name, value] : document.items()) {
    if (value.is_structured()) text += "\n" + name + "\n" + Section(value);
  }
  return text;
}

}  // namespace

Outcome RunInspect(Args& args, const CommonOptions& common) {
  std::string path;
  args.Positional("MODEL", "the model", &path);
  CLI_RETURN_IF_FAILED(args.Parse());
  inlay_buffer* buffer = nullptr;
  CLI_RETURN_IF_FAILED(Call([&](inlay_error** error) {
    return inlay_model_inspect(path.c_str(), &buffer, error);
  }));
  const std::string text = TakeBuffer(buffer);
  if (common.json) return WriteOut(text + "\n");
  Json document;
  CLI_RETURN_IF_FAILED(ParseJson(text, &document));
  return WriteOut(ReadableModel(document));
}

}  // namespace inlay::cli
