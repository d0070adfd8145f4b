// attention, biased_attention and disentangled_attention, the vector rows:
// online softmax over tiles of keys, for each of the tasks of
// attention_tasks-inl.h.
//
// A query's arithmetic is the same in every chunking and batch: tiles are
// aligned to absolute positions; a dot product has one accumulator vector and
// one lane-sum tree; what a query does not see has weight exactly 0, which
// leaves its accumulators as they are; a tile that it does not see at all
// leaves maximum, sum and values as they are, and is skipped where a mask says
// so of all rows. Keys and values that no query of
// the task sees are not read: their slots may never have been written, their
// blocks may be gone.
#include "kernels/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention/attention_cpu_simd.cc"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cstdint>
#include <cstring>
#include <limits>

#include "kernels/attention/attention.h"
#include "kernels/attention/attention_mask.h"
#include "kernels/attention/attention_relative-inl.h"
#include "kernels/attention/attention_tasks-inl.h"
#include "kernels/attention/biased_attention.h"
#include "kernels/attention/disentangled_attention.h"
#include "kernels/simd_float-inl.h"
#include "kernels/simd_kv_row-inl.h"
#include "kernels/simd_math-inl.h"
#include "memory/device/thread_pool.h"

HWY_BEFORE_NAMESPACE();
namespace inlay {
namespace HWY_NAMESPACE {
namespace attention {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

class Runner {
 public:
  Runner(const AttentionDesc& desc, const AttentionParams& params,
         const ScoreBias& bias, const RelativeRows& relative,
         const Shape& shape, const Task& task)
      : desc_(desc),
        params_(params),
        bias_(bias),
        relative_(relative),
        shape_(shape),
        task_(task) {}

  HWY_NOINLINE void Run() {
    LoadQueries();
    const int64_t begin = SeenBegin(0, task_.num_rows);
    const int64_t end = SeenEnd(0, task_.num_rows);
    for (int64_t t = begin / shape_.keys * shape_.keys; t < end;
         t += shape_.keys) {
      tile_ = t;
      if (SkipsTile()) continue;
      first_ = static_cast<int>(HWY_MAX(begin - t, int64_t{0}));
      last_ = static_cast<int>(HWY_MIN(end - t, int64_t{shape_.keys}));
      LoadKeys(end);
      relative_.rows == nullptr ? Scores() : RelativeScores();
      for (int r = 0; r < task_.num_rows; ++r) Softmax(r);
      if (!shape_.values_in_keys) LoadValues(end);
      AddValues();
    }
    for (int r = 0; r < task_.num_rows; ++r) StoreOutput(r);
  }

 private:
  int64_t Query(int r) const { return (task_.first_row + r) / shape_.group; }
  int Head(int r) const {
    return task_.kv_head * shape_.group + (task_.first_row + r) % shape_.group;
  }
  // From the first key that rows [r, r + count) see to the last.
  int64_t SeenBegin(int r, int count) const {
    int64_t begin = task_.sequence->kv_len;
    for (int i = r; i < r + count; ++i) {
      if (keys_[i].end > 0) begin = HWY_MIN(begin, int64_t{keys_[i].begin});
    }
    return begin;
  }
  int64_t SeenEnd(int r, int count) const {
    int64_t end = 0;
    for (int i = r; i < r + count; ++i) {
      end = HWY_MAX(end, int64_t{keys_[i].end});
    }
    return end;
  }
  bool SkipsTile() const {
    if (params_.mask == nullptr) return false;
    const int64_t first = Query(0);
    return !SeesAny(*params_.mask, task_.sequence->q_begin + first,
                    Query(task_.num_rows - 1) + 1 - first, tile_,
                    tile_ + shape_.keys);
  }

  void LoadQueries() {
    std::memset(weights_, 0, sizeof(weights_));
    std::memset(hidden_, 0, sizeof(hidden_));
    std::memset(values_, 0,
                sizeof(float) *
                    static_cast<size_t>(task_.num_rows * shape_.value_padded));
    for (int r = 0; r < task_.num_rows; ++r) {
      const float* q =
          params_.q.row<float>(task_.sequence->q_begin + Query(r)) +
          int64_t{Head(r)} * shape_.dim;
      WidenRow(q, static_cast<size_t>(shape_.dim), queries_ + r * shape_.padded,
               static_cast<size_t>(shape_.padded));
      keys_[r] = KeysOfQuery(desc_, params_, *task_.sequence, Query(r));
      max_[r] = -kInfinity;
      sum_[r] = 0.0f;
    }
  }

