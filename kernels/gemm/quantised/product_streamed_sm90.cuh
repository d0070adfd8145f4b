// gemm over quantised weights for up to 32 rows of x on Hopper: packed weights
// (layout.h) and x go through one ring, each once. Included by the
// product_*_sm90.cu, each of which instantiates some forms.
//
// Mapping: a job is up to 16 neighbouring tiles of 16 rows of w. A cluster of
// 1, 2 or 4 blocks shares its K, and in a block `shares` of warps do: the
// groups of units that are theirs modulo `shares`. A warp multiplies two tiles.
// One thread copies weights, a group of all the job's tiles by one tensor copy,
// and one x, that group of all its rows. Clusters have neighbouring jobs; where
// blocks share K a cluster has one. Where gated a job is up to 7 tiles of gates
// and those of their ups, a pair one of each.
//
// Arithmetic: product_unit_sm90.cuh, of 4-bit integers with minima for up to
// 16 rows product_nibbles_sm90.cuh, where all numbers of rows have one order
// product_rounded_sm90.cuh, times the rows' factors. Slices of K are added in
// ascending order, then bias and residual. What a row gives does not depend on
// the rows beside it, for one plan.
//
// Shared memory: barriers, the ring, partial sums [pairs of tiles that this
// block finishes][slices][2][x tiles of 8 rows][lane][4].
//
// Barriers (mbarriers): full a place, of two copies; empty a place, of the
// warps that share its group; partials_full, where blocks share K: counts bytes
// stored, by the other block too. Named barrier 1: the warps that multiply,
// where a block has K to itself.
//
// Overlap: the ring is filled with weights before the previous kernel's end is
// awaited.
//
// Roofline: packed bytes over the copy bandwidth. QUANTISED.md: how far off.
#ifndef INLAY_KERNELS_GEMM_QUANTISED_PRODUCT_STREAMED_SM90_CUH_
#define INLAY_KERNELS_GEMM_QUANTISED_PRODUCT_STREAMED_SM90_CUH_

#include "kernels/activation/activation.cuh"
#include "kernels/cuda_float.cuh"
#include "kernels/cuda_launch.cuh"
#include "kernels/gemm/gemv_sm90.cuh"
#include "kernels/gemm/quantised/product_nibbles_sm90.cuh"
#include "kernels/gemm/quantised/product_rounded_sm90.cuh"
#include "kernels/gemm/quantised/product_unit_sm90.cuh"
#include "kernels/gemm/quantised/streamed_shape.h"

