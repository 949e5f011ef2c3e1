#include "flotilla/grammar/schema_parts.h"

#include <algorithm>
#include <boost/json.hpp>
#include <charconv>
#include <cmath>

#include "flotilla/grammar/regex.h"

namespace flotilla::grammar {
namespace bj = boost::json;

namespace {

std::string_view view(bj::string_view text) { return {text.data(), text.size()}; }

// "~1" and "~0" of a pointer, and percent escapes of the fragment around it.
std::optional<std::string> decode_step(std::string_view step) {
  std::string plain;
  for (std::size_t i = 0; i < step.size(); ++i) {
    if (step[i] != '%') {
      plain += step[i];
      continue;
    }
    int value = 0;
    if (i + 3 > step.size()) return std::nullopt;
    const auto read = std::from_chars(step.data() + i + 1, step.data() + i + 3, value, 16);
    if (read.ptr != step.data() + i + 3) return std::nullopt;
    plain += static_cast<char>(value);
    i += 2;
  }
  std::string out;
  for (std::size_t i = 0; i < plain.size(); ++i) {
    if (plain[i] == '~' && i + 1 < plain.size() && (plain[i + 1] == '0' || plain[i + 1] == '1')) {
      out += plain[++i] == '0' ? '~' : '/';
    } else {
      out += plain[i];
    }
  }
  return out;
}

void add_once(Conjunction& to, const bj::value* schema) {
  // `true` and `{}` demand nothing.
  if (schema->is_bool() && schema->get_bool()) return;
  if (schema->is_object() && schema->get_object().empty()) return;
  const auto at = std::lower_bound(to.begin(), to.end(), schema);
  if (at == to.end() || *at != schema) to.insert(at, schema);
}

}  // namespace

const bj::value* member(const bj::object& object, std::string_view key) {
  return object.if_contains(bj::string_view(key.data(), key.size()));
}

bool same_value(const bj::value& a, const bj::value& b) {
  if (a.is_number() && b.is_number()) {
    if (a.kind() == b.kind()) return a == b;
    return a.to_number<double>() == b.to_number<double>();
  }
  if (a.kind() != b.kind()) return false;
  if (a.is_array()) {
    return a.get_array().size() == b.get_array().size() &&
           std::equal(a.get_array().begin(), a.get_array().end(), b.get_array().begin(),
                      same_value);
  }
  if (a.is_object()) {
    if (a.get_object().size() != b.get_object().size()) return false;
    for (const auto& entry : a.get_object()) {
      const bj::value* other = b.get_object().if_contains(entry.key());
      if (other == nullptr || !same_value(entry.value(), *other)) return false;
    }
    return true;
  }
  return a == b;
}

SchemaReader::SchemaReader(const bj::value& root, std::string path) : root_(root) {
  paths_.emplace(&root, std::move(path));
  if (root.is_object()) paths_.emplace(&root.get_object(), paths_.at(&root));
}

std::string SchemaReader::path_of(const void* schema) const {
  const auto it = paths_.find(schema);
  return it == paths_.end() ? std::string("the schema") : it->second;
}

Error SchemaReader::invalid(const std::string& path, const std::string& message) {
  return Error{ErrorCode::kInvalidArgument, "'" + path + "': " + message, path};
}

Error SchemaReader::unsupported(const std::string& path, const std::string& message) {
  return Error{ErrorCode::kUnsupported, "'" + path + "': " + message, path};
}

Result<const bj::value*> SchemaReader::resolve(const bj::object& schema) {
  const std::string path = path_of(&schema) + ".$ref";
  const bj::value& ref = *member(schema, "$ref");
  if (!ref.is_string()) return invalid(path, "must be a string");
  const std::string_view text = view(ref.get_string());
  if (!text.starts_with('#') || (text.size() > 1 && text[1] != '/')) {
    return unsupported(path, "only references within the schema ('#' or '#/...') are supported");
  }
  const bj::value* at = &root_;
  std::string where = path_of(&root_);
  for (std::size_t i = 1; i < text.size();) {
    const std::size_t end = std::min(text.find('/', i + 1), text.size());
    const auto step = decode_step(text.substr(i + 1, end - i - 1));
    const bj::value* next = nullptr;
    if (step && at->is_object()) {
      next = member(at->get_object(), *step);
    } else if (step && at->is_array()) {
      std::size_t index = 0;
      const auto read = std::from_chars(step->data(), step->data() + step->size(), index);
      if (read.ptr == step->data() + step->size() && !step->empty() &&
          index < at->get_array().size()) {
        next = &at->get_array()[index];
      }
    }
    if (next == nullptr) return invalid(path, "'" + std::string(text) + "' is not in the schema");
    where += "." + *step;
    at = next;
    i = end;
  }
  paths_.emplace(at, where);
  return at;
}

// A schema that leads to itself through references and combinators alone has no meaning.
Status SchemaReader::check_grounded(const bj::value& schema, int depth) {
  if (!schema.is_object()) return ok_status();
  int& mark = grounded_[&schema];
  if (mark == 2) return ok_status();
  if (mark == 1) {
    return invalid(path_of(&schema), "the schema refers to itself without a value in between");
  }
  if (depth > kMaxDepth) {
    return invalid(path_of(&schema), "more than " + std::to_string(kMaxDepth) +
                                         " references and combinators without a value in between");
  }
  mark = 1;
  const bj::object& object = schema.get_object();
  if (member(object, "$ref") != nullptr) {
    paths_.emplace(&object, path_of(&schema));
    FLOTILLA_TRY(const bj::value* target, resolve(object));
    FLOTILLA_TRY_STATUS(check_grounded(*target, depth + 1));
  }
  for (const std::string_view key : {"allOf", "anyOf", "oneOf"}) {
    const bj::value* list = member(object, key);
    if (list == nullptr || !list->is_array()) continue;
    for (std::size_t i = 0; i < list->get_array().size(); ++i) {
      const bj::value& branch = list->get_array()[i];
      paths_.emplace(&branch,
                     path_of(&schema) + "." + std::string(key) + "[" + std::to_string(i) + "]");
      FLOTILLA_TRY_STATUS(check_grounded(branch, depth + 1));
    }
  }
  grounded_[&schema] = 2;
  return ok_status();
}

Result<std::vector<Alternative>> SchemaReader::alternatives(const Conjunction& schemas) {
  for (const bj::value* schema : schemas) FLOTILLA_TRY_STATUS(check_grounded(*schema, 0));
  std::vector<Alternative> out;
  FLOTILLA_TRY_STATUS(expand({schemas.rbegin(), schemas.rend()}, {}, out, 0));
  return out;
}

// `todo` is a stack. Every choice of a branch continues with copies of what is left and done.
Status SchemaReader::expand(std::vector<const bj::value*> todo, Alternative done,
                            std::vector<Alternative>& out, int depth) {
  if (depth > kMaxDepth) return invalid(path_of(&root_), "combinators nested too deeply");
  while (!todo.empty()) {
    const bj::value& schema = *todo.back();
    todo.pop_back();
    if (schema.is_bool()) {
      if (!schema.get_bool()) return ok_status();  // nothing satisfies it
      continue;
    }
    const std::string path = path_of(&schema);
    if (!schema.is_object()) return invalid(path, "a schema must be an object or a boolean");
    const bj::object& object = schema.get_object();
    if (std::find(done.begin(), done.end(), &object) != done.end()) continue;
    paths_.emplace(&object, path);
    FLOTILLA_TRY_STATUS(check_keywords(object));
    done.push_back(&object);
    if (member(object, "$ref") != nullptr) {
      FLOTILLA_TRY(const bj::value* target, resolve(object));
      FLOTILLA_TRY_STATUS(check_grounded(*target, 0));
      todo.push_back(target);
    }
    if (const bj::value* all = member(object, "allOf")) {
      const bj::array& list = all->get_array();
      for (std::size_t i = list.size(); i-- > 0;) todo.push_back(&list[i]);
    }
    const bj::value* any = member(object, "anyOf");
    const bj::value* one = member(object, "oneOf");
    if (one != nullptr) {
      FLOTILLA_TRY_STATUS(check_exclusive(one->get_array(), path + ".oneOf"));
    }
    if (any == nullptr && one == nullptr) continue;
    const auto choose = [&](const bj::array& list, auto next) -> Status {
      for (const bj::value& branch : list) {
        auto rest = todo;
        rest.push_back(&branch);
        FLOTILLA_TRY_STATUS(next(std::move(rest)));
      }
      return ok_status();
    };
    const auto finish = [&](std::vector<const bj::value*> rest) {
      return expand(std::move(rest), done, out, depth + 1);
    };
    if (any != nullptr && one != nullptr) {
      return choose(any->get_array(), [&](std::vector<const bj::value*> rest) -> Status {
        for (const bj::value& branch : one->get_array()) {
          auto both = rest;
          both.push_back(&branch);
          FLOTILLA_TRY_STATUS(finish(std::move(both)));
        }
        return ok_status();
      });
    }
    return choose((any != nullptr ? any : one)->get_array(), finish);
  }
  if (out.size() >= kMaxAlternatives) {
    return Error{ErrorCode::kTooLarge,
                 "'" + path_of(&root_) + "': anyOf and oneOf multiply to more than " +
                     std::to_string(kMaxAlternatives) + " alternatives",
                 path_of(&root_)};
  }
  out.push_back(std::move(done));
  return ok_status();
}

Result<Members> SchemaReader::members(const Alternative& alternative) {
  Members out;
  std::vector<std::string> names;
  std::set<std::string> known, required;
  std::vector<std::string> patterns;
  bool lists_members = false, opens = false;
  const auto add_name = [&](std::string name) {
    if (known.insert(name).second) names.push_back(std::move(name));
  };
  for (const bj::object* schema : alternative) {
    if (const bj::value* properties = member(*schema, "properties")) {
      lists_members = true;
      for (const auto& entry : properties->get_object()) add_name(std::string(view(entry.key())));
    }
    if (const bj::value* by_pattern = member(*schema, "patternProperties")) {
      lists_members = true;
      for (const auto& entry : by_pattern->get_object()) {
        const std::string pattern(view(entry.key()));
        if (std::find(patterns.begin(), patterns.end(), pattern) == patterns.end()) {
          patterns.push_back(pattern);
        }
      }
    }
    const bj::value* additional = member(*schema, "additionalProperties");
    if (additional != nullptr && !(additional->is_bool() && !additional->get_bool())) opens = true;
  }
  for (const bj::object* schema : alternative) {
    if (const bj::value* list = member(*schema, "required")) {
      for (const bj::value& name : list->get_array()) {
        required.insert(std::string(view(name.get_string())));
        add_name(std::string(view(name.get_string())));
      }
    }
  }
  std::map<std::string, Dfa> matchers;
  for (const std::string& pattern : patterns) {
    auto dfa = regex_to_dfa(pattern, RegexMode::kSearch);
    if (!dfa.ok()) {
      return Error{dfa.error().code == ErrorCode::kInvalidArgument ? ErrorCode::kUnsupported
                                                                   : dfa.error().code,
                   "'" + path_of(alternative.front()) + ".patternProperties': the pattern '" +
                       pattern + "': " + dfa.error().message,
                   path_of(alternative.front()) + ".patternProperties"};
    }
    matchers.emplace(pattern, std::move(dfa).value());
  }
  for (const std::string& name : names) {
    Members::Named named{
        .name = name, .schemas = {}, .required = required.contains(name), .impossible = false};
    for (const bj::object* schema : alternative) {
      const std::string path = path_of(schema);
      bool spoken = false;
      const auto demand = [&](const bj::value& value, std::string where) {
        paths_.emplace(&value, std::move(where));
        if (value.is_bool() && !value.get_bool()) named.impossible = true;
        add_once(named.schemas, &value);
        spoken = true;
      };
      if (const bj::value* properties = member(*schema, "properties")) {
        if (const bj::value* own = member(properties->get_object(), name)) {
          demand(*own, path + ".properties." + name);
        }
      }
      if (const bj::value* by_pattern = member(*schema, "patternProperties")) {
        for (const auto& entry : by_pattern->get_object()) {
          if (matchers.at(std::string(view(entry.key()))).matches(name)) {
            demand(entry.value(), path + ".patternProperties." + std::string(view(entry.key())));
          }
        }
      }
      const bj::value* additional = member(*schema, "additionalProperties");
      if (!spoken && additional != nullptr) demand(*additional, path + ".additionalProperties");
    }
    out.named.push_back(std::move(named));
  }
  const auto add_rest = [&](std::optional<std::string> pattern) {
    Members::Rest rest{.pattern = pattern, .schemas = {}};
    for (const bj::object* schema : alternative) {
      const bj::value* value = nullptr;
      std::string where = path_of(schema) + ".additionalProperties";
      if (const bj::value* by_pattern = member(*schema, "patternProperties");
          by_pattern != nullptr && pattern) {
        value = member(by_pattern->get_object(), *pattern);
        if (value != nullptr) where = path_of(schema) + ".patternProperties." + *pattern;
      }
      if (value == nullptr) value = member(*schema, "additionalProperties");
      if (value == nullptr) continue;
      if (value->is_bool() && !value->get_bool()) return;
      paths_.emplace(value, where);
      add_once(rest.schemas, value);
    }
    out.rest.push_back(std::move(rest));
  };
  for (const std::string& pattern : patterns) add_rest(pattern);
  if (opens || !lists_members) add_rest(std::nullopt);
  return out;
}

}  // namespace flotilla::grammar
