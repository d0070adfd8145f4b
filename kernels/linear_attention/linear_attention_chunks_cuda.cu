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
//   U = T diag(beta) (V - diag(g) K S)                 without - g K S
//   otherwise Y = diag(g) Q S + P U + skip V S = g_last S + K^T diag(g_last /
//   g) U
//
// MakeChunks: a block of 4 warps a chunk and head makes T and P, all chunks at
// once; they go to the workspace row by row of tokens. T is solved for column
// by column in float32, a thread each. RunChunks: a block of 8 warps takes 32
// columns of a head's state through the chunks of a sequence; the state stays
// in registers as sums of mma.m16n8k16 and goes to shared memory in two parts
// of bf16, so that 16 of its bits count; U, P and T are rounded to bf16 once.
// What a chunk reads comes by cp.async while the one before it is computed: two
// stages of 58 KB. Four barriers a chunk. Sums in float32.
//
// Bound by what follows one another: some 2 us a chunk. Roofline: q, k, v, y,
// and twice T and P over the copy bandwidth.
#include "kernels/cuda_float.cuh"
#include "kernels/cuda_launch.cuh"
#include "kernels/linear_attention/linear_attention_cuda.h"
#include "kernels/linear_attention/state_plan.cuh"

namespace inlay {
namespace {

using Element = __nv_bfloat16;

constexpr int kChunk = kStateChunk;
constexpr int kSlab = 32;  // columns of the state
constexpr int kPad = 8;    // elements between rows: no bank twice in a matrix
constexpr int kMakeThreads = 128;
constexpr int kRunThreads = 256;
// Of logarithms of decays: what is less is nothing, and differences stay
// finite.
constexpr float kLeastLog = -1000.0f;

struct ChunkArgs {
  CudaMatrix<const Element> q, k, v;
  CudaMatrix<const float> decay;  // without data: 1
  CudaMatrix<const float> beta;   // likewise
  CudaMatrix<Element> y;
  const float* skip;
  CudaStates states;
  StatePlan plan;
  int num_heads;
  int heads_a_key;
  int value_dim;
  int slabs;
  Element* inner;  // T: [rows, heads, kChunk]
  Element* seen;   // P: likewise
};

__device__ inline uint32_t Shared(const void* at) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(at));
}

__device__ inline void LoadMatrix4(uint32_t (&r)[4], const Element* from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(Shared(from))
               : "memory");
}
__device__ inline void LoadMatrix4Transposed(uint32_t (&r)[4],
                                             const Element* from) {
  asm volatile(
      "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
      : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
      : "r"(Shared(from))
      : "memory");
}

__device__ inline void Multiply(float (&d)[4], const uint32_t (&a)[4],
                                uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, "
      "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// A matrix in shared memory whose rows the lanes of a warp read 8 x 8 at a
// time. The 16 x 16 at (row, column) as operands:
template <int kWidth>
struct Tile {
  static constexpr int kStride = kWidth + kPad;

  // a of m16n8k16, rows its m.
  __device__ static void LoadA(const Element* m, int row, int column,
                               uint32_t (&a)[4]) {
    const int lane = threadIdx.x % 32;
    LoadMatrix4(a, m + (row + lane % 16) * kStride + column + lane / 16 * 8);
  }
  // a, rows its k.
  __device__ static void LoadTransposedA(const Element* m, int row, int column,
                                         uint32_t (&a)[4]) {
    const int lane = threadIdx.x % 32;
    LoadMatrix4Transposed(a, m + (row + lane / 16 * 8 + lane % 8) * kStride +
                                 column + lane / 8 % 2 * 8);
  }
  // b of two products, rows their k: {0, 1} and {2, 3}.
  __device__ static void LoadB(const Element* m, int row, int column,
                               uint32_t (&b)[4]) {
    const int lane = threadIdx.x % 32;
    LoadMatrix4Transposed(
        b, m + (row + lane % 16) * kStride + column + lane / 16 * 8);
  }
  // b of two products, rows their n.
  __device__ static void LoadTransposedB(const Element* m, int row, int column,
                                         uint32_t (&b)[4]) {
    const int lane = threadIdx.x % 32;
    LoadMatrix4(b, m + (row + lane / 16 * 8 + lane % 8) * kStride + column +
                       lane / 8 % 2 * 8);
  }
};

__device__ inline void StorePair(Element* to, float low, float high) {
  *reinterpret_cast<uint32_t*>(to) = NarrowPair<Element>(low, high);
}

// 16 bytes to shared memory; zeros where not `there`.
__device__ inline void CopyAsync(Element* to, const Element* from, bool there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :
               : "r"(Shared(to)), "l"(from), "r"(there ? 16 : 0)
               : "memory");
}

