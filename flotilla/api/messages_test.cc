#include "flotilla/api/limits.h"
#include "flotilla/api/testing.h"

namespace flotilla::api {
namespace {

std::string call_turn(const std::string& content_member) {
  return R"([{"role":"user","content":"q"},{"role":"assistant",)" + content_member +
         R"("tool_calls":[{"id":"c1","type":"function","function":{"name":"n","arguments":"{}"}}]},
             {"role":"tool","tool_call_id":"c1","content":"42"}])";
}

TEST(Messages, EverySpellingOfNoContentBesideCallsIsTheSame) {
  const auto expected = parse_messages_text(call_turn(R"("content":null,)"));
  ASSERT_TRUE(expected.ok());
  EXPECT_EQ(expected->messages, parse_text(R"([{"role":"user","content":"q"},
                           {"role":"assistant","content":null,
                            "tool_calls":[{"id":"c1","type":"function","function":{"name":"n","arguments":{}}}]},
                           {"role":"tool","content":"42","tool_call_id":"c1"}])"));
  for (const char* content :
       {"", R"("content":"",)", R"("content":[],)", R"("content":[{"type":"text","text":""}],)"}) {
    const auto other = parse_messages_text(call_turn(content));
    ASSERT_TRUE(other.ok()) << content;
    EXPECT_EQ(other->messages, expected->messages) << content;
    EXPECT_EQ(boost::json::serialize(other->messages), boost::json::serialize(expected->messages))
        << content;
  }
}

TEST(Messages, AnAssistantTurnWithoutAnythingIsAnEmptyTurn) {
  const auto request =
      parse_messages_text(R"([{"role":"user","content":"q"},{"role":"assistant","content":null},
                                               {"role":"user","content":"again"}])");
  ASSERT_TRUE(request.ok());
  EXPECT_EQ(request->messages.at(1), parse_text(R"({"role":"assistant","content":""})"));
}

TEST(Messages, DeveloperIsSystem) {
  const auto a = parse_messages_text(
      R"([{"role":"developer","content":"Be brief."},{"role":"user","content":"hi"}])");
  const auto b = parse_messages_text(
      R"([{"role":"system","content":"Be brief."},{"role":"user","content":"hi"}])");
  ASSERT_TRUE(a.ok());
  EXPECT_EQ(*a, *b);
}

TEST(Messages, AnUnknownRoleIsRefusedAtItsPlace) {
  const auto request = parse_messages_text(R"([{"role":"banana","content":"hi"}])");
  EXPECT_EQ(request.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(request.error().param, "messages[0].role");
  EXPECT_EQ(request.error().message.find("banana"),
            std::string::npos);  // no echo of the client's text
}

TEST(Messages, ArgumentsBecomeObjects) {
  const auto arguments = [](const std::string& member) {
    const auto request = parse_messages_text(
        R"([{"role":"assistant","tool_calls":[{"id":"c","function":{"name":"n")" + member +
        "}}]}]");
    EXPECT_TRUE(request.ok()) << member;
    return request->messages.at(0).at("tool_calls").at(0).at("function").at("arguments");
  };
  EXPECT_EQ(arguments(""), parse_text("{}"));
  EXPECT_EQ(arguments(R"(,"arguments":null)"), parse_text("{}"));
  EXPECT_EQ(arguments(R"(,"arguments":"")"), parse_text("{}"));
  EXPECT_EQ(arguments(R"(,"arguments":" \n")"), parse_text("{}"));
  EXPECT_EQ(arguments(R"(,"arguments":{"a":1})"), parse_text(R"({"a":1})"));
  EXPECT_EQ(arguments(R"(,"arguments":"{\"a\":{\"b\":[1,2]}}")"),
            parse_text(R"({"a":{"b":[1,2]}})"));
  // What a model once wrote wrongly stays what it is.
  EXPECT_EQ(arguments(R"(,"arguments":"{\"a\":")"), boost::json::value("{\"a\":"));
  EXPECT_EQ(arguments(R"(,"arguments":"[1]")"), boost::json::value("[1]"));
}

TEST(Messages, DeepArgumentsStayText) {
  const std::string deep = R"({\"a\":)" + std::string(kMaxArgumentsDepth, '[') +
                           std::string(kMaxArgumentsDepth, ']') + "}";
  const auto request = parse_messages_text(
      R"([{"role":"assistant","tool_calls":[{"function":{"name":"n","arguments":")" + deep +
      R"("}}]}])");
  ASSERT_TRUE(request.ok());
  EXPECT_TRUE(
      request->messages.at(0).at("tool_calls").at(0).at("function").at("arguments").is_string());
}

TEST(Messages, CallsWithoutIdsGetOnesThatDependOnTheirPlaceOnly) {
  const auto request = parse_messages_text(
      R"([{"role":"user","content":"q"},{"role":"assistant","tool_calls":[{"function":{"name":"a"}},{"id":"","function":{"name":"b"}}]}])");
  ASSERT_TRUE(request.ok());
  EXPECT_EQ(request->messages.at(1).at("tool_calls").at(0).at("id"), "call_1_0");
  EXPECT_EQ(request->messages.at(1).at("tool_calls").at(1).at("id"), "call_1_1");
}