  // Points rows_ at the tile's keys or values as float32, and asks for what is
  // wanted next: the values of the tile, or the keys of the tile after it.
  // Blocks lie anywhere, so that the processor cannot foresee them. Positions
  // outside [first_, last_) repeat a neighbour; their scores are masked.
  template <DType kKv, bool kValues>
  HWY_NOINLINE void LoadTile(int64_t end) {
    const KvLayerView& kv = params_.kv;
    const int head = task_.kv_head;
    const size_t row_bytes = KvRowBytes(kKv, shape_.dim);
    // Many rows read a tile often enough to pay for gathering it.
    const bool direct = kKv == DType::kF32 && shape_.dim == shape_.padded &&
                        task_.num_rows <= 8;
    const bool keys_next = kValues || shape_.values_in_keys;
    const int64_t distance = keys_next ? shape_.keys - first_ : 0;
    KeyCursor here(task_, kv, tile_ + first_);
    KeyCursor ahead(task_, kv, tile_ + first_ + distance);
    for (int t = first_; t < last_; ++t, here.Next(), ahead.Next()) {
      if (tile_ + t + distance < end) {
        PrefetchRow(keys_next ? kv.KeyRow(ahead.block(), head, ahead.slot())
                              : kv.ValueRow(ahead.block(), head, ahead.slot()),
                    row_bytes);
      }
      const std::byte* row = kValues
                                 ? kv.ValueRow(here.block(), head, here.slot())
                                 : kv.KeyRow(here.block(), head, here.slot());
      if (direct) {
        rows_[t] = reinterpret_cast<const float*>(row);
        continue;
      }
      float* wide = tile_floats_ + t * shape_.padded;
      WidenKvRow<kKv>(row, static_cast<size_t>(shape_.dim), wide,
                      static_cast<size_t>(shape_.padded));
      rows_[t] = wide;
    }
    for (int t = 0; t < first_; ++t) rows_[t] = rows_[first_];
    for (int t = last_; t < shape_.keys; ++t) rows_[t] = rows_[last_ - 1];
  }

  template <bool kValues>
  HWY_INLINE void LoadTileOf(int64_t end) {
    switch (desc_.kv) {
      case DType::kF16:
        return LoadTile<DType::kF16, kValues>(end);
      case DType::kBF16:
        return LoadTile<DType::kBF16, kValues>(end);
      case DType::kI8:
        return LoadTile<DType::kI8, kValues>(end);
      case DType::kF8E4M3:
        return LoadTile<DType::kF8E4M3, kValues>(end);
      case DType::kKvQ4:
        return LoadTile<DType::kKvQ4, kValues>(end);
      default:
        return LoadTile<DType::kF32, kValues>(end);
    }
  }
  void LoadKeys(int64_t end) { LoadTileOf<false>(end); }
  void LoadValues(int64_t end) { LoadTileOf<true>(end); }

  static HWY_INLINE void PrefetchRow(const std::byte* row, size_t bytes) {
    for (size_t i = 0; i < bytes; i += 64) hwy::Prefetch(row + i);
  }

  struct Dots {
    VF k0, k1, k2, k3;
    HWY_INLINE void Clear() { k0 = k1 = k2 = k3 = hn::Zero(DF()); }
  };

