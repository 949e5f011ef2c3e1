#include "flotilla/provider/output_trim.h"

#include <algorithm>

namespace flotilla::provider {

namespace {
void trim(std::string& text, std::uint64_t& budget) {
  const std::uint64_t n = std::min<std::uint64_t>(budget, text.size());
  text.erase(0, n);
  budget -= n;
}
}  // namespace

OutputTrim::OutputTrim(const protocol::EmittedBytes& emitted, std::size_t num_resume_ids)
    : content_(emitted.content),
      reasoning_(emitted.reasoning),
      calls_(emitted.tool_calls),
      num_ids_(num_resume_ids) {}

void OutputTrim::apply(engine::TokenEvent& event) {
  if (event.first_index < num_ids_ && !event.ids.empty()) {
    const auto n = static_cast<std::ptrdiff_t>(
        std::min<std::uint64_t>(num_ids_ - event.first_index, event.ids.size()));
    event.ids.erase(event.ids.begin(), event.ids.begin() + n);
    // Replayed ids have no logprobs; what there is belongs to the ids that stay.
    while (event.logprobs.size() > event.ids.size()) event.logprobs.erase(event.logprobs.begin());
    event.first_index += static_cast<std::uint32_t>(n);
  }
  std::erase_if(event.deltas, [&](chat::OutputDelta& delta) {
    switch (delta.channel) {
      case chat::Channel::kContent:
        trim(delta.text, content_);
        break;
      case chat::Channel::kReasoning:
        trim(delta.text, reasoning_);
        break;
      case chat::Channel::kToolCall: {
        const auto index = static_cast<std::size_t>(std::max(0, delta.call_index));
        if (index < calls_.size()) {
          trim(delta.text, calls_[index]);
          delta.call_name.clear();
        }
        break;
      }
    }
    return delta.text.empty() && delta.call_name.empty();
  });
}

std::uint64_t OutputTrim::remaining() const {
  std::uint64_t sum = content_ + reasoning_;
  for (const std::uint64_t bytes : calls_) sum += bytes;
  return sum;
}

}  // namespace flotilla::provider
