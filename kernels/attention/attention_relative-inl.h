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

  // Of queries a and b by four keys each. By name, not in arrays: these would
  // lie in memory where the compiler does not unroll loops.
  template <int kRows>
  struct Sums {
    VF a0, a1, a2, a3;
    VF b0, b1, b2, b3;

    HWY_INLINE void Clear() {
      a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = hn::Zero(DF());
    }

    // Adds the products of elements i and on. `load` reads a table's.
    template <bool kWithKeys, bool kWithQueries, typename Load>
    HWY_INLINE void Add(const float* queries, int padded,
                        const float* const* keys, const float* const* near_keys,
                        const float* const* near_queries, int i,
                        const Load& load) {
      const DF d;
      const VF qa = hn::Load(d, queries + i);
      const VF qb = kRows > 1 ? hn::Load(d, queries + padded + i) : qa;
      const VF k0 = hn::LoadU(d, keys[0] + i);
      const VF k1 = hn::LoadU(d, keys[1] + i);
      const VF k2 = hn::LoadU(d, keys[2] + i);
      const VF k3 = hn::LoadU(d, keys[3] + i);
      Multiply(qa, k0, qa, k1, qa, k2, qa, k3, a0, a1, a2, a3);
      if constexpr (kRows > 1) {
        Multiply(qb, k0, qb, k1, qb, k2, qb, k3, b0, b1, b2, b3);
      }
      if constexpr (kWithKeys) {
        const VF n0 = load(near_keys[0] + i);
        const VF n1 = load(near_keys[1] + i);
        const VF n2 = load(near_keys[2] + i);
        const VF n3 = load(near_keys[3] + i);
        Multiply(qa, n3, qa, n2, qa, n1, qa, n0, a0, a1, a2, a3);
        if constexpr (kRows > 1) {
          const VF n4 = load(near_keys[4] + i);
          Multiply(qb, n4, qb, n3, qb, n2, qb, n1, b0, b1, b2, b3);
        }
      }
      if constexpr (kWithQueries) {
        const VF n0 = load(near_queries[0] + i);
        const VF n1 = load(near_queries[1] + i);
        const VF n2 = load(near_queries[2] + i);
        const VF n3 = load(near_queries[3] + i);
        Multiply(k0, n3, k1, n2, k2, n1, k3, n0, a0, a1, a2, a3);
        if constexpr (kRows > 1) {
          const VF n4 = load(near_queries[4] + i);
          Multiply(k0, n4, k1, n3, k2, n2, k3, n1, b0, b1, b2, b3);
        }
      }
    }

   private:
    static HWY_INLINE void Multiply(VF x0, VF y0, VF x1, VF y1, VF x2, VF y2,
                                    VF x3, VF y3, VF& s0, VF& s1, VF& s2,
                                    VF& s3) {
      s0 = hn::MulAdd(x0, y0, s0);
      s1 = hn::MulAdd(x1, y1, s1);
      s2 = hn::MulAdd(x2, y2, s2);
      s3 = hn::MulAdd(x3, y3, s3);
    }
  };

  template <int kRows, bool kWithKeys, bool kWithQueries>
  HWY_NOINLINE void Tile(int64_t distance, const float* queries,
                         const float* const* keys, float* to) const {
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
    Sums<kRows> sums;
    sums.Clear();
    constexpr int kStep = static_cast<int>(kLanes);
    int i = 0;
    for (; i + kStep <= dim_; i += kStep) {
      sums.template Add<kWithKeys, kWithQueries>(
          queries, padded_, keys, near_keys, near_queries, i,
          [](const float* p) HWY_ATTR { return hn::LoadU(DF(), p); });
    }
    if (i < dim_) {
      const auto rest = static_cast<size_t>(dim_ - i);
      sums.template Add<kWithKeys, kWithQueries>(
          queries, padded_, keys, near_keys, near_queries, i,
          [rest](const float* p) HWY_ATTR { return LoadWideTail(p, rest); });
    }
    StoreSums4(sums.a0, sums.a1, sums.a2, sums.a3, to);
    if constexpr (kRows > 1) {
      StoreSums4(sums.b0, sums.b1, sums.b2, sums.b3, to + kMaxKeys);
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
