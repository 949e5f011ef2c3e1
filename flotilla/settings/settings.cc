#include "flotilla/settings/settings.h"

#include <unistd.h>

#include <toml++/toml.h>
#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdio>
#include <functional>
#include <map>
#include <optional>
#include <set>

#include "flotilla/base/file.h"
#include "flotilla/base/text.h"

namespace flotilla::settings {
namespace {

constexpr std::size_t kMaxConfigBytes = 1u << 20;
constexpr std::string_view kPrefix = "FLOTILLA_";
constexpr std::string_view kConfigVariable = "FLOTILLA_CONFIG";
// Read by other parts of the programs, not settings of any one command.
constexpr std::string_view kReservedVariables[] = {
    kConfigVariable, "FLOTILLA_CACHE_DIR", "FLOTILLA_BIN", "FLOTILLA_E2E_SLOW",
    // Of other commands, which one shell may have exported.
    "FLOTILLA_ADMIN_KEY", "FLOTILLA_API_KEY", "FLOTILLA_COORDINATOR_URL", "FLOTILLA_DATABASE",
    "FLOTILLA_IDENTITY_FILE"};

std::string with_separator(std::string_view name, char separator, bool upper) {
  std::string out;
  for (const char c : name) {
    if (c == '.' || c == '_') {
      out.push_back(separator);
    } else {
      out.push_back(upper && c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c);
    }
  }
  return out;
}

std::string unknown(std::string what, std::string_view name,
                    const std::vector<std::string>& known) {
  std::string message = "unknown " + std::move(what) + " '" + std::string(name) + "'";
  if (const auto near = nearest_name(name, known)) message += "; did you mean '" + *near + "'?";
  return message;
}

Result<std::int64_t> to_int(const std::string& text, std::int64_t min, std::int64_t max) {
  std::int64_t value = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (ec != std::errc() || end != text.data() + text.size() || value < min || value > max) {
    return Error{ErrorCode::kInvalidArgument, "must be an integer between " + std::to_string(min) +
                                                  " and " + std::to_string(max)};
  }
  return value;
}

Result<double> to_double(const std::string& text, double min, double max) {
  double value = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (ec != std::errc() || end != text.data() + text.size() || !(value >= min && value <= max)) {
    char range[80];
    std::snprintf(range, sizeof range, "must be a number between %g and %g", min, max);
    return Error{ErrorCode::kInvalidArgument, range};
  }
  return value;
}

Result<bool> to_bool(const std::string& text) {
  if (text == "true" || text == "1" || text == "yes" || text == "on") return true;
  if (text == "false" || text == "0" || text == "no" || text == "off") return false;
  return Error{ErrorCode::kInvalidArgument, "must be true or false"};
}

// A TOML scalar as the text that a flag would carry.
std::optional<std::string> scalar_text(const toml::node& node) {
  if (const auto* s = node.as_string()) return s->get();
  if (const auto* i = node.as_integer()) return std::to_string(i->get());
  if (const auto* b = node.as_boolean()) return std::string(b->get() ? "true" : "false");
  if (const auto* f = node.as_floating_point()) {
    char buffer[40];
    std::snprintf(buffer, sizeof buffer, "%.17g", f->get());
    return std::string(buffer);
  }
  return std::nullopt;
}

}  // namespace

namespace {

// Variables that some command of this program knows: one environment serves them all.
std::set<std::string, std::less<>>& variables_of_this_program() {
  static std::set<std::string, std::less<>> names;
  return names;
}

std::string variable_of(std::string_view name) {
  return std::string(kPrefix) + with_separator(name, '_', true);
}

}  // namespace

struct Settings::Impl {
  struct Entry {
    std::string name, help;
    bool is_list = false, is_bool = false, secret = false;
    std::function<Status(const std::vector<std::string>&)> assign;
    std::function<std::string()> show;
    std::vector<std::string> flag_values;  // filled by CLI11
  };
  std::vector<std::unique_ptr<Entry>>
      entries;  // stable addresses: CLI11 keeps pointers to flag_values
  std::string config_file;

