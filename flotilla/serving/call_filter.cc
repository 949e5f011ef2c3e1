#include "flotilla/serving/call_filter.h"

#include "flotilla/serving/ids.h"

namespace flotilla::serving {

Result<CallFilter::Verdict> CallFilter::admit(ChatDelta& delta) {
  if (delta.call_index > 0 && !parallel_) return Verdict::kDrop;
  // Pieces belong to the latest call or start the next one: clients rebuild calls by index and need
  // them in order.
  if (delta.call_index == num_calls_ && !delta.call_name.empty()) {
    ++num_calls_;
    if (delta.call_id.empty()) delta.call_id = random_id("call_");
    return Verdict::kStart;
  }
  if (delta.call_index >= 0 && delta.call_index == num_calls_ - 1) return Verdict::kContinue;
  return Error{ErrorCode::kInternal,
               "tool call " + std::to_string(delta.call_index) + " came out of order"};
}

}  // namespace flotilla::serving
