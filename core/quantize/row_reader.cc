#include "core/quantize/row_reader.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "core/formats/stored_tensor.h"
#include "kernels/cpu_float.h"
#include "kernels/quant/quant.h"
#include "kernels/quant/row_floats.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr int64_t kDecodeGrain = 4096;

absl::Status CheckDType(const WeightInfo& info, bool transposed) {
  if (IsPlainFloat(info.dtype)) return absl::OkStatus();
  if (FindBlockCodec(info.dtype) != nullptr && info.shape.size() == 2 &&
      !transposed) {
    return absl::OkStatus();
  }
  return absl::UnimplementedError(FormattedString(
      "tensor \"%s\" is stored as %s%s, allowed: f32, f16, bf16 and block "
      "formats of matrices by rows",
      info.name, DTypeName(info.dtype), transposed ? ", transposed" : ""));
}

// Rows and columns: a vector's rows have one element; dimensions of 1 between
// the first and the last, and before those, do not count.
absl::StatusOr<std::pair<int64_t, int64_t>> MatrixShape(const WeightInfo& info,
                                                        GgufLayout layout) {
  const std::vector<int64_t>& shape = info.shape;
  if (shape.size() == 1) return std::pair{shape[0], int64_t{1}};
  if (shape.size() == 2) return std::pair{shape[0], shape[1]};
  if (layout == GgufLayout::kTaps && shape.size() == 3 && shape[1] == 1) {
    return std::pair{shape[0], shape[2]};
  }
  int64_t elements = 1, longest = 1;
  for (const int64_t size : shape) {
    elements *= size;
    longest = std::max(longest, size);
  }
  if (elements == longest) {
    return std::pair{elements, int64_t{1}};
  }
  return absl::UnimplementedError(
      FormattedString("tensor \"%s\" has %d dimensions, allowed: 1 and 2",
                      info.name, shape.size()));
}

}  // namespace

absl::StatusOr<RowReader> RowReader::Create(const WeightSource& source,
                                            const WeightInfo& info,
                                            GgufLayout layout,
                                            const GgufHeads& heads,
                                            ThreadPool& pool) {
  RowLayout rows;
  rows.parts = {&info};
  rows.layout = layout;
  return Create(source, rows, heads, pool);
}

absl::StatusOr<RowReader> RowReader::Create(const WeightSource& source,
                                            const RowLayout& layout,
                                            const GgufHeads& heads,
                                            ThreadPool& pool) {
  RowReader reader(source, pool);
  reader.layout_ = layout.layout;
  reader.turned_rows_ = layout.turned_rows;
  reader.transposed_ = layout.layout == GgufLayout::kTransposed &&
                       !layout.parts.front()->rows_are_outputs;
  for (const WeightInfo* info : layout.parts) {
    INLAY_RETURN_IF_ERROR(reader.AddPart(*info, layout.columns));
  }
  INLAY_RETURN_IF_ERROR(reader.SetRuns(layout.runs, heads));
  if (reader.transposed_) {
    std::swap(reader.rows_, reader.row_elements_);
  } else if (reader.turned_rows_ > 0) {
    reader.row_elements_ = reader.turned_rows_;
    reader.rows_ = reader.rows_ / reader.turned_rows_ * reader.width_;
  }
  const DType dtype = layout.parts.front()->dtype;
  reader.rows_are_stored_ =
      reader.layout_ != GgufLayout::kPlusOne &&
      reader.layout_ != GgufLayout::kLogOfMinus && !reader.transposed_ &&
      reader.turned_rows_ == 0 &&
      std::all_of(reader.parts_.begin(), reader.parts_.end(),
                  [&](const Part& part) {
                    return part.columns.empty() && part.info->dtype == dtype;
                  }) &&
      std::all_of(reader.runs_.begin(), reader.runs_.end(),
                  [](const RowRun& run) { return run.factor == 1.0f; });
  return reader;
}

