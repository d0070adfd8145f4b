// What the prefix index costs the step thread: with nothing to share (256
// requests that come, decode and go, the pool full of old blocks), and for a
// long hit. There is no device.
#include <time.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <random>
#include <vector>

#include "memory/kv/block_pool.h"
#include "memory/kv/block_table.h"
#include "memory/kv/prefix_index.h"
#include "memory/kv/reservation.h"

namespace inlay {
namespace {

constexpr int kBlockSize = 16;

// Nanoseconds spent between Start() and Stop().
class Timer {
 public:
  void Start() { start_ = Clock::now(); }
  void Stop() {
    ns_ +=
        std::chrono::duration<double, std::nano>(Clock::now() - start_).count();
  }
  double ns() const { return ns_; }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_;
  double ns_ = 0;
};

std::vector<int32_t> RandomTokens(std::mt19937* rng, int count) {
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  for (int32_t& token : tokens) token = static_cast<int32_t>((*rng)() % 128000);
  return tokens;
}

bool Append(KvBlockTable* table, int64_t count) {
  auto reservation = KvReservation::Make(table, count);
  if (reservation.ok()) reservation->Commit(count);
  return reservation.ok();
}

struct Request {
  KvBlockTable table;
  PrefixCursor cursor;
  std::vector<int32_t> tokens;
};

// Requests of `prompt` + `decode` tokens until each of `running` slots has had
// `rounds`; all different. With `indexed`, through a prefix index.
bool NoHits(int running, int prompt, int decode, int rounds, bool indexed) {
  const int blocks_of_one = (prompt + decode) / kBlockSize + 1;
  KvBlockPool pool(2 * running * blocks_of_one);
  PrefixIndex index(&pool, PrefixIndex::Options());
  std::mt19937 rng(1);
  Timer find, blocks, insert, release;
  std::vector<Request> requests;
  for (int i = 0; i < running; ++i)
    requests.push_back({KvBlockTable(&pool, kBlockSize), {}, {}});
  int64_t num_tokens = 0;
  for (int step = 0; step < rounds * decode; ++step) {
    for (int i = 0; i < running; ++i) {
      Request& r = requests[static_cast<size_t>(i)];
      // Each slot begins at another step.
      if ((step + i * decode / running) % decode != 0) continue;
      release.Start();
      if (indexed) index.InsertAll(0, r.tokens, &r.table, &r.cursor);
      r.table.Clear();
      release.Stop();
      r.cursor = PrefixCursor();
      r.tokens = RandomTokens(&rng, prompt + decode);
      find.Start();
      if (indexed) {
        const PrefixMatch match = index.Find(0, r.tokens);
        index.Take(match, 0, r.tokens, &r.table, &r.cursor);
      }
      find.Stop();
      blocks.Start();
      if (!Append(&r.table, prompt)) return false;
      blocks.Stop();
      num_tokens += prompt;
    }
    blocks.Start();
    for (Request& r : requests) {
      if (!r.tokens.empty() && !Append(&r.table, 1)) return false;
    }
    blocks.Stop();
    insert.Start();
    for (Request& r : requests) {
      if (!r.tokens.empty() && indexed)
        index.Insert(0, r.tokens, &r.table, &r.cursor);
    }
    insert.Stop();
    for (Request& r : requests) num_tokens += r.tokens.empty() ? 0 : 1;
  }
  const auto per_token = static_cast<double>(num_tokens);
  std::printf(
      "%-8s %5d+%-4d | %6.1f  %6.1f  %6.1f  %6.1f | %6.1f ns/token, %7.1f "
      "ns/block | %.1f us/step, %lld reclaimed\n",
      indexed ? "indexed" : "without", prompt, decode, find.ns() / per_token,
      insert.ns() / per_token, blocks.ns() / per_token,
      release.ns() / per_token,
      (find.ns() + insert.ns() + blocks.ns() + release.ns()) / per_token,
      (find.ns() + insert.ns() + blocks.ns() + release.ns()) / per_token *
          kBlockSize,
      insert.ns() / (rounds * decode) / 1000,
      static_cast<long long>(index.num_reclaimed()));
  for (Request& r : requests) r.table.Clear();
  return true;
}

// Find() of a cached prompt of `length` tokens, and of one that differs.
bool LongHit(int length, int64_t window) {
  KvBlockPool pool(length / kBlockSize + 1);
  PrefixIndex::Options options;
  options.group.window = window;
  PrefixIndex index(&pool, options);
  std::mt19937 rng(2);
  const std::vector<int32_t> tokens = RandomTokens(&rng, length);
  const std::vector<int32_t> others = RandomTokens(&rng, length);
  KvBlockTable table(&pool, kBlockSize);
  PrefixCursor cursor;
  if (!Append(&table, length)) return false;
  index.InsertAll(0, tokens, &table, &cursor);
  std::vector<double> hit, miss, take, release;
  for (int i = 0; i < 101; ++i) {
    Timer hit_timer, miss_timer, take_timer, release_timer;
    table.Clear();
    hit_timer.Start();
    const PrefixMatch match = index.Find(0, tokens);
    hit_timer.Stop();
    take_timer.Start();
    index.Take(match, 0, tokens, &table, &cursor);
    take_timer.Stop();
    miss_timer.Start();
    const PrefixMatch none = index.Find(0, others);
    miss_timer.Stop();
    release_timer.Start();
    table.Clear();
    release_timer.Stop();
    if (match.num_tokens != length || none.num_tokens != 0) return false;
    hit.push_back(hit_timer.ns());
    miss.push_back(miss_timer.ns());
    take.push_back(take_timer.ns());
    release.push_back(release_timer.ns());
  }
  const auto median = [](std::vector<double>& v) {
    std::nth_element(v.begin(), v.begin() + 50, v.end());
    return v[50] / 1000;
  };
  std::printf(
      "%6d tokens, window %5lld | Find, hit: %7.1f us, miss: %7.1f us | Take "
      "%6.1f us | release %6.1f us\n",
      length, static_cast<long long>(window), median(hit), median(miss),
      median(take), median(release));
  return true;
}

}  // namespace
}  // namespace inlay

int main() {
  std::printf("0 %% hits, 256 running, ns/token (prompts and decodes)\n");
  std::printf("%-8s %10s | %6s  %6s  %6s  %6s |\n", "", "prompt+dec", "find",
              "insert", "blocks", "release");
  bool ok = true;
  for (int prompt : {16, 256, 2048}) {
    for (bool indexed : {false, true})
      ok = ok && inlay::NoHits(256, prompt, 256, 8, indexed);
  }
  ok = ok && inlay::LongHit(1000, 0) && inlay::LongHit(30000, 0) &&
       inlay::LongHit(30000, 4096) && inlay::LongHit(120000, 0);
  return ok ? 0 : 1;
}
