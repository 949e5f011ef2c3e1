// Bytes of values between two processes of one program: no versions, numbers as they lie in memory.
// A struct takes part through a function `fields(visitor, struct&)` in its namespace or in worker.
#pragma once

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "flotilla/base/ids.h"
#include "flotilla/json/json.h"

namespace flotilla::worker {

template <class T>
inline constexpr bool kIsPlain = std::is_arithmetic_v<T> || std::is_enum_v<T>;
template <class T>
inline constexpr bool kIsJson =
    std::is_same_v<T, boost::json::value> || std::is_same_v<T, boost::json::object>;
template <class T>
inline constexpr bool kIsVector = false;
template <class T>
inline constexpr bool kIsVector<std::vector<T>> = true;
template <class T>
inline constexpr bool kIsOptional = false;
template <class T>
inline constexpr bool kIsOptional<std::optional<T>> = true;
template <class T>
inline constexpr bool kIsPair = false;
template <class A, class B>
inline constexpr bool kIsPair<std::pair<A, B>> = true;

class Writer {
 public:
  template <class... Ts>
  void operator()(const Ts&... values) {
    (put(values), ...);
  }
  std::string take() { return std::move(out_); }

 private:
  template <class T>
  void put(const T& x) {
    if constexpr (kIsPlain<T>) {
      out_.append(reinterpret_cast<const char*>(&x), sizeof x);
    } else if constexpr (std::is_same_v<T, std::string>) {
      put(static_cast<std::uint64_t>(x.size()));
      out_.append(x);
    } else if constexpr (kIsJson<T>) {
      put(boost::json::serialize(x));
    } else if constexpr (std::is_same_v<T, std::chrono::milliseconds>) {
      put(static_cast<std::int64_t>(x.count()));
    } else if constexpr (std::is_same_v<T, RequestId>) {
      put(x.value);
    } else if constexpr (kIsVector<T>) {
      put(static_cast<std::uint64_t>(x.size()));
      if constexpr (kIsPlain<typename T::value_type>) {
        out_.append(reinterpret_cast<const char*>(x.data()), x.size() * sizeof x[0]);
      } else {
        for (const auto& item : x) put(item);
      }
    } else if constexpr (kIsOptional<T>) {
      put(x.has_value());
      if (x) put(*x);
    } else if constexpr (kIsPair<T>) {
      put(x.first);
      put(x.second);
    } else {
      fields(*this, const_cast<T&>(x));  // one function for both directions; a writer only reads
    }
  }
  std::string out_;
};

class Reader {
 public:
  explicit Reader(std::string_view bytes) : left_(bytes) {}
  template <class... Ts>
  void operator()(Ts&... values) {
    (get(values), ...);
  }
  // All was there and nothing is left.
  bool done() const { return ok_ && left_.empty(); }

 private:
  template <class T>
  void get(T& x) {
    if constexpr (kIsPlain<T>) {
      copy(&x, sizeof x);
    } else if constexpr (std::is_same_v<T, std::string>) {
      const std::size_t size = count(1);
      x.assign(left_.substr(0, size));
      left_.remove_prefix(size);
    } else if constexpr (kIsJson<T>) {
      std::string text;
      get(text);
      auto parsed = json::parse(text, {.max_bytes = SIZE_MAX, .max_values = SIZE_MAX});
      if constexpr (std::is_same_v<T, boost::json::object>) {
        ok_ = ok_ && parsed.ok() && parsed->is_object();
        if (ok_) x = std::move(parsed->get_object());
      } else {
        ok_ = ok_ && parsed.ok();
        if (ok_) x = std::move(*parsed);
      }
    } else if constexpr (std::is_same_v<T, std::chrono::milliseconds>) {
      std::int64_t n = 0;
      get(n);
      x = std::chrono::milliseconds(n);
    } else if constexpr (std::is_same_v<T, RequestId>) {
      get(x.value);
    } else if constexpr (kIsVector<T>) {
      using Item = typename T::value_type;
      if constexpr (kIsPlain<Item>) {
        x.resize(count(sizeof(Item)));
        copy(x.data(), x.size() * sizeof(Item));
      } else {
        x.resize(count(1));
        for (auto& item : x) get(item);
      }
    } else if constexpr (kIsOptional<T>) {
      bool there = false;
      get(there);
      x.reset();
      if (there && ok_) get(x.emplace());
    } else if constexpr (kIsPair<T>) {
      get(x.first);
      get(x.second);
    } else {
      fields(*this, x);
    }
  }
  void copy(void* to, std::size_t size) {
    if (size > left_.size()) {
      ok_ = false;
      left_ = {};
      return;
    }
    if (size > 0) std::memcpy(to, left_.data(), size);
    left_.remove_prefix(size);
  }
  // Of items of at least `bytes` each: never more than there can be.
  std::size_t count(std::size_t bytes) {
    std::uint64_t n = 0;
    get(n);
    if (n > left_.size() / bytes) {
      ok_ = false;
      left_ = {};
      return 0;
    }
    return static_cast<std::size_t>(n);
  }
  std::string_view left_;
  bool ok_ = true;
};

template <class... Ts>
std::string packed(const Ts&... values) {
  Writer writer;
  writer(values...);
  return writer.take();
}
// False when the bytes are not exactly such values; those are then half filled.
template <class... Ts>
bool unpack(std::string_view bytes, Ts&... values) {
  Reader reader(bytes);
  reader(values...);
  return reader.done();
}

}  // namespace flotilla::worker
