// What an InputObserver (model.h) is told of mixtures of experts: each expert's
// layer reads the rows of the tokens that go to it, and is not told of where
// there are none; before that all rows are told of as the first expert's name
// with kAllExperts behind it.
#ifndef INLAY_CORE_MODEL_EXPERT_INPUTS_H_
#define INLAY_CORE_MODEL_EXPERT_INPUTS_H_

#include <string_view>

namespace inlay {

inline constexpr std::string_view kAllExperts = ":all";

}  // namespace inlay

#endif  // INLAY_CORE_MODEL_EXPERT_INPUTS_H_
