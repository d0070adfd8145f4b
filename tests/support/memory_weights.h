// MemoryWeights: a WeightSource made by a test.
#ifndef INLAY_TESTS_SUPPORT_MEMORY_WEIGHTS_H_
#define INLAY_TESTS_SUPPORT_MEMORY_WEIGHTS_H_

#include <algorithm>
#include <atomic>
#include <map>
#include <string>
#include <vector>

#include "core/formats/weight_source.h"

namespace inlay {

class MemoryWeights : public WeightSource {
 public:
  // `mapped`: whether Mapped() offers the bytes; `misaligned`: whether it
  // offers them at an odd address.
  explicit MemoryWeights(bool mapped, bool misaligned = false)
      : mapped_(mapped), offset_(misaligned ? 1 : 0) {}

  void Add(const std::string& name, DType dtype, std::vector<int64_t> shape,
           const void* data) {
    WeightInfo info;
    info.name = name;
    info.dtype = dtype;
    info.shape = std::move(shape);
    Add(std::move(info), data);
  }
  // Of another source's, whose `bytes` are made anew.
  void Add(WeightInfo info, const void* data) {
    uint64_t elements = 1;
    for (const int64_t dim : info.shape) elements *= static_cast<uint64_t>(dim);
    info.bytes = RowBytes(info.dtype, elements);
    std::vector<std::byte>& bytes = bytes_[info.name];
    bytes.resize(info.bytes + offset_);
    std::copy_n(static_cast<const std::byte*>(data), info.bytes,
                bytes.data() + offset_);
    infos_.insert(std::upper_bound(infos_.begin(), infos_.end(), info,
                                   [](const auto& a, const auto& b) {
                                     return a.name < b.name;
                                   }),
                  std::move(info));
  }

  absl::Span<const WeightInfo> weights() const override { return infos_; }
  const std::byte* Mapped(const WeightInfo& info) const override {
    return mapped_ ? bytes_.at(info.name).data() + offset_ : nullptr;
  }
  absl::Status Read(const WeightInfo& info, uint64_t offset,
                    absl::Span<std::byte> destination) const override {
    std::copy_n(bytes_.at(info.name).data() + offset_ + offset,
                destination.size(), destination.data());
    return absl::OkStatus();
  }
  uint64_t LeavePages(FileRange) const override {
    ++num_left_;
    return 0;
  }
  int num_left() const { return num_left_; }

 private:
  bool mapped_;
  size_t offset_;
  mutable std::atomic<int> num_left_ = 0;
  std::vector<WeightInfo> infos_;
  std::map<std::string, std::vector<std::byte>> bytes_;
};

}  // namespace inlay

#endif  // INLAY_TESTS_SUPPORT_MEMORY_WEIGHTS_H_
