// sample: the next token of each row of logits. Options are a row's own.
//
// Every row of the table chooses the same token, bit for bit: what decides is
// comparisons of float32 logits and sums of weights in fixed point
// (sample_math.h), which no order of summation changes.
//
// What a row does, in this order:
// 1. A logit that is NaN or +inf, or a row of -inf only: kSampleNotFinite.
// 2. The mask forbids tokens; then LogitEdits: bias, penalties, bans.
// 3. Temperature 0 takes the largest logit, the lowest id on ties.
// 4. Top-k, then top-p over what top-k left, then min-p. Each keeps a prefix of
//    "larger logit first, ties by lower id".
// 5. The draw: inverse CDF in ascending token id, with DrawBits(seed, index).
#ifndef INLAY_KERNELS_SAMPLE_SAMPLE_H_
#define INLAY_KERNELS_SAMPLE_SAMPLE_H_

#include <cstdint>

#include "kernels/dispatch.h"
#include "memory/tensor.h"

namespace inlay {

// Fixed-point sums of so many weights do not overflow (kMassBits).
inline constexpr int64_t kMostSampledVocab = int64_t{1} << 24;

// Options of a row; ranges as SamplingParams has them. Plain data: devices
// read it.
struct SampleOptions {
  float temperature = 0;  // 0: greedy; negative: the row is left out
  int32_t top_k = 0;      // 0: off
  float top_p = 1;        // 1: off
  float min_p = 0;        // 0: off
  float repetition_penalty = 1;
  float frequency_penalty = 0;
  float presence_penalty = 0;
  // The row's LogitEdits: [first_edit, first_edit + num_edits).
  int32_t first_edit = 0;
  int32_t num_edits = 0;
  // Where the row's mask begins in SampleParams::masks; -1: every token is
  // allowed.
  int32_t first_mask_word = -1;
  uint64_t seed = 0;
  uint64_t index = 0;  // of the draw
};
static_assert(sizeof(SampleOptions) == 56);

// What changes one token's logit x, in this order: x + bias; the repetition
// penalty if `generated` >= 0 (x / penalty where x > 0, else x * penalty), then
// frequency_penalty * generated and presence_penalty subtracted if `generated`
// > 0; the ban. A value above the largest float becomes it, after the bias and
// after the penalties.
struct LogitEdit {
  int32_t token = 0;  // in the vocabulary; at most one edit a token and row
  float bias = 0;     // finite
  int32_t generated = -1;  // times the token was generated; -1: not seen at all
  int32_t banned = 0;      // nonzero: never sampled
};

// Instead of a token.
inline constexpr int32_t kSampleNotFinite = -1;
inline constexpr int32_t kSampleNothingLeft = -2;  // after mask and edits
inline constexpr int32_t kSampleLeftOut = -3;

// What a cluster of blocks keeps in its shared memory.
inline constexpr int64_t kMostClusterVocab = int64_t{384} << 10;

struct SampleDesc {
  int64_t vocab = 0;  // at most kMostSampledVocab
};

struct SampleParams {
  TensorView logits;  // [rows, vocab] f32; scratch: edited in place
  const SampleOptions* options = nullptr;  // [rows]
  const LogitEdit* edits = nullptr;        // of all rows
  // Bit i % 32 of word i / 32 of a row's ceil(vocab / 32) words: 0 forbids
  // token i. Null where no row has a mask.
  const uint32_t* masks = nullptr;
  int32_t* tokens = nullptr;  // [rows]: the token or one of the codes above
};

// INVALID_ARGUMENT for shapes; options are looked at by run().
absl::Status ValidateSample(const SampleDesc& desc, const SampleParams& params);

using SampleRow = KernelRow<SampleDesc, SampleParams>;
absl::Span<const SampleRow> SampleTable();

}  // namespace inlay

#endif  // INLAY_KERNELS_SAMPLE_SAMPLE_H_
