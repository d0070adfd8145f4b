// The scheduler's host time a step, with every running request decoding: Plan()
// and Commit(), and what the engine does with blocks in between (reservations,
// publishing full blocks to the prefix index), told apart. Medians and means
// over many steps, with and without KV at its limit; there is no device.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <numeric>
#include <vector>

#include "memory/kv/block_pool.h"
#include "memory/kv/kv_group.h"
#include "memory/kv/prefix_cache.h"
#include "memory/kv/tables.h"
#include "sched/scheduler.h"

namespace inlay {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kPrompt = 1000;
constexpr int kShared = 512;  // tokens that all prompts begin with
constexpr int kSteps = 500;

// Microseconds of each step, one list a part.
struct Times {
  std::vector<double> plan, reserve, publish, commit, sum, items;
};

double Median(std::vector<double> values) {
  const auto middle =
      values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double Mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) /
         static_cast<double>(values.size());
}

struct Sequence {
  KvTables tables;
  PrefixCursors cursors;
  std::vector<int32_t> tokens;
};

class Bench final : public KvOwner {
 public:
  // budget_us: of each plan once all are decoding; 0: none.
  Bench(int running, const KvGroups& groups, int32_t num_blocks,
        int64_t budget_us)
      : pool_(num_blocks),
        index_(&pool_, groups, PrefixIndex::Options()),
        budget_us_(budget_us) {
    SchedulerConfig config;
    config.groups = groups;
    config.max_running = running;
    config.max_batch_tokens = running * kPrompt;
    config.starvation_us = 1000000;
    scheduler_ = *Scheduler::Create(config, &pool_, this);
    for (int i = 0; i < running; ++i) {
      sequences_.push_back(
          {KvTables(&pool_, groups), PrefixCursors(groups.size()), {}});
      std::vector<int32_t>& tokens = sequences_.back().tokens;
      tokens.resize(kPrompt);
      for (int p = 0; p < kPrompt; ++p)
        tokens[static_cast<size_t>(p)] = p < kShared ? p : i * kPrompt + p;
    }
  }

  // False: a bug.
  bool Run(Times* times) {
    for (size_t i = 0; i < sequences_.size(); ++i) {
      SchedRequest request;
      request.id = i;
      request.session_id = i;
      request.share_key = i;
      request.num_tokens_total = kPrompt;
      request.max_new_tokens = kSteps + 1;
      request.tables = &sequences_[i].tables;
      if (!scheduler_->Submit(request).ok()) return false;
    }
    while (scheduler_->HasWork()) {
      if (!Step(times)) return false;
    }
    return scheduler_->empty() && pool_.num_used() == pool_.num_evictable();
  }

  PrefixHit Peek(const SchedRequest& request) override {
    const Sequence& sequence = sequences_[request.id];
    const KvMatch match = index_.Find(
        0,
        absl::MakeConstSpan(sequence.tokens).first(sequence.tokens.size() - 1));
    return {match.num_tokens, match.num_blocks() - match.num_evictable()};
  }
  KvTaken Take(const SchedRequest& request, int64_t max_tokens) override {
    Sequence& sequence = sequences_[request.id];
    const auto tokens = absl::MakeConstSpan(sequence.tokens)
                            .first(static_cast<size_t>(max_tokens));
    const KvMatch match = index_.Find(0, tokens);
    index_.Take(match, 0, tokens, &sequence.tables, &sequence.cursors);
    return {match.num_tokens, 0};
  }
  void Drop(const SchedRequest& request) override {
    Sequence& sequence = sequences_[request.id];
    index_.InsertAll(0, sequence.tokens, &sequence.tables, &sequence.cursors);
    sequence.tables.Clear();
    sequence.cursors.assign(sequence.cursors.size(), PrefixCursor());
  }