  Entry& add(std::string name, std::string help) {
    entries.push_back(std::make_unique<Entry>());
    entries.back()->name = std::move(name);
    entries.back()->help = std::move(help);
    return *entries.back();
  }
  Entry* find(std::string_view name) {
    for (auto& e : entries) {
      if (e->name == name) return e.get();
    }
    return nullptr;
  }

  static Status assign(Entry& entry, const std::vector<std::string>& values,
                       const std::string& source) {
    if (!entry.is_list && values.size() != 1) {
      return Error{ErrorCode::kInvalidArgument, source + ": takes one value", entry.name};
    }
    if (auto status = entry.assign(values); !status.ok()) {
      return Error{ErrorCode::kInvalidArgument, source + ": " + status.error().message, entry.name};
    }
    return ok_status();
  }

  Status load_table(const toml::table& table, const std::string& prefix, const std::string& file) {
    for (const auto& [key, node] : table) {
      const std::string name = prefix + std::string(key.str());
      const std::string source =
          file + ", line " + std::to_string(node.source().begin.line) + ", " + name;
      if (Entry* entry = find(name)) {
        std::vector<std::string> values;
        if (const auto* array = node.as_array(); array != nullptr && entry->is_list) {
          for (const auto& item : *array) {
            const auto text = scalar_text(item);
            if (!text)
              return Error{ErrorCode::kInvalidArgument, source + ": must be a list of strings",
                           name};
            values.push_back(*text);
          }
        } else if (const auto text = scalar_text(node)) {
          values.push_back(*text);
        } else {
          return Error{ErrorCode::kInvalidArgument, source + ": has the wrong type", name};
        }
        FLOTILLA_TRY_STATUS(assign(*entry, values, source));
      } else if (const auto* sub = node.as_table(); sub != nullptr && is_group(name)) {
        FLOTILLA_TRY_STATUS(load_table(*sub, name + ".", file));
      } else {
        std::vector<std::string> known;
        for (const auto& e : entries) known.push_back(e->name);
        return Error{ErrorCode::kInvalidArgument, file + ", line " +
                                                      std::to_string(node.source().begin.line) +
                                                      ": " + unknown("setting", name, known)};
      }
    }
    return ok_status();
  }

  bool is_group(std::string_view name) const {
    for (const auto& e : entries) {
      if (e->name.size() > name.size() && e->name.starts_with(name) && e->name[name.size()] == '.')
        return true;
    }
    return false;
  }

