// Python's protocols on values: truth, equality, order, hashing, membership,
// length, iteration. Deep walks are charged to the budget, since shared
// structure can make a small value an exponentially large tree.
#ifndef INLAY_CORE_TEXT_TEMPLATE_VALUE_OPS_H_
#define INLAY_CORE_TEXT_TEMPLATE_VALUE_OPS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/text/template/env.h"
#include "core/text/template/value.h"

namespace inlay::tmpl {

bool Truth(const Value& value);
absl::StatusOr<bool> Equal(Budget& budget, const Value& a, const Value& b);
// INVALID_ARGUMENT where Python raises TypeError ('<' between str and int).
absl::StatusOr<bool> Less(Budget& budget, const Value& a, const Value& b);
// For messages and Python's operator names: <, <=, >, >=.
enum class Order : uint8_t { kLess, kLessEqual, kGreater, kGreaterEqual };
absl::StatusOr<bool> Compare(Budget& budget, Order order, const Value& a,
                             const Value& b);
bool Identical(const Value& a, const Value& b);  // Python's `is`, near enough

absl::StatusOr<uint64_t> Hash(Budget& budget, const Value& key);
// The position of `key` among the entries, or -1.
absl::StatusOr<int64_t> FindKey(Budget& budget, const DictRep& dict,
                                const Value& key, uint64_t hash);
// The member of a dictionary, or nullptr. An unhashable key is an error.
absl::StatusOr<const Value*> Lookup(Budget& budget, const Value& dict,
                                    const Value& key);
const Value* LookupText(const Value& dict, std::string_view key);

// `item in container`.
absl::StatusOr<bool> Contains(Env& env, const Value& container,
                              const Value& item);
// len(value).
absl::StatusOr<int64_t> Length(const Value& value);
bool IsIterable(const Value& value);

// Walks what Python's iter() would walk. Keeps the value alive.
class ValueIterator {
 public:
  // INVALID_ARGUMENT for what is not iterable.
  static absl::StatusOr<ValueIterator> Over(Env& env, const Value& value);
  // False at the end. Costs a step.
  absl::StatusOr<bool> Next(Value& out);
  // How many are left, for a value whose length Python knows; else -1.
  int64_t known_length() const;

 private:
  ValueIterator(Env& env, const Value& value) : env_(&env), value_(value) {}
  Env* env_;
  Value value_;
  size_t pos_ = 0;  // byte offset in a string, else an index
};

absl::StatusOr<std::vector<Value>> ToVector(Env& env, const Value& value);

// What an operation on an undefined value, or on one of another type, reports.
absl::Status UndefinedError(const Value& value);
absl::Status TypeError(std::string message);

}  // namespace inlay::tmpl

#endif  // INLAY_CORE_TEXT_TEMPLATE_VALUE_OPS_H_
