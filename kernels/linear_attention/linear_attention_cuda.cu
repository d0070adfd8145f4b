// linear_attention on CUDA. A block takes some columns of one head's state
// through all tokens of a sequence, the state in registers; a warp has
// kColumnLanes * kColumns of the columns, and each column's keys lie with
// kGroups lanes. What tokens bring comes kTokens at a time: while the block
// works on some, the next are on their way to its registers, and reach shared
// memory, widened, when it is done.
//
// Sums over keys are kGroups sums in ascending order and a tree over the
// lanes: they depend on key_dim alone, so a result depends neither on the batch
// nor on how a sequence is cut.
//
// The delta rule needs S^T k before it can add to S, and only then is y = S^T q
// due: two sums over the lanes one after another. With S' = S + k u^T, however,
// S'^T q = S^T q + (k q) u, so that both are sums over the same S and are made
// at once.
//
// The normaliser is a column of the state that every lane has besides its own,
// of its keys: what columns are divided by is the same sum in all blocks of a
// head, and the first of them leaves it.
//
// Aims: one token a sequence at the memory's bandwidth (the state read and
// written once), prompts at the rate of float32 multiply-adds.
#include <climits>

#include "kernels/cuda_float.cuh"
#include "kernels/cuda_launch.cuh"
#include "kernels/linear_attention/linear_attention_cuda.h"
#include "kernels/linear_attention/linear_attention_rows.cuh"
#include "kernels/linear_attention/state_plan.cuh"

namespace inlay {
namespace {

constexpr int kGroups = 8;       // lanes that share a column's keys
constexpr int kColumnLanes = 4;  // neighbours
constexpr int kWarps = 4;
constexpr int kThreads = 32 * kWarps;
constexpr int kTokens = 8;  // in shared memory

struct Args {
  Rows q, k, v;
  Rows decay;  // without data: none
  Rows beta;   // likewise
  Rows y;
  const float* skip;
  CudaStates states;
  StatePlan plan;
  int num_heads;
  int heads_a_key;
  int key_dim;
  int value_dim;
  int slabs;  // blocks that a head's columns are cut into
  FeatureMap feature_map;
  float epsilon;
  DType activation;
  bool aligned;     // four elements of q, k, v, y and decay at a time
  int most_tokens;  // of sequences; longer ones are left alone
};

// kKeys: of each lane's groups, a multiple of 4; keys beyond key_dim are zeros.
// kColumns: of each lane, 2 or 4.
template <int kKeys, int kColumns, bool kDelta, bool kChannel, bool kNormalised>
class Slab {
 public:
  static constexpr int kWidth = kGroups * kKeys;
  static constexpr int kSlab = kWarps * kColumnLanes * kColumns;

  struct Shared {
    alignas(16) float k[kTokens][kWidth];
    alignas(16) float q[kTokens][kWidth];
    alignas(16) float decays[kChannel ? kTokens : 1][kChannel ? kWidth : 4];
    alignas(16) float v[kTokens][kSlab];
    alignas(16) float y[kTokens][kSlab];
    float decay[kTokens];
    float beta[kTokens];
  };

  __device__ Slab(const Args& args, Shared& shared, int head, int first_column)
      : args_(args),
        shared_(shared),
        head_(head),
        first_column_(first_column),
        group_(threadIdx.x % 32 / kColumnLanes),
        column_((threadIdx.x / 32 * kColumnLanes + threadIdx.x % kColumnLanes) *
                kColumns),
        whole_(args.value_dim % kColumns == 0),
        skip_(args.skip == nullptr ? 0.0f : args.skip[head]) {}

  __device__ void Load(int32_t source) {
    if constexpr (kNormalised) LoadNormaliser(source);
    const float* state = source < 0 ? nullptr : InState(source);
#pragma unroll
    for (int i = 0; i < kKeys; ++i) {
#pragma unroll
      for (int c = 0; c < kColumns; ++c) state_[i][c] = 0.0f;
      const int key = KeyOf(i);
      if (state == nullptr || key >= args_.key_dim) continue;
      const float* from = state + int64_t{key} * args_.value_dim;
      if (whole_) {
        if (left() <= 0) continue;
        if constexpr (kColumns == 4) {
          const float4 four = *reinterpret_cast<const float4*>(from);
          state_[i][0] = four.x;
          state_[i][1] = four.y;
          state_[i][2] = four.z;
          state_[i][3] = four.w;
        } else {
          const float2 two = *reinterpret_cast<const float2*>(from);
          state_[i][0] = two.x;
          state_[i][1] = two.y;
        }
      } else {
#pragma unroll
        for (int c = 0; c < kColumns; ++c) {
          if (c < left()) state_[i][c] = from[c];
        }
      }
    }
  }

