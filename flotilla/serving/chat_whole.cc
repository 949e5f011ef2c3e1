#include "flotilla/serving/chat_whole.h"

#include "flotilla/base/check.h"

namespace flotilla::serving {

ChatWholeAnswer::ChatWholeAnswer(api::ResponseHead head, int num_choices, bool parallel_calls)
    : head_(std::move(head)),
      choices_(static_cast<std::size_t>(num_choices)),
      filters_(static_cast<std::size_t>(num_choices), CallFilter(parallel_calls)) {}

Status ChatWholeAnswer::add(ChatEvent& event, std::string&) {
  const auto index = static_cast<std::size_t>(event.choice);
  FLOTILLA_CHECK(index < choices_.size(), "event of a choice that was not asked for");
  api::ChoiceOutput& choice = choices_[index];
  if (head_.logprobs)
    std::move(event.logprobs.begin(), event.logprobs.end(), std::back_inserter(choice.logprobs));
  if (head_.return_token_ids)
    choice.token_ids.insert(choice.token_ids.end(), event.ids.begin(), event.ids.end());
  for (ChatDelta& delta : event.deltas) {
    if (delta.channel == ChatDelta::Channel::kContent) {
      choice.content += delta.text;
    } else if (delta.channel == ChatDelta::Channel::kReasoning) {
      choice.reasoning += delta.text;
    } else {
      FLOTILLA_TRY(const CallFilter::Verdict verdict, filters_[index].admit(delta));
      if (verdict == CallFilter::Verdict::kDrop) continue;
      if (verdict == CallFilter::Verdict::kStart)
        choice.tool_calls.push_back({delta.call_id, delta.call_name});
      choice.tool_calls.back().arguments += delta.text;
    }
  }
  if (event.finish) {
    choice.finish_reason =
        api::finish_reason(event.finish->reason == ChatFinish::Reason::kLength,
                           !choice.tool_calls.empty() && filters_[index].last_is_whole());
  }
  return ok_status();
}

void ChatWholeAnswer::end(const api::Usage& usage, std::string& out) {
  out += api::render_response(head_, choices_, usage);
}

}  // namespace flotilla::serving