  // weights_[r .. r + kRows][t .. t + 4) = q . k
  template <int kRows>
  HWY_INLINE void ScoreTile(int r, int t) {
    const DF d;
    const float* q0 = queries_ + r * shape_.padded;
    const float* q1 = q0 + (kRows > 1 ? shape_.padded : 0);
    const float* q2 = q0 + (kRows > 2 ? 2 * shape_.padded : 0);
    const float* k0 = rows_[t];
    const float* k1 = rows_[t + 1];
    const float* k2 = rows_[t + 2];
    const float* k3 = rows_[t + 3];
    Dots a, b, c;
    a.Clear();
    b.Clear();
    c.Clear();
    const auto fma = [&](VF x0, VF x1, VF x2, VF key, VF& ka, VF& kb, VF& kc)
                         HWY_ATTR {
                           ka = hn::MulAdd(x0, key, ka);
                           if constexpr (kRows > 1)
                             kb = hn::MulAdd(x1, key, kb);
                           if constexpr (kRows > 2)
                             kc = hn::MulAdd(x2, key, kc);
                         };
    for (int i = 0; i < shape_.padded; i += static_cast<int>(kLanes)) {
      const VF x0 = hn::Load(d, q0 + i);
      const VF x1 = kRows > 1 ? hn::Load(d, q1 + i) : x0;
      const VF x2 = kRows > 2 ? hn::Load(d, q2 + i) : x0;
      fma(x0, x1, x2, hn::LoadU(d, k0 + i), a.k0, b.k0, c.k0);
      fma(x0, x1, x2, hn::LoadU(d, k1 + i), a.k1, b.k1, c.k1);
      fma(x0, x1, x2, hn::LoadU(d, k2 + i), a.k2, b.k2, c.k2);
      fma(x0, x1, x2, hn::LoadU(d, k3 + i), a.k3, b.k3, c.k3);
    }
    float* to = weights_ + r * kMaxKeys + t;
    StoreSums4(a.k0, a.k1, a.k2, a.k3, to);
    if (kRows > 1) StoreSums4(b.k0, b.k1, b.k2, b.k3, to + kMaxKeys);
    if (kRows > 2) StoreSums4(c.k0, c.k1, c.k2, c.k3, to + 2 * kMaxKeys);
  }

  HWY_NOINLINE void Scores() {
    const int begin = first_ / 4 * 4;
    int r = 0;
    while (r < task_.num_rows) {
      const int rest = task_.num_rows - r;
      // Four are two twos, better than three and one.
      if (rest == 3 || rest > 4) {
        for (int t = begin; t < last_; t += 4) ScoreTile<3>(r, t);
        r += 3;
      } else if (rest >= 2) {
        for (int t = begin; t < last_; t += 4) ScoreTile<2>(r, t);
        r += 2;
      } else {
        for (int t = begin; t < last_; t += 4) ScoreTile<1>(r, t);
        r += 1;
      }
    }
  }

  // As Scores(), with what relative rows add. Every head has keys of its own,
  // so that rows are queries.
  HWY_NOINLINE void RelativeScores() {
    const RelativeTiles tiles(relative_, Head(0), shape_.dim, shape_.padded);
    const int64_t first =
        task_.sequence->kv_len - task_.sequence->q_len + Query(0) - tile_;
    const int begin = first_ / 4 * 4;
    for (int r = 0; r < task_.num_rows; r += 2) {
      const bool two = r + 2 <= task_.num_rows;
      for (int t = begin; t < last_; t += 4) {
        tiles.Run(two, first + r - t, queries_ + r * shape_.padded, rows_ + t,
                  weights_ + r * kMaxKeys + t);
      }
    }
  }