namespace inlay {
namespace {

struct StreamedBarriers {
  static constexpr uint32_t kPartials = 0;
  static constexpr uint32_t kFull = 16;
  static constexpr uint32_t kEmpty = kFull + 8 * kMostStreamedPlaces;
};
static_assert(StreamedBarriers::kEmpty + 8 * kMostStreamedPlaces <=
              kStreamedHead);

// Whether weights are rounded to x's type: with 32 rows of x there are no
// registers for sums of groups besides those of all.
template <int kTiles>
inline constexpr bool kStreamedScaled = kTiles > 2;

// What a warp's sums are to be multiplied by.
template <class Form, typename T, int kTiles, bool kRounds>
inline constexpr float kStreamedFactor =
    kRounds                   ? kRoundedFactor<T>
    : kStreamedScaled<kTiles> ? kOperandFactor<T>
    : kIsNibbles<Form>        ? kNibbleFactor<T>
                              : 1.0f;

// A job's tiles, or gates with their ups.
struct StreamedJob {
  __device__ StreamedJob(const StreamedShape& shape_of_all, int job)
      : shape(shape_of_all),
        first(static_cast<int>(int64_t{job} * shape.slots / shape.jobs)),
        slots(static_cast<int>(int64_t{job + 1} * shape.slots / shape.jobs) -
              first) {}
  __device__ bool gated() const { return shape.up > 0; }
  __device__ int tiles() const { return gated() ? 2 * slots : slots; }
  __device__ int pairs() const { return gated() ? slots : (slots + 1) / 2; }
  // Of those that a block of the cluster finishes.
  __device__ int own_pairs(unsigned rank) const {
    return (pairs() - static_cast<int>(rank) + (1 << shape.log_cluster) - 1) >>
           shape.log_cluster;
  }
  // Where in a place tile `which` of a pair is; the first for a second that is
  // not there.
  __device__ int Place(int pair, int which) const {
    if (gated()) return pair + which * slots;
    return 2 * pair + (2 * pair + which < slots ? which : 0);
  }
  // Which of w's it is.
  __device__ int Tile(int pair, int which) const {
    return first + (gated() ? pair + which * shape.up : Place(pair, which));
  }
  const StreamedShape& shape;
  int first;
  int slots;
};

// Of x in a place, what ldmatrix of a lane needs: rows of 64 columns side by
// side, 16 bytes swapped as the 128-byte swizzle does.
template <int kTiles>
struct StreamedX {
  __device__ uint32_t At(int t, int product) const {
    return place + (product / 4 * kTiles + t) * 1024 +
           (product % 4 / 2 == 0 ? chunk : chunk ^ 64);
  }
  uint32_t place;  // and the lane's row
  uint32_t chunk;
};

// Where the sums of a pair go: its place among those that its owner finishes.
struct StreamedPair {
  __device__ StreamedPair(const StreamedShape& shape, int pair)
      : owner(pair & ((1 << shape.log_cluster) - 1)),
        place(pair >> shape.log_cluster) {}
  unsigned owner;
  int place;
};

__device__ inline void CopyStreamed(uint32_t to, const CUtensorMap& map,
                                    int second, int third, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::"
      "bytes [%0], [%1, {%2, %3, %4}], [%5];" ::"r"(to),
      "l"(&map), "r"(0), "r"(second), "r"(third), "r"(barrier)
      : "memory");
}
__device__ inline void CopyStreamedOnce(uint32_t to, const CUtensorMap& map,
                                        int second, int third, uint32_t barrier,
                                        uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::"
      "bytes.L2::cache_hint [%0], [%1, {%2, %3, %4, %2}], [%5], %6;" ::"r"(to),
      "l"(&map), "r"(0), "r"(second), "r"(third), "r"(barrier), "l"(policy)
      : "memory");
}

// What a block goes through: groups [first, end) of its cluster's jobs.
struct StreamedWork {
  __device__ StreamedWork(const StreamedShape& shape)
      : rank(shape.log_cluster == 0 ? 0 : ClusterRank()),
        first_job((static_cast<int>(blockIdx.x) >> shape.log_cluster) *
                  shape.rounds),
        first(static_cast<int>(rank) * shape.groups >> shape.log_cluster),
        end(static_cast<int>(rank + 1) * shape.groups >> shape.log_cluster) {}
  unsigned rank;
  int first_job;
  int first;
  int end;
};

// The thread that copies weights, or with kX the one that copies x.
template <bool kX>
__device__ void FeedStreamed(const StreamedShape& shape,
                             const StreamedMaps& maps, uint32_t base,
                             const StreamedWork& work) {
  uint64_t policy = 0;
  if constexpr (!kX) {
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  }
  const int halves = 2 * shape.place_units;
  RingTurn turn;
#pragma unroll 1
  for (int round = 0; round < shape.rounds; ++round) {
    const StreamedJob job(shape, work.first_job + round);
    const CUtensorMap& w = maps.w[job.slots < shape.job_slots ? 1 : 0];
    const auto bytes = static_cast<uint32_t>(
        kX ? shape.x_bytes
           : job.tiles() * shape.place_units * shape.unit_bytes);
#pragma unroll 1
    for (int group = work.first; group < work.end; ++group) {
      const uint32_t full = base + StreamedBarriers::kFull + 8 * turn.stage;
      const uint32_t to = base + shape.ring + turn.stage * shape.place_bytes;
      Await(base + StreamedBarriers::kEmpty + 8 * turn.stage, turn.parity ^ 1);
      Expect(full, bytes);
      if constexpr (kX) {
        CopyStreamed(to, maps.x, 0, group * halves, full);
      } else {
        CopyStreamedOnce(to + shape.x_bytes, w, group * halves, job.first, full,
                         policy);
      }
      turn.Next(shape.places);
    }
  }
}

