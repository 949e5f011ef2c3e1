#include "flotilla/coordinator/admin/query.h"

#include "flotilla/base/text.h"

namespace flotilla::coordinator {
namespace {

std::optional<std::string> decoded(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i] == '+' ? ' ' : text[i];
      continue;
    }
    const auto byte = from_hex(text.substr(i + 1, 2));
    if (!byte || byte->size() != 1) return std::nullopt;
    out += static_cast<char>(byte->front());
    i += 2;
  }
  return out;
}

}  // namespace

std::optional<std::string> query_value(std::string_view query, std::string_view name) {
  while (!query.empty()) {
    const std::size_t end = query.find('&');
    const std::string_view item = query.substr(0, end);
    query = end == std::string_view::npos ? std::string_view{} : query.substr(end + 1);
    const std::size_t equals = item.find('=');
    if (decoded(item.substr(0, equals)) != name) continue;
    return equals == std::string_view::npos ? std::string() : decoded(item.substr(equals + 1));
  }
  return std::nullopt;
}

}  // namespace flotilla::coordinator
