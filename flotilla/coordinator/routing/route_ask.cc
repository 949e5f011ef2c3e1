#include "flotilla/coordinator/routing/route_ask.h"

#include <algorithm>
#include <boost/json.hpp>
#include <functional>

namespace flotilla::coordinator {
namespace {

namespace bj = boost::json;

constexpr std::size_t kMarkupBytes = 12;  // around a message
// Of a prompt without messages: it is cut at these lengths.
constexpr std::size_t kTextStep = 2048;
constexpr std::size_t kMaxPrefixes = 512;

class Chain {
 public:
  void add(std::string_view text) {
    mix(std::hash<std::string_view>()(text));
    bytes += text.size();
  }
  void mix(std::uint64_t value) {
    hash ^= value + 0x9E3779B97F4A7C15u + (hash << 6) + (hash >> 2);
    hash *= 0xFF51AFD7ED558CCDu;
  }
  void add(const bj::value& value) {
    switch (value.kind()) {
      case bj::kind::string:
        add(std::string_view(value.get_string()));
        break;
      case bj::kind::array:
        mix(value.get_array().size());
        for (const bj::value& item : value.get_array()) add(item);
        break;
      case bj::kind::object:
        mix(value.get_object().size());
        for (const auto& [name, item] : value.get_object()) {
          mix(std::hash<std::string_view>()(name));
          bytes += name.size() / 2;
          add(item);
        }
        break;
      default:
        mix(std::hash<bj::value>()(value));
        bytes += 4;
        break;
    }
  }

  std::uint64_t hash = 0x5bd1e995;
  std::size_t bytes = 0;
};

// Of very many beginnings the shortest and the longest are of use.
void thin(std::vector<Prefix>& prefixes) {
  if (prefixes.size() <= kMaxPrefixes) return;
  prefixes.erase(prefixes.begin() + 1,
                 prefixes.end() - static_cast<std::ptrdiff_t>(kMaxPrefixes - 1));
}

}  // namespace

RouteAsk route_ask(const api::ChatRequest& request, std::string_view tenant) {
  RouteAsk ask;
  ask.max_tokens = request.max_tokens.value_or(0);
  Chain chain;
  chain.mix(std::hash<std::string_view>()(tenant));
  chain.mix(std::hash<std::string_view>()(request.model));
  if (!request.prompt_ids.empty()) {
    ask.prompt_tokens = static_cast<std::int64_t>(request.prompt_ids.size());
    for (const TokenId id : request.prompt_ids) chain.mix(static_cast<std::uint64_t>(id));
    chain.bytes = request.prompt_ids.size() * 4;
    ask.prefixes.push_back({chain.hash, chain.bytes});
  } else if (request.is_completion) {
    for (std::size_t at = 0; at < request.prompt.size(); at += kTextStep) {
      chain.add(std::string_view(request.prompt).substr(at, kTextStep));
      ask.prefixes.push_back({chain.hash, chain.bytes});
    }
  } else if (request.messages.is_array()) {
    chain.add(request.tools);
    for (const bj::value& message : request.messages.get_array()) {
      chain.add(message);
      chain.bytes += kMarkupBytes;
      ask.prefixes.push_back({chain.hash, chain.bytes});
    }
  }
  thin(ask.prefixes);
  ask.prompt_bytes = chain.bytes;
  return ask;
}

}  // namespace flotilla::coordinator
