#include "core/text/template/env.h"

#include <algorithm>

#include "core/text/template/unicode.h"
#include "core/text/template/value_ops.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay::tmpl {
namespace {

// What an allocation costs beyond its contents.
constexpr size_t kRepBytes = 96;

}  // namespace

absl::Status Env::Charge(Rep& rep, size_t bytes) {
  bytes += kRepBytes;
  INLAY_RETURN_IF_ERROR(budget_.CheckRoom(bytes));
  INLAY_RETURN_IF_ERROR(budget_.SpendBytes(bytes));
  budget_.Take(bytes);
  rep.account = &budget_;
  rep.charged_bytes = bytes;
  return absl::OkStatus();
}

absl::Status Env::CheckDepth(int depth) const {
  // Twice, because templates wrap the host's values, which may use all of it.
  const int max = 2 * budget_.limits().max_depth;
  if (depth > max) {
    return absl::ResourceExhaustedError(FormattedString(
        "values nested %d deep, at most %d allowed", depth, max));
  }
  return absl::OkStatus();
}

absl::StatusOr<Value> Env::String(std::string text) {
  auto rep = std::make_shared<StringRep>();
  INLAY_RETURN_IF_ERROR(Charge(*rep, text.size()));
  rep->num_chars = CountChars(text);
  rep->text = std::move(text);
  return Value::OfRep(Kind::kString, std::move(rep));
}

absl::StatusOr<Value> Env::Sequence(Kind kind, std::vector<Value> items,
                                    bool is_group) {
  auto rep = std::make_shared<ListRep>();
  for (const Value& item : items) {
    rep->depth = std::max(rep->depth, 1 + item.depth());
  }
  INLAY_RETURN_IF_ERROR(CheckDepth(rep->depth));
  INLAY_RETURN_IF_ERROR(Charge(*rep, items.size() * sizeof(Value)));
  rep->items = std::move(items);
  rep->is_group = is_group;
  return Value::OfRep(kind, std::move(rep));
}

absl::StatusOr<Value> Env::List(std::vector<Value> items) {
  return Sequence(Kind::kList, std::move(items), false);
}

absl::StatusOr<Value> Env::Tuple(std::vector<Value> items) {
  return Sequence(Kind::kTuple, std::move(items), false);
}

absl::StatusOr<Value> Env::Group(Value grouper, Value list) {
  return Sequence(Kind::kTuple, {std::move(grouper), std::move(list)}, true);
}

absl::StatusOr<Value> Env::Iterator(std::vector<Value> items,
                                    std::string_view type_name) {
  auto rep = std::make_shared<IteratorRep>();
  for (const Value& item : items) {
    rep->depth = std::max(rep->depth, 1 + item.depth());
  }
  INLAY_RETURN_IF_ERROR(CheckDepth(rep->depth));
  INLAY_RETURN_IF_ERROR(Charge(*rep, items.size() * sizeof(Value)));
  rep->items = std::move(items);
  rep->type_name = type_name;
  return Value::OfRep(Kind::kIterator, std::move(rep));
}

absl::StatusOr<Value> Env::Range(Int start, Int stop, Int step, int64_t size) {
  auto rep = std::make_shared<RangeRep>();
  INLAY_RETURN_IF_ERROR(Charge(*rep, 0));
  rep->start = start;
  rep->stop = stop;
  rep->step = step;
  rep->size = size;
  return Value::OfRep(Kind::kRange, std::move(rep));
}

absl::StatusOr<Value> Env::Method(const Value& self, const NativeDef* def) {
  auto rep = std::make_shared<MethodRep>();
  INLAY_RETURN_IF_ERROR(CheckDepth(1 + self.depth()));
  INLAY_RETURN_IF_ERROR(Charge(*rep, 0));
  rep->self = self;
  rep->def = def;
  return Value::OfRep(Kind::kMethod, std::move(rep));
}

absl::Status DictBuilder::Put(const Value& key, Value value, bool replace) {
  INLAY_RETURN_IF_ERROR(env_.budget().Spend(1));
  INLAY_ASSIGN_OR_RETURN(const uint64_t hash, Hash(env_.budget(), key));
  INLAY_ASSIGN_OR_RETURN(const int64_t at,
                         FindKey(env_.budget(), *rep_, key, hash));
  if (at >= 0) {
    if (replace) {
      rep_->entries[static_cast<size_t>(at)].second = std::move(value);
    }
    return absl::OkStatus();
  }
  rep_->entries.emplace_back(key, std::move(value));
  const size_t n = rep_->entries.size();
  if (n == DictRep::kLinear + 1) {
    for (size_t i = 0; i + 1 < n; ++i) {
      INLAY_ASSIGN_OR_RETURN(const uint64_t old,
                             Hash(env_.budget(), rep_->entries[i].first));
      rep_->index.emplace(old, static_cast<uint32_t>(i));
    }
  }
  if (n > DictRep::kLinear) {
    rep_->index.emplace(hash, static_cast<uint32_t>(n - 1));
  }
  return absl::OkStatus();
}

absl::StatusOr<Value> DictBuilder::Build() {
  for (const auto& [key, value] : rep_->entries) {
    rep_->depth =
        std::max(rep_->depth, 1 + std::max(key.depth(), value.depth()));
  }
  INLAY_RETURN_IF_ERROR(env_.CheckDepth(rep_->depth));
  constexpr size_t kIndexEntryBytes = 48;
  INLAY_RETURN_IF_ERROR(env_.Charge(
      *rep_, rep_->entries.size() * (2 * sizeof(Value) + kIndexEntryBytes)));
  return Value::OfRep(Kind::kDict, std::move(rep_));
}

bool TextSink::Admit(size_t bytes) {
  if (full()) return false;
  if (bytes > max_bytes_ - text_.size()) {
    status_ = absl::ResourceExhaustedError(FormattedString(
        "text of more than the %d bytes allowed here", max_bytes_));
  } else {
    status_ = budget_.Spend(static_cast<int64_t>(bytes / kBytesAStep));
  }
  return status_.ok();
}

void TextSink::Append(std::string_view text) {
  if (Admit(text.size())) text_.append(text);
}

void TextSink::AppendRepeated(std::string_view text, int64_t times) {
  if (text.empty() || times <= 0 || full()) return;
  const auto count = static_cast<size_t>(times);
  if (count > max_bytes_ / text.size()) {
    Admit(max_bytes_ + 1);
    return;
  }
  if (!Admit(count * text.size())) return;
  text_.reserve(text_.size() + count * text.size());
  for (size_t i = 0; i < count; ++i) text_.append(text);
}

absl::StatusOr<std::string> TextSink::Take() {
  if (!status_.ok()) return status_;
  return std::move(text_);
}

}  // namespace inlay::tmpl