// Rows [0, count) of kWidth columns; zeros to kChunk.
template <int kWidth, int kThreads>
__device__ void CopyRows(Element* to, const Element* from, int64_t stride,
                         int count) {
  constexpr int kPieces = kWidth / 8;
  for (int i = threadIdx.x; i < kChunk * kPieces; i += kThreads) {
    const int row = i / kPieces, piece = i % kPieces * 8;
    const bool there = row < count;
    CopyAsync(to + row * (kWidth + kPad) + piece,
              from + (there ? row * stride : 0) + piece, there);
  }
}

__device__ inline void WaitForCopies() {
  asm volatile("cp.async.wait_all;" ::: "memory");
}

struct Gate {
  float log = 0.0f;  // of the decay, to base 2
  float beta = 0.0f;
};

// Of the thread's token: threads 0 to kChunk - 1.
__device__ inline Gate LoadGate(const ChunkArgs& args, int head, int64_t row,
                                int count) {
  Gate gate;
  const int t = threadIdx.x;
  if (t >= count) return gate;
  gate.beta = args.beta.data == nullptr ? 1.0f : args.beta.row(row + t)[head];
  if (args.decay.data != nullptr) {
    gate.log = fmaxf(log2f(args.decay.row(row + t)[head]), kLeastLog);
  }
  return gate;
}

// Sums of logarithms up to the thread's token, by whole warps of the first
// kChunk threads; the second needs the first's: `first` becomes that.
__device__ inline float SumInWarp(float log) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const float other = __shfl_up_sync(0xffffffffu, log, step);
    if (lane >= step) log += other;
  }
  return log;
}

// The chunk that begins at the thread's row: its tokens, 0: none does.
__device__ inline int ChunkAt(const StatePlan& plan, int64_t row) {
  if (row >= plan.rows) return 0;
  const int32_t index = plan.run_of_row[row];
  if (index < 0) return 0;
  const StatePlanRun run = plan.runs[index];
  const auto in_run = static_cast<int>(row - run.row);
  if (run.sequence_rows < kStateChunk || in_run % kChunk != 0) return 0;
  return min(kChunk, run.count - in_run);
}

template <int kKeys, bool kDelta>
class ChunkMaker {
 public:
  struct Shared {
    alignas(16) Element k[kChunk * (kKeys + kPad)];
    alignas(16) Element q[kChunk * (kKeys + kPad)];
    alignas(16) float a[kDelta ? kChunk : 1][kChunk + 4];
    float logs[kChunk];  // summed up
    float betas[kChunk];
    float first;  // the first warp's
    int counts[kChunk];
  };

  __device__ ChunkMaker(const ChunkArgs& args, Shared& shared, int head)
      : args_(args), shared_(shared), head_(head) {}

  __device__ void Make(int64_t row, int count) {
    Load(row, count);
    const int warp = threadIdx.x / 32;
    float sums[kChunk / 8][4];
    Product(shared_.q, warp, sums);
    StoreSeen(row, count, warp, sums);
    if constexpr (kDelta) {
      Product(shared_.k, warp, sums);
      StoreInner(warp, sums);
      __syncthreads();
      Solve();
      __syncthreads();
      WriteInner(row, count);
    }
    __syncthreads();
  }

