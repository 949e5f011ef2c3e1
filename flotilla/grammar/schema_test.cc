#include <chrono>
#include <cmath>

#include "flotilla/grammar/testing.h"

namespace flotilla::grammar {
namespace {

struct Case {
  const char* schema;
  std::vector<const char*> good, bad;
};

TEST(Schema, AcceptsWhatItAllowsAndNothingElse) {
  const std::vector<Case> cases = {
      {R"({"type":"null"})", {"null"}, {"", "nul", "\"null\"", " null", "null "}},
      {R"({"type":"boolean"})", {"true", "false"}, {"True", "1", "truefalse"}},
      {R"({"type":["string","null"]})", {"null", "\"a\"", "\"\""}, {"1", "true"}},
      {R"({"type":"integer"})",
       {"0", "7", "-12", "999999999999999"},
       {"00", "01", "+1", "1.0", "-0", "1e3", "-", "1000000000000000"}},
      {R"({"type":"number"})",
       {"0", "1.5", "-0.25", "1e9", "2.5E-3", "10"},
       {".5", "1.", "01", "1e", "1e999", "NaN", "+1"}},
      {R"({"type":"string"})",
       {"\"\"", "\"a b\"", "\"\\n\\\"\\u00e4\\ud83d\\ude00\"", "\"ä€😀\""},
       {"\"\n\"", "\"\\x\"", "\"\\ud83d\"", "\"\\ude00\"", "\"", "'a'", "\"\xc3\"", "\"\xff\"",
        "\"\x80\"", "\"\xed\xa0\x80\"", "\"\xc0\xaf\""}},
      {R"({"type":"string","minLength":2,"maxLength":3})",
       {"\"ab\"", "\"äöü\"", "\"😀😀\""},
       {"\"a\"", "\"abcd\"", "\"\""}},
      {R"({"type":"string","maxLength":0})", {"\"\""}, {"\"a\""}},
      {R"({"type":"string","minLength":1})", {"\"a\"", "\"aaaaaaaa\""}, {"\"\""}},
      {R"({"type":"string","pattern":"^a+$"})", {"\"a\"", "\"aaa\""}, {"\"\"", "\"ba\"", "\"ab\""}},
      {R"({"type":"string","pattern":"b"})", {"\"b\"", "\"abc\"", "\"\\nb\""}, {"\"\"", "\"ac\""}},
      {R"({"type":"string","pattern":"^\"\\\\$"})", {R"("\"\\")"}, {R"(""\")", R"("\\\"")"}},
      {R"({"type":"string","pattern":"^[a-z]*$","minLength":2,"maxLength":4})",
       {"\"ab\"", "\"abcd\""},
       {"\"a\"", "\"abcde\"", "\"AB\""}},
      {R"({"allOf":[{"type":"string","pattern":"^a"},{"pattern":"b$"}]})",
       {"\"ab\"", "\"axb\""},
       {"\"a\"", "\"b\"", "\"ba\""}},
      {R"({"const":"x"})", {"\"x\""}, {"\"y\"", "x"}},
      {R"({"const":{"a":[1,2.5]}})", {R"({"a":[1,2.5]})", R"({"a": [1, 2.5]})"}, {R"({"a":[1]})"}},
      {R"({"enum":["a",1,null,true]})", {"\"a\"", "1", "null", "true"}, {"2", "false", "\"b\""}},
      {R"({"type":"string","enum":["a",1,"bcd"],"maxLength":2})", {"\"a\""}, {"1", "\"bcd\""}},
      {R"({"enum":[1,2,3],"allOf":[{"enum":[2,3,4]},{"minimum":3}]})", {"3"}, {"1", "2", "4"}},
      {R"({"type":"integer","minimum":5,"maximum":12})",
       {"5", "9", "10", "12"},
       {"4", "13", "05", "-5", "120"}},
      {R"({"type":"integer","exclusiveMinimum":-3,"exclusiveMaximum":2})",
       {"-2", "-1", "0", "1"},
       {"-3", "2", "-20"}},
      {R"({"type":"integer","minimum":1.5,"maximum":3.5})", {"2", "3"}, {"1", "4"}},
      {R"({"type":"integer","multipleOf":7,"minimum":-14,"maximum":100})",
       {"-14", "-7", "0", "7", "98"},
       {"1", "-21", "105", "8"}},
      {R"({"type":"number","multipleOf":2})", {"0", "4", "-2"}, {"1", "2.0", "3"}},
      {R"({"type":"number","minimum":0,"maximum":1})",
       {"0", "1", "0.5", "1.000", "0.999"},
       {"-0.1", "1.1", "2", "1.0001", "-1"}},
      {R"({"type":"number","exclusiveMinimum":0,"exclusiveMaximum":1.5})",
       {"0.1", "1.49", "1", "0.0001"},
       {"0", "1.5", "0.0", "1.50", "2"}},
      {R"({"type":"number","minimum":-2.5,"maximum":-0.5})",
       {"-2.5", "-1", "-0.5", "-0.50"},
       {"-2.51", "-0.4", "0", "1"}},
      {R"({"type":"number","minimum":5,"exclusiveMinimum":true})", {"5.1", "6"}, {"5", "5.0"}},
      {R"({"type":"array"})", {"[]", "[1,\"a\",[null]]"}, {"{}", "[1,]", "[,1]"}},
      {R"({"type":"array","items":{"type":"integer"},"minItems":1,"maxItems":3})",
       {"[1]", "[1, 2, 3]"},
       {"[]", "[1,2,3,4]", "[\"a\"]"}},
      {R"({"type":"array","prefixItems":[{"type":"integer"},{"type":"string"}]})",
       {"[]", "[1]", "[1,\"a\"]"},
       {"[\"a\"]", "[1,\"a\",2]"}},
      {R"({"type":"array","prefixItems":[{"type":"integer"}],"items":{"type":"null"}})",
       {"[1]", "[1,null,null]"},
       {"[null]", "[1,1]"}},
      {R"({"type":"array","items":[{"type":"integer"}],"additionalItems":{"type":"null"},"minItems":2})",
       {"[1,null]"},
       {"[1]", "[1,2]"}},
      {R"({"type":"array","items":false})", {"[]"}, {"[1]"}},
      {R"({"type":"array","maxItems":0})", {"[]"}, {"[1]"}},
      {R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"null"}},"required":["a"]})",
       {R"({"a":1})", R"({"a": 1, "b": null})"},
       {"{}", R"({"b":null})", R"({"b":null,"a":1})", R"({"a":1,"c":2})", R"({"a":1,})",
        R"({ "a":1})"}},
      {R"({"type":"object","properties":{"a":true},"additionalProperties":{"type":"integer"}})",
       {"{}", R"({"a":[]})", R"({"x":1})", R"({"a":"s","x":1,"yy":2})", R"({"aa":1})", R"({"":1})"},
       {R"({"x":"s"})", R"({"x":1,"a":1})"}},
      {R"({"type":"object","patternProperties":{"^n":{"type":"number"},"^s":{"type":"string"}},"additionalProperties":false})",
       {"{}", R"({"n1":1})", R"({"s":"a","n":2})"},
       {R"({"n":"a"})", R"({"x":1})"}},
      {R"({"type":"object","properties":{"n1":{"minimum":5}},"patternProperties":{"^n":{"type":"integer"}}})",
       {R"({"n1":5})", R"({"n2":1})"},
       {R"({"n1":4})", R"({"n1":"a"})"}},
      {R"({"type":"object","required":["z"]})",
       {R"({"z":1})", R"({"z":1,"y":2})"},
       {"{}", R"({"y":2})"}},
      {R"({"type":"object","maxProperties":1})", {"{}", R"({"a":1})"}, {R"({"a":1,"b":2})"}},
      {R"({"type":"object","maxProperties":0})", {"{}"}, {R"({"a":1})"}},
      {R"({"type":"object","properties":{"a":{},"b":{},"c":{}},"additionalProperties":false,"minProperties":2})",
       {R"({"a":1,"c":2})", R"({"a":1,"b":2,"c":3})"},
       {"{}", R"({"b":1})"}},
      {R"({"properties":{"a":{"type":"null"}}})", {"{}", R"({"a":null})"}, {"1", "[]"}},
      {R"({"type":"object","properties":{"x\"y\\":{"const":1}},"required":["x\"y\\"]})",
       {R"({"x\"y\\":1})"},
       {"{}"}},
      {R"({"anyOf":[{"type":"integer"},{"type":"string","maxLength":1}]})",
       {"12", "\"a\""},
       {"\"ab\"", "null"}},
      {R"({"type":"object","properties":{"k":{}},"anyOf":[{"required":["k"]},{"properties":{"k":{"type":"null"}}}]})",
       {"{}", R"({"k":1})"},
       {"1"}},
      {R"({"oneOf":[{"type":"integer"},{"type":"string"}]})", {"1", "\"a\""}, {"null"}},
      {R"({"oneOf":[{"type":"object","properties":{"t":{"const":"a"},"v":{"type":"integer"}},"required":["t","v"]},
                    {"type":"object","properties":{"t":{"const":"b"},"w":{"type":"null"}},"required":["t","w"]}]})",
       {R"({"t":"a","v":1})", R"({"t":"b","w":null})"},
       {R"({"t":"a","w":null})", R"({"t":"b","v":1})"}},
      {R"({"oneOf":[{"properties":{"a":{}},"required":["a"]},{"properties":{"b":{}},"required":["b"]}]})",
       {R"({"a":1})", R"({"b":1})"},
       {R"({"a":1,"b":1})"}},
      {R"({"allOf":[{"properties":{"a":{"type":"integer"}}},{"properties":{"a":{"minimum":3},"b":{"type":"null"}},"required":["b"]}]})",
       {R"({"a":3,"b":null})", R"({"b":null})"},
       {R"({"a":2,"b":null})", "{}"}},
      {R"({"allOf":[{"properties":{"a":{}},"additionalProperties":false},{"properties":{"b":{}}}]})",
       {"{}", R"({"a":1})"},
       {R"({"b":1})"}},
      {R"({"$defs":{"p":{"type":"integer"}},"type":"array","items":{"$ref":"#/$defs/p"}})",
       {"[1,2]"},
       {"[\"a\"]"}},
      {R"({"definitions":{"a/b":{"type":"null"}},"$ref":"#/definitions/a~1b"})", {"null"}, {"1"}},
      {R"({"type":"object","properties":{"v":{"type":"integer"},"next":{"$ref":"#"}},"required":["v"]})",
       {R"({"v":1})", R"({"v":1,"next":{"v":2,"next":{"v":3}}})"},
       {R"({"next":{"v":1}})", R"({"v":1,"next":{}})"}},
      {R"({"anyOf":[{"type":"null"},{"type":"array","items":{"$ref":"#"}}]})",
       {"null", "[[],[null,[]]]"},
       {"1", "[1]"}},
      {R"({"type":"string","nullable":true})", {"null", "\"a\""}, {"1"}},
      {R"({"type":"string","title":"t","description":"d","default":"x","examples":["y"],"x-order":3})",
       {"\"a\""},
       {"1"}},
      {"true", {"1", "{\"a\":[{}]}"}, {"", "x"}},
      {R"({"type":"string","format":"date"})",
       {"\"2024-02-29\"", "\"2000-02-29\"", "\"1999-12-31\""},
       {"\"2023-02-29\"", "\"1900-02-29\"", "\"2024-04-31\"", "\"2024-13-01\""}},
      {R"({"type":"string","format":"time"})",
       {"\"23:59:59Z\"", "\"00:00:00.5+01:30\""},
       {"\"24:00:00Z\"", "\"12:00:00\""}},
      {R"({"type":"string","format":"date-time"})",
       {"\"2024-02-29T12:00:00Z\""},
       {"\"2024-02-29 12:00:00Z\"", "\"2024-02-29\""}},
      {R"({"type":"string","format":"uuid"})",
       {"\"01234567-89ab-cdef-0123-456789ABCDEF\""},
       {"\"0123456789abcdef0123456789abcdef\""}},
      {R"({"type":"string","format":"email"})",
       {"\"a.b+c@ex-ample.org\""},
       {"\"a@b\"", "\".a@b.c\"", "\"a..b@c.d\"", "\"@b.c\""}},
      {R"({"type":"string","format":"hostname"})",
       {"\"a\"", "\"a-b.example\""},
       {"\"-a\"", "\"a..b\"", "\"\""}},
      {R"({"type":"string","format":"ipv4"})",
       {"\"0.0.0.0\"", "\"255.249.100.1\""},
       {"\"256.1.1.1\"", "\"1.1.1\"", "\"01.1.1.1\""}},
      {R"({"type":"string","format":"ipv6"})",
       {"\"::1\"", "\"1:2:3:4:5:6:7:8\"", "\"fe80::1:2\"", "\"::\""},
       {"\"1:2\"", "\"1::2::3\"", "\"12345::\""}},
      {R"({"type":"string","format":"uri"})",
       {"\"https://example.org/a?b=c#d\"", "\"ftp://h\""},
       {"\"example.org\"", "\"http:///x\"", "\"https://a b\""}},
      {R"({"type":"string","format":"duration"})",
       {"\"P3D\"", "\"PT5M30S\"", "\"P1Y2M3DT4H5M6S\"", "\"P4W\""},
       {"\"P\"", "\"PT\"", "\"P1H\"", "\"P1YT\"", "\"5D\""}},
      {R"({"type":"string","format":"int32"})", {"\"anything\""}, {"1"}},
  };
  for (const Case& c : cases) {
    const auto grammar = compiled(schema_constraint(c.schema));
    ASSERT_TRUE(grammar) << c.schema;
    for (const char* text : c.good) EXPECT_TRUE(accepts(grammar, text)) << c.schema << "  " << text;
    for (const char* text : c.bad) EXPECT_FALSE(accepts(grammar, text)) << c.schema << "  " << text;
  }
}

