// The payloads behind Value. Built by Env only, which charges and bounds them.
#ifndef INLAY_CORE_TEXT_TEMPLATE_VALUE_REPS_H_
#define INLAY_CORE_TEXT_TEMPLATE_VALUE_REPS_H_

#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/text/template/value.h"

namespace inlay::tmpl {

struct StringRep : Rep {
  std::string text;      // valid UTF-8
  size_t num_chars = 0;  // code points
};

struct ListRep : Rep {
  std::vector<Value> items;
  int depth = 1;
  bool is_group = false;  // a pair of groupby: has .grouper and .list
};

struct DictRep : Rep {
  std::vector<std::pair<Value, Value>> entries;  // in insertion order
  // Hash of the key -> positions in `entries`; only for more than kLinear.
  std::unordered_multimap<uint64_t, uint32_t> index;
  int depth = 1;
  static constexpr size_t kLinear = 8;
};

struct RangeRep : Rep {
  Int start = 0, stop = 0, step = 1;
  int64_t size = 0;
};

struct MethodRep : Rep {
  Value self;
  const NativeDef* def = nullptr;
};

// Elements were computed eagerly; `next` is how far they have been consumed.
// The elements are older than the iterator, so it cannot own itself.
struct IteratorRep : Rep {
  std::vector<Value> items;
  mutable size_t next = 0;
  int depth = 1;
  std::string_view type_name = "generator";
};

struct NamespaceObject : Object {
  std::vector<std::pair<std::string, Value>> order;
  Value* Find(std::string_view name) {
    for (auto& [key, value] : order) {
      if (key == name) return &value;
    }
    return nullptr;
  }
};

}  // namespace inlay::tmpl

#endif  // INLAY_CORE_TEXT_TEMPLATE_VALUE_REPS_H_
