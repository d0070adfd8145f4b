// Per target: loads that widen plain float types to float32, stores that narrow
// them, and the fixed-order sum of a vector's lanes. Included by the SIMD rows
// inside their foreach_target loop.
#if defined(INLAY_KERNELS_SIMD_FLOAT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef INLAY_KERNELS_SIMD_FLOAT_INL_H_
#undef INLAY_KERNELS_SIMD_FLOAT_INL_H_
#else
#define INLAY_KERNELS_SIMD_FLOAT_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace inlay {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::ScalableTag<float>;
using VF = hn::Vec<DF>;

// Lanes of VF. A constant: scalable-vector targets are not among ours.
constexpr size_t kLanes = hn::MaxLanes(DF());

// Elements [0, kLanes) at `p`, widened exactly.
HWY_INLINE VF LoadWide(const float* p) { return hn::LoadU(DF(), p); }
HWY_INLINE VF LoadWide(const hwy::bfloat16_t* p) {
  return hn::PromoteTo(DF(), hn::LoadU(hn::Rebind<hwy::bfloat16_t, DF>(), p));
}
HWY_INLINE VF LoadWide(const hwy::float16_t* p) {
  return hn::PromoteTo(DF(), hn::LoadU(hn::Rebind<hwy::float16_t, DF>(), p));
}

// The first `count` < kLanes elements at `p`, then zeros. Reads nothing beyond
// them: a row's end may be the end of a mapping.
template <typename T>
HWY_INLINE VF LoadWideTail(const T* p, size_t count) {
  alignas(64) unsigned char bytes[kLanes * sizeof(T)] = {};
  std::memcpy(bytes, p, count * sizeof(T));
  return LoadWide(reinterpret_cast<const T*>(bytes));
}

HWY_INLINE void StoreTail(VF v, float* p, size_t count) {
  alignas(64) float lanes[kLanes];
  hn::Store(v, DF(), lanes);
  std::memcpy(p, lanes, count * sizeof(float));
}

// Widens `count` elements at `from` into `to`, then zeros up to `padded`
// (a multiple of kLanes).
template <typename T>
HWY_INLINE void WidenRow(const T* from, size_t count, float* to,
                         size_t padded) {
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    hn::Store(LoadWide(from + i), DF(), to + i);
  }
  if (i < count) {
    hn::Store(LoadWideTail(from + i, count - i), DF(), to + i);
    i += kLanes;
  }
  for (; i < padded; i += kLanes) hn::Store(hn::Zero(DF()), DF(), to + i);
}

#if HWY_TARGET == HWY_SCALAR
HWY_INLINE void StoreSums4(VF a, VF b, VF c, VF d, float* to) {
  to[0] = hn::GetLane(a);
  to[1] = hn::GetLane(b);
  to[2] = hn::GetLane(c);
  to[3] = hn::GetLane(d);
}
#else
// Adds a vector's 128-bit blocks: upper half to lower half until one is left.
template <class D>
HWY_INLINE auto SumBlocks(D d, hn::Vec<D> v) {
  if constexpr (hn::MaxLanes(d) <= 4) {
    return v;
  } else {
    const hn::Half<D> half;
    return SumBlocks(half,
                     hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  }
}

// to[0..3] = the sums of the lanes of a, b, c, d. The tree is the same for
// each, whichever argument it is: within a 128-bit block (0 + 2) + (1 + 3),
// then the blocks. Batch invariance rests on it.
HWY_INLINE void StoreSums4(VF a, VF b, VF c, VF d, float* to) {
  const DF df;
  const hn::Repartition<double, DF> dd;
  const VF ab =
      hn::Add(hn::InterleaveLower(df, a, b), hn::InterleaveUpper(df, a, b));
  const VF cd =
      hn::Add(hn::InterleaveLower(df, c, d), hn::InterleaveUpper(df, c, d));
  const auto ab2 = hn::BitCast(dd, ab);
  const auto cd2 = hn::BitCast(dd, cd);
  const VF low = hn::BitCast(df, hn::InterleaveLower(dd, ab2, cd2));
  const VF high = hn::BitCast(df, hn::InterleaveUpper(dd, ab2, cd2));
  hn::StoreU(SumBlocks(df, hn::Add(low, high)), hn::FixedTag<float, 4>(), to);
}
#endif

}  // namespace HWY_NAMESPACE
}  // namespace inlay
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
