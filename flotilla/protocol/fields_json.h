// Visitors that write and read a message's fields() as a JSON object. For this module's .cc files
// only.
#pragma once

#include <boost/json.hpp>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "flotilla/base/error.h"
#include "flotilla/base/result.h"
#include "flotilla/base/text.h"
#include "flotilla/protocol/enum_names.h"
#include "flotilla/protocol/messages.h"

namespace flotilla::protocol {

inline constexpr std::size_t kDefaultLimit = 256;

template <class T>
struct IsVector : std::false_type {};
template <class T>
struct IsVector<std::vector<T>> : std::true_type {};
template <class T>
struct IsOptional : std::false_type {};
template <class T>
struct IsOptional<std::optional<T>> : std::true_type {};
template <class T>
struct IsKey : std::false_type {};
template <class Tag>
struct IsKey<Key32<Tag>> : std::true_type {};

// Keeps the first fault and the path of its field.
class JsonWriter {
 public:
  explicit JsonWriter(boost::json::object& out) : out_(out) {}

  template <class T>
  void operator()(std::string_view name, const T& field, std::size_t limit = kDefaultLimit) {
    if constexpr (IsOptional<T>::value) {
      if (field) (*this)(name, *field, limit);
    } else {
      boost::json::value value = write(name, field, limit);
      out_[name] = std::move(value);
    }
  }
  const std::optional<Error>& error() const { return error_; }

 private:
  template <class T>
  boost::json::value write(std::string_view name, const T& field, std::size_t limit) {
    if constexpr (std::is_same_v<T, bool> || std::is_same_v<T, double>) {
      if constexpr (std::is_same_v<T, double>) {
        if (!std::isfinite(field)) return 0.0;
      }
      return field;
    } else if constexpr (std::is_enum_v<T>) {
      return boost::json::value(boost::json::string(enum_name(field)));
    } else if constexpr (std::is_integral_v<T>) {
      return field;
    } else if constexpr (std::is_same_v<T, std::string>) {
      check(name, field.size(), limit);
      return boost::json::value(boost::json::string(field));
    } else if constexpr (IsKey<T>::value) {
      return boost::json::value(boost::json::string(to_base64url(field.bytes)));
    } else if constexpr (std::is_same_v<T, Signature>) {
      return boost::json::value(boost::json::string(to_base64url(field)));
    } else if constexpr (std::is_same_v<T, boost::json::value>) {
      return field;
    } else if constexpr (IsVector<T>::value) {
      check(name, field.size(), limit);
      boost::json::array array;
      array.reserve(field.size());
      for (const auto& item : field) array.push_back(write(name, item, kDefaultLimit));
      return array;
    } else {
      boost::json::object object;
      JsonWriter nested(object);
      T::fields(field, nested);
      if (nested.error_ && !error_) error_ = nested.error_;
      return object;
    }
  }
  void check(std::string_view name, std::size_t size, std::size_t limit) {
    if (size <= limit || error_) return;
    error_ = Error{ErrorCode::kTooLarge, "'" + std::string(name) + "' of " + std::to_string(size) +
                                             " exceeds the limit of " + std::to_string(limit)};
  }

  boost::json::object& out_;
  std::optional<Error> error_;
};

// Absent and null members keep the default. Stops at the first fault.
class JsonReader {
 public:
  JsonReader(const boost::json::object& in, std::string path) : in_(in), path_(std::move(path)) {}

  template <class T>
  void operator()(std::string_view name, T& field, std::size_t limit = kDefaultLimit) {
    if (fault_) return;
    const boost::json::value* value = in_.if_contains(name);
    if (value == nullptr || value->is_null()) return;
    const std::string path = path_.empty() ? std::string(name) : path_ + "." + std::string(name);
    if constexpr (IsOptional<T>::value) {
      field.emplace();
      read(*value, path, *field, limit);
    } else {
      read(*value, path, field, limit);
    }
  }
  // "'path' must be ..."
  const std::optional<std::string>& fault() const { return fault_; }

 private:
  template <class T>
  void read(const boost::json::value& value, const std::string& path, T& field, std::size_t limit) {
    if (fault_) return;
    if constexpr (std::is_same_v<T, bool>) {
      if (!value.is_bool()) return fail(path, "must be true or false");
      field = value.get_bool();
    } else if constexpr (std::is_same_v<T, double>) {
      if (!value.is_number()) return fail(path, "must be a number");
      field = value.to_number<double>();
    } else if constexpr (std::is_enum_v<T>) {
      if (!value.is_string()) return fail(path, "must be a string");
      field = enum_value<T>(value.get_string());
    } else if constexpr (std::is_integral_v<T>) {
      boost::system::error_code ec;
      const T number = value.to_number<T>(ec);
      if (!value.is_number() || ec) {
        return fail(path, "must be a whole number from " +
                              std::to_string(std::numeric_limits<T>::min()) + " to " +
                              std::to_string(std::numeric_limits<T>::max()));
      }
      field = number;
    } else if constexpr (std::is_same_v<T, std::string>) {
      if (!value.is_string()) return fail(path, "must be a string");
      if (!fits(path, value.get_string().size(), limit)) return;
      field = std::string(value.get_string());
    } else if constexpr (IsKey<T>::value) {
      read_bytes(value, path, field.bytes);
    } else if constexpr (std::is_same_v<T, Signature>) {
      read_bytes(value, path, field);
    } else if constexpr (std::is_same_v<T, boost::json::value>) {
      field = value;
    } else if constexpr (IsVector<T>::value) {
      if (!value.is_array()) return fail(path, "must be a list");
      if (!fits(path, value.get_array().size(), limit)) return;
      field.clear();
      for (const auto& item : value.get_array()) {
        field.emplace_back();
        read(item, path, field.back(), kDefaultLimit);
        if (fault_) return;
      }
    } else {
      if (!value.is_object()) return fail(path, "must be an object");
      JsonReader nested(value.get_object(), path);
      T::fields(field, nested);
      fault_ = nested.fault_;
    }
  }

  template <std::size_t N>
  void read_bytes(const boost::json::value& value, const std::string& path,
                  std::array<std::uint8_t, N>& field) {
    std::optional<std::vector<std::uint8_t>> bytes;
    if (value.is_string() && value.get_string().size() <= 2 * N)
      bytes = from_base64url(value.get_string());
    if (!bytes || bytes->size() != N)
      return fail(path, "must be " + std::to_string(N) + " bytes in base64url");
    std::memcpy(field.data(), bytes->data(), N);
  }
  bool fits(const std::string& path, std::size_t size, std::size_t limit) {
    if (size <= limit) return true;
    fail(path, "of " + std::to_string(size) + " exceeds the limit of " + std::to_string(limit));
    return false;
  }
  void fail(const std::string& path, std::string_view what) {
    fault_ = "'" + path + "' " + std::string(what);
  }

  const boost::json::object& in_;
  std::string path_;
  std::optional<std::string> fault_;
};

// Whole objects.
template <class M>
Result<std::string> write_json(const M& message) {
  boost::json::object object;
  JsonWriter writer(object);
  M::fields(message, writer);
  if (writer.error()) return Error(*writer.error());
  return boost::json::serialize(object);
}

// `where` names the message in faults.
template <class M>
Result<M> read_json(const boost::json::value& value, std::string_view where, ErrorCode code) {
  if (!value.is_object()) return Error{code, std::string(where) + ": must be a JSON object"};
  M message;
  JsonReader reader(value.get_object(), "");
  M::fields(message, reader);
  if (reader.fault()) return Error{code, std::string(where) + ": " + *reader.fault()};
  return message;
}

}  // namespace flotilla::protocol
