// WeightLoader's matrices and vectors, each loaded once where layers share
// them.
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/model/weights.h"
#include "memory/status.h"

namespace inlay {
namespace {

// Of one way to ask for `parts`: `how` is a letter for the function and the
// numbers that it gets besides.
std::string KeyOf(std::string how, absl::Span<const WeightLoader::Rows> parts) {
  for (const WeightLoader::Rows& part : parts) {
    absl::StrAppend(&how, " ", part.n, " ", part.name);
  }
  return how;
}

// What `made` has under `key`, or what `make` gives, which it has then.
template <typename Value, typename Make>
absl::StatusOr<Value> Once(std::map<std::string, Value>& made, std::string key,
                           Make make) {
  const auto found = made.find(key);
  if (found != made.end()) return found->second;
  INLAY_ASSIGN_OR_RETURN(const Value value, make());
  made.emplace(std::move(key), value);
  return value;
}

}  // namespace

absl::StatusOr<TensorView> WeightLoader::Matrix(const std::string& name,
                                                int64_t n, int64_t k) {
  if (!shares_) return LoadMatrix(name, n, k);
  return Once(shared_matrices_, KeyOf(absl::StrCat("m ", k), {{name, n}}),
              [&] { return LoadMatrix(name, n, k); });
}

absl::StatusOr<TensorView> WeightLoader::Stacked(absl::Span<const Rows> parts,
                                                 int64_t k) {
  if (!shares_) return LoadStacked(parts, k);
  return Once(shared_matrices_, KeyOf(absl::StrCat("s ", k), parts),
              [&] { return LoadStacked(parts, k); });
}

absl::StatusOr<TensorView> WeightLoader::Packed(absl::Span<const Rows> parts,
                                                int64_t k,
                                                const Packing& packing) {
  if (!shares_) return LoadPacked(parts, k, packing);
  const std::string key = KeyOf(
      absl::StrCat("p ", k, " ", packing.bytes, " ", packing.group), parts);
  const bool is_there = shared_matrices_.contains(key);
  INLAY_ASSIGN_OR_RETURN(const TensorView view,
                         Once(shared_matrices_, key,
                              [&] { return LoadPacked(parts, k, packing); }));
  // Each asks for itself what the weights say.
  if (is_there && mode_ == Mode::kLoad) {
    INLAY_RETURN_IF_ERROR(Inspect(packing, view.data));
  }
  return view;
}

absl::StatusOr<const float*> WeightLoader::StackedVector(
    absl::Span<const Rows> parts, VectorKind kind) {
  if (!shares_) return LoadStackedVector(parts, kind);
  return Once(shared_vectors_,
              KeyOf(absl::StrCat("v ", static_cast<int>(kind)), parts),
              [&] { return LoadStackedVector(parts, kind); });
}

}  // namespace inlay