 private:
  __device__ void Load(int64_t row, int count) {
    const int key = head_ / args_.heads_a_key * kKeys;
    CopyRows<kKeys, kMakeThreads>(shared_.k, args_.k.row(row) + key,
                                  args_.k.stride, count);
    CopyRows<kKeys, kMakeThreads>(shared_.q, args_.q.row(row) + key,
                                  args_.q.stride, count);
    float log = 0.0f;
    if (threadIdx.x < kChunk) {
      const Gate gate = LoadGate(args_, head_, row, count);
      log = SumInWarp(gate.log);
      shared_.betas[threadIdx.x] = gate.beta;
      if (threadIdx.x == 31) shared_.first = log;
    }
    __syncthreads();
    if (threadIdx.x < kChunk) {
      shared_.logs[threadIdx.x] =
          log + (threadIdx.x >= 32 ? shared_.first : 0.0f);
    }
    WaitForCopies();
    __syncthreads();
  }

  // Rows 16 warp .. of x K^T, as far as the triangle goes.
  __device__ void Product(const Element* x, int warp,
                          float (&sums)[kChunk / 8][4]) {
#pragma unroll
    for (auto& tile : sums) tile[0] = tile[1] = tile[2] = tile[3] = 0.0f;
#pragma unroll
    for (int key = 0; key < kKeys; key += 16) {
      uint32_t a[4];
      Tile<kKeys>::LoadA(x, 16 * warp, key, a);
#pragma unroll
      for (int pair = 0; pair < kChunk / 16; ++pair) {
        if (pair > warp) break;
        uint32_t b[4];
        Tile<kKeys>::LoadTransposedB(shared_.k, 16 * pair, key, b);
        Multiply(sums[2 * pair], a, b[0], b[1]);
        Multiply(sums[2 * pair + 1], a, b[2], b[3]);
      }
    }
  }

  // fn(t, s, the sums of s and s + 1).
  template <typename Fn>
  __device__ void ForEachPair(int warp, const float (&sums)[kChunk / 8][4],
                              Fn fn) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int tile = 0; tile < kChunk / 8; ++tile) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        fn(16 * warp + 8 * half + lane / 4, 8 * tile + lane % 4 * 2,
           sums[tile][2 * half], sums[tile][2 * half + 1]);
      }
    }
  }

  __device__ float Ratio(int t, int s) const {
    return exp2f(shared_.logs[t] - shared_.logs[s]);
  }

  __device__ void StoreSeen(int64_t row, int count, int warp,
                            const float (&sums)[kChunk / 8][4]) {
    ForEachPair(warp, sums, [&](int t, int s, float low, float high) {
      if (t >= count) return;
      low = s <= t ? low * Ratio(t, s) : 0.0f;
      high = s + 1 <= t ? high * Ratio(t, s + 1) : 0.0f;
      StorePair(args_.seen + ((row + t) * args_.num_heads + head_) * kChunk + s,
                low, high);
    });
  }

  __device__ void StoreInner(int warp, const float (&sums)[kChunk / 8][4]) {
    ForEachPair(warp, sums, [&](int t, int s, float low, float high) {
      const float beta = shared_.betas[t];
      shared_.a[t][s] = s < t ? beta * low * Ratio(t, s) : 0.0f;
      shared_.a[t][s + 1] = s + 1 < t ? beta * high * Ratio(t, s + 1) : 0.0f;
    });
  }

  // Column j of (1 + A)^-1, by thread j, to where k was.
  __device__ void Solve() {
    if (threadIdx.x >= kChunk) return;
    const int j = threadIdx.x;
    float x[kChunk];
    Element* const out = shared_.k;
#pragma unroll
    for (int t = 0; t < kChunk; ++t) {
      float sums[4] = {};
#pragma unroll
      for (int s = 0; s < t; s += 4) {
        const float4 a = *reinterpret_cast<const float4*>(&shared_.a[t][s]);
        sums[0] = fmaf(a.x, x[s], sums[0]);
        if (s + 1 < t) sums[1] = fmaf(a.y, x[s + 1], sums[1]);
        if (s + 2 < t) sums[2] = fmaf(a.z, x[s + 2], sums[2]);
        if (s + 3 < t) sums[3] = fmaf(a.w, x[s + 3], sums[3]);
      }
      const float sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
      x[t] = t == j ? 1.0f : t < j ? 0.0f : -sum;
      out[t * (kChunk + kPad) + j] = __float2bfloat16_rn(x[t]);
    }
  }

  __device__ void WriteInner(int64_t row, int count) {
    constexpr int kPieces = kChunk / 8;
    for (int i = threadIdx.x; i < count * kPieces; i += kMakeThreads) {
      const int t = i / kPieces, piece = i % kPieces * 8;
      *reinterpret_cast<uint4*>(
          args_.inner + ((row + t) * args_.num_heads + head_) * kChunk +
          piece) = *reinterpret_cast<const uint4*>(shared_.k +
                                                   t * (kChunk + kPad) + piece);
    }
  }

  const ChunkArgs& args_;
  Shared& shared_;
  const int head_;
};

