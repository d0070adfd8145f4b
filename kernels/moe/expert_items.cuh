// Which expert's rows a block of expert_linear works on. Only the device knows
// how many slots each expert has, so grids are as large as they may need to be
// and blocks without work end at once.
#ifndef INLAY_KERNELS_MOE_EXPERT_ITEMS_CUH_
#define INLAY_KERNELS_MOE_EXPERT_ITEMS_CUH_

#include <algorithm>
#include <cstdint>

#include "kernels/cuda_groups.cuh"
#include "kernels/moe/expert_linear.h"

namespace inlay {

// What all kernels get: by value.
struct ExpertItems {
  ExpertItems(const ExpertLinearDesc& desc, const ExpertLinearParams& params,
              int rows_an_item)
      : experts(params.experts),
        offsets(params.offsets),
        slots(params.slots),
        num_experts(desc.num_experts),
        num_slots(params.y.rows()),
        top_k(desc.top_k),
        row_a_slot(desc.row_a_slot),
        every(params.slots == nullptr),
        single(!every && num_slots == desc.top_k),
        count(every    ? CountOfEvery(rows_an_item)
              : single ? num_slots
                       : std::min(num_slots, num_slots / rows_an_item +
                                                 desc.num_experts)) {}
  int64_t CountOfEvery(int rows_an_item) const {
    const int64_t tokens = num_slots / num_experts;
    return num_experts * ((tokens + rows_an_item - 1) / rows_an_item);
  }

  const int32_t* experts;
  const int32_t* offsets;
  const int32_t* slots;
  int num_experts;
  int64_t num_slots;
  int top_k;
  bool row_a_slot;
  // Each token has a slot of every expert; nothing is listed.
  bool every;
  // One token: each of its slots has another expert.
  bool single;
  // Of items at most: sum over experts of slots / rows_an_item, rounded up.
  int64_t count;
};

// Where experts' matrices are: by value.
struct ExpertBases {
  explicit ExpertBases(const ExpertMatrices& w)
      : base(reinterpret_cast<const uint8_t*>(w.base)),
        stride_bytes(static_cast<int64_t>(w.stride_bytes)),
        table(w.table) {}

  // After WaitForPrevious(): the table is the result of the work before.
  __device__ const uint8_t* Of(int expert) const {
    return base + (table == nullptr ? expert * stride_bytes : table[expert]);
  }

  const uint8_t* base;
  int64_t stride_bytes;
  const int64_t* table;
};

struct ExpertItem {
  int expert = 0;
  int rows = 0;  // 0: no work
  int first = 0;

  // The slot of the item's row i.
  __device__ int Slot(const ExpertItems& items, int i) const {
    if (items.every) return (first + i) * items.num_experts + expert;
    return items.single ? first : items.slots[first + i];
  }
  // The row of x of a slot.
  __device__ static int64_t Source(const ExpertItems& items, int slot) {
    return items.row_a_slot ? slot : slot / items.top_k;
  }
};

// All lanes of a warp call it and get the same.
template <int kRows>
__device__ ExpertItem FindExpertItem(const ExpertItems& items, int index) {
  ExpertItem item;
  if (items.every) {
    const int tokens = static_cast<int>(items.num_slots) / items.num_experts;
    const int items_an_expert = (tokens + kRows - 1) / kRows;
    item.expert = index / items_an_expert;
    item.first = index % items_an_expert * kRows;
    item.rows = min(kRows, tokens - item.first);
    return item;
  }
  if (items.single) {
    item.expert = items.experts[index];
    item.rows = item.expert < items.num_experts ? 1 : 0;
    item.first = index;
    return item;
  }
  static_assert((kRows & (kRows - 1)) == 0);
  const GroupPiece piece =
      FindGroupPiece(items.offsets, items.num_experts, __ffs(kRows) - 1, index);
  item.expert = piece.group;
  item.first = piece.first;
  item.rows = piece.rows;
  return item;
}

}  // namespace inlay

#endif  // INLAY_KERNELS_MOE_EXPERT_ITEMS_CUH_
