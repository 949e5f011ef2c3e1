#include "flotilla/api/errors.h"

#include "flotilla/api/json_text.h"
#include "flotilla/api/model_list.h"
#include "flotilla/api/testing.h"

namespace flotilla::api {
namespace {

TEST(Errors, EveryCodeHasAStatusATypeAndACode) {
  for (int i = 0; i <= static_cast<int>(ErrorCode::kInternal); ++i) {
    const ErrorShape shape = error_shape(Error{static_cast<ErrorCode>(i), "m"});
    EXPECT_GE(shape.status, 400u);
    EXPECT_LT(shape.status, 600u);
    EXPECT_FALSE(shape.type.empty());
    EXPECT_FALSE(shape.code.empty());
    // 429 and 503 say when to come back.
    EXPECT_EQ(shape.retry_after_s > 0, shape.status == 429 || shape.status == 503);
  }
}

TEST(Errors, HaveOpenAIsShape) {
  EXPECT_EQ(
      render_error(Error{ErrorCode::kContextLength, "9000 exceeds 8192", "messages"}),
      R"({"error":{"message":"9000 exceeds 8192","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}})");
  EXPECT_EQ(parse_text(render_error(Error{ErrorCode::kInternal, "x"})).at("error").at("param"),
            nullptr);
  EXPECT_EQ(error_shape(Error{ErrorCode::kNotFound, "no model", "model"}).code, "model_not_found");
}

TEST(Errors, StayJsonWithAnyBytesInTheMessage) {
  const auto value =
      parse_text(render_error(Error{ErrorCode::kInternal, std::string("\xC4\xE3\"\\\n\0\x7f", 7)}));
  EXPECT_EQ(value.at("error").at("message"), boost::json::value(boost::json::string_view(
                                                 "\xEF\xBF\xBD\xEF\xBF\xBD\"\\\n\0\x7f", 11)));
}

TEST(JsonText, EscapesControlsAndKeepsUnicode) {
  std::string out;
  append_json_string(out, "a\tb\x01\xE2\x80\xA8 é👩‍🚀\"\\/");
  EXPECT_EQ(out, "\"a\\tb\\u0001\xE2\x80\xA8 é👩‍🚀\\\"\\\\/\"");
}

TEST(JsonText, ReplacesOnlyWhatIsNoUtf8) {
  std::string out;
  append_json_string(out,
                     "a\xF0\x9F"
                     "b\xED\xA0\x80"
                     "é\xC0\x80");
  const auto value = parse_text(out);
  std::string want = "a??b???é??";
  for (std::size_t at; (at = want.find('?')) != std::string::npos;)
    want.replace(at, 1, "\xEF\xBF\xBD");
  EXPECT_EQ(value, boost::json::value(want));
}

TEST(JsonText, NumbersReadBackEqual) {
  for (const double x : {0.0, -1.5, 1e-300, 0.1, -12.345678901234567, 1e22}) {
    std::string out;
    append_json_number(out, x);
    EXPECT_EQ(std::strtod(out.c_str(), nullptr), x);
    EXPECT_TRUE(json::parse(out).ok()) << out;
  }
}

TEST(ModelList, HasTheMembersOfBothShapes) {
  const std::vector<ModelInfo> models = {{"org/a", 5, "me", 8192}, {"b", 6, "flotilla", 0}};
  EXPECT_EQ(parse_text(render_model_list(models)), parse_text(R"({"object":"list","data":[
               {"id":"org/a","object":"model","created":5,"owned_by":"me","type":"model","display_name":"org/a",
                "created_at":"1970-01-01T00:00:05Z","context_length":8192,"max_model_len":8192},
               {"id":"b","object":"model","created":6,"owned_by":"flotilla","type":"model","display_name":"b",
                "created_at":"1970-01-01T00:00:06Z"}],"has_more":false,"first_id":"org/a","last_id":"b"})"));
  EXPECT_EQ(render_model_list({}),
            R"({"object":"list","data":[],"has_more":false,"first_id":null,"last_id":null})");
}

TEST(AnthropicErrors, HaveOneOfItsTypesForEveryCode) {
  for (int i = 0; i <= static_cast<int>(ErrorCode::kInternal); ++i) {
    const ErrorShape ours = error_shape(Error{static_cast<ErrorCode>(i), "m"});
    const ErrorShape shape = anthropic_shape(ours);
    EXPECT_EQ(shape.status, ours.status == 503 ? 529u : ours.status);
    EXPECT_TRUE(shape.type.ends_with("_error") || shape.type == "request_too_large") << shape.type;
    EXPECT_NE(shape.type, "server_error");
  }
  EXPECT_EQ(
      render_anthropic_error(anthropic_shape(error_shape({ErrorCode::kNotFound, "x"})), "no \"m\"",
                             "req_1"),
      R"({"type":"error","error":{"type":"not_found_error","message":"no \"m\""},"request_id":"req_1"})");
}

}  // namespace
}  // namespace flotilla::api
