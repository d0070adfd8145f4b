// decode_mamba on CUDA. A block takes kSlab columns of one head's state through
// a sequence's token, the state in registers, laid out as decode_delta has it
// (decode_delta_cuda.cu): a thread has kColumns columns of one of kGroups
// groups of keys, warps read and write whole lines, sums over keys meet in
// shared memory. Each block makes all of the head's k and q for itself.
//
// Threads from the first on convolve, four channels each; the last warp makes
// the gates and, of the block's columns, what follows the recurrence. Weights
// and states are on their way before the kernels queued before have ended. Of
// channels that heads share the convolution's state is left by the first head.
//
// A norm's heads are a cluster, whose blocks tell each other what the sum of
// squares is made of: gated_norm adds up kCudaVector neighbours, and these sums
// by trees over warps of a row. Up to kWarpRowWidth a lane's sum goes through
// two places of the row, so that columns are sent themselves.
//
// Sums are made in the order of the ops apart and rounded where those write
// what the next one reads: the same bits.
//
// Aims: as decode_delta's.
#include "kernels/cuda_launch.cuh"
#include "kernels/cuda_row.cuh"
#include "kernels/gated_norm/gated_norm.cuh"
#include "kernels/gemm/gemv_sm90.cuh"
#include "kernels/linear_attention/decode_mamba.h"
#include "kernels/linear_attention/decode_rows.cuh"
#include "kernels/linear_attention/short_conv.cuh"
#include "kernels/linear_attention/state_gates.cuh"
#include "kernels/linear_attention/state_plan.cuh"
#include "kernels/rms_norm/rms_norm.cuh"

namespace inlay {
namespace {

constexpr int kGroups = 8;  // threads that share a column's keys
// Of a norm: columns, or sums of kCudaVector of more columns than those.
constexpr int kMostGathered = kWarpRowWidth;

template <typename T>
struct Args {
  CudaMatrix<const T> x, dt, z;
  CudaMatrix<T> y;
  const float* taps;       // [kTaps][channels]
  const float* conv_bias;  // null: 0
  CudaStates conv_states;  // [kTaps - 1][channels]
  int64_t channels;
  const float* dt_bias;
  const float* a_log;
  const float* skip;         // null: 0
  const float* norm_weight;  // null: 1
  CudaStates states;
  StatePlan plan;
  StateGatesDesc gates;
  GatedNormDesc norm;
  bool finishes;
  float output_scale;
  float epsilon;
  int num_heads;
  int heads_a_key;
  int key_dim;
  int value_dim;
  int cluster;  // blocks that make a norm together; 0: none is made
};

// kKeys: of a thread, 4, 16 or 32: heads of 128 or 256 keys, or of 32 and
// fewer, the others zeros. kSlab: columns of the block. kColumns: of a thread.
template <typename T, int kKeys, int kSlab, int kColumns>
class Slab {
 public:
  static constexpr int kWidth = kGroups * kKeys;
  static constexpr int kColumnsOfBlock = kSlab;
  static constexpr int kLanes = kSlab / kColumns;  // threads of a group
  static constexpr int kThreads = kGroups * kLanes;

  struct Shared {
    alignas(16) float v[kSlab];
    alignas(16) float k[kWidth];
    alignas(16) float q[kWidth];
    float decay;
    float step;
    alignas(16) float seen[kGroups][kSlab];  // S^T q of a group's keys
    alignas(16) float sent[kSlab];
    alignas(16) float gathered[kMostGathered];
    alignas(8) uint64_t arrived;  // barrier
  };

  __device__ Slab(const Args<T>& args, Shared& shared, int head, int slab)
      : args_(args),
        shared_(shared),
        head_(head),
        slab_(slab),
        thread_(static_cast<int>(threadIdx.x)),
        lane_(thread_ % 32),
        group_(thread_ / kLanes),
        column_(thread_ % kLanes * kColumns) {}

#if __CUDA_ARCH__ >= 900
  // The others' shared memory is written once they are there.
  __device__ void MeetOthers() {
    if (thread_ == 0) {
      InitBarrier(Arrived(), 1);
      asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
      Expect(Arrived(), args_.cluster * Sent() * sizeof(float));
    }
    __syncthreads();
    ClusterArrive();
  }
#endif

