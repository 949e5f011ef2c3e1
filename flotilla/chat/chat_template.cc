#include "flotilla/chat/chat_template.h"

#include <boost/json/value.hpp>
#include <string>
#include <utility>

#include "flotilla/base/check.h"
#include "flotilla/chat/jinja_interpreter.h"
#include "flotilla/chat/jinja_parser.h"
#include "flotilla/chat/jinja_runtime.h"

namespace flotilla::chat {

struct ChatTemplate::Program {
  std::string source;
  ParsedTemplate parsed;
};

namespace {

Value from_json(Runtime& runtime, const boost::json::value& json, std::size_t level);

Value from_json(Runtime& runtime, const boost::json::object& object, std::size_t level) {
  std::vector<std::pair<Value, Value>> items;
  items.reserve(object.size());
  for (const auto& member : object) {
    runtime.charge_bytes(member.key().size());
    items.emplace_back(Value::text(std::string(member.key()), false),
                       from_json(runtime, member.value(), level + 1));
  }
  return Value::dict(std::move(items));
}

Value from_json(Runtime& runtime, const boost::json::value& json, std::size_t level) {
  if (level >= kMaxValueDepth)
    runtime.fail("the input nests deeper than " + std::to_string(kMaxValueDepth));
  runtime.charge(1);
  switch (json.kind()) {
    case boost::json::kind::null:
      return Value::none();
    case boost::json::kind::bool_:
      return Value::boolean(json.get_bool());
    case boost::json::kind::int64:
      return Value::integer(json.get_int64());
    case boost::json::kind::uint64: {
      const std::uint64_t number = json.get_uint64();
      return number > INT64_MAX ? Value::big(number)
                                : Value::integer(static_cast<std::int64_t>(number));
    }
    case boost::json::kind::double_:
      return Value::real(json.get_double());
    case boost::json::kind::string:
      runtime.check_text(json.get_string().size());
      return Value::text(std::string(json.get_string()), false);
    case boost::json::kind::array: {
      std::vector<Value> items;
      items.reserve(json.get_array().size());
      for (const auto& item : json.get_array())
        items.push_back(from_json(runtime, item, level + 1));
      return Value::list(std::move(items));
    }
    case boost::json::kind::object:
      return from_json(runtime, json.get_object(), level);
  }
  return {};
}

std::string describe(const TemplateError& error) {
  if (error.is_raised) return error.message;
  std::string place = "chat template line " + std::to_string(error.line);
  if (error.column) place += ":" + std::to_string(error.column);
  return place + ": " + error.message;
}

void set_globals(Interpreter& interpreter, Runtime& runtime, const RenderInput& input) {
  // What Hugging Face always passes, also when there is nothing.
  interpreter.set_global("tools", Value::none());
  interpreter.set_global("documents", Value::none());
  if (input.variables) {
    for (const auto& variable : *input.variables) {
      interpreter.set_global(std::string(variable.key()), from_json(runtime, variable.value(), 0));
    }
  }
  interpreter.set_global("messages",
                         input.messages ? from_json(runtime, *input.messages, 0) : Value::list({}));
  if (input.tools) interpreter.set_global("tools", from_json(runtime, *input.tools, 0));
  interpreter.set_global("add_generation_prompt", Value::boolean(input.add_generation_prompt));
  interpreter.set_global("bos_token", Value::text(input.bos_token, true));
  interpreter.set_global("eos_token", Value::text(input.eos_token, true));
}

}  // namespace

ChatTemplate::ChatTemplate(std::unique_ptr<const Program> program) : program_(std::move(program)) {}
ChatTemplate::~ChatTemplate() = default;

const std::string& ChatTemplate::source() const { return program_->source; }

Result<std::shared_ptr<const ChatTemplate>> ChatTemplate::compile(std::string source) {
  static constexpr std::size_t kMaxSource = 4u << 20;
  if (source.size() > kMaxSource) {
    return Error{ErrorCode::kTooLarge, "chat template of " + std::to_string(source.size()) +
                                           " bytes exceeds " + std::to_string(kMaxSource)};
  }
  auto program = std::make_unique<Program>();
  program->source = std::move(source);
  try {
    program->parsed = parse_template(program->source);
  } catch (const TemplateError& error) {
    return Error{ErrorCode::kInvalidArgument, describe(error)};
  }
  return std::shared_ptr<const ChatTemplate>(std::make_shared<ChatTemplate>(std::move(program)));
}

Result<SpanText> ChatTemplate::render(const RenderInput& input, const RenderLimits& limits) const {
  Runtime runtime(limits, input.render_time);
  try {
    Interpreter interpreter(program_->parsed, runtime);
    set_globals(interpreter, runtime, input);
    return interpreter.run();
  } catch (const TemplateError& error) {
    return Error{ErrorCode::kInvalidArgument, describe(error)};
  }
}

}  // namespace flotilla::chat
