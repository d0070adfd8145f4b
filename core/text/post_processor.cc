// Reads the processors into templates.
#include "core/text/post_processor.h"

#include "core/text/tokenizer_spec.h"
#include "core/text/vocabulary.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

using Kind = TemplateItem::Kind;

// A template is a handful of tokens; a file that says more means harm.
constexpr size_t kMaxItems = 4096;
constexpr int64_t kMaxType = 1 << 20;

absl::Status BadTemplate(std::string_view what) {
  return absl::InvalidArgumentError(
      FormattedString("post_processor TemplateProcessing: %s", what));
}

absl::Status CheckId(const Json& id) {
  // Parsed numbers are unsigned, those of a document made in memory need not
  // be; an unsigned one too large for int64_t reads as negative.
  if (id.is_number_integer() && id.get<int64_t>() >= 0 &&
      id.get<int64_t>() <= kMaxTokenId) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      FormattedString("post_processor: id %s, allowed: an integer from 0 to %d",
                      ShownJson(id), kMaxTokenId));
}

// The ids that a template's special token `name` stands for.
absl::Status AppendSpecial(const Json& spec, std::string_view name,
                           int32_t type, std::vector<TemplateItem>* items) {
  const Json* table = JsonFind(spec, "special_tokens");
  const Json* entry = table == nullptr ? nullptr : JsonFind(*table, name);
  const Json* ids = entry == nullptr ? nullptr : JsonFind(*entry, "ids");
  if (ids == nullptr || !ids->is_array()) {
    return BadTemplate(FormattedString(
        "\"special_tokens\" has no ids for \"%s\"", name.substr(0, 80)));
  }
  for (const Json& id : *ids) {
    INLAY_RETURN_IF_ERROR(CheckId(id));
    items->push_back({Kind::kId, id.get<int32_t>(), type});
    if (items->size() > kMaxItems) return BadTemplate("too many tokens");
  }
  return absl::OkStatus();
}

absl::StatusOr<int32_t> ReadType(const Json& piece) {
  INLAY_ASSIGN_OR_RETURN(const int64_t type,
                         JsonInt(piece, "type_id", 0, 0, kMaxType));
  return static_cast<int32_t>(type);
}

absl::StatusOr<std::vector<TemplateItem>> ReadTemplate(const Json& spec,
                                                       std::string_view key) {
  INLAY_ASSIGN_OR_RETURN(const Json* list, SpecArray(spec, key));
  std::vector<TemplateItem> items;
  for (const Json& piece : *list) {
    if (const Json* special = JsonFind(piece, "SpecialToken")) {
      INLAY_ASSIGN_OR_RETURN(const std::string name,
                             JsonString(*special, "id", ""));
      INLAY_ASSIGN_OR_RETURN(const int32_t type, ReadType(*special));
      INLAY_RETURN_IF_ERROR(AppendSpecial(spec, name, type, &items));
    } else if (const Json* sequence = JsonFind(piece, "Sequence")) {
      const Json* name = JsonFind(*sequence, "id");
      if (name == nullptr || (*name != "A" && *name != "B")) {
        return BadTemplate("a Sequence's id, allowed: A, B");
      }
      const Kind kind = *name == "A" ? Kind::kFirst : Kind::kSecond;
      for (const TemplateItem& item : items) {
        if (item.kind == kind) return BadTemplate("a Sequence comes twice");
      }
      INLAY_ASSIGN_OR_RETURN(const int32_t type, ReadType(*sequence));
      items.push_back({kind, 0, type});
    } else {
      return BadTemplate("a piece, allowed: SpecialToken, Sequence");
    }
    if (items.size() > kMaxItems) return BadTemplate("too many tokens");
  }
  return items;
}

