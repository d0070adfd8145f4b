// TensorPass: a model's tensors on their way into a file, whatever its format:
// where they come from, what calibration and the method make of them, progress
// and the report. Knows no file formats.
#ifndef INLAY_CORE_QUANTIZE_TENSOR_PASS_H_
#define INLAY_CORE_QUANTIZE_TENSOR_PASS_H_

#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "core/quantize/file_tensors.h"
#include "core/quantize/given_importance.h"
#include "core/quantize/quantize.h"
#include "core/quantize/row_reader.h"
#include "core/quantize/row_writer.h"
#include "memory/device/device.h"

namespace inlay {

// Call in this order: Open, then set `to` of the report's tensors (and schemes)
// and count their elements, Calibrate, Write each, in order.
class TensorPass {
 public:
  // Both must outlive it.
  TensorPass(const ModelFiles& files, const QuantizeOptions& options)
      : files_(files), options_(options) {}

  // Checks the options of methods, plans the model; the report gets its tensors
  // by name, as the model asks for them.
  // `largest_inputs`: LargestInput is asked for, so methods that need no
  // calibration have one.
  absl::Status Open(bool largest_inputs = false);
  // What Open planned, and from now on the tensors of the file instead: the
  // report gets these.
  absl::Span<const ModelTensor> model_tensors() const { return tensors_; }
  void SetFileTensors(absl::Span<const FileTensor> files);
  // How tensor i is grouped, where that is not as its type says; must outlive
  // this.
  void SetScheme(size_t i, const GroupScheme* scheme) { schemes_[i] = scheme; }
  void CountElements(int64_t elements) {
    total_ += static_cast<uint64_t>(elements);
  }
  // Bytes that whoever writes the file takes besides, and how many rows its
  // methods encode as one at most.
  void Reserve(uint64_t bytes, int64_t rows_together = 1) {
    reserved_ = bytes;
    rows_together_ = rows_together;
  }
  // Errors of QuantizeOptions::memory_limit.
  absl::Status Calibrate();
  // `otherwise`: where the method has nothing for it; null: the encoder.
  absl::Status Write(size_t i, RowReader& reader, RowMethod* otherwise,
                     const RowWriter::Sink& sink);

  // Of the tensor that was written last: CalibratedLayers::LargestInput.
  float LargestInput() const { return method_->LargestInput(); }

  const WeightSource& source() const { return *source_; }
  const WeightInfo& info(size_t i) const { return *infos_[i]; }
  const DecoderSpec& spec() const { return spec_; }
  ThreadPool& pool() const { return *stream_->thread_pool(); }
  QuantizeReport& report() { return report_; }
  const QuantizeReport& report() const { return report_; }

 private:
  bool calibrates() const {
    return largest_inputs_ || options_.method != QuantizeMethod::kNearest;
  }
  absl::Status CheckMethod() const;
  absl::Status ReadGivenImportance();
  // That some layer's type is one that the method knows.
  absl::Status CheckTypes() const;
  bool Serves(QuantizeMethod method) const;
  absl::StatusOr<TokenSequences> Sequences() const;
  // What takes memory whatever the method: bands of rows, lists.
  uint64_t WritingBytes() const;
  absl::Status HasRoom(uint64_t needed) const;
  // Leaves the method what room there is.
  absl::Status ShareRoom(const Calibration& calibration);
  // One after another, so that the method knows which of the model's tensors
  // it has.
  absl::Status WriteGiven(size_t i, RowReader& reader, RowWriter* rows,
                          RowErrors* errors);
  absl::Status WriteParts(size_t i, RowReader& reader, RowMethod* otherwise,
                          RowWriter* rows, RowErrors* errors);
  bool Report() const;

  const ModelFiles& files_;
  const QuantizeOptions& options_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  std::shared_ptr<const WeightSource> source_;
  std::vector<ModelTensor> tensors_;
  std::vector<const WeightInfo*> infos_;  // as the report's tensors
  std::vector<const GroupScheme*> schemes_;
  std::vector<std::vector<ModelTensor>> parts_;  // that each has rows of
  std::vector<bool> turns_;
  bool largest_inputs_ = false;
  uint64_t reserved_ = 0;
  int64_t rows_together_ = 1;
  QuantizeReport report_;
  // Of methods that calibrate; method_ points into the others.
  DecoderSpec spec_;
  std::unordered_map<std::string, CalibratedLayers::Tensor> written_;
  std::unique_ptr<CalibratedLayers> method_;
  std::optional<GivenImportance> given_;  // in its place
  // Elements written, and what calibration was worth, of total_.
  uint64_t done_ = 0, calibrated_ = 0, runs_ = 0;
  uint64_t total_ = 0;
};

}  // namespace inlay

#endif  // INLAY_CORE_QUANTIZE_TENSOR_PASS_H_
