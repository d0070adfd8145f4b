// CalibratedLayers: what is known of a layer's inputs.
#include <algorithm>
#include <set>
#include <utility>

#include "core/quantize/calibrated_layers.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {

bool CalibratedLayers::IsWanted(const Input& input) const {
  const auto readers = ReadersOf(input);
  return std::any_of(readers.begin(), readers.end(), [&](const auto* reader) {
    return IsQuantized(reader->name + std::string(kWeightSuffix));
  });
}

bool CalibratedLayers::NeedsMatrix(const Input& input) const {
  if (is(QuantizeMethod::kAwq)) return CanScale(input);
  return is(QuantizeMethod::kGptq) && IsWanted(input);
}

absl::Status CalibratedLayers::Collect(bool* goes_on) {
  const std::vector<size_t> list = WithRoom(0);
  const std::set<size_t> with_room(list.begin(), list.end());
  Hessians hessians;
  bool all_have_room = true;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const LinearInput& linear = inputs_[i].linear;
    if (!IsWanted(inputs_[i])) continue;
    const bool has_room = !MayWait(inputs_[i]) || with_room.contains(i);
    const bool needs_matrix = NeedsMatrix(inputs_[i]);
    all_have_room &= has_room || !needs_matrix;
    hessians.emplace(linear.name(),
                     Hessian(linear.size(), needs_matrix && has_room));
  }
  *goes_on = all_have_room && !is(QuantizeMethod::kGptq);
  INLAY_RETURN_IF_ERROR(
      is_head() ? calibration_->CollectHead(head_.name, &hessians)
                : calibration_->Collect(layer_, *goes_on, &hessians));
  *goes_on |= is_head();
  for (Input& input : inputs_) {
    const auto found = hessians.find(input.linear.name());
    if (found == hessians.end()) continue;
    const int common = input.linear.common;
    INLAY_RETURN_IF_ERROR(Take(
        std::move(found->second),
        common < 0 ? nullptr : &*inputs_[static_cast<size_t>(common)].hessian,
        &input));
  }
  return absl::OkStatus();
}

absl::Status CalibratedLayers::CollectFrom(size_t first) {
  for (Input& input : inputs_) {
    if (!MayWait(input)) continue;
    input.hessian.reset();
    input.factor.reset();
  }
  std::vector<size_t> those = WithRoom(first);
  Hessians hessians;
  for (const size_t i : those) {
    const LinearInput& linear = inputs_[i].linear;
    hessians.emplace(linear.name(), Hessian(linear.size(), true));
    if (linear.common < 0) continue;
    const LinearInput& common =
        inputs_[static_cast<size_t>(linear.common)].linear;
    hessians.emplace(common.name(), Hessian(common.size(), true));
  }
  INLAY_RETURN_IF_ERROR(calibration_->Collect(layer_, false, &hessians));
  // What experts have rows of comes before them, and is needed until then.
  std::reverse(those.begin(), those.end());
  for (const size_t i : those) {
    const LinearInput& linear = inputs_[i].linear;
    const Hessian* common =
        linear.common < 0
            ? nullptr
            : &hessians
                   .find(inputs_[static_cast<size_t>(linear.common)]
                             .linear.name())
                   ->second;
    INLAY_RETURN_IF_ERROR(Take(std::move(hessians.find(linear.name())->second),
                               common, &inputs_[i]));
  }
  return absl::OkStatus();
}

// An H of n inputs has full rank from n tokens on, and a mean of squares is
// within some eighth of what more tokens would give from kMeanTokens on
// (sqrt(2 / 128), of a normal distribution). Tokens that an expert lacks of
// those are taken to be as its layer's are. Of what its down reads other
// experts say nothing, their inner channels have another order: at first all
// inputs are alike, then they have their own squares and do not depend on each
// other.
absl::Status CalibratedLayers::Take(Hessian hessian, const Hessian* common,
                                    Input* input) const {
  input->tokens = hessian.tokens();
  const int64_t width = hessian.inputs();
  const int64_t few = std::min(width, kMeanTokens);
  const auto lacks = [&](int64_t tokens) {
    return input->linear.is_experts && hessian.tokens() < tokens;
  };
  if (common != nullptr) {
    const int64_t enough = hessian.full() ? width : few;
    if (lacks(enough)) hessian.AddMeanOf(*common, enough - hessian.tokens());
  } else {
    if (lacks(few)) hessian.AddIndependent(few - hessian.tokens(), true);
    if (hessian.full() && lacks(width)) {
      hessian.AddIndependent(width - hessian.tokens(), false);
    }
  }
  const absl::Status status = hessian.Check();
  if (!status.ok()) {
    return absl::InvalidArgumentError(
        FormattedString("inputs of \"%s\": %s", input->linear.name(),
                        std::string(status.message())));
  }
  input->diagonal.assign(hessian.diagonal().begin(), hessian.diagonal().end());
  input->sizes = hessian.MeanMagnitudes();
  input->largest = hessian.largest();
  input->hessian = std::move(hessian);
  return absl::OkStatus();
}

absl::Status CalibratedLayers::NeedFactor(Input& input) {
  if (input.factor.has_value()) return absl::OkStatus();
  if (!input.hessian.has_value() || !input.hessian->full()) {
    INLAY_RETURN_IF_ERROR(
        CollectFrom(static_cast<size_t>(&input - inputs_.data())));
    started_us_ = NowUs();
  }
  FactorOptions options;
  options.act_order = options_.act_order && is(QuantizeMethod::kGptq);
  INLAY_ASSIGN_OR_RETURN(
      input.factor,
      InputFactor::Create(*std::move(input.hessian), options, stream_));
  input.hessian.reset();
  return absl::OkStatus();
}

}  // namespace inlay
