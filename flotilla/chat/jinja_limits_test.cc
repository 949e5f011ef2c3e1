#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <string>

#include "flotilla/chat/chat_template.h"
#include "flotilla/chat/chat_test_support.h"

namespace flotilla::chat {
namespace {

std::string repeated(std::string_view text, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += text;
  return out;
}

// Each must fail with a sentence, soon, and without using up memory or stack.
TEST(JinjaLimits, HostileTemplatesFailQuickly) {
  const std::string sources[] = {
      "{{ range(10**9) }}",
      "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
      "{% set ns = namespace(s='x') %}{% for i in range(100) %}{% set ns.s = ns.s ~ ns.s %}{% "
      "endfor %}",
      "{{ 'x' * 10**12 }}",
      "{{ [0] * 10**12 }}",
      "{% set ns = namespace(l=[0]) %}{% for i in range(100) %}{% set ns.l = ns.l + ns.l %}{% "
      "endfor %}",
      "{% set ns = namespace(l=[]) %}{% for i in range(100000) %}{% set ns.l = [ns.l] %}{% endfor "
      "%}",
      "{% set ns = namespace(l=[0]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% "
      "endfor %}{{ ns.l }}",
      "{% set ns = namespace(l=[0]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% "
      "endfor %}{{ ns.l | tojson }}",
      "{% set a = namespace(l=[0]) %}{% set b = namespace(l=[0]) %}{% for i in range(60) %}{% set "
      "a.l = [a.l, a.l] %}"
      "{% set b.l = [b.l, b.l] %}{% endfor %}{{ a.l == b.l }}",
      "{% set a = namespace(l=(0,)) %}{% for i in range(60) %}{% set a.l = (a.l, a.l) %}{% endfor "
      "%}{{ {a.l: 1} }}",
      "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
      "{% macro m() %}{{ m() }}{{ m() }}{% endmacro %}{{ m() }}",
      "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(100) }}",
      "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
      "{% macro m() %}{% call m() %}{{ caller() }}{% endcall %}{{ caller() }}{% endmacro %}{{ m() "
      "}}",
      "{{ 'x' | indent(10**9) }}",
      "{{ 'x' | center(10**11) }}",
      "{{ 'x'.ljust(10**11) }}",
      "{{ '%*d' | format(10**9, 1) }}",
      "{{ 'aaaa' | replace('', 'x' * 60000000) }}",
      "{{ strftime_now('%999999999d') }}",
      "{{ 2 ** 100 }}",
      "{{ 9223372036854775807 + 1 }}",
      "{{ (0 - 9223372036854775807 - 1) // -1 }}",
      "{% for i in range(100000) %}{{ 'x' * 1000 }}{% endfor %}",
      "{{ [1, 2] | batch(10**9, 0) | list }}",
      "{{ [[1], 2] | sort }}",
      repeated("{% if true %}", 100'000),
      repeated("{{ (", 1) + repeated("(", 100'000),
      "{{ " + repeated("[", 100'000) + repeated("]", 100'000) + " }}",
      "{{ " + repeated("not ", 100'000) + "x }}",
      "{{ " + repeated("-", 100'000) + "1 }}",
      "{{ 1" + repeated(" + 1", 100'000) + " }}",
      "{{ x" + repeated(".a", 100'000) + " }}",
      "{{ x" + repeated("|e", 100'000) + " }}",
      "{{ 1" + repeated(" if 1 else 1", 100'000) + " }}",
      "{% if 0 %}" + repeated("{% elif 0 %}", 100'000) + "{% endif %}",
      "{{ " + repeated("{1:", 100'000) + " }}",
  };
  for (const std::string& source : sources) {
    const double start = cpu_seconds();
    const Result<std::string> text = render_text(source, "[]", {}, {.max_steps = 1'000'000});
    EXPECT_LT(cpu_seconds() - start, 10) << source.substr(0, 80);
    EXPECT_FALSE(text.ok()) << source.substr(0, 80);
    if (!text.ok()) {
      EXPECT_EQ(text.error().code, ErrorCode::kInvalidArgument);
      EXPECT_LT(text.error().message.size(), 200u);
    }
  }
}

// Long expressions whose parts are each long: freeing and evaluating them must not exhaust the
// stack.
TEST(JinjaLimits, DeepExpressionsAreFreedWithoutRecursion) {
  std::string source = "1";
  for (int i = 0; i < 60; ++i) source = "(" + source + ")" + repeated(" + 1", 300);
  const auto compiled = ChatTemplate::compile("{{ " + source + " }}");
  const bool renders = compiled.ok() && compiled.value()->render({}).ok();
  EXPECT_FALSE(renders);
}

TEST(JinjaLimits, NamespacesThatReferToThemselvesAreFreed) {
  EXPECT_EQ(*render_text(
                "{% set n = namespace() %}{% set n.self = n %}{% set n.l = [n, {'n': n}] %}"
                "{% for x in [1] %}{{ loop.changed(loop) }}{% set n.loop = loop %}{% endfor %}ok",
                "[]"),
            "Trueok");
}

TEST(JinjaLimits, LoopsOutliveTheirScopeSafely) {
  const std::string source =
      "{% set n = namespace(l=none) %}"
      "{% for a in [1] %}{% for x in [[1]] recursive %}{% set n.l = loop %}{{ x }}{% endfor %}{% "
      "endfor %}"
      "{% for y in [1, 2] %}{{ n.l([7]) }}{% endfor %}";
  EXPECT_EQ(*render_text(source, "[]"), "[1]77");
}

boost::json::value nested(int depth) {
  boost::json::value value = 1;
  for (int i = 0; i < depth; ++i) value = boost::json::object{{"k", std::move(value)}};
  return value;
}

TEST(JinjaLimits, DeepInputIsRefusedOrRendered) {
  const auto compiled = ChatTemplate::compile("{{ messages | tojson }}");
  for (const int depth : {10, 60, 150, 500, 5000}) {
    const boost::json::value messages = nested(depth);
    RenderInput input;
    input.messages = &messages;
    EXPECT_EQ(compiled.value()->render(input).ok(), depth < 199) << depth;
  }
}

// The bundled template walks schemas by macros that call each other; schemas may nest as deep as
// requests may.
TEST(JinjaLimits, MacrosMayRecurseAsDeepAsARequestNests) {
  const std::string source =
      "{% macro v(x) %}{% if x is mapping %}{ {{- m(x) -}} }{% else %}{{ x }}{% endif %}{% "
      "endmacro %}"
      "{% macro m(o) %}{% for k, x in o | dictsort %}{{ k }}:{{ v(x) }}{% endfor %}{% endmacro "
      "%}{{ v(messages) }}";
  const auto compiled = ChatTemplate::compile(source);
  const boost::json::value messages = nested(64);
  RenderInput input;
  input.messages = &messages;
  const auto spans = compiled.value()->render(input);
  ASSERT_TRUE(spans.ok()) << spans.error().message;
  EXPECT_EQ(joined(*spans).size(), 64u * 4 + 1);
}

TEST(JinjaLimits, LimitsAreTheCallers) {
  EXPECT_FALSE(
      render_text("{% for i in range(1000) %}x{% endfor %}", "[]", {}, {.max_steps = 500}).ok());
  EXPECT_FALSE(render_text("{{ 'x' * 1001 }}", "[]", {}, {.max_output_bytes = 1000}).ok());
  EXPECT_FALSE(
      render_text("{% for i in range(1001) %}x{% endfor %}", "[]", {}, {.max_output_bytes = 1000})
          .ok());
  EXPECT_TRUE(render_text("{{ 'x' * 1000 }}", "[]", {}, {.max_output_bytes = 1000}).ok());
}

// 100,000 tokens are about 400 kB. Measured: see the bound; quadratic string building would take
// minutes.
TEST(JinjaLimits, LongConversationsRenderInMilliseconds) {
  boost::json::array list;
  for (int i = 0; i < 400; ++i) {
    list.push_back(
        {{"role", i % 2 ? "assistant" : "user"}, {"content", repeated("word and more ", 300)}});
  }
  const boost::json::value messages(std::move(list));
  const auto compiled = ChatTemplate::compile(
      "{% set ns = namespace(all='') %}{% for m in messages %}{% set ns.all = ns.all ~ m.role ~ ': "
      "' ~ (m.content | trim) %}"
      "{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}{{ ns.all | "
      "length }}");
  RenderInput input;
  input.messages = &messages;
  const double start = cpu_seconds();
  const auto spans = compiled.value()->render(input);
  const double taken = cpu_seconds() - start;
  ASSERT_TRUE(spans.ok()) << spans.error().message;
  EXPECT_GT(joined(*spans).size(), 1'600'000u);
  EXPECT_LT(taken, 2);
  RecordProperty("microseconds", static_cast<int>(taken * 1e6));
}

}  // namespace
}  // namespace flotilla::chat
