// Template source and messages, separated by a zero byte. Whatever they are: no crash, bounded
// work, marks that hold.
#include <boost/json.hpp>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "flotilla/base/check.h"
#include "flotilla/chat/chat_template.h"
#include "flotilla/json/json.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace flotilla;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t zero = input.find('\0');
  const std::string source(input.substr(0, zero));
  const auto compiled = chat::ChatTemplate::compile(source);
  if (!compiled.ok()) return 0;
  const auto parsed = json::parse(zero == std::string_view::npos ? "[]" : input.substr(zero + 1));
  // The first bytes of users' text that the template's own source cannot contain.
  static const boost::json::value kDefault = boost::json::parse(
      R"([{"role":"system","content":"QZQ s"},{"role":"user","content":[{"type":"text","text":"QZQ u"}]},
          {"role":"assistant","content":null,"tool_calls":[{"id":"1","function":{"name":"QZQ","arguments":{"QZQ":[1,2.5,null,{"k":"QZQ"}]}}}]},
          {"role":"tool","tool_call_id":"1","content":"QZQ\n\u00e9"}])");
  chat::RenderInput render;
  render.messages = parsed.ok() ? &*parsed : &kDefault;
  render.tools = render.messages;
  render.bos_token = "<bos>";
  const boost::json::object variables = {{"enable_thinking", true}};
  render.variables = &variables;
  const auto spans =
      compiled.value()->render(render, {.max_steps = 100'000, .max_output_bytes = 1u << 20});
  if (!spans.ok()) return 0;
  const bool may_say_so =
      source.find("QZQ") != std::string::npos || source.find("qzq") != std::string::npos;
  for (std::size_t i = 0; i < spans->size(); ++i) {
    FLOTILLA_CHECK(!(*spans)[i].text.empty(), "empty span");
    FLOTILLA_CHECK(i == 0 || (*spans)[i].trusted != (*spans)[i - 1].trusted, "spans not merged");
    const bool forged = (*spans)[i].trusted && (*spans)[i].text.find("QZQ") != std::string::npos;
    FLOTILLA_CHECK(!forged || may_say_so || source.find('Q') != std::string::npos ||
                       source.find("\\") != std::string::npos,
                   "foreign text is trusted");
  }
  return 0;
}
