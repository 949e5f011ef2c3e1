// What the client wants the output to look like: response_format and the extensions of other
// servers, all turned into one form.
#include <boost/json.hpp>

#include "flotilla/api/limits.h"
#include "flotilla/api/request_fields.h"
#include "flotilla/json/json.h"

namespace flotilla::api {
namespace bj = boost::json;

bj::value output_form(std::string_view kind, bj::value value, std::string_view param) {
  return bj::object{{"kind", kind}, {"value", std::move(value)}, {"param", param}};
}

// A schema, as an object, a boolean, or a JSON text of one.
Result<bj::value> schema_form(const bj::value& schema, const std::string& param) {
  if (schema.is_object() || schema.is_bool()) return output_form("json_schema", schema, param);
  if (schema.is_string()) {
    const bj::string& text = schema.get_string();
    auto parsed = json::parse({text.data(), text.size()}, {.max_depth = kMaxBodyDepth - 4});
    if (!parsed.ok())
      return invalid(param, "'" + param + "' is no JSON: " + parsed.error().message);
    if (parsed->is_object() || parsed->is_bool())
      return output_form("json_schema", std::move(*parsed), param);
  }
  return invalid(param, "'" + param + "' must be a JSON schema");
}

namespace {

Result<bj::value> text_form(std::string_view kind, const bj::value& value, std::size_t limit,
                            const std::string& param) {
  if (!value.is_string() || value.get_string().empty() || value.get_string().size() > limit) {
    return invalid(param,
                   "'" + param + "' must be a string of 1 to " + std::to_string(limit) + " bytes");
  }
  return output_form(kind, value, param);
}

Result<bj::value> choice_form(const bj::value& value, const std::string& param) {
  const bj::array* list = value.if_array();
  if (list == nullptr || list->empty() || list->size() > kMaxOutputChoices) {
    return invalid(param, "'" + param + "' must be an array of 1 to " +
                              std::to_string(kMaxOutputChoices) + " strings");
  }
  for (const bj::value& choice : *list) {
    if (!choice.is_string() || choice.get_string().empty()) {
      return invalid(param, "'" + param + "' must hold strings that are not empty");
    }
  }
  return output_form("choice", value, param);
}

Result<bj::value> named_form(std::string_view name, const bj::value& value,
                             const std::string& param) {
  if (name == "json") return schema_form(value, param);
  if (name == "regex") return text_form("regex", value, kMaxOutputRegexBytes, param);
  if (name == "choice") return choice_form(value, param);
  return text_form("grammar", value, kMaxOutputGrammarBytes, param);
}

Result<bj::value> response_format(const bj::value& format) {
  if (!format.is_object()) return invalid("response_format", "'response_format' must be an object");
  FLOTILLA_TRY(const std::string type, json::require_string(format, "type", "response_format"));
  if (type == "text") return bj::value();
  if (type == "json_object") {
    const bj::value* schema = json::find(format, "schema");
    if (schema != nullptr) return schema_form(*schema, "response_format.schema");
    return output_form("json_object", nullptr, "response_format");
  }
  if (type != "json_schema") {
    return invalid("response_format.type",
                   "'response_format.type' must be 'text', 'json_object' or 'json_schema'");
  }
  const bj::value* wrapped = json::find(format, "json_schema");
  if (wrapped == nullptr || !wrapped->is_object()) {
    return invalid("response_format.json_schema",
                   "'response_format.json_schema' must be an object");
  }
  FLOTILLA_TRY_STATUS(json::get_bool(*wrapped, "strict", "response_format.json_schema"));
  const bj::value* schema = json::find(*wrapped, "schema");
  if (schema == nullptr) return output_form("json_object", nullptr, "response_format.json_schema");
  return schema_form(*schema, "response_format.json_schema.schema");
}

Result<bj::value> structured_outputs(const bj::value& object) {
  const std::string field = "structured_outputs";
  if (!object.is_object()) return invalid(field, "'structured_outputs' must be an object");
  for (const std::string_view key : {"structural_tag", "whitespace_pattern"}) {
    const std::string param = json::join_path(field, key);
    if (json::find(object, key) != nullptr)
      return unsupported(param, "'" + param + "' is not supported");
  }
  bj::value out;
  for (const std::string_view key : {"json", "regex", "choice", "grammar", "json_object"}) {
    const bj::value* value = json::find(object, key);
    if (value == nullptr) continue;
    const std::string param = json::join_path(field, key);
    if (!out.is_null())
      return invalid(param, "'structured_outputs' must have one kind of constraint only");
    if (key == "json_object") {
      FLOTILLA_TRY(const auto wanted, json::get_bool(object, key, field));
      if (wanted.value_or(false)) out = output_form("json_object", nullptr, param);
    } else {
      FLOTILLA_TRY(out, named_form(key, *value, param));
    }
  }
  return out;
}

}  // namespace

Status parse_output_format(const bj::value& body, ChatRequest& request) {
  const auto take = [&request](std::string_view field, Result<bj::value> parsed) -> Status {
    if (!parsed.ok()) return std::move(parsed).error();
    if (parsed->is_null()) return ok_status();
    if (!request.output_format.is_null()) {
      return invalid(std::string(field),
                     "'" + std::string(field) + "' is a second constraint of the output");
    }
    request.output_format = std::move(parsed).value();
    return ok_status();
  };
  if (const bj::value* format = json::find(body, "response_format")) {
    FLOTILLA_TRY_STATUS(take("response_format", response_format(*format)));
  }
  if (const bj::value* outputs = json::find(body, "structured_outputs")) {
    FLOTILLA_TRY_STATUS(take("structured_outputs", structured_outputs(*outputs)));
  }
  static constexpr std::pair<std::string_view, std::string_view> kAliases[] = {
      {"guided_json", "json"},       {"guided_regex", "regex"}, {"guided_choice", "choice"},
      {"guided_grammar", "grammar"}, {"json_schema", "json"},   {"grammar", "grammar"}};
  for (const auto& [field, kind] : kAliases) {
    const bj::value* value = json::find(body, field);
    if (value == nullptr ||
        (field == "grammar" && value->is_string() && value->get_string().empty())) {
      continue;
    }
    FLOTILLA_TRY_STATUS(take(field, named_form(kind, *value, std::string(field))));
  }
  return ok_status();
}

Status check_output_format(const bj::value& form) {
  if (form.is_null()) return ok_status();
  const std::string field = "output_format";
  if (!form.is_object()) return invalid(field, "'output_format' of the job must be an object");
  FLOTILLA_TRY(const std::string kind, json::require_string(form, "kind", field));
  FLOTILLA_TRY_STATUS(json::require_string(form, "param", field));
  const bj::value* value = json::find(form, "value");
  const bj::value none;
  if (value == nullptr) value = &none;
  Result<bj::value> again = invalid(field, "'output_format' of the job is of no known kind");
  if (kind == "json_object") again = bj::value();
  if (kind == "json_schema") again = schema_form(*value, field);
  if (kind == "regex") again = text_form(kind, *value, kMaxOutputRegexBytes, field);
  if (kind == "grammar") again = text_form(kind, *value, kMaxOutputGrammarBytes, field);
  if (kind == "choice") again = choice_form(*value, field);
  if (!again.ok()) return std::move(again).error();
  return ok_status();
}

}  // namespace flotilla::api