absl::StatusOr<PostProcessor> ReadTemplates(const Json& spec) {
  PostProcessor result;
  INLAY_ASSIGN_OR_RETURN(result.single, ReadTemplate(spec, "single"));
  if (JsonFind(spec, "pair") != nullptr) {
    INLAY_ASSIGN_OR_RETURN(result.pair, ReadTemplate(spec, "pair"));
  }
  return result;
}

// The id of ["text", id].
absl::StatusOr<TemplateItem> ReadNamed(const Json& spec, std::string_view key) {
  INLAY_ASSIGN_OR_RETURN(const Json* pair, SpecArray(spec, key));
  if (pair->size() != 2) {
    return absl::InvalidArgumentError(
        FormattedString("post_processor: \"%s\" is not [token, id]", key));
  }
  INLAY_RETURN_IF_ERROR(CheckId((*pair)[1]));
  return TemplateItem{Kind::kId, (*pair)[1].get<int32_t>()};
}

// [CLS] A [SEP] B [SEP]; RoBERTa has two separators in the middle, and one
// type.
absl::StatusOr<PostProcessor> ReadBert(const Json& spec, bool roberta) {
  INLAY_ASSIGN_OR_RETURN(const TemplateItem cls, ReadNamed(spec, "cls"));
  INLAY_ASSIGN_OR_RETURN(const TemplateItem sep, ReadNamed(spec, "sep"));
  PostProcessor result;
  result.single = {cls, {Kind::kFirst}, sep};
  result.pair = result.single;
  if (roberta) result.pair.push_back(sep);
  const int32_t type = roberta ? 0 : 1;
  result.pair.push_back({Kind::kSecond, 0, type});
  result.pair.push_back({Kind::kId, sep.id, type});
  return result;
}

absl::StatusOr<PostProcessor> ReadSequence(const Json& spec) {
  INLAY_ASSIGN_OR_RETURN(const Json* list, SpecArray(spec, "processors"));
  PostProcessor result;
  bool adds_tokens = false;
  for (const Json& item : *list) {
    INLAY_ASSIGN_OR_RETURN(const std::string type,
                           SpecType(item, "post_processor"));
    if (type == "ByteLevel") continue;
    if (adds_tokens) {
      return absl::UnimplementedError(FormattedString(
          "post_processor Sequence: \"%s\" after another that adds tokens is "
          "not supported",
          type.substr(0, 80)));
    }
    INLAY_ASSIGN_OR_RETURN(result, MakePostProcessor(item));
    adds_tokens = true;
  }
  return result;
}

}  // namespace

absl::StatusOr<PostProcessor> MakePostProcessor(const Json& spec) {
  if (spec.is_null()) return PostProcessor();
  INLAY_ASSIGN_OR_RETURN(const std::string type,
                         SpecType(spec, "post_processor"));
  if (type == "TemplateProcessing") return ReadTemplates(spec);
  if (type == "ByteLevel") return PostProcessor();
  if (type == "BertProcessing") return ReadBert(spec, /*roberta=*/false);
  if (type == "RobertaProcessing") return ReadBert(spec, /*roberta=*/true);
  if (type == "Sequence") return ReadSequence(spec);
  return UnknownType(type, "post_processor");
}

void ApplyTemplate(absl::Span<const TemplateItem> items, bool add_special,
                   absl::Span<const int32_t> first,
                   absl::Span<const int32_t> second, std::vector<int32_t>* ids,
                   std::vector<int32_t>* types) {
  const size_t before = ids->size();
  const size_t types_before = types == nullptr ? 0 : types->size();
  for (const TemplateItem& item : items) {
    switch (item.kind) {
      case Kind::kId:
        if (add_special) ids->push_back(item.id);
        break;
      case Kind::kFirst:
        ids->insert(ids->end(), first.begin(), first.end());
        break;
      case Kind::kSecond:
        ids->insert(ids->end(), second.begin(), second.end());
        break;
    }
    if (types != nullptr) {
      types->resize(types_before + ids->size() - before, item.type);
    }
  }
}

}  // namespace inlay
