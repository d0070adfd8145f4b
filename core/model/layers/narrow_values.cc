#include "core/model/layers/narrow_values.h"

#include <algorithm>

#include "memory/status.h"

namespace inlay {
namespace {

NarrowRuns RunsOf(const AttentionSpec& spec) {
  NarrowRuns runs{spec.num_heads, spec.num_kv_heads, spec.head_dim,
                  spec.value_dim};
  const auto widen = [&](int32_t first, std::vector<ColumnRun>* to) {
    for (int32_t head = 0; head < spec.num_kv_heads; ++head) {
      for (int32_t done = 0; done < spec.head_dim; done += spec.value_dim) {
        to->push_back({first + head * spec.value_dim,
                       std::min(spec.value_dim, spec.head_dim - done)});
      }
    }
  };
  const int32_t before = (spec.num_heads + spec.num_kv_heads) * spec.head_dim;
  widen(0, &runs.widened);
  runs.ordered.push_back({0, before});
  widen(before, &runs.ordered);
  for (int32_t head = 0; head < spec.num_heads; ++head) {
    runs.narrowed.push_back({head * spec.head_dim, spec.value_dim});
  }
  return runs;
}

std::shared_ptr<const NarrowRuns> SharedRuns(const AttentionSpec& spec,
                                             ModelBuild& build) {
  for (const auto& runs : build.narrow_runs) {
    if (runs->num_heads == spec.num_heads &&
        runs->num_kv_heads == spec.num_kv_heads &&
        runs->head_dim == spec.head_dim && runs->value_dim == spec.value_dim) {
      return runs;
    }
  }
  return build.narrow_runs.emplace_back(
      std::make_shared<const NarrowRuns>(RunsOf(spec)));
}

}  // namespace

absl::StatusOr<NarrowValues> NarrowValues::Create(const AttentionSpec& spec,
                                                  ModelBuild& build) {
  NarrowValues values;
  if (spec.value_dim == 0 || spec.value_dim == spec.head_dim) return values;
  INLAY_DCHECK(spec.value_dim > 0 && spec.value_dim < spec.head_dim);
  INLAY_DCHECK(!spec.gated && !spec.keys_as_values && spec.kv_source < 0 &&
               spec.v_norm.kind == NormKind::kNone && spec.clip == 0.0f);
  values.value_width_ = int64_t{spec.num_kv_heads} * spec.value_dim;
  values.width_ = int64_t{spec.num_heads} * spec.value_dim;
  values.runs_ = SharedRuns(spec, build);
  INLAY_ASSIGN_OR_RETURN(values.columns_,
                         build.kernels.Choose("columns", ColumnsTable(),
                                              ColumnsDesc{build.activation}));
  return values;
}

absl::Status NarrowValues::Copy(const TensorView& x,
                                absl::Span<const ColumnRun> runs,
                                const TensorView& y, Stream& stream) const {
  ColumnsParams params;
  params.x = x;
  params.runs = runs;
  params.y = y;
  return columns_.Run(params, stream);
}

absl::Status NarrowValues::Widen(const TensorView& v, const TensorView& wide,
                                 Stream& stream) const {
  return Copy(v, runs_->widened, wide, stream);
}

absl::Status NarrowValues::Order(const TensorView& raw,
                                 const TensorView& ordered,
                                 Stream& stream) const {
  return Copy(raw, runs_->ordered, ordered, stream);
}

absl::Status NarrowValues::Narrow(const TensorView& context,
                                  const TensorView& narrow,
                                  Stream& stream) const {
  return Copy(context, runs_->narrowed, narrow, stream);
}

}  // namespace inlay
