// Relative rows of disentangled_attention for tests: drawn tables, and a table
// of distances in which neighbours may share a row. Header only.
#ifndef INLAY_TESTS_SUPPORT_RELATIVE_ROWS_UTIL_H_
#define INLAY_TESTS_SUPPORT_RELATIVE_ROWS_UTIL_H_

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "kernels/attention/disentangled_attention.h"
#include "tests/support/kernel_test_util.h"

namespace inlay::testing {

enum class RelativeTables : uint8_t { kBoth, kKeys, kQueries };

struct TestRelativeRows {
  // Rows are `pad` elements apart, which are NaN. Of distances that are further
  // than `exact`, four share a row.
  TestRelativeRows() = default;
  TestRelativeRows(const AttentionDesc& desc, int reach, int exact,
                   RelativeTables tables, int64_t pad, unsigned seed)
      : tables(tables), reach(reach) {
    const auto row_of = [&](int distance) {
      const int far = std::abs(distance) - exact;
      const int row = far <= 0 ? std::abs(distance) : exact + (far + 3) / 4;
      return distance < 0 ? -row : row;
    };
    const int last = row_of(reach);
    for (int d = -reach; d <= reach; ++d) rows.push_back(last + row_of(d));
    std::mt19937 rng(seed);
    const int64_t width = int64_t{desc.num_heads} * desc.head_dim;
    keys = TestMatrix(desc.activation, 2 * last + 1, width, pad);
    queries = TestMatrix(desc.activation, 2 * last + 1, width, pad);
    keys.Randomize(rng);
    queries.Randomize(rng);
  }

  bool empty() const { return rows.empty(); }
  bool has_keys() const { return tables != RelativeTables::kQueries; }
  bool has_queries() const { return tables != RelativeTables::kKeys; }
  RelativeRows view() {
    RelativeRows out;
    if (has_keys()) out.keys = keys.view();
    if (has_queries()) out.queries = queries.view();
    out.rows = rows.data();
    out.reach = reach;
    return out;
  }
  int64_t RowOf(int distance) const {
    return rows[static_cast<size_t>(reach +
                                    std::clamp(distance, -reach, reach))];
  }

  // What a score has besides: q [head_dim] and key times the rows at
  // `distance`. `magnitude` grows by the products' magnitudes.
  template <typename Q>
  double Product(const AttentionDesc& desc, int head, int distance, const Q& q,
                 const float* key, double* magnitude) const {
    const int64_t row = RowOf(distance);
    double sum = 0.0;
    for (int d = 0; d < desc.head_dim; ++d) {
      const int64_t column = int64_t{head} * desc.head_dim + d;
      const double of_key = has_keys() ? double{q(d)} * keys(row, column) : 0.0;
      const double of_query =
          has_queries() ? double{key[d]} * queries(row, column) : 0.0;
      sum += of_key + of_query;
      *magnitude += std::abs(of_key) + std::abs(of_query);
    }
    return sum;
  }

  RelativeTables tables = RelativeTables::kBoth;
  int reach = 0;
  std::vector<int32_t> rows;
  TestMatrix keys;
  TestMatrix queries;
};

}  // namespace inlay::testing

#endif  // INLAY_TESTS_SUPPORT_RELATIVE_ROWS_UTIL_H_
