#include "core/formats/safetensors_json.h"

#include <utility>

#include "core/formats/describe.h"
#include "core/json/json.h"
#include "memory/formatted_string.h"

namespace inlay {
namespace {

constexpr std::string_view kMetadataName = "__metadata__";

// Where the next event stands.
enum class Place {
  kDocument,  // before the outer object
  kTensors,   // inside it: names of tensors
  kEntry,     // after a tensor's name or inside its object
  kMetadata,
  kArray,
};

enum Field : unsigned { kNone = 0, kDtype = 1, kShape = 2, kOffsets = 4 };
constexpr unsigned kAllFields = kDtype | kShape | kOffsets;

// Takes nlohmann's SAX events; false stops the parse, with status() saying why.
class HeaderHandler final : public nlohmann::json_sax<Json> {
 public:
  explicit HeaderHandler(const SafetensorsJsonLimits& limits)
      : limits_(limits) {}

  const absl::Status& status() const { return status_; }
  std::vector<SafetensorsEntry>& entries() { return entries_; }

  bool null() override { return Unexpected("null"); }
  bool boolean(bool) override { return Unexpected("a boolean"); }
  bool number_integer(number_integer_t) override {
    return Unexpected("a negative number");
  }
  bool number_float(number_float_t, const string_t&) override {
    return Unexpected("a number that is no 64-bit integer");
  }
  bool binary(binary_t&) override { return Unexpected("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (place_ != Place::kArray) return Unexpected("a number");
    SafetensorsEntry& entry = entries_.back();
    if (field_ == kShape) {
      if (entry.shape.size() == limits_.max_rank) {
        return Fail(absl::ResourceExhaustedError(
            FormattedString("tensor %s has more than the %d dimensions allowed",
                            Quoted(entry.name), limits_.max_rank)));
      }
      entry.shape.push_back(value);
      return true;
    }
    if (entry.data_offsets.size() == 2) return Unexpected("a third number");
    entry.data_offsets.push_back(value);
    return true;
  }

  bool string(string_t& value) override {
    if (place_ == Place::kMetadata && in_object_) return true;
    if (place_ != Place::kEntry || field_ != kDtype) {
      return Unexpected("a string");
    }
    entries_.back().dtype = std::move(value);
    field_ = kNone;
    return true;
  }

  bool start_object(std::size_t) override {
    if (place_ == Place::kDocument) {
      place_ = Place::kTensors;
      return true;
    }
    const bool wanted =
        (place_ == Place::kEntry || place_ == Place::kMetadata) && !in_object_;
    if (!wanted) return Unexpected("an object");
    in_object_ = true;
    return true;
  }

  bool key(string_t& value) override {
    switch (place_) {
      case Place::kTensors:
        return StartEntry(value);
      case Place::kEntry:
        return StartField(value);
      default:
        return true;  // metadata: any key
    }
  }

  bool end_object() override {
    // The end of the outer object: the parser itself refuses what follows.
    if (!in_object_) return true;
    if (place_ == Place::kEntry && fields_seen_ != kAllFields) {
      return Fail(absl::InvalidArgumentError(FormattedString(
          "tensor %s lacks one of \"dtype\", \"shape\", \"data_offsets\"",
          Quoted(entries_.back().name))));
    }
    in_object_ = false;
    place_ = Place::kTensors;
    return true;
  }

  bool start_array(std::size_t) override {
    if (place_ != Place::kEntry || (field_ != kShape && field_ != kOffsets)) {
      return Unexpected("an array");
    }
    place_ = Place::kArray;
    return true;
  }

  bool end_array() override {
    place_ = Place::kEntry;
    if (field_ == kOffsets && entries_.back().data_offsets.size() != 2) {
      return Unexpected("fewer than two numbers");
    }
    field_ = kNone;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    // It quotes the text: cut, and freed of what may be no UTF-8.
    std::string reason = std::string(error.what()).substr(0, 200);
    for (char& c : reason) {
      if (c < ' ' || c > '~') c = '?';
    }
    return Fail(absl::InvalidArgumentError(FormattedString(
        "the header is not valid JSON at its byte %d: %s", position, reason)));
  }

 private:
  bool Fail(absl::Status status) {
    status_ = std::move(status);
    return false;
  }

  bool Unexpected(std::string_view what) {
    switch (place_) {
      case Place::kMetadata:
        return Fail(absl::InvalidArgumentError(FormattedString(
            "\"__metadata__\" holds %s, allowed: a map of strings", what)));
      case Place::kEntry:
      case Place::kArray:
        return Fail(absl::InvalidArgumentError(
            FormattedString("tensor %s: %s where %s is allowed",
                            Quoted(entries_.back().name), what, Wanted())));
      default:
        return Fail(absl::InvalidArgumentError(FormattedString(
            "the header is %s, allowed: an object of tensors", what)));
    }
  }

  std::string_view Wanted() const {
    switch (field_) {
      case kDtype:
        return "the name of a data type";
      case kShape:
        return "an array of dimensions >= 0";
      case kOffsets:
        return "an array of two offsets >= 0";
      default:
        return "an object of \"dtype\", \"shape\" and \"data_offsets\"";
    }
  }

  bool StartEntry(std::string& name) {
    if (name == kMetadataName) {
      if (metadata_seen_) {
        return Fail(absl::InvalidArgumentError(
            "\"__metadata__\" appears twice in the header"));
      }
      metadata_seen_ = true;
      place_ = Place::kMetadata;
      return true;
    }
    if (entries_.size() == limits_.max_tensors) {
      return Fail(absl::ResourceExhaustedError(
          FormattedString("the header has more than the %d tensors allowed",
                          limits_.max_tensors)));
    }
    entries_.emplace_back().name = std::move(name);
    fields_seen_ = kNone;
    field_ = kNone;
    place_ = Place::kEntry;
    return true;
  }

  bool StartField(const std::string& key) {
    field_ = key == "dtype"          ? kDtype
             : key == "shape"        ? kShape
             : key == "data_offsets" ? kOffsets
                                     : kNone;
    if (field_ == kNone || (fields_seen_ & field_) != 0) {
      return Fail(absl::InvalidArgumentError(FormattedString(
          "tensor %s has the key %s %s, allowed: \"dtype\", \"shape\" and "
          "\"data_offsets\" once each",
          Quoted(entries_.back().name), Quoted(key),
          field_ == kNone ? "(unknown)" : "twice")));
    }
    fields_seen_ |= field_;
    return true;
  }

  const SafetensorsJsonLimits limits_;
  absl::Status status_;
  std::vector<SafetensorsEntry> entries_;
  Place place_ = Place::kDocument;
  bool in_object_ = false;  // inside a tensor's or the metadata's object
  bool metadata_seen_ = false;
  Field field_ = kNone;  // of the last key, until its value is complete
  unsigned fields_seen_ = kNone;
};

}  // namespace

absl::StatusOr<std::vector<SafetensorsEntry>> ParseSafetensorsJson(
    std::string_view json, const SafetensorsJsonLimits& limits) {
  HeaderHandler handler(limits);
  try {
    if (!Json::sax_parse(json, &handler)) return handler.status();
  } catch (const Json::exception& error) {
    return absl::InvalidArgumentError(
        FormattedString("the header is not valid JSON: %s", error.what()));
  }
  return std::move(handler.entries());
}

}  // namespace inlay
