// Finding and replacing text in time linear in its length, whatever it is.
#ifndef INLAY_CORE_TEXT_TEMPLATE_TEXT_SEARCH_H_
#define INLAY_CORE_TEXT_TEMPLATE_TEXT_SEARCH_H_

#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/text/template/env.h"

namespace inlay::tmpl {

// The byte offset of the first occurrence at or after `from`, or npos.
size_t FindText(std::string_view text, std::string_view needle,
                size_t from = 0);
// The last occurrence that ends at or before `end`; costs text times needle in
// the worst case, so charge it.
size_t FindLastText(std::string_view text, std::string_view needle, size_t end);
// The parts between the separators, empty ones included.
std::vector<std::string_view> SplitAt(std::string_view text, char separator);
// str.replace; a negative `count` means all.
absl::StatusOr<std::string> ReplaceText(Env& env, std::string_view text,
                                        std::string_view from,
                                        std::string_view to, int64_t count);
// The work of a search that may compare `needle` at every byte of `text`.
absl::Status SpendSearch(Env& env, std::string_view text,
                         std::string_view needle);

}  // namespace inlay::tmpl

#endif  // INLAY_CORE_TEXT_TEMPLATE_TEXT_SEARCH_H_
