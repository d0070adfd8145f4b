// LoadPace: how much of a step's time KV that comes back from a tier may take,
// and what a block takes. Numbers only.
#ifndef INLAY_CORE_ENGINE_LOAD_PACE_H_
#define INLAY_CORE_ENGINE_LOAD_PACE_H_

#include <cstddef>
#include <cstdint>

namespace inlay {

class LoadPace {
 public:
  // Steps without time for a block after which one comes all the same, for
  // which time is left where it can be: as the scheduler does it with prefill.
  static constexpr int32_t kGap = 8;
  // Of a step that nobody else wants.
  static constexpr double kLeastUs = 2000;
  // One block that took long (a disk, pages of fresh memory) says little about
  // the next.
  static constexpr double kMostGrowth = 4;
  static constexpr double kDecay = 0.95;  // a block, or a step without one
  // Before any was measured: page faults and a copy out of what makes way
  // included.
  static constexpr double kPriorBytesPerUs = 1000;

  // A block is due.
  bool due() const { return steps_without_ >= kGap; }
  // What a block may take: what the slowest took, until it was long ago.
  double BlockUs(size_t block_bytes) const {
    return block_us_ > 0 ? block_us_
                         : static_cast<double>(block_bytes) / kPriorBytesPerUs;
  }

  // What is left of a step's budget (0: none) for others where a block is due
  // of `num_coming`: at least half.
  int64_t BudgetOfOthers(int64_t budget_us, int64_t num_coming,
                         size_t block_bytes) const;

  // A step, its own work done.
  struct Step {
    double elapsed_us = 0;  // that it took
    int64_t budget_us = 0;  // 0: none
    int64_t target_us = 0;  // for decodes; 0: none
    bool computed = false;  // anything
    bool has_decodes = false;
  };
  // When, since its beginning, loading must end. Others get at least half of
  // the time, whatever is left of a call's budget, which has room for more
  // steps; where decodes have a target, what that leaves, or half of it again.
  double EndsUs(const Step& step) const;

  void TookBlock(double us, size_t block_bytes);
  // At the end of a step: something came, or nothing was to come,
  void KeptUp() { steps_without_ = 0; }
  // ... or there was no time for it.
  void HadNoTime() {
    ++steps_without_;
    block_us_ *= kDecay;
  }

 private:
  double block_us_ = 0;  // 0: not measured
  int32_t steps_without_ = 0;
};

}  // namespace inlay

#endif  // INLAY_CORE_ENGINE_LOAD_PACE_H_
