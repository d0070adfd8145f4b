// attention on CUDA, the plain row: every format, any head_dim to 576 that is a
// multiple of 8, values in rows of their own (to 512) or in their keys', from
// sm_80 up, all in float32. The device's reference and fallback; what is fast
// is beside it.
//
// Grid: AttentionPlanShape::grid CTAs of 128 threads, each as
// attention_plain_cuda.h has it. Roofline: shared-memory bandwidth, a fifth of
// the FMA rate; nothing is tuned.
#include <bit>

#include "kernels/attention/attention_plain_cuda.h"
#include "kernels/cuda_launch.cuh"
#include "memory/device/cuda_status.h"
#include "memory/device/cuda_stream.h"
#include "memory/status.h"

namespace inlay {
namespace {

namespace plain = attention_plain;

template <int kDim, bool kWide>
__global__ void __launch_bounds__(plain::kThreads)
    AttentionPlain(const __grid_constant__ AttentionItemArgs args) {
  plain::RunItems<kDim, kWide>(args, plain::NoBias());
}

template <int kDim, bool kWide = false>
absl::Status Launch(const AttentionItemArgs& args, int grid,
                    CudaStream& stream) {
  return LaunchCuda(
      "attention (plain)", stream,
      {grid, plain::kThreads, plain::SharedBytes(args.head_dim, kWide)},
      AttentionPlain<kDim, kWide>, args);
}

}  // namespace

AttentionItemArgs MakeAttentionItemArgs(const AttentionDesc& desc,
                                        const AttentionParams& params) {
  const AttentionPlan& plan = *params.plan;
  const std::byte* image = plan.device;
  AttentionItemArgs args;
  args.cta_items =
      reinterpret_cast<const int32_t*>(image + plan.layout.cta_items);
  args.items =
      reinterpret_cast<const AttentionItem*>(image + plan.layout.items);
  args.blocks = reinterpret_cast<const int32_t*>(image + plan.layout.blocks);
  args.arrivals =
      reinterpret_cast<int32_t*>(plan.device + plan.layout.counters) + 2;
  args.cta_slots = AttentionCtaSlots(plan.shape);
  args.item_rows = plan.shape.item_rows;
  args.partials = static_cast<float*>(params.workspace);
  args.sinks = params.sinks;
  args.q = params.q.data;
  args.out = params.out.data;
  args.q_stride = static_cast<int64_t>(params.q.row_stride_bytes);
  args.out_stride = static_cast<int64_t>(params.out.row_stride_bytes);
  args.kv = params.kv;
  args.block_slots = LaunchDivisor(params.kv.block_size);
  args.kv_row_bytes = static_cast<int64_t>(KvRowBytes(desc.kv, desc.head_dim));
  args.activation = desc.activation;
  args.head_dim = desc.head_dim;
  args.value_dim = desc.out_dim();
  args.group = desc.num_heads / desc.num_kv_heads;
  args.window = desc.window;
  args.causal = desc.causal;
  args.leaves_out = plan.shape.leaves_out;
  args.scale = desc.scale;
  args.softcap = desc.softcap;
  args.mask = MakeAttentionMaskArgs(params);
  args.selection = params.selection;
  args.selected_blocks = desc.selects / desc.mix.block;
  args.select_shift = std::countr_zero(static_cast<uint32_t>(desc.mix.block));
  return args;
}

AttentionMaskArgs MakeAttentionMaskArgs(const AttentionParams& params) {
  const AttentionPlan& plan = *params.plan;
  AttentionMaskArgs args;
  args.alibi_slopes = params.alibi_slopes;
  if (!plan.masked) return args;
  args.rows = reinterpret_cast<const AttentionRowKeys*>(plan.device +
                                                        plan.layout.mask_rows);
  args.bits =
      reinterpret_cast<const uint32_t*>(plan.device + plan.layout.mask_bits);
  return args;
}

absl::Status RunAttentionCudaPlain(const AttentionDesc& desc,
                                   const AttentionParams& params,
                                   Stream& stream) {
  const AttentionPlan& plan = *params.plan;
  if (!plan.run_items) return absl::OkStatus();
  const AttentionItemArgs args = MakeAttentionItemArgs(desc, params);
  CudaStream& cuda = CudaStream::Of(stream);
  if (desc.head_dim <= 64) return Launch<64>(args, plan.shape.grid, cuda);
  if (desc.head_dim <= 128) return Launch<128>(args, plan.shape.grid, cuda);
  if (desc.head_dim <= 256) return Launch<256>(args, plan.shape.grid, cuda);
  return Launch<kMaxCudaValueDim, true>(args, plan.shape.grid, cuda);
}

}  // namespace inlay
