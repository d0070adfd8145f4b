// block_selection: one layer of Llama-3-8B's heads, a decode step: attention
// over all keys, the selection of blocks by each method, attention over what is
// selected. In graphs; each call has a cache of its own that is in no cache of
// the device.
#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/attention/attention_plan.h"
#include "kernels/block_selection/block_selection.h"
#include "kernels/block_selection/block_summary.h"
#include "memory/status.h"
#include "tests/bench/cuda/bench_cuda.h"
#include "tests/bench/cuda/cuda_graph.h"

namespace inlay::bench {
namespace {

constexpr int kHeads = 32;
constexpr int kKvHeads = 8;
constexpr int kHeadDim = 128;
constexpr int kBlockSize = 16;
// What calls one after another select, all of it read once, is more than the
// level-2 cache holds.
constexpr double kBytesOfAllCalls = 200e6;

struct Case {
  int batch;
  int keys;
  BlockMethod method;
  int tokens;  // selected
  DType kv = DType::kBF16;
};

template <typename Desc, typename Params>
const KernelRow<Desc, Params>& RowFor(
    const char* op, absl::Span<const KernelRow<Desc, Params>> table,
    const Desc& desc, const Bench& bench) {
  DeviceInfo info;
  info.kind = DeviceKind::kCuda;
  info.sm = bench.stream.sm();
  const auto row = Select(op, table, desc, info);
  Require(row.status());
  return **row;
}

AttentionDesc DescOf(const Case& c) {
  AttentionDesc desc;
  desc.num_heads = kHeads;
  desc.num_kv_heads = kKvHeads;
  desc.head_dim = kHeadDim;
  desc.activation = DType::kBF16;
  desc.kv = c.kv;
  desc.scale = 1.0f / std::sqrt(static_cast<float>(kHeadDim));
  return desc;
}

// Device memory with what is on the host.
std::unique_ptr<DeviceMemory> Upload(const std::byte* from, size_t bytes) {
  auto memory = std::make_unique<DeviceMemory>(bytes);
  Require(cudaMemcpy(memory->data(), from, bytes, cudaMemcpyHostToDevice));
  return memory;
}

class Attend {
 public:
  Attend(const Bench& bench, const AttentionDesc& desc, int batch)
      : bench_(bench),
        desc_(desc),
        row_(RowFor("attention", AttentionTable(), desc, bench)),
        out_(static_cast<size_t>(batch) * kHeads * kHeadDim * 2) {}

  void AddPlan(absl::Span<const AttentionSequence> sequences) {
    AttentionPlanShape shape = MakeAttentionPlanShape(row_, desc_, kBlockSize,
                                                      bench_.stream.num_sms());
    shape.prefix_units = 0;
    const AttentionPlanLimits limits = AttentionPlanLimitsOf(shape, sequences);
    std::vector<std::byte> image(LayOutAttentionPlan(shape, limits).bytes);
    AttentionPlan plan =
        BuildAttentionPlan(shape, limits, sequences, image.data());
    images_.push_back(Upload(image.data(), plan.used_bytes));
    plan.device = images_.back()->data();
    plans_.push_back(plan);
    if (workspace_ != nullptr) return;
    workspace_ = std::make_unique<DeviceMemory>(
        AttentionWorkspaceBytes(shape, limits.sequences, limits.tokens));
  }

  absl::Status Run(int call, const TensorView& q, const KvLayerView& kv,
                   const int32_t* selection) {
    AttentionParams params;
    params.q = q;
    params.out = MatrixView(out_.data(), q.dtype, q.rows(), kHeads * kHeadDim);
    params.kv = kv;
    params.selection = selection;
    params.workspace = workspace_->data();
    params.plan = &plans_[static_cast<size_t>(call) % plans_.size()];
    return row_.run(desc_, params, bench_.stream);
  }

