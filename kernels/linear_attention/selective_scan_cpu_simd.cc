// selective_scan, the vector row. Channels do not know of each other, so some
// vectors of them are taken through all tokens of a sequence, their states in
// the first cache. What it takes is exponentials, one an element of the state
// and token: those of a token's elements do not wait for each other.
#include "kernels/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/linear_attention/selective_scan_cpu_simd.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/linear_attention/selective_scan.h"
#include "kernels/simd_float-inl.h"
#include "kernels/simd_math-inl.h"
#include "memory/device/thread_pool.h"

HWY_BEFORE_NAMESPACE();
namespace inlay {
namespace HWY_NAMESPACE {
namespace selective_scan {

constexpr size_t kVectors = 2;
constexpr size_t kWidth = kVectors * kLanes;

class Tile {
 public:
  Tile(const SelectiveScanDesc& desc, const SelectiveScanParams& params,
       int64_t first, size_t count)
      : params_(params),
        channels_(desc.channels),
        first_(first),
        count_(count),
        size_(static_cast<size_t>(desc.state_size)) {
    for (size_t i = 0; i < size_; ++i) Copy(params.rates, i, rates_[i]);
    Read(params.skip + first, skip_);
  }

  void Run(size_t sequence) {
    bool loaded = false;
    ForEachStateRun(params_.state, sequence, [&](const StateRun& run) HWY_ATTR {
      const auto* from = reinterpret_cast<const float*>(run.from);
      for (size_t i = 0; i < size_ && !loaded; ++i) {
        if (from == nullptr) {
          std::fill_n(state_[i], kWidth, 0.0f);
        } else {
          Copy(from, i, state_[i]);
        }
      }
      loaded = true;
      for (int64_t row = run.row; row < run.row + run.count; ++row) Token(row);
      auto* to = reinterpret_cast<float*>(run.to);
      for (size_t i = 0; i < size_; ++i) {
        Write(state_[i], to + static_cast<int64_t>(i) * channels_ + first_);
      }
    });
  }

 private:
  // The tile's part of row `i` of a table [state_size][channels].
  HWY_INLINE void Copy(const float* table, size_t i, float* to) const {
    Read(table + static_cast<int64_t>(i) * channels_ + first_, to);
  }

  // Calls visit(first lane, lanes it has) for each vector; a vector that is not
  // there has none.
  template <typename Visit>
  HWY_INLINE void ForEachVector(const Visit& visit) const {
    for (size_t at = 0; at < kWidth; at += kLanes) {
      visit(at, count_ > at ? std::min(kLanes, count_ - at) : 0);
    }
  }

  // Lanes beyond the tile's channels are zeros.
  HWY_INLINE void Read(const float* from, float* to) const {
    ForEachVector([&](size_t at, size_t lanes) HWY_ATTR {
      const VF v = lanes == kLanes ? LoadWide(from + at)
                   : lanes == 0    ? hn::Zero(DF())
                                   : LoadWideTail(from + at, lanes);
      hn::Store(v, DF(), to + at);
    });
  }

  HWY_INLINE void Write(const float* from, float* to) const {
    ForEachVector([&](size_t at, size_t lanes) HWY_ATTR {
      const VF v = hn::Load(DF(), from + at);
      if (lanes == kLanes) {
        hn::StoreU(v, DF(), to + at);
      } else if (lanes > 0) {
        StoreTail(v, to + at, lanes);
      }
    });
  }

  HWY_INLINE void ReadRow(const TensorView& view, int64_t row,
                          float* to) const {
    Read(view.row<const float>(row) + first_, to);
  }

  HWY_INLINE void Token(int64_t row) {
    const DF d;
    HWY_ALIGN float x[kWidth], z[kWidth], raw[kWidth], out[kWidth];
    ReadRow(params_.x, row, x);
    ReadRow(params_.z, row, z);
    ReadRow(params_.step, row, raw);
    const float* b = params_.b.row<const float>(row);
    const float* c = params_.c.row<const float>(row);
    VF step[kVectors], given[kVectors], y[kVectors];
    for (size_t v = 0; v < kVectors; ++v) {
      const VF input = hn::Load(d, x + v * kLanes);
      step[v] = Softplus(hn::Load(d, raw + v * kLanes));
      given[v] = hn::Mul(step[v], input);
      y[v] = hn::Mul(hn::Load(d, skip_ + v * kLanes), input);
    }
    for (size_t i = 0; i < size_; ++i) {
      const VF gain = hn::Set(d, b[i]);
      const VF query = hn::Set(d, c[i]);
      for (size_t v = 0; v < kVectors; ++v) {
        const VF decay = ExpNonPositive(
            hn::Mul(step[v], hn::Load(d, rates_[i] + v * kLanes)));
        float* const at = state_[i] + v * kLanes;
        const VF state =
            hn::MulAdd(decay, hn::Load(d, at), hn::Mul(given[v], gain));
        hn::Store(state, d, at);
        y[v] = hn::MulAdd(state, query, y[v]);
      }
    }
    for (size_t v = 0; v < kVectors; ++v) {
      const VF gate = hn::Load(d, z + v * kLanes);
      hn::Store(hn::Mul(y[v], hn::Mul(gate, Sigmoid(gate))), d,
                out + v * kLanes);
    }
    Write(out, params_.y.row<float>(row) + first_);
  }

  const SelectiveScanParams& params_;
  const int64_t channels_;
  const int64_t first_;
  const size_t count_;
  const size_t size_;
  HWY_ALIGN float skip_[kWidth];
  HWY_ALIGN float rates_[kMaxScanState][kWidth];
  HWY_ALIGN float state_[kMaxScanState][kWidth];
};

HWY_NOINLINE void RunTile(const SelectiveScanDesc& desc,
                          const SelectiveScanParams& params, int64_t tile,
                          size_t sequence) {
  const int64_t first = tile * static_cast<int64_t>(kWidth);
  const auto count = static_cast<size_t>(
      std::min<int64_t>(desc.channels - first, static_cast<int64_t>(kWidth)));
  Tile(desc, params, first, count).Run(sequence);
}

}  // namespace selective_scan

void RunSelectiveScan(const SelectiveScanDesc& desc,
                      const SelectiveScanParams& params, ThreadPool& pool) {
  const auto sequences = static_cast<int64_t>(params.state.sequences.size());
  const auto width = static_cast<int64_t>(selective_scan::kWidth);
  const int64_t tiles = (desc.channels + width - 1) / width;
  pool.ParallelFor(
      sequences * tiles, 4, [&](int64_t begin, int64_t end) HWY_ATTR {
        for (int64_t task = begin; task < end; ++task) {
          selective_scan::RunTile(desc, params, task % tiles,
                                  static_cast<size_t>(task / tiles));
        }
      });
}

}  // namespace HWY_NAMESPACE
}  // namespace inlay
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace inlay {
HWY_EXPORT(RunSelectiveScan);

absl::Status RunSelectiveScanCpuSimd(const SelectiveScanDesc& desc,
                                     const SelectiveScanParams& params,
                                     Stream& stream) {
  HWY_DYNAMIC_DISPATCH(RunSelectiveScan)(desc, params, *stream.thread_pool());
  return absl::OkStatus();
}

}  // namespace inlay
#endif  // HWY_ONCE
