// EvictionHeap: small ids ordered by priority, with removal from the middle.
// Knows nothing of what the ids mean. An indexed binary heap.
#ifndef INLAY_MEMORY_KV_EVICTION_HEAP_H_
#define INLAY_MEMORY_KV_EVICTION_HEAP_H_

#include <cstddef>
#include <cstdint>
#include <tuple>
#include <vector>

#include "memory/status.h"

namespace inlay {

// Only Reserve() allocates. Thread-compatible.
class EvictionHeap {
 public:
  // Room for ids below `end`. May throw std::bad_alloc; the content stays.
  void Reserve(int32_t end) {
    items_.reserve(static_cast<size_t>(end));
    if (positions_.size() < static_cast<size_t>(end))
      positions_.resize(static_cast<size_t>(end), kAbsent);
  }

  bool empty() const { return items_.empty(); }
  // The id of the lowest (priority, order). Not empty.
  int32_t top() const { return items_.front().id; }
  bool Contains(int32_t id) const { return Position(id) != kAbsent; }

  // `id` is not in the heap; of equal priorities the lower `order` comes first.
  void Push(int32_t id, double priority, uint64_t order) {
    INLAY_DCHECK(!Contains(id) && items_.size() < items_.capacity());
    items_.push_back({priority, order, id});
    Up(items_.size() - 1);
  }
  // `id` is in the heap.
  void Erase(int32_t id) {
    INLAY_DCHECK(Contains(id));
    const auto hole = static_cast<size_t>(Position(id));
    Position(id) = kAbsent;
    const Item last = items_.back();
    items_.pop_back();
    if (hole == items_.size()) return;
    Place(hole, last);
    Up(hole);
    Down(static_cast<size_t>(Position(last.id)));
  }
  // What was called `from` is called `to` from now on; `to` is not in the heap.
  void Rename(int32_t from, int32_t to) {
    INLAY_DCHECK(!Contains(to));
    const int32_t position = Position(from);
    if (position == kAbsent) return;
    Position(from) = kAbsent;
    Position(to) = position;
    items_[static_cast<size_t>(position)].id = to;
  }

 private:
  static constexpr int32_t kAbsent = -1;
  struct Item {
    double priority;
    uint64_t order;
    int32_t id;
    bool operator<(const Item& other) const {
      return std::tie(priority, order) < std::tie(other.priority, other.order);
    }
  };

  int32_t Position(int32_t id) const {
    return positions_[static_cast<size_t>(id)];
  }
  int32_t& Position(int32_t id) { return positions_[static_cast<size_t>(id)]; }
  void Place(size_t at, const Item& item) {
    items_[at] = item;
    Position(item.id) = static_cast<int32_t>(at);
  }
  void Up(size_t at) {
    const Item item = items_[at];
    for (; at > 0 && item < items_[(at - 1) / 2]; at = (at - 1) / 2)
      Place(at, items_[(at - 1) / 2]);
    Place(at, item);
  }
  void Down(size_t at) {
    const Item item = items_[at];
    while (true) {
      size_t child = 2 * at + 1;
      if (child >= items_.size()) break;
      if (child + 1 < items_.size() && items_[child + 1] < items_[child])
        ++child;
      if (!(items_[child] < item)) break;
      Place(at, items_[child]);
      at = child;
    }
    Place(at, item);
  }

  std::vector<Item> items_;
  std::vector<int32_t> positions_;  // by id, in items_
};

}  // namespace inlay

#endif  // INLAY_MEMORY_KV_EVICTION_HEAP_H_