 private:
  const Bench& bench_;
  AttentionDesc desc_;
  const AttentionRow& row_;
  DeviceMemory out_;
  std::vector<std::unique_ptr<DeviceMemory>> images_;
  std::vector<AttentionPlan> plans_;
  std::unique_ptr<DeviceMemory> workspace_;
};

// As many caches as it takes, and what the kernels need of each.
class Selecting {
 public:
  Selecting(const Bench& bench, const Case& c)
      : bench_(bench),
        case_(c),
        sets_(Sets(c)),
        blocks_(c.batch * (c.keys / kBlockSize)),
        layout_({{kKvHeads, kHeadDim},
                 BlockSummaryShape(c.method, {kKvHeads, kHeadDim}, c.kv)},
                c.kv, kBlockSize),
        cache_(layout_.block_bytes() * static_cast<size_t>(sets_ * blocks_)),
        q_(static_cast<size_t>(c.batch) * kHeads * kHeadDim * 2),
        desc_(Desc(c)),
        row_(RowFor("block_selection", BlockSelectionTable(), desc_, bench)),
        workspace_(row_.workspace_bytes(desc_, c.batch)),
        selections_(static_cast<size_t>(sets_) * SelectionElements() *
                    sizeof(int32_t)),
        dense_(bench, DescOf(c), c.batch),
        sparse_(bench, SparseDesc(c), c.batch) {
    // Numbers that are finite however they are read.
    cache_.Randomize(DType::kBF16, 1);
    q_.Randomize(DType::kBF16, 2);
    std::vector<int32_t> ids(static_cast<size_t>(sets_ * blocks_));
    std::iota(ids.begin(), ids.end(), 0);
    std::mt19937 rng(3);
    std::shuffle(ids.begin(), ids.end(), rng);
    for (int set = 0; set < sets_; ++set) {
      std::vector<AttentionSequence> sequences;
      for (int s = 0; s < c.batch; ++s) {
        sequences.push_back({s, 1, c.keys,
                             &ids[static_cast<size_t>(
                                 set * blocks_ + s * (c.keys / kBlockSize))]});
      }
      AddSet(sequences);
    }
  }

  double Dense() {
    return GraphSeconds(bench_, Calls(), [&](int i) {
      return dense_.Run(i, Queries(), Keys(), nullptr);
    });
  }
  double Select() {
    return GraphSeconds(bench_, Calls(), [&](int i) { return SelectOnce(i); });
  }
  // Over what Select() has left.
  double Sparse() {
    return GraphSeconds(bench_, Calls(), [&](int i) {
      return sparse_.Run(i, Queries(), Keys(), SelectionOf(i));
    });
  }
  double Both() {
    return GraphSeconds(bench_, Calls(), [&](int i) {
      INLAY_RETURN_IF_ERROR(SelectOnce(i));
      return sparse_.Run(i, Queries(), Keys(), SelectionOf(i));
    });
  }
  double SummaryBytes() const {
    return 1.0 * case_.batch * (case_.keys / kSelectBlock) * kKvHeads *
           static_cast<double>(BlockSummaryBytes(case_.method, kHeadDim));
  }
  double SelectedBytes() const { return SelectedBytes(case_); }
  double AllBytes() const {
    return SelectedBytes() / case_.tokens * case_.keys;
  }

 private:
  static double SelectedBytes(const Case& c) {
    return 2.0 * c.batch * c.tokens * kKvHeads *
           static_cast<double>(KvRowBytes(c.kv, kHeadDim));
  }
  static int Sets(const Case& c) {
    return std::max(
        2, static_cast<int>(std::ceil(kBytesOfAllCalls / SelectedBytes(c))));
  }
  static BlockSelectionDesc Desc(const Case& c) {
    BlockSelectionDesc desc;
    desc.method = c.method;
    desc.num_heads = kHeads;
    desc.num_kv_heads = kKvHeads;
    desc.head_dim = kHeadDim;
    desc.num_blocks = c.tokens / kSelectBlock;
    desc.max_keys = 131072;
    desc.activation = DType::kBF16;
    return desc;
  }
  static AttentionDesc SparseDesc(const Case& c) {
    AttentionDesc desc = DescOf(c);
    desc.selects = c.tokens;
    desc.mix.block = kSelectBlock;
    return desc;
  }

  size_t SelectionElements() const {
    return static_cast<size_t>(case_.batch) * kKvHeads *
           static_cast<size_t>(case_.tokens / kSelectBlock);
  }
  int Calls() const { return std::max(sets_, 24); }
  int32_t* SelectionOf(int call) const {
    return reinterpret_cast<int32_t*>(selections_.data()) +
           static_cast<size_t>(call % sets_) * SelectionElements();
  }
  TensorView Queries() const {
    return MatrixView(q_.data(), DType::kBF16, case_.batch, kHeads * kHeadDim);
  }
  KvLayerView Keys() const { return layout_.LayerView(0, cache_.data()); }

  void AddSet(const std::vector<AttentionSequence>& sequences) {
    dense_.AddPlan(sequences);
    std::vector<AttentionSequence> queries(sequences.size());
    SplitIntoQueries(sequences, case_.tokens, queries.data(),
                     SparseDesc(case_).mix);
    sparse_.AddPlan(queries);
    std::vector<std::byte> image(IndexPlanBytes(case_.batch, blocks_));
    auto memory = std::make_unique<DeviceMemory>(image.size());
    plans_.push_back(BuildIndexPlan(sequences, kBlockSize, case_.batch,
                                    image.data(), memory->data()));
    Require(cudaMemcpy(memory->data(), image.data(), image.size(),
                       cudaMemcpyHostToDevice));
    images_.push_back(std::move(memory));
  }

