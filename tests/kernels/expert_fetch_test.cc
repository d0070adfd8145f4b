// expert_fetch's decisions, on the CPU: what every row does.
#include "kernels/moe/expert_fetch.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <vector>

#include "tests/support/expert_fetch_util.h"
#include "tests/support/kernel_test_util.h"

namespace inlay {
namespace {

using ::inlay::testing::FetchProblem;
using ::inlay::testing::OffsetsOf;

struct FetchShape {
  int experts, slots, matrices;
};
constexpr FetchShape kShapes[] = {{1, 1, 1},  {4, 2, 2},    {8, 8, 2},
                                  {60, 7, 3}, {128, 32, 2}, {1024, 100, 2}};

const ExpertFetchRow& CpuRow() { return ExpertFetchTable().back(); }

TEST(ExpertFetchTest, StateLiesApartAndAligned) {
  for (const FetchShape& shape : kShapes) {
    ExpertFetchDesc desc{shape.experts, shape.slots, shape.matrices};
    std::vector<std::byte> memory(ExpertFetchStateBytes(desc) + 16);
    std::byte* base = memory.data();
    const ExpertFetchState state = ExpertFetchStateAt(desc, base);
    std::set<const std::byte*> ends;
    const std::byte* last = base;
    const auto part = [&](const auto* at, int64_t count) {
      const auto* begin = reinterpret_cast<const std::byte*>(at);
      EXPECT_GE(begin, last);
      EXPECT_EQ((begin - base) % static_cast<int64_t>(alignof(decltype(*at))),
                0);
      last = begin + count * static_cast<int64_t>(sizeof(*at));
    };
    part(state.counts, 1);
    part(state.table, int64_t{shape.matrices} * shape.experts);
    part(state.last_use, shape.slots);
    part(state.copies, shape.slots);
    part(state.slot_of, shape.experts);
    part(state.expert_of, shape.slots);
    part(state.num_copies, 1);
    EXPECT_EQ(static_cast<size_t>(last - base), ExpertFetchStateBytes(desc));
  }
}

// After every step each needed expert's bytes are where the table says, slots
// and experts agree, and nothing the step needs has lost its slot.
TEST(ExpertFetchTest, TableIsRightAndNothingNeededIsLost) {
  ::inlay::testing::TestCpu cpu(1);
  for (const FetchShape& shape : kShapes) {
    for (const int needed : {1, 3, shape.slots, shape.slots + 5}) {
      SCOPED_TRACE(::testing::Message()
                   << shape.experts << " experts, " << shape.slots
                   << " slots, needed " << needed);
      FetchProblem problem(shape.experts, shape.slots, shape.matrices);
      std::mt19937 rng(static_cast<unsigned>(shape.experts + needed));
      for (int step = 1; step <= 40; ++step) {
        const std::vector<int32_t> wanted =
            ::inlay::testing::DrawExperts(shape.experts, needed, rng);
        const std::vector<int32_t> slots_before = problem.slot_of();
        const ExpertFetchCounts before = problem.counts();
        ASSERT_TRUE(problem.Run(CpuRow(), wanted, *cpu.stream).ok());
        problem.CheckState();
        int64_t hits = 0, resident = 0;
        for (const int32_t e : wanted) {
          const int32_t slot = slots_before[static_cast<size_t>(e)];
          if (slot >= 0) {
            ++hits;
            EXPECT_EQ(problem.slot_of()[static_cast<size_t>(e)], slot) << e;
          }
          resident += problem.slot_of()[static_cast<size_t>(e)] >= 0 ? 1 : 0;
        }
        const auto count = static_cast<int64_t>(wanted.size());
        EXPECT_EQ(resident, std::min<int64_t>(count, shape.slots));
        const ExpertFetchCounts after = problem.counts();
        EXPECT_EQ(after.steps, step);
        EXPECT_EQ(after.hits - before.hits, hits);
        EXPECT_EQ(after.fetches - before.fetches, resident - hits);
        EXPECT_EQ(after.direct - before.direct, count - resident);
      }
    }
  }
}

// Against a list of experts by when they were needed last.
TEST(ExpertFetchTest, ReplacesWhatWasUsedLongestAgo) {
  ::inlay::testing::TestCpu cpu(1);
  constexpr int kExperts = 40, kSlots = 12;
  FetchProblem problem(kExperts, kSlots, 1);
  std::vector<int> last(kExperts, 0);
  std::mt19937 rng(7);
  for (int step = 1; step <= 200; ++step) {
    const std::vector<int32_t> wanted =
        ::inlay::testing::DrawExperts(kExperts, 4, rng);
    const std::vector<int32_t> before = problem.slot_of();
    ASSERT_TRUE(problem.Run(CpuRow(), wanted, *cpu.stream).ok());
    int newest_gone = 0, oldest_kept = step;
    for (size_t e = 0; e < kExperts; ++e) {
      if (before[e] < 0) continue;
      if (problem.slot_of()[e] < 0) {
        newest_gone = std::max(newest_gone, last[e]);
      } else if (std::find(wanted.begin(), wanted.end(),
                           static_cast<int32_t>(e)) == wanted.end()) {
        oldest_kept = std::min(oldest_kept, last[e]);
      }
    }
    EXPECT_LE(newest_gone, oldest_kept) << "step " << step;
    for (const int32_t e : wanted) last[static_cast<size_t>(e)] = step;
  }
}

// A step that needs more than there is room for leaves those that have a slot
// where they are.
TEST(ExpertFetchTest, StepThatNeedsAllEvictsNothing) {
  ::inlay::testing::TestCpu cpu(1);
  FetchProblem problem(16, 4, 2);
  ASSERT_TRUE(problem.Run(CpuRow(), {3, 5, 7, 11}, *cpu.stream).ok());
  const std::vector<int32_t> before = problem.slot_of();
  std::vector<int32_t> all(16);
  for (int32_t e = 0; e < 16; ++e) all[static_cast<size_t>(e)] = e;
  ASSERT_TRUE(problem.Run(CpuRow(), all, *cpu.stream).ok());
  EXPECT_EQ(problem.slot_of(), before);
  problem.CheckState();
  EXPECT_EQ(problem.counts().direct, 12);
  EXPECT_EQ(problem.counts().hits, 4);
}

TEST(ExpertFetchTest, StepWithoutTokensChangesNothing) {
  ::inlay::testing::TestCpu cpu(1);
  FetchProblem problem(16, 4, 2);
  ASSERT_TRUE(problem.Run(CpuRow(), {3, 5}, *cpu.stream).ok());
  const std::vector<int32_t> before = problem.slot_of();
  ASSERT_TRUE(problem.Run(CpuRow(), {}, *cpu.stream).ok());
  EXPECT_EQ(problem.slot_of(), before);
  EXPECT_EQ(problem.num_copies(), 0);
  problem.CheckState();
}

TEST(ExpertFetchTest, RefusesNumbersOutOfRange) {
  const ExpertFetchDesc good{8, 2, 2, {16, 32}};
  EXPECT_TRUE(ValidateExpertFetch(good).ok());
  for (ExpertFetchDesc bad :
       {ExpertFetchDesc{0, 1, 1, {16}}, ExpertFetchDesc{kMaxExperts + 1, 1, 1},
        ExpertFetchDesc{8, 0, 1, {16}}, ExpertFetchDesc{8, 9, 1, {16}},
        ExpertFetchDesc{8, 2, 0, {16}}, ExpertFetchDesc{8, 2, 4, {16}},
        ExpertFetchDesc{8, 2, 2, {16}}}) {
    EXPECT_EQ(ValidateExpertFetch(bad).code(),
              absl::StatusCode::kInvalidArgument);
    EXPECT_NE(CpuRow().refuses(bad, DeviceInfo()), nullptr);
  }
}

}  // namespace
}  // namespace inlay