// Blocks: windows of kChunk rows * heads.
template <int kKeys, bool kDelta>
__global__ void __launch_bounds__(kMakeThreads)
    MakeChunks(const __grid_constant__ ChunkArgs args) {
  using Maker = ChunkMaker<kKeys, kDelta>;
  extern __shared__ __align__(16) char memory[];
  auto& shared = *reinterpret_cast<typename Maker::Shared*>(memory);
  LetNextBegin();
  const int head = static_cast<int>(blockIdx.x) % args.num_heads;
  const int64_t window = int64_t{blockIdx.x / args.num_heads} * kChunk;
  if (threadIdx.x < kChunk) {
    shared.counts[threadIdx.x] = ChunkAt(args.plan, window + threadIdx.x);
  }
  WaitForPrevious();
  __syncthreads();
  Maker maker(args, shared, head);
  for (int i = 0; i < kChunk; ++i) {
    if (shared.counts[i] > 0) maker.Make(window + i, shared.counts[i]);
  }
}

// The chunks of a sequence, one after another.
class Chunks {
 public:
  __device__ Chunks(const StatePlan& plan, int sequence)
      : plan_(plan),
        run_(plan.first_runs[sequence]),
        end_run_(plan.first_runs[sequence + 1]) {
    if (!Done()) current_ = plan_.runs[run_];
  }
  __device__ bool Done() const { return run_ >= end_run_; }
  __device__ const StatePlanRun& run() const { return current_; }
  __device__ int64_t row() const { return int64_t{current_.row} + first_; }
  __device__ int count() const { return min(kChunk, current_.count - first_); }
  __device__ bool EndsRun() const { return first_ + kChunk >= current_.count; }
  __device__ void Next() {
    first_ += kChunk;
    if (first_ < current_.count) return;
    first_ = 0;
    if (++run_ < end_run_) current_ = plan_.runs[run_];
  }

 private:
  const StatePlan& plan_;
  int32_t run_;
  int32_t end_run_;
  int first_ = 0;  // of the run's tokens
  StatePlanRun current_ = {};
};

template <int kKeys, bool kDelta>
class ChunkRunner {
 public:
  struct Stage {
    alignas(16) Element k[kChunk * (kKeys + kPad)];
    alignas(16) Element q[kChunk * (kKeys + kPad)];
    alignas(16) Element v[kChunk * (kSlab + kPad)];
    alignas(16) Element seen[kChunk * (kChunk + kPad)];
    alignas(16) Element inner[kDelta ? kChunk * (kChunk + kPad) : 8];
  };
  struct Shared {
    Stage stages[2];
    alignas(16) Element high[kKeys * (kSlab + kPad)];  // of the state
    alignas(16) Element low[kKeys * (kSlab + kPad)];
    alignas(16) Element b[kDelta ? kChunk * (kSlab + kPad) : 8];
    alignas(16) Element u[kChunk * (kSlab + kPad)];
    alignas(
        16) Element left[kChunk * (kSlab + kPad)];  // u as the state gets it
    float grown[kChunk];                            // g
    float to_end[kChunk];                           // g_last / g
    float betas[kChunk];
    float sums[2];  // of the logarithms of each warp's
  };

