// Matrices whose columns have an order of their own, as those of quantised
// layers may have (core/formats/quantized_source.h). Header only.
#ifndef INLAY_TESTS_SUPPORT_ORDERED_COLUMNS_H_
#define INLAY_TESTS_SUPPORT_ORDERED_COLUMNS_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/memory_weights.h"

namespace inlay::testing {

// Of which layers gates and ups, which read one x, have one order.
enum class GateOrders { kOne, kApart };

// Which input each column of the layer takes, drawn by its name.
inline std::vector<int32_t> OrderOf(std::string layer, int64_t k,
                                    GateOrders gates = GateOrders::kOne) {
  for (const auto& [up, gate] :
       {std::pair{"up_proj", "gate_proj"}, {".w3", ".w1"}}) {
    const size_t at = layer.find(up);
    if (gates == GateOrders::kOne && at != layer.npos) {
      layer.replace(at, std::strlen(up), gate);
    }
  }
  std::vector<int32_t> order(static_cast<size_t>(k));
  std::iota(order.begin(), order.end(), 0);
  std::seed_seq seed(layer.begin(), layer.end());
  std::mt19937 rng(seed);
  std::shuffle(order.begin(), order.end(), rng);
  return order;
}

// `source` with the columns of those matrices that `picks` in such an order.
inline std::shared_ptr<const WeightSource> WithOrders(
    const WeightSource& source,
    const std::function<bool(const std::string& name)>& picks,
    GateOrders gates = GateOrders::kOne) {
  constexpr std::string_view kWeight = ".weight";
  auto ordered = std::make_shared<MemoryWeights>(true);
  for (const WeightInfo& info : source.weights()) {
    std::vector<std::byte> bytes(info.bytes);
    EXPECT_TRUE(source.Read(info, 0, absl::MakeSpan(bytes)).ok());
    if (info.shape.size() != 2 || !info.name.ends_with(kWeight) ||
        !picks(info.name)) {
      ordered->Add(info, bytes.data());
      continue;
    }
    const std::string layer =
        info.name.substr(0, info.name.size() - kWeight.size());
    const int64_t k = info.shape[1];
    const std::vector<int32_t> order = OrderOf(layer, k, gates);
    const size_t size = RowBytes(info.dtype, 1);
    const size_t row_bytes = size * static_cast<size_t>(k);
    std::vector<std::byte> moved(info.bytes);
    for (size_t row = 0; row < info.bytes; row += row_bytes) {
      for (size_t j = 0; j < order.size(); ++j) {
        std::memcpy(&moved[row + j * size],
                    &bytes[row + static_cast<size_t>(order[j]) * size], size);
      }
    }
    ordered->Add(info, moved.data());
    ordered->Add(layer + ".input_permutation", DType::kI32, {k}, order.data());
  }
  return ordered;
}

}  // namespace inlay::testing

#endif  // INLAY_TESTS_SUPPORT_ORDERED_COLUMNS_H_