  // All tokens of a sequence: runs [run, end_run) of the plan.
  __device__ void Run(int32_t run, int32_t end_run) {
    const StatePlanRun* runs = args_.plan.runs;
    int64_t row = runs[run].row;
    const int64_t end =
        int64_t{runs[end_run - 1].row} + runs[end_run - 1].count;
    int left_of_run = runs[run].count;
    Fetch(row, Count(row, end));
    while (row < end) {
      const int count = Count(row, end);
      Stage(count);
      __syncthreads();
      const int64_t next = row + count;
      if (next < end) Fetch(next, Count(next, end));
#pragma unroll 1
      for (int t = 0; t < count; ++t) {
        Token(t);
        if (--left_of_run == 0) {
          Store(runs[run].to);
          if (++run < end_run) left_of_run = runs[run].count;
        }
      }
      __syncthreads();
      WriteRows(row, count);
      row = next;
    }
  }

 private:
  // Fours that a token brings, and a block's share of them.
  static constexpr int kKeyFours = kWidth / 4;
  static constexpr int kValueFours = kSlab / 4;
  static constexpr int kFours = (kChannel ? 3 : 2) * kKeyFours + kValueFours;
  static constexpr int kFetched = (kTokens * kFours + kThreads - 1) / kThreads;

  static __device__ int Count(int64_t row, int64_t end) {
    return end - row < kTokens ? static_cast<int>(end - row) : kTokens;
  }

  // The lane's i-th key: fours of them, group by group.
  __device__ int KeyOf(int i) const {
    return (i / 4 * kGroups + group_) * 4 + i % 4;
  }
  // Columns that there are from the lane's first on.
  __device__ int left() const {
    return args_.value_dim - first_column_ - column_;
  }
  // Of the lane's columns, of key 0.
  __device__ float* InState(int32_t block) const {
    return args_.states.Of(block) +
           int64_t{head_} * args_.key_dim * args_.value_dim + first_column_ +
           column_;
  }

  // Of key 0.
  __device__ float* NormaliserIn(int32_t block) const {
    return args_.states.Of(block) +
           (int64_t{args_.num_heads} * args_.value_dim + head_) * args_.key_dim;
  }

  __device__ void LoadNormaliser(int32_t source) {
#pragma unroll
    for (int i = 0; i < kKeys; ++i) {
      const int key = KeyOf(i);
      z_[i] =
          source < 0 || key >= args_.key_dim ? 0.0f : NormaliserIn(source)[key];
    }
  }

  // By the lanes of the head's first column.
  __device__ void StoreNormaliser(int32_t to) const {
    if (first_column_ + column_ != 0) return;
#pragma unroll
    for (int i = 0; i < kKeys; ++i) {
      const int key = KeyOf(i);
      if (key < args_.key_dim) NormaliserIn(to)[key] = z_[i];
    }
  }

  __device__ void Store(int32_t to) const {
    if constexpr (kNormalised) StoreNormaliser(to);
    float* const state = InState(to);
#pragma unroll
    for (int i = 0; i < kKeys; ++i) {
      const int key = KeyOf(i);
      if (key >= args_.key_dim) continue;
      float* const at = state + int64_t{key} * args_.value_dim;
      if (whole_) {
        if (left() <= 0) continue;
        if constexpr (kColumns == 4) {
          *reinterpret_cast<float4*>(at) = make_float4(
              state_[i][0], state_[i][1], state_[i][2], state_[i][3]);
        } else {
          *reinterpret_cast<float2*>(at) =
              make_float2(state_[i][0], state_[i][1]);
        }
      } else {
#pragma unroll
        for (int c = 0; c < kColumns; ++c) {
          if (c < left()) at[c] = state_[i][c];
        }
      }
    }
  }

