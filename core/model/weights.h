// WeightLoader: brings a model's tensors from a WeightSource (or a random draw)
// onto a device, checked against the shapes the architecture wants. Knows
// nothing of architectures or kernels.
#ifndef INLAY_CORE_MODEL_WEIGHTS_H_
#define INLAY_CORE_MODEL_WEIGHTS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/formats/model_files.h"
#include "core/formats/weight_source.h"
#include "core/model/weight_upload.h"
#include "memory/device/device.h"
#include "memory/device/thread_pool.h"
#include "memory/tensor.h"

namespace inlay {

// Told bytes done and bytes in all as loading goes on, on the loading thread.
// Returning false cancels.
using LoadProgress = std::function<bool(uint64_t done, uint64_t total)>;

// What keeps loaded weights alive. Its device must outlive it.
struct WeightStorage {
  std::shared_ptr<const WeightSource> source;  // mapped tensors; may be null
  std::vector<Buffer> buffers;
};

enum class VectorKind : uint8_t {
  kScale,             // a norm's weight
  kZeroCentredScale,  // a norm's weight stored without its 1, which is added
  kBias,
};

// A tensor that a model asks for.
struct PlannedWeight {
  std::string name;  // as asked for, with the optional prefix
  std::vector<int64_t> shape;
  std::optional<VectorKind> vector;    // none: a matrix
  const WeightInfo* stored = nullptr;  // the source's; null when drawn
};

// Planning goes through the same calls as loading, checks everything and counts
// but allocates nothing, and reads nothing but for AreEqual() and FitsBf16():
// views come back without data. One thread.
class WeightLoader {
 public:
  enum class Mode : uint8_t { kPlan, kLoad };

  // `files` and `device` must outlive the loader. `total_bytes`: what a plan
  // counted, for progress; unused when planning.
  WeightLoader(const ModelFiles& files, Device& device, Mode mode,
               LoadProgress progress = nullptr, uint64_t total_bytes = 0);

  // A prefix ("model.") that files saved from the bare network lack: a name
  // that starts with it is also looked up without it.
  void set_optional_prefix(std::string_view prefix) { prefix_ = prefix; }

  // Of models whose layers share weights: from here on matrices and vectors
  // that are asked for again, by the same names in the same way, are those that
  // are there, and are not counted again.
  void ShareRepeated() { shares_ = true; }

