// Writing JSON straight into a string, for the token path: no value tree, and never invalid UTF-8
// in the output.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace flotilla::api {

// Appends `text` quoted and escaped. Bytes that are no UTF-8 become U+FFFD, so the result is JSON
// whatever came in.
void append_json_string(std::string& out, std::string_view text);

void append_json_int(std::string& out, std::int64_t value);

// Shortest form that reads back as the same number; `value` must be finite.
void append_json_number(std::string& out, double value);

// Writes one object, member by member: JsonObject(out).text("id", id).number("index", 0).end().
// Keys are ours and need no escapes.
class JsonObject {
 public:
  explicit JsonObject(std::string& out) : out_(out) { out_ += '{'; }
  JsonObject& text(std::string_view key, std::string_view value);
  JsonObject& number(std::string_view key, std::int64_t value);
  // `json` is a JSON text.
  JsonObject& raw(std::string_view key, std::string_view json);
  void end() { out_ += '}'; }

 private:
  void begin(std::string_view key);

  std::string& out_;
  bool empty_ = true;
};

}  // namespace flotilla::api
