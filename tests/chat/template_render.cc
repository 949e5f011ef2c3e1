// template_render --print chatml|plain: writes a default template.
// template_render CASES.json: renders chat templates for comparison with other implementations.
//   in:  {"templates": {NAME: SOURCE}, "cases": [{"template": NAME, "messages": [...], "tools":
//   [...] or null,
//         "variables": {...}, "add_generation_prompt": bool, "bos_token": "", "eos_token": "",
//         "render_time": 0}]}
//   out: one line for each case: {"ok": true, "text": ...} or {"ok": false, "error": ...}
#include <boost/json.hpp>
#include <cstdio>
#include <map>
#include <memory>
#include <string>

#include "flotilla/chat/chat_template.h"
#include "flotilla/json/json.h"

namespace {

using flotilla::Error;
using flotilla::Result;
using flotilla::SpanText;
using flotilla::chat::ChatTemplate;
using Templates = std::map<std::string, Result<std::shared_ptr<const ChatTemplate>>>;

std::string text_member(const boost::json::value& object, std::string_view key) {
  const boost::json::value* value = flotilla::json::find(object, key);
  return value && value->is_string() ? std::string(value->get_string()) : std::string();
}

Result<SpanText> render(const Templates& templates, const boost::json::value& one) {
  const auto it = templates.find(text_member(one, "template"));
  if (it == templates.end()) return Error{flotilla::ErrorCode::kNotFound, "no such template"};
  if (!it->second.ok()) return it->second.error();
  flotilla::chat::RenderInput input;
  input.messages = flotilla::json::find(one, "messages");
  input.tools = flotilla::json::find(one, "tools");
  const boost::json::value* variables = flotilla::json::find(one, "variables");
  if (variables) input.variables = variables->if_object();
  const boost::json::value* prompt = flotilla::json::find(one, "add_generation_prompt");
  input.add_generation_prompt = prompt && prompt->is_bool() && prompt->get_bool();
  input.bos_token = text_member(one, "bos_token");
  input.eos_token = text_member(one, "eos_token");
  const boost::json::value* time = flotilla::json::find(one, "render_time");
  input.render_time = time && time->is_int64() ? time->get_int64() : 0;
  return it->second.value()->render(input);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && std::string_view(argv[1]) == "--print") {
    const bool is_plain = std::string_view(argv[2]) == "plain";
    const std::string_view source =
        is_plain ? flotilla::chat::plain_template() : flotilla::chat::chatml_template();
    std::fwrite(source.data(), 1, source.size(), stdout);
    return 0;
  }
  if (argc != 2) {
    std::fprintf(stderr, "usage: template_render CASES.json | --print chatml|plain\n");
    return 2;
  }
  const auto file = flotilla::json::parse_file(argv[1]);
  if (!file.ok()) {
    std::fprintf(stderr, "%s\n", to_string(file.error()).c_str());
    return 2;
  }
  Templates templates;
  for (const auto& entry : file->at("templates").as_object()) {
    templates.emplace(std::string(entry.key()),
                      ChatTemplate::compile(std::string(entry.value().as_string())));
  }
  for (const boost::json::value& one : file->at("cases").as_array()) {
    const Result<SpanText> result = render(templates, one);
    boost::json::object line;
    line["ok"] = result.ok();
    if (result.ok()) {
      std::string text;
      for (const flotilla::TextSpan& span : *result) text += span.text;
      line["text"] = text;
    } else {
      line["error"] = result.error().message;
    }
    std::printf("%s\n", boost::json::serialize(line).c_str());
  }
  return 0;
}
