#include "flotilla/serving/block_sequence.h"

#include <iterator>
#include <utility>

namespace flotilla::serving {

using Kind = api::AnswerBlock::Kind;

BlockSequence::BlockSequence(Listener& listener, bool parallel_calls, bool keeps_logprobs)
    : listener_(listener), calls_(parallel_calls), keeps_logprobs_(keeps_logprobs) {}

Status BlockSequence::add(ChatEvent& event) {
  if (keeps_logprobs_)
    std::move(event.logprobs.begin(), event.logprobs.end(), std::back_inserter(pending_));
  for (ChatDelta& delta : event.deltas) FLOTILLA_TRY_STATUS(add_delta(delta));
  if (!event.finish) return ok_status();
  was_cut_ = event.finish->reason == ChatFinish::Reason::kLength;
  matched_stop_ = std::move(event.finish->matched_stop);
  close(!was_cut_);
  return ok_status();
}

Status BlockSequence::add_delta(ChatDelta& delta) {
  if (delta.channel != ChatDelta::Channel::kToolCall) {
    if (delta.text.empty()) return ok_status();
    const Kind kind =
        delta.channel == ChatDelta::Channel::kContent ? Kind::kText : Kind::kReasoning;
    if (!is_open_ || blocks_.back().kind != kind) {
      close(true);
      open({.kind = kind});
    }
    append(delta.text);
    return ok_status();
  }
  FLOTILLA_TRY(const CallFilter::Verdict verdict, calls_.admit(delta));
  if (verdict == CallFilter::Verdict::kDrop) return ok_status();
  if (verdict == CallFilter::Verdict::kStart) {
    close(true);
    open({.kind = Kind::kCall,
          .call_id = std::move(delta.call_id),
          .call_name = std::move(delta.call_name)});
  } else if (!is_open_ || blocks_.back().kind != Kind::kCall) {
    return Error{ErrorCode::kInternal, "a tool call went on after another part of the answer"};
  }
  if (!delta.text.empty()) append(delta.text);
  return ok_status();
}

void BlockSequence::open(api::AnswerBlock block) {
  blocks_.push_back(std::move(block));
  is_open_ = true;
  listener_.on_open(blocks_.size() - 1, blocks_.back());
}

void BlockSequence::append(std::string_view text) {
  api::AnswerBlock& block = blocks_.back();
  block.text += text;
  std::vector<api::TokenLogprob> logprobs = std::exchange(pending_, {});
  if (block.kind != Kind::kText) logprobs.clear();
  listener_.on_text(blocks_.size() - 1, block, text, logprobs);
  std::move(logprobs.begin(), logprobs.end(), std::back_inserter(block.logprobs));
}

// A call without arguments has the empty object, so that its pieces always join to JSON.
void BlockSequence::close(bool complete) {
  if (!std::exchange(is_open_, false)) return;
  api::AnswerBlock& block = blocks_.back();
  if (complete && block.kind == Kind::kCall && block.text.empty()) append("{}");
  block.complete = complete;
  listener_.on_close(blocks_.size() - 1, block);
}

}  // namespace flotilla::serving