// A warp's share of a job's K. kRounds: weights are rounded to x's type as all
// numbers of rows have them.
template <class Form, typename T, int kTiles, bool kRounds>
class StreamedConsumer {
 public:
  __device__ StreamedConsumer(const StreamedShape& shape, uint8_t* shared,
                              uint32_t base, const LevelBytes& levels)
      : shape_(shape),
        levels_(levels),
        shared_(shared),
        base_(base),
        share_(static_cast<int>(threadIdx.x) / 32 % shape.shares),
        pair_(static_cast<int>(threadIdx.x) / 32 / shape.shares) {
    const uint32_t lane = threadIdx.x % 32;
    x_.chunk = (lane / 8 ^ lane % 8) * 16;
  }

  // `turn`: of the job's first group.
  __device__ void Multiply(const StreamedJob& job, int groups, RingTurn turn,
                           QuantSums<kTiles>& sums) {
    const bool exists = pair_ < job.pairs();
    const int tile_bytes = shape_.place_units * shape_.unit_bytes;
    const int first = shape_.x_bytes + job.Place(pair_, 0) * tile_bytes;
    const int second = shape_.x_bytes + job.Place(pair_, 1) * tile_bytes;
    Step(turn, share_);
#pragma unroll 1
    for (int group = share_; group < groups; group += shape_.shares) {
      const uint32_t place = shape_.ring + turn.stage * shape_.place_bytes;
      Await(base_ + StreamedBarriers::kFull + 8 * turn.stage, turn.parity);
      if (exists) {
        const uint8_t* w[2];
        w[0] = shared_ + place + first;
        w[1] = shared_ + place + second;
        x_.place = base_ + place + threadIdx.x % 8 * 128;
#pragma unroll 1
        for (int i = 0; i < shape_.place_units; ++i) {
          if constexpr (kRounds) {
            MultiplyRoundedUnit<Form, T, kTiles>(w, x_, levels_, sums);
          } else if constexpr (kStreamedScaled<kTiles>) {
            MultiplyScaledUnit<Form, T, kTiles>(w, x_, levels_, sums);
          } else if constexpr (kIsNibbles<Form>) {
            MultiplyNibbleUnit<Form, T, kTiles>(w, x_, sums);
          } else {
            MultiplyQuantUnit<Form, T, kTiles>(w, x_, levels_, sums);
          }
          w[0] += shape_.unit_bytes;
          w[1] += shape_.unit_bytes;
          x_.place += kTiles * kStreamedXBytes;
        }
      }
      __syncwarp();
      if (threadIdx.x % 32 == 0) {
        Arrive(base_ + StreamedBarriers::kEmpty + 8 * turn.stage);
      }
      Step(turn, shape_.shares);
    }
  }
  __device__ int share() const { return share_; }
  __device__ int pair() const { return pair_; }
  // At most a whole ring on.
  __device__ void Step(RingTurn& turn, int places) const {
    turn.stage += places;
    if (turn.stage >= shape_.places) {
      turn.stage -= shape_.places;
      turn.parity ^= 1;
    }
  }

 private:
  const StreamedShape& shape_;
  const LevelBytes& levels_;
  uint8_t* shared_;
  uint32_t base_;
  int share_;
  int pair_;
  StreamedX<kTiles> x_;
};

