#include "flotilla/chat/jinja_arguments.h"

#include <string>

namespace flotilla::chat {

std::int64_t int_argument(Runtime& runtime, const Args& args, std::size_t position,
                          std::string_view name, std::int64_t fallback) {
  const Value* value = args.get(position, name);
  if (!value || value->is_none()) return fallback;
  std::int64_t number = 0;
  if (!value->to_int(number)) runtime.fail("argument '" + std::string(name) + "' is no integer");
  return number;
}

bool bool_argument(const Args& args, std::size_t position, std::string_view name, bool fallback) {
  const Value* value = args.get(position, name);
  return value ? value->truthy() : fallback;
}

MarkedText text_argument(Runtime& runtime, const Args& args, std::size_t position,
                         std::string_view name, const MarkedText& fallback) {
  const Value* value = args.get(position, name);
  return !value || value->is_none() ? fallback : runtime.to_text(*value);
}

const Value& required_argument(Runtime& runtime, const Args& args, std::size_t position,
                               std::string_view name) {
  const Value* value = args.get(position, name);
  if (!value) runtime.fail("argument '" + std::string(name) + "' is missing");
  return *value;
}

}  // namespace flotilla::chat