  __device__ ChunkRunner(const ChunkArgs& args, Shared& shared, int head,
                         int column)
      : args_(args),
        shared_(shared),
        head_(head),
        column_(column),
        warp_(threadIdx.x / 32),
        lane_(threadIdx.x % 32),
        token_(16 * (warp_ % 4) + lane_ / 4),
        slab_(16 * (warp_ / 4)),
        skip_(args.skip == nullptr ? 0.0f : args.skip[head]) {}

  __device__ void LoadState(int32_t source) {
    ForEachOfState([&](int key, int column, float& low, float& high) {
      low = high = 0.0f;
      if (source < 0) return;
      const float2 two =
          *reinterpret_cast<const float2*>(InState(source, key, column));
      low = two.x;
      high = two.y;
    });
    ShareState();
  }

  __device__ void Run(Chunks& chunks) {
    Fetch(chunks, shared_.stages[0]);
    for (int turn = 0; !chunks.Done(); turn ^= 1) {
      const Gate gate = gate_;
      const int64_t row = chunks.row();
      const int count = chunks.count();
      const int32_t to = chunks.EndsRun() ? chunks.run().to : -1;
      chunks.Next();
      WaitForCopies();
      __syncthreads();
      if (!chunks.Done()) Fetch(chunks, shared_.stages[turn ^ 1]);
      Chunk(shared_.stages[turn], gate, row, count);
      if (to >= 0) StoreState(to);
    }
  }

 private:
  // The state's rows are shared out to warps 16 at a time.
  static constexpr int kRowWarps = kKeys / 16;
  static constexpr int kColumnWarps = 8 / kRowWarps;
  static constexpr int kStateTiles = kSlab / 8 / kColumnWarps;
  static_assert(kStateTiles % 2 == 0);

  __device__ int state_row() const { return warp_ % kRowWarps * 16; }
  __device__ int state_column() const {
    return warp_ / kRowWarps * (8 * kStateTiles);
  }