  // Turns a row's scores into weights relative to the new maximum and brings
  // what it has so far to that maximum.
  HWY_NOINLINE void Softmax(int r) {
    const DF d;
    float* weights = weights_ + r * kMaxKeys;
    const int64_t first = HWY_MAX(keys_[r].begin - tile_, int64_t{0});
    const int64_t last = HWY_MIN(keys_[r].end - tile_, int64_t{shape_.keys});
    bool bits = keys_[r].bits >= 0;
    // Blocks of bits are powers of two, as tiles are: none that is as large
    // begins or ends inside a tile.
    if (bits && (int64_t{1} << keys_[r].key_shift) >= shape_.keys) {
      if (!params_.mask->BitOf(keys_[r], tile_)) {
        std::memset(weights, 0, sizeof(float) * static_cast<size_t>(kMaxKeys));
        return;
      }
      bits = false;
    }
    const bool all_seen = first == 0 && last == shape_.keys && !bits;
    if (bits) FindHidden(r, first, last);
    const bool alibi = params_.alibi_slopes != nullptr;
    const VF slope = hn::Set(d, alibi ? params_.alibi_slopes[Head(r)] : 0.0f);
    const int64_t position =
        task_.sequence->kv_len - task_.sequence->q_len + Query(r);
    const VF begin = hn::Set(d, static_cast<float>(first));
    const VF end = hn::Set(d, static_cast<float>(last));
    const VF scale = hn::Set(d, desc_.scale);
    const VF cap = hn::Set(d, desc_.softcap);
    VF max = hn::Set(d, max_[r]);
    constexpr int kStep = static_cast<int>(kLanes);
    for (int t = 0; t < shape_.keys; t += kStep) {
      VF score = hn::Mul(hn::Load(d, weights + t), scale);
      if (desc_.softcap > 0.0f) {
        score = hn::Mul(cap, Tanh(hn::Div(score, cap)));
      }
      if (alibi) {
        const VF distance =
            hn::Iota(d, static_cast<float>(tile_ + t - position));
        score = hn::NegMulAdd(slope, hn::Abs(distance), score);
      }
      if (bias_.values != nullptr) {
        score = hn::Add(score, BiasOf(Head(r), tile_ + t - position));
      }
      if (!all_seen) {
        const VF key = hn::Iota(d, static_cast<float>(t));
        auto seen = hn::And(hn::Ge(key, begin), hn::Lt(key, end));
        if (bits) {
          seen = hn::And(seen, hn::Eq(hn::Load(d, hidden_ + t), hn::Zero(d)));
        }
        score = hn::IfThenElse(seen, score, hn::Set(d, -kInfinity));
      }
      hn::Store(score, d, weights + t);
      max = hn::Max(max, score);
    }
    const float new_max = hn::GetLane(hn::MaxOfLanes(d, max));
    // Nothing seen so far: any finite reference makes every weight 0.
    const float reference = new_max == -kInfinity ? 0.0f : new_max;
    const VF subtrahend = hn::Set(d, reference);
    VF sum = hn::Zero(d);
    for (int t = 0; t < shape_.keys; t += kStep) {
      const VF weight =
          ExpNonPositive(hn::Sub(hn::Load(d, weights + t), subtrahend));
      hn::Store(weight, d, weights + t);
      sum = hn::Add(sum, weight);
    }
    Rescale(r, reference);
    sum_[r] += hn::GetLane(hn::SumOfLanes(d, sum));
    max_[r] = new_max;
  }

  // Of the keys at [distance, distance + kLanes) from the query.
  HWY_INLINE VF BiasOf(int head, int64_t distance) const {
    const DF d;
    constexpr auto kStep = static_cast<int64_t>(kLanes);
    const int64_t reach = bias_.reach;
    const float* middle =
        bias_.values + int64_t{head} * (2 * reach + 1) + reach;
    if (distance >= reach) return hn::Set(d, middle[reach]);
    if (distance + kStep - 1 <= -reach) return hn::Set(d, middle[-reach]);
    if (distance >= -reach && distance + kStep - 1 <= reach) {
      return hn::LoadU(d, middle + distance);
    }
    HWY_ALIGN float lanes[kLanes];
    for (int64_t i = 0; i < kStep; ++i) {
      lanes[i] = middle[HWY_MIN(HWY_MAX(distance + i, -reach), reach)];
    }
    return hn::Load(d, lanes);
  }

  // Which of the tile's keys [first, last) row r's bits hide.
  void FindHidden(int r, int64_t first, int64_t last) {
    for (int64_t t = first; t < last; ++t) {
      hidden_[t] = params_.mask->BitOf(keys_[r], tile_ + t) ? 0.0f : 1.0f;
    }
  }

  // Multiplies row r's sum and values by e^(old maximum - reference).
  HWY_INLINE void Rescale(int r, float reference) {
    const DF d;
    const VF factor = ExpNonPositive(hn::Set(d, max_[r] - reference));
    const float scalar = hn::GetLane(factor);
    if (scalar == 1.0f) return;
    sum_[r] *= scalar;
    float* values = values_ + r * shape_.value_padded;
    for (int i = 0; i < shape_.value_padded; i += static_cast<int>(kLanes)) {
      hn::Store(hn::Mul(hn::Load(d, values + i), factor), d, values + i);
    }
  }