  // What is of before the step.
  __device__ void Load(int32_t source) {
    if (convolves()) LoadWindow(source);
    if (is_last_warp()) LoadWeights();
    const float* const state = InState(source < 0 ? 0 : source);
#pragma unroll
    for (int i = 0; i < kKeys; ++i) {
#pragma unroll
      for (int c = 0; c < kColumns; ++c) state_[i][c] = 0.0f;
      const int key = KeyOf(i);
      if (source < 0 || key >= key_dim()) continue;
      LoadColumns(state + int64_t{key} * args_.value_dim, state_[i]);
    }
  }

  // Where the row lies. What kernels are launched with is far away at first: it
  // is fetched before there is something to wait for.
  __device__ void Find(int64_t row) {
    if (is_last_warp()) {
      first_ = args_.dt.row(row) + head_;
      second_ = args_.z.row(row) + FirstOutput();
    } else {
      first_ = second_ = args_.x.row(row) + (convolves() ? Channel() : 0);
    }
    y_ = args_.y.row(row) + FirstOutput();
    asm volatile("" : "+l"(first_), "+l"(second_), "+l"(y_));
  }

  // The token; the states are left in block `to`.
  __device__ void Run(int32_t to) {
    float gate[kOut], x[kOut];
    if (is_last_warp()) {
      MakeGates(gate);
    } else if (thread_ < kConvolve) {
      Convolve();
    }
    __syncthreads();
    Advance();
    __syncthreads();
    if (is_last_warp()) {
      See(x);
      if (args_.cluster > 0) {
        Send(gate, x);
      } else {
        Finish(gate, x, 1.0f);
      }
    }
    Store(to);
#if __CUDA_ARCH__ >= 900
    if (args_.cluster == 0 || !is_last_warp()) return;
    Await(Arrived(), 0);
    Finish(gate, x,
           RmsNormFactor(SumOfSquares(), args_.norm.width, args_.epsilon));
#endif
  }

 private:
  // Threads that convolve v, k and q.
  static constexpr int kOfV = kSlab / kVector;
  static constexpr int kOfKeys = kWidth / kVector;
  static constexpr int kConvolve = kOfV + 2 * kOfKeys;
  static_assert(kThreads % 32 == 0 && kConvolve <= kThreads - 32);
  // Outputs of a lane of the last warp.
  static constexpr int kOut = kSlab <= 32 ? 1 : kSlab / 32;
  static_assert(kSlab <= 64);

  __device__ bool is_last_warp() const { return thread_ >= kThreads - 32; }
  __device__ int key_dim() const {
    return kWidth > 32 ? kWidth : args_.key_dim;
  }
  // Of the channels of k or q that the thread convolves, the first.
  __device__ int FirstKey() const {
    return (thread_ - kOfV) % kOfKeys * kVector;
  }
  __device__ bool convolves() const {
    return thread_ < kOfV || (thread_ < kConvolve && FirstKey() < key_dim());
  }
  __device__ int64_t Channel() const {
    if (thread_ < kOfV) return FirstColumn() + thread_ * kVector;
    const int64_t inner = int64_t{args_.num_heads} * args_.value_dim;
    const int64_t keys =
        int64_t{args_.num_heads / args_.heads_a_key} * key_dim();
    return inner + (thread_ - kOfV) / kOfKeys * keys +
           int64_t{head_ / args_.heads_a_key} * key_dim() + FirstKey();
  }
  // Of all heads' columns, the block's first, and a lane's of the last warp.
  __device__ int64_t FirstColumn() const {
    return int64_t{head_} * args_.value_dim + slab_ * kSlab;
  }
  __device__ int64_t FirstOutput() const {
    return FirstColumn() + (has_outputs() ? lane_ * kOut : 0);
  }
  __device__ bool has_outputs() const { return lane_ * kOut < kSlab; }
  // The thread's i-th key: fours of them, group by group.
  __device__ int KeyOf(int i) const {
    return (i / 4 * kGroups + group_) * 4 + i % 4;
  }
  // Of the thread's columns, of key 0.
  __device__ float* InState(int32_t block) const {
    return args_.states.Of(block) +
           int64_t{head_} * key_dim() * args_.value_dim + slab_ * kSlab +
           column_;
  }

