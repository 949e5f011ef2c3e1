#include "flotilla/serving/call_filter.h"

#include "flotilla/serving/ids.h"

namespace flotilla::serving {

Result<CallFilter::Verdict> CallFilter::admit(ChatDelta& delta) {
  if (delta.call_index > 0 && !parallel_) return Verdict::kDrop;
  // Pieces belong to the latest call or start the next one: clients rebuild calls by index and need
  // them in order.
  if (delta.call_index == num_calls_ && !delta.call_name.empty()) {
    ++num_calls_;
    depth_ = 0;
    in_text_ = escaped_ = false;
    follow(delta.text);
    if (delta.call_id.empty()) delta.call_id = random_id("call_");
    return Verdict::kStart;
  }
  if (delta.call_index >= 0 && delta.call_index == num_calls_ - 1) {
    follow(delta.text);
    return Verdict::kContinue;
  }
  return Error{ErrorCode::kInternal,
               "tool call " + std::to_string(delta.call_index) + " came out of order"};
}

void CallFilter::follow(std::string_view arguments) {
  for (const char c : arguments) {
    if (in_text_) {
      in_text_ = escaped_ || c != '"';
      escaped_ = !escaped_ && c == '\\';
    } else if (c == '"') {
      in_text_ = true;
    } else if (c == '{' || c == '[') {
      ++depth_;
    } else if (c == '}' || c == ']') {
      --depth_;
    }
  }
}

}  // namespace flotilla::serving
