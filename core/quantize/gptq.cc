#include "core/quantize/gptq.h"

#include <algorithm>

#include "kernels/quant/quant.h"
#include "memory/device/thread_pool.h"
#include "memory/status.h"

namespace inlay {
namespace {

// A multiple of every grid's block but the largest, which it is.
constexpr int64_t kBlockPlaces = 256;

}  // namespace

GptqEncoder::Block GptqEncoder::ReadBlock(int64_t first, int64_t size) const {
  Block block;
  block.first = first;
  block.size = size;
  block.feedback.resize(static_cast<size_t>(size * size));
  const TensorView feedback = factor_.Feedback(first, size, first + size);
  for (int64_t j = 0; j < size; ++j) {
    const float* row = feedback.row<const float>(j) + first;
    for (int64_t i = 0; i < j; ++i) {
      block.feedback[static_cast<size_t>(i * size + j)] = row[i];
    }
  }
  return block;
}

void GptqEncoder::FitRow(int64_t row) {
  const int64_t inputs = factor_.inputs();
  const float* weights = weights_ + row * inputs;
  GridScales* scales = scales_.data() + row * inputs / grid_.elements;
  if (scheme_ != nullptr) {
    FitGroups(*scheme_, weights, costs_by_input_.data(), inputs, scales);
    return;
  }
  grid_.fit(weights, costs_by_input_.data(), inputs / grid_.elements, scales);
}

// What would follow if the codes of the grid's block had no error of their own:
// not `targets`, which lack what each of these inputs does to the next.
void GptqEncoder::FitAhead(const Block& block, int64_t first,
                           const float* weights, const float* targets,
                           GridScales* scales) const {
  float ahead[kMaxBlockElements];
  std::copy(targets, targets + grid_.elements, ahead);
  for (int i = 0; i < grid_.elements; ++i) {
    const float error = weights[i] - ahead[i];
    const float* feedback =
        block.feedback.data() + (first + i) * block.size + first;
    for (int j = i + 1; j < grid_.elements; ++j) {
      ahead[j] += error * feedback[j];
    }
  }
  grid_.fit(ahead, factor_.costs().data() + block.first + first, /*blocks=*/1,
            scales);
}

void GptqEncoder::EncodeBlock(const Block& block, int64_t row, float* targets) {
  const int64_t inputs = factor_.inputs();
  const float* weights = weights_ + row * inputs;
  float* errors = errors_.data() + row * inputs + block.first;
  int8_t* levels = levels_.data() + row * inputs;
  GridScales* scales = scales_.data() + row * inputs / grid_.elements;
  for (int64_t c = 0; c < block.size; ++c) {
    const int64_t input = InputAt(block.first + c);
    const int64_t group = input / grid_.elements;
    const auto within = static_cast<int>(input % grid_.elements);
    if (!fits_first() && within == 0) {
      FitAhead(block, c, weights + input, targets + c, &scales[group]);
    }
    const int level = grid_.NearestLevel(scales[group], within, targets[c]);
    levels[input] = static_cast<int8_t>(level);
    const float error =
        weights[input] - grid_.Value(scales[group], within, level);
    errors[c] = error;
    const float* feedback = block.feedback.data() + c * block.size;
    for (int64_t j = c + 1; j < block.size; ++j) {
      targets[j] += error * feedback[j];
    }
  }
}

void GptqEncoder::PackRow(int64_t row, std::byte* encoded) const {
  const int64_t blocks = factor_.inputs() / grid_.elements;
  for (int64_t b = 0; b < blocks; ++b) {
    const int64_t block = row * blocks + b;
    grid_.pack(scales_[static_cast<size_t>(block)],
               levels_.data() + block * grid_.elements,
               encoded + block * grid_.block_bytes);
  }
}

absl::Status GptqEncoder::Encode(const float* weights, int64_t rows,
                                 std::byte* encoded, Stream& stream) {
  const int64_t inputs = factor_.inputs();
  ThreadPool& pool = *stream.thread_pool();
  // Here: threads of the pool must not fail.
  weights_ = weights;
  errors_.resize(static_cast<size_t>(rows * inputs));
  levels_.resize(errors_.size());
  scales_.resize(errors_.size() / static_cast<size_t>(grid_.elements));
  std::vector<float> targets(static_cast<size_t>(rows * kBlockPlaces));
  if (fits_first()) {
    costs_by_input_.resize(static_cast<size_t>(inputs));
    for (int64_t p = 0; p < inputs; ++p) {
      costs_by_input_[static_cast<size_t>(InputAt(p))] =
          factor_.costs()[static_cast<size_t>(p)];
    }
    pool.ParallelFor(rows, 1, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) FitRow(row);
    });
  }
  for (int64_t first = 0; first < inputs; first += kBlockPlaces) {
    const int64_t size = std::min(kBlockPlaces, inputs - first);
    const TensorView view = FloatView(targets.data(), rows, size, kBlockPlaces);
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t c = 0; c < size; ++c) {
        view.row<float>(row)[c] = weights[row * inputs + InputAt(first + c)];
      }
    }
    if (first > 0) {
      INLAY_RETURN_IF_ERROR(MultiplyF32(
          FloatView(errors_.data(), rows, first, inputs),
          factor_.Feedback(first, size, first), view, view, stream));
    }
    const Block block = ReadBlock(first, size);
    pool.ParallelFor(rows, 1, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        EncodeBlock(block, row, view.row<float>(row));
      }
    });
  }
  pool.ParallelFor(rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) PackRow(row, encoded);
  });
  return absl::OkStatus();
}

}  // namespace inlay
