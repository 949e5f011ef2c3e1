#include "flotilla/tokenizer/post_processor.h"

#include <boost/json.hpp>

#include "flotilla/json/json.h"
#include "flotilla/tokenizer/component.h"
#include "flotilla/tokenizer/vocab.h"

namespace flotilla::tokenizer {
namespace bj = boost::json;
namespace {

// A template that repeats the text could blow it up without bound.
constexpr std::size_t kMaxTemplateParts = 64;

Error invalid(const std::string& where, std::string_view what) {
  return Error{ErrorCode::kInvalidArgument, "tokenizer: " + where + " " + std::string(what), where};
}

Result<std::vector<TokenId>> read_ids(const bj::value& list, const std::string& where) {
  if (!list.is_array()) return invalid(where, "must be an array of ids");
  std::vector<TokenId> ids;
  for (const bj::value& id : list.get_array()) {
    if (!id.is_int64() || id.get_int64() < 0 || id.get_int64() > kMaxTokenId)
      return invalid(where, "has a wrong id");
    ids.push_back(static_cast<TokenId>(id.get_int64()));
  }
  return ids;
}

// ["</s>", 2]
Result<std::vector<TokenId>> read_pair(const bj::value& value, std::string_view key,
                                       const std::string& where) {
  const bj::value* pair = json::find(value, key);
  const std::string path = json::join_path(where, key);
  if (!pair || !pair->is_array() || pair->get_array().size() != 2)
    return invalid(path, "must be [token, id]");
  return read_ids(bj::array{pair->get_array()[1]}, path);
}

}  // namespace

Result<PostProcessor::Template> PostProcessor::parse_template(const bj::value& value,
                                                              const std::string& where) {
  FLOTILLA_TRY(const bj::array* parts, read_components(value, "single", where));
  if (parts->size() > kMaxTemplateParts)
    return invalid(where + ".single", "has more than 64 parts");
  Template result;
  for (const bj::value& part : *parts) {
    if (const bj::value* sequence = json::find(part, "Sequence")) {
      FLOTILLA_TRY(const auto id, json::get_string(*sequence, "id", where + ".single.Sequence"));
      if (id.value_or("") != "A") return invalid(where + ".single", "names a second sequence");
      result.push_back({.is_text = true, .ids = {}});
      continue;
    }
    const bj::value* special = json::find(part, "SpecialToken");
    if (!special)
      return invalid(where + ".single", "has a part that is neither Sequence nor SpecialToken");
    FLOTILLA_TRY(const std::string name,
                 json::require_string(*special, "id", where + ".single.SpecialToken"));
    const bj::value* tokens = json::find(value, "special_tokens");
    const bj::value* token = tokens ? json::find(*tokens, name) : nullptr;
    const bj::value* ids = token ? json::find(*token, "ids") : nullptr;
    if (!ids) return invalid(where + ".special_tokens", "lacks '" + name + "'");
    FLOTILLA_TRY(std::vector<TokenId> list, read_ids(*ids, where + ".special_tokens"));
    result.push_back({.is_text = false, .ids = std::move(list)});
  }
  return result;
}

Status PostProcessor::parse_into(const bj::value& value, const std::string& where, int depth,
                                 std::vector<Template>& templates) {
  if (depth > kMaxNesting) return invalid(where, "is nested too deep");
  FLOTILLA_TRY(const std::string type, component_type(value, where));
  if (type == "Sequence") {
    FLOTILLA_TRY(const bj::array* parts, read_components(value, "processors", where));
    for (const bj::value& part : *parts) {
      FLOTILLA_TRY_STATUS(parse_into(part, where + ".processors", depth + 1, templates));
    }
  } else if (type == "TemplateProcessing") {
    FLOTILLA_TRY(Template parts, parse_template(value, where));
    templates.push_back(std::move(parts));
  } else if (type == "BertProcessing" || type == "RobertaProcessing") {
    FLOTILLA_TRY(std::vector<TokenId> cls, read_pair(value, "cls", where));
    FLOTILLA_TRY(std::vector<TokenId> sep, read_pair(value, "sep", where));
    templates.push_back({{.is_text = false, .ids = cls},
                         {.is_text = true, .ids = {}},
                         {.is_text = false, .ids = sep}});
  } else if (type != "ByteLevel") {  // ByteLevel moves offsets only
    return unsupported_component(where, type);
  }
  if (templates.size() > 4) return invalid(where, "has more than 4 templates");
  return ok_status();
}

Result<PostProcessor> PostProcessor::parse(const bj::value* value) {
  PostProcessor result;
  if (value) FLOTILLA_TRY_STATUS(parse_into(*value, "post_processor", 0, result.templates_));
  return result;
}

std::vector<TokenId> PostProcessor::run(std::vector<TokenId> ids, bool add_special_tokens) const {
  for (const Template& parts : templates_) {
    std::vector<TokenId> out;
    out.reserve(ids.size() + 4);
    for (const Part& part : parts) {
      if (part.is_text) {
        out.insert(out.end(), ids.begin(), ids.end());
      } else if (add_special_tokens) {
        out.insert(out.end(), part.ids.begin(), part.ids.end());
      }
    }
    ids = std::move(out);
  }
  return ids;
}

}  // namespace flotilla::tokenizer
