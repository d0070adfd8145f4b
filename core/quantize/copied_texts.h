// What a checkpoint's folder has beside weights and config.json, and quantising
// does not change: it is copied as it is.
#ifndef INLAY_CORE_QUANTIZE_COPIED_TEXTS_H_
#define INLAY_CORE_QUANTIZE_COPIED_TEXTS_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace inlay {

// Replaces the file at `path`.
absl::Status WriteTextFile(const std::string& path, std::string_view text);

// From the folder `from` to the folder `to`, which exists: how texts are
// generated, how states become an embedding (modules.json and the modules it
// names), and with `tokenizer` the tokenizer and the chat templates. True: a
// file of the tokenizer was there.
absl::StatusOr<bool> CopyTexts(const std::string& from, const std::string& to,
                               bool tokenizer);

}  // namespace inlay

#endif  // INLAY_CORE_QUANTIZE_COPIED_TEXTS_H_
