// What attention's scores have of how far keys are from queries, as plain data:
// learned numbers or rows of tables, by the names of their tensors.
#ifndef INLAY_CORE_MODEL_DISTANCE_SPEC_H_
#define INLAY_CORE_MODEL_DISTANCE_SPEC_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/model/layer_spec.h"

namespace inlay {

// A row of a table for each distance -reach .. reach; further ones have the
// last on their side. Copies share the list: a model of thousands of layers has
// it once.
class DistanceRows {
 public:
  DistanceRows() : DistanceRows(std::vector<int32_t>()) {}
  explicit DistanceRows(std::vector<int32_t> rows)
      : rows_(std::make_shared<const std::vector<int32_t>>(std::move(rows))) {}

  const std::vector<int32_t>& rows() const { return *rows_; }
  int reach() const { return static_cast<int>(rows_->size() / 2); }

 private:
  std::shared_ptr<const std::vector<int32_t>> rows_;
};

// What scores grow by with how far the key is from the query (relative position
// biases): each head's own number for each distance, of a table that layers may
// share.
struct DistanceBiasSpec {
  std::string table;  // tensor [rows, num_heads]
  int64_t rows = 0;
  DistanceRows row_of;  // of key - query
};

// What queries and keys are multiplied by beside each other, by how far one is
// from the other (DeBERTa): rows that a layer makes of embeddings, which layers
// may share.
struct RelativePositionsSpec {
  std::string table;  // tensor [rows, width] of embeddings
  int64_t rows = 0;
  int64_t width = 0;
  NormSpec norm;              // of a row
  DistanceRows row_of;        // of query - key
  bool with_keys = false;     // queries are multiplied by keys of rows
  bool with_queries = false;  // and keys by queries of rows
  // What makes those, where the layer's own q and k do not.
  std::optional<LinearSpec> key;
  std::optional<LinearSpec> query;
};

}  // namespace inlay

#endif  // INLAY_CORE_MODEL_DISTANCE_SPEC_H_
