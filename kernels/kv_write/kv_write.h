// kv_write: stores a step's keys and values into the paged cache, converting to
// the cache's format. All rows of the table write the same bytes, those of
// EncodeKvRow (kv_row.h): a row's bytes depend on its own floats only.
#ifndef INLAY_KERNELS_KV_WRITE_KV_WRITE_H_
#define INLAY_KERNELS_KV_WRITE_KV_WRITE_H_

#include <cstdint>

#include "kernels/dispatch.h"
#include "kernels/sample/host_device.h"
#include "memory/kv/kv_layout.h"
#include "memory/tensor.h"

namespace inlay {

struct KvWriteDesc {
  int num_kv_heads = 0;
  int head_dim = 0;
  DType kv = DType::kF32;
  DType activation = DType::kF32;
  bool keys_only = false;  // the layer's values lie in its keys' rows
  // > 1: the layer has a row for so many tokens (KvLayerShape): that of the
  // last of them is written, the others' are left out.
  int row_tokens = 1;
};

struct KvWriteParams {
  TensorView k;  // [tokens, num_kv_heads * head_dim], rows may be strided
  TensorView v;  // the same; empty where keys_only
  KvLayerView kv;
  const int64_t* slots =
      nullptr;  // [tokens]: block * block_size + offset in block, where a block
                // has row_tokens times kv.block_size tokens. CUDA rows
                // leave out tokens whose slot is negative: what pads a batch
};

// The slot of the row that the token at `slot` writes; negative: none.
INLAY_HOST_DEVICE inline int64_t KvRowSlot(int64_t slot, int row_tokens) {
  if (row_tokens == 1) return slot;
  return slot >= 0 && (slot + 1) % row_tokens == 0 ? slot / row_tokens : -1;
}

using KvWriteRow = KernelRow<KvWriteDesc, KvWriteParams>;
absl::Span<const KvWriteRow> KvWriteTable();

}  // namespace inlay

#endif  // INLAY_KERNELS_KV_WRITE_KV_WRITE_H_