TEST(Messages, LegacyFunctionTurnsBecomeToolTurns) {
  const auto request = parse_messages_text(
      R"([{"role":"user","content":"q"},
          {"role":"assistant","content":null,"function_call":{"name":"f","arguments":"{\"x\":1}"}},
          {"role":"function","name":"f","content":"7"}])");
  ASSERT_TRUE(request.ok()) << request.error().message;
  EXPECT_EQ(request->messages, parse_text(R"([{"role":"user","content":"q"},
                 {"role":"assistant","content":null,
                  "tool_calls":[{"id":"call_1_0","type":"function","function":{"name":"f","arguments":{"x":1}}}]},
                 {"role":"tool","content":"7","tool_call_id":"call_1_0","name":"f"}])"));
}

TEST(Messages, KeepsSeveralTextPartsAndUnwrapsOne) {
  const auto one =
      parse_messages_text(R"([{"role":"user","content":[{"type":"text","text":"a"}]}])");
  EXPECT_EQ(one->messages.at(0).at("content"), "a");
  const auto two = parse_messages_text(
      R"([{"role":"user","content":[{"type":"text","text":"<tu","cache_control":{}},{"type":"text","text":"rn|>"}]}])");
  EXPECT_EQ(two->messages.at(0).at("content"),
            parse_text(R"([{"type":"text","text":"<tu"},{"type":"text","text":"rn|>"}])"));
}

TEST(Messages, MediaPartsAreRefusedByName) {
  for (const char* type : {"image_url", "input_audio", "file", "video_url", "input_image"}) {
    const auto request =
        parse_messages_text(R"([{"role":"user","content":[{"type":"text","text":"a"},{"type":")" +
                            std::string(type) + R"(","image_url":{"url":"http://127.0.0.1/"}}]}])");
    ASSERT_FALSE(request.ok());
    EXPECT_EQ(request.error().code, ErrorCode::kUnsupported);
    EXPECT_EQ(request.error().param, "messages[0].content[1].type");
    EXPECT_NE(request.error().message.find(type), std::string::npos);
  }
}

TEST(Messages, ReasoningComesBackUnderEitherName) {
  const auto a = parse_messages_text(R"([{"role":"assistant","content":"x","reasoning":"r"}])");
  const auto b =
      parse_messages_text(R"([{"role":"assistant","content":"x","reasoning_content":"r"}])");
  EXPECT_EQ(a->messages, b->messages);
  EXPECT_EQ(a->messages.at(0).at("reasoning_content"), "r");
}

TEST(Messages, ToolResultsMayBeNullPartsOrObjects) {
  EXPECT_EQ(
      parse_messages_text(R"([{"role":"tool","content":null}])")->messages.at(0).at("content"), "");
  EXPECT_EQ(
      parse_messages_text(R"([{"role":"tool","content":{"t":1}}])")->messages.at(0).at("content"),
      parse_text(R"({"t":1})"));
}

TEST(Messages, OrderOfRolesIsTheTemplatesBusiness) {
  for (
      const char* messages :
      {R"([{"role":"user","content":"a"},{"role":"user","content":"b"}])",
       R"([{"role":"assistant","content":"a"}])", R"([{"role":"system","content":"only"}])",
       R"([{"role":"user","content":"a"},{"role":"system","content":"late"},{"role":"user","content":"b"}])"}) {
    EXPECT_TRUE(parse_messages_text(messages).ok()) << messages;
  }
}

struct BadMessages {
  const char* messages;
  const char* param;
};
class RefusesMessages : public testing::TestWithParam<BadMessages> {};
TEST_P(RefusesMessages, AtTheirPlace) {
  const auto request = parse_messages_text(GetParam().messages);
  ASSERT_FALSE(request.ok()) << GetParam().messages;
  EXPECT_EQ(request.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(request.error().param, GetParam().param);
}
INSTANTIATE_TEST_SUITE_P(
    Shapes, RefusesMessages,
    testing::Values(
        BadMessages{"[]", "messages"}, BadMessages{"null", "messages"},
        BadMessages{"{}", "messages"}, BadMessages{"[7]", "messages[0]"},
        BadMessages{"[{}]", "messages[0].role"},
        BadMessages{R"([{"role":"user"}])", "messages[0].content"},
        BadMessages{R"([{"role":"user","content":null}])", "messages[0].content"},
        BadMessages{R"([{"role":"user","content":7}])", "messages[0].content"},
        BadMessages{R"([{"role":"user","content":["a"]}])", "messages[0].content[0]"},
        BadMessages{R"([{"role":"user","content":[{"text":"a"}]}])", "messages[0].content[0].type"},
        BadMessages{R"([{"role":"user","content":[{"type":"text"}]}])",
                    "messages[0].content[0].text"},
        BadMessages{R"([{"role":"user","content":[{"type":"x"}]}])", "messages[0].content[0].type"},
        BadMessages{R"([{"role":"assistant","tool_calls":{}}])", "messages[0].tool_calls"},
        BadMessages{R"([{"role":"assistant","tool_calls":[{}]}])",
                    "messages[0].tool_calls[0].function"},
        BadMessages{R"([{"role":"assistant","tool_calls":[{"function":{}}]}])",
                    "messages[0].tool_calls[0].function.name"},
        BadMessages{
            R"([{"role":"assistant","tool_calls":[{"function":{"name":"a","arguments":7}}]}])",
            "messages[0].tool_calls[0].function.arguments"}));

TEST(Messages, TooManyAreRefused) {
  std::string many = "[";
  for (std::size_t i = 0; i <= kMaxMessages; ++i) {
    many += many.size() > 1 ? "," : "";
    many += R"({"role":"user","content":"x"})";
  }
  EXPECT_EQ(parse_messages_text(many + "]").error().param, "messages");
}

}  // namespace
}  // namespace flotilla::api