  // Source -1: there were no tokens before.
  __device__ void LoadWindow(int32_t source) {
    const int64_t channel = Channel();
#pragma unroll
    for (int j = 0; j < kTaps; ++j) {
      LoadFloats<kVector>(args_.taps + j * args_.channels + channel, taps_[j]);
    }
#pragma unroll
    for (int i = 0; i < kVector; ++i) conv_bias_[i] = 0.0f;
    if (args_.conv_bias != nullptr) {
      LoadFloats<kVector>(args_.conv_bias + channel, conv_bias_);
    }
#pragma unroll
    for (int j = 0; j + 1 < kTaps; ++j) {
#pragma unroll
      for (int i = 0; i < kVector; ++i) inputs_[j][i] = 0.0f;
      if (source < 0) continue;
      LoadFloats<kVector>(
          args_.conv_states.Of(source) + j * args_.channels + channel,
          inputs_[j]);
    }
  }

  // Of the gates and of the norm.
  __device__ void LoadWeights() {
    a_log_ = args_.a_log[head_];
    dt_bias_ = args_.dt_bias[head_];
    skip_ = args_.skip == nullptr ? 0.0f : args_.skip[head_];
#pragma unroll
    for (int c = 0; c < kOut; ++c) {
      weight_[c] = args_.norm_weight == nullptr
                       ? 1.0f
                       : args_.norm_weight[FirstOutput() + c];
    }
  }

  __device__ void Convolve() {
    float y[kVector] = {};
    if (convolves()) {
      Raw<T, kVector> x;
      x.Load(first_);
      float sum[kVector];
#pragma unroll
      for (int i = 0; i < kVector; ++i) {
        sum[i] = conv_bias_[i];
#pragma unroll
        for (int j = 0; j + 1 < kTaps; ++j) {
          sum[i] = fmaf(inputs_[j][i], taps_[j][i], sum[i]);
          if (j > 0) inputs_[j - 1][i] = inputs_[j][i];
        }
        inputs_[kTaps - 2][i] = x[i];
        sum[i] = fmaf(x[i], taps_[kTaps - 1][i], sum[i]);
        y[i] = RoundTo<T>(Silu(sum[i]));
      }
    }
    float* const to = thread_ < kOfV             ? shared_.v + thread_ * kVector
                      : thread_ < kOfV + kOfKeys ? shared_.k + FirstKey()
                                                 : shared_.q + FirstKey();
    StoreFloats<kVector>(to, y);
  }

  __device__ void MakeGates(float (&gate)[kOut]) {
    const float dt = ToFloat(*first_);
    Raw<T, kOut> z;
    z.Load(second_);
    const float step = GateStep(args_.gates, dt, dt_bias_);
    const float decay = GateDecay(a_log_, step);
    if (lane_ == 0) {
      shared_.step = step;
      shared_.decay = decay;
    }
#pragma unroll
    for (int c = 0; c < kOut; ++c) gate[c] = GateFactor(args_.norm, z[c]);
  }

  // The state decays and gains k u^T; what the thread's keys give of S^T q.
  __device__ void Advance() {
    const float decay = shared_.decay;
    float u[kColumns], seen[kColumns] = {};
    LoadColumns(shared_.v + column_, u);
#pragma unroll
    for (int c = 0; c < kColumns; ++c) u[c] = __fmul_rn(shared_.step, u[c]);
#pragma unroll
    for (int i = 0; i < kKeys; i += 4) {
      float k[4], q[4];
      LoadFloats<4>(shared_.k + KeyOf(i), k);
      LoadFloats<4>(shared_.q + KeyOf(i), q);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
#pragma unroll
        for (int c = 0; c < kColumns; ++c) {
          float& s = state_[i + j][c];
          s = fmaf(k[j], u[c], __fmul_rn(s, decay));
          seen[c] = fmaf(s, q[j], seen[c]);
        }
      }
    }
    StoreColumns(shared_.seen[group_] + column_, seen);
  }

