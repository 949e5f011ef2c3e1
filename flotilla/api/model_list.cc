#include "flotilla/api/model_list.h"

#include <ctime>

#include "flotilla/api/json_text.h"

namespace flotilla::api {
namespace {

// "2026-01-31T12:00:00Z"
std::string utc_time(std::int64_t unix_seconds) {
  const auto when = static_cast<std::time_t>(unix_seconds);
  std::tm parts = {};
  char text[32] = {};
  if (gmtime_r(&when, &parts) == nullptr) return "1970-01-01T00:00:00Z";
  const std::size_t length = std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return std::string(text, length);
}

void append_id(std::string& out, const ModelInfo* model) {
  if (model == nullptr) {
    out += "null";
  } else {
    append_json_string(out, model->id);
  }
}

}  // namespace

std::string render_model(const ModelInfo& model) {
  std::string out = R"({"id":)";
  append_json_string(out, model.id);
  out += R"(,"object":"model","created":)";
  append_json_int(out, model.created);
  out += R"(,"owned_by":)";
  append_json_string(out, model.owned_by);
  out += R"(,"type":"model","display_name":)";
  append_json_string(out, model.id);
  out += R"(,"created_at":)";
  append_json_string(out, utc_time(model.created));
  if (model.context_length > 0) {
    // Two spellings: clients of different servers look for one or the other.
    out += R"(,"context_length":)";
    append_json_int(out, model.context_length);
    out += R"(,"max_model_len":)";
    append_json_int(out, model.context_length);
  }
  if (!model.capabilities.empty()) {
    out += R"(,"capabilities":[)";
    for (std::size_t i = 0; i < model.capabilities.size(); ++i) {
      if (i > 0) out += ',';
      append_json_string(out, model.capabilities[i]);
    }
    out += ']';
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
  out += R"(],"has_more":false,"first_id":)";
  append_id(out, models.empty() ? nullptr : &models.front());
  out += R"(,"last_id":)";
  append_id(out, models.empty() ? nullptr : &models.back());
  out += '}';
  return out;
}

}  // namespace flotilla::api
