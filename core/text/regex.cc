// Owns PCRE2's handles; the only file that knows its API (pcre2api(3)).
#include "core/text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <chrono>

#include "core/text/utf8.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr size_t kMaxPatternBytes = 64 << 10;
// A sane pattern backtracks a few steps a character (`\s+(?!\S)` once over a
// run of spaces); a catastrophic one doubles with each.
constexpr uint32_t kMinMatchLimit = 1'000'000;
constexpr uint32_t kMatchLimitPerByte = 4;
constexpr uint32_t kHeapLimitKib = 64 << 10;
constexpr uint32_t kDepthLimit = 10'000'000;
// Many matches, each just inside the limit, could still take forever. Measured
// throughput of sane patterns is 100 times what this asks for.
constexpr std::chrono::microseconds kTimeBase{2'000'000};
constexpr std::chrono::microseconds kTimePerByte{2};
constexpr int kMatchesPerTimeCheck = 64;

struct MatchState {
  explicit MatchState(const pcre2_code* code, size_t text_bytes)
      : data(pcre2_match_data_create_from_pattern(code, nullptr)),
        context(pcre2_match_context_create(nullptr)) {
    if (context == nullptr) return;
    const uint64_t wanted = uint64_t{kMatchLimitPerByte} * text_bytes;
    const auto limit = static_cast<uint32_t>(std::min<uint64_t>(
        std::max<uint64_t>(wanted, kMinMatchLimit), UINT32_MAX));
    pcre2_set_match_limit(context, limit);
    pcre2_set_depth_limit(context, kDepthLimit);
    pcre2_set_heap_limit(context, kHeapLimitKib);
  }
  MatchState(const MatchState&) = delete;
  MatchState& operator=(const MatchState&) = delete;
  ~MatchState() {
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
  }

  pcre2_match_data* data;
  pcre2_match_context* context;
};

std::string ErrorText(int code) {
  PCRE2_UCHAR buffer[256];
  if (pcre2_get_error_message(code, buffer, sizeof(buffer)) < 0) {
    return FormattedString("PCRE2 error %d", code);
  }
  return reinterpret_cast<const char*>(buffer);
}

}  // namespace

struct Regex::Code {
  ~Code() { pcre2_code_free(code); }
  pcre2_code* code = nullptr;
};

absl::StatusOr<Regex> Regex::Create(std::string_view pattern) {
  if (pattern.size() > kMaxPatternBytes) {
    return absl::ResourceExhaustedError(
        FormattedString("regex: a pattern of %d bytes, at most %d allowed",
                        pattern.size(), kMaxPatternBytes));
  }
  INLAY_ASSIGN_OR_RETURN(const std::string translated, TranslateRegex(pattern));
  pcre2_compile_context* context = pcre2_compile_context_create(nullptr);
  if (context == nullptr) return absl::ResourceExhaustedError("regex: memory");
  pcre2_set_newline(context, PCRE2_NEWLINE_LF);
  pcre2_set_parens_nest_limit(context, 100);
  int error = 0;
  PCRE2_SIZE offset = 0;
  auto code = std::make_shared<Code>();
  // In the Ruby syntax ^ and $ always stand at lines.
  code->code = pcre2_compile(
      reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error,
      &offset, context);
  pcre2_compile_context_free(context);
  if (code->code == nullptr) {
    return absl::InvalidArgumentError(
        FormattedString("regex: %s at byte %d of \"%s\"", ErrorText(error),
                        offset, translated.substr(0, 200)));
  }
  // Where no JIT is available the interpreter serves.
  pcre2_jit_compile(code->code, PCRE2_JIT_COMPLETE);
  return Regex(std::move(code));
}

absl::Status Regex::FindAll(std::string_view text,
                            std::vector<Match>* matches) const {
  const MatchState state(code_->code, text.size());
  if (state.data == nullptr || state.context == nullptr) {
    return absl::ResourceExhaustedError("regex: memory");
  }
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  const auto begin_time = std::chrono::steady_clock::now();
  size_t pos = 0;
  size_t last_end = std::string_view::npos;
  for (int num = 1; pos <= text.size(); ++num) {
    int rc = pcre2_match(code_->code, subject, text.size(), pos,
                         PCRE2_NO_UTF_CHECK, state.data, state.context);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) {
      // The interpreter keeps its frames on the heap, within the heap limit.
      rc = pcre2_match(code_->code, subject, text.size(), pos,
                       PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, state.data,
                       state.context);
    }
    if (rc == PCRE2_ERROR_NOMATCH) break;
    if (rc < 0) {
      return absl::ResourceExhaustedError(FormattedString(
          "regex: %s at byte %d of the text", ErrorText(rc), pos));
    }
    const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(state.data);
    const Match match{bounds[0], bounds[1]};
    // \K in a lookahead can put the start behind the end.
    if (match.begin > match.end || match.begin < pos) {
      return absl::InvalidArgumentError(
          "regex: a match that starts past its end");
    }
    if (match.begin != match.end || match.begin != last_end) {
      matches->push_back(match);
    }
    last_end = match.end;
    pos = match.end;
    if (match.begin == match.end) {
      if (pos == text.size()) break;
      pos += RuneAt(text, pos).bytes;
    }
    if (num % kMatchesPerTimeCheck == 0 &&
        std::chrono::steady_clock::now() - begin_time >
            kTimeBase + kTimePerByte * text.size()) {
      return absl::ResourceExhaustedError(FormattedString(
          "regex: still matching at byte %d of %d when its time was up", pos,
          text.size()));
    }
  }
  return absl::OkStatus();
}

}  // namespace inlay
