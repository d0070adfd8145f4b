// One description of each entry's fields, read by the encoder and the decoder.
#include "core/engine/recording_format.h"

#include <array>
#include <cstring>
#include <type_traits>
#include <utility>

#include "memory/dtype.h"
#include "memory/formatted_string.h"

namespace inlay {
namespace {

class Encoder {
 public:
  static constexpr bool kWrites = true;
  explicit Encoder(std::string* bytes) : bytes_(bytes) {}

  void Integer(uint64_t value) {
    for (; value >= 0x80; value >>= 7) Byte(static_cast<uint8_t>(value | 0x80));
    Byte(static_cast<uint8_t>(value));
  }
  void Byte(uint8_t value) { bytes_->push_back(static_cast<char>(value)); }
  void Raw(const void* data, size_t bytes) {
    bytes_->append(static_cast<const char*>(data), bytes);
  }

 private:
  std::string* bytes_;
};

class Decoder {
 public:
  static constexpr bool kWrites = false;
  explicit Decoder(std::string_view bytes) : left_(bytes) {}

  uint64_t Integer() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const uint8_t byte = Byte();
      value |= uint64_t{byte & 0x7fu} << shift;
      // The tenth byte has room for one bit.
      if (byte < 0x80) return shift == 63 && byte > 1 ? Fail() : value;
    }
    return Fail();
  }
  uint8_t Byte() {
    if (left_.empty()) return static_cast<uint8_t>(Fail());
    const auto byte = static_cast<uint8_t>(left_.front());
    left_.remove_prefix(1);
    return byte;
  }
  std::string_view Raw(uint64_t bytes) {
    if (bytes > left_.size()) bytes = Fail();
    const std::string_view raw = left_.substr(0, bytes);
    left_.remove_prefix(bytes);
    return raw;
  }
  // From here on all is zero and empty.
  uint64_t Fail() {
    failed_ = true;
    left_ = {};
    return 0;
  }
  size_t left() const { return left_.size(); }
  bool failed() const { return failed_; }

 private:
  std::string_view left_;
  bool failed_ = false;
};

template <typename C, typename T>
void Field(C& c, T& value);

template <typename C, typename T>
void Number(C& c, T& value) {
  constexpr bool kSigned = std::is_signed_v<T>;
  if constexpr (C::kWrites) {
    const auto wide = static_cast<uint64_t>(value);
    c.Integer(kSigned ? (wide << 1) ^ (value < 0 ? ~uint64_t{0} : 0) : wide);
  } else {
    uint64_t wide = c.Integer();
    if (kSigned) wide = (wide >> 1) ^ (~(wide & 1) + 1);
    value = static_cast<T>(wide);
    if (static_cast<uint64_t>(value) != wide) value = static_cast<T>(c.Fail());
  }
}

// A bool, or an enum whose last value is `last`.
template <typename C, typename T>
void Small(C& c, T& value, uint8_t last) {
  if constexpr (C::kWrites) {
    c.Byte(static_cast<uint8_t>(value));
  } else {
    uint8_t byte = c.Byte();
    if (byte > last) byte = static_cast<uint8_t>(c.Fail());
    value = static_cast<T>(byte);
  }
}

template <typename C>
void Bytes(C& c, std::string& value) {
  if constexpr (C::kWrites) {
    c.Integer(value.size());
    c.Raw(value.data(), value.size());
  } else {
    value = std::string(c.Raw(c.Integer()));
  }
}

template <typename C>
void Real(C& c, float& value) {
  if constexpr (C::kWrites) {
    c.Raw(&value, sizeof(value));
  } else {
    const std::string_view raw = c.Raw(sizeof(value));
    if (raw.size() == sizeof(value)) std::memcpy(&value, raw.data(), 4);
  }
}

template <typename C, typename T>
void List(C& c, std::vector<T>& values) {
  if constexpr (C::kWrites) {
    c.Integer(values.size());
    for (T& value : values) Field(c, value);
  } else {
    uint64_t count = c.Integer();
    // Everything takes a byte at least: no count is believed beyond that.
    if (count > c.left()) count = c.Fail();
    for (; count > 0 && !c.failed(); --count) Field(c, values.emplace_back());
  }
}

