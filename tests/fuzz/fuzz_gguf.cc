// Any bytes as a GGUF file: no crash, and what is accepted keeps the promises
// that callers rely on. The same bytes go through the parser, cut at any place
// too, and as a file through everything that opens one; what begins with a
// second magic number is the second file of a split model.
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "core/formats/gguf.h"
#include "core/formats/gguf_model.h"
#include "core/text/tokenizer.h"

namespace {

using Bytes = absl::Span<const std::byte>;

void Require(bool holds) {
  if (!holds) abort();
}

uint64_t DenseBytes(const inlay::WeightInfo& info) {
  const auto& format = inlay::GetFormatInfo(info.dtype);
  Require(!info.shape.empty() && info.shape.size() <= inlay::kMaxGgufRank);
  Require(info.shape.back() % format.block_elements == 0);
  uint64_t bytes =
      inlay::RowBytes(info.dtype, static_cast<size_t>(info.shape.back()));
  for (size_t i = 0; i + 1 < info.shape.size(); ++i) {
    Require(info.shape[i] >= 1);
    bytes *= static_cast<uint64_t>(info.shape[i]);
  }
  return bytes;
}

void CheckHeader(const inlay::GgufHeader& header, Bytes bytes) {
  for (size_t i = 0; i < header.entries.size(); ++i) {
    const auto& [key, value] = header.entries[i];
    Require(i == 0 || header.entries[i - 1].key < key);
    Require(header.Find(key) == &header.entries[i].value);
    Require(value.data.empty() || (value.data.data() >= bytes.data() &&
                                   value.data.data() + value.data.size() <=
                                       bytes.data() + bytes.size()));
    const size_t size = inlay::GgufTypeBytes(value.type);
    Require(size == 0 || value.data.size() == value.count * size);
  }
  for (size_t i = 0; i < header.tensors.size(); ++i) {
    const auto& [info, offset] = header.tensors[i];
    Require(i == 0 || header.tensors[i - 1].info.name < info.name);
    Require(offset <= bytes.size() && info.bytes <= bytes.size() - offset);
    Require(info.bytes == DenseBytes(info));
  }
}

// Fewer bytes of the same file: more are asked for, or the same is said.
void CheckCut(const absl::StatusOr<inlay::GgufHeader>& whole, Bytes bytes) {
  if (bytes.empty()) return;
  const size_t cut = std::to_integer<size_t>(bytes.back()) * bytes.size() / 256;
  const auto part = inlay::ParseGgufHeader(bytes.first(cut), bytes.size());
  Require(part.status() == whole.status() || absl::IsOutOfRange(part.status()));
}

void CheckWeights(const inlay::WeightSource& source) {
  std::string_view last;
  for (const inlay::WeightInfo& info : source.weights()) {
    Require(last < info.name);
    last = info.name;
    Require(info.bytes == DenseBytes(info));
    std::vector<std::byte> bytes(info.bytes);
    Require(source.Read(info, 0, absl::MakeSpan(bytes)).ok());
    std::vector<std::byte> part(info.bytes / 2);
    const uint64_t offset = info.bytes / 3;
    Require(source.Read(info, offset, absl::MakeSpan(part)).ok());
    Require(std::equal(part.begin(), part.end(),
                       bytes.begin() + static_cast<ptrdiff_t>(offset)));
    const std::byte* mapped = source.Mapped(info);
    Require(mapped == nullptr ||
            std::equal(bytes.begin(), bytes.end(), mapped));
  }
}

void CheckText(const inlay::Json& document) {
  if (document.is_null()) return;
  const auto tokenizer = inlay::MakeTokenizerFromDocument(document);
  if (!tokenizer.ok()) return;
  std::vector<int32_t> ids;
  (void)(*tokenizer)->Encode("a b\xC3\xA9 1\n<s>", {}, &ids);
  for (const int32_t id : ids) Require(id < (*tokenizer)->vocab_size());
  (void)(*tokenizer)->Decode(ids, {});
}

void CheckModel(const std::string& path, inlay::ModelFilesOptions options) {
  const auto model = inlay::OpenGgufModel(path, options);
  if (!model.ok()) return;
  Require((model->weights == nullptr) == options.vocab_only);
  if (model->weights != nullptr) CheckWeights(*model->weights);
  CheckText(model->tokenizer);
}

// Files without a folder, by names in one that goes with the process.
class MemoryFiles {
 public:
  explicit MemoryFiles(const std::vector<const char*>& names) {
    Require(mkdtemp(folder_.data()) != nullptr);
    for (const char* name : names) {
      files_.push_back(memfd_create(name, 0));
      paths_.push_back(folder_ + "/" + name);
      Require(
          files_.back() >= 0 &&
          symlink(("/proc/self/fd/" + std::to_string(files_.back())).c_str(),
                  paths_.back().c_str()) == 0);
    }
  }
  ~MemoryFiles() {
    for (const std::string& path : paths_) unlink(path.c_str());
    rmdir(folder_.c_str());
  }
  MemoryFiles(const MemoryFiles&) = delete;
  MemoryFiles& operator=(const MemoryFiles&) = delete;

  const std::string& path(size_t i) const { return paths_[i]; }
  void Write(size_t i, Bytes bytes) const {
    Require(ftruncate(files_[i], 0) == 0 &&
            pwrite(files_[i], bytes.data(), bytes.size(), 0) ==
                static_cast<ssize_t>(bytes.size()));
  }

 private:
  std::string folder_ =
      std::filesystem::temp_directory_path() / "fuzz_gguf.XXXXXX";
  std::vector<int> files_;
  std::vector<std::string> paths_;
};

// Where the last magic number begins that is not the first; else the end.
size_t SecondFile(Bytes bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()),
                              bytes.size());
  const size_t found = text.rfind("GGUF");
  return found == 0 ? text.npos : found;
}

void CheckFile(const std::string& path) {
  CheckModel(path, {.access = inlay::WeightAccess::kMap});
  CheckModel(path, {.access = inlay::WeightAccess::kRead});
  CheckModel(path, {.vocab_only = true});
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const MemoryFiles files(
      {"m.gguf", "s-00001-of-00002.gguf", "s-00002-of-00002.gguf"});
  const Bytes bytes(reinterpret_cast<const std::byte*>(data), size);
  const auto header = inlay::ParseGgufHeader(bytes, size);
  Require(!absl::IsOutOfRange(header.status()));
  if (header.ok()) CheckHeader(*header, bytes);
  CheckCut(header, bytes);
  const size_t second = SecondFile(bytes);
  if (second < size) {
    files.Write(1, bytes.first(second));
    files.Write(2, bytes.subspan(second));
    CheckFile(files.path(1));
  }
  if (!header.ok()) return 0;
  files.Write(0, bytes);
  CheckFile(files.path(0));
  return 0;
}