  // What the recurrence gives, rounded: sums as a warp's exchanges between
  // neighbours make them (linear_attention_cuda.cu).
  __device__ void See(float (&x)[kOut]) const {
    const int first = has_outputs() ? lane_ * kOut : 0;
#pragma unroll
    for (int c = 0; c < kOut; ++c) {
      float at[kGroups];
#pragma unroll
      for (int g = 0; g < kGroups; ++g) at[g] = shared_.seen[g][first + c];
      x[c] = __fadd_rn(
          __fadd_rn(__fadd_rn(at[0], at[1]), __fadd_rn(at[2], at[3])),
          __fadd_rn(__fadd_rn(at[4], at[5]), __fadd_rn(at[6], at[7])));
      if (args_.skip != nullptr) {
        x[c] = fmaf(skip_, shared_.v[first + c], x[c]);
      }
      x[c] = RoundTo<T>(x[c]);
    }
  }

  __device__ bool sends_columns() const {
    return args_.norm.width <= kWarpRowWidth;
  }
  __device__ int Sent() const {  // floats a block sends
    return sends_columns() ? kSlab : kSlab / kCudaVector;
  }

  // The block's part of the sum of squares to all blocks of the cluster.
  __device__ void Send(const float (&gate)[kOut], const float (&x)[kOut]) {
#if __CUDA_ARCH__ >= 900
    // Lanes that have the columns of one of gated_norm's vectors.
    constexpr int kVectorLanes = kCudaVector / kOut;
    float v[kOut], part[kCudaVector];
#pragma unroll
    for (int c = 0; c < kOut; ++c) {
      v[c] = args_.norm.gate_first ? __fmul_rn(x[c], gate[c]) : x[c];
    }
    if (sends_columns()) {
#pragma unroll
      for (int c = 0; c < kOut; ++c) {
        if (has_outputs()) shared_.sent[lane_ * kOut + c] = v[c];
      }
    } else {
#pragma unroll
      for (int i = 0; i < kCudaVector; ++i) {
        part[i] = __shfl_sync(0xffffffffu, v[i % kOut],
                              lane_ / kVectorLanes * kVectorLanes + i / kOut);
      }
      const float sum = AddSquares(part, 0.0f);
      if (has_outputs() && lane_ % kVectorLanes == 0) {
        shared_.sent[lane_ / kVectorLanes] = sum;
      }
    }
    __syncwarp();
    const int count = Sent();
    float* const to =
        shared_.gathered + static_cast<int>(blockIdx.x) % args_.cluster * count;
    for (int i = lane_; i < count / 4 * args_.cluster; i += 32) {
      const int rank = i % args_.cluster;
      const int first = i / args_.cluster * 4;
      float four[4];
      LoadFloats<4>(shared_.sent + first, four);
      StoreAt(SharedAddress(to + first), Arrived(), static_cast<unsigned>(rank),
              four);
    }
#endif
  }

  // Over a norm's columns, as RowThreads::Sum has it.
  __device__ float SumOfSquares() const {
    const int width = static_cast<int>(args_.norm.width);
    float sum = 0.0f;
    if (sends_columns()) {
      for (int i = lane_ * kCudaVector; i < width; i += 32 * kCudaVector) {
        float v[kCudaVector];
        LoadFloats<kCudaVector>(shared_.gathered + i, v);
        sum = AddSquares(v, sum);
      }
      return WarpSum(sum);
    }
    const int count = width / kCudaVector;
    for (int warp = 0; warp * 32 < count; ++warp) {
      const int i = warp * 32 + lane_;
      const float of_warp = WarpSum(i < count ? shared_.gathered[i] : 0.0f);
      if (lane_ == warp) sum = of_warp;
    }
    return WarpSum(sum);
  }

