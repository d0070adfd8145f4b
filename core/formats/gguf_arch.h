// What GGUF files call each architecture that loads and its tensors, and what
// their converter does to the values: the one table of it. Knows nothing of
// files.
// Source: llama.cpp's converter (tensor_mapping.py, conversion/*.py).
#ifndef INLAY_CORE_FORMATS_GGUF_ARCH_H_
#define INLAY_CORE_FORMATS_GGUF_ARCH_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/json/json.h"

namespace inlay {

// How a tensor in the file differs from the one of that name in the published
// checkpoint.
enum class GgufLayout : uint8_t {
  kSame,
  // Within each head, the rows of the two rotary halves take turns.
  kQueryRows,
  kKeyRows,
  kPlusOne,     // a norm's weight, with the 1 added that the network adds
  kTransposed,  // stored as [outputs, inputs], published as [inputs, outputs]
  kVector,      // stored without the 1 of its published shape [1, inputs]
  kBareName,    // published without ".weight"
  kWhole,       // both names are whole, and the values are the same
  kLogOfMinus,  // whole names; published is the logarithm of what is stored,
                // with its sign turned
  kTaps,        // stored without the 1 of its published shape
                // [channels, 1, taps]
  kFlat,        // stored [groups, n], to be [groups * n]
  kHeads,       // stored [heads, n, k], to be [heads * n, k]
};

// Names without ".weight" or ".bias", but where the layout says whole ones; '#'
// stands for a layer's number.
struct GgufName {
  std::string_view gguf;
  std::string_view published;
  GgufLayout layout = GgufLayout::kSame;
};

struct GgufArch {
  std::string_view name;          // general.architecture
  std::string_view architecture;  // config.json's "architectures"
  std::string_view model_type;
  absl::Span<const GgufName> names;
};

// UNIMPLEMENTED listing those known.
absl::StatusOr<const GgufArch*> FindGgufArch(std::string_view name);

// The one that files of a published config.json get, by its first
// "architectures" entry or its "model_type". UNIMPLEMENTED listing those known.
absl::StatusOr<const GgufArch*> FindGgufArchOf(const Json& config);

// Which layer of a nemotron_h is what: M(amba), * (attention), E(xperts), -
// (MLP). Empty where config.json does not say.
std::string NemotronPattern(const Json& config);

// The matrix whose rows are those of q, k and v one after another, where the
// published one has them head by head, or the model takes them apart; empty:
// there is none.
std::string_view GgufJoinedQkv(std::string_view model_type);

// Rows of RoBERTa's positions before that of the first token, which files leave
// out; 0 of other families.
absl::StatusOr<int64_t> PositionsBefore(const Json& config,
                                        std::string_view model_type);

struct TensorName {
  std::string name;
  GgufLayout layout = GgufLayout::kSame;
};

// Nullopt for a tensor that the architecture does not have.
std::optional<TensorName> PublishedTensorName(const GgufArch& arch,
                                              std::string_view gguf);

// The other way: from a published tensor's name to the file's.
std::optional<TensorName> GgufTensorName(const GgufArch& arch,
                                         std::string_view published);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_GGUF_ARCH_H_
