#include "core/engine/load_pace.h"

#include <algorithm>

namespace inlay {

int64_t LoadPace::BudgetOfOthers(int64_t budget_us, int64_t num_coming,
                                 size_t block_bytes) const {
  if (budget_us == 0 || !due()) return budget_us;
  const double wanted = BlockUs(block_bytes) * static_cast<double>(num_coming);
  const double half = static_cast<double>(budget_us) / 2;
  return budget_us - static_cast<int64_t>(std::min(half, wanted));
}

double LoadPace::EndsUs(const Step& step) const {
  const auto target = static_cast<double>(step.target_us);
  const double as_long = step.computed && !due()
                             ? step.elapsed_us
                             : std::max(step.elapsed_us, kLeastUs);
  double end = step.elapsed_us + as_long;
  if (target > 0 && step.has_decodes)
    end = due() ? std::max(target, step.elapsed_us + target / 2) : target;
  return step.budget_us == 0
             ? end
             : std::min(end, static_cast<double>(step.budget_us));
}

void LoadPace::TookBlock(double us, size_t block_bytes) {
  block_us_ = std::max(block_us_ * kDecay,
                       std::min(us, BlockUs(block_bytes) * kMostGrowth));
}

}  // namespace inlay