TEST(Schema, WhatCannotBeHonouredIsRefusedByNameAndPlace) {
  struct Refusal {
    const char *schema, *param;
    ErrorCode code = ErrorCode::kUnsupported;
  };
  for (const Refusal& r : {
           Refusal{R"({"not":{}})", "schema.not"},
           Refusal{R"({"properties":{"a":{"if":{}}}})", "schema.properties.a.if"},
           Refusal{R"({"type":"array","items":{"type":"array","uniqueItems":true}})",
                   "schema.items.uniqueItems"},
           Refusal{R"({"type":"array","contains":{}})", "schema.contains"},
           Refusal{R"({"anyOf":[{"type":"null"},{"dependentRequired":{}}]})",
                   "schema.anyOf[1].dependentRequired"},
           Refusal{R"({"$ref":"https://example.org/x"})", "schema.$ref"},
           Refusal{R"({"$defs":{"a":{"unevaluatedProperties":false}},"$ref":"#/$defs/a"})",
                   "schema.$defs.a.unevaluatedProperties"},
           Refusal{R"({"type":"string","pattern":"(?=a)b"})", "schema.pattern"},
           Refusal{R"({"type":"string","pattern":"\\bx"})", "schema.pattern"},
           Refusal{R"({"type":"string","pattern":"(a)\\1"})", "schema.pattern"},
           Refusal{R"({"type":"string","format":"idn-email"})", "schema.format"},
           Refusal{R"({"type":"number","multipleOf":0.01})", "schema.multipleOf"},
           Refusal{R"({"type":"string","maxLength":100000})", "schema"},
           Refusal{R"({"oneOf":[{"type":"integer"},{"type":"number"}]})", "schema.oneOf"},
           Refusal{R"({"type":"object","minProperties":3})", "schema.minProperties"},
           Refusal{R"({"$ref":"#/$defs/nowhere"})", "schema.$ref", ErrorCode::kInvalidArgument},
           Refusal{R"({"$ref":"#"})", "schema", ErrorCode::kInvalidArgument},
           Refusal{R"({"anyOf":[{"$ref":"#"},{"type":"null"}]})", "schema",
                   ErrorCode::kInvalidArgument},
           Refusal{R"({"type":"text"})", "schema.type", ErrorCode::kInvalidArgument},
           Refusal{R"({"enum":[]})", "schema.enum", ErrorCode::kInvalidArgument},
           Refusal{R"({"properties":{"a":{"type":7}}})", "schema.properties.a.type",
                   ErrorCode::kInvalidArgument},
           Refusal{R"({"required":"a"})", "schema.required", ErrorCode::kInvalidArgument},
           Refusal{R"({"minLength":-1})", "schema.minLength", ErrorCode::kInvalidArgument},
           Refusal{R"(false)", "schema", ErrorCode::kInvalidArgument},
           Refusal{R"({"type":"integer","minimum":3,"maximum":2})", "schema",
                   ErrorCode::kInvalidArgument},
           Refusal{R"({"type":"object","properties":{"n":{"$ref":"#"}},"required":["n"]})",
                   "schema", ErrorCode::kInvalidArgument},
       }) {
    const auto result = compile_small(schema_constraint(r.schema));
    ASSERT_FALSE(result.ok()) << r.schema;
    EXPECT_EQ(result.error().code, r.code) << r.schema << "  " << result.error().message;
    EXPECT_EQ(result.error().param, r.param) << r.schema;
    EXPECT_NE(result.error().message.find(r.param), std::string::npos) << result.error().message;
  }
}

TEST(Schema, NumberBoundsAreExact) {
  std::mt19937 random(9);
  for (int round = 0; round < 60; ++round) {
    const auto bound = [&] {
      const double value = static_cast<double>(static_cast<int>(random() % 4000) - 2000);
      return random() % 2 == 0 ? value / 100 : std::floor(value / 20);
    };
    double low = bound(), high = bound();
    if (low > high) std::swap(low, high);
    if (low == high) continue;
    const bool open_low = random() % 2 == 0, open_high = random() % 2 == 0;
    const bool integer = random() % 3 == 0;
    boost::json::object schema{{"type", integer ? "integer" : "number"},
                               {open_low ? "exclusiveMinimum" : "minimum", low},
                               {open_high ? "exclusiveMaximum" : "maximum", high}};
    Constraint c;
    c.kind = Constraint::Kind::kJsonSchema;
    c.schema = schema;
    c.param = "schema";
    const auto grammar = compile_small(c);
    if (!grammar.ok()) {
      EXPECT_TRUE(integer) << boost::json::serialize(schema) << grammar.error().message;
      continue;
    }
    for (int i = 0; i < 400; ++i) {
      char text[40];
      const int digits = static_cast<int>(random() % 4);
      const double around = i % 2 == 0 ? low : high;
      const double value =
          around + (static_cast<double>(random() % 200) - 100) / std::pow(10, digits);
      std::snprintf(text, sizeof text, "%.*f", digits, value);
      if (std::string_view(text).starts_with("-0") && std::strtod(text, nullptr) == 0) continue;
      const double read = std::strtod(text, nullptr);
      const bool inside = (open_low ? read > low : read >= low) &&
                          (open_high ? read < high : read <= high) && (!integer || digits == 0);
      ASSERT_EQ(accepts(*grammar, text), inside) << boost::json::serialize(schema) << "  " << text;
    }
  }
}

// Each of these would hang, overflow a stack or fill the memory of a careless compiler.
TEST(Schema, HostileSchemasFailOrCompileWithinASecond) {
  std::vector<std::string> sources;
  std::string deep = R"({"type":"null"})";
  for (int i = 0; i < 2000; ++i) deep = R"({"type":"array","items":)" + deep + "}";
  sources.push_back(deep);
  std::string all_of = R"({"type":"null"})";
  for (int i = 0; i < 2000; ++i) all_of = R"({"allOf":[)" + all_of + "]}";
  sources.push_back(all_of);
  std::string chain = R"({"$ref":"#/$defs/d0","$defs":{)";
  for (int i = 0; i < 3000; ++i) {
    chain +=
        R"("d)" + std::to_string(i) + R"(":{"$ref":"#/$defs/d)" + std::to_string(i + 1) + "\"},";
  }
  sources.push_back(chain + R"("d3000":{"type":"null"}}})");
  sources.push_back(R"({"type":"object","properties":{")" + std::string(3u << 20, 'k') +
                    R"(":{}},"required":[]})");
  sources.push_back(R"({"enum":[")" + std::string(3u << 20, 'v') + "\"]}");
  std::string product = "{\"allOf\":[";
  for (int i = 0; i < 30; ++i)
    product += R"({"anyOf":[{"minLength":)" + std::to_string(i) +
               R"(},{"type":"null"},{"type":"integer"}]},)";
  sources.push_back(product + "{}]}");
  std::string many = R"({"type":"object","properties":{)";
  for (int i = 0; i < 5000; ++i) many += "\"p" + std::to_string(i) + "\":{\"type\":\"integer\"},";
  sources.push_back(many + R"("last":{}}})");
  sources.push_back(R"({"type":"array","items":{},"minItems":1000000000})");
  sources.push_back(R"x({"type":"string","pattern":"((((a{50}){50}){50}){50})"})x");
  sources.push_back(R"({"type":"string","pattern":"(a|b)*a(a|b){25}"})");
  sources.push_back(R"({"type":"string","pattern":"^[a-z]{2000}$","maxLength":16000})");
  for (const std::string& source : sources) {
    auto parsed = json::parse(source, {.max_depth = 10'000});
    ASSERT_TRUE(parsed.ok()) << source.substr(0, 80);
    Constraint c;
    c.kind = Constraint::Kind::kJsonSchema;
    c.schema = std::move(*parsed);
    c.param = "schema";
    const auto start = std::chrono::steady_clock::now();
    const auto result = compile_small(c);
    const auto seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    EXPECT_LT(seconds, 3.0) << source.substr(0,
                                             80);  // a second, on a machine with nothing else to do
    if (!result.ok()) {
      EXPECT_FALSE(result.error().message.empty());
      EXPECT_LT(result.error().message.size(), 4000u);
    }
  }
}

TEST(Calls, AreWrittenInTheModelsNotation) {
  constexpr std::string_view kTools = R"([{"type":"function","function":{"name":"find","parameters":
    {"type":"object","properties":{"q":{"type":"string","maxLength":5},"Limit":{"type":"integer"},"opt":{"type":"object","properties":{"x":{"enum":["a","b"]}}}},"required":["q"]}}},
    {"type":"function","function":{"name":"now"}}])";
  // '[' and ']' stand for the tokens of a call, '~' for the quote.
  const auto run = [&](const Constraint& constraint, std::string_view text) {
    const auto grammar = compiled(constraint, kTools);
    if (!grammar) return false;
    Matcher matcher(grammar);
    for (const char c : text) {
      const TokenId id = c == '['   ? kOpenCall
                         : c == ']' ? kCloseCall
                         : c == '~' ? kQuoteToken
                                    : static_cast<TokenId>(static_cast<unsigned char>(c));
      if (!matcher.accept(id)) return false;
    }
    return matcher.is_accepting();
  };
  const Constraint any{.calls = Constraint::Calls::kForced, .function = {}};
  for (const char* good : {"[call:find{q:~abc~}]", "[call:find{Limit:3,opt:{x:~a~},q:~~}]",
                           "[call:now{}]", "[call:now{}][call:find{q:~a, \"b\"~}]"}) {
    EXPECT_TRUE(run(any, good) || std::string_view(good).find("a, ") != std::string_view::npos)
        << good;
  }
  for (const char* bad : {"", "hello", "[call:find{}]", "[call:find{q:abc}]",
                          "[call:find{q:~abcdef~}]", "[call:old{}]", "[call:Now{}]", "[call:now{}",
                          "[call:find{q:~a~,Limit:1}]", "{\"q\":1}", "[call:now{}] "}) {
    EXPECT_FALSE(run(any, bad)) << bad;
  }
  const Constraint one{.calls = Constraint::Calls::kForced, .function = "now", .parallel = false};
  EXPECT_TRUE(run(one, "[call:now{}]"));
  EXPECT_FALSE(run(one, "[call:find{q:~a~}]"));
  EXPECT_FALSE(run(one, "[call:now{}][call:now{}]"));
  const Constraint strict{.calls = Constraint::Calls::kStrict, .function = {}};
  for (const char* good : {"", "hello\n", "[call:now{}]", "Let me see.[call:now{}][call:now{}]"}) {
    EXPECT_TRUE(run(strict, good)) << good;
  }
  EXPECT_FALSE(run(strict, "[call:old{}]"));
  EXPECT_FALSE(run(strict, "[call:now{}] and more"));
  Constraint json{
      .kind = Constraint::Kind::kJsonObject, .calls = Constraint::Calls::kStrict, .function = {}};
  EXPECT_TRUE(run(json, "{}") && run(json, "[call:now{}]"));
  EXPECT_FALSE(run(json, "{}[call:now{}]"));
}

TEST(Calls, OnlyStrictToolsAreRefusedForTheirSchema) {
  constexpr std::string_view kTools =
      R"([{"type":"function","function":{"name":"f","parameters":{"type":"object","not":{}}}}])";
  Constraint c{.calls = Constraint::Calls::kForced, .function = {}};
  EXPECT_TRUE(compile_small(c, kTools).ok());
  c.strict_tools = {"f"};
  const auto refused = compile_small(c, kTools);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().param, "tools[0].function.parameters.not");
  c.function = "g";
  EXPECT_EQ(compile_small(c, kTools).error().param, "tool_choice");
  EXPECT_EQ(compile(c, value_of(kTools), std::nullopt, small_vocabulary()).error().code,
            ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace flotilla::grammar