  // `factor`: of the norm.
  __device__ void Finish(const float (&gate)[kOut], const float (&x)[kOut],
                         float factor) const {
    float out[kOut];
#pragma unroll
    for (int c = 0; c < kOut; ++c) {
      out[c] = x[c];
      if (!args_.finishes) continue;
      out[c] = __fmul_rn(__fmul_rn(out[c], factor), weight_[c]);
      out[c] = __fmul_rn(out[c], gate[c]);
      if (args_.output_scale != 1.0f) {
        out[c] = __fmul_rn(RoundTo<T>(out[c]), args_.output_scale);
      }
    }
    if (!has_outputs()) return;
    if constexpr (kOut == 1) {
      *y_ = FromFloat<T>(out[0]);
    } else if constexpr (sizeof(T) == 4) {
      *reinterpret_cast<float2*>(y_) = make_float2(out[0], out[1]);
    } else {
      *reinterpret_cast<uint32_t*>(y_) = NarrowPair<T>(out[0], out[1]);
    }
  }

  __device__ void Store(int32_t to) const {
    float* const state = InState(to);
#pragma unroll
    for (int i = 0; i < kKeys; ++i) {
      const int key = KeyOf(i);
      if (key >= key_dim()) continue;
      StoreColumns(state + int64_t{key} * args_.value_dim, state_[i]);
    }
    if (!convolves()) return;
    const bool first = slab_ == 0 && head_ % args_.heads_a_key == 0;
    if (thread_ >= kOfV && !first) return;
#pragma unroll
    for (int j = 0; j + 1 < kTaps; ++j) {
      StoreFloats<kVector>(
          args_.conv_states.Of(to) + j * args_.channels + Channel(),
          inputs_[j]);
    }
  }

  static __device__ uint32_t SharedAddress(const void* at) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(at));
  }
  __device__ uint32_t Arrived() const {
    return SharedAddress(&shared_.arrived);
  }

  static __device__ void LoadColumns(const float* from, float (&to)[kColumns]) {
    if constexpr (kColumns == 2) {
      const float2 two = *reinterpret_cast<const float2*>(from);
      to[0] = two.x;
      to[1] = two.y;
    } else {
      LoadFloats<kColumns>(from, to);
    }
  }
  static __device__ void StoreColumns(float* to,
                                      const float (&from)[kColumns]) {
    if constexpr (kColumns == 2) {
      *reinterpret_cast<float2*>(to) = make_float2(from[0], from[1]);
    } else {
      StoreFloats<kColumns>(to, from);
    }
  }

  const Args<T>& args_;
  Shared& shared_;
  const int head_;
  const int slab_;
  const int thread_;
  const int lane_;
  const int group_;
  const int column_;  // of the slab, the thread's first
  float state_[kKeys][kColumns];
  // Of who convolves.
  float inputs_[kTaps - 1][kVector];  // of the tokens before, the oldest first
  float taps_[kTaps][kVector];
  float conv_bias_[kVector];
  // Of the last warp.
  float a_log_;
  float dt_bias_;
  float skip_;
  float weight_[kOut];
  const T* first_;   // of x, or of dt
  const T* second_;  // of z
  T* y_;
};

