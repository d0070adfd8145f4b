// short_conv, the vector row. A task takes some hundred channels through the
// tokens of a sequence; their last inputs go round in a ring, the input of
// position p in slot p % num_taps.
#include "kernels/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/linear_attention/short_conv_cpu_simd.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/linear_attention/short_conv.h"
#include "kernels/simd_math-inl.h"
#include "memory/device/thread_pool.h"

HWY_BEFORE_NAMESPACE();
namespace inlay {
namespace HWY_NAMESPACE {
namespace short_conv {

// A multiple of every target's lanes.
constexpr size_t kChannels = 256;

class Task {
 public:
  Task(const ShortConvDesc& desc, const ShortConvParams& params, int64_t first,
       size_t count)
      : desc_(desc),
        params_(params),
        first_(first),
        count_(count),
        taps_(static_cast<size_t>(desc.num_taps)) {}

  void Run(size_t sequence) {
    bool loaded = false;
    ForEachStateRun(params_.state, sequence, [&](const StateRun& run) HWY_ATTR {
      if (!loaded) Load(run);
      loaded = true;
      for (int64_t i = 0; i < run.count; ++i) {
        Token(run.row + i, run.position + i);
      }
      Store(run);
    });
  }

 private:
  // Of a position >= -num_taps.
  float* Slot(int64_t position) {
    return ring_[static_cast<size_t>(position + desc_.num_taps) % taps_];
  }
  // Tap `j` of the state is the input of position - (num_taps - 1) + j.
  template <typename T>
  T* InState(T* state, size_t j) const {
    return state + static_cast<int64_t>(j) * desc_.channels + first_;
  }

  void Load(const StateRun& run) {
    const auto* from = reinterpret_cast<const float*>(run.from);
    for (size_t j = 0; j + 1 < taps_; ++j) {
      float* slot =
          Slot(run.position - desc_.num_taps + 1 + static_cast<int64_t>(j));
      if (from == nullptr) {
        std::fill_n(slot, count_, 0.0f);
      } else {
        std::copy_n(InState(from, j), count_, slot);
      }
    }
  }

  void Store(const StateRun& run) {
    auto* to = reinterpret_cast<float*>(run.to);
    const int64_t end = run.position + run.count;
    for (size_t j = 0; j + 1 < taps_; ++j) {
      const float* slot =
          Slot(end - desc_.num_taps + 1 + static_cast<int64_t>(j));
      std::copy_n(slot, count_, InState(to, j));
    }
  }

  // Of the task's channels in `row` of `view`, which may be empty.
  const float* Row(const TensorView& view, int64_t row) const {
    return view.empty() ? nullptr : view.row<const float>(row) + first_;
  }

  // Channels [c, c + lanes) of a row; beyond `count_` zeros.
  HWY_INLINE VF At(const float* p, size_t c) const {
    return c + kLanes <= count_ ? LoadWide(p + c)
                                : LoadWideTail(p + c, count_ - c);
  }

  HWY_INLINE void Token(int64_t row, int64_t position) {
    const DF d;
    const float* x = Row(params_.x, row);
    const float* input_gate = Row(params_.input_gate, row);
    const float* output_gate = Row(params_.output_gate, row);
    float* y = params_.y.row<float>(row) + first_;
    float* const newest = Slot(position);
    const float* slots[kMaxConvTaps];
    for (size_t j = 0; j < taps_; ++j) {
      slots[j] = Slot(position - desc_.num_taps + 1 + static_cast<int64_t>(j));
    }
    for (size_t c = 0; c < count_; c += kLanes) {
      VF input = At(x, c);
      if (input_gate != nullptr) input = hn::Mul(input, At(input_gate, c));
      hn::StoreU(input, d, newest + c);
      VF sum =
          params_.bias == nullptr ? hn::Zero(d) : At(params_.bias + first_, c);
      for (size_t j = 0; j < taps_; ++j) {
        sum = hn::MulAdd(hn::LoadU(d, slots[j] + c),
                         At(InState(params_.taps, j), c), sum);
      }
      if (desc_.silu) sum = hn::Mul(sum, Sigmoid(sum));
      if (output_gate != nullptr) sum = hn::Mul(sum, At(output_gate, c));
      if (c + kLanes <= count_) {
        hn::StoreU(sum, d, y + c);
      } else {
        StoreTail(sum, y + c, count_ - c);
      }
    }
  }

  const ShortConvDesc& desc_;
  const ShortConvParams& params_;
  const int64_t first_;
  const size_t count_;
  const size_t taps_;
  HWY_ALIGN float ring_[kMaxConvTaps][kChannels];
};

HWY_NOINLINE void RunTask(const ShortConvDesc& desc,
                          const ShortConvParams& params, int64_t tile,
                          size_t sequence) {
  const int64_t first = tile * static_cast<int64_t>(kChannels);
  const auto count =
      static_cast<size_t>(std::min<int64_t>(desc.channels - first, kChannels));
  Task(desc, params, first, count).Run(sequence);
}

}  // namespace short_conv

void RunShortConv(const ShortConvDesc& desc, const ShortConvParams& params,
                  ThreadPool& pool) {
  const auto sequences = static_cast<int64_t>(params.state.sequences.size());
  const auto size = static_cast<int64_t>(short_conv::kChannels);
  const int64_t tiles = (desc.channels + size - 1) / size;
  pool.ParallelFor(sequences * tiles, 1,
                   [&](int64_t begin, int64_t end) HWY_ATTR {
                     for (int64_t task = begin; task < end; ++task) {
                       short_conv::RunTask(desc, params, task % tiles,
                                           static_cast<size_t>(task / tiles));
                     }
                   });
}

}  // namespace HWY_NAMESPACE
}  // namespace inlay
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace inlay {
HWY_EXPORT(RunShortConv);

absl::Status RunShortConvCpuSimd(const ShortConvDesc& desc,
                                 const ShortConvParams& params,
                                 Stream& stream) {
  HWY_DYNAMIC_DISPATCH(RunShortConv)(desc, params, *stream.thread_pool());
  return absl::OkStatus();
}

}  // namespace inlay
#endif  // HWY_ONCE