absl::Status RowReader::AddPart(const WeightInfo& info,
                                const std::vector<int32_t>& inputs) {
  INLAY_ASSIGN_OR_RETURN(const auto shape, MatrixShape(info, layout_));
  INLAY_RETURN_IF_ERROR(CheckDType(info, transposed_));
  const auto [rows, width] = shape;
  if (!parts_.empty() && width != width_) {
    return absl::InvalidArgumentError(FormattedString(
        "tensor \"%s\" has rows of %d elements, allowed: %d, as the others of "
        "one tensor of the file have",
        info.name, width, width_));
  }
  width_ = row_elements_ = width;
  Part& part = parts_.emplace_back();
  part.info = &info;
  part.row_bytes = RowBytes(info.dtype, width);
  part.mapped = source_->Mapped(info);
  rows_ += rows;
  return SetColumns(inputs, &part);
}

// Where a checkpoint has its columns sorted, and the file has an order of its
// own.
absl::Status RowReader::SetColumns(const std::vector<int32_t>& inputs,
                                   Part* part) const {
  constexpr std::string_view kSuffix = ".weight";
  const WeightInfo& info = *part->info;
  part->columns = inputs;
  const WeightInfo* permutation = nullptr;
  if (info.name.ends_with(kSuffix) && info.shape.size() == 2) {
    permutation =
        source_->Find(info.name.substr(0, info.name.size() - kSuffix.size()) +
                      ".input_permutation");
  }
  if (permutation == nullptr) return absl::OkStatus();
  INLAY_RETURN_IF_ERROR(CheckShape(*permutation, {width_}));
  INLAY_ASSIGN_OR_RETURN(const std::vector<int32_t> taken,
                         ReadInts(*source_, *permutation));
  std::vector<int32_t> stored(static_cast<size_t>(width_), -1);
  for (size_t i = 0; i < taken.size(); ++i) {
    const int32_t input = taken[i];
    if (input >= 0 && input < width_ &&
        stored[static_cast<size_t>(input)] < 0) {
      stored[static_cast<size_t>(input)] = static_cast<int32_t>(i);
      continue;
    }
    return absl::InvalidArgumentError(FormattedString(
        "tensor \"%s\" has the index %d, allowed: each from 0 to %d once",
        permutation->name, input, width_ - 1));
  }
  part->columns = stored;
  for (size_t i = 0; i < inputs.size(); ++i) {
    part->columns[i] = stored[static_cast<size_t>(inputs[i])];
  }
  bool is_same = true;
  for (size_t i = 0; i < part->columns.size(); ++i) {
    is_same &= part->columns[i] == static_cast<int32_t>(i);
  }
  if (is_same) part->columns.clear();
  return absl::OkStatus();
}

absl::Status RowReader::SetRuns(std::vector<RowRun> runs,
                                const GgufHeads& heads) {
  const bool is_query = layout_ == GgufLayout::kQueryRows;
  if (is_query || layout_ == GgufLayout::kKeyRows) {
    const int64_t count = heads.head_dim > 0 ? rows_ / heads.head_dim
                          : is_query         ? heads.query
                                             : heads.key;
    INLAY_RETURN_IF_ERROR(SetHeadRuns(count));
  } else if (runs.empty()) {
    for (size_t i = 0; i < parts_.size(); ++i) {
      const auto bytes = parts_[i].info->bytes / parts_[i].row_bytes;
      runs_.push_back({i, 0, static_cast<int64_t>(bytes)});
    }
  } else {
    runs_ = std::move(runs);
  }
  rows_ = 0;
  for (const RowRun& run : runs_) {
    const WeightInfo& info = *parts_[run.part].info;
    const auto rows =
        static_cast<int64_t>(info.bytes / parts_[run.part].row_bytes);
    if (run.first < 0 || run.count < 0 || run.count > rows - run.first) {
      return absl::InvalidArgumentError(
          FormattedString("tensor \"%s\" has %d rows, allowed: at least %d",
                          info.name, rows, run.first + run.count));
    }
    starts_.push_back(rows_);
    rows_ += run.count;
  }
  return absl::OkStatus();
}

