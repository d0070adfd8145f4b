// decode_delta on CUDA. A block takes some columns of one head's state through
// the tokens of a sequence, the state in registers; where a head is several
// blocks they are a cluster, and tell each other the sums of the norm. Each
// makes all of the head's q and k for itself: 256 channels cost less than to
// wait for who has made them.
//
// A thread has kColumns columns of one of kGroups groups of keys, neighbours
// the next ones, so that warps read and write whole lines: by the pieces of 32
// and 64 bytes that linear_attention takes, states went at 15 bytes a clock and
// multiprocessor. Sums over keys meet in shared memory.
//
// A warp each convolves q, k and the block's v, four channels a lane, and a
// warp makes the gates. Weights and states are on their way before the kernels
// queued before have ended, what a token brings while the block works on the
// one before it. Of a key head's channels the convolution's state is left by
// the first of its heads.
//
// Sums are made in the order of the ops apart (linear_attention_cuda.cu,
// gated_norm_cuda.cu) and rounded where those write what the next one reads:
// the same bits.
//
// Aims: one sequence in little more than a launch and what must follow one
// another, many at the memory's bandwidth.
#include "kernels/cuda_launch.cuh"
#include "kernels/gated_norm/gated_norm.cuh"
#include "kernels/gemm/gemv_sm90.cuh"
#include "kernels/linear_attention/decode_delta.h"
#include "kernels/linear_attention/decode_delta_parts.cuh"
#include "kernels/linear_attention/state_gates.cuh"
#include "kernels/linear_attention/state_plan.cuh"
#include "kernels/rms_norm/rms_norm.cuh"

namespace inlay {
namespace {

constexpr int kGroups = 8;  // threads that share a column's keys
// gated_norm adds up the squares of so many neighbours, and these sums by a
// tree over kParts places.
constexpr int kPart = kCudaVector;
constexpr int kParts = 16;

template <typename T>
struct Args {
  CudaMatrix<const T> x, a, b, z;
  CudaMatrix<T> y;
  Convolution conv;
  const float* bias;
  const float* a_log;
  const float* norm_weight;
  CudaStates states;
  StatePlan plan;
  StateGatesDesc gates;
  GatedNormDesc norm;
  int64_t key_width;
  int num_heads;
  int heads_a_key;
  int key_dim;
  float length_epsilon;
  float norm_epsilon;
};

// kKeys: of a thread, 16 or 4: heads of 128 keys and values, or of 32 values
// and as many keys or fewer, the others zeros. kSlab: columns of the block.
// kColumns: of a thread, 2 or 4.
template <typename T, int kKeys, int kSlab, int kColumns, bool kChannel>
class Slab {
 public:
  static constexpr int kWidth = kGroups * kKeys;
  static constexpr int kValues = kKeys == 16 ? 128 : 32;
  static constexpr int kSlabs = kValues / kSlab;   // blocks a head
  static constexpr int kLanes = kSlab / kColumns;  // threads of a group
  static constexpr int kThreads = kGroups * kLanes;
  static_assert(kLanes <= 32 && kThreads >= 128);

  struct Shared {
    alignas(16) float k[kWidth];
    alignas(16) float q[kWidth];
    alignas(16) float decays[kChannel ? kWidth : 4];
    alignas(16) float v[kSlab];
    alignas(16) float norm_weight[kSlab];
    Window windows[3][32];  // of lanes of the first warps
    float beta;
    // Sums over the keys of a group: S^T k, S^T q, k q.
    alignas(16) float known[kGroups][kSlab];
    alignas(16) float seen[kGroups][kSlab];
    alignas(16) float kq[kGroups];
    // Sums of squares of all of the head's columns. Of every other token: who
    // is ahead may be one further.
    alignas(16) float squares[2][kParts];
    alignas(8) uint64_t arrived[2];  // barriers, where heads are several blocks
  };

