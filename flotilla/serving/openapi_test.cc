// docs/openapi.json against the code: every route, and every field that a parser reacts to.
#include "flotilla/api/openapi.h"

#include <filesystem>
#include <fstream>
#include <functional>
#include <regex>
#include <set>
#include <sstream>

#include "flotilla/api/anthropic_request.h"
#include "flotilla/api/chat_request.h"
#include "flotilla/api/completion_request.h"
#include "flotilla/api/responses_request.h"
#include "flotilla/serving/testing.h"

namespace flotilla::serving {
namespace {

namespace bj = boost::json;

const bj::value& document() {
  static const bj::value parsed = *json::parse(api::openapi_document());
  return parsed;
}

// What a parser made of a body, comparable: the job, or an error.
struct Outcome {
  std::string job;
  std::optional<Error> error;
};
using Parser = std::function<Outcome(const bj::value&)>;

template <class T, class Jobs>
Outcome outcome(const Result<T>& parsed, Jobs jobs) {
  if (!parsed.ok()) return {{}, parsed.error()};
  return {jobs(*parsed), std::nullopt};
}

std::string text_of(const api::ChatRequest& job) { return bj::serialize(api::to_job_json(job)); }

struct Body {
  const char* schema;
  bj::value base;
  Parser parse;
};

const std::vector<Body>& bodies() {
  static const std::vector<Body> all = {
      {"ChatCompletionRequest",
       *json::parse(R"({"model":"m","messages":[{"role":"user","content":"a"}],"stream":true,
                        "logprobs":true})"),
       [](const bj::value& body) { return outcome(api::parse_chat_request(body), text_of); }},
      {"CompletionRequest", *json::parse(R"({"model":"m","prompt":"a","stream":true})"),
       [](const bj::value& body) {
         return outcome(api::parse_completion_request(body),
                        [](const api::CompletionRequest& request) {
                          return text_of(request.jobs[0]) + std::to_string(request.n) +
                                 std::to_string(request.echo) + std::to_string(request.logprobs);
                        });
       }},
      {"ResponsesRequest", *json::parse(R"({"model":"m","input":"a","stream":true,
                        "tools":[{"type":"function","name":"f"}]})"),
       [](const bj::value& body) {
         return outcome(api::parse_responses_request(body),
                        [](const api::ResponsesRequest& request) { return text_of(request.job); });
       }},
      {"MessagesRequest",
       *json::parse(R"({"model":"m","max_tokens":5,"messages":[{"role":"user","content":"a"}],
                        "tools":[{"name":"f","input_schema":{}}]})"),
       [](const bj::value& body) {
         return outcome(api::parse_anthropic_request(body, api::AnthropicCall::kMessage), text_of);
       }},
      {"CountTokensRequest",
       *json::parse(R"({"model":"m","messages":[{"role":"user","content":"a"}],
                        "tools":[{"name":"f","input_schema":{}}]})"),
       [](const bj::value& body) {
         return outcome(api::parse_anthropic_request(body, api::AnthropicCall::kCountTokens),
                        text_of);
       }},
  };
  return all;
}

const bj::object& properties(const Body& body) {
  return document().at("components").at("schemas").at(body.schema).at("properties").as_object();
}

// Values of which at least one means something to every field.
const std::vector<bj::value>& probes() {
  static const std::vector<bj::value> all = {*json::parse(R"({"x":[true]})"),
                                             *json::parse("-12345"),
                                             *json::parse(R"("?")"),
                                             *json::parse("true"),
                                             *json::parse("[[]]"),
                                             *json::parse("7"),
                                             *json::parse("false")};
  return all;
}

Outcome with_field(const Body& body, std::string_view field, const bj::value& value) {
  bj::object changed = body.base.as_object();
  changed[field] = value;
  return body.parse(changed);
}