// Finishes the outputs of a job's pairs that are this block's, a warp 16 rows
// of w, or gates with their ups, and 8 of x at a time. What it needs from
// memory for the first of these is read before the products.
template <typename T, int kTiles>
class StreamedFinish {
 public:
  __device__ StreamedFinish(const StreamedJob& job, unsigned rank,
                            const float* bias, const TensorView& residual)
      : shape_(job.shape),
        job_(job),
        rank_(static_cast<int>(rank)),
        items_(job.own_pairs(rank) * (job.gated() ? kTiles : 2 * kTiles)),
        bias_(bias),
        residual_(residual) {
    const int first = static_cast<int>(threadIdx.x) / 32;
    if (first < items_) LoadAdded(ItemOf(first));
  }
  // `partials`: the block's, of all slices.
  __device__ void Run(uint32_t partials, const TensorView& y) {
    const int first = static_cast<int>(threadIdx.x) / 32;
#pragma unroll 1
    for (int i = first; i < items_; i += shape_.warps) {
      const Item item = ItemOf(i);
      if (i != first) LoadAdded(item);
      float values[4];
      AddUp(partials, item, item.which, values);
#pragma unroll
      for (int j = 0; j < 4; ++j) values[j] += added_[j];
      if (job_.gated()) {
        float up[4];
        AddUp(partials, item, 1, up);
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          // Rounded as between the ops apart.
          values[j] = ApplyActivation(shape_.function, Rounded(values[j])) *
                      Rounded(up[j] + added_up_[j / 2]);
        }
      }
      Store(item, values, y);
    }
  }

 private:
  // A lane's four outputs: rows m and m + 1 of x, n and n + 8 of w.
  struct Item {
    bool is_there;
    int place;  // of the pair, among the block's own
    int which;  // tile of the pair
    int t;
    int m;
    int n;
  };
  __device__ Item ItemOf(int i) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int t = i % kTiles;
    i /= kTiles;
    const int which = job_.gated() ? 0 : i % 2;
    const int place = job_.gated() ? i : i / 2;
    const int pair = (place << shape_.log_cluster) + rank_;
    return {job_.gated() || 2 * pair + which < job_.slots,
            place,
            which,
            t,
            t * 8 + lane % 4 * 2,
            job_.Tile(pair, which) * kQuantRows + lane / 4};
  }
  __device__ static float Rounded(float value) {
    return ToFloat(FromFloat<T>(value));
  }
  __device__ bool IsThere(const Item& item, int j) const {
    return item.is_there && item.m + j % 2 < shape_.m &&
           item.n + j / 2 * 8 < shape_.n;
  }
  // Bias and residual.
  __device__ void LoadAdded(const Item& item) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      added_[j] = 0.0f;
      if (j % 2 == 0) added_up_[j / 2] = 0.0f;
      if (!IsThere(item, j)) continue;
      const int m = item.m + j % 2;
      const int n = item.n + j / 2 * 8;
      if (bias_ != nullptr) {
        added_[j] = bias_[n];
        if (job_.gated()) added_up_[j / 2] = bias_[shape_.n + n];
      }
      if (residual_.data == nullptr) continue;
      added_[j] += shape_.narrow
                       ? ToFloat(CudaMatrix<const T>(residual_).row(m)[n])
                       : CudaMatrix<const float>(residual_).row(m)[n];
    }
  }
  // Over all slices of K, in ascending order.
  __device__ void AddUp(uint32_t partials, const Item& item, int which,
                        float (&values)[4]) const {
    const int slices = shape_.shares << shape_.log_cluster;
    const uint32_t from = partials + item.place * slices * (kTiles * 1024) +
                          (which * kTiles + item.t) * 512 +
                          threadIdx.x % 32 * 16;
#pragma unroll
    for (float& value : values) value = 0.0f;
#pragma unroll 4
    for (int s = 0; s < slices; ++s) {
      const uint4 v = LoadShared16(from + s * (kTiles * 1024));
      values[0] += __uint_as_float(v.x);
      values[1] += __uint_as_float(v.y);
      values[2] += __uint_as_float(v.z);
      values[3] += __uint_as_float(v.w);
    }
  }
  __device__ void Store(const Item& item, const float (&values)[4],
                        const TensorView& y) const {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (!IsThere(item, j)) continue;
      const int m = item.m + j % 2;
      const int n = item.n + j / 2 * 8;
      if (shape_.narrow) {
        CudaMatrix<T>(y).row(m)[n] = FromFloat<T>(values[j]);
      } else {
        CudaMatrix<float>(y).row(m)[n] = values[j];
      }
    }
  }

  const StreamedShape& shape_;
  const StreamedJob& job_;
  int rank_;
  int items_;
  const float* bias_;
  const TensorView& residual_;
  float added_[4];
  float added_up_[2];
};

