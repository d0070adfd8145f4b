// Makes allocations fail on demand. The operators are in prefix_index_test.cc.
#ifndef INLAY_TESTS_MEMORY_FAILING_NEW_H_
#define INLAY_TESTS_MEMORY_FAILING_NEW_H_

namespace inlay {

// While it lives, operator new on this thread throws std::bad_alloc after
// `succeed` more calls: once, or from then on.
class FailingNew {
 public:
  explicit FailingNew(int succeed, bool from_then_on = false) {
    countdown = succeed + 1;
    keeps_failing = from_then_on;
  }
  ~FailingNew() {
    countdown = 0;
    keeps_failing = false;
  }
  FailingNew(const FailingNew&) = delete;
  FailingNew& operator=(const FailingNew&) = delete;

  static bool Fails() {
    if (countdown == 1 && keeps_failing) return true;
    return countdown > 0 && --countdown == 0;
  }

 private:
  static inline thread_local int countdown = 0;
  static inline thread_local bool keeps_failing = false;
};

}  // namespace inlay

#endif  // INLAY_TESTS_MEMORY_FAILING_NEW_H_
