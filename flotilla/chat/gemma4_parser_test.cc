#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "flotilla/chat/chat_test_support.h"
#include "flotilla/chat/output_parser.h"
#include "flotilla/json/json.h"

namespace flotilla::chat {
namespace {

struct Call {
  std::string name;
  std::string arguments;
  bool operator==(const Call&) const = default;
};
struct Parsed {
  std::string content;
  std::string reasoning;
  std::vector<Call> calls;
  bool operator==(const Parsed&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Parsed& p) {
  out << "content=" << p.content << " reasoning=" << p.reasoning;
  for (const Call& call : p.calls) out << " " << call.name << " " << call.arguments;
  return out;
}

// A push: ordinary text, or a control token.
struct Piece {
  std::string text;
  bool is_special = false;
};

const std::vector<std::string>& markers() {
  static const std::vector<std::string> kMarkers = {"<|channel>",
                                                    "<channel|>",
                                                    "<|tool_call>",
                                                    "<tool_call|>",
                                                    "<|tool_response>",
                                                    "<tool_response|>",
                                                    "<|\"|>",
                                                    "<turn|>",
                                                    "<|turn>",
                                                    "<eos>",
                                                    "<bos>",
                                                    "<|image|>"};
  return kMarkers;
}

// What a tokenizer would deliver for `output`: every marker is a control token.
std::vector<Piece> pieces_of(std::string_view output) {
  std::vector<Piece> pieces;
  std::string text;
  while (!output.empty()) {
    std::string found;
    for (const std::string& marker : markers()) {
      if (output.starts_with(marker)) found = marker;
    }
    if (found.empty()) {
      text += output[0];
      output.remove_prefix(1);
      continue;
    }
    if (!text.empty()) pieces.push_back({std::exchange(text, {}), false});
    pieces.push_back({found, true});
    output.remove_prefix(found.size());
  }
  if (!text.empty()) pieces.push_back({text, false});
  return pieces;
}

// Cuts the ordinary text after the places where `cuts(i)` is true; i counts characters.
template <class Cuts>
std::vector<Piece> cut(const std::vector<Piece>& pieces, Cuts&& cuts) {
  std::vector<Piece> out;
  std::size_t at = 0;
  for (const Piece& piece : pieces) {
    if (piece.is_special) {
      out.push_back(piece);
      continue;
    }
    std::string part;
    for (const char c : piece.text) {
      part += c;
      if (cuts(at++)) out.push_back({std::exchange(part, {}), false});
    }
    if (!part.empty()) out.push_back({part, false});
  }
  return out;
}

Parsed parse(const std::vector<Piece>& pieces, std::string_view prompt_tail = {}) {
  const auto parser = make_output_parser(OutputSyntax::kGemma4, prompt_tail);
  Parsed parsed;
  const auto take = [&](const std::vector<OutputDelta>& deltas) {
    for (const OutputDelta& delta : deltas) {
      if (delta.channel == Channel::kContent) {
        parsed.content += delta.text;
      } else if (delta.channel == Channel::kReasoning) {
        parsed.reasoning += delta.text;
      } else if (!delta.call_name.empty()) {
        ASSERT_EQ(delta.call_index, static_cast<int>(parsed.calls.size()));
        parsed.calls.push_back({delta.call_name, delta.text});
      } else {
        ASSERT_EQ(delta.call_index, static_cast<int>(parsed.calls.size()) - 1);
        parsed.calls.back().arguments += delta.text;
      }
    }
  };
  for (const Piece& piece : pieces) {
    take(piece.is_special ? parser->push({}, piece.text) : parser->push(piece.text, {}));
  }
  take(parser->finish());
  EXPECT_EQ(parser->num_calls(), static_cast<int>(parsed.calls.size()));
  EXPECT_FALSE(parser->inside_call());
  return parsed;
}
Parsed parse(std::string_view output, std::string_view prompt_tail = {}) {
  return parse(pieces_of(output), prompt_tail);
}

Parsed answer(std::string content) { return {std::move(content), "", {}}; }
Parsed call(std::string name, std::string arguments) {
  return {"", "", {{std::move(name), std::move(arguments)}}};
}

struct Case {
  std::string output;
  Parsed expected;
};

const std::vector<Case>& hand_made() {
  static const std::vector<Case> kCases = {
      {"Hello!<turn|>", answer("Hello!")},
      {"", answer("")},
      {"<|channel>thought\nI think.\n<channel|>Yes.<turn|>", {"Yes.", "I think.", {}}},
      {"<|channel>thought\n<channel|>Yes.<turn|>", answer("Yes.")},
      {"<|channel>thought<channel|>Yes.", answer("Yes.")},
      {"<|channel>thought\nA\n\nB\n\n<channel|>C", {"C", "A\n\nB\n", {}}},
      {"<|channel>plan: go\n<channel|>C", {"C", "plan: go", {}}},
      {"<|channel>thought\nA<channel|>B<|channel>thought\nC<channel|>D", {"BD", "AC", {}}},
      // A call straight from the thought.
      {"<|channel>thought\nI call.\n<|tool_call>call:f{a:1}<tool_call|><|tool_response>",
       {"", "I call.", {{"f", R"j({"a":1})j"}}}},
      // No parameters.
      {"<|tool_call>call:now{}<tool_call|><|tool_response>", call("now", "{}")},
      {"<|tool_call>call:now<tool_call|>", call("now", "{}")},
      // Several calls, text before, layout between.
      {"Let me "
       "look.\n<|tool_call>call:a{x:<|\"|>1<|\"|>}<tool_call|>\n<|tool_call>call:b{y:[true,null,-1."
       "5e3]}<tool_call|>"
       "<|tool_response>",
       {"Let me look.\n", "", {{"a", R"j({"x":"1"})j"}, {"b", R"j({"y":[true,null,-1.5e3]})j"}}}},
      // Quotation marks inside a text.
      {"<|tool_call>call:py{code:<|\"|>q(<|\"|><|\"|><|\"|>S<|\"|><|\"|><|\"|>)<|\"|>,ids:[<|\"|>"
       "k9<|\"|>]}<tool_call|>",
       call("py", R"j({"code":"q(\"\"\"S\"\"\")","ids":["k9"]})j")},
      {"<|tool_call>call:w{t:<|\"|>a \"b\" \\n \n }, ] ,k: {<|\"|>,u:1}<tool_call|>",
       call("w", R"j({"t":"a \"b\" \\n \n }, ] ,k: {","u":1})j")},
      {"<|tool_call>call:w{t:<|\"|>x = {<|\"|>k<|\"|>: <|\"|>v<|\"|>}<|\"|>}<tool_call|>",
       call("w", R"j({"t":"x = {\"k\": \"v\"}"})j")},
      {"<|tool_call>call:w{t:<|\"|>print(<|\"|>a<|\"|>, <|\"|>b<|\"|>)<|\"|>}<tool_call|>",
       call("w", R"j({"t":"print(\"a\", \"b\")"})j")},
      {"<|tool_call>call:w{t:<|\"|><|\"|>}<tool_call|>", call("w", R"j({"t":""})j")},
      // Braces inside and nesting outside.
      {"<|tool_call>call:sh{cmd:<|\"|>echo {x,{y<|\"|>,o:{p:{q:[{}]}},z:1}<tool_call|>",
       call("sh", R"j({"cmd":"echo {x,{y","o":{"p":{"q":[{}]}},"z":1})j")},
      {"<|tool_call>call:f{a:[[1,[2]],{b:[<|\"|>x<|\"|>,<|\"|>y<|\"|>]}],c:{}}<tool_call|>",
       call("f", R"j({"a":[[1,[2]],{"b":["x","y"]}],"c":{}})j")},
      // The opening quote is missing.
      {"<|tool_call>call:look{city:Oslo, Norway<|\"|>,top:3}<tool_call|>",
       call("look", R"j({"city":"Oslo, Norway","top":3})j")},
      {"<|tool_call>call:look{city:Oslo, Norway,top:3}<tool_call|>",
       call("look", R"j({"city":"Oslo, Norway","top":3})j")},
      // A bracket too much, brackets missing.
      {"<|tool_call>call:f{a:[1,2]]}<tool_call|>", call("f", R"j({"a":[1,2]})j")},
      {"<|tool_call>call:f{a:{b:{c:<tool_call|>", call("f", R"j({"a":{"b":{"c":null}}})j")},
      {"<|tool_call>call:f{a:[1,{b:<|\"|>x<|\"|><tool_call|>",
       call("f", R"j({"a":[1,{"b":"x"}]})j")},
      {"<|tool_call>call:f{a:<|\"|>x<tool_call|>", call("f", R"j({"a":"x"})j")},
      {"<|tool_call>call:f{{a:1}}<tool_call|>", call("f", R"j({"a":1})j")},
      // Other quotes.
      {"<|tool_call>call:f{a:`x y`,b:'it\\'s, ok',c:\"q\\\"\\u00e9\"}<tool_call|>",
       call("f", R"j({"a":"x y","b":"it's, ok","c":"q\"\\u00e9"})j")},
      {"<|tool_call>call:f{\"a\":\"x\",<|\"|>b<|\"|>:2}<tool_call|>",
       call("f", R"j({"a":"x","b":2})j")},
      // Off the grammar.
      {"<|tool_call>:f{a:1}<tool_call|>", call("f", R"j({"a":1})j")},
      {"<|tool_call>f{a:1}<tool_call|>", call("f", R"j({"a":1})j")},
      {"<|tool_call>call:f(a:1,b=<|\"|>x<|\"|>)<tool_call|>", call("f", R"j({"a":1,"b":"x"})j")},
      {"<|tool_call>call:f({a:1})<tool_call|>", call("f", R"j({"a":1})j")},
      {"<|tool_call>call:ns:sub.tool-x{a:1}<tool_call|>", call("ns:sub.tool-x", R"j({"a":1})j")},
      {"call:f{a:<|\"|>x<|\"|>}<tool_call|>", call("f", R"j({"a":"x"})j")},
      {"call:f{a:1}<tool_call|><|tool_response>", call("f", R"j({"a":1})j")},
      {"<|channel>thought\nT\n<channel|>\ncall:f{a:1}<tool_call|>",
       {"", "T", {{"f", R"j({"a":1})j"}}}},
      {"<|tool_call>call:f{a:True,b:False,c:None,d:007,e:1.,f:+1,g:-0}<tool_call|>",
       call("f", R"j({"a":true,"b":false,"c":null,"d":"007","e":"1.","f":"+1","g":-0})j")},
      {"<|tool_call>call:f{ a : 1 , b : [ 1 , 2 ] , }<tool_call|>",
       call("f", R"j({"a":1,"b":[1,2]})j")},
      {"<|tool_call>call:f{url:https://a.b/c?d=e:f}<tool_call|>",
       call("f", R"j({"url":"https://a.b/c?d=e:f"})j")},
      // A key that comes twice would make a JSON that strict readers refuse.
      {"<|tool_call>call:f{a:1,a:{b:[2]},c:3}<tool_call|>", call("f", R"j({"a":1,"c":3})j")},
      // A call without closing token.
      {"<|tool_call>call:f{a:1}<|tool_call>call:g{}<turn|>",
       {"", "", {{"f", R"j({"a":1})j"}, {"g", "{}"}}}},
      {"<|tool_call>call:f{a:1}\nDone.<turn|>", {"Done.", "", {{"f", R"j({"a":1})j"}}}},
      {"<|tool_call>call:f{}\f\v ]a", {"a", "", {{"f", "{}"}}}},
      // What is no call is shown.
      {"<|tool_call>call:" + std::string(300, 'n') + "{a:1}<tool_call|>",
       answer("<|tool_call>call:" + std::string(300, 'n') + "{a:1}<tool_call|>")},
      {"<|tool_call>what is this<tool_call|>ok", answer("<|tool_call>what is this<tool_call|>ok")},
      {"<|tool_call>call:<tool_call|>", answer("<|tool_call>call:<tool_call|>")},
      {"<|tool_call>{\"name\": \"f\"}<tool_call|>",
       answer("<|tool_call>{\"name\": \"f\"}<tool_call|>")},
      {"call: me later", answer("call: me later")},
      {"call:f{a:1} is how it looks<turn|>", answer("call:f{a:1} is how it looks")},
      // Stray control tokens are no text; nothing comes after a stop.
      {"a<channel|>b<tool_call|>c<bos>d<|image|>e<turn|>f<|tool_call>call:g{}<tool_call|>",
       answer("abcde")},
      {"say <|\"|>x<|\"|>", answer("say \"x\"")},
      {"  \n<|tool_call>call:f{}<tool_call|>\n", call("f", "{}")},
      {"\n\nText", answer("\n\nText")},
      {"naïve ☃ 日本語 😀<|tool_call>call:f{ключ:<|\"|>знач 😀<|\"|>}<tool_call|>",
       {"naïve ☃ 日本語 😀", "", {{"f", R"j({"ключ":"знач 😀"})j"}}}},
  };
  return kCases;
}

TEST(Gemma4Parser, SeparatesThoughtsAnswersAndCalls) {
  for (const Case& one : hand_made()) EXPECT_EQ(parse(one.output), one.expected) << one.output;
}

TEST(Gemma4Parser, ArgumentsAreAlwaysJson) {
  for (const Case& one : hand_made()) {
    for (const Call& c : parse(one.output).calls) {
      EXPECT_TRUE(json::parse(c.arguments).ok()) << one.output << " " << c.arguments;
    }
  }
}

std::vector<std::string> recorded() {
  std::vector<std::string> outputs;
  const auto file = json::parse_file(FLOTILLA_SOURCE_DIR "/tests/tiny-model/cases.json");
  for (const auto& one : file.value().at("cases").as_array()) {
    outputs.emplace_back(one.at("completion").as_string());
  }
  return outputs;
}

TEST(Gemma4Parser, TheCutOfTheTextDoesNotMatter) {
  std::vector<std::string> outputs = recorded();
  for (const Case& one : hand_made()) outputs.push_back(one.output);
  ASSERT_GT(outputs.size(), 100u);
  std::mt19937 random(7);
  for (const std::string& output : outputs) {
    const std::vector<Piece> pieces = pieces_of(output);
    const Parsed whole = parse(pieces);
    for (std::size_t at = 0; at < output.size(); ++at) {
      ASSERT_EQ(parse(cut(pieces, [at](std::size_t i) { return i == at; })), whole)
          << output << " at " << at;
    }
    for (const std::size_t size : {1u, 2u, 3u, 7u}) {
      ASSERT_EQ(parse(cut(pieces, [size](std::size_t i) { return i % size == 0; })), whole)
          << output;
    }
    for (int round = 0; round < 20; ++round) {
      ASSERT_EQ(parse(cut(pieces, [&](std::size_t) { return random() % 4 == 0; })), whole)
          << output;
    }
  }
}

// A model that ends its turn inside a call has not called: what it wrote is handed out as it is.
TEST(Gemma4Parser, UnfinishedCallsStayOpenAndNothingIsMadeUp) {
  for (const std::string end : {"", "<turn|>", "<eos>", "<|tool_response>"}) {
    const std::string start = "<|tool_call>call:f{";
    EXPECT_EQ(parse(start + "city:" + end), call("f", R"j({"city":)j"));
    EXPECT_EQ(parse(start + "city:<|\"|>Os" + end), call("f", R"j({"city":"Os)j"));
    EXPECT_EQ(parse(start + "city:<|\"|>Oslo<|\"|>,days" + end),
              call("f", R"j({"city":"Oslo)j"));  // the quote may be a part of the text
    EXPECT_EQ(parse(start + end), call("f", "{"));
    EXPECT_EQ(parse(start + "a:{b:[1," + end), call("f", R"j({"a":{"b":[1)j"));
    EXPECT_EQ(parse("<|tool_call>call:now" + end), answer("<|tool_call>call:now"));
    EXPECT_EQ(parse(start + "a:1}" + end), call("f", R"j({"a":1})j"));
  }
}

TEST(Gemma4Parser, RecordedCallsAreRead) {
  int calls = 0;
  for (const std::string& output : recorded()) {
    const Parsed parsed = parse(output);
    EXPECT_EQ(parsed.calls.empty(), output.find("<|tool_call>") == std::string::npos) << output;
    EXPECT_EQ(parsed.reasoning.empty(), output.find("<|channel>") == std::string::npos) << output;
    EXPECT_EQ(parsed.content.find("<|"), std::string::npos) << output;
    for (const Call& c : parsed.calls) {
      EXPECT_TRUE(json::parse(c.arguments).ok()) << c.arguments;
      ++calls;
    }
  }
  EXPECT_GE(calls, 9);
  EXPECT_EQ(parse("<|tool_call>call:set_light{on:false,room:<|\"|>kitchen<|\"|>}<tool_call|><|tool_"
                  "response>"),
            call("set_light", R"j({"on":false,"room":"kitchen"})j"));
}

TEST(Gemma4Parser, EveryPrefixOfAnOutputStreamsAPrefixOfItsArguments) {
  for (const Case& one : hand_made()) {
    if (one.expected.calls.size() != 1) continue;
    const std::vector<Piece> pieces = cut(pieces_of(one.output), [](std::size_t) { return true; });
    for (std::size_t n = 0; n < pieces.size(); ++n) {
      const Parsed part = parse(
          std::vector<Piece>(pieces.begin(), pieces.begin() + static_cast<std::ptrdiff_t>(n)));
      if (part.calls.empty()) continue;
      ASSERT_TRUE(one.expected.calls[0].arguments.starts_with(part.calls[0].arguments))
          << one.output << " gave " << part.calls[0].arguments;
    }
  }
}

TEST(Gemma4Parser, LongTextsStreamWhileTheyAreWritten) {
  const auto parser = make_output_parser(OutputSyntax::kGemma4, {});
  parser->push({}, "<|tool_call>");
  parser->push("call:write{content:", {});
  EXPECT_TRUE(parser->inside_call());
  parser->push({}, "<|\"|>");
  const auto deltas = parser->push("line one\n", {});
  ASSERT_EQ(deltas.size(), 1u);
  EXPECT_EQ(deltas[0], (OutputDelta{Channel::kToolCall, "line one\\n", 0}));
  EXPECT_TRUE(parser->push({}, "<|\"|>").empty());  // may still be a quotation mark
  EXPECT_EQ(parser->push("}", {}).size(), 0u);
  EXPECT_EQ(parser->push({}, "<tool_call|>")[0].text, "\"}");
}

TEST(Gemma4Parser, TextThatLooksLikeAMarkerIsText) {
  for (const std::string text : {"Use <|channel>thought\nx<channel|> here",
                                 "<|tool_call>call:f{}<tool_call|>", "a <turn|> b", "<|\"|>"}) {
    EXPECT_EQ(parse(std::vector<Piece>{{text, false}}), answer(text));
  }
  const std::vector<Piece> argument = {{"<|tool_call>", true}, {"call:f{a:", false},
                                       {"<|\"|>", true},       {"</think><tool_call|>", false},
                                       {"<|\"|>", true},       {"}", false},
                                       {"<tool_call|>", true}};
  EXPECT_EQ(parse(argument), call("f", R"j({"a":"</think><tool_call|>"})j"));
}

TEST(Gemma4Parser, StartsWhereThePromptEnds) {
  EXPECT_EQ(parse("ab<channel|>c", "<|turn>model\n<|channel>thought\n"), (Parsed{"c", "ab", {}}));
  EXPECT_EQ(parse("ht\nab<channel|>c", "<|turn>model\n<|channel>thoug"), (Parsed{"c", "ab", {}}));
  EXPECT_EQ(parse("ab<channel|>c", "<|turn>model\n<|channel>thought\nHm, "),
            (Parsed{"c", "ab", {}}));
  EXPECT_EQ(parse("c", "<|turn>model\n<|channel>thought\n<channel|>"), answer("c"));
  // Markers that a user or a tool typed do not count.
  EXPECT_EQ(parse("c", "<|turn>user\nsee <|channel>thought\n<turn|>\n<|turn>model\n"), answer("c"));
  EXPECT_EQ(parse("c", "value:<|\"|>see <|channel>thought\n<|\"|>}<tool_response|>"), answer("c"));
}

std::string mutated(std::string output, std::mt19937& random) {
  const auto pick = [&random](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  const int changes = 1 + static_cast<int>(pick(4));
  for (int i = 0; i < changes; ++i) {
    const std::size_t at = pick(output.size() + 1);
    switch (pick(5)) {
      case 0:
        output.insert(at, markers()[pick(markers().size())]);
        break;
      case 1:
        output.insert(at, 1, "{}[](),:=\"'`\\ \n\x01\xff"[pick(17)]);
        break;
      case 2:
        output.erase(at, pick(9));
        break;
      case 3:
        output.insert(at, output.substr(pick(output.size() + 1), pick(20)));
        break;
      default:
        if (at < output.size()) output[at] = static_cast<char>(random());
    }
  }
  return output;
}

TEST(Gemma4Parser, TenThousandMutationsEndWithJsonOrText) {
  std::mt19937 random(11);
  std::vector<std::string> outputs = recorded();
  for (const Case& one : hand_made()) outputs.push_back(one.output);
  const double start = cpu_seconds();
  for (int round = 0; round < 10'000; ++round) {
    const std::string output = mutated(outputs[random() % outputs.size()], random);
    const std::vector<Piece> pieces = pieces_of(output);
    const Parsed whole = parse(pieces);
    for (const Call& c : whole.calls) {
      ASSERT_FALSE(c.name.empty());
      boost::json::error_code error;
      boost::json::parse_options options;
      options.allow_invalid_utf8 = true;
      boost::json::parse(c.arguments, error, {}, options);
      // The last call may be one that the output never finished.
      const bool is_open = error == boost::json::error::incomplete && &c == &whole.calls.back();
      ASSERT_TRUE(!error || is_open) << output << "\ngave " << c.arguments;
    }
    ASSERT_EQ(parse(cut(pieces, [&](std::size_t) { return random() % 3 == 0; })), whole) << output;
  }
  EXPECT_LT(cpu_seconds() - start, 60);
}

TEST(Gemma4Parser, HostileOutputsTakeLinearTime) {
  std::string quotes;
  for (int i = 0; i < 20'000; ++i) quotes += "<|\"|>,a";
  for (const std::string& body :
       {std::string(200'000, '{'), std::string(200'000, '['), std::string(200'000, ']'),
        "a:" + std::string(200'000, ','), "a:" + std::string(200'000, '}'),
        "a:x" + std::string(200'000, ']'), "a:<|\"|>" + quotes, "a:" + quotes, "a:[" + quotes,
        std::string(200'000, '"'), "a:'" + std::string(200'000, '\'')}) {
    const std::vector<Piece> pieces = pieces_of("<|tool_call>call:f{" + body + "<tool_call|>");
    const double start = cpu_seconds();
    const Parsed parsed = parse(cut(pieces, [](std::size_t) { return true; }));
    EXPECT_LT(cpu_seconds() - start, 15) << body.substr(0, 20);
    ASSERT_EQ(parsed.calls.size(), 1u);
    EXPECT_TRUE(json::parse(parsed.calls[0].arguments).ok()) << body.substr(0, 20);
  }
}

TEST(PlainParser, AllTextIsContent) {
  const auto parser = make_output_parser(OutputSyntax::kPlain, "<|channel>thought\n");
  const auto deltas = parser->push("<|tool_call>call:f{}", {});
  ASSERT_EQ(deltas.size(), 1u);
  EXPECT_EQ(deltas[0], (OutputDelta{Channel::kContent, "<|tool_call>call:f{}"}));
  EXPECT_TRUE(parser->push({}, "<turn|>").empty());
  EXPECT_TRUE(parser->finish().empty());
}

TEST(OutputSyntax, IsRecognisedFromTheTemplate) {
  std::ifstream file(FLOTILLA_SOURCE_DIR "/models/flotilla-tiny/chat_template.jinja");
  std::stringstream source;
  source << file.rdbuf();
  EXPECT_EQ(detect_output_syntax(source.str()), OutputSyntax::kGemma4);
  EXPECT_EQ(detect_output_syntax("<start_of_turn>user"), OutputSyntax::kPlain);
  EXPECT_EQ(detect_output_syntax(""), OutputSyntax::kPlain);
}

}  // namespace
}  // namespace flotilla::chat