  __device__ Slab(const Args<T>& args, Shared& shared, int head, int slab)
      : args_(args),
        shared_(shared),
        head_(head),
        slab_(slab),
        warp_(static_cast<int>(threadIdx.x) / 32),
        lane_(static_cast<int>(threadIdx.x) % 32),
        group_(static_cast<int>(threadIdx.x) / kLanes),
        column_(static_cast<int>(threadIdx.x) % kLanes * kColumns) {}

#if __CUDA_ARCH__ >= 900
  // The others' shared memory is written once they are there.
  __device__ void MeetOthers() {
    if (threadIdx.x == 0) {
      InitBarrier(Arrived(0), 1);
      InitBarrier(Arrived(1), 1);
      asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    ClusterArrive();
  }
#endif

  // What is of before the step.
  __device__ void Load(int32_t source) {
    if (convolves()) window().Load(args_.conv, Channel(), source);
    if (warp_ == 3) LoadWeights();
    const float* const state = InState(source < 0 ? 0 : source);
#pragma unroll
    for (int i = 0; i < kKeys; ++i) {
#pragma unroll
      for (int c = 0; c < kColumns; ++c) state_[i][c] = 0.0f;
      const int key = KeyOf(i);
      if (source < 0 || key >= key_dim()) continue;
      LoadColumns(state + key * kValues, state_[i]);
    }
  }

  // Where a row lies. What kernels are launched with is far away at first: it
  // is fetched before there is something to wait for.
  __device__ void Find(int64_t row) {
    if (warp_ == 3) {
      first_ = args_.a.row(row) + FirstGate();
      second_ = args_.b.row(row) + head_;
    } else {
      first_ = args_.x.row(row) + (convolves() ? Channel() : 0);
      second_ = args_.z.row(row) + FirstColumn() + column_;
    }
    y_ = args_.y.row(row) + FirstColumn() + column_;
    asm volatile("" : "+l"(first_), "+l"(second_), "+l"(y_));
  }

  // All tokens of a sequence: runs from `run` on of the plan, `first` the
  // first of them.
  __device__ void Run(StatePlanRun first, int32_t run) {
    int64_t row = first.row;
    const int64_t end = row + first.sequence_rows;
    int64_t end_of_run = row + first.count;
    Fetch();
    AwaitCopies();
    for (int token = 0;; ++token) {
      const bool leaves = row + 1 == end_of_run;
      Token(token, row + 1 < end, leaves ? first.to : -1);
      if (++row == end) return;
      if (leaves) {
        first = args_.plan.runs[++run];
        end_of_run += first.count;
      }
      // Who is ahead must not write what is still read.
      __syncthreads();
    }
  }

 private:
  static constexpr int kPartLanes = kPart / kColumns;
  // Gates a lane makes, side by side.
  static constexpr int kGates = kChannel ? kWidth / 32 : 1;

  // Four channels of q by each lane of warp 0, of k and v by the next ones.
  __device__ int Width() const { return warp_ == 2 ? kSlab : key_dim(); }
  __device__ bool convolves() const {
    return warp_ < 3 && lane_ * kVector < Width();
  }
  __device__ Window& window() const { return shared_.windows[warp_][lane_]; }
  __device__ int64_t Channel() const {
    if (warp_ == 2) {
      return 2 * args_.key_width + FirstColumn() + lane_ * kVector;
    }
    return warp_ * args_.key_width +
           int64_t{head_ / args_.heads_a_key} * key_dim() + lane_ * kVector;
  }
  __device__ int key_dim() const {
    return kWidth == 128 ? kWidth : args_.key_dim;
  }
  // Of warp 3.
  __device__ bool makes_gates() const {
    return lane_ * kGates < (kChannel ? key_dim() : 1);
  }
  __device__ int64_t FirstGate() const {
    return int64_t{head_} * (kChannel ? key_dim() : 1) + lane_ * kGates;
  }
  // Of all heads' columns, the block's first.
  __device__ int64_t FirstColumn() const {
    return int64_t{head_} * kValues + slab_ * kSlab;
  }
  // The thread's i-th key: fours of them, group by group.
  __device__ int KeyOf(int i) const {
    return (i / 4 * kGroups + group_) * 4 + i % 4;
  }
  // Of the thread's columns, of key 0.
  __device__ float* InState(int32_t block) const {
    return args_.states.Of(block) + int64_t{head_} * key_dim() * kValues +
           slab_ * kSlab + column_;
  }

  // Of the gates and of the norm.
  __device__ void LoadWeights() {
    if (lane_ * 4 < kSlab) {
      CopyFour(args_.norm_weight + slab_ * kSlab + lane_ * 4,
               shared_.norm_weight + lane_ * 4);
    }
    a_log_ = args_.a_log[head_];
#pragma unroll
    for (int i = 0; i < kGates; ++i) {
      bias_[i] = makes_gates() ? args_.bias[FirstGate() + i] : 0.0f;
    }
  }

  // What a row brings, to registers.
  __device__ void Fetch() {
    if (warp_ == 0) z_.Load(second_);
    if (convolves()) x_.Load(first_);
    if (warp_ != 3) return;
    b_ = *second_;
    if (!makes_gates()) return;
#pragma unroll
    for (int i = 0; i < kGates; ++i) a_[i] = first_[i];
  }

  __device__ void FetchNext() {
    first_ += warp_ == 3 ? args_.a.stride : args_.x.stride;
    second_ += warp_ == 3 ? args_.b.stride : args_.z.stride;
    Fetch();
  }

  // `goes_on`: there is a next row. `to`: where the states are left after this
  // one; -1: nowhere.
  __device__ void Token(int token, bool goes_on, int32_t to) {
    float gate[kColumns], y[kColumns], u[kColumns];
    if (warp_ < 3) Convolve();
    if (warp_ == 3) MakeGates();
    const Raw<T, kColumns> z = z_;
    __syncthreads();
    if (goes_on) FetchNext();
    SumGroups();
    __syncthreads();
    Correct(u);
    // Of the first group; lanes beyond it do as its lanes do.
    if (warp_ == 0) {
      See(u, y);
      SendSquares(y, token);
    }
    Add(u);
    if (to >= 0) Store(to);
    if (warp_ != 0) return;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) gate[c] = GateFactor(args_.norm, z[c]);
    AwaitSquares(token);
    Finish(token, gate, y);
  }

