// biased_attention on CUDA, the plain row: attention's
// (attention_cuda_plain.cu), heads up to 256, with the bias read from memory,
// which its caches hold.
#include "kernels/attention/attention_plain_cuda.h"
#include "kernels/attention/biased_attention.h"
#include "kernels/cuda_launch.cuh"
#include "memory/device/cuda_stream.h"

namespace inlay {
namespace {

namespace plain = attention_plain;

// As attention_plain::NoBias.
struct TableBias : plain::NoTerms {
  __device__ float Add(const AttentionItemArgs& args, const AttentionItem& item,
                       int row, int distance, float score) const {
    const int head = item.kv_head * args.group + row % args.group;
    const int at = max(-bias.reach, min(bias.reach, distance));
    const float value =
        __ldg(bias.values + head * (2 * bias.reach + 1) + bias.reach + at);
    return fmaf(kLog2E, value, score);
  }

  ScoreBias bias;
};

template <int kDim>
__global__ void __launch_bounds__(plain::kThreads)
    BiasedAttentionPlain(const __grid_constant__ AttentionItemArgs args,
                         const TableBias bias) {
  plain::RunItems<kDim, false>(args, bias);
}

template <int kDim>
absl::Status Launch(const AttentionItemArgs& args, const ScoreBias& bias,
                    int grid, CudaStream& stream) {
  return LaunchCuda(
      "biased attention (plain)", stream,
      {grid, plain::kThreads, plain::SharedBytes(args.head_dim, false)},
      BiasedAttentionPlain<kDim>, args, TableBias{{}, bias});
}

}  // namespace

absl::Status RunBiasedAttentionCudaPlain(const AttentionDesc& desc,
                                         const BiasedAttentionParams& params,
                                         Stream& stream) {
  const AttentionPlan& plan = *params.attention.plan;
  if (!plan.run_items) return absl::OkStatus();
  const AttentionItemArgs args = MakeAttentionItemArgs(desc, params.attention);
  CudaStream& cuda = CudaStream::Of(stream);
  const int grid = plan.shape.grid;
  if (desc.head_dim <= 64) return Launch<64>(args, params.bias, grid, cuda);
  if (desc.head_dim <= 128) return Launch<128>(args, params.bias, grid, cuda);
  return Launch<256>(args, params.bias, grid, cuda);
}

}  // namespace inlay