template <typename C, typename... T>
void Fields(C& c, T&... values) {
  (Field(c, values), ...);
}

template <typename C>
void Code(C& c, ModelFingerprint& e) {
  Fields(c, e.high, e.low);
}
template <typename C>
void Code(C& c, KvForm& e) {
  if constexpr (C::kWrites) {
    c.Byte(static_cast<uint8_t>(e.dtype));
  } else {
    // Only ever compared with that of a model.
    e.dtype = static_cast<DType>(c.Byte());
  }
  Fields(c, e.block_size, e.block_bytes, e.layout_hash);
}
template <typename C>
void Code(C& c, SchedulerConfig& e) {
  Fields(c, e.max_batch_tokens, e.max_running, e.max_prefill_chunk, e.max_queue,
         e.tpot_target_us, e.starvation_us);
}
template <typename C>
void Code(C& c, RecordingHeader& e) {
  Fields(c, e.model, e.vocabulary, e.kv, e.max_context, e.kv_budget_bytes,
         e.extent_bytes, e.kv_target_bytes, e.kv_bytes, e.scheduler,
         e.prefix_sharing);
}
template <typename C>
void Code(C& c, SessionEntry& e) {
  Fields(c, e.session, e.isolation, e.log, e.is_long, e.seed, e.num_draws,
         e.generated_begin);
}
template <typename C>
void Code(C& c, PrefixEntry& e) {
  Fields(c, e.prefix, e.isolation, e.name, e.tokens, e.holders);
}
// By their members' number, so that none that is added can be forgotten.
template <typename C>
void Code(C& c, SamplingParams& e) {
  auto& [temperature, top_k, top_p, min_p, repetition, frequency, presence,
         last_n, bias, banned, seed, logprobs] = e;
  Fields(c, temperature, top_k, top_p, min_p, repetition, frequency, presence,
         last_n, bias, banned, seed, logprobs);
}
// Logits, an embedding or a classification, which exclude each other, in one
// byte: the numbers after LogitsMode's are poolings, each without and with
// normalisation, and those after them activations. A bit says that token types
// follow. Poolings through the model's layers come behind these.
template <typename C>
void Wanted(C& c, RequestOptions& e) {
  constexpr auto kLogits = static_cast<uint8_t>(LogitsMode::kGenerated);
  constexpr auto kPoolings =
      static_cast<uint8_t>(kLogits + 2 * static_cast<uint8_t>(Pooling::kLast));
  constexpr auto kLabels = static_cast<uint8_t>(
      kPoolings + 1 + static_cast<uint8_t>(LabelActivation::kSoftmax));
  constexpr auto kLast = static_cast<uint8_t>(kLabels + kPoolings - kLogits);
  constexpr uint8_t kTypes = 0x80;
  auto wanted = static_cast<uint8_t>(e.logits);
  if (e.pooling != Pooling::kNone) {
    wanted = static_cast<uint8_t>((e.projects ? kLabels : kLogits) +
                                  2 * static_cast<uint8_t>(e.pooling) -
                                  (e.normalise ? 0 : 1));
  } else if (e.classifies) {
    wanted = static_cast<uint8_t>(kPoolings + 1 +
                                  static_cast<uint8_t>(e.activation));
  }
  if (!e.token_types.empty()) wanted |= kTypes;
  Small(c, wanted, kTypes | kLast);
  const bool types = (wanted & kTypes) != 0;
  if constexpr (!C::kWrites) {
    wanted &= static_cast<uint8_t>(~kTypes);
    if (wanted > kLast) wanted = static_cast<uint8_t>(c.Fail());
    e.projects = wanted > kLabels;
    const int rest = wanted - (e.projects ? kLabels : kLogits);
    e.classifies = wanted > kPoolings && !e.projects;
    const bool embeds = rest > 0 && !e.classifies;
    e.logits = rest > 0 ? LogitsMode::kNone : static_cast<LogitsMode>(wanted);
    e.pooling = embeds ? static_cast<Pooling>((rest + 1) / 2) : Pooling::kNone;
    e.normalise = embeds && rest % 2 == 0;
    e.activation = e.classifies
                       ? static_cast<LabelActivation>(wanted - kPoolings - 1)
                       : LabelActivation::kIdentity;
  }
  if (types) Field(c, e.token_types);
}
template <typename C>
void Code(C& c, RequestOptions& e) {
  auto& [input, mode, text, tokens, text_pair, is_pair, types,
         prompt_for_answer, add_special, parse_special, max_tokens, ignore_eos,
         stop_tokens, stop_strings, sampling, logits, positions, score, pooling,
         projects, normalise, defaults, classifies, activation, label_defaults,
         resume, priority, deadline, share, tag, user_data] = e;
  // What the input was made of is not in it, nor what only the host can follow.
  static_cast<void>(input), static_cast<void>(text);
  static_cast<void>(text_pair), static_cast<void>(is_pair);
  static_cast<void>(prompt_for_answer), static_cast<void>(add_special);
  static_cast<void>(parse_special), static_cast<void>(user_data);
  // Resolved when it was submitted.
  static_cast<void>(defaults), static_cast<void>(label_defaults);
  // Wanted() has them.
  static_cast<void>(logits), static_cast<void>(pooling);
  static_cast<void>(projects);
  static_cast<void>(normalise), static_cast<void>(classifies);
  static_cast<void>(activation), static_cast<void>(types);
  Small(c, mode, static_cast<uint8_t>(InputMode::kReplace));
  Wanted(c, e);
  Fields(c, tokens, max_tokens, ignore_eos, stop_tokens, stop_strings, sampling,
         positions, score, resume, priority, deadline, share, tag);
}
template <typename C>
void Code(C& c, CreateEntry& e) {
  Fields(c, e.session);
}
template <typename C>
void Code(C& c, ForkEntry& e) {
  Fields(c, e.session, e.fork);
}
template <typename C>
void Code(C& c, RewindEntry& e) {
  Fields(c, e.session, e.num_tokens);
}
template <typename C>
void Code(C& c, ReleaseEntry& e) {
  Fields(c, e.session);
}
template <typename C>
void Code(C& c, SubmitEntry& e) {
  Fields(c, e.session, e.request, e.now_us, e.options);
}
template <typename C>
void Code(C& c, CancelEntry& e) {
  Fields(c, e.request);
}
template <typename C>
void Code(C& c, QuoteEntry& e) {
  Fields(c, e.session, e.options, e.reserve);
}
template <typename C>
void Code(C& c, RestoreEntry& e) {
  Fields(c, e.session, e.snapshot);
}
template <typename C>
void Code(C& c, BeginRestoreEntry& e) {
  Fields(c, e.session, e.snapshot);
}
template <typename C>
void Code(C& c, EndRestoreEntry& e) {
  Fields(c, e.session, e.written);
}
template <typename C>
void Code(C& c, ResizeEntry& e) {
  Fields(c, e.now_us, e.next_id, e.bytes);
}
template <typename C>
void Code(C& c, CreatePrefixEntry& e) {
  Fields(c, e.prefix, e.now_us, e.name, e.tokens, e.pin, e.budget_bytes);
}
template <typename C>
void Code(C& c, RetainPrefixEntry& e) {
  Fields(c, e.prefix);
}
template <typename C>
void Code(C& c, PinPrefixEntry& e) {
  Fields(c, e.prefix, e.now_us, e.next_id, e.pinned);
}
template <typename C>
void Code(C& c, OpenPrefixEntry& e) {
  Fields(c, e.prefix, e.session);
}
template <typename C>
void Code(C& c, ReleasePrefixEntry& e) {
  Fields(c, e.prefix);
}
template <typename C>
void Code(C& c, StepItem& e) {
  Fields(c, e.id, e.first_token, e.num_tokens, e.samples);
}
template <typename C>
void Code(C& c, PlanEntry& e) {
  Fields(c, e.input.now_us, e.input.budget_us, e.input.must_progress, e.items,
         e.preempted, e.expired);
}
template <typename C>
void Code(C& c, CommitEntry::Item& e) {
  uint8_t flags = 0;
  if constexpr (C::kWrites) {
    flags = static_cast<uint8_t>(
        (e.result.tokens_appended > 0 ? 1 : 0) | (e.result.finished ? 2 : 0) |
        (e.result.computed ? 4 : 0) | (e.failed ? 8 : 0));
  }
  Small(c, flags, 15);
  if constexpr (!C::kWrites) {
    e.result = {flags & 1, (flags & 2) != 0, (flags & 4) != 0};
    e.failed = (flags & 8) != 0;
  }
  if ((flags & 1) != 0) Field(c, e.token);
}
template <typename C>
void Code(C& c, CommitEntry& e) {
  Fields(c, e.elapsed_us, e.items);
}
template <typename C>
void Code(C&, EndEntry&) {}

