// The members of nlohmann's value that are ours.
#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "core/json/json.h"

namespace inlay {
namespace {

using Type = nlohmann::detail::value_t;

// None where an assignment threw before it had it.
template <typename T>
void Free(T* child) {
  if (child == nullptr) return;
  std::destroy_at(child);
  std::allocator<T>().deallocate(child, 1);
}

template <typename Value>
void Destroy(Value& value, Type type) {
  if (type == Type::object) {
    Free(value.object);
  } else if (type == Type::array) {
    Free(value.array);
  } else if (type == Type::string) {
    Free(value.string);
  } else if (type == Type::binary) {
    Free(value.binary);
  }
}

// As nlohmann's: a list of pairs that begin with a string is an object, unless
// an array is asked for.
template <typename J>
J FromList(typename J::initializer_list_t list, bool deduce, Type type) {
  const bool is_object = (deduce || type == Type::object) &&
                         std::ranges::all_of(list, [](const auto& item) {
                           return item->is_array() && item->size() == 2 &&
                                  item->front().is_string();
                         });
  J value(is_object ? Type::object : Type::array);
  if (is_object) {
    auto& members = value.template get_ref<typename J::object_t&>();
    for (const auto& item : list) {
      J pair = item.moved_or_copied();
      members.emplace(std::move(pair.front().template get_ref<std::string&>()),
                      std::move(pair.back()));
    }
  } else {
    auto& items = value.template get_ref<typename J::array_t&>();
    items.reserve(list.size());
    for (const auto& item : list) items.push_back(item.moved_or_copied());
  }
  return value;
}

template <typename J>
bool IsText(const J& value, std::string_view text) {
  return value.is_string() &&
         value.template get_ref<const std::string&>() == text;
}

}  // namespace

bool json_value::operator==(const Json& value, const char* text) {
  return IsText(value, text);
}

bool json_value::operator==(const OrderedJson& value, const char* text) {
  return IsText(value, text);
}

}  // namespace inlay

template <>
void inlay::Json::json_value::destroy(value_t type) {
  inlay::Destroy(*this, type);
}

template <>
void inlay::OrderedJson::json_value::destroy(value_t type) {
  inlay::Destroy(*this, type);
}

template <>
inlay::Json::basic_json(initializer_list_t list, bool deduce, value_t type)
    : basic_json() {
  *this = inlay::FromList<inlay::Json>(list, deduce, type);
}

template <>
inlay::OrderedJson::basic_json(initializer_list_t list, bool deduce,
                               value_t type)
    : basic_json() {
  *this = inlay::FromList<inlay::OrderedJson>(list, deduce, type);
}
