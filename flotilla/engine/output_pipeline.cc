#include "flotilla/engine/output_pipeline.h"

#include <utility>

#include "flotilla/base/check.h"

namespace flotilla::engine {

using chat::Channel;
using chat::OutputDelta;

OutputPipeline::OutputPipeline(const ChatJob& job, std::int64_t prompt_tokens,
                               std::unique_ptr<chat::OutputParser> parser,
                               std::unique_ptr<TokenDecoder> decoder)
    : min_tokens_(job.min_tokens),
      wants_logprobs_(job.top_logprobs >= 0),
      parser_(std::move(parser)),
      decoder_(std::move(decoder)),
      matcher_(job.stop, job.include_stop_string) {
  usage_.prompt_tokens = prompt_tokens;
}

void OutputPipeline::count(TokenId id, std::optional<TokenLogprob> logprob) {
  FLOTILLA_CHECK(!finished_, "token after the end of an output");
  event_.ids.push_back(id);
  if (wants_logprobs_ && logprob) event_.logprobs.push_back(std::move(*logprob));
  ++usage_.completion_tokens;
  ++unattributed_;
}

bool OutputPipeline::push(TokenId id, std::optional<TokenLogprob> logprob) {
  count(id, std::move(logprob));
  const TokenText piece = decoder_->push(id);
  if (!piece.text.empty()) feed(piece.text, {});
  if (!piece.special.empty()) feed({}, piece.special);
  return matcher_.matched();
}

void OutputPipeline::push_end(TokenId id, std::optional<TokenLogprob> logprob) {
  count(id, std::move(logprob));
}

void OutputPipeline::finish(FinishReason reason, std::optional<Error> error) {
  if (finished_) return;
  if (!matcher_.matched()) {
    if (const std::string rest = decoder_->finish(); !rest.empty()) feed(rest, {});
  }
  if (!matcher_.matched()) add(parser_->finish());
  if (!matcher_.matched()) {
    if (std::string rest = matcher_.flush(); !rest.empty()) {
      append({.channel = Channel::kContent, .text = std::move(rest)});
    }
  }
  const bool natural = reason == FinishReason::kStop || reason == FinishReason::kLength;
  Finish finish;
  finish.reason = matcher_.matched() && natural ? FinishReason::kStop : reason;
  finish.error = std::move(error);
  if (natural) finish.matched_stop = std::string(matcher_.match());
  finish.usage = usage_;
  event_.finish = std::move(finish);
  finished_ = true;
}

bool OutputPipeline::has_event() const {
  return !event_.ids.empty() || !event_.deltas.empty() || event_.finish.has_value();
}

TokenEvent OutputPipeline::take_event(RequestId request) {
  TokenEvent event = std::exchange(event_, TokenEvent{});
  event.request = request;
  event.first_index = next_first_index_;
  event.cached_tokens = usage_.cached_tokens;
  next_first_index_ += static_cast<std::uint32_t>(event.ids.size());
  return event;
}

void OutputPipeline::feed(std::string_view text, std::string_view special) {
  if (!matcher_.matched()) add(parser_->push(text, special));
}

void OutputPipeline::add(std::vector<OutputDelta> deltas) {
  // Before min_tokens a stop string is ordinary text.
  const bool may_stop = usage_.completion_tokens >= min_tokens_;
  for (OutputDelta& delta : deltas) {
    if (matcher_.matched()) return;
    attribute_tokens(delta.channel);
    if (delta.channel != Channel::kContent) {
      // Order matters more than a match across channels: held text goes out first.
      if (std::string held = matcher_.flush(); !held.empty()) {
        append({.channel = Channel::kContent, .text = std::move(held)});
      }
      append(std::move(delta));
    } else {
      if (may_stop) delta.text = matcher_.push(delta.text);
      if (!delta.text.empty()) append(std::move(delta));
    }
  }
}

// Joins neighbours of one channel: a step of several tokens should not cost several frames.
void OutputPipeline::append(OutputDelta delta) {
  if (!event_.deltas.empty()) {
    OutputDelta& last = event_.deltas.back();
    if (last.channel == delta.channel && last.call_index == delta.call_index &&
        delta.call_name.empty()) {
      last.text += delta.text;
      return;
    }
  }
  event_.deltas.push_back(std::move(delta));
}

// A token belongs to the channel of the first piece that it, or the tokens after it, released.
void OutputPipeline::attribute_tokens(Channel channel) {
  if (channel == Channel::kReasoning) usage_.reasoning_tokens += unattributed_;
  unattributed_ = 0;
}

}  // namespace flotilla::engine
