#include "core/formats/weight_source.h"

#include <algorithm>

namespace inlay {

const WeightInfo* WeightSource::Find(std::string_view name) const {
  const absl::Span<const WeightInfo> all = weights();
  const auto it =
      std::lower_bound(all.begin(), all.end(), name,
                       [](const WeightInfo& info, std::string_view key) {
                         return info.name < key;
                       });
  return it == all.end() || it->name != name ? nullptr : &*it;
}

}  // namespace inlay