  // And q and k on to their lengths.
  __device__ void Convolve() {
    float y[kVector] = {};
    if (convolves()) window().Next(x_, y);
    if (warp_ < 2) {
      // A part is two lanes': its sum begins in one and ends in the other.
      const float begun = AddSquares(y, 0.0f);
      float sum = __shfl_xor_sync(0xffffffffu, begun, 1);
      sum = AddSquares(y, sum);
#pragma unroll
      for (int lane = 16; lane > 1; lane /= 2) {
        sum = __fadd_rn(sum, __shfl_xor_sync(0xffffffffu, sum, lane));
      }
      sum = __shfl_sync(0xffffffffu, sum, 1);
      if (convolves()) {
        const float factor =
            kWidth == 128 ? NormFactor<kWidth>(sum, args_.length_epsilon)
                          : RmsNormFactor(sum, key_dim(), args_.length_epsilon);
        RmsNormScale(y, factor, window().lengths, 0);
      }
#pragma unroll
      for (int i = 0; i < kVector; ++i) y[i] = RoundTo<T>(y[i]);
    }
    float* const to = warp_ == 0   ? shared_.q
                      : warp_ == 1 ? shared_.k
                                   : shared_.v;
    if (lane_ * kVector < (warp_ == 2 ? kSlab : kWidth)) {
      StoreFloats<kVector>(to + lane_ * kVector, y);
    }
  }

  __device__ void MakeGates() {
    if (lane_ == 0) shared_.beta = GateBeta(ToFloat(b_));
    if (lane_ >= (kChannel ? 32 : 1)) return;
#pragma unroll
    for (int i = 0; i < kGates; ++i) {
      const float x = ToFloat(a_[i]);
      const float decay =
          args_.gates.bound < 0.0f
              ? BoundedDecay(args_.gates, a_log_, x, bias_[i])
              : GateDecay(a_log_, GateStep(args_.gates, x, bias_[i]));
      shared_.decays[lane_ * kGates + i] = makes_gates() ? decay : 0.0f;
    }
  }