// The rows of the two rotary halves take turns.
absl::Status RowReader::SetHeadRuns(int64_t heads) {
  if (heads < 1 || rows_ % (2 * heads) != 0) {
    return absl::InvalidArgumentError(FormattedString(
        "tensor \"%s\" has %d rows, allowed: a multiple of twice the %d heads",
        parts_.front().info->name, rows_, heads));
  }
  const int64_t head = rows_ / heads;
  for (int64_t row = 0; row < rows_; ++row) {
    const int64_t in_head = row % head;
    runs_.push_back(
        {0, row - in_head + in_head / 2 + (in_head % 2) * (head / 2), 1});
  }
  return absl::OkStatus();
}

RowReader RowReader::OfPart(size_t part) const {
  RowReader one = *this;
  one.runs_.clear();
  one.starts_.clear();
  one.rows_ = 0;
  for (const RowRun& run : runs_) {
    if (run.part != part) continue;
    one.starts_.push_back(one.rows_);
    one.runs_.push_back(run);
    one.rows_ += run.count;
  }
  return one;
}

const RowRun& RowReader::RunOf(int64_t row) const {
  const auto next = std::upper_bound(starts_.begin(), starts_.end(), row);
  return runs_[static_cast<size_t>(next - starts_.begin()) - 1];
}

int64_t RowReader::SourceRow(int64_t row) const {
  const RowRun& run = RunOf(row);
  return run.first + row - starts_[static_cast<size_t>(&run - runs_.data())];
}

// take(run, its row to begin with, how many, the row among those asked for).
template <typename Take>
absl::Status RowReader::ForRuns(int64_t first, int64_t count, Take take) const {
  for (int64_t done = 0; done < count;) {
    const RowRun& run = RunOf(first + done);
    const int64_t within =
        first + done - starts_[static_cast<size_t>(&run - runs_.data())];
    const int64_t rows = std::min(count - done, run.count - within);
    INLAY_RETURN_IF_ERROR(take(run, run.first + within, rows, done));
    done += rows;
  }
  return absl::OkStatus();
}

absl::Status RowReader::ReadStored(int64_t first, int64_t count,
                                   std::byte* rows) const {
  return ForRuns(
      first, count,
      [&](const RowRun& run, int64_t row, int64_t n, int64_t done) {
        const Part& part = parts_[run.part];
        return source_->Read(
            *part.info, static_cast<uint64_t>(row) * part.row_bytes,
            absl::MakeSpan(rows + static_cast<uint64_t>(done) * part.row_bytes,
                           static_cast<uint64_t>(n) * part.row_bytes));
      });
}

absl::Status RowReader::ReadTransposed(int64_t first, int64_t count,
                                       float* rows) {
  strip_.resize(static_cast<size_t>(row_elements_ * count));
  INLAY_RETURN_IF_ERROR(ReadFloats(*source_, *parts_.front().info, 0,
                                   row_elements_, first, count, strip_.data()));
  pool_->ParallelFor(count, 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      for (int64_t i = 0; i < row_elements_; ++i) {
        rows[row * row_elements_ + i] =
            strip_[static_cast<size_t>(i * count + row)];
      }
    }
  });
  return absl::OkStatus();
}

void RowReader::Finish(float factor, int64_t count, float* values) const {
  if (layout_ == GgufLayout::kPlusOne) {
    for (int64_t i = 0; i < count; ++i) values[i] += 1.0f;
  } else if (layout_ == GgufLayout::kLogOfMinus) {
    for (int64_t i = 0; i < count; ++i) values[i] = -std::exp(values[i]);
  }
  if (factor == 1.0f) return;
  for (int64_t i = 0; i < count; ++i) values[i] *= factor;
}

bool RowReader::holds_rows() const {
  return !transposed_ && turned_rows_ == 0 &&
         std::all_of(parts_.begin(), parts_.end(),
                     [](const Part& part) { return part.columns.empty(); });
}

