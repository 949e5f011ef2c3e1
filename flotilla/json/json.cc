#include "flotilla/json/json.h"

#include <boost/json.hpp>
#include <boost/json/basic_parser_impl.hpp>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <system_error>

#include "flotilla/base/file.h"

namespace flotilla::json {
namespace bj = boost::json;
namespace {

// Builds the value as Boost.JSON's own parser does, with two differences. Numbers are read exactly:
// those of Boost.JSON 1.81 are one unit in the last place off now and then. And the keys of objects
// are counted, because equal keys overwrite each other silently; a text that says two things is
// refused instead.
class ValueHandler {
 public:
  static constexpr std::size_t max_object_size = std::size_t(-1);
  static constexpr std::size_t max_array_size = std::size_t(-1);
  static constexpr std::size_t max_key_size = std::size_t(-1);
  static constexpr std::size_t max_string_size = std::size_t(-1);
  using ec = boost::system::error_code;

  explicit ValueHandler(std::size_t max_values) : max_values_(max_values) { stack_.reset(); }
  bj::value release() { return stack_.release(); }
  std::size_t num_keys() const { return num_keys_; }
  bool number_out_of_range() const { return out_of_range_; }
  bool too_many_values() const { return num_values_ > max_values_; }

  bool on_document_begin(ec&) { return true; }
  bool on_document_end(ec&) { return true; }
  bool on_object_begin(ec&) { return true; }
  bool on_object_end(std::size_t n, ec& error) {
    num_keys_ += n;
    stack_.push_object(n);
    return count(error);
  }
  bool on_array_begin(ec&) { return true; }
  bool on_array_end(std::size_t n, ec& error) {
    stack_.push_array(n);
    return count(error);
  }
  bool on_key_part(bj::string_view part, std::size_t, ec&) {
    stack_.push_chars(part);
    return true;
  }
  bool on_key(bj::string_view last, std::size_t, ec&) {
    stack_.push_key(last);
    return true;
  }
  bool on_string_part(bj::string_view part, std::size_t, ec&) {
    stack_.push_chars(part);
    return true;
  }
  bool on_string(bj::string_view last, std::size_t, ec& error) {
    stack_.push_string(last);
    return count(error);
  }
  bool on_number_part(bj::string_view part, ec&) {
    number_.append(part.data(), part.size());
    return true;
  }
  bool on_int64(std::int64_t n, bj::string_view, ec& error) {
    number_.clear();
    stack_.push_int64(n);
    return count(error);
  }
  bool on_uint64(std::uint64_t n, bj::string_view, ec& error) {
    number_.clear();
    stack_.push_uint64(n);
    return count(error);
  }
  bool on_double(double approximate, bj::string_view last, ec& error) {
    number_.append(last.data(), last.size());
    double exact = 0;
    const auto read = std::from_chars(number_.data(), number_.data() + number_.size(), exact);
    number_.clear();
    // Too large, or too small to be told from zero; the approximation says which.
    if (read.ec == std::errc::result_out_of_range) exact = approximate;
    if (read.ec == std::errc::invalid_argument || !std::isfinite(exact)) {
      out_of_range_ = true;
      error = bj::error::exponent_overflow;
      return false;
    }
    stack_.push_double(exact);
    return count(error);
  }
  bool on_bool(bool b, ec& error) {
    stack_.push_bool(b);
    return count(error);
  }
  bool on_null(ec& error) {
    stack_.push_null();
    return count(error);
  }
  bool on_comment_part(bj::string_view, ec&) { return true; }
  bool on_comment(bj::string_view, ec&) { return true; }

 private:
  bool count(ec& error) {
    if (++num_values_ <= max_values_) return true;
    error = bj::error::array_too_large;
    return false;
  }

