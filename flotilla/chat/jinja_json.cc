#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include "flotilla/chat/jinja_runtime.h"
#include "flotilla/chat/unicode_text.h"

namespace flotilla::chat {

namespace {

class JsonWriter {
 public:
  JsonWriter(Runtime& runtime, const JsonStyle& style) : runtime_(runtime), style_(style) {}

  void write(const Value& value, std::size_t level) {
    runtime_.charge(1);
    if (out.size() > runtime_.max_text()) runtime_.check_text(out.size());
    if (value.is_text()) {
      write_text(value.as_text().view());
    } else if (value.is_sequence()) {
      write_list(value.as_list()->items, level);
    } else if (value.is_dict()) {
      write_dict(*value.as_dict(), level);
    } else if (value.is_none()) {
      out += "null";
    } else if (value.is_bool()) {
      out += value.as_bool() ? "true" : "false";
    } else if (value.is_float()) {
      write_float(value.as_float());
    } else if (value.is_int() || value.is_big()) {
      out += runtime_.repr(value);
    } else {
      if (value.is_undefined()) runtime_.fail_undefined(value);
      runtime_.fail("tojson: a '" + std::string(value.type_name()) + "' is not JSON");
    }
  }

  std::string out;

 private:
  void write_float(double d) {
    if (std::isnan(d)) {
      out += "NaN";
    } else if (std::isinf(d)) {
      out += d < 0 ? "-Infinity" : "Infinity";
    } else {
      out += format_float(d);
    }
  }

  void write_unit(unsigned unit) {
    char code[8];
    std::snprintf(code, sizeof code, "\\u%04x", unit);
    out += code;
  }

  void write_text(std::string_view text) {
    runtime_.charge_bytes(text.size());
    out += '"';
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t start = at;
      const char32_t c = next_char(text, at);
      static constexpr std::string_view kPlain = "\"\\\n\r\t\b\f";
      static constexpr std::string_view kEscaped = "\"\\nrtbf";
      const std::size_t escape =
          c < 0x80 ? kPlain.find(static_cast<char>(c)) : std::string_view::npos;
      if (escape != std::string_view::npos) {
        out += '\\';
        out += kEscaped[escape];
      } else if (c < 0x20) {
        write_unit(c);
      } else if (style_.ensure_ascii && c > 0x7f && c <= 0xffff) {
        write_unit(c);
      } else if (style_.ensure_ascii && c > 0xffff && c <= 0x10ffff) {
        write_unit(0xd800 + ((c - 0x10000) >> 10));
        write_unit(0xdc00 + ((c - 0x10000) & 0x3ff));
      } else {
        out += text.substr(start, at - start);
      }
    }
    out += '"';
  }

  void new_line(std::size_t level) {
    if (!style_.has_indent) return;
    out += '\n';
    for (std::size_t i = 0; i < level; ++i) out += style_.indent;
  }

  void write_list(const std::vector<Value>& items, std::size_t level) {
    if (items.empty()) {
      out += "[]";
      return;
    }
    out += '[';
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i) out += style_.item_separator;
      new_line(level + 1);
      write(items[i], level + 1);
    }
    new_line(level);
    out += ']';
  }

  void write_key(const Value& key) {
    if (key.is_text()) return write_text(key.as_text().view());
    if (!key.is_number() && !key.is_none()) runtime_.fail("tojson: a key is no text or number");
    out += '"';
    write(key, 0);
    out += '"';
  }

  void write_dict(const DictObject& dict, std::size_t level) {
    if (dict.items().empty()) {
      out += "{}";
      return;
    }
    std::vector<const std::pair<Value, Value>*> items;
    for (const auto& item : dict.items()) items.push_back(&item);
    if (style_.sort_keys) {
      std::stable_sort(items.begin(), items.end(), [this](const auto* a, const auto* b) {
        return compare_values(runtime_, a->first, b->first) < 0;
      });
    }
    out += '{';
    bool first = true;
    for (const auto* item : items) {
      if (!first) out += style_.item_separator;
      first = false;
      new_line(level + 1);
      write_key(item->first);
      out += style_.key_separator;
      write(item->second, level + 1);
    }
    new_line(level);
    out += '}';
  }

  Runtime& runtime_;
  const JsonStyle& style_;
};

}  // namespace

std::string dump_json(Runtime& runtime, const Value& value, const JsonStyle& style) {
  JsonWriter writer(runtime, style);
  writer.write(value, 0);
  runtime.check_text(writer.out.size());
  return std::move(writer.out);
}

}  // namespace flotilla::chat