  // fn(key, column of the slab, two neighbours).
  template <typename Fn>
  __device__ void ForEachOfState(Fn fn) {
#pragma unroll
    for (int tile = 0; tile < kStateTiles; ++tile) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        fn(state_row() + 8 * half + lane_ / 4,
           state_column() + 8 * tile + lane_ % 4 * 2, state_[tile][2 * half],
           state_[tile][2 * half + 1]);
      }
    }
  }
  __device__ float* InState(int32_t block, int key, int column) const {
    return args_.states.Of(block) +
           (int64_t{head_} * kKeys + key) * args_.value_dim + column_ + column;
  }
  __device__ void StoreState(int32_t to) {
    ForEachOfState([&](int key, int column, float low, float high) {
      *reinterpret_cast<float2*>(InState(to, key, column)) =
          make_float2(low, high);
    });
  }
  // To shared memory, in two parts.
  __device__ void ShareState() {
    ForEachOfState([&](int key, int column, float low, float high) {
      const int at = key * Tile<kSlab>::kStride + column;
      const uint32_t most = NarrowPair<Element>(low, high);
      const float2 kept = WidenPair<Element>(most);
      *reinterpret_cast<uint32_t*>(shared_.high + at) = most;
      StorePair(shared_.low + at, low - kept.x, high - kept.y);
    });
  }

  // Begins to read what a chunk needs.
  __device__ void Fetch(const Chunks& chunks, Stage& stage) {
    const int64_t row = chunks.row();
    const int count = chunks.count();
    const int key = head_ / args_.heads_a_key * kKeys;
    const int64_t stride = int64_t{args_.num_heads} * kChunk;
    const int64_t first = (row * args_.num_heads + head_) * kChunk;
    CopyRows<kKeys, kRunThreads>(stage.k, args_.k.row(row) + key,
                                 args_.k.stride, count);
    CopyRows<kKeys, kRunThreads>(stage.q, args_.q.row(row) + key,
                                 args_.q.stride, count);
    CopyRows<kSlab, kRunThreads>(
        stage.v, args_.v.row(row) + int64_t{head_} * args_.value_dim + column_,
        args_.v.stride, count);
    CopyRows<kChunk, kRunThreads>(stage.seen, args_.seen + first, stride,
                                  count);
    if constexpr (kDelta) {
      CopyRows<kChunk, kRunThreads>(stage.inner, args_.inner + first, stride,
                                    count);
    }
    if (threadIdx.x < kChunk) gate_ = LoadGate(args_, head_, row, count);
  }

  // Two 16 x 8 tiles of a product with rows [16 (warp % 4), + 16) of a lower
  // triangle.
  __device__ void Triangle(const Element* a, const Element* b,
                           float (&sums)[2][4]) {
#pragma unroll
    for (int s = 0; s < kChunk; s += 16) {
      if (s > 16 * (warp_ % 4)) break;
      uint32_t left[4], right[4];
      Tile<kChunk>::LoadA(a, 16 * (warp_ % 4), s, left);
      Tile<kSlab>::LoadB(b, s, slab_, right);
      Multiply(sums[0], left, right[0], right[1]);
      Multiply(sums[1], left, right[2], right[3]);
    }
  }

  // fn(token, column of the slab, two neighbours of the warp's tiles).
  template <typename Fn>
  __device__ void ForEachOfTiles(float (&sums)[2][4], Fn fn) {
#pragma unroll
    for (int tile = 0; tile < 2; ++tile) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        fn(token_ + 8 * half, slab_ + 8 * tile + lane_ % 4 * 2,
           sums[tile][2 * half], sums[tile][2 * half + 1]);
      }
    }
  }

  __device__ void Chunk(const Stage& stage, const Gate& gate, int64_t row,
                        int count) {
    float log = 0.0f;
    if (threadIdx.x < kChunk) {
      log = SumInWarp(gate.log);
      if (lane_ == 31) shared_.sums[warp_] = log;
      shared_.betas[threadIdx.x] = gate.beta;
    }
    float known[2][4] = {}, ahead[2][4] = {};  // K S and Q S
#pragma unroll
    for (int key = 0; key < kKeys; key += 16) {
      uint32_t high[4], low[4], a[4];
      Tile<kSlab>::LoadB(shared_.high, key, slab_, high);
      Tile<kSlab>::LoadB(shared_.low, key, slab_, low);
      if constexpr (kDelta) {
        Tile<kKeys>::LoadA(stage.k, 16 * (warp_ % 4), key, a);
        Add(known, a, high, low);
      }
      Tile<kKeys>::LoadA(stage.q, 16 * (warp_ % 4), key, a);
      Add(ahead, a, high, low);
    }
    // The second warp's sums go on from the first's.
    __syncthreads();
    const float total = shared_.sums[0] + shared_.sums[1];
    if (threadIdx.x < kChunk) {
      if (warp_ == 1) log += shared_.sums[0];
      shared_.grown[threadIdx.x] = exp2f(log);
      shared_.to_end[threadIdx.x] = exp2f(total - log);
    }
    __syncthreads();
    Element* const b = kDelta ? shared_.b : shared_.u;
    ForEachOfTiles(known, [&](int t, int column, float low, float high) {
      const float2 v = Values(stage, t, column);
      const float beta = shared_.betas[t], grown = shared_.grown[t];
      low = beta * (v.x - grown * low);
      high = beta * (v.y - grown * high);
      StorePair(b + t * Tile<kSlab>::kStride + column, low, high);
      if constexpr (!kDelta) StoreLeft(t, column, low, high);
    });
    __syncthreads();
    if constexpr (kDelta) {
      float u[2][4] = {};
      Triangle(stage.inner, shared_.b, u);
      ForEachOfTiles(u, [&](int t, int column, float low, float high) {
        StorePair(shared_.u + t * Tile<kSlab>::kStride + column, low, high);
        StoreLeft(t, column, low, high);
      });
      __syncthreads();
    }
    ForEachOfTiles(ahead, [&](int t, int, float& low, float& high) {
      low *= shared_.grown[t];
      high *= shared_.grown[t];
    });
    Triangle(stage.seen, shared_.u, ahead);
    ForEachOfTiles(ahead, [&](int t, int column, float low, float high) {
      if (t >= count) return;
      const float2 v = Values(stage, t, column);
      StorePair(args_.y.row(row + t) + int64_t{head_} * args_.value_dim +
                    column_ + column,
                fmaf(skip_, v.x, low), fmaf(skip_, v.y, high));
    });
    GrowState(stage, exp2f(total));
    ShareState();
  }

  __device__ void Add(float (&sums)[2][4], const uint32_t (&a)[4],
                      const uint32_t (&high)[4], const uint32_t (&low)[4]) {
    Multiply(sums[0], a, high[0], high[1]);
    Multiply(sums[1], a, high[2], high[3]);
    Multiply(sums[0], a, low[0], low[1]);
    Multiply(sums[1], a, low[2], low[3]);
  }

  __device__ float2 Values(const Stage& stage, int t, int column) const {
    return WidenPair<Element>(*reinterpret_cast<const uint32_t*>(
        stage.v + t * Tile<kSlab>::kStride + column));
  }
  __device__ void StoreLeft(int t, int column, float low, float high) {
    const float factor = shared_.to_end[t];
    StorePair(shared_.left + t * Tile<kSlab>::kStride + column, factor * low,
              factor * high);
  }

  __device__ void GrowState(const Stage& stage, float factor) {
    ForEachOfState([&](int, int, float& low, float& high) {
      low *= factor;
      high *= factor;
    });
#pragma unroll
    for (int t = 0; t < kChunk; t += 16) {
      uint32_t a[4];
      Tile<kKeys>::LoadTransposedA(stage.k, t, state_row(), a);
#pragma unroll
      for (int tile = 0; tile < kStateTiles; tile += 2) {
        uint32_t b[4];
        Tile<kSlab>::LoadB(shared_.left, t, state_column() + 8 * tile, b);
        Multiply(state_[tile], a, b[0], b[1]);
        Multiply(state_[tile + 1], a, b[2], b[3]);
      }
    }
  }

  const ChunkArgs& args_;
  Shared& shared_;
  const int head_;
  const int column_;  // of the values, the slab's first
  const int warp_;
  const int lane_;
  const int token_;  // the lane's first in products of tokens
  const int slab_;   // the warp's first column there
  const float skip_;
  float state_[kStateTiles][4];
  Gate gate_;  // of the chunk that is on its way
};

