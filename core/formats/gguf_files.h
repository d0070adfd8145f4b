// The open file or files of one GGUF model (split models come as
// NAME-00001-of-0000N.gguf and so on), headers parsed. Owns descriptors and
// mappings; knows nothing of architectures.
#ifndef INLAY_CORE_FORMATS_GGUF_FILES_H_
#define INLAY_CORE_FORMATS_GGUF_FILES_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/formats/gguf.h"
#include "core/formats/model_files.h"
#include "memory/mapped_file.h"

namespace inlay {

// One file: mapped, or open for reading with the header's bytes in memory.
// Movable: the header points into what does not move with it.
struct GgufFile {
  std::string path;
  std::optional<MappedFile> map;
  std::optional<FileReader> reader;
  std::vector<std::byte> head;
  GgufHeader header;

  // Copies what lies at `offset` of the file, which must have it.
  absl::Status Read(uint64_t offset, absl::Span<std::byte> destination) const;
};

struct GgufFiles {
  std::vector<GgufFile> files;  // not empty; the first has the keys

  const GgufHeader& header() const { return files.front().header; }
  const GgufTensor* FindTensor(std::string_view name) const;
  // The elements of a small f32 vector; nullopt when there is no such tensor,
  // INVALID_ARGUMENT when it is something else.
  absl::StatusOr<std::optional<std::vector<float>>> ReadVector(
      std::string_view name) const;
};

// `path`: the file, or the first of a split model. Errors name the file:
// NOT_FOUND, what ParseGgufHeader gives, INVALID_ARGUMENT for files that do not
// belong together.
absl::StatusOr<GgufFiles> OpenGgufFiles(const std::string& path,
                                        WeightAccess access);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_GGUF_FILES_H_