  // A matrix [n, k] in its own dtype (f32, f16, bf16 or a block format), on the
  // device: where the file is mapped, or a copy. The view lives as long as the
  // storage.
  absl::StatusOr<TensorView> Matrix(const std::string& name, int64_t n,
                                    int64_t k);
  // The dtype that Matrix() would give, checked as there.
  absl::StatusOr<DType> MatrixDType(const std::string& name, int64_t n,
                                    int64_t k) const;
  // The matrix [n, k] of a tensor stored as [k, n] (GPT-2's Conv1D).
  absl::StatusOr<TensorView> Transposed(const std::string& name, int64_t n,
                                        int64_t k);
  // Matrices [n, k] of one dtype (see SameDType) as one, their rows one after
  // another.
  struct Rows {
    std::string name;
    int64_t n = 0;
  };
  absl::StatusOr<TensorView> Stacked(absl::Span<const Rows> parts, int64_t k);
  // As Stacked(), as `packing` has it: rows are read in bands of whole groups
  // and are not kept besides. All parts but the last are whole groups.
  struct Packing {
    size_t bytes = 0;
    int64_t group = 1;  // rows
    // As WeightPacking::pack; called from several threads.
    std::function<void(const std::byte* rows, int64_t first, int64_t count,
                       std::byte* packed)>
        pack;
    // As WeightPacking::pack_on_device, where the host does not address the
    // device's memory; null: `pack` does it, and the result is copied there.
    std::function<absl::Status(const std::byte* rows, int64_t first,
                               int64_t count, std::byte* packed,
                               Stream& stream)>
        pack_on_device;
    // As WeightPacking::inspect, of the whole packed matrix; may be null.
    std::function<absl::Status(const std::byte* packed, Stream& stream)>
        inspect = nullptr;
  };
  absl::StatusOr<TensorView> Packed(absl::Span<const Rows> parts, int64_t k,
                                    const Packing& packing);
  // The same of a matrix that is loaded already, and is kept.
  absl::StatusOr<TensorView> Repacked(const TensorView& matrix,
                                      const Packing& packing);
  // Matrices [.., k] in pinned host memory that the device reads, which is not
  // the host's own: each of its parts as Stacked() has them, or with `packing`
  // (of one matrix, inspected one after another) Packed(). Matrix i lies at i *
  // pitch of what comes back; null when planning.
  absl::StatusOr<const std::byte*> InHostMemory(
      absl::Span<const std::vector<Rows>> matrices, int64_t k,
      const Packing* packing, size_t pitch);
  // Memory of the device that lives as long as the weights: with unspecified
  // contents, or with `bytes`. Not counted as weights. Null when planning.
  absl::StatusOr<std::byte*> Room(size_t bytes);
  absl::StatusOr<std::byte*> Image(absl::Span<const std::byte> bytes);
  // Whether the source has the same in both: shape, dtype and bytes, which are
  // read when planning, too. False where one is missing or drawn.
  absl::StatusOr<bool> AreEqual(const std::string& one,
                                const std::string& other) const;
  // Whether a matrix is in f16 and bf16 holds its values as well: those of a
  // sample, which is read when planning, too. Files are made of checkpoints in
  // bf16 as a whole. False where it is missing or drawn.
  absl::StatusOr<bool> FitsBf16(const std::string& name) const;
  // Whether all that are there have one dtype.
  bool SameDType(absl::Span<const Rows> parts) const;
  // What all of them say of their inputs.
  InputCodes InputCodesOf(absl::Span<const Rows> parts) const;
  // A vector [size], widened to float32 and times `factor`; the file may have
  // dimensions of 1 besides. Null when planning.
  absl::StatusOr<const float*> Vector(const std::string& name, int64_t size,
                                      VectorKind kind, float factor = 1.0f);
  // The same, each as `map` has it.
  absl::StatusOr<const float*> Mapped(const std::string& name, int64_t size,
                                      VectorKind kind,
                                      const std::function<float(float)>& map);
  // A vector of one element, on the host. 1 when planning.
  absl::StatusOr<float> Scalar(const std::string& name);
  // A small vector [size], on the host. Zeros when planning.
  absl::StatusOr<std::vector<float>> Numbers(const std::string& name,
                                             int64_t size);
  // Vectors one after another; of an empty name: zeros.
  absl::StatusOr<const float*> StackedVector(absl::Span<const Rows> parts,
                                             VectorKind kind);
  // Convolutions of one channel each, one after another: tensors [n, 1,
  // num_taps] as [num_taps][sum of n]. `scales`: of each of the parts' channels
  // or of none (empty).
  absl::StatusOr<const float*> Taps(absl::Span<const Rows> parts,
                                    int64_t num_taps,
                                    absl::Span<const float> scales = {});
  bool Has(const std::string& name) const { return Lookup(name) != nullptr; }
  // What the source has of it; null: nothing, or it is drawn.
  const WeightInfo* InfoOf(const std::string& name) const {
    return Lookup(name);
  }
  // Of quantised layers (quantized_source.h): whether the columns of
  // "<layer>.weight" have an order of their own, and whether that of two layers
  // is the same; it is read when planning, too.
  bool HasOrder(const std::string& layer) const;
  absl::StatusOr<bool> HaveOneOrder(const std::string& one,
                                    const std::string& other) const;
  // Which input each of the `k` columns takes, layer by layer; of one without
  // an order: its own. Null when planning.
  absl::StatusOr<const int32_t*> Orders(absl::Span<const std::string> layers,
                                        int64_t k);
  // Whoever loads a layer's matrix minds its order, which Orders() implies:
  // others do not get it (UNIMPLEMENTED).
  void TakesOrder(const std::string& layer) { ordered_.insert(layer); }
  // A table [rows, columns] of i32 or i64, each in [0, end), those of a row
  // different, row by row. Null when planning.
  absl::StatusOr<const int32_t*> IndexTable(const std::string& name,
                                            int64_t rows, int64_t columns,
                                            int64_t end);
  // A matrix [n, k] that is small and stays float32, whatever else becomes of
  // the weights: widened, dense. Counts as a vector. Null when planning.
  absl::StatusOr<const float*> Floats(const std::string& name, int64_t n,
                                      int64_t k, VectorKind kind);
  // The same as [k][n], each as `map` has it.
  absl::StatusOr<const float*> TurnedFloats(const std::string& name, int64_t n,
                                            int64_t k, VectorKind kind,
                                            float (*map)(float));
  // What is the share of the row before in mixes of two rows, tensors of `ways`
  // vectors [size] or one of all, [ways, size]: that and the rest, [ways][2]
  // [size]. Null when planning.
  absl::StatusOr<const float*> ShiftTaps(absl::Span<const std::string> names,
                                         int64_t ways, int64_t size);
  // Rows `rows` of a matrix [n, k] that is small, and may be in blocks, turned:
  // [k][rows.size()].
  absl::StatusOr<const float*> TurnedRows(const std::string& name, int64_t n,
                                          int64_t k,
                                          absl::Span<const int32_t> rows);
  // `values`, which no file has, on the device. Null when planning.
  absl::StatusOr<const float*> Constants(absl::Span<const float> values);

