// Queues of merges: the lowest rank first, of equal ranks the leftmost. Two of
// them, for the pieces of ordinary texts and for those as long as a text. Know
// no tokens.
#ifndef INLAY_CORE_TEXT_RANK_QUEUE_H_
#define INLAY_CORE_TEXT_RANK_QUEUE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

namespace inlay {

struct RankedPosition {
  uint32_t rank = 0;
  uint32_t position = 0;
};

// A heap: O(log n), and as much memory as there are entries.
class HeapQueue {
 public:
  void Clear() { heap_.clear(); }
  void Push(RankedPosition entry) {
    heap_.push_back(uint64_t{entry.rank} << 32 | entry.position);
    std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
  }
  // False when it is empty.
  bool Pop(RankedPosition* entry) {
    if (heap_.empty()) return false;
    std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
    *entry = {static_cast<uint32_t>(heap_.back() >> 32),
              static_cast<uint32_t>(heap_.back())};
    heap_.pop_back();
    return true;
  }

 private:
  std::vector<uint64_t> heap_;
};

// A list of positions for each rank, and a heap of the ranks alone, of which
// there are few beside so many positions. Those of a rank come in order for the
// most part, as who pushes them goes from left to right: nothing is sorted
// then, and all is read one after another.
class RankQueue {
 public:
  // Forgets everything. Ranks are below end_rank from now on.
  void Reset(uint32_t end_rank) {
    list_of_.assign(end_rank, kNoList);
    lists_.clear();
    ranks_.clear();
    current_ = nullptr;
  }
  void Push(RankedPosition entry) {
    uint32_t& index = list_of_[entry.rank];
    if (index == kNoList) {
      index = static_cast<uint32_t>(lists_.size());
      lists_.emplace_back();
    }
    List& list = lists_[index];
    if (list.positions.empty()) {
      ranks_.push_back(entry.rank);
      std::push_heap(ranks_.begin(), ranks_.end(), std::greater<>());
      current_ = nullptr;
    } else if (entry.position < list.positions.back()) {
      list.is_sorted = false;
    }
    list.positions.push_back(entry.position);
  }
  bool Pop(RankedPosition* entry) {
    if (ranks_.empty()) return false;
    if (current_ == nullptr) current_ = &lists_[list_of_[ranks_.front()]];
    List& list = *current_;
    const auto next =
        list.positions.begin() + static_cast<ptrdiff_t>(list.num_taken);
    if (!list.is_sorted) std::sort(next, list.positions.end());
    list.is_sorted = true;
    *entry = {ranks_.front(), *next};
    if (++list.num_taken == list.positions.size()) {
      list = List();  // its memory is others' now
      std::pop_heap(ranks_.begin(), ranks_.end(), std::greater<>());
      ranks_.pop_back();
      current_ = nullptr;
    }
    return true;
  }

 private:
  static constexpr uint32_t kNoList = UINT32_MAX;

  struct List {
    std::vector<uint32_t> positions;
    size_t num_taken = 0;
    bool is_sorted = true;  // from num_taken on
  };

  std::vector<uint32_t> list_of_;  // by rank
  std::deque<List> lists_;
  std::vector<uint32_t> ranks_;  // a heap of those with a list
  List* current_ = nullptr;      // of the lowest rank; null: not looked up
};

}  // namespace inlay

#endif  // INLAY_CORE_TEXT_RANK_QUEUE_H_
