// Shared by the tests of api/.
#pragma once

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <string>

#include "flotilla/api/chat_request.h"
#include "flotilla/json/json.h"

namespace flotilla::api {

inline boost::json::value parse_text(const std::string& text) {
  auto value = json::parse(text);
  EXPECT_TRUE(value.ok()) << text;
  return value.ok() ? *value : boost::json::value();
}

// A request with one user message and the given further members, e.g. R"("n":2)".
inline boost::json::value body_with(const std::string& members) {
  return parse_text(R"({"model":"m","messages":[{"role":"user","content":"hi"}])" +
                    (members.empty() ? "" : "," + members) + "}");
}

inline Result<ChatRequest> parse_with(const std::string& members) {
  return parse_chat_request(body_with(members));
}

inline Result<ChatRequest> parse_messages_text(const std::string& messages) {
  return parse_chat_request(parse_text(R"({"model":"m","messages":)" + messages + "}"));
}

}  // namespace flotilla::api
