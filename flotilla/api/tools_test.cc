#include "flotilla/api/limits.h"
#include "flotilla/api/testing.h"

namespace flotilla::api {
namespace {

const std::string kTwo =
    R"("tools":[{"type":"function","function":{"name":"a"}},{"type":"function","function":{"name":"b"}}])";

TEST(Tools, ComeWithAutoAndKeepWhatTheClientWroteInOrder) {
  const auto request = parse_with(
      R"("tools":[{"type":"function","function":{"description":"d","name":"get_x","strict":true,"parameters":
         {"type":"object","properties":{"z":{"type":"string"},"a":{"type":"number"}}},"extra":null}}])");
  ASSERT_TRUE(request.ok()) << request.error().message;
  EXPECT_EQ(request->tool_choice, "auto");
  EXPECT_EQ(boost::json::serialize(request->tools),
            R"([{"type":"function","function":{"description":"d","name":"get_x","parameters":)"
            R"({"type":"object","properties":{"z":{"type":"string"},"a":{"type":"number"}}}}}])");
}

TEST(Tools, ChoiceNoneTakesThemOutOfThePrompt) {
  const auto request = parse_with(kTwo + R"(,"tool_choice":"none")");
  EXPECT_EQ(request->tool_choice, "none");
  EXPECT_TRUE(request->tools.is_null());
}

TEST(Tools, AnEmptyListIsNoList) {
  const auto request = parse_with(R"("tools":[],"tool_choice":"auto")");
  ASSERT_TRUE(request.ok());
  EXPECT_TRUE(request->tools.is_null());
  EXPECT_EQ(request->tool_choice, "none");
}

TEST(Tools, ACallCanBeForced) {
  EXPECT_EQ(parse_with(kTwo + R"(,"tool_choice":"required")")->tool_choice, "required");
  const auto named =
      parse_with(kTwo + R"(,"tool_choice":{"type":"function","function":{"name":"a"}})");
  ASSERT_TRUE(named.ok());
  EXPECT_EQ(named->tool_choice, "function");
  EXPECT_EQ(named->tool_choice_function, "a");
  EXPECT_EQ(named->tools.get_array().size(), 2u);
  const auto legacy = parse_with(R"("functions":[{"name":"a"}],"function_call":{"name":"a"})");
  EXPECT_EQ(legacy->tool_choice_function, "a");
  const auto allowed = parse_with(
      kTwo +
      R"(,"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"required","tools":[{"name":"b"}]}})");
  ASSERT_TRUE(allowed.ok()) << allowed.error().message;
  EXPECT_EQ(allowed->tool_choice, "required");
  EXPECT_EQ(allowed->tools.get_array().size(), 1u);
  const auto none = parse_with(
      kTwo +
      R"(,"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"required","tools":[]}})");
  EXPECT_EQ(none.error().code, ErrorCode::kInvalidArgument);
}

TEST(Tools, StrictToolsAreRememberedByNameAndStayOutOfThePrompt) {
  const auto request =
      parse_with(R"("tools":[{"type":"function","function":{"name":"a","strict":true}},)"
                 R"({"type":"function","function":{"name":"b","strict":false}}])");
  ASSERT_TRUE(request.ok());
  EXPECT_EQ(request->strict_tools, std::vector<std::string>{"a"});
  EXPECT_EQ(request->tools.at(0), parse_text(R"({"type":"function","function":{"name":"a"}})"));
}

TEST(Tools, AChoiceMustNameAToolOfTheRequest) {
  const auto request =
      parse_with(kTwo + R"(,"tool_choice":{"type":"function","function":{"name":"c"}})");
  EXPECT_EQ(request.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(parse_with(R"("tool_choice":"required")").error().code, ErrorCode::kInvalidArgument);
}

TEST(Tools, AllowedToolsKeepsOnlyThose) {
  const auto request = parse_with(
      kTwo +
      R"(,"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{"type":"function","function":{"name":"b"}}]}})");
  ASSERT_TRUE(request.ok()) << request.error().message;
  EXPECT_EQ(request->tools.get_array().size(), 1u);
  EXPECT_EQ(request->tools.at(0).at("function").at("name"), "b");
}

TEST(Tools, LegacyFunctionsBecomeTools) {
  const auto request = parse_with(
      R"("functions":[{"name":"a","parameters":{"type":"object"}}],"function_call":"auto")");
  ASSERT_TRUE(request.ok());
  EXPECT_EQ(request->tools,
            parse_text(
                R"([{"type":"function","function":{"name":"a","parameters":{"type":"object"}}}])"));
}

TEST(Tools, ParallelCallsCanBeTurnedOff) {
  EXPECT_TRUE(parse_with(kTwo)->parallel_tool_calls);
  EXPECT_FALSE(parse_with(kTwo + R"(,"parallel_tool_calls":false)")->parallel_tool_calls);
}

struct BadTools {
  std::string members;
  std::string param;
  ErrorCode code = ErrorCode::kInvalidArgument;
};
class RefusesTools : public testing::TestWithParam<BadTools> {};
TEST_P(RefusesTools, AtTheirPlace) {
  const auto request = parse_with(GetParam().members);
  ASSERT_FALSE(request.ok()) << GetParam().members;
  EXPECT_EQ(request.error().code, GetParam().code);
  EXPECT_EQ(request.error().param, GetParam().param);
}
std::string named(const std::string& name) {
  return R"("tools":[{"type":"function","function":{"name":")" + name + "\"}}]";
}
INSTANTIATE_TEST_SUITE_P(
    Shapes, RefusesTools,
    testing::Values(
        BadTools{R"("tools":{})", "tools"}, BadTools{R"("tools":[7])", "tools[0]"},
        BadTools{R"("tools":[{"type":"function"}])", "tools[0].function"},
        BadTools{R"("tools":[{"type":"function","function":{}}])", "tools[0].function.name"},
        BadTools{named(""), "tools[0].function.name"},
        BadTools{named("a b"), "tools[0].function.name"},
        BadTools{named("ä"), "tools[0].function.name"},
        BadTools{named(std::string(65, 'a')), "tools[0].function.name"},
        BadTools{R"("tools":[{"type":"function","function":{"name":"a","parameters":[]}}])",
                 "tools[0].function.parameters"},
        BadTools{
            R"("tools":[{"type":"function","function":{"name":"a"}},{"type":"function","function":{"name":"a"}}])",
            "tools[1].function.name"},
        BadTools{R"("tools":[{"type":"custom","custom":{"name":"x"}}])", "tools[0].type",
                 ErrorCode::kUnsupported},
        BadTools{kTwo + R"(,"tool_choice":"banana")", "tool_choice"},
        BadTools{kTwo + R"(,"tool_choice":7)", "tool_choice"},
        BadTools{kTwo + R"(,"tool_choice":{})", "tool_choice.type"},
        BadTools{kTwo + R"(,"parallel_tool_calls":"no")", "parallel_tool_calls"}));

TEST(Tools, TooManyAreRefused) {
  std::string many = R"("tools":[)";
  for (std::size_t i = 0; i <= kMaxTools; ++i) {
    many += std::string(i > 0 ? "," : "") + R"({"type":"function","function":{"name":"t)" +
            std::to_string(i) + "\"}}";
  }
  EXPECT_EQ(parse_with(many + "]").error().param, "tools");
}

}  // namespace
}  // namespace flotilla::api
