// kv_select on CUDA: a block of 128 threads a token, a thread every 128th slot.
// Bound by what it writes.
#include "kernels/cuda_row.cuh"
#include "kernels/kv_compress/kv_select.h"

namespace inlay {
namespace {

constexpr int kThreads = 128;

struct Layer {
  int size;   // rows a block
  int rows;   // of a block in the view that takes all of them
  int first;  // there
  const IndexQuery* queries;
  const int32_t* blocks;

  __device__ int At(int block, int row) const {
    return block * rows + first + row;
  }
  __device__ int OfKey(int blocks_begin, int key) const {
    return At(blocks[blocks_begin + key / size], key % size);
  }
};

Layer LayerOf(const KvLayerView& view, const IndexPlan& plan) {
  return {view.block_size, view.InRows().block_size, view.first_row(),
          plan.queries, plan.blocks};
}

__global__ void __launch_bounds__(kThreads)
    SelectSlots(const __grid_constant__ KvSelectDesc desc,
                const __grid_constant__ Layer near,
                const __grid_constant__ Layer far, const int32_t* chosen,
                int32_t* selection) {
  LetNextBegin();
  WaitForPrevious();
  const int64_t token = blockIdx.x;
  const IndexQuery query = near.queries[token];
  const int far_begin = far.queries[token].blocks_begin;
  const int seen = query.num_keys;
  const int begin = max(0, seen - desc.window);
  const int num_near = seen - begin;
  const int all = num_near + min(seen / desc.row_tokens, desc.most);
  int32_t* to = selection + token * (desc.window + desc.most);
  for (int i = static_cast<int>(threadIdx.x); i < all; i += kThreads) {
    int slot;
    if (i < num_near) {
      slot = near.OfKey(query.blocks_begin, begin + i);
    } else if (chosen != nullptr) {
      const int own = chosen[token * desc.most + i - num_near];
      slot = far.At(own / far.size, own % far.size);
    } else {
      slot = far.OfKey(far_begin, i - num_near);
    }
    to[i] = slot;
  }
}

}  // namespace

absl::Status RunKvSelectCuda(const KvSelectDesc& desc,
                             const KvSelectParams& params, Stream& stream) {
  return LaunchCuda("kv_select", CudaStream::Of(stream),
                    {params.tokens, kThreads}, SelectSlots, desc,
                    LayerOf(params.near, *params.near_plan),
                    LayerOf(params.far, *params.far_plan),
                    desc.is_chosen ? params.chosen : nullptr, params.selection);
}

}  // namespace inlay
