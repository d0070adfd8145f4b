// Fingerprints: whether saved KV and saved tokens still mean the same. Equal in
// every process and on every machine; made against mistakes, not against
// someone who forges. Knows nothing of sessions or snapshots.
#ifndef INLAY_CORE_ENGINE_FINGERPRINT_H_
#define INLAY_CORE_ENGINE_FINGERPRINT_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "core/formats/model_files.h"
#include "core/text/tokenizer.h"
#include "memory/kv/kv_layout.h"

namespace inlay {

struct ModelFingerprint {
  uint64_t high = 0;
  uint64_t low = 0;

  bool operator==(const ModelFingerprint&) const = default;
};

// What decides the values of KV: config.json (without the names of people's
// folders and versions in it), and of every tensor name, dtype, shape and a
// sample of its bytes: its first and last 4 KiB and up to 64 windows of 64
// bytes between them (about 4096 in all). For "random:" models the draw in
// place of tensors. A change confined to bytes between the windows goes unseen.
// Reads a few MB however large the model. Errors are those of reading the
// weights.
absl::StatusOr<ModelFingerprint> FingerprintModel(const ModelFiles& files);
// The same of a model path, whose files it opens to read them (not mapped: each
// fault of a mapped file that is not in memory reads megabytes around it).
absl::StatusOr<ModelFingerprint> FingerprintModelAt(const std::string& path);

// Of the model where attention goes by a pattern or selects blocks, which KV
// depends on; "": neither.
ModelFingerprint WithAttentionPattern(const ModelFingerprint& model,
                                      std::string_view pattern);

// Of blocks of `layout` filled by that model: what a lower tier keeps its
// records apart by.
ModelFingerprint FingerprintKv(const ModelFingerprint& model,
                               const KvLayout& layout);

// Where everything lies in a block, and in which format.
uint64_t HashKvLayout(const KvLayout& layout);

// What each token id stands for; 0 for null (no tokenizer), never otherwise.
uint64_t FingerprintVocabulary(const Tokenizer* tokenizer);

}  // namespace inlay

#endif  // INLAY_CORE_ENGINE_FINGERPRINT_H_
