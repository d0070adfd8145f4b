// Makes allocations fail on demand. The operators are in prefix_index_test.cc.
#ifndef INLAY_TESTS_MEMORY_FAILING_NEW_H_
#define INLAY_TESTS_MEMORY_FAILING_NEW_H_

namespace inlay {

// While it lives, operator new on this thread throws std::bad_alloc after
// `succeed` more calls, once.
class FailingNew {
 public:
  explicit FailingNew(int succeed) { countdown = succeed + 1; }
  ~FailingNew() { countdown = 0; }
  FailingNew(const FailingNew&) = delete;
  FailingNew& operator=(const FailingNew&) = delete;

  static bool Fails() { return countdown > 0 && --countdown == 0; }

 private:
  static inline thread_local int countdown = 0;
};

}  // namespace inlay

#endif  // INLAY_TESTS_MEMORY_FAILING_NEW_H_
