// rg_lru, the vector row. Channels do not know of each other, so some vectors
// of them are taken through all tokens of a sequence, their states in
// registers. What it takes is exponentials, five an element: none of them waits
// for the state.
#include "kernels/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/linear_attention/rg_lru_cpu_simd.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/linear_attention/rg_lru.h"
#include "kernels/simd_float-inl.h"
#include "kernels/simd_math-inl.h"
#include "memory/device/thread_pool.h"

HWY_BEFORE_NAMESPACE();
namespace inlay {
namespace HWY_NAMESPACE {
namespace rg_lru {

constexpr size_t kVectors = 4;
constexpr size_t kWidth = kVectors * kLanes;

class Tile {
 public:
  Tile(const RgLruParams& params, int64_t first, size_t count)
      : params_(params), first_(first), count_(count) {
    for (size_t v = 0; v < Vectors(); ++v) rates_[v] = Read(params.rates, v);
  }

  void Run(size_t sequence) {
    bool loaded = false, has_past = false;
    VF h[kVectors];
    for (VF& each : h) each = hn::Zero(DF());
    ForEachStateRun(params_.state, sequence, [&](const StateRun& run) HWY_ATTR {
      if (!loaded && run.from != nullptr) {
        const auto* from = reinterpret_cast<const float*>(run.from);
        for (size_t v = 0; v < Vectors(); ++v) h[v] = Read(from, v);
        has_past = true;
      }
      loaded = true;
      for (int64_t row = run.row; row < run.row + run.count; ++row) {
        for (size_t v = 0; v < Vectors(); ++v) {
          h[v] = Token(row, v, has_past, h[v]);
        }
        has_past = true;
      }
      auto* to = reinterpret_cast<float*>(run.to);
      for (size_t v = 0; v < Vectors(); ++v) Write(h[v], to, v);
    });
  }

 private:
  size_t Vectors() const { return (count_ + kLanes - 1) / kLanes; }
  size_t Lanes(size_t v) const { return std::min(kLanes, count_ - v * kLanes); }

  // The tile's v-th vector of a row; lanes beyond its channels are zeros.
  HWY_INLINE VF Read(const float* row, size_t v) const {
    const float* from = row + first_ + v * kLanes;
    return Lanes(v) == kLanes ? LoadWide(from) : LoadWideTail(from, Lanes(v));
  }
  HWY_INLINE void Write(VF value, float* row, size_t v) const {
    float* to = row + first_ + v * kLanes;
    if (Lanes(v) == kLanes) {
      hn::StoreU(value, DF(), to);
    } else {
      StoreTail(value, to, Lanes(v));
    }
  }

  // What the state is after the token.
  HWY_INLINE VF Token(int64_t row, size_t v, bool has_past, VF h) const {
    const auto at = [&](const TensorView& view) HWY_ATTR {
      return Read(view.row<const float>(row), v);
    };
    VF given = hn::Mul(at(params_.x), Sigmoid(at(params_.input)));
    if (has_past) {
      const VF l = hn::Mul(rates_[v], Sigmoid(at(params_.recurrence)));
      const VF share = hn::Sqrt(OneMinusExp(hn::Add(l, l)));
      given = hn::MulAdd(ExpNonPositive(l), h, hn::Mul(share, given));
    }
    Write(hn::Mul(given, GeluTanh(at(params_.z))), params_.y.row<float>(row),
          v);
    return given;
  }

  const RgLruParams& params_;
  const int64_t first_;
  const size_t count_;
  VF rates_[kVectors];
};

HWY_NOINLINE void RunTile(const RgLruDesc& desc, const RgLruParams& params,
                          int64_t tile, size_t sequence) {
  const int64_t first = tile * static_cast<int64_t>(kWidth);
  const auto count = static_cast<size_t>(
      std::min<int64_t>(desc.channels - first, static_cast<int64_t>(kWidth)));
  Tile(params, first, count).Run(sequence);
}

}  // namespace rg_lru

void RunRgLru(const RgLruDesc& desc, const RgLruParams& params,
              ThreadPool& pool) {
  const auto sequences = static_cast<int64_t>(params.state.sequences.size());
  const auto width = static_cast<int64_t>(rg_lru::kWidth);
  const int64_t tiles = (desc.channels + width - 1) / width;
  pool.ParallelFor(sequences * tiles, 4,
                   [&](int64_t begin, int64_t end) HWY_ATTR {
                     for (int64_t task = begin; task < end; ++task) {
                       rg_lru::RunTile(desc, params, task % tiles,
                                       static_cast<size_t>(task / tiles));
                     }
                   });
}

}  // namespace HWY_NAMESPACE
}  // namespace inlay
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace inlay {
HWY_EXPORT(RunRgLru);

absl::Status RunRgLruCpuSimd(const RgLruDesc& desc, const RgLruParams& params,
                             Stream& stream) {
  HWY_DYNAMIC_DISPATCH(RunRgLru)(desc, params, *stream.thread_pool());
  return absl::OkStatus();
}

}  // namespace inlay
#endif  // HWY_ONCE
