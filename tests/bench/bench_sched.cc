// The scheduler's host time a step: Plan() + Commit() with every running
// request decoding, with and without KV at its limit. Prints the median
// step; there is no device, and the time of reservations
// is told apart.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <vector>

#include "memory/kv/block_pool.h"
#include "memory/kv/block_table.h"
#include "memory/kv/reservation.h"
#include "sched/scheduler.h"

namespace inlay {
namespace {

using Clock = std::chrono::steady_clock;

double MicrosSince(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start)
      .count();
}

double Median(std::vector<double> values) {
  std::nth_element(
      values.begin(),
      values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2),
      values.end());
  return values[values.size() / 2];
}

struct Times {
  std::vector<double> plan_commit;
  std::vector<double> reserve;
  std::vector<double> items;
};

// `running` requests of `prompt` tokens, `steps` decode steps each; ids are 0
// .. running-1, the index of their table.
Times Run(int running, int prompt, int steps, int32_t num_blocks) {
  SchedulerConfig config;
  config.max_running = running;
  config.max_batch_tokens =
      running *
      prompt;  // all prompts at once: after one step everybody decodes
  KvBlockPool pool(num_blocks);
  auto scheduler = *Scheduler::Create(config, &pool);
  std::vector<std::unique_ptr<KvBlockTable>> tables;
  for (int i = 0; i < running; ++i) {
    tables.push_back(std::make_unique<KvBlockTable>(&pool, config.block_size));
    SchedRequest request;
    request.id = static_cast<RequestId>(i);
    request.session_id = request.id;
    request.num_tokens_total = prompt;
    request.max_new_tokens = steps + 1;
    request.table = tables.back().get();
    if (!scheduler->Submit(request).ok()) return {};
  }
  Times times;
  std::vector<StepResult> results;
  std::vector<KvReservation> reservations;
  while (scheduler->HasWork()) {
    const Clock::time_point start = Clock::now();
    const StepPlan& plan = scheduler->Plan();
    const double plan_us = MicrosSince(start);
    if (plan.empty()) return {};  // a bug: work, and nothing to do
    const Clock::time_point reserve_start = Clock::now();
    for (RequestId id : plan.preempted) tables[id]->Clear();
    results.assign(plan.items.size(), StepResult());
    for (size_t i = 0; i < plan.items.size(); ++i) {
      const StepItem& item = plan.items[i];
      auto reservation =
          KvReservation::Make(tables[item.id].get(), item.num_tokens);
      if (!reservation.ok()) return {};
      reservations.push_back(*std::move(reservation));
      results[i].tokens_appended = item.samples ? 1 : 0;
    }
    for (size_t i = 0; i < plan.items.size(); ++i)
      reservations[i].Commit(plan.items[i].num_tokens);
    reservations.clear();
    const double reserve_us = MicrosSince(reserve_start);
    const Clock::time_point commit_start = Clock::now();
    const bool decodes_only = plan.prefill_tokens == 0;
    if (!scheduler->Commit(plan, results).ok()) return {};
    for (const StepItem& item : plan.items) {
      if (scheduler->Find(item.id) == nullptr) tables[item.id]->Clear();
    }
    if (!decodes_only) continue;
    times.plan_commit.push_back(plan_us + MicrosSince(commit_start));
    times.reserve.push_back(reserve_us);
    times.items.push_back(static_cast<double>(plan.items.size()));
  }
  return times;
}

}  // namespace
}  // namespace inlay

int main() {
  for (int running : {1, 16, 64, 256, 1024}) {
    const int32_t blocks_of_one = (1000 + 500) / 16 + 1;
    const inlay::Times roomy =
        inlay::Run(running, 1000, 500, running * blocks_of_one);
    const inlay::Times tight = inlay::Run(
        running, 1000, 500, running * blocks_of_one / 2 + blocks_of_one);
    if (roomy.plan_commit.empty() || tight.plan_commit.empty()) return 1;
    for (const inlay::Times& t : {roomy, tight}) {
      std::printf(
          "%4d requests, %4.0f decode a step: Plan+Commit %6.2f us, "
          "reservations %6.2f us a step\n",
          running, inlay::Median(t.items), inlay::Median(t.plan_commit),
          inlay::Median(t.reserve));
    }
  }
  return 0;
}