// Blocks: sequences * heads * slabs. y may be v, as a row is read by the block
// that writes it, before.
template <int kKeys, bool kDelta>
__global__ void __launch_bounds__(kRunThreads)
    RunChunks(const __grid_constant__ ChunkArgs args) {
  using Runner = ChunkRunner<kKeys, kDelta>;
  extern __shared__ __align__(16) char memory[];
  auto& shared = *reinterpret_cast<typename Runner::Shared*>(memory);
  LetNextBegin();
  const int slab = static_cast<int>(blockIdx.x) % args.slabs;
  const int task = static_cast<int>(blockIdx.x) / args.slabs;
  Chunks chunks(args.plan, task / args.num_heads);
  const bool mine = !chunks.Done() && chunks.run().sequence_rows >= kStateChunk;
  Runner runner(args, shared, task % args.num_heads, slab * kSlab);
  // The plan and the states are of before the step.
  if (mine) runner.LoadState(chunks.run().source);
  WaitForPrevious();
  if (mine) runner.Run(chunks);
}

template <int kKeys, bool kDelta>
absl::Status LaunchChunks(const ChunkArgs& args, CudaStream& stream) {
  constexpr char kWhat[] = "linear_attention by chunks";
  const int64_t windows = (args.plan.rows + kChunk - 1) / kChunk;
  INLAY_RETURN_IF_ERROR(
      LaunchCuda(kWhat, stream,
                 {windows * args.num_heads, kMakeThreads,
                  sizeof(typename ChunkMaker<kKeys, kDelta>::Shared)},
                 MakeChunks<kKeys, kDelta>, args));
  return LaunchCuda(
      kWhat, stream,
      {args.plan.sequences * args.num_heads * args.slabs, kRunThreads,
       sizeof(typename ChunkRunner<kKeys, kDelta>::Shared)},
      RunChunks<kKeys, kDelta>, args);
}