absl::Status RowReader::Hold(int64_t first, int64_t count) {
  // All memory is taken here: threads of the pool must not fail.
  held_.resize(static_cast<size_t>(count));
  uint64_t pitch = 0;
  for (const Part& part : parts_) {
    if (part.mapped == nullptr) pitch = std::max(pitch, part.row_bytes);
  }
  stored_.resize(static_cast<uint64_t>(count) * pitch);
  return ForRuns(
      first, count,
      [&](const RowRun& run, int64_t row, int64_t n, int64_t done) {
        const Part& part = parts_[run.part];
        const uint64_t offset = static_cast<uint64_t>(row) * part.row_bytes;
        const uint64_t bytes = static_cast<uint64_t>(n) * part.row_bytes;
        std::byte* read = stored_.data() + static_cast<uint64_t>(done) * pitch;
        if (part.mapped == nullptr) {
          INLAY_RETURN_IF_ERROR(
              source_->Read(*part.info, offset, absl::MakeSpan(read, bytes)));
        }
        const std::byte* at =
            part.mapped != nullptr ? part.mapped + offset : read;
        for (int64_t i = 0; i < n; ++i, at += part.row_bytes) {
          held_[static_cast<size_t>(done + i)] = {at, &run};
        }
        return absl::OkStatus();
      });
}

void RowReader::WidenHeld(int64_t row, int64_t begin, int64_t count,
                          float* values) const {
  const HeldRow& held = held_[static_cast<size_t>(row)];
  const DType dtype = parts_[held.run->part].info->dtype;
  const std::byte* at = held.at + RowBytes(dtype, static_cast<size_t>(begin));
  const BlockCodec* codec = FindBlockCodec(dtype);
  if (codec != nullptr) {
    codec->decode(at, count / GetFormatInfo(dtype).block_elements, values);
  } else {
    WidenFloats(dtype, at, count, values);
  }
  Finish(held.run->factor, count, values);
}

absl::Status RowReader::ReadStraight(int64_t first, int64_t count,
                                     float* rows) {
  const bool sorts =
      std::any_of(parts_.begin(), parts_.end(),
                  [](const Part& part) { return !part.columns.empty(); });
  if (sorts) sorted_.resize(static_cast<size_t>(count * width_));
  INLAY_RETURN_IF_ERROR(Hold(first, count));
  const int64_t grain =
      std::max<int64_t>(1, kDecodeGrain / std::max<int64_t>(width_, 1));
  pool_->ParallelFor(count, grain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      float* values = rows + row * width_;
      const RowRun& run = *held_[static_cast<size_t>(row)].run;
      const std::vector<int32_t>& columns = parts_[run.part].columns;
      if (columns.empty()) {
        WidenHeld(row, 0, width_, values);
        continue;
      }
      float* sorted = sorted_.data() + row * width_;
      WidenHeld(row, 0, width_, sorted);
      for (size_t i = 0; i < columns.size(); ++i) {
        values[i] = sorted[columns[i]];
      }
    }
  });
  return absl::OkStatus();
}

// Groups of turned_rows_ rows of width_ come as width_ rows of turned_rows_.
absl::Status RowReader::ReadTurned(int64_t first, int64_t count, float* rows) {
  std::vector<float>& group = strip_;
  group.resize(static_cast<size_t>(turned_rows_ * width_));
  for (int64_t done = 0; done < count;) {
    const int64_t which = (first + done) / width_;
    const int64_t column = (first + done) % width_;
    const int64_t n = std::min(count - done, width_ - column);
    INLAY_RETURN_IF_ERROR(
        ReadStraight(which * turned_rows_, turned_rows_, group.data()));
    pool_->ParallelFor(n, 16, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        float* to = rows + (done + row) * turned_rows_;
        for (int64_t i = 0; i < turned_rows_; ++i) {
          to[i] = group[static_cast<size_t>(i * width_ + column + row)];
        }
      }
    });
    done += n;
  }
  return absl::OkStatus();
}

absl::Status RowReader::Read(int64_t first, int64_t count, float* rows) {
  if (transposed_) return ReadTransposed(first, count, rows);
  return turned_rows_ > 0 ? ReadTurned(first, count, rows)
                          : ReadStraight(first, count, rows);
}

}  // namespace inlay
