#include "core/model/layers/grouped_linear.h"

#include "memory/status.h"

namespace inlay {
namespace {

// Groups side by side as a row a token and group.
TensorView GroupRows(const TensorView& matrix, int64_t groups) {
  return MatrixView(matrix.data, matrix.dtype, matrix.rows() * groups,
                    matrix.cols() / groups);
}

}  // namespace

absl::StatusOr<GroupedLinear> GroupedLinear::Create(
    absl::Span<const LinearSpec> groups, LinearOutput output,
    ModelBuild& build) {
  GroupedLinear linear;
  linear.on_cpu_ = build.on_cpu();
  linear.num_groups_ = static_cast<int64_t>(groups.size());
  ExpertLinear::Experts experts;
  for (const LinearSpec& group : groups) experts.push_back({group});
  INLAY_ASSIGN_OR_RETURN(
      linear.layer_,
      ExpertLinear::Create(experts, static_cast<int>(groups.size()), true,
                           output, build));
  return linear;
}

RoutingParams GroupedLinear::Place(Arena& arena, int64_t tokens) const {
  RoutingParams routed;
  if (!on_cpu_) return routed;  // that all go to all need not be listed
  const auto take = [&](int64_t count) {
    return reinterpret_cast<int32_t*>(
        arena.Take(static_cast<size_t>(count) * sizeof(int32_t)));
  };
  routed.experts = take(tokens * num_groups_);
  routed.offsets = take(num_groups_ + 1);
  routed.slots = take(tokens * num_groups_);
  return routed;
}

size_t GroupedLinear::ScratchBytes(int64_t tokens) const {
  Arena arena(nullptr);
  Place(arena, tokens);
  return arena.used();
}

absl::Status GroupedLinear::Forward(const TensorView& x, const TensorView& y,
                                    std::byte* scratch,
                                    const Step& step) const {
  const auto tokens = static_cast<int32_t>(x.rows());
  const auto groups = static_cast<int32_t>(num_groups_);
  Arena arena(scratch);
  const RoutingParams routed = Place(arena, tokens);
  for (int32_t g = 0; on_cpu_ && g < groups; ++g) {
    routed.offsets[g] = g * tokens;
    for (int32_t t = 0; t < tokens; ++t) {
      routed.experts[t * groups + g] = g;
      routed.slots[g * tokens + t] = t * groups + g;
    }
  }
  if (on_cpu_) routed.offsets[groups] = groups * tokens;
  return layer_.Forward(GroupRows(x, groups), routed, GroupRows(y, groups),
                        step.kernel_workspace, step.stream);
}

}  // namespace inlay
