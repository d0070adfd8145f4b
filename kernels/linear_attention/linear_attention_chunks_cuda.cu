// linear_attention on CUDA by chunks of 64 tokens, for prompts of bf16: within
// a chunk tokens are rows of matrix products, and only chunks follow one
// another (Yang et al., arXiv:2412.06464 and arXiv:2406.06484; Dao and Gu,
// arXiv:2405.21060).
//
// With g_t the product of decays up to token t of a chunk, S the state before
// it, and of matrices the lower triangles:
//
//   A_ts = beta_t (g_t / g_s) (k_t k_s), s < t        by the delta rule
//   T = (1 + A)^-1                                     otherwise 1
//   P_ts = (g_t / g_s) (q_t k_s), s <= t
//   U = T diag(beta) (V - diag(g) K S)                 otherwise beta V
//   Y = diag(g) Q S + P U + skip V
//   S = g_last S + K^T diag(g_last / g) U              for the next chunk
//
// With a decay a channel g_t is a vector that multiplies k_t and q_t element by
// element, and ratios are within the sums over channels:
//
//   A_ts = beta_t sum_c k_tc k_sc (g_tc / g_sc)        P likewise
//   U = T diag(beta) (V - (g * K) S)
//   Y = (g * Q) S + P U + skip V
//   S = diag(g_last) S + (K * g_last / g)^T U
//
// With a normaliser, z another column of S whose values are 1, y is divided by
//
//   diag(g) Q z + P beta + epsilon
//   z = g_last z + K^T diag(g_last / g) beta           for the next chunk
//
// Feature maps make q and k of their own, rounded to bf16 once, before all
// else. MakeChunks makes T and P, all chunks at once, and of decays a channel g
// * Q, g * K and K * g_last / g (linear_attention_chunks_make_cuda.cu,
// linear_attention_chunks_channel_cuda.cu); Normalise makes what y is divided
// by (linear_attention_chunks_features_cuda.cu); RunChunks takes the state
// through the chunks (linear_attention_chunks_run_cuda.cu). Here is the host's
// part: what is computed, and where what lies.
//
// Bound by what follows one another: some 2 us a chunk. Roofline: q, k, v, y,
// and twice what MakeChunks makes over the copy bandwidth.
#include "kernels/linear_attention/linear_attention_chunks.cuh"

namespace inlay {
namespace {

// Of the workspace, for so many rows.
struct Layout {
  Layout(const LinearAttentionDesc& desc, int64_t rows)
      : square(rows * desc.num_heads * kStateChunk),
        keys(desc.decay == StateDecay::kChannel
                 ? rows * desc.num_heads * desc.key_dim
                 : 0),
        growths(keys == 0
                    ? 0
                    : MostStateChunks(rows) * desc.num_heads * desc.key_dim),
        mapped(desc.feature_map == FeatureMap::kNone
                   ? 0
                   : rows * desc.num_key_heads * desc.key_dim),
        scales(desc.normalised ? rows * desc.num_heads : 0) {}

  int64_t square;   // elements of T, of P
  int64_t keys;     // of each kind of keys of decays a channel
  int64_t growths;  // floats
  int64_t mapped;   // elements of q as features, of k
  int64_t scales;   // floats
};

bool LiesOn16(const TensorView& view) {
  return reinterpret_cast<uintptr_t>(view.data) % 16 == 0 &&
         view.row_stride_bytes % 16 == 0;
}

}  // namespace

const char* LinearAttentionChunksRefuses(const LinearAttentionDesc& desc) {
  if (desc.batch_invariant) return "chunks decide the order of sums";
  if (desc.activation != DType::kBF16) return "activations must be bf16";
  if (desc.key_dim != 64 && desc.key_dim != 128) {
    return "keys must have 64 or 128 elements";
  }
  return desc.value_dim % chunks::kSlab == 0 ? nullptr
                                             : "values must be multiples of 32";
}

size_t LinearAttentionChunksWorkspaceBytes(const LinearAttentionDesc& desc,
                                           int64_t max_rows) {
  const Layout layout(desc, max_rows);
  return static_cast<size_t>(2 * layout.square + 3 * layout.keys +
                             2 * layout.mapped) *
             sizeof(chunks::Element) +
         static_cast<size_t>(layout.growths + layout.scales) * sizeof(float);
}

absl::Status RunLinearAttentionChunks(const LinearAttentionDesc& desc,
                                      const LinearAttentionParams& params,
                                      Stream& stream) {
  const StatePlan& plan = *params.state.plan;
  if (plan.longest < kStateChunk || !LiesOn16(params.q) ||
      !LiesOn16(params.k) || !LiesOn16(params.v) || !LiesOn16(params.y)) {
    return RunLinearAttentionTokens(desc, params, false, stream);
  }
  const bool channel = desc.decay == StateDecay::kChannel;
  if (channel && (params.state.state.block_size < kStateChunk ||
                  !LiesOn16(params.decay))) {
    return RunLinearAttentionTokens(desc, params, false, stream);
  }
  INLAY_RETURN_IF_ERROR(RunLinearAttentionTokens(desc, params, true, stream));
  const Layout layout(desc, plan.rows);
  auto* const inner = static_cast<chunks::Element*>(params.workspace);
  chunks::Element* const seen = inner + layout.square;
  chunks::Element* const grown_k = seen + layout.square;
  chunks::Element* const grown_q = grown_k + layout.keys;
  chunks::Element* const last_k = grown_q + layout.keys;
  chunks::Element* const mapped_q = last_k + layout.keys;
  chunks::Element* const mapped_k = mapped_q + layout.mapped;
  auto* const growth = reinterpret_cast<float*>(mapped_k + layout.mapped);
  const bool decays = desc.decay != StateDecay::kNone;
  chunks::ChunkArgs args = {
      CudaMatrix<const chunks::Element>(params.q),
      CudaMatrix<const chunks::Element>(params.k),
      CudaMatrix<const chunks::Element>(params.v),
      CudaMatrix<const float>(decays ? params.decay : TensorView()),
      CudaMatrix<const float>(params.beta),
      CudaMatrix<chunks::Element>(params.y),
      params.skip,
      CudaStates(params.state.state),
      plan,
      desc.num_heads,
      desc.num_heads / desc.num_key_heads,
      desc.value_dim,
      inner,
      seen,
      desc.normalised ? growth + layout.growths : nullptr,
      desc.epsilon,
      grown_k,
      grown_q,
      last_k,
      growth};
  CudaStream& cuda = CudaStream::Of(stream);
  if (layout.mapped > 0) {
    const int64_t width = int64_t{desc.num_key_heads} * desc.key_dim;
    INLAY_RETURN_IF_ERROR(
        chunks::LaunchMapFeatures({args.q, args.k, mapped_q, mapped_k,
                                   plan.rows, width, desc.feature_map},
                                  cuda));
    args.q.data = mapped_q;
    args.k.data = mapped_k;
    args.q.stride = args.k.stride = width;
  }
  INLAY_RETURN_IF_ERROR(chunks::LaunchMakeChunks(desc, args, cuda));
  if (desc.normalised) {
    INLAY_RETURN_IF_ERROR(chunks::LaunchNormalisers(desc, args, cuda));
  }
  return chunks::LaunchRunChunks(desc, args, cuda);
}

}  // namespace inlay
