#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <string>

#include "flotilla/chat/chat_template.h"
#include "flotilla/chat/chat_test_support.h"
#include "flotilla/json/json.h"

namespace flotilla::chat {
namespace {

// Expected outputs were written by Jinja2 itself (tests/chat/make_expressions.py).
TEST(Jinja, PrintsWhatJinja2Prints) {
  const auto file = json::parse_file(FLOTILLA_SOURCE_DIR "/tests/chat/expressions.json");
  ASSERT_TRUE(file.ok());
  const boost::json::object& context = file->at("context").as_object();
  ASSERT_GT(file->at("cases").as_array().size(), 150u);
  for (const auto& one : file->at("cases").as_array()) {
    const std::string source(one.at("template").as_string());
    const Result<std::string> text = render_text(source, "[]", context);
    if (one.as_object().contains("fails")) {
      EXPECT_FALSE(text.ok()) << source << "\nprinted " << *text;
    } else if (!text.ok()) {
      ADD_FAILURE() << source << "\nfailed: " << text.error().message;
    } else {
      EXPECT_EQ(*text, std::string(one.at("output").as_string())) << source;
    }
  }
}

TEST(Jinja, ErrorsOfTheSourceNameLineAndColumn) {
  const auto where = [](std::string source) {
    const auto compiled = ChatTemplate::compile(std::move(source));
    return compiled.ok() ? std::string("compiled") : compiled.error().message;
  };
  EXPECT_EQ(where("a\n  {{ 1 + }}"), "chat template line 2:10: expected an expression");
  EXPECT_EQ(where("{% nosuch %}"), "chat template line 1:4: unknown tag 'nosuch'");
  EXPECT_EQ(where("\n\n{% if x %}"), "chat template line 3:11: missing 'endif'");
  EXPECT_EQ(where("{{ 'a"), "chat template line 1:4: missing end of string");
  EXPECT_EQ(where("ok"), "compiled");
}

TEST(Jinja, ErrorsOfARenderNameTheLineButNotTheSource) {
  const Result<std::string> text = render_text("first\n{{ secret.member }}", "[]");
  ASSERT_FALSE(text.ok());
  EXPECT_EQ(text.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(text.error().message, "chat template line 2: 'secret' is undefined");
}

TEST(Jinja, ARaisedExceptionIsItsSentenceOnly) {
  const Result<std::string> text =
      render_text("{% if true %}{{ raise_exception('Roles must alternate') }}{% endif %}", "[]");
  ASSERT_FALSE(text.ok());
  EXPECT_EQ(text.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(text.error().message, "Roles must alternate");
}

TEST(Jinja, UnknownFiltersMatterOnlyWhenReached) {
  EXPECT_EQ(*render_text("{% if false %}{{ 1 | nosuch }}{{ 1 is nosuch }}{% endif %}ok", "[]"),
            "ok");
}

TEST(Jinja, TheTimeIsTheOneOfTheRequest) {
  const auto compiled = ChatTemplate::compile("{{ strftime_now('%d %b %Y %H:%M') }}");
  RenderInput input;
  input.render_time = 1'700'000'000;
  EXPECT_EQ(joined(*compiled.value()->render(input)), "14 Nov 2023 22:13");
  input.render_time = 0;
  EXPECT_EQ(joined(*compiled.value()->render(input)), "01 Jan 1970 00:00");
}

TEST(Jinja, GlobalsAreWhatHuggingFacePasses) {
  EXPECT_EQ(*render_text("{{ tools is none }}{{ tools is defined }}{{ documents is none }}{{ "
                         "enable_thinking is defined }}"
                         "{{ add_generation_prompt }}{{ messages | length }}",
                         "[]"),
            "TrueTrueTrueFalseTrue0");
  boost::json::object variables;
  variables["enable_thinking"] = false;
  variables["messages"] = "forged";
  variables["bos_token"] = "forged";
  EXPECT_EQ(*render_text("{{ enable_thinking }}{{ messages }}{{ bos_token }}", "[]", variables),
            "False[]");
}

}  // namespace
}  // namespace flotilla::chat
