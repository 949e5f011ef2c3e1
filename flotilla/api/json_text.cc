#include "flotilla/api/json_text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "flotilla/base/check.h"
#include "flotilla/base/text.h"

namespace flotilla::api {
namespace {

// Length of the well-formed character at the start of `text`, 0 if there is none.
std::size_t character_length(std::string_view text) {
  for (std::size_t n = 1; n <= std::min<std::size_t>(4, text.size()); ++n) {
    if (is_valid_utf8(text.substr(0, n))) return n;
  }
  return 0;
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t n = character_length(text);
    if (n == 0) {
      out += "\xEF\xBF\xBD";
      text.remove_prefix(1);
    } else {
      out += text.substr(0, n);
      text.remove_prefix(n);
    }
  }
  return out;
}

void append_escaped(std::string& out, std::string_view text) {
  std::size_t start = 0;  // of the run that needs no escape
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (c >= 0x20 && c != '"' && c != '\\') continue;
    out += text.substr(start, i - start);
    start = i + 1;
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      default: {
        constexpr char kHex[] = "0123456789abcdef";
        out += "\\u00";
        out += kHex[c >> 4];
        out += kHex[c & 15];
      }
    }
  }
  out += text.substr(start);
}

}  // namespace

void append_json_string(std::string& out, std::string_view text) {
  out += '"';
  if (is_valid_utf8(text)) {
    append_escaped(out, text);
  } else {
    append_escaped(out, replace_invalid_utf8(text));
  }
  out += '"';
}

void append_json_int(std::string& out, std::int64_t value) {
  char buffer[24];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value).ptr;
  out.append(buffer, end);
}

void append_json_number(std::string& out, double value) {
  FLOTILLA_CHECK(std::isfinite(value), "JSON has no infinite numbers");
  char buffer[40];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value).ptr;
  out.append(buffer, end);
}

void JsonObject::begin(std::string_view key) {
  if (!std::exchange(empty_, false)) out_ += ',';
  out_ += '"';
  out_ += key;
  out_ += "\":";
}

JsonObject& JsonObject::text(std::string_view key, std::string_view value) {
  begin(key);
  append_json_string(out_, value);
  return *this;
}

JsonObject& JsonObject::number(std::string_view key, std::int64_t value) {
  begin(key);
  append_json_int(out_, value);
  return *this;
}

JsonObject& JsonObject::raw(std::string_view key, std::string_view json) {
  begin(key);
  out_ += json;
  return *this;
}

}  // namespace flotilla::api