int64_t ChunkElements(const LinearAttentionDesc& desc, int64_t rows) {
  return rows * desc.num_heads * kChunk;
}

bool LiesOn16(const TensorView& view) {
  return reinterpret_cast<uintptr_t>(view.data) % 16 == 0 &&
         view.row_stride_bytes % 16 == 0;
}

}  // namespace

const char* LinearAttentionChunksRefuses(const LinearAttentionDesc& desc) {
  if (desc.batch_invariant) return "chunks decide the order of sums";
  if (desc.activation != DType::kBF16) return "activations must be bf16";
  if (desc.decay == StateDecay::kChannel) return "takes no decay a channel";
  if (desc.key_dim != 64 && desc.key_dim != 128) {
    return "keys must have 64 or 128 elements";
  }
  return desc.value_dim % kSlab == 0 ? nullptr
                                     : "values must be multiples of 32";
}

size_t LinearAttentionChunksWorkspaceBytes(const LinearAttentionDesc& desc,
                                           int64_t max_rows) {
  return static_cast<size_t>(2 * ChunkElements(desc, max_rows)) *
         sizeof(Element);
}

absl::Status RunLinearAttentionChunks(const LinearAttentionDesc& desc,
                                      const LinearAttentionParams& params,
                                      Stream& stream) {
  const StatePlan& plan = *params.state.plan;
  if (plan.longest < kStateChunk || !LiesOn16(params.q) || !LiesOn16(params.k) ||
      !LiesOn16(params.v) || !LiesOn16(params.y)) {
    return RunLinearAttentionTokens(desc, params, false, stream);
  }
  INLAY_RETURN_IF_ERROR(RunLinearAttentionTokens(desc, params, true, stream));
  auto* const workspace = static_cast<Element*>(params.workspace);
  const bool decays = desc.decay != StateDecay::kNone;
  const ChunkArgs args = {
      CudaMatrix<const Element>(params.q),
      CudaMatrix<const Element>(params.k),
      CudaMatrix<const Element>(params.v),
      CudaMatrix<const float>(decays ? params.decay : TensorView()),
      CudaMatrix<const float>(params.beta),
      CudaMatrix<Element>(params.y),
      params.skip,
      CudaStates(params.state.state),
      plan,
      desc.num_heads,
      desc.num_heads / desc.num_key_heads,
      desc.value_dim,
      desc.value_dim / kSlab,
      workspace,
      workspace + ChunkElements(desc, plan.rows)};
  CudaStream& cuda = CudaStream::Of(stream);
  if (desc.key_dim == 64) {
    return desc.delta ? LaunchChunks<64, true>(args, cuda)
                      : LaunchChunks<64, false>(args, cuda);
  }
  return desc.delta ? LaunchChunks<128, true>(args, cuda)
                    : LaunchChunks<128, false>(args, cuda);
}

}  // namespace inlay