// Blocks: sequences * heads * slabs, those of a norm a cluster.
template <typename HeadSlab, typename T>
__global__ void __launch_bounds__(HeadSlab::kThreads, 512 / HeadSlab::kThreads)
    DecodeMamba(const __grid_constant__ Args<T> args) {
  __shared__ typename HeadSlab::Shared shared;
  LetNextBegin();
  const int slabs = args.value_dim / HeadSlab::kColumnsOfBlock;
  const int slab = static_cast<int>(blockIdx.x) % slabs;
  const int task = static_cast<int>(blockIdx.x) / slabs;
  const int sequence = task / args.num_heads;
  const int32_t run = args.plan.first_runs[sequence];
  if (run == args.plan.first_runs[sequence + 1]) return;  // all of a cluster
  HeadSlab state(args, shared, task % args.num_heads, slab);
#if __CUDA_ARCH__ >= 900
  if (args.cluster > 0) state.MeetOthers();
#endif
  // The plan and the states are of before the step.
  const StatePlanRun token = args.plan.runs[run];
  state.Load(token.source);
  state.Find(token.row);
#if __CUDA_ARCH__ >= 900
  if (args.cluster > 0) ClusterWait();
#endif
  WaitForPrevious();
  state.Run(token.to);
}

template <int kKeys, int kSlab, int kColumns, typename T>
absl::Status Launch(const DecodeMambaDesc& desc, Args<T>& args,
                    CudaStream& stream) {
  using HeadSlab = Slab<T, kKeys, kSlab, kColumns>;
  const auto kernel = DecodeMamba<HeadSlab, T>;
  CudaGrid grid;
  grid.blocks = args.plan.sequences * args.num_heads * (args.value_dim / kSlab);
  grid.threads = HeadSlab::kThreads;
  if (desc.finishes && desc.norm.normalise) {
    grid.cluster = args.cluster = static_cast<int>(desc.norm.width / kSlab);
    INLAY_RETURN_IF_ERROR(CudaStatus(
        cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                             cudaFuncAttributeNonPortableClusterSizeAllowed, 1),
        "decode_mamba"));
  }
  return LaunchCuda("decode_mamba", stream, grid, kernel, args);
}

template <typename T>
absl::Status LaunchFor(const DecodeMambaDesc& desc,
                       const DecodeMambaParams& params, CudaStream& stream) {
  const LinearAttentionDesc& scan = desc.scan;
  Args<T> args = {CudaMatrix<const T>(params.x),
                  CudaMatrix<const T>(params.dt),
                  CudaMatrix<const T>(params.z),
                  CudaMatrix<T>(params.y),
                  params.taps,
                  params.conv_bias,
                  CudaStates(params.conv_state.state),
                  desc.conv.channels,
                  params.dt_bias,
                  params.a_log,
                  params.skip,
                  params.norm,
                  CudaStates(params.state.state),
                  *params.state.plan,
                  desc.gates,
                  desc.norm,
                  desc.finishes,
                  desc.output_scale,
                  params.epsilon,
                  scan.num_heads,
                  scan.num_heads / scan.num_key_heads,
                  scan.key_dim,
                  scan.value_dim,
                  0};
  if (scan.key_dim <= 32) {
    return scan.value_dim % 32 == 0 ? Launch<4, 32, 2>(desc, args, stream)
                                    : Launch<4, 16, 1>(desc, args, stream);
  }
  if (scan.value_dim % 64 != 0) return Launch<16, 16, 1>(desc, args, stream);
  // Few blocks have less to read and write each, where no norm is to fit into a
  // cluster.
  const int64_t blocks =
      args.plan.sequences * scan.num_heads * (scan.value_dim / 64);
  const bool alone = !(desc.finishes && desc.norm.normalise);
  if (scan.key_dim == 128) {
    return alone && blocks <= 2 * int64_t{stream.num_sms()}
               ? Launch<16, 32, 2>(desc, args, stream)
               : Launch<16, 64, 4>(desc, args, stream);
  }
  return alone && 2 * blocks <= stream.num_sms()
             ? Launch<32, 32, 1>(desc, args, stream)
             : Launch<32, 64, 2>(desc, args, stream);
}

}  // namespace

absl::Status RunDecodeMambaCuda(const DecodeMambaDesc& desc,
                                const DecodeMambaParams& params,
                                Stream& stream) {
  CudaStream& cuda = CudaStream::Of(stream);
  return WithFloatType(desc.scan.activation, [&](auto type) {
    return LaunchFor<decltype(type)>(desc, params, cuda);
  });
}

}  // namespace inlay
