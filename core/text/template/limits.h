// The budgets that bound what one hostile template can cost. Knows nothing of
// the language.
#ifndef INLAY_CORE_TEXT_TEMPLATE_LIMITS_H_
#define INLAY_CORE_TEXT_TEMPLATE_LIMITS_H_

#include <cstddef>
#include <cstdint>

namespace inlay {

// The defaults fit every published chat template several hundred times over.
struct TemplateLimits {
  // One step is one evaluated operation, one loop turn, or 64 bytes copied.
  int64_t max_steps = 4'000'000;
  // Nesting of blocks and brackets in the source, of values in values, and of
  // macro calls. At most kMaxTemplateDepth: beyond it the recursion would
  // outgrow small thread stacks.
  int max_depth = 64;
  size_t max_template_bytes = size_t{1} << 20;
  size_t max_output_bytes = size_t{16} << 20;
  // Strings, lists and dictionaries alive at one time, the variables included.
  size_t max_memory_bytes = size_t{256} << 20;
};

inline constexpr int kMaxTemplateDepth = 64;

}  // namespace inlay

#endif  // INLAY_CORE_TEXT_TEMPLATE_LIMITS_H_