template <typename C, typename A, typename B>
void Code(C& c, std::pair<A, B>& e) {
  Fields(c, e.first, e.second);
}
template <typename C, typename T>
void Code(C& c, std::vector<T>& e) {
  List(c, e);
}

template <typename C, typename T>
void Field(C& c, T& value) {
  if constexpr (std::is_same_v<T, bool>) {
    Small(c, value, 1);
  } else if constexpr (std::is_integral_v<T>) {
    Number(c, value);
  } else if constexpr (std::is_same_v<T, float>) {
    Real(c, value);
  } else if constexpr (std::is_same_v<T, std::string>) {
    Bytes(c, value);
  } else {
    Code(c, value);
  }
}

constexpr std::array<std::string_view, std::variant_size_v<RecordingEntry>>
    kNames = {"header",         "session",       "prefix",     "create",
              "fork",           "rewind",        "release",    "submit",
              "cancel",         "quote",         "restore",    "resize",
              "create prefix",  "retain prefix", "pin prefix", "open prefix",
              "release prefix", "plan",          "commit",     "end",
              "begin restore",  "end restore"};

// The variant whose alternative is the one of that number.
template <size_t... kIndices>
RecordingEntry Alternative(size_t index, std::index_sequence<kIndices...>) {
  RecordingEntry entry;
  (void)((index == kIndices ? (entry.emplace<kIndices>(), true) : false) ||
         ...);
  return entry;
}

}  // namespace