  // values_[r .. r + kRows][i .. i + 2 vectors) += weights x values over keys
  // [begin, end) of the tile.
  template <int kRows>
  HWY_INLINE void ValueTile(int r, int i, int begin, int end) {
    const DF d;
    const int second = i + static_cast<int>(kLanes);
    const int row = shape_.value_padded;
    float* to0 = values_ + r * row;
    float* to1 = to0 + (kRows > 1 ? row : 0);
    float* to2 = to0 + (kRows > 2 ? 2 * row : 0);
    float* to3 = to0 + (kRows > 3 ? 3 * row : 0);
    VF a0 = hn::Load(d, to0 + i), a1 = hn::Load(d, to0 + second);
    VF b0 = hn::Load(d, to1 + i), b1 = hn::Load(d, to1 + second);
    VF c0 = hn::Load(d, to2 + i), c1 = hn::Load(d, to2 + second);
    VF e0 = hn::Load(d, to3 + i), e1 = hn::Load(d, to3 + second);
    const float* weights = weights_ + r * kMaxKeys;
    for (int t = begin; t < end; ++t) {
      const VF v0 = hn::LoadU(d, rows_[t] + i);
      const VF v1 = hn::LoadU(d, rows_[t] + second);
      const VF wa = hn::Set(d, weights[t]);
      a0 = hn::MulAdd(wa, v0, a0);
      a1 = hn::MulAdd(wa, v1, a1);
      if constexpr (kRows > 1) {
        const VF wb = hn::Set(d, weights[t + kMaxKeys]);
        b0 = hn::MulAdd(wb, v0, b0);
        b1 = hn::MulAdd(wb, v1, b1);
      }
      if constexpr (kRows > 2) {
        const VF wc = hn::Set(d, weights[t + 2 * kMaxKeys]);
        c0 = hn::MulAdd(wc, v0, c0);
        c1 = hn::MulAdd(wc, v1, c1);
      }
      if constexpr (kRows > 3) {
        const VF we = hn::Set(d, weights[t + 3 * kMaxKeys]);
        e0 = hn::MulAdd(we, v0, e0);
        e1 = hn::MulAdd(we, v1, e1);
      }
    }
    const auto store = [&](float* to, VF low, VF high) HWY_ATTR {
      hn::Store(low, d, to + i);
      hn::Store(high, d, to + second);
    };
    store(to0, a0, a1);
    if constexpr (kRows > 1) store(to1, b0, b1);
    if constexpr (kRows > 2) store(to2, c0, c1);
    if constexpr (kRows > 3) store(to3, e0, e1);
  }

  template <int kRows>
  HWY_NOINLINE void ValueRows(int r) {
    // Keys that none of these rows sees need not be visited.
    const auto begin =
        static_cast<int>(HWY_MAX(SeenBegin(r, kRows) - tile_, int64_t{first_}));
    const auto end =
        static_cast<int>(HWY_MIN(SeenEnd(r, kRows) - tile_, int64_t{last_}));
    for (int i = 0; i < shape_.value_padded;
         i += 2 * static_cast<int>(kLanes)) {
      ValueTile<kRows>(r, i, begin, end);
    }
  }

  void AddValues() {
    int r = 0;
    for (; r + 4 <= task_.num_rows; r += 4) ValueRows<4>(r);
    switch (task_.num_rows - r) {
      case 3:
        return ValueRows<3>(r);
      case 2:
        return ValueRows<2>(r);
      case 1:
        return ValueRows<1>(r);
    }
  }

  void StoreOutput(int r) {
    const DF d;
    if (params_.sinks != nullptr) {
      // One more logit, without a value.
      const float sink = params_.sinks[Head(r)];
      const float reference = HWY_MAX(max_[r], sink);
      Rescale(r, reference);
      sum_[r] += hn::GetLane(ExpNonPositive(hn::Set(d, sink - reference)));
    }
    float* out = params_.out.row<float>(task_.sequence->q_begin + Query(r)) +
                 int64_t{Head(r)} * shape_.value_dim;
    // Of nothing: zeros.
    const VF sum = hn::Set(d, sum_[r] == 0.0f ? 1.0f : sum_[r]);
    for (int i = 0; i < shape_.value_dim; i += static_cast<int>(kLanes)) {
      const VF value =
          hn::Div(hn::Load(d, values_ + r * shape_.value_padded + i), sum);
      const int rest = shape_.value_dim - i;
      if (rest >= static_cast<int>(kLanes)) {
        hn::StoreU(value, d, out + i);
      } else {
        StoreTail(value, out + i, static_cast<size_t>(rest));
      }
    }
  }