  // What rows [row, row + count) bring, to registers.
  __device__ void Fetch(int64_t row, int count) {
    const int key = head_ / args_.heads_a_key * args_.key_dim;
    const int64_t bytes = args_.activation == DType::kF32 ? 4 : 2;
#pragma unroll
    for (int i = 0; i < kFetched; ++i) {
      const int n = static_cast<int>(threadIdx.x) + i * kThreads;
      const int64_t from = row + n / kFours;
      if (n / kFours >= count) continue;
      int four = n % kFours;
      if (four < kValueFours) {
        fetched_[i] = LoadFour(
            args_.v.row<const std::byte>(from) +
                bytes * (int64_t{head_} * args_.value_dim + first_column_),
            4 * four, args_.value_dim - first_column_, args_.activation,
            args_.aligned);
        continue;
      }
      four -= kValueFours;
      const int at = 4 * (four % kKeyFours);
      if (four < 2 * kKeyFours) {
        const Rows& rows = four < kKeyFours ? args_.k : args_.q;
        fetched_[i] =
            LoadFour(rows.row<const std::byte>(from) + bytes * key, at,
                     args_.key_dim, args_.activation, args_.aligned);
      } else {
        fetched_[i] = LoadFour(args_.decay.row<const std::byte>(from) +
                                   int64_t{4} * head_ * args_.key_dim,
                               at, args_.key_dim, DType::kF32, args_.aligned);
      }
    }
    const int token = static_cast<int>(threadIdx.x);
    if (token >= count) return;
    decay_ = 1.0f;
    if (!kChannel && args_.decay.data != nullptr) {
      decay_ = args_.decay.row<const float>(row + token)[head_];
    }
    beta_ = 1.0f;
    if (args_.beta.data != nullptr) {
      beta_ = args_.beta.row<const float>(row + token)[head_];
    }
  }

  // And on to shared memory.
  __device__ void Stage(int count) {
#pragma unroll
    for (int i = 0; i < kFetched; ++i) {
      const int n = static_cast<int>(threadIdx.x) + i * kThreads;
      const int token = n / kFours;
      if (token >= count) continue;
      int four = n % kFours;
      float* to = nullptr;
      DType type = args_.activation;
      FeatureMap map = args_.feature_map;
      if (four < kValueFours) {
        to = shared_.v[token] + 4 * four;
        map = FeatureMap::kNone;
      } else if ((four -= kValueFours) < kKeyFours) {
        to = shared_.k[token] + 4 * four;
      } else if ((four -= kKeyFours) < kKeyFours) {
        to = shared_.q[token] + 4 * four;
      } else {
        map = FeatureMap::kNone;
        to = shared_.decays[kChannel ? token : 0] + 4 * (four - kKeyFours);
        type = DType::kF32;
      }
      *reinterpret_cast<float4*>(to) =
          MapFeatures(map, Widen(fetched_[i], type), 4 * four, args_.key_dim);
    }
    const int token = static_cast<int>(threadIdx.x);
    if (token >= count) return;
    shared_.decay[token] = decay_;
    shared_.beta[token] = beta_;
  }

  // For all lanes of a column.
  static __device__ float SumOfGroups(float x) {
#pragma unroll
    for (int lane = kColumnLanes; lane < 32; lane *= 2) {
      x = __fadd_rn(x, __shfl_xor_sync(0xffffffffu, x, lane));
    }
    return x;
  }

  // Four factors of the state, from the lane's i-th key on.
  __device__ float4 Decays(int token, int i) const {
    if constexpr (kChannel) {
      return *reinterpret_cast<const float4*>(&shared_.decays[token][KeyOf(i)]);
    } else {
      const float decay = shared_.decay[token];
      return make_float4(decay, decay, decay, decay);
    }
  }

  __device__ void Token(int t) {
    float y[kColumns], u[kColumns];
    const float beta = shared_.beta[t];
    if constexpr (kDelta) {
      Correct(t, beta, u, y);
    } else {
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        u[c] = __fmul_rn(beta, shared_.v[t][column_ + c]);
      }
      Add(t, beta, u, y);
    }
    if (group_ != 0) return;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      if (args_.skip != nullptr) {
        y[c] = fmaf(skip_, shared_.v[t][column_ + c], y[c]);
      }
      shared_.y[t][column_ + c] = y[c];
    }
  }

  // The state decays and gains k u^T; y = S^T q, over z^T q where that is the
  // rule.
  __device__ void Add(int t, float beta, const float (&u)[kColumns],
                      float (&y)[kColumns]) {
    float divisor = 0.0f;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) y[c] = 0.0f;
#pragma unroll
    for (int i = 0; i < kKeys; i += 4) {
      const float4 k4 =
          *reinterpret_cast<const float4*>(&shared_.k[t][KeyOf(i)]);
      const float4 q4 =
          *reinterpret_cast<const float4*>(&shared_.q[t][KeyOf(i)]);
      const float4 d4 = Decays(t, i);
      const float k[] = {k4.x, k4.y, k4.z, k4.w};
      const float q[] = {q4.x, q4.y, q4.z, q4.w};
      const float d[] = {d4.x, d4.y, d4.z, d4.w};
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if constexpr (kNormalised) {
          z_[i + j] = fmaf(k[j], beta, __fmul_rn(z_[i + j], d[j]));
          divisor = fmaf(z_[i + j], q[j], divisor);
        }
#pragma unroll
        for (int c = 0; c < kColumns; ++c) {
          float& s = state_[i + j][c];
          s = fmaf(k[j], u[c], __fmul_rn(s, d[j]));
          y[c] = fmaf(s, q[j], y[c]);
        }
      }
    }
