#include "core/engine/chat_continuation.h"

#include <algorithm>
#include <string_view>

#include "core/text/template/unicode.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

// The blank at the end tells whether the template strips what it prints.
constexpr std::string_view kMark = "CONTINUE_FINAL_MESSAGE_TAG ";
constexpr std::string_view kBareMark = kMark.substr(0, kMark.size() - 1);

// What messages may have of an assistant's reasoning: the same thing by three
// names, of which a template reads any.
constexpr const char* kReasoning[] = {"reasoning_content", "thinking",
                                      "reasoning"};

bool IsReasoning(std::string_view member) {
  return std::find(std::begin(kReasoning), std::end(kReasoning), member) !=
         std::end(kReasoning);
}

// The string in which a content ends; null: none.
OrderedJson* LastText(OrderedJson& content) {
  if (content.is_string()) return &content;
  if (!content.is_array()) return nullptr;
  for (auto part = content.rbegin(); part != content.rend(); ++part) {
    if (!part->is_object()) continue;
    const auto text = part->find("text");
    if (text != part->end()) return text->is_string() ? &*text : nullptr;
  }
  return nullptr;
}

void AppendMark(OrderedJson& text) {
  text.get_ref<std::string&>().append(kMark);
}

}  // namespace

absl::StatusOr<ChatContinuation> ChatContinuation::Create(
    const OrderedJson& asked) {
  ChatContinuation result;
  if (asked.is_string()) {
    result.member_ = asked.get<std::string>();
  } else if (asked.is_boolean()) {
    if (asked.get<bool>()) result.member_ = "content";
  } else if (!asked.is_null()) {
    return absl::InvalidArgumentError(FormattedString(
        "\"continue_final_message\" is of type %s, allowed: true, false, or "
        "the name of the last message's member to continue",
        asked.type_name()));
  }
  return result;
}

absl::Status ChatContinuation::Mark(OrderedJson& variables) {
  const auto prompt = variables.find("add_generation_prompt");
  if (prompt != variables.end() && !prompt->is_null() && *prompt != false) {
    return absl::InvalidArgumentError(
        "\"continue_final_message\" and \"add_generation_prompt\" are both "
        "set, allowed: one of them; the first has the last message go on, the "
        "second begins another");
  }
  const auto messages = variables.find("messages");
  if (messages == variables.end() || !messages->is_array() ||
      messages->empty() || !messages->back().is_object()) {
    return absl::InvalidArgumentError(
        "\"continue_final_message\" is set and there is no last message: "
        "\"messages\" must end with the one to continue");
  }
  OrderedJson& last = messages->back();
  const auto member = last.find(member_);
  OrderedJson* text = member == last.end() ? nullptr : LastText(*member);
  if (text == nullptr) {
    return absl::InvalidArgumentError(FormattedString(
        "\"continue_final_message\" is set and the last message has no text in "
        "\"%s\" to continue",
        member_));
  }
  continued_ = text->get<std::string>();
  if (text != &*member || !IsReasoning(member_)) {
    AppendMark(*text);
    return absl::OkStatus();
  }
  for (const char* name : kReasoning) {
    const auto same = last.find(name);
    if (same != last.end() && *same == continued_) AppendMark(*same);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ChatContinuation::Cut(std::string text) const {
  const size_t mark = text.rfind(kBareMark);
  if (mark == std::string::npos ||
      text.find(tmpl::Strip(continued_, tmpl::Ends::kBoth)) ==
          std::string::npos) {
    return absl::InvalidArgumentError(FormattedString(
        "\"continue_final_message\" is set and the chat template does not "
        "print the last message's \"%s\" as it is: it cannot be continued",
        member_));
  }
  const bool stripped = text.compare(mark, kMark.size(), kMark) != 0;
  text.resize(mark);
  if (stripped) text.resize(tmpl::Strip(text, tmpl::Ends::kRight).size());
  return text;
}

}  // namespace inlay