  // Errors of all: NOT_FOUND naming the tensor; INVALID_ARGUMENT naming
  // it, the shape got and the shape wanted; UNIMPLEMENTED for another dtype;
  // RESOURCE_EXHAUSTED; CANCELLED.

  uint64_t num_parameters() const { return num_parameters_; }
  uint64_t bytes() const { return bytes_; }
  // What was planned so far, but for indices, each once; empty when loading.
  const std::vector<PlannedWeight>& planned() const { return planned_; }
  Mode mode() const { return mode_; }
  Device& device() const { return device_; }
  // The type that what layers hand on should have: that of most plain matrices'
  // elements; with quantised ones, of those of 16 bits, if there are any, and
  // bf16 if most is quantised.
  DType PrevailingDType() const;
  // Hands over what the views point into, all of it there; call once, after the
  // last load.
  absl::StatusOr<WeightStorage> TakeStorage();

 private:
  const WeightInfo* Lookup(const std::string& name) const;
  absl::StatusOr<const WeightInfo*> Find(const std::string& name,
                                         absl::Span<const int64_t> shape) const;
  // A matrix to be written to the device: checked, and what makes it.
  struct Pending {
    const WeightInfo* info = nullptr;  // null: drawn
    TensorView view;
  };
  absl::StatusOr<Pending> Begin(const std::string& name, int64_t n, int64_t k);
  // UNIMPLEMENTED where a matrix has an order and TakesOrder() was not called.
  absl::Status CheckOrder(const std::string& name) const;
  // One of Orders().
  absl::Status ReadOrder(const std::string& layer, int64_t k, int32_t* inputs);
  // Matrix(), Stacked(), Packed() and StackedVector() of what is not there yet.
  absl::StatusOr<TensorView> LoadMatrix(const std::string& name, int64_t n,
                                        int64_t k);
  absl::StatusOr<TensorView> LoadStacked(absl::Span<const Rows> parts,
                                         int64_t k);
  absl::StatusOr<TensorView> LoadPacked(absl::Span<const Rows> parts, int64_t k,
                                        const Packing& packing);
  absl::StatusOr<const float*> LoadStackedVector(absl::Span<const Rows> parts,
                                                 VectorKind kind);
  // Bytes of a drawn matrix from `offset` on, which is a multiple of 8.
  absl::Status Draw(const std::string& name, DType dtype, uint64_t offset,
                    absl::Span<std::byte> piece);
  // What the packed matrix says of itself, where it is on another device.
  absl::Status Inspect(const Packing& packing, const std::byte* packed);
  bool PacksHere(const Packing& packing) const {
    return device_.host_addressable() || packing.pack_on_device == nullptr;
  }
  // One of Packed()'s parts, whose rows are the packed matrix's from `first`
  // on. `packed`: in host memory where PacksHere().
  absl::Status PackPart(const Rows& part, DType dtype, int64_t k, int64_t first,
                        const Packing& packing, std::byte* packed);
  // Packs rows that lie in memory; whole groups, but at the end.
  absl::Status PackRows(const Packing& packing, const TensorView& rows,
                        int64_t first, std::byte* packed);
  absl::Status WriteMatrix(const std::string& name, const Pending& pending,
                           std::byte* dst);
  // One matrix of InHostMemory().
  absl::Status StackInHostMemory(absl::Span<const Rows> parts, int64_t k,
                                 std::byte* to);
  absl::Status PackInHostMemory(absl::Span<const Rows> parts, int64_t k,
                                const Packing& packing, std::byte* to);
  // Checks and counts a matrix that will be packed.
  absl::StatusOr<DType> PlanPacked(absl::Span<const Rows> parts, int64_t k,
                                   const Packing& packing);
  absl::Status ReadPiece(const WeightInfo& info, uint64_t offset,
                         absl::Span<std::byte> piece);
  // Has `fill` make `bytes` bytes of the device's memory at `dst`.
  // In pieces of whole `unit`s.
  absl::Status Write(std::byte* dst, size_t bytes, size_t unit,
                     WeightUpload::Fill fill);
  // The same at once.
  absl::Status WriteAll(std::byte* dst, absl::Span<const std::byte> bytes);
  absl::StatusOr<std::byte*> Allocate(size_t bytes);
  // The tensor's bytes in host memory: mapped, or read into `staging`.
  absl::StatusOr<const std::byte*> Bytes(const WeightInfo& info,
                                         Buffer& staging);
  absl::Status Widen(const std::string& name, absl::Span<const int64_t> shape,
                     VectorKind kind, float* values);
  // The same of a matrix that may be in blocks.
  absl::Status WidenTable(const std::string& name, int64_t n, int64_t k,
                          float* values);
  absl::Status Count(uint64_t elements, uint64_t bytes);
  void Plan(PlannedWeight weight);
  absl::Status Report(uint64_t done);
  absl::StatusOr<ThreadPool*> Pool();

  const ModelFiles& files_;
  Device& device_;
  Mode mode_;
  LoadProgress progress_;
  uint64_t total_bytes_;
  std::string prefix_;
  bool shares_ = false;
  // With shares_: by how they were asked for.
  std::map<std::string, TensorView> shared_matrices_;
  std::map<std::string, const float*> shared_vectors_;
  std::vector<PlannedWeight> planned_;
  std::unordered_set<std::string> planned_names_;
  std::unordered_set<std::string> ordered_;  // layers of TakesOrder()
  WeightStorage storage_;
  // Its own: the device's pool may be running another model's step.
  std::unique_ptr<ThreadPool> pool_;
  // Of rows about to be packed, there and here. Outlive what the upload has
  // under way.
  Buffer band_;
  Buffer host_band_;
  Buffer packed_;                         // a matrix on its way to host memory
  std::unique_ptr<WeightUpload> upload_;  // null until it is needed
  uint64_t num_parameters_ = 0;
  uint64_t bytes_ = 0;
  uint64_t left_ = 0;  // what had been read when pages were left
};

}  // namespace inlay

#endif  // INLAY_CORE_MODEL_WEIGHTS_H_