  // The state decays; what the thread's keys give of S^T k, S^T q and k q.
  __device__ void SumGroups() {
    float known[kColumns] = {}, seen[kColumns] = {};
    float kq = 0.0f;
#pragma unroll
    for (int i = 0; i < kKeys; i += 4) {
      float k[4], q[4], decay[4];
      LoadFloats<4>(shared_.k + KeyOf(i), k);
      LoadFloats<4>(shared_.q + KeyOf(i), q);
      LoadFloats<4>(shared_.decays + (kChannel ? KeyOf(i) : 0), decay);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        kq = fmaf(k[j], q[j], kq);
#pragma unroll
        for (int c = 0; c < kColumns; ++c) {
          float& s = state_[i + j][c];
          s = __fmul_rn(s, decay[kChannel ? j : 0]);
          known[c] = fmaf(s, k[j], known[c]);
          seen[c] = fmaf(s, q[j], seen[c]);
        }
      }
    }
    StoreColumns(shared_.known[group_] + column_, known);
    StoreColumns(shared_.seen[group_] + column_, seen);
    if (column_ == 0) shared_.kq[group_] = kq;
  }

  // Sums as a warp's exchanges between neighbours make them.
  __device__ void SumOfGroups(const float (&parts)[kGroups][kSlab],
                              float (&sum)[kColumns]) const {
    float at[kGroups][kColumns];
#pragma unroll
    for (int g = 0; g < kGroups; ++g) LoadColumns(parts[g] + column_, at[g]);
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      sum[c] = __fadd_rn(__fadd_rn(__fadd_rn(at[0][c], at[1][c]),
                                   __fadd_rn(at[2][c], at[3][c])),
                         __fadd_rn(__fadd_rn(at[4][c], at[5][c]),
                                   __fadd_rn(at[6][c], at[7][c])));
    }
  }

