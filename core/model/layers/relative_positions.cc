#include "core/model/layers/relative_positions.h"

#include <algorithm>
#include <string>
#include <utility>

#include "memory/status.h"

namespace inlay {
namespace {

absl::StatusOr<std::shared_ptr<const RelativeTable>> LoadRelativeTable(
    const RelativePositionsSpec& spec, ModelBuild& build) {
  std::shared_ptr<const RelativeTable>& known =
      build.relative_tables[spec.table];
  if (known != nullptr) return known;
  auto table = std::make_shared<RelativeTable>();
  INLAY_ASSIGN_OR_RETURN(table->embeddings,
                         build.weights.Floats(spec.table, spec.rows, spec.width,
                                              VectorKind::kBias));
  const std::vector<int32_t>& row_of = spec.row_of.rows();
  INLAY_ASSIGN_OR_RETURN(
      std::byte* const rows,
      build.weights.Image({reinterpret_cast<const std::byte*>(row_of.data()),
                           row_of.size() * sizeof(int32_t)}));
  table->row_of = reinterpret_cast<const int32_t*>(rows);
  INLAY_ASSIGN_OR_RETURN(table->norm,
                         Norm::Create(spec.norm, spec.width, DType::kF32,
                                      build.activation, build));
  known = std::move(table);
  return known;
}

}  // namespace

absl::StatusOr<RelativePositions> RelativePositions::Create(
    const AttentionSpec& spec, const InputLinear& inputs, ModelBuild& build) {
  const RelativePositionsSpec& relative = *spec.relative;
  INLAY_DCHECK(relative.with_keys || relative.with_queries);
  INLAY_DCHECK(relative.row_of.rows().size() % 2 == 1);
  INLAY_DCHECK(std::ranges::all_of(relative.row_of.rows(), [&](int32_t row) {
    return row >= 0 && row < relative.rows;
  }));
  RelativePositions made;
  INLAY_ASSIGN_OR_RETURN(made.table_, LoadRelativeTable(relative, build));
  made.rows_ = relative.rows;
  made.width_ = relative.width;
  made.q_width_ = int64_t{spec.num_heads} * spec.head_dim;
  made.activation_ = build.activation;
  made.shares_ = !relative.key.has_value() && !relative.query.has_value();
  made.relative_.rows = made.table_->row_of;
  made.relative_.reach = relative.row_of.reach();
  const auto room = [&](bool wanted, TensorView* rows) -> absl::Status {
    if (!wanted) return absl::OkStatus();
    *rows = MatrixView(nullptr, build.activation, made.rows_, made.q_width_);
    INLAY_ASSIGN_OR_RETURN(rows->data, build.weights.Room(rows->bytes()));
    return absl::OkStatus();
  };
  INLAY_RETURN_IF_ERROR(room(relative.with_keys, &made.relative_.keys));
  INLAY_RETURN_IF_ERROR(room(relative.with_queries, &made.relative_.queries));
  if (made.shares_) {
    INLAY_DCHECK(spec.qkv.size() == 3 && !inputs.layers().empty());
    INLAY_ASSIGN_OR_RETURN(
        made.copy_,
        Norm::Copy(made.q_width_, build.activation, build.activation, build));
    return made;
  }
  INLAY_DCHECK(relative.key.has_value() == relative.with_keys &&
               relative.query.has_value() == relative.with_queries);
  if (relative.with_keys) {
    INLAY_ASSIGN_OR_RETURN(
        made.key_,
        Linear::Create(*relative.key, LinearOutput::kActivation, build));
  }
  if (relative.with_queries) {
    INLAY_ASSIGN_OR_RETURN(
        made.query_,
        Linear::Create(*relative.query, LinearOutput::kActivation, build));
  }
  return made;
}

RelativePositions::Scratch RelativePositions::Place(
    Arena& arena, const InputLinear& inputs) const {
  Scratch scratch;
  scratch.x = arena.TakeMatrix(rows_, width_, activation_);
  size_t kernel = 0;
  if (shares_) {
    int64_t outputs = 0;
    for (const Linear& layer : inputs.layers()) {
      outputs += layer.outputs();
      kernel = std::max(kernel, layer.KernelBytes(rows_));
    }
    scratch.own = arena.TakeMatrix(rows_, outputs, activation_);
  } else {
    if (!relative_.keys.empty()) kernel = key_.KernelBytes(rows_);
    if (!relative_.queries.empty()) {
      kernel = std::max(kernel, query_.KernelBytes(rows_));
    }
  }
  scratch.kernel = arena.Take(kernel);
  return scratch;
}

size_t RelativePositions::ScratchBytes(const InputLinear& inputs) const {
  Arena arena(nullptr);
  Place(arena, inputs);
  return arena.used();
}

// Queries and keys of the embeddings as if these were tokens, without biases
// left out.
absl::Status RelativePositions::FillByOwn(const InputLinear& inputs,
                                          const Scratch& scratch,
                                          const TensorView& x,
                                          Stream& stream) const {
  int64_t column = 0;
  for (const Linear& layer : inputs.layers()) {
    if (column >= 2 * q_width_) break;
    INLAY_RETURN_IF_ERROR(
        layer.Forward(x, {}, ColumnSlice(scratch.own, column, layer.outputs()),
                      scratch.kernel, stream));
    column += layer.outputs();
  }
  if (!relative_.queries.empty()) {
    INLAY_RETURN_IF_ERROR(copy_.Forward(ColumnSlice(scratch.own, 0, q_width_),
                                        relative_.queries, stream));
  }
  if (relative_.keys.empty()) return absl::OkStatus();
  return copy_.Forward(ColumnSlice(scratch.own, q_width_, q_width_),
                       relative_.keys, stream);
}

absl::Status RelativePositions::Fill(const InputLinear& inputs, std::byte* at,
                                     Stream& stream) const {
  Arena arena(at);
  const Scratch scratch = Place(arena, inputs);
  TensorView x =
      MatrixView(const_cast<std::byte*>(
                     reinterpret_cast<const std::byte*>(table_->embeddings)),
                 DType::kF32, rows_, width_);
  if (table_->norm.present()) {
    INLAY_RETURN_IF_ERROR(table_->norm.Forward(x, scratch.x, stream));
    x = scratch.x;
  }
  if (shares_) return FillByOwn(inputs, scratch, x, stream);
  if (!relative_.keys.empty()) {
    INLAY_RETURN_IF_ERROR(
        key_.Forward(x, {}, relative_.keys, scratch.kernel, stream));
  }
  if (relative_.queries.empty()) return absl::OkStatus();
  return query_.Forward(x, {}, relative_.queries, scratch.kernel, stream);
}

}  // namespace inlay
