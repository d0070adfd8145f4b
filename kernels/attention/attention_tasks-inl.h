// Per target: how the vector row of attention, attention_cpu_simd.cc, cuts a
// batch into tasks, and the keys that a task reads; included there inside its
// foreach_target loop.
//
// A task is one KV head and up to kMaxRows of a sequence's (query, head) pairs
// that read it: for decode the whole group of query heads, for prefill several
// queries of it, so that a tile of keys and values is fetched and widened once
// for all of them. Tasks are independent: no merging, no workspace.
#if defined(INLAY_KERNELS_ATTENTION_TASKS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef INLAY_KERNELS_ATTENTION_TASKS_INL_H_
#undef INLAY_KERNELS_ATTENTION_TASKS_INL_H_
#else
#define INLAY_KERNELS_ATTENTION_TASKS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

#include "kernels/attention/attention.h"
#include "kernels/simd_float-inl.h"
#include "memory/kv/kv_layout.h"

HWY_BEFORE_NAMESPACE();
namespace inlay {
namespace HWY_NAMESPACE {
namespace attention {

// Each of a task's four arrays holds at most this many floats: 36 KB, 16 rows
// of latent attention's 576 elements. All of them lie on the stack, for a
// workspace would need the number of threads.
constexpr int kTaskFloats = 9216;
constexpr int kMaxRows = 60;  // a multiple of the score tile's 3 rows
constexpr int kMaxKeys = 64;

// What the dimensions of heads decide.
struct Shape {
  explicit Shape(const AttentionDesc& desc)
      : dim(desc.head_dim),
        padded((dim + kPair - 1) / kPair * kPair),
        value_dim(desc.out_dim()),
        value_padded((value_dim + kPair - 1) / kPair * kPair),
        values_in_keys(desc.value_dim > 0),
        selects(desc.selects > 0),
        group(desc.num_heads / desc.num_kv_heads) {
    while (keys * padded > kTaskFloats) keys /= 2;
    max_rows = HWY_MIN(kMaxRows, kTaskFloats / padded);
  }

  // Values are summed two vectors at a time.
  static constexpr int kPair = 2 * static_cast<int>(kLanes);
  int dim;
  int padded;
  int value_dim;
  int value_padded;
  bool values_in_keys;  // a tile's keys are its values too
  bool selects;         // each query has keys of its own
  int group;
  int keys = kMaxKeys;  // positions a tile
  int max_rows;
};

// How a sequence's q_len * group (query, head) pairs of a KV head are cut into
// rows of tasks: in runs that read the same keys, all of them or a query's, and
// those into as many rows as a task has room for.
struct RowCut {
  RowCut(const Shape& shape, const AttentionSequence& sequence)
      : runs(shape.selects ? sequence.q_len : 1),
        run_rows(shape.selects ? shape.group
                               : int64_t{sequence.q_len} * shape.group),
        run_tiles((run_rows + shape.max_rows - 1) / shape.max_rows) {}

  int64_t tiles() const { return runs * run_tiles; }

  int64_t runs;
  int64_t run_rows;
  int64_t run_tiles;
};

struct Task {
  const AttentionSequence* sequence;
  int kv_head;
  int first_row;  // of the sequence's q_len * group (query, head) pairs
  int num_rows;
  const int32_t* selected;  // blocks of the task's keys; null: all keys
  int select_block;         // KeyMix::block
};

// Walks a task's keys without a division for each, but for selected ones.
class KeyCursor {
 public:
  KeyCursor(const Task& task, const KvLayerView& kv, int64_t key)
      : selected_(task.selected),
        block_size_(kv.block_size),
        select_block_(task.select_block) {
    if (selected_ != nullptr) {
      selected_ += key / select_block_;
      offset_ = static_cast<int>(key % select_block_);
      return;
    }
    block_ = task.sequence->blocks + key / block_size_;
    offset_ = static_cast<int>(key % block_size_);
  }
  void Next() {
    ++offset_;
    if (selected_ != nullptr) {
      if (offset_ < select_block_) return;
      ++selected_;
    } else {
      if (offset_ < block_size_) return;
      ++block_;
    }
    offset_ = 0;
  }
  int64_t block() const {
    return selected_ != nullptr ? Slot() / block_size_ : *block_;
  }
  int slot() const {
    return selected_ != nullptr ? static_cast<int>(Slot() % block_size_)
                                : offset_;
  }

 private:
  int64_t Slot() const { return int64_t{*selected_} * select_block_ + offset_; }

  const int32_t* selected_;
  const int32_t* block_ = nullptr;
  int offset_ = 0;  // in the block, of either kind
  int block_size_;
  int select_block_;
};

}  // namespace attention
}  // namespace HWY_NAMESPACE
}  // namespace inlay
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
