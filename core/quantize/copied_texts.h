// What a checkpoint's folder has beside weights and config.json, and quantising
// does not change: it is copied as it is.
#ifndef INLAY_CORE_QUANTIZE_COPIED_TEXTS_H_
#define INLAY_CORE_QUANTIZE_COPIED_TEXTS_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace inlay {

// Replaces the file at `path`.
absl::Status WriteTextFile(const std::string& path, std::string_view text);

// Names within a folder.
struct FoundTexts {
  std::vector<std::string> names;
  bool has_tokenizer = false;  // a file of it is among them
};

// What the folder `from` has of it: how texts are generated, how states become
// an embedding (modules.json and the modules it names), and with `tokenizer`
// the tokenizer and the chat templates. Asked before there is any work to lose:
// RESOURCE_EXHAUSTED names a file that is larger than any such (256 MiB).
absl::StatusOr<FoundTexts> FindTexts(const std::string& from, bool tokenizer);

// Copies them to the folder `to`, which exists, a piece at a time.
absl::Status CopyTexts(const std::string& from, const std::string& to,
                       const FoundTexts& texts);

}  // namespace inlay

#endif  // INLAY_CORE_QUANTIZE_COPIED_TEXTS_H_
