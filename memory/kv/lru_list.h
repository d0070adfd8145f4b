// LruList: ids in the order of their last use. Several lists may share one set
// of links, as long as an id is in one of them at a time. Knows nothing of what
// the ids name.
#ifndef INLAY_MEMORY_KV_LRU_LIST_H_
#define INLAY_MEMORY_KV_LRU_LIST_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace inlay {

struct LruLink {
  int32_t older = -1;
  int32_t newer = -1;
};

// Every operation is O(1) and allocates nothing. `links` is not owned, has an
// element for each id, and may grow.
class LruList {
 public:
  explicit LruList(std::vector<LruLink>* links) : links_(*links) {}
  LruList(const LruList&) = delete;
  LruList& operator=(const LruList&) = delete;

  int32_t oldest() const { return oldest_; }  // -1: empty
  int64_t size() const { return size_; }

  void PushNewest(int32_t id) {
    Link(id) = {newest_, -1};
    (newest_ < 0 ? oldest_ : Link(newest_).newer) = id;
    newest_ = id;
    ++size_;
  }

  void Remove(int32_t id) {
    const LruLink link = Link(id);
    (link.older < 0 ? oldest_ : Link(link.older).newer) = link.newer;
    (link.newer < 0 ? newest_ : Link(link.newer).older) = link.older;
    --size_;
  }

 private:
  LruLink& Link(int32_t id) { return links_[static_cast<size_t>(id)]; }

  std::vector<LruLink>& links_;
  int32_t oldest_ = -1;
  int32_t newest_ = -1;
  int64_t size_ = 0;
};

}  // namespace inlay

#endif  // INLAY_MEMORY_KV_LRU_LIST_H_
