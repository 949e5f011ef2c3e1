#include "flotilla/api/model_list.h"

#include "flotilla/api/json_text.h"

namespace flotilla::api {

std::string render_model(const ModelInfo& model) {
  std::string out = R"({"id":)";
  append_json_string(out, model.id);
  out += R"(,"object":"model","created":)";
  append_json_int(out, model.created);
  out += R"(,"owned_by":)";
  append_json_string(out, model.owned_by);
  if (model.context_length > 0) {
    // Two spellings: clients of different servers look for one or the other.
    out += R"(,"context_length":)";
    append_json_int(out, model.context_length);
    out += R"(,"max_model_len":)";
    append_json_int(out, model.context_length);
  }
  out += '}';
  return out;
}

std::string render_model_list(std::span<const ModelInfo> models) {
  std::string out = R"({"object":"list","data":[)";
  for (std::size_t i = 0; i < models.size(); ++i) {
    if (i > 0) out += ',';
    out += render_model(models[i]);
  }
  out += "]}";
  return out;
}

}  // namespace flotilla::api
