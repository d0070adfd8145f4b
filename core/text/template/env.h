// One rendering's resources: the budget, the arena of mutable objects, and the
// only way to make values that cost memory. Knows nothing of syntax. Not
// thread-safe; one per rendering.
#ifndef INLAY_CORE_TEXT_TEMPLATE_ENV_H_
#define INLAY_CORE_TEXT_TEMPLATE_ENV_H_

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/civil_time.h"
#include "core/text/template/budget.h"
#include "core/text/template/value.h"
#include "core/text/template/value_reps.h"

namespace inlay::tmpl {

class Env {
 public:
  Env(const TemplateLimits& limits, absl::CivilSecond now)
      : budget_(limits), now_(now) {}

  Budget& budget() { return budget_; }
  const absl::CivilSecond& now() const { return now_; }

  // Each is RESOURCE_EXHAUSTED when the memory, step or depth budget refuses.
  absl::StatusOr<Value> String(std::string text);
  absl::StatusOr<Value> List(std::vector<Value> items);
  absl::StatusOr<Value> Tuple(std::vector<Value> items);
  absl::StatusOr<Value> Group(Value grouper, Value list);
  absl::StatusOr<Value> Iterator(std::vector<Value> items,
                                 std::string_view type_name = "generator");
  absl::StatusOr<Value> Range(Int start, Int stop, Int step, int64_t size);
  absl::StatusOr<Value> Method(const Value& self, const NativeDef* def);

  // An object that lives until the rendering ends.
  template <typename T>
  absl::StatusOr<T*> New() {
    absl::Status room = budget_.CheckRoom(sizeof(T));
    if (!room.ok()) return room;
    budget_.Take(sizeof(T));
    auto owned = std::make_unique<T>();
    T* object = owned.get();
    arena_.push_back(std::move(owned));
    return object;
  }

  // Puts `rep` under the budget.
  absl::Status Charge(Rep& rep, size_t bytes);
  absl::Status CheckDepth(int depth) const;

 private:
  absl::StatusOr<Value> Sequence(Kind kind, std::vector<Value> items,
                                 bool is_group);

  // First, so that it outlives every value the arena holds.
  Budget budget_;
  const absl::CivilSecond now_;
  std::vector<std::unique_ptr<Object>> arena_;
};

// Collects the entries of a dictionary; a repeated key keeps its place and
// takes the new value.
class DictBuilder {
 public:
  explicit DictBuilder(Env& env)
      : env_(env), rep_(std::make_shared<DictRep>()) {}
  // INVALID_ARGUMENT for an unhashable key.
  absl::Status Set(const Value& key, Value value) {
    return Put(key, std::move(value), true);
  }
  // The same, but the first value of a repeated key stays.
  absl::Status SetIfNew(const Value& key, Value value) {
    return Put(key, std::move(value), false);
  }
  absl::StatusOr<Value> Build();

 private:
  absl::Status Put(const Value& key, Value value, bool replace);

  Env& env_;
  std::shared_ptr<DictRep> rep_;
};

// Text under construction, refused before it outgrows the memory budget (or
// `max_bytes`). After a refusal it stays empty-handed: check status() once at
// the end.
class TextSink {
 public:
  explicit TextSink(Budget& budget)
      : budget_(budget), max_bytes_(budget.room_bytes()) {}
  TextSink(Budget& budget, size_t max_bytes)
      : budget_(budget), max_bytes_(max_bytes) {}

  void Append(std::string_view text);
  void Append(char c) { Append(std::string_view(&c, 1)); }
  void AppendRepeated(std::string_view text, int64_t times);
  bool full() const { return !status_.ok(); }
  const absl::Status& status() const { return status_; }
  absl::StatusOr<std::string> Take();

 private:
  bool Admit(size_t bytes);

  Budget& budget_;
  size_t max_bytes_;
  std::string text_;
  absl::Status status_;
};

}  // namespace inlay::tmpl

#endif  // INLAY_CORE_TEXT_TEMPLATE_ENV_H_
