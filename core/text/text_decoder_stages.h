// The decoders of a tokenizer.json, one function each.
#ifndef INLAY_CORE_TEXT_TEXT_DECODER_STAGES_H_
#define INLAY_CORE_TEXT_TEXT_DECODER_STAGES_H_

#include <cstddef>
#include <memory>
#include <string>

#include "core/text/pre_tokenizer_split.h"
#include "core/text/text_decoder.h"

namespace inlay {

using MadeStage = std::unique_ptr<DecodeStage>;

// All tokens' bytes, spelled in the byte-level alphabet, as one token; invalid
// UTF-8 becomes U+FFFD.
MadeStage MakeByteLevelStage();
// Runs of <0xNN> tokens as the characters they spell, or U+FFFD for each byte
// when the run is not valid UTF-8.
MadeStage MakeByteFallbackStage();
// All tokens as one.
MadeStage MakeFuseStage();
// Up to `start` of the character `content` off each token's front, `stop` off
// its back.
MadeStage MakeStripStage(std::string content, size_t start, size_t stop);
// Each occurrence of `needle` (not empty) in a token.
MadeStage MakeReplaceStage(std::string needle, std::string content);
// Each match in a token.
MadeStage MakeRegexReplaceStage(std::unique_ptr<Matcher> matcher,
                                std::string content);
// `replacement` becomes a space; with `drop_first`, nothing in the first token.
MadeStage MakeMetaspaceStage(std::string replacement, bool drop_first);
// Words joined by spaces, pieces that start with `prefix` by nothing.
MadeStage MakeWordPieceStage(std::string prefix, bool cleanup);
// `suffix` becomes a space, nothing in the last token.
MadeStage MakeBpeStage(std::string suffix);
// Repeated tokens once, `pad` dropped, `delimiter` a space.
MadeStage MakeCtcStage(std::string pad, std::string delimiter, bool cleanup);
// A space between tokens: what a file without decoder means.
MadeStage MakeJoinStage();

}  // namespace inlay

#endif  // INLAY_CORE_TEXT_TEXT_DECODER_STAGES_H_