  const AttentionDesc& desc_;
  const AttentionParams& params_;
  const ScoreBias& bias_;
  const RelativeRows& relative_;
  const Shape& shape_;
  const Task& task_;
  int64_t tile_ = 0;  // position of the tile's first key
  int first_ = 0;     // keys [first_, last_) of the tile are seen by some row
  int last_ = 0;
  const float* rows_[kMaxKeys];
  AttentionRowKeys keys_[kMaxRows];
  float max_[kMaxRows];
  float sum_[kMaxRows];
  HWY_ALIGN float queries_[kTaskFloats];
  HWY_ALIGN float values_[kTaskFloats];
  HWY_ALIGN float tile_floats_[kTaskFloats];
  HWY_ALIGN float weights_[kMaxRows * kMaxKeys];
  HWY_ALIGN float hidden_[kMaxKeys];
};

// Tasks in the order in which they are handed out: the dearest first, so that
// threads finish together. Within a sequence those are its last queries.
void RunTasks(const AttentionDesc& desc, const AttentionParams& params,
              const ScoreBias& bias, const RelativeRows& relative,
              const Shape& shape, int64_t begin, int64_t end) {
  int64_t base = 0;
  for (const AttentionSequence& sequence : params.sequences) {
    const RowCut cut(shape, sequence);
    const int64_t count = cut.tiles() * desc.num_kv_heads;
    for (int64_t i = HWY_MAX(begin - base, int64_t{0});
         i < HWY_MIN(end - base, count); ++i) {
      const int64_t tile = cut.tiles() - 1 - i / desc.num_kv_heads;
      const int64_t run = tile / cut.run_tiles;
      const int64_t row = tile % cut.run_tiles * shape.max_rows;
      Task task;
      task.sequence = &sequence;
      task.kv_head = static_cast<int>(i % desc.num_kv_heads);
      task.first_row = static_cast<int>(run * cut.run_rows + row);
      task.num_rows = static_cast<int>(
          HWY_MIN(cut.run_rows - row, int64_t{shape.max_rows}));
      task.select_block = desc.mix.block;
      task.selected = nullptr;
      if (shape.selects) {
        const int64_t row =
            (sequence.q_begin + run) * desc.num_kv_heads + task.kv_head;
        task.selected =
            params.selection + row * (desc.selects / desc.mix.block);
      }
      Runner(desc, params, bias, relative, shape, task).Run();
    }
    base += count;
    if (base >= end) return;
  }
}

}  // namespace attention

void RunAttention(const AttentionDesc& desc, const AttentionParams& params,
                  const ScoreBias& bias, const RelativeRows& relative,
                  ThreadPool& pool) {
  const attention::Shape shape(desc);
  int64_t tasks = 0;
  for (const AttentionSequence& sequence : params.sequences) {
    tasks += attention::RowCut(shape, sequence).tiles() * desc.num_kv_heads;
  }
  pool.ParallelFor(tasks, 1, [&](int64_t begin, int64_t end) HWY_ATTR {
    attention::RunTasks(desc, params, bias, relative, shape, begin, end);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace inlay
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace inlay {
HWY_EXPORT(RunAttention);

absl::Status RunAttentionCpuSimd(const AttentionDesc& desc,
                                 const AttentionParams& params,
                                 Stream& stream) {
  HWY_DYNAMIC_DISPATCH(RunAttention)
  (desc, params, ScoreBias(), RelativeRows(), *stream.thread_pool());
  return absl::OkStatus();
}

absl::Status RunBiasedAttentionCpuSimd(const AttentionDesc& desc,
                                       const BiasedAttentionParams& params,
                                       Stream& stream) {
  HWY_DYNAMIC_DISPATCH(RunAttention)
  (desc, params.attention, params.bias, RelativeRows(), *stream.thread_pool());
  return absl::OkStatus();
}

absl::Status RunDisentangledAttentionCpuSimd(
    const AttentionDesc& desc, const DisentangledAttentionParams& params,
    Stream& stream) {
  HWY_DYNAMIC_DISPATCH(RunAttention)
  (desc, params.attention, ScoreBias(), params.relative, *stream.thread_pool());
  return absl::OkStatus();
}

}  // namespace inlay
#endif  // HWY_ONCE
