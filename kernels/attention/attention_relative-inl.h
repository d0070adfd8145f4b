// Per target: what queries and keys are multiplied by besides each other in the
// vector row of disentangled_attention; included by attention_cpu_simd.cc
// inside its foreach_target loop.
//
// The distance of a query from a key decides which rows the pair reads, so
// neighbouring queries and keys read neighbouring ones: of two queries and four
// keys 5 rows of a table serve all 8 pairs. A pair's products are added up in
// one accumulator vector, whatever tile it is in.
#if defined(INLAY_KERNELS_ATTENTION_RELATIVE_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef INLAY_KERNELS_ATTENTION_RELATIVE_INL_H_
#undef INLAY_KERNELS_ATTENTION_RELATIVE_INL_H_
#else
#define INLAY_KERNELS_ATTENTION_RELATIVE_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

#include "kernels/attention/attention_tasks-inl.h"
#include "kernels/attention/disentangled_attention.h"
#include "kernels/simd_float-inl.h"

HWY_BEFORE_NAMESPACE();
namespace inlay {
namespace HWY_NAMESPACE {
namespace attention {

class RelativeTiles {
 public:
  // `dim`: of the head; queries lie `padded` floats apart.
  RelativeTiles(const RelativeRows& relative, int head, int dim, int padded)
      : relative_(relative),
        column_(int64_t{head} * dim),
        dim_(dim),
        padded_(padded) {}

  // The dot products of one query, or of `two` that follow each other, with
  // four keys that do, and of either with their relative rows, into `to`, rows
  // kMaxKeys apart. `distance`: of the first query from the first key.
  HWY_INLINE void Run(bool two, int64_t distance, const float* queries,
                      const float* const* keys, float* to) const {
    if (relative_.queries.empty()) {
      return RunOf<true, false>(two, distance, queries, keys, to);
    }
    if (relative_.keys.empty()) {
      return RunOf<false, true>(two, distance, queries, keys, to);
    }
    RunOf<true, true>(two, distance, queries, keys, to);
  }

 private:
  static constexpr int kKeys = 4;

  template <bool kWithKeys, bool kWithQueries>
  HWY_INLINE void RunOf(bool two, int64_t distance, const float* queries,
                        const float* const* keys, float* to) const {
    if (two) {
      return Tile<2, kWithKeys, kWithQueries>(distance, queries, keys, to);
    }
    Tile<1, kWithKeys, kWithQueries>(distance, queries, keys, to);
  }

  const float* RowOf(const TensorView& table, int64_t distance) const {
    const int64_t reach = relative_.reach;
    const int64_t near = HWY_MIN(HWY_MAX(distance, -reach), reach);
    return table.row<float>(relative_.rows[reach + near]) + column_;
  }

  template <int kRows, bool kWithKeys, bool kWithQueries>
  HWY_NOINLINE void Tile(int64_t distance, const float* queries,
                         const float* const* keys, float* to) const {
    const DF d;
    // Of query a and key b: a + 3 - b.
    constexpr int kNear = kRows + kKeys - 1;
    const float* near_keys[kNear] = {};
    const float* near_queries[kNear] = {};
    for (int i = 0; i < kNear; ++i) {
      const int64_t at = distance - (kKeys - 1) + i;
      if constexpr (kWithKeys) near_keys[i] = RowOf(relative_.keys, at);
      if constexpr (kWithQueries) {
        near_queries[i] = RowOf(relative_.queries, at);
      }
    }
    VF sums[kRows][kKeys];
    for (auto& row : sums) {
      for (VF& sum : row) sum = hn::Zero(d);
    }
    // `load` reads a vector of a table.
    const auto add = [&](int i, const auto& load) HWY_ATTR {
      VF q[kRows];
      VF of_keys[kNear];
      VF of_queries[kNear];
      for (int a = 0; a < kRows; ++a) {
        q[a] = hn::Load(d, queries + a * padded_ + i);
      }
      for (int j = 0; j < kNear; ++j) {
        if constexpr (kWithKeys) of_keys[j] = load(near_keys[j] + i);
        if constexpr (kWithQueries) of_queries[j] = load(near_queries[j] + i);
      }
      for (int b = 0; b < kKeys; ++b) {
        const VF key = hn::LoadU(d, keys[b] + i);
        for (int a = 0; a < kRows; ++a) {
          const int at = a + kKeys - 1 - b;
          VF sum = hn::MulAdd(q[a], key, sums[a][b]);
          if constexpr (kWithKeys) sum = hn::MulAdd(q[a], of_keys[at], sum);
          if constexpr (kWithQueries)
            sum = hn::MulAdd(key, of_queries[at], sum);
          sums[a][b] = sum;
        }
      }
    };
    constexpr int kStep = static_cast<int>(kLanes);
    int i = 0;
    for (; i + kStep <= dim_; i += kStep) {
      add(i, [](const float* p) HWY_ATTR { return hn::LoadU(DF(), p); });
    }
    if (i < dim_) {
      const auto rest = static_cast<size_t>(dim_ - i);
      add(i, [rest](const float* p) HWY_ATTR { return LoadWideTail(p, rest); });
    }
    for (int a = 0; a < kRows; ++a) {
      StoreSums4(sums[a][0], sums[a][1], sums[a][2], sums[a][3],
                 to + a * kMaxKeys);
    }
  }

  const RelativeRows& relative_;
  int64_t column_;
  int dim_;
  int padded_;
};

}  // namespace attention
}  // namespace HWY_NAMESPACE
}  // namespace inlay
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