template <class Form, typename T, int kTiles, bool kRounds>
__global__ void __launch_bounds__(32 * (kMostStreamedWarps + 2), 1)
    QuantStreamed(const __grid_constant__ StreamedMaps maps,
                  const std::byte* __restrict__ w, const float* bias,
                  const __grid_constant__ TensorView residual,
                  const __grid_constant__ TensorView y,
                  const __grid_constant__ LevelBytes levels,
                  const __grid_constant__ StreamedShape shape) {
  extern __shared__ __align__(1024) uint8_t streamed_shared[];
  LetNextBegin();
  if (threadIdx.x == 32) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(&maps.x) : "memory");
    asm volatile("prefetch.tensormap [%0];" ::"l"(&maps.w[0]) : "memory");
    asm volatile("prefetch.tensormap [%0];" ::"l"(&maps.w[1]) : "memory");
  }
  const auto base =
      static_cast<uint32_t>(__cvta_generic_to_shared(streamed_shared));
  const StreamedWork work(shape);
  const bool alone = shape.log_cluster == 0;
  const int slices = shape.shares << shape.log_cluster;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  if (threadIdx.x < static_cast<unsigned>(shape.places)) {
    const uint32_t own = 8 * threadIdx.x;
    InitBarrier(base + StreamedBarriers::kFull + own, 2);
    InitBarrier(base + StreamedBarriers::kEmpty + own,
                shape.warps / shape.shares);
    if (threadIdx.x == 0 && !alone) {
      InitBarrier(base + StreamedBarriers::kPartials, 1);
      Expect(base + StreamedBarriers::kPartials,
             StreamedJob(shape, work.first_job).own_pairs(work.rank) * slices *
                 kTiles * 1024);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  if (!alone) ClusterArrive();
  if (warp >= shape.warps) {
    if (threadIdx.x % 32 == 0) {
      if (warp == shape.warps) {
        FeedStreamed<false>(shape, maps, base, work);
      } else {
        WaitForPrevious();
        FeedStreamed<true>(shape, maps, base, work);
      }
    }
    __syncwarp();
    if (!alone) ClusterWait();
    return;
  }
  if (!alone) ClusterWait();
  WaitForPrevious();
  StreamedConsumer<Form, T, kTiles, kRounds> consumer(shape, streamed_shared,
                                                      base, levels);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const StreamedPair pair(shape, consumer.pair());
  const int slice =
      static_cast<int>(work.rank) * shape.shares + consumer.share();
  const uint32_t to = base + shape.partials +
                      (pair.place * slices + slice) * (kTiles * 1024) +
                      lane * 16;
  RingTurn turn;
#pragma unroll 1
  for (int round = 0; round < shape.rounds; ++round) {
    const StreamedJob job(shape, work.first_job + round);
    float factors[2][2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int tile = job.Tile(min(consumer.pair(), job.pairs() - 1), r);
      const auto* head =
          reinterpret_cast<const float*>(w + int64_t{tile} * shape.tile_bytes);
      constexpr float kFactor = kStreamedFactor<Form, T, kTiles, kRounds>;
      factors[r][0] = head[lane / 4] * kFactor;
      factors[r][1] = head[lane / 4 + 8] * kFactor;
    }
    StreamedFinish<T, kTiles> finish(job, work.rank, bias, residual);
    QuantSums<kTiles> sums;
    consumer.Multiply(job, work.end - work.first, turn, sums);
    // The next job's first group.
    const int places = turn.stage + work.end - work.first;
    turn.parity ^= places / shape.places & 1;
    turn.stage = places % shape.places;
    if (alone && round > 0) {  // what was there has been read
      asm volatile("bar.sync 1, %0;" ::"r"(32 * shape.warps) : "memory");
    }
    if (consumer.pair() < job.pairs()) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
#pragma unroll
        for (int t = 0; t < kTiles; ++t) {
          float v[4];
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            v[i] = sums.v[r][t][i] * factors[r][i / 2];
          }
          const uint32_t at = to + (r * kTiles + t) * 512;
          if (alone) {
            asm volatile("st.shared.v4.f32 [%0], {%1,%2,%3,%4};" ::"r"(at),
                         "f"(v[0]), "f"(v[1]), "f"(v[2]), "f"(v[3])
                         : "memory");
          } else {
            StoreAt(at, base + StreamedBarriers::kPartials, pair.owner, v);
          }
        }
      }
    }
    if (alone) {
      asm volatile("bar.sync 1, %0;" ::"r"(32 * shape.warps) : "memory");
    } else if (job.own_pairs(work.rank) > 0) {
      Await(base + StreamedBarriers::kPartials, 0);
    }
    finish.Run(base + shape.partials, y);
  }
}

