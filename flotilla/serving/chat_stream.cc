#include "flotilla/serving/chat_stream.h"

#include "flotilla/base/check.h"

namespace flotilla::serving {

ChatStreamAnswer::ChatStreamAnswer(api::ResponseHead head, int num_choices, bool parallel_calls)
    : head_(std::move(head)),
      writer_(head_),
      choices_(static_cast<std::size_t>(num_choices), Choice(parallel_calls)) {}

template <class Append>
void ChatStreamAnswer::with_extras(Choice& choice, Append append) const {
  append(api::ChunkExtras{choice.logprobs, choice.token_ids});
  choice.logprobs.clear();
  choice.token_ids.clear();
}

void ChatStreamAnswer::append_role(Choice& choice, int index, std::string& out) const {
  if (std::exchange(choice.role_sent, true)) return;
  writer_.append_role(out, index);
}

void ChatStreamAnswer::close_call(Choice& choice, int index, std::string& out) const {
  if (choice.open_call >= 0 && !choice.call_has_text) {
    writer_.append_call_arguments(out, index, choice.open_call, "{}", {});
  }
  choice.open_call = -1;
}

Status ChatStreamAnswer::append_delta(Choice& choice, int index, ChatDelta& delta,
                                      std::string& out) {
  if (delta.channel != ChatDelta::Channel::kToolCall) {
    if (delta.text.empty()) return ok_status();
    append_role(choice, index, out);
    with_extras(choice, [&](const api::ChunkExtras& extras) {
      if (delta.channel == ChatDelta::Channel::kContent) {
        writer_.append_content(out, index, delta.text, extras);
      } else {
        writer_.append_reasoning(out, index, delta.text, extras);
      }
    });
    return ok_status();
  }
  FLOTILLA_TRY(const CallFilter::Verdict verdict, choice.calls.admit(delta));
  if (verdict == CallFilter::Verdict::kDrop) return ok_status();
  if (verdict == CallFilter::Verdict::kStart) {
    append_role(choice, index, out);
    close_call(choice, index, out);
    choice.open_call = delta.call_index;
    choice.call_has_text = false;
    with_extras(choice, [&](const api::ChunkExtras& extras) {
      writer_.append_call_start(out, index, delta.call_index, {delta.call_id, delta.call_name},
                                extras);
    });
  }
  if (delta.text.empty()) return ok_status();
  choice.call_has_text = true;
  with_extras(choice, [&](const api::ChunkExtras& extras) {
    writer_.append_call_arguments(out, index, delta.call_index, delta.text, extras);
  });
  return ok_status();
}

Status ChatStreamAnswer::add(ChatEvent& event, std::string& out) {
  const auto index = static_cast<std::size_t>(event.choice);
  FLOTILLA_CHECK(index < choices_.size(), "event of a choice that was not asked for");
  Choice& choice = choices_[index];
  if (head_.logprobs)
    std::move(event.logprobs.begin(), event.logprobs.end(), std::back_inserter(choice.logprobs));
  if (head_.return_token_ids)
    choice.token_ids.insert(choice.token_ids.end(), event.ids.begin(), event.ids.end());
  for (ChatDelta& delta : event.deltas)
    FLOTILLA_TRY_STATUS(append_delta(choice, event.choice, delta, out));
  if (!event.finish) return ok_status();
  const bool cut = event.finish->reason == ChatFinish::Reason::kLength;
  append_role(choice, event.choice, out);
  if (!cut) close_call(choice, event.choice, out);
  with_extras(choice, [&](const api::ChunkExtras& extras) {
    const bool has_calls = choice.calls.num_calls() > 0 && choice.calls.last_is_whole();
    writer_.append_finish(out, event.choice, api::finish_reason(cut, has_calls), extras);
  });
  return ok_status();
}

void ChatStreamAnswer::end(const api::Usage& usage, std::string& out) {
  if (head_.include_usage) writer_.append_usage(out, usage);
  out += api::kDoneFrame;
}

}  // namespace flotilla::serving