 private:
  bool Step(Times* times) {
    now_us_ += 10000;
    const Clock::time_point start = Clock::now();
    const StepPlan& plan =
        scheduler_->Plan({now_us_, decoding_ ? budget_us_ : 0, true});
    const Clock::time_point planned = Clock::now();
    if (plan.empty()) return false;
    for (const StepItem& item : plan.items) {
      auto reservation = KvTablesReservation::Make(&sequences_[item.id].tables,
                                                   item.num_tokens);
      if (!reservation.ok()) return false;
      reservations_.push_back(*std::move(reservation));
    }
    for (size_t i = 0; i < plan.items.size(); ++i)
      reservations_[i].Commit(plan.items[i].num_tokens);
    reservations_.clear();
    const Clock::time_point reserved = Clock::now();
    for (const StepItem& item : plan.items) {
      Sequence& sequence = sequences_[item.id];
      index_.Insert(0, sequence.tokens, &sequence.tables, &sequence.cursors);
      sequence.tables.DropPassed();
    }
    const Clock::time_point published = Clock::now();
    results_.assign(plan.items.size(), StepResult());
    for (size_t i = 0; i < plan.items.size(); ++i) {
      if (!plan.items[i].samples) continue;
      results_[i].tokens_appended = 1;
      std::vector<int32_t>& tokens = sequences_[plan.items[i].id].tokens;
      tokens.push_back(static_cast<int32_t>(tokens.size() + i));
    }
    const bool decodes_only = plan.prefill_tokens == 0;
    const Clock::time_point before_commit = Clock::now();
    const double elapsed_us = 1000 + 100.0 * plan.shape.num_tokens;
    if (!scheduler_->Commit(plan, results_, elapsed_us).ok()) return false;
    const Clock::time_point committed = Clock::now();
    for (const StepItem& item : plan.items) {
      if (scheduler_->Find(item.id) == nullptr) EndRequest(item.id);
    }
    decoding_ |= decodes_only;
    if (!decodes_only) return true;
    const auto us = [](Clock::duration d) {
      return std::chrono::duration<double, std::micro>(d).count();
    };
    times->plan.push_back(us(planned - start));
    times->reserve.push_back(us(reserved - planned));
    times->publish.push_back(us(published - reserved));
    times->commit.push_back(us(committed - before_commit));
    times->sum.push_back(times->plan.back() + times->commit.back());
    times->items.push_back(static_cast<double>(plan.items.size()));
    return true;
  }

  void EndRequest(RequestId id) {
    SchedRequest request;
    request.id = id;
    Drop(request);
  }

  KvBlockPool pool_;
  PrefixCache index_;
  const int64_t budget_us_;
  std::vector<Sequence> sequences_;
  std::unique_ptr<Scheduler> scheduler_;
  std::vector<KvTablesReservation> reservations_;
  std::vector<StepResult> results_;
  int64_t now_us_ = 0;
  bool decoding_ = false;
};

int Main() {
  std::printf(
      "requests  decodes |   plan  commit  together (mean) | reserve  publish "
      "(mean)   us a step\n");
  for (int running : {1, 16, 64, 256, 1024}) {
    const int32_t of_one = (kPrompt + kSteps) / 16 + 1;
    const int32_t shared = kShared / 16;
    const int32_t all = running * (of_one - shared) + shared;
    struct {
      const char* name;
      int32_t blocks;
      int64_t budget_us;
      KvGroups groups = {KvGroup()};
    } const cases[] = {
        {"", all, 0},
        {"short of blocks", all / 2 + of_one, 0},
        {"time for all", all, int64_t{1} << 40},
        {"time for some", all, 7000},
        // As many blocks again for the windows, which are a third of that.
        {"two groups", 2 * all, 0, {{16, 0}, {16, 512}}},
    };
    for (const auto& c : cases) {
      Times times;
      Bench bench(running, c.groups, c.blocks, c.budget_us);
      if (!bench.Run(&times) || times.plan.empty()) return 1;
      std::printf(
          "%8d  %7.0f | %6.2f  %6.2f  %8.2f %6.2f | %7.2f  %7.2f %6.2f  %s\n",
          running, Median(times.items), Median(times.plan),
          Median(times.commit), Median(times.sum), Mean(times.sum),
          Median(times.reserve), Median(times.publish), Mean(times.publish),
          c.name);
    }
  }
  return 0;
}

}  // namespace
}  // namespace inlay

int main() { return inlay::Main(); }
