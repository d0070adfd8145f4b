#include "core/formats/rope_config.h"

namespace inlay {

void KeepOneRope(Json* config) {
  const auto parameters = config->find("rope_parameters");
  const auto scaling = config->find("rope_scaling");
  if (parameters == config->end() || parameters->is_null()) return;
  if (scaling == config->end()) return;
  // What is neither is refused where it is read.
  if (scaling->is_null() || (scaling->is_object() && scaling->empty())) {
    config->erase("rope_scaling");
    return;
  }
  if (!parameters->is_object() || !scaling->is_object()) return;
  // Of all its layers; refused where it is read.
  const auto type = config->find("model_type");
  if (type != config->end() && *type == "modernbert") return;
  const auto full = parameters->find("full_attention");
  if (full == parameters->end() || !full->is_object()) {
    config->erase("rope_parameters");
    return;
  }
  full->update(*scaling);
  config->erase("rope_scaling");
}

}  // namespace inlay
