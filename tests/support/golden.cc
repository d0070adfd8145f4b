#include "tests/support/golden.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

namespace inlay {

std::vector<GoldenCase> ReadGolden(const std::string& directory) {
  std::ifstream file(directory + "/golden.json");
  const auto json = nlohmann::json::parse(file, nullptr, false);
  std::vector<GoldenCase> cases;
  if (json.is_discarded()) {
    ADD_FAILURE() << directory << "/golden.json cannot be read";
    return cases;
  }
  for (const auto& entry : json["cases"]) {
    GoldenCase golden;
    golden.name = entry["name"];
    golden.input_ids = entry["input_ids"].get<std::vector<int32_t>>();
    golden.positions = entry["positions"].get<std::vector<int>>();
    golden.logits = entry["logits"].get<std::vector<std::vector<float>>>();
    golden.logit_std = entry["logit_std"];
    golden.sensitivity = entry["sensitivity"];
    golden.greedy = entry["greedy"]["tokens"].get<std::vector<int32_t>>();
    golden.greedy_margins =
        entry["greedy"]["margins"].get<std::vector<double>>();
    if (entry.contains("layer_outputs_last_position")) {
      for (const auto& layer : entry["layer_outputs_last_position"]) {
        std::vector<float>& outputs = golden.layer_outputs.emplace_back();
        // A row, or one a residual stream.
        for (const auto& part : layer) {
          if (part.is_array()) {
            const auto row = part.get<std::vector<float>>();
            outputs.insert(outputs.end(), row.begin(), row.end());
          } else {
            outputs.push_back(part.get<float>());
          }
        }
      }
    }
    const char* rounded = "activation_quantised_logits_last_position";
    if (entry.contains(rounded)) {
      golden.rounded_logits = entry[rounded].get<std::vector<float>>();
      golden.rounded_noise = entry["activation_quantised_noise"];
    }
    cases.push_back(std::move(golden));
  }
  return cases;
}

double GoldenError(const GoldenCase& golden,
                   const std::vector<std::vector<float>>& got) {
  double worst = 0;
  for (size_t i = 0; i < golden.positions.size(); ++i) {
    const auto& want = golden.logits[i];
    const auto& row = got[static_cast<size_t>(golden.positions[i])];
    for (size_t j = 0; j < want.size(); ++j) {
      const double error = std::fabs(double{row[j]} - want[j]);
      if (std::isnan(error)) return std::numeric_limits<double>::infinity();
      worst = std::max(worst, error);
    }
  }
  return worst / golden.logit_std;
}

}  // namespace inlay