  Status load_file(const std::string& path) {
    FLOTILLA_TRY(const std::string text, read_file(path, kMaxConfigBytes));
    try {
      const toml::table table = toml::parse(text, path);
      return load_table(table, "", path);
    } catch (const toml::parse_error& e) {
      return Error{ErrorCode::kInvalidArgument, path + ", line " +
                                                    std::to_string(e.source().begin.line) + ": " +
                                                    std::string(e.description())};
    } catch (const std::exception& e) {
      return Error{ErrorCode::kInvalidArgument, path + ": " + e.what()};
    }
  }
};

Settings::Settings() : impl_(std::make_unique<Impl>()) {}
Settings::~Settings() = default;

void Settings::add(std::string name, std::string* target, std::string help, bool secret) {
  Impl::Entry& e = impl_->add(std::move(name), std::move(help));
  e.secret = secret;
  e.assign = [target](const std::vector<std::string>& v) -> Status {
    *target = v[0];
    return ok_status();
  };
  e.show = [target] { return target->empty() ? std::string("''") : *target; };
}

void Settings::add(std::string name, bool* target, std::string help) {
  Impl::Entry& e = impl_->add(std::move(name), std::move(help));
  e.is_bool = true;
  e.assign = [target](const std::vector<std::string>& v) -> Status {
    FLOTILLA_TRY(*target, to_bool(v[0]));
    return ok_status();
  };
  e.show = [target] { return std::string(*target ? "true" : "false"); };
}

void Settings::add(std::string name, std::int64_t* target, std::int64_t min, std::int64_t max,
                   std::string help) {
  Impl::Entry& e = impl_->add(std::move(name), std::move(help));
  e.assign = [target, min, max](const std::vector<std::string>& v) -> Status {
    FLOTILLA_TRY(*target, to_int(v[0], min, max));
    return ok_status();
  };
  e.show = [target] { return std::to_string(*target); };
}

void Settings::add(std::string name, double* target, double min, double max, std::string help) {
  Impl::Entry& e = impl_->add(std::move(name), std::move(help));
  e.assign = [target, min, max](const std::vector<std::string>& v) -> Status {
    FLOTILLA_TRY(*target, to_double(v[0], min, max));
    return ok_status();
  };
  e.show = [target] { return std::to_string(*target); };
}

void Settings::add(std::string name, std::vector<std::string>* target, std::string help,
                   bool secret) {
  Impl::Entry& e = impl_->add(std::move(name), std::move(help));
  e.is_list = true;
  e.secret = secret;
  e.assign = [target](const std::vector<std::string>& v) -> Status {
    *target = v;
    return ok_status();
  };
  e.show = [target] {
    std::string out = "[";
    for (const auto& item : *target) out += (out.size() > 1 ? "," : "") + item;
    return out + "]";
  };
}

void Settings::bind_flags(CLI::App& app) {
  app.add_option("--config", impl_->config_file, "TOML file with settings")->type_name("FILE");
  for (auto& e : impl_->entries) {
    variables_of_this_program().insert(variable_of(e->name));
    const std::string flag = "--" + with_separator(e->name, '-', false);
    auto* option = app.add_option(flag, e->flag_values, e->help);
    if (e->is_bool) {
      // "--flag" alone means true; "--flag=false" turns off what the file turned on.
      option->expected(0, 1)->default_str("true");
    } else if (e->is_list) {
      option->expected(1)->allow_extra_args(false)->multi_option_policy(
          CLI::MultiOptionPolicy::TakeAll);
    } else {
      option->expected(1)->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    }
    option->type_name(e->is_bool ? "" : "VALUE");
  }
}

Status Settings::load(const std::vector<std::string>& environment) {
  std::map<std::string, std::string, std::less<>> variables;
  for (const std::string& entry : environment) {
    const std::size_t equal = entry.find('=');
    if (equal != std::string::npos && entry.starts_with(kPrefix)) {
      variables[entry.substr(0, equal)] = entry.substr(equal + 1);
    }
  }
  std::string file = impl_->config_file;
  if (const auto it = variables.find(kConfigVariable); file.empty() && it != variables.end())
    file = it->second;
  if (!file.empty()) FLOTILLA_TRY_STATUS(impl_->load_file(file));

  std::vector<std::string> known;
  for (auto& e : impl_->entries) {
    const std::string variable = variable_of(e->name);
    known.push_back(variable);
    const auto it = variables.find(variable);
    if (it == variables.end()) continue;
    std::vector<std::string> values{it->second};
    if (e->is_list) {
      values.clear();
      for (std::size_t begin = 0; begin <= it->second.size() && !it->second.empty();) {
        const std::size_t comma = std::min(it->second.find(',', begin), it->second.size());
        values.push_back(it->second.substr(begin, comma - begin));
        begin = comma + 1;
      }
    }
    FLOTILLA_TRY_STATUS(Impl::assign(*e, values, "environment variable " + variable));
    variables.erase(it);
  }
  for (const std::string_view name : kReservedVariables) variables.erase(std::string(name));
  for (const std::string& name : variables_of_this_program()) variables.erase(name);
  if (!variables.empty()) {
    return Error{ErrorCode::kInvalidArgument,
                 unknown("environment variable", variables.begin()->first, known)};
  }

  for (auto& e : impl_->entries) {
    if (e->flag_values.empty()) continue;
    FLOTILLA_TRY_STATUS(
        Impl::assign(*e, e->flag_values, "--" + with_separator(e->name, '-', false)));
  }
  return ok_status();
}

std::string Settings::describe() const {
  std::string out;
  for (const auto& e : impl_->entries) {
    if (!out.empty()) out.push_back(' ');
    out += e->name + "=" + (e->secret ? std::string("(secret)") : e->show());
  }
  return out;
}

std::vector<std::string> process_environment() {
  std::vector<std::string> out;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry)
    out.emplace_back(*entry);
  return out;
}

}  // namespace flotilla::settings
