// What llama.cpp's imatrix measured of a model: for the input of each matrix,
// by the matrix's name in GGUF files, the mean square of every element over
// some text. Both forms of such files are read: GGUF, and the older one
// (.dat). Everything in a file is taken for hostile.
// Source: llama.cpp, tools/imatrix/imatrix.cpp (save_imatrix and
// save_imatrix_legacy), common/imatrix-loader.cpp and what
// tools/quantize/quantize.cpp makes of them.
#ifndef INLAY_CORE_FORMATS_IMATRIX_H_
#define INLAY_CORE_FORMATS_IMATRIX_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace inlay {

inline constexpr uint64_t kMaxImatrixBytes = uint64_t{4} << 30;

// Of a stack of matrices, such as experts, one matrix's inputs after another's;
// those of one that no token went to are 1. Finite and not negative.
using Imatrix = std::unordered_map<std::string, std::vector<float>>;

// `path`: a regular file. Takes memory for what the file holds. Errors name it:
// NOT_FOUND; INVALID_ARGUMENT for what is no such file (a GGUF file of another
// general.type, sums without counts, counts that do not divide them, lengths
// beyond the file, numbers that are not finite or negative);
// RESOURCE_EXHAUSTED above kMaxImatrixBytes.
absl::StatusOr<Imatrix> ReadImatrix(const std::string& path);

// The older form, from its bytes.
absl::StatusOr<Imatrix> ParseOldImatrix(absl::Span<const std::byte> bytes);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_IMATRIX_H_
