// The parsed template. Immutable after parsing, so one tree serves any number
// of renderings on any threads. Chains of operators are flat lists: the tree is
// never deeper than the parser's nesting cap, however long a chain is.
#ifndef INLAY_CORE_TEXT_TEMPLATE_AST_H_
#define INLAY_CORE_TEXT_TEMPLATE_AST_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/text/template/arithmetic.h"
#include "core/text/template/value.h"

namespace inlay::tmpl {

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

struct Arguments {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> named;
  ExprPtr star;         // *args
  ExprPtr double_star;  // **kwargs
};

// One step of base.name[index](args)|filter is test.
struct Postfix {
  enum class Kind : uint8_t {
    kAttribute,
    kIndex,
    kSlice,
    kCall,
    kFilter,
    kTest
  };
  Kind kind = Kind::kAttribute;
  int line = 0;
  Value name;  // of an attribute, filter or test
  bool negated = false;
  ExprPtr index;  // also a slice's start
  ExprPtr stop, step;
  Arguments args;
};

struct Expr {
  enum class Kind : uint8_t {
    kConstant,     // value
    kName,         // value (the name)
    kList,         // items
    kTuple,        // items
    kDict,         // items: key, value, key, value, ...
    kNegate,       // items[0]
    kPlus,         // items[0]
    kNot,          // items[0]
    kChain,        // items[0] ops[0] items[1] ops[1] ..., from the left
    kAnd,          // items
    kOr,           // items
    kCompare,      // items[0] comparisons[0] items[1] ...
    kConditional,  // items: test, then, and maybe else
    kPostfix,      // items[0] followed by steps
  };
  enum class Comparison : uint8_t {
    kLess,
    kLessEqual,
    kGreater,
    kGreaterEqual,
    kEqual,
    kNotEqual,
    kIn,
    kNotIn
  };
  Kind kind = Kind::kConstant;
  int line = 0;
  Value value;
  std::vector<ExprPtr> items;
  std::vector<BinaryOp> ops;
  std::vector<Comparison> comparisons;
  std::vector<Postfix> steps;
};

// What `set` and `for` assign to.
struct Target {
  enum class Kind : uint8_t { kName, kMember, kTuple };
  Kind kind = Kind::kName;
  std::string name;
  std::string member;  // of the namespace `name`
  std::vector<Target> items;
};

struct Node;
using Body = std::vector<std::unique_ptr<Node>>;

struct Signature {
  std::vector<std::string> params;
  std::vector<ExprPtr> defaults;  // of the last params
  // Which of the special names the body mentions: only those are accepted.
  bool uses_caller = false;
  bool uses_varargs = false;
  bool uses_kwargs = false;
};

struct Node {
  enum class Kind : uint8_t {
    kText,       // text
    kPrint,      // exprs
    kIf,         // exprs: the tests; bodies: one each, and maybe else
    kFor,        // target, exprs[0], maybe exprs[1] (if); bodies: loop, else
    kSet,        // target, exprs[0]
    kSetBlock,   // target, filters, bodies[0]
    kMacro,      // text (name), signature, bodies[0]
    kCallBlock,  // exprs[0] (the call), signature, bodies[0]
    kFilter,     // filters, bodies[0]
    kWith,       // targets, exprs, bodies[0]
    kScope,      // bodies[0]: a generation block
    kBreak,
    kContinue,
  };
  Kind kind = Kind::kText;
  int line = 0;
  std::string text;
  Target target;
  std::vector<Target> targets;
  std::vector<ExprPtr> exprs;
  std::vector<Postfix> filters;
  Signature signature;
  std::vector<Body> bodies;
};

}  // namespace inlay::tmpl

#endif  // INLAY_CORE_TEXT_TEMPLATE_AST_H_