  // u = beta (v - S^T k), which the state is to gain.
  __device__ void Correct(float (&u)[kColumns]) const {
    SumOfGroups(shared_.known, u);
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      u[c] = __fmul_rn(shared_.beta, __fsub_rn(shared_.v[column_ + c], u[c]));
    }
  }

  // S^T q of the state after that (linear_attention_cuda.cu), rounded.
  __device__ void See(const float (&u)[kColumns], float (&y)[kColumns]) const {
    SumOfGroups(shared_.seen, y);
    float kq[kGroups];
    LoadFloats<kGroups>(shared_.kq, kq);
    const float all =
        __fadd_rn(__fadd_rn(__fadd_rn(kq[0], kq[1]), __fadd_rn(kq[2], kq[3])),
                  __fadd_rn(__fadd_rn(kq[4], kq[5]), __fadd_rn(kq[6], kq[7])));
#pragma unroll
    for (int c = 0; c < kColumns; ++c) y[c] = RoundTo<T>(fmaf(all, u[c], y[c]));
  }

  __device__ void Add(const float (&u)[kColumns]) {
#pragma unroll
    for (int i = 0; i < kKeys; i += 4) {
      float k[4];
      LoadFloats<4>(shared_.k + KeyOf(i), k);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
#pragma unroll
        for (int c = 0; c < kColumns; ++c) {
          state_[i + j][c] = fmaf(k[j], u[c], state_[i + j][c]);
        }
      }
    }
  }

  // The sums of squares of kPart neighbours to all blocks of the head.
  __device__ void SendSquares(const float (&y)[kColumns], int token) {
    float part[kPart];
#pragma unroll
    for (int i = 0; i < kPart; ++i) {
      part[i] = __shfl_sync(0xffffffffu, y[i % kColumns],
                            lane_ / kPartLanes * kPartLanes + i / kColumns);
    }
    const float sum = AddSquares(part, 0.0f);
    float* const squares = shared_.squares[token % 2];
    if (kSlabs == 1) {
      if (lane_ < kParts) squares[lane_] = 0.0f;
      __syncwarp();
      if (lane_ < kLanes && lane_ % kPartLanes == 0) {
        squares[lane_ / kPartLanes] = sum;
      }
      __syncwarp();
      return;
    }
#if __CUDA_ARCH__ >= 900
    // Four parts and one block a lane.
    const int rank = lane_ % kSlabs;
    const int first = lane_ / kSlabs * 4;
    float four[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      four[i] = __shfl_sync(0xffffffffu, sum, (first + i) * kPartLanes % 32);
    }
    const uint32_t arrived = Arrived(token);
    if (lane_ == 0) Expect(arrived, kParts * sizeof(float));
    if (first * kPart >= kSlab) return;
    StoreAt(SharedAddress(squares + slab_ * (kSlab / kPart) + first), arrived,
            static_cast<unsigned>(rank), four);
#endif
  }

  __device__ void AwaitSquares(int token) const {
#if __CUDA_ARCH__ >= 900
    if (kSlabs > 1) Await(Arrived(token), token / 2 % 2);
#endif
  }

  static __device__ uint32_t SharedAddress(const void* at) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(at));
  }
  __device__ uint32_t Arrived(int token) const {
    return SharedAddress(&shared_.arrived[token % 2]);
  }

  static __device__ void LoadColumns(const float* from, float (&to)[kColumns]) {
    if constexpr (kColumns == 4) {
      LoadFloats<4>(from, to);
    } else {
      const float2 two = *reinterpret_cast<const float2*>(from);
      to[0] = two.x;
      to[1] = two.y;
    }
  }
  static __device__ void StoreColumns(float* to,
                                      const float (&from)[kColumns]) {
    if constexpr (kColumns == 4) {
      StoreFloats<4>(to, from);
    } else {
      *reinterpret_cast<float2*>(to) = make_float2(from[0], from[1]);
    }
  }

  __device__ void Store(int32_t to) const {
    float* const state = InState(to);
#pragma unroll
    for (int i = 0; i < kKeys; ++i) {
      const int key = KeyOf(i);
      if (key < key_dim()) StoreColumns(state + key * kValues, state_[i]);
    }
    if (!convolves()) return;
    if (warp_ == 2 || (slab_ == 0 && head_ % args_.heads_a_key == 0)) {
      window().Store(args_.conv, Channel(), to);
    }
  }

  __device__ void Finish(int token, const float (&gate)[kColumns],
                         const float (&y)[kColumns]) {
    float sums[kParts];
    LoadFloats<kParts>(shared_.squares[token % 2], sums);
    const float factor = NormFactor<kValues>(TreeSum(sums), args_.norm_epsilon);
    float out[kColumns];
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const float scaled =
          __fmul_rn(__fmul_rn(y[c], factor), shared_.norm_weight[column_ + c]);
      out[c] = __fmul_rn(scaled, gate[c]);
    }
    if (lane_ >= kLanes) return;
#pragma unroll
    for (int c = 0; c < kColumns; c += 2) {
      if constexpr (sizeof(T) == 4) {
        *reinterpret_cast<float2*>(y_ + c) = make_float2(out[c], out[c + 1]);
      } else {
        *reinterpret_cast<uint32_t*>(y_ + c) =
            NarrowPair<T>(out[c], out[c + 1]);
      }
    }
    y_ += args_.y.stride;
  }

  const Args<T>& args_;
  Shared& shared_;
  const int head_;
  const int slab_;
  const int warp_;
  const int lane_;
  const int group_;
  const int column_;  // of the slab, the lane's first
  float state_[kKeys][kColumns];
  float a_log_;
  float bias_[kGates];
  const T* first_;   // of a, or of x: where the next row lies
  const T* second_;  // of b, or of z
  T* y_;
  // What the next token brings.
  Raw<T, kVector> x_;
  Raw<T, kColumns> z_;
  T a_[kGates];
  T b_;
};