template <class Form, typename T, int kTiles, bool kRounds>
absl::Status LaunchStreamedTiles(const GemmParams& params,
                                 const StreamedMaps& maps,
                                 const QuantForm& form,
                                 const StreamedShape& shape,
                                 CudaStream& stream) {
  CudaGrid grid;
  grid.cluster = 1 << shape.log_cluster;
  grid.blocks = int64_t{shape.jobs / shape.rounds} * grid.cluster;
  grid.threads = 32 * (shape.warps + 2);
  grid.shared_bytes = shape.shared_bytes;
  const std::byte* w = params.w.data;
  return LaunchCuda("streamed quantised gemm", stream, grid,
                    QuantStreamed<Form, T, kTiles, kRounds>, maps, w,
                    params.bias, params.residual, params.y,
                    LevelBytesOf<T>(form), shape);
}

template <class Form, typename T>
absl::Status LaunchStreamedTyped(const GemmParams& params,
                                 const StreamedMaps& maps,
                                 const QuantForm& form, int x_tiles,
                                 const StreamedShape& shape,
                                 CudaStream& stream) {
  const auto launch = [&]<int kTiles, bool kRounds>() {
    return LaunchStreamedTiles<Form, T, kTiles, kRounds>(params, maps, form,
                                                         shape, stream);
  };
  if constexpr (!(Form::kHasMin && Form::kGroup == 16)) {
    if (shape.rounds_weights) {
      return x_tiles > 2    ? launch.template operator()<4, true>()
             : x_tiles == 2 ? launch.template operator()<2, true>()
                            : launch.template operator()<1, true>();
    }
  }
  return x_tiles > 2    ? launch.template operator()<4, false>()
         : x_tiles == 2 ? launch.template operator()<2, false>()
                        : launch.template operator()<1, false>();
}

}  // namespace

template <class Form>
absl::Status LaunchStreamed(const GemmParams& params, const StreamedMaps& maps,
                            const QuantForm& form, int x_tiles,
                            const StreamedShape& shape, CudaStream& stream) {
  return params.x.dtype == DType::kF16
             ? LaunchStreamedTyped<Form, __half>(params, maps, form, x_tiles,
                                                 shape, stream)
             : LaunchStreamedTyped<Form, __nv_bfloat16>(params, maps, form,
                                                        x_tiles, shape, stream);
}

}  // namespace inlay

#endif  // INLAY_KERNELS_GEMM_QUANTISED_PRODUCT_STREAMED_SM90_CUH_