  absl::Status SelectOnce(int call) {
    BlockSelectionParams params;
    params.q = Queries();
    params.summaries = layout_.LayerView(1, cache_.data());
    params.selection = SelectionOf(call);
    params.workspace = workspace_.data();
    params.plan = &plans_[static_cast<size_t>(call % sets_)];
    return row_.run(desc_, params, bench_.stream);
  }

  const Bench& bench_;
  const Case case_;
  int sets_;
  int blocks_;  // of a set
  KvLayout layout_;
  DeviceMemory cache_;
  DeviceMemory q_;
  BlockSelectionDesc desc_;
  const BlockSelectionRow& row_;
  DeviceMemory workspace_;
  DeviceMemory selections_;
  Attend dense_;
  Attend sparse_;
  std::vector<std::unique_ptr<DeviceMemory>> images_;
  std::vector<IndexPlan> plans_;
};

void Print(const Bench& bench, const Case& c) {
  Selecting run(bench, c);
  const double dense = run.Dense();
  const double select = run.Select();
  const double sparse = run.Sparse();
  const double both = run.Both();
  const BlockSelectionOptions options = {c.method, c.tokens};
  std::printf(
      "selection b %2d x %6d %s, %-11s: dense %7.1f us (%4.0f GB/s); select "
      "%6.1f us (%4.0f GB/s of summaries), attend %6.1f us (%4.0f GB/s); both "
      "%6.1f us, %5.2fx\n",
      c.batch, c.keys, DTypeName(c.kv).data(),
      FormatBlockSelection(options).c_str(), 1e6 * dense,
      1e-9 * run.AllBytes() / dense, 1e6 * select,
      1e-9 * run.SummaryBytes() / select, 1e6 * sparse,
      1e-9 * run.SelectedBytes() / sparse, 1e6 * both, dense / both);
}

// What a step pays that completes blocks, and one that does not.
void Summaries(const Bench& bench, BlockMethod method, int batch, bool whole) {
  const KvLayerShape keys = {kKvHeads, kHeadDim};
  const KvLayout layout({keys, BlockSummaryShape(method, keys, DType::kBF16)},
                        DType::kBF16, kBlockSize);
  DeviceMemory cache(layout.block_bytes() * static_cast<size_t>(batch));
  cache.Randomize(DType::kBF16, 1);
  BlockSummaryDesc desc;
  desc.method = method;
  desc.num_kv_heads = kKvHeads;
  desc.head_dim = kHeadDim;
  desc.kv = DType::kBF16;
  const BlockSummaryRow& row =
      RowFor("block_summary", BlockSummaryTable(), desc, bench);
  std::vector<int64_t> slots;
  for (int i = 0; i < batch; ++i) {
    slots.push_back(int64_t{i} * kBlockSize + (whole ? kBlockSize - 1 : 3));
  }
  const auto device = Upload(reinterpret_cast<const std::byte*>(slots.data()),
                             slots.size() * sizeof(int64_t));
  BlockSummaryParams params;
  params.keys = layout.LayerView(0, cache.data());
  params.summaries = layout.LayerView(1, cache.data());
  params.tokens = batch;
  params.slots = reinterpret_cast<const int64_t*>(device->data());
  const double seconds = GraphSeconds(
      bench, 32, [&](int) { return row.run(desc, params, bench.stream); });
  std::printf("summaries b %2d %s, method %d: %5.2f us\n", batch,
              whole ? "of whole blocks" : "of none        ",
              static_cast<int>(method), 1e6 * seconds);
}

}  // namespace

void BenchBlockSelection(Bench& bench) {
  if (!bench.Wants("block_selection")) return;
  constexpr BlockMethod kMethods[] = {BlockMethod::kBounds,
                                      BlockMethod::kKMeans, BlockMethod::kLsh};
  for (const BlockMethod method : kMethods) {
    for (const int batch : {1, 8}) {
      Summaries(bench, method, batch, false);
      Summaries(bench, method, batch, true);
    }
  }
  for (const int batch : {1, 8}) {
    for (const int keys : {16384, 65536, 131072}) {
      for (const BlockMethod method : kMethods) {
        for (const int tokens : {2048, 4096}) {
          Print(bench, {batch, keys, method, tokens});
        }
      }
    }
  }
  for (const DType kv : {DType::kI8, DType::kF8E4M3}) {
    Print(bench, {1, 131072, BlockMethod::kBounds, 2048, kv});
    Print(bench, {8, 131072, BlockMethod::kBounds, 2048, kv});
  }
}

}  // namespace inlay::bench