#pragma unroll
    for (int c = 0; c < kColumns; ++c) y[c] = SumOfGroups(y[c]);
    if constexpr (kNormalised) {
      divisor = __fadd_rn(SumOfGroups(divisor), args_.epsilon);
#pragma unroll
      for (int c = 0; c < kColumns; ++c) y[c] = __fdiv_rn(y[c], divisor);
    }
  }

  // The delta rule: u = beta (v - S^T k) of the decayed state, which gains
  // k u^T; y of the state after that.
  __device__ void Correct(int t, float beta, float (&u)[kColumns],
                          float (&y)[kColumns]) {
    float known[kColumns];
    float kq = 0.0f;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) known[c] = y[c] = 0.0f;
#pragma unroll
    for (int i = 0; i < kKeys; i += 4) {
      const float4 k4 =
          *reinterpret_cast<const float4*>(&shared_.k[t][KeyOf(i)]);
      const float4 q4 =
          *reinterpret_cast<const float4*>(&shared_.q[t][KeyOf(i)]);
      const float4 d4 = Decays(t, i);
      const float k[] = {k4.x, k4.y, k4.z, k4.w};
      const float q[] = {q4.x, q4.y, q4.z, q4.w};
      const float d[] = {d4.x, d4.y, d4.z, d4.w};
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        kq = fmaf(k[j], q[j], kq);
#pragma unroll
        for (int c = 0; c < kColumns; ++c) {
          float& s = state_[i + j][c];
          s = __fmul_rn(s, d[j]);
          known[c] = fmaf(s, k[j], known[c]);
          y[c] = fmaf(s, q[j], y[c]);
        }
      }
    }
    kq = SumOfGroups(kq);
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      known[c] = SumOfGroups(known[c]);
      y[c] = SumOfGroups(y[c]);
      u[c] = __fmul_rn(beta, __fsub_rn(shared_.v[t][column_ + c], known[c]));
      y[c] = fmaf(kq, u[c], y[c]);
    }
#pragma unroll
    for (int i = 0; i < kKeys; i += 4) {
      const float4 k4 =
          *reinterpret_cast<const float4*>(&shared_.k[t][KeyOf(i)]);
      const float k[] = {k4.x, k4.y, k4.z, k4.w};
#pragma unroll
      for (int j = 0; j < 4; ++j) {
#pragma unroll
        for (int c = 0; c < kColumns; ++c) {
          state_[i + j][c] = fmaf(k[j], u[c], state_[i + j][c]);
        }
      }
    }
  }

  __device__ void WriteRows(int64_t row, int count) const {
    const int width = args_.value_dim - first_column_;
    const int64_t bytes = args_.activation == DType::kF32 ? 4 : 2;
    for (int n = static_cast<int>(threadIdx.x); n < count * kValueFours;
         n += kThreads) {
      const int token = n / kValueFours;
      const int first = 4 * (n % kValueFours);
      if (first >= width) continue;
      StoreFour(*reinterpret_cast<const float4*>(&shared_.y[token][first]),
                args_.y.row<std::byte>(row + token) +
                    bytes * (int64_t{head_} * args_.value_dim + first_column_),
                first, width, args_.activation, args_.aligned);
    }
  }

  const Args& args_;
  Shared& shared_;
  const int head_;
  const int first_column_;  // of the slab
  const int group_;
  const int column_;  // of the slab, the lane's first
  const bool whole_;  // no lane has a part of its columns only
  const float skip_;
  float state_[kKeys][kColumns];
  float z_[kNormalised ? kKeys : 1];
  Four fetched_[kFetched];
  float decay_;  // of the token that is the thread's number
  float beta_;
};