// True when some value of the field changes what is done, or is refused.
bool matters(const Body& body, std::string_view field) {
  const Outcome plain = body.parse(body.base);
  for (const bj::value& probe : probes()) {
    const Outcome outcome = with_field(body, field, probe);
    if (outcome.error || outcome.job != plain.job) return true;
  }
  return false;
}

TEST(OpenApi, ListsEveryRouteAndNoOther) {
  std::set<std::string> in_document, in_code;
  for (const auto& path : document().at("paths").as_object()) {
    for (const auto& method : path.value().as_object()) {
      std::string name(method.key());
      for (char& c : name) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
      in_document.insert(name + " " + std::string(path.key()));
    }
  }
  for (const auto& [method, path] : HttpSurface::routes())
    in_code.insert(std::string(method) + " " + std::string(path));
  EXPECT_EQ(in_document, in_code);
}

TEST(OpenApi, TheParsersReactToTheFieldsAsItSays) {
  for (const Body& body : bodies()) {
    const Outcome plain = body.parse(body.base);
    ASSERT_FALSE(plain.error) << body.schema << ": " << plain.error->message;
    for (const auto& property : properties(body)) {
      const std::string_view field(property.key());
      const bj::value* effect = property.value().as_object().if_contains("x-effect");
      const std::string where = std::string(body.schema) + "." + std::string(field);
      if (effect != nullptr && *effect == "ignored") {
        EXPECT_FALSE(matters(body, field)) << where;
      } else if (effect != nullptr && *effect == "refused") {
        bool refused = false;
        for (const bj::value& probe : probes()) {
          const Outcome outcome = with_field(body, field, probe);
          refused = refused || (outcome.error && outcome.error->code == ErrorCode::kUnsupported &&
                                outcome.error->param == field);
        }
        EXPECT_TRUE(refused) << where;
      } else {
        EXPECT_TRUE(matters(body, field)) << where;
      }
      // A refusal names the field, or one that it contradicts.
      const Outcome bad = with_field(body, field, probes()[0]);
      if (bad.error) {
        EXPECT_FALSE(bad.error->param.empty()) << where;
      }
    }
  }
}

// Whatever looks like a name in the parsers' sources is either a property or nothing to them.
TEST(OpenApi, NoParserReadsAFieldThatItLacks) {
  std::set<std::string> names;
  const std::regex literal("\"([a-z][a-z0-9_]*)\"");
  for (const auto& entry :
       std::filesystem::directory_iterator(FLOTILLA_SOURCE_DIR "/flotilla/api")) {
    const std::string path = entry.path().string();
    if (!path.ends_with(".cc") || path.ends_with("_test.cc")) continue;
    std::ifstream file(path);
    std::stringstream text;
    text << file.rdbuf();
    const std::string source = text.str();
    for (std::sregex_iterator it(source.begin(), source.end(), literal), end; it != end; ++it)
      names.insert((*it)[1]);
  }
  ASSERT_GT(names.size(), 150u);
  ASSERT_TRUE(names.contains("frequency_penalty"));
  for (const Body& body : bodies()) {
    for (const std::string& name : names) {
      if (properties(body).contains(name)) continue;
      EXPECT_FALSE(matters(body, name)) << body.schema << "." << name;
    }
  }
}

TEST(OpenApi, EveryReferenceHasItsTarget) {
  const std::string text(api::openapi_document());
  const std::regex reference("#/components/schemas/([A-Za-z]+)");
  int count = 0;
  for (std::sregex_iterator it(text.begin(), text.end(), reference), end; it != end;
       ++it, ++count) {
    EXPECT_TRUE(document().at("components").at("schemas").as_object().contains((*it)[1].str()));
  }
  EXPECT_GT(count, 20);
}

class Served : public SurfaceTest {};
TEST_F(Served, TheDocumentNeedsNoKey) {
  backend.key = "k";
  auto exchange = request("GET", "/openapi.json");
  EXPECT_EQ(exchange->head.status, 200u);
  EXPECT_EQ(body_json(*exchange).at("openapi"), "3.1.0");
}

}  // namespace
}  // namespace flotilla::serving
