// What the router wants to know about a request, computed once, off the core strand. No text is
// kept: only lengths and hashes.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "flotilla/api/chat_request.h"

namespace flotilla::coordinator {

// A beginning of the conversation, up to the end of one message.
struct Prefix {
  std::uint64_t hash = 0;
  std::size_t bytes = 0;  // of the prompt so far
};

struct RouteAsk {
  std::size_t prompt_bytes = 0;    // text, tools and markup, roughly
  std::int64_t prompt_tokens = 0;  // where the client sent ids; else 0
  std::int64_t max_tokens = 0;     // 0: open
  std::vector<Prefix> prefixes;    // from short to long; the last one is the whole prompt
};

// Prompts that begin alike share hashes if tenant and model are the same, and only then. Not
// cryptographic: a collision sends a request to a node that does not hold its prefix, no more.
RouteAsk route_ask(const api::ChatRequest& request, std::string_view tenant);

}  // namespace flotilla::coordinator