  const std::size_t max_values_;
  std::size_t num_values_ = 0;
  bj::value_stack stack_;
  std::string number_;
  std::size_t num_keys_ = 0;
  bool out_of_range_ = false;
};

std::size_t count_keys(const bj::value& value) {
  std::size_t n = 0;
  if (value.is_object()) {
    n = value.get_object().size();
    for (const auto& member : value.get_object()) n += count_keys(member.value());
  } else if (value.is_array()) {
    for (const auto& item : value.get_array()) n += count_keys(item);
  }
  return n;
}

Error invalid(std::string message, std::string param = {}) {
  return Error{ErrorCode::kInvalidArgument, std::move(message), std::move(param)};
}

Error wrong_type(std::string_view where, std::string_view key, std::string_view expected) {
  std::string path = join_path(where, key);
  std::string message = "'" + path + "' must be " + std::string(expected);
  return invalid(std::move(message), std::move(path));
}

std::string range_text(double min, double max) {
  char buffer[80];
  std::snprintf(buffer, sizeof buffer, "between %g and %g", min, max);
  return buffer;
}

template <class T>
Result<T> required(Result<std::optional<T>> found, std::string_view key, std::string_view where) {
  if (!found.ok()) return std::move(found).error();
  if (!found->has_value()) {
    std::string path = join_path(where, key);
    std::string message = "'" + path + "' is missing";
    return invalid(std::move(message), std::move(path));
  }
  return std::move(**found);
}

}  // namespace

Result<bj::value> parse(std::string_view text, const ParseLimits& limits) {
  if (text.size() > limits.max_bytes) {
    return Error{ErrorCode::kTooLarge, "JSON of " + std::to_string(text.size()) +
                                           " bytes exceeds the limit of " +
                                           std::to_string(limits.max_bytes)};
  }
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  bj::parse_options options;
  options.max_depth = limits.max_depth;
  try {
    boost::system::error_code ec;
    bj::basic_parser<ValueHandler> parser(options, limits.max_values);
    const std::size_t read = parser.write_some(false, text.data(), text.size(), ec);
    if (!ec && text.find_first_not_of(" \t\r\n", read) != std::string_view::npos) {
      ec = bj::error::extra_data;
    }
    if (parser.handler().number_out_of_range()) return invalid("JSON number is out of range");
    if (parser.handler().too_many_values()) {
      return Error{ErrorCode::kTooLarge,
                   "JSON has more than " + std::to_string(limits.max_values) + " values"};
    }
    if (ec == bj::error::too_deep) {
      return invalid("JSON is nested deeper than " + std::to_string(limits.max_depth) + " levels");
    }
    if (ec) return invalid("invalid JSON at byte " + std::to_string(read) + ": " + ec.message());
    bj::value value = parser.handler().release();
    if (parser.handler().num_keys() != count_keys(value)) {
      return invalid("JSON object has the same key twice");
    }
    return value;
  } catch (const std::exception& e) {
    return Error{ErrorCode::kInternal, std::string("JSON parser: ") + e.what()};
  }
}

Result<bj::value> parse_file(const std::string& path, const ParseLimits& limits) {
  FLOTILLA_TRY(const std::string text, read_file(path, limits.max_bytes));
  auto value = parse(text, limits);
  if (!value.ok()) return Error{value.error().code, path + ": " + value.error().message};
  return value;
}

const bj::value* find(const bj::value& object, std::string_view key) {
  const bj::object* members = object.if_object();
  if (members == nullptr) return nullptr;
  const bj::value* value = members->if_contains(key);
  return value == nullptr || value->is_null() ? nullptr : value;
}

Result<std::optional<bool>> get_bool(const bj::value& object, std::string_view key,
                                     std::string_view where) {
  const bj::value* value = find(object, key);
  if (value == nullptr) return std::optional<bool>();
  if (!value->is_bool()) return wrong_type(where, key, "true or false");
  return std::optional<bool>(value->get_bool());
}

Result<std::optional<std::int64_t>> get_int(const bj::value& object, std::string_view key,
                                            std::int64_t min, std::int64_t max,
                                            std::string_view where) {
  const bj::value* value = find(object, key);
  if (value == nullptr) return std::optional<std::int64_t>();
  const std::string expected =
      "an integer between " + std::to_string(min) + " and " + std::to_string(max);
  std::int64_t n = 0;
  if (value->is_int64()) {
    n = value->get_int64();
  } else if (value->is_double() && std::trunc(value->get_double()) == value->get_double() &&
             std::fabs(value->get_double()) <= 9007199254740992.0) {
    n = static_cast<std::int64_t>(value->get_double());
  } else {
    return wrong_type(where, key, expected);
  }
  if (n < min || n > max) return wrong_type(where, key, expected + ", not " + std::to_string(n));
  return std::optional<std::int64_t>(n);
}

Result<std::optional<double>> get_double(const bj::value& object, std::string_view key, double min,
                                         double max, std::string_view where) {
  const bj::value* value = find(object, key);
  if (value == nullptr) return std::optional<double>();
  if (!value->is_number()) return wrong_type(where, key, "a number");
  const double x = value->to_number<double>();
  if (!(x >= min && x <= max)) return wrong_type(where, key, range_text(min, max));
  return std::optional<double>(x);
}

Result<std::optional<std::string>> get_string(const bj::value& object, std::string_view key,
                                              std::string_view where) {
  const bj::value* value = find(object, key);
  if (value == nullptr) return std::optional<std::string>();
  if (!value->is_string()) return wrong_type(where, key, "a string");
  return std::optional<std::string>(
      std::string(value->get_string().data(), value->get_string().size()));
}

Result<std::int64_t> require_int(const bj::value& object, std::string_view key, std::int64_t min,
                                 std::int64_t max, std::string_view where) {
  return required(get_int(object, key, min, max, where), key, where);
}
Result<double> require_double(const bj::value& object, std::string_view key, double min, double max,
                              std::string_view where) {
  return required(get_double(object, key, min, max, where), key, where);
}
Result<std::string> require_string(const bj::value& object, std::string_view key,
                                   std::string_view where) {
  return required(get_string(object, key, where), key, where);
}
Result<bool> require_bool(const bj::value& object, std::string_view key, std::string_view where) {
  return required(get_bool(object, key, where), key, where);
}

std::string join_path(std::string_view where, std::string_view key) {
  if (where.empty()) return std::string(key);
  return std::string(where) + "." + std::string(key);
}

}  // namespace flotilla::json