// Blocks: sequences * heads * slabs. y may be v: a row is written when it has
// been read, by the same block.
template <int kKeys, int kColumns, bool kDelta, bool kChannel, bool kNormalised>
__global__ void __launch_bounds__(kThreads)
    LinearAttention(const __grid_constant__ Args args) {
  using HeadSlab = Slab<kKeys, kColumns, kDelta, kChannel, kNormalised>;
  __shared__ typename HeadSlab::Shared shared;
  LetNextBegin();
  const int slab = static_cast<int>(blockIdx.x) % args.slabs;
  const int task = static_cast<int>(blockIdx.x) / args.slabs;
  const int sequence = task / args.num_heads;
  HeadSlab state(args, shared, task % args.num_heads, slab * HeadSlab::kSlab);
  const int32_t run = args.plan.first_runs[sequence];
  int32_t end_run = args.plan.first_runs[sequence + 1];
  if (run < end_run && args.plan.runs[run].sequence_rows > args.most_tokens) {
    end_run = run;
  }
  // The plan and the states are of before the step.
  if (run < end_run) state.Load(args.plan.runs[run].source);
  WaitForPrevious();
  if (run < end_run) state.Run(run, end_run);
}

using Kernel = void (*)(Args);

template <int kKeys, int kColumns, bool kChannel>
Kernel KernelOf(const LinearAttentionDesc& desc) {
  if (desc.normalised) {
    return LinearAttention<kKeys, kColumns, false, kChannel, true>;
  }
  return desc.delta ? LinearAttention<kKeys, kColumns, true, kChannel, false>
                    : LinearAttention<kKeys, kColumns, false, kChannel, false>;
}

template <int kKeys, int kColumns>
absl::Status LaunchColumns(const LinearAttentionDesc& desc, Args& args,
                           CudaStream& stream) {
  constexpr int kSlab = Slab<kKeys, kColumns, false, false, false>::kSlab;
  args.slabs = (desc.value_dim + kSlab - 1) / kSlab;
  const Kernel kernel = desc.decay == StateDecay::kChannel
                            ? KernelOf<kKeys, kColumns, true>(desc)
                            : KernelOf<kKeys, kColumns, false>(desc);
  return LaunchCuda(
      "linear_attention", stream,
      {args.plan.sequences * desc.num_heads * args.slabs, kThreads}, kernel,
      args);
}

template <int kKeys>
absl::Status LaunchKeys(const LinearAttentionDesc& desc, Args& args,
                        CudaStream& stream) {
  // Wide pieces of rows once there are blocks enough for all multiprocessors,
  // as far as registers go: the sums are the same.
  if constexpr (kKeys <= 16) {
    constexpr int kWide = Slab<kKeys, 4, false, false, false>::kSlab;
    const int64_t blocks =
        args.plan.sequences * desc.num_heads * (desc.value_dim / kWide);
    if (blocks >= 2 * int64_t{stream.num_sms()}) {
      return LaunchColumns<kKeys, 4>(desc, args, stream);
    }
  }
  return LaunchColumns<kKeys, 2>(desc, args, stream);
}

}  // namespace

absl::Status RunLinearAttentionTokens(const LinearAttentionDesc& desc,
                                      const LinearAttentionParams& params,
                                      bool short_only, Stream& stream) {
  CudaStream& cuda = CudaStream::Of(stream);
  const bool decays = desc.decay != StateDecay::kNone;
  const bool channel = desc.decay == StateDecay::kChannel;
  Args args = {Rows(params.q),
               Rows(params.k),
               Rows(params.v),
               Rows(decays ? params.decay : TensorView()),
               Rows(params.beta),
               Rows(params.y),
               params.skip,
               CudaStates(params.state.state),
               *params.state.plan,
               desc.num_heads,
               desc.num_heads / desc.num_key_heads,
               desc.key_dim,
               desc.value_dim,
               0,
               desc.feature_map,
               desc.epsilon,
               desc.activation,
               desc.key_dim % 4 == 0 && desc.value_dim % 4 == 0 &&
                   IsAlignedForFours(params.q) && IsAlignedForFours(params.k) &&
                   IsAlignedForFours(params.v) && IsAlignedForFours(params.y) &&
                   (!channel || IsAlignedForFours(params.decay)),
               short_only ? kStateChunk - 1 : INT_MAX};
  if (desc.key_dim <= 32) return LaunchKeys<4>(desc, args, cuda);
  if (desc.key_dim <= 64) return LaunchKeys<8>(desc, args, cuda);
  if (desc.key_dim <= 128) return LaunchKeys<16>(desc, args, cuda);
  return LaunchKeys<32>(desc, args, cuda);
}

}  // namespace inlay