void EncodeEntry(const RecordingEntry& entry, std::string* bytes) {
  Encoder encoder(bytes);
  encoder.Byte(static_cast<uint8_t>(entry.index()));
  // The encoder only reads; the description of the fields serves both ways.
  std::visit([&](auto& fields) { Code(encoder, fields); },
             const_cast<RecordingEntry&>(entry));
}

absl::StatusOr<RecordingEntry> DecodeEntry(std::string_view bytes) {
  constexpr size_t kTypes = std::variant_size_v<RecordingEntry>;
  if (bytes.empty()) return absl::InvalidArgumentError("an entry is empty");
  const auto type = static_cast<uint8_t>(bytes.front());
  if (type >= kTypes) {
    return absl::UnimplementedError(
        FormattedString("an entry is of type %d, this library knows 0 to %d",
                        type, kTypes - 1));
  }
  RecordingEntry entry = Alternative(type, std::make_index_sequence<kTypes>());
  Decoder decoder(bytes.substr(1));
  std::visit([&](auto& fields) { Code(decoder, fields); }, entry);
  if (decoder.failed() || decoder.left() > 0) {
    return absl::InvalidArgumentError(FormattedString(
        "the fields of an entry \"%s\" of %d bytes are not what they must be",
        EntryName(entry), bytes.size()));
  }
  return entry;
}

std::string_view EntryName(const RecordingEntry& entry) {
  return kNames[entry.index()];
}

}  // namespace inlay
