// docs/openapi.json against the code: every route, and every field that a parser reacts to.
#include "flotilla/api/openapi.h"

#include <algorithm>
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
      if (method.value().as_object().contains("x-program")) continue;  // of one program only
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

// Whatever looks like a name in the parsers' sources.
std::set<std::string> names_in_sources() {
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
  return names;
}

TEST(OpenApi, NoParserReadsAFieldThatItLacks) {
  const std::set<std::string> names = names_in_sources();
  ASSERT_GT(names.size(), 150u);
  ASSERT_TRUE(names.contains("frequency_penalty"));
  for (const Body& body : bodies()) {
    for (const std::string& name : names) {
      if (properties(body).contains(name)) continue;
      EXPECT_FALSE(matters(body, name)) << body.schema << "." << name;
    }
  }
}

// The same one level down, for objects that hold options.
TEST(OpenApi, OptionsInsideOptionsAreListedToo) {
  struct Inner {
    const char *schema, *field;
    bj::value base;
  };
  const std::set<std::string> names = names_in_sources();
  for (const Inner& inner :
       {Inner{"ChatCompletionRequest", "stream_options", *json::parse("{}")},
        Inner{"ChatCompletionRequest", "structured_outputs", *json::parse("{}")},
        Inner{"ResponsesRequest", "text", *json::parse("{}")},
        Inner{"ResponsesRequest", "reasoning", *json::parse("{}")},
        Inner{"ResponsesRequest", "stream_options", *json::parse("{}")},
        Inner{"MessagesRequest", "thinking",
              *json::parse(R"({"type":"enabled","budget_tokens":5})")},
        Inner{"MessagesRequest", "output_config", *json::parse("{}")},
        Inner{"MessagesRequest", "tool_choice", *json::parse(R"({"type":"auto"})")},
        Inner{"MessagesRequest", "output_format",
              *json::parse(R"({"type":"json_schema","schema":{}})")}}) {
    const Body& body = *std::find_if(bodies().begin(), bodies().end(), [&](const Body& b) {
      return std::string_view(b.schema) == inner.schema;
    });
    const Outcome plain = with_field(body, inner.field, inner.base);
    ASSERT_FALSE(plain.error) << inner.field << ": " << plain.error->message;
    const bj::object& listed = properties(body).at(inner.field).at("properties").as_object();
    const auto inner_matters = [&](std::string_view name) {
      for (const bj::value& probe : probes()) {
        bj::object changed = inner.base.as_object();
        changed[name] = probe;
        const Outcome outcome = with_field(body, inner.field, changed);
        if (outcome.error || outcome.job != plain.job) return true;
      }
      return false;
    };
    for (const auto& property : listed) {
      // With this choice the name of a tool has no part.
      if (property.key() == "name" && std::string_view(inner.field) == "tool_choice") continue;
      const bool ignored = property.value().as_object().contains("x-effect") &&
                           property.value().at("x-effect") == "ignored";
      EXPECT_EQ(inner_matters(property.key()), !ignored) << inner.field << "." << property.key();
    }
    for (const std::string& name : names) {
      if (listed.contains(name)) continue;
      EXPECT_FALSE(inner_matters(name)) << inner.schema << "." << inner.field << "." << name;
    }
  }
}

// A conversation with everything in it is the same job, whoever tells it.
TEST(Dialects, TheSameConversationIsTheSameJob) {
  const auto chat = api::parse_chat_request(*json::parse(
      R"({"model":"m","max_tokens":9,"temperature":0.5,"top_p":0.9,"stream":true,"tool_choice":"required",
          "tools":[{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object"}}}],
          "response_format":{"type":"json_schema","json_schema":{"schema":{"type":"object"}}},
          "messages":[{"role":"system","content":"s"},{"role":"user","content":"q"},
            {"role":"assistant","content":"look","reasoning_content":"hm","tool_calls":[
              {"id":"c1","type":"function","function":{"name":"f","arguments":"{\"k\":1}"}}]},
            {"role":"tool","tool_call_id":"c1","content":"42"},
            {"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]})"));
  const auto response = api::parse_responses_request(*json::parse(
      R"({"model":"m","max_output_tokens":9,"temperature":0.5,"top_p":0.9,"stream":true,"tool_choice":"required",
          "tools":[{"type":"function","name":"f","description":"d","parameters":{"type":"object"}}],
          "text":{"format":{"type":"json_schema","name":"n","schema":{"type":"object"}}},"instructions":"s",
          "input":[{"role":"user","content":"q"},
            {"type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"hm"}]},
            {"role":"assistant","content":[{"type":"output_text","text":"look"}]},
            {"type":"function_call","call_id":"c1","name":"f","arguments":"{\"k\":1}"},
            {"type":"function_call_output","call_id":"c1","output":"42"},
            {"role":"user","content":[{"type":"input_text","text":"a"},{"type":"input_text","text":"b"}]}]})"));
  const auto message = api::parse_anthropic_request(
      *json::parse(
          R"({"model":"m","max_tokens":9,"temperature":0.5,"top_p":0.9,"stream":true,"tool_choice":{"type":"any"},
          "tools":[{"name":"f","description":"d","input_schema":{"type":"object"}}],
          "output_format":{"type":"json_schema","schema":{"type":"object"}},"system":"s",
          "messages":[{"role":"user","content":"q"},
            {"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"x"},
              {"type":"text","text":"look"},{"type":"tool_use","id":"c1","name":"f","input":{"k":1}}]},
            {"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":"42"},
              {"type":"text","text":"a"},{"type":"text","text":"b"}]}]})"),
      api::AnthropicCall::kMessage);
  ASSERT_TRUE(chat.ok() && response.ok() && message.ok());
  const auto job = [](api::ChatRequest request) {
    // Only the place where the client wrote the schema differs.
    request.output_format.as_object()["param"] = "schema";
    return bj::serialize(api::to_job_json(request));
  };
  EXPECT_EQ(job(response->job), job(*chat));
  EXPECT_EQ(job(*message), job(*chat));
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