// Blocks: sequences * heads * slabs, those of a head a cluster.
template <typename HeadSlab, typename T>
__global__ void __launch_bounds__(HeadSlab::kThreads, 512 / HeadSlab::kThreads)
    DecodeDelta(const __grid_constant__ Args<T> args) {
  __shared__ typename HeadSlab::Shared shared;
  LetNextBegin();
  constexpr int kSlabs = HeadSlab::kSlabs;
  const int slab = static_cast<int>(blockIdx.x) % kSlabs;
  const int task = static_cast<int>(blockIdx.x) / kSlabs;
  const int sequence = task / args.num_heads;
  const int32_t run = args.plan.first_runs[sequence];
  const int32_t end_run = args.plan.first_runs[sequence + 1];
  if (run == end_run) return;  // all blocks of a cluster
  HeadSlab state(args, shared, task % args.num_heads, slab);
#if __CUDA_ARCH__ >= 900
  if (kSlabs > 1) state.MeetOthers();
#endif
  // The plan and the states are of before the step.
  const StatePlanRun first = args.plan.runs[run];
  state.Load(first.source);
  state.Find(first.row);
#if __CUDA_ARCH__ >= 900
  if (kSlabs > 1) ClusterWait();
#endif
  WaitForPrevious();
  state.Run(first, run);
}

template <int kKeys, int kSlab, int kColumns, typename T>
absl::Status Launch(const DecodeDeltaDesc& desc, const Args<T>& args,
                    CudaStream& stream) {
  using Head = Slab<T, kKeys, kSlab, kColumns, false>;
  using Channel = Slab<T, kKeys, kSlab, kColumns, true>;
  const auto kernel = desc.rule.decay == StateDecay::kChannel
                          ? DecodeDelta<Channel, T>
                          : DecodeDelta<Head, T>;
  CudaGrid grid;
  grid.blocks = args.plan.sequences * args.num_heads * Head::kSlabs;
  grid.threads = Head::kThreads;
  grid.cluster = Head::kSlabs;
  return LaunchCuda("decode_delta", stream, grid, kernel, args);
}

template <typename T>
absl::Status LaunchFor(const DecodeDeltaDesc& desc,
                       const DecodeDeltaParams& params, CudaStream& stream) {
  const LinearAttentionDesc& rule = desc.rule;
  const int64_t key_width = int64_t{rule.num_key_heads} * rule.key_dim;
  const Args<T> args = {
      CudaMatrix<const T>(params.x),
      CudaMatrix<const T>(params.a),
      CudaMatrix<const T>(params.b),
      CudaMatrix<const T>(params.z),
      CudaMatrix<T>(params.y),
      {params.taps, params.lengths, CudaStates(params.conv_state.state),
       desc.conv.channels, 2 * key_width},
      params.bias,
      params.a_log,
      params.norm,
      CudaStates(params.state.state),
      *params.state.plan,
      desc.gates,
      desc.norm,
      key_width,
      rule.num_heads,
      rule.num_heads / rule.num_key_heads,
      rule.key_dim,
      params.length_epsilon,
      params.norm_epsilon};
  if (rule.key_dim <= 32) return Launch<4, 32, 2>(desc, args, stream);
  // Two blocks a head where blocks can meet: at any number of sequences faster
  // than four, and than one with four columns a thread.
  return stream.sm() >= 90 ? Launch<16, 64, 2>(desc, args, stream)
                           : Launch<16, 128, 4>(desc, args, stream);
}

}  // namespace

absl::Status RunDecodeDeltaCuda(const DecodeDeltaDesc& desc,
                                const DecodeDeltaParams& params,
                                Stream& stream) {
  CudaStream& cuda = CudaStream::Of(stream);
  return WithFloatType(desc.rule.activation, [&](auto type) {
    return LaunchFor<decltype(type)>(desc, params, cuda);
  });
}

}  // namespace inlay
