// sample on the host: a task a row.
#include "kernels/sample/sample_cpu.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "kernels/sample/philox.h"
#include "kernels/sample/sample_math.h"
#include "kernels/sample/truncation.h"
#include "memory/device/thread_pool.h"

namespace inlay {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

int32_t Draw(const SampleOptions& options, const LogitBlocks& blocks,
             absl::Span<float> logits) {
  const WeightScale scale = {blocks.max,
                             InverseTemperature(options.temperature)};
  const WeightFilter filter = Truncate(options, scale, blocks, logits);
  std::vector<uint64_t> masses;
  const uint64_t total = MassOf(logits, blocks, scale, filter, &masses);
  // Below the total, so that the walk ends at a token.
  const uint64_t target =
      ScaleDraw(DrawBits(options.seed, options.index), total);
  size_t b = 0;
  uint64_t before = 0;
  while (before + masses[b] <= target) before += masses[b++];
  const size_t first = b * kLogitBlock;
  const auto count = std::min<size_t>(kLogitBlock, logits.size() - first);
  float weights[kLogitBlock];
  FilteredWeights(&logits[first], static_cast<int64_t>(count), scale, filter,
                  weights);
  size_t i = 0;
  while ((before += FixedWeight(weights[i])) <= target) ++i;
  return static_cast<int32_t>(first + i);
}

int32_t SampleOne(const SampleParams& params, int64_t row) {
  const SampleOptions& options = params.options[row];
  if (options.temperature < 0) return kSampleLeftOut;
  const auto logits = absl::MakeSpan(params.logits.row<float>(row),
                                     static_cast<size_t>(params.logits.cols()));
  LogitBlocks blocks = ScanLogits(logits);
  if (!blocks.valid || blocks.max == -kInf) return kSampleNotFinite;
  const bool masked = options.first_mask_word >= 0;
  if (masked) {
    MaskLogits(
        {params.masks + options.first_mask_word, (logits.size() + 31) / 32},
        logits);
  }
  ApplyEdits(options,
             {params.edits + options.first_edit,
              static_cast<size_t>(options.num_edits)},
             logits);
  if (masked || options.num_edits > 0) blocks = ScanLogits(logits);
  if (blocks.max == -kInf) return kSampleNothingLeft;
  return ChooseToken(options, blocks, logits);
}

}  // namespace

void MaskLogits(absl::Span<const uint32_t> allowed, absl::Span<float> logits) {
  for (size_t word = 0; word < allowed.size(); ++word) {
    if (allowed[word] == ~uint32_t{0}) continue;
    const size_t first = word * 32;
    const size_t count = std::min<size_t>(32, logits.size() - first);
    for (size_t bit = 0; bit < count; ++bit) {
      if ((allowed[word] >> bit & 1) == 0) logits[first + bit] = -kInf;
    }
  }
}

void ApplyEdits(const SampleOptions& options, absl::Span<const LogitEdit> edits,
                absl::Span<float> logits) {
  for (const LogitEdit& edit : edits) {
    float& logit = logits[static_cast<size_t>(edit.token)];
    logit = EditedLogit(logit, edit, options);
  }
}

int32_t ChooseToken(const SampleOptions& options, const LogitBlocks& blocks,
                    absl::Span<float> logits) {
  return options.temperature == 0 ? ArgMax(logits, blocks)
                                  : Draw(options, blocks, logits);
}

absl::Status RunSampleCpu(const SampleDesc&, const SampleParams& params,
                          Stream& stream) {
  stream.thread_pool()->ParallelFor(
      params.logits.rows(), 1, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
          params.tokens[row] = SampleOne(params, row);
        }
      });
  return absl::OkStatus();
}

}  // namespace inlay
